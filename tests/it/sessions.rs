//! Sessions of browsers from outside: login with curl, lists and ends by the command line, and the end on another node.

use std::process::Command;

use everytick_store::conformance::server::Server as Postgres;

use crate::support::{Done, Server, wait_for, with_stdin};

/// Sends a request of a browser to the server. Returns the status and the answer with its headers.
fn browse(server: &Server, path: &str, cookie: Option<&str>, form: &[(&str, &str)]) -> (u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "-H", &format!("Origin: {}", server.url())]);
    cookie.iter().for_each(|cookie| _ = curl.args(["-H", &format!("Cookie: {cookie}")]));
    for (name, value) in form {
        curl.args(["--data-urlencode", &format!("{name}={value}")]);
    }
    let answer = Done::from(curl.arg(format!("{}{path}", server.url())).output().unwrap()).ok();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{answer}")), answer)
}

fn log_in(server: &Server, token: &str) -> String {
    let (status, answer) = browse(server, "/auth/login", None, &[("token", token), ("next", "/docs")]);
    assert_eq!(status, 303, "{answer}");
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

fn status(server: &Server, cookie: &str) -> u16 {
    browse(server, "/api/v1/jobs", Some(cookie), &[]).0
}

#[test]
fn the_command_line_lists_and_ends_the_sessions_of_browsers() {
    let server = Server::start();
    let token = |name: &str, role: &str| server.everytick(&["token", "create", name, "--role", role]).ok();
    let admin = token("first", "admin");
    with_stdin(&mut server.command(&["login"]), &admin).ok();
    let viewer = token("ci", "viewer");
    let (first, second, third) = (log_in(&server, &viewer), log_in(&server, &viewer), log_in(&server, &admin));
    assert!([&first, &second, &third].into_iter().all(|cookie| status(&server, cookie) == 200));
    let table = server.everytick(&["session", "list"]).ok();
    assert!(table.contains("USER") && table.contains("token:ci") && table.contains("default: viewer"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let listed = server.everytick(&["session", "list", "-o", "json"]).json();
    let id = listed["items"][2]["id"].as_str().unwrap();
    assert_eq!((&listed["items"][2]["user"], &listed["items"][2]["own"]), (&"token:first".into(), &false.into()));
    server.everytick(&["session", "revoke", id]).ok();
    assert_eq!((status(&server, &third), status(&server, &first)), (401, 200));
    let ended = server.everytick(&["session", "revoke", "token:ci"]);
    assert_eq!(ended.stderr.matches("ended a session of token:ci").count(), 2, "{}", ended.stderr);
    assert_eq!((status(&server, &first), status(&server, &second)), (401, 401));
    let missing = server.everytick(&["session", "revoke", "token:ci"]).failed(3);
    assert!(missing.contains("everytick session list"), "{missing}");
    let actions = server.everytick(&["audit", "--action", "end_session", "-o", "json"]).json();
    assert_eq!(actions["items"].as_array().unwrap().len(), 3);
    // A session outlives a restart, and its token stays usable.
    let fourth = log_in(&server, &viewer);
    let server = Server::builder().dir(server.stop().0).start();
    assert_eq!(status(&server, &fourth), 200);
}

#[test]
fn an_ended_session_ends_on_the_other_nodes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(Postgres::shared().blank());
    let node = |name: &str| Server::builder().flags(&["--database-url", &database.url, "--node-name", name]).start();
    let (a, b) = (node("a"), node("b"));
    let token = a.everytick(&["token", "create", "first", "--role", "admin"]).ok();
    let cookie = log_in(&a, &token);
    assert_eq!(status(&b, &cookie), 200, "the session is valid on every node");
    with_stdin(&mut a.command(&["login"]), &token).ok();
    a.everytick(&["session", "revoke", "token:first"]).ok();
    assert_eq!(status(&a, &cookie), 401);
    wait_for("node b to refuse the session", || (status(&b, &cookie) == 401).then_some(()));
}
