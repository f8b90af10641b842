//! Credentials from outside: the first token in each way, the modes, logins, and where tokens must not appear.

use std::{
    fs,
    io::Read as _,
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
    process::{Child, Stdio},
};

use futures::StreamExt as _;

use everytick_store::conformance::server::{Database, Server as Postgres};
use serde_json::Value;
use sqlx::Connection as _;
use tempfile::TempDir;

use crate::support::{Done, Server, everytick, everytick_command, wait_for, with_stdin};

fn database() -> Database {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Postgres::shared().blank())
}

/// Runs a command as another user, who has other credentials.
fn other_user(server: &Server, args: &[&str]) -> Done {
    let mut command = server.command(args);
    command.env("XDG_CONFIG_HOME", server.dir().join("other")).output().unwrap().into()
}

/// A command with a token in the environment.
fn with_token(server: &Server, token: &str, args: &[&str]) -> Done {
    let mut command = server.command(args);
    command.env("XDG_CONFIG_HOME", server.dir().join("none")).env("EVERYTICK_TOKEN", token.trim());
    command.output().unwrap().into()
}

fn create(server: &Server, name: &str, more: &[&str]) -> String {
    server.everytick(&[&["token", "create", name], more].concat()).ok().trim().to_owned()
}

#[test]
fn a_server_is_open_until_the_first_token_and_stays_closed_without_one() {
    let server = Server::start();
    assert!(server.everytick(&["whoami"]).ok().contains("the server is open"));
    let weak = server.everytick(&["token", "create", "first", "--role", "viewer"]).failed(1);
    assert!(weak.contains("the role admin first"), "{weak}");
    let first = server.everytick(&["token", "create", "first", "--role", "admin"]);
    assert!(first.stderr.contains("the server is closed now"), "{first:?}");
    let token = first.ok().trim().to_owned();
    assert!(token.starts_with("etk_") && token.len() == 42, "{token}");
    let refused = server.everytick(&["job", "list"]).failed(1);
    assert!(refused.contains("needs a token") && refused.contains("everytick login"), "{refused}");
    with_stdin(&mut server.command(&["login"]), &token).ok();
    let file = server.dir().join("config/everytick/credentials.toml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(server.everytick(&["whoami"]).ok().contains("token:first, role admin"));
    assert_eq!(other_user(&server, &["job", "list"]).code, 1);
    let later = server.everytick(&["token", "create", "ci", "--role", "viewer"]);
    assert!(!later.stderr.contains("is closed now"), "{later:?}");
    let forbidden = with_token(&server, &later.ok(), &["token", "list"]).failed(1);
    assert!(forbidden.contains("\"manage\"") && forbidden.contains("one of these roles: admin;"), "{forbidden}");
    let last = server.everytick(&["token", "revoke", "first"]).failed(4);
    assert!(last.contains("access reset") && last.contains("--yes"), "{last}");
    server.everytick(&["token", "revoke", "ci"]).ok();
    server.everytick(&["token", "revoke", "first", "--yes"]).ok();
    let revoked = server.everytick(&["job", "list"]).failed(1);
    assert!(revoked.contains(server.url()) && revoked.contains("refused this token"), "{revoked}");
    assert!(revoked.contains("revoked") && revoked.contains("access reset"), "{revoked}");
    let login = with_stdin(&mut server.command(&["login"]), &token).failed(1);
    assert!(login.contains("refused this token"), "{login}");
    server.everytick(&["logout"]).ok();
    assert!(!fs::read_to_string(&file).unwrap().contains("etk_"));
    let server = Server::builder().dir(server.stop().0).start();
    assert_eq!(server.everytick(&["job", "list"]).code, 1, "no token is left, and the server stays closed");
}

#[test]
fn with_shell_the_user_that_runs_the_server_needs_no_login_and_others_get_401() {
    let server = Server::builder().flags(&["--enable-shell"]).start();
    server.everytick(&["job", "create", "j", "--every", "1h", "--shell", "true"]).ok();
    let me = server.everytick(&["whoami", "-o", "json"]).json();
    assert!(me["actor"].as_str().unwrap().starts_with("token:local-admin@"), "{me}");
    assert_eq!(other_user(&server, &["job", "list"]).code, 1);
    // After a restart on another address, the node stores the token for that address.
    let server = Server::builder().flags(&["--enable-shell"]).dir(server.stop().0).start();
    server.everytick(&["job", "get", "j"]).ok();
    let tokens = server.everytick(&["token", "list", "-o", "json"]).json();
    assert_eq!(tokens["items"].as_array().unwrap().len(), 2, "one for commands, one for workers: {tokens}");
    // Once an operator has created a token, a start creates no more.
    create(&server, "ops", &["--role", "admin"]);
    let dir = server.stop().0;
    fs::remove_file(dir.path().join("config/everytick/credentials.toml")).unwrap();
    let server = Server::builder().flags(&["--enable-shell"]).dir(dir).start();
    assert_eq!(server.everytick(&["job", "list"]).code, 1);
}

#[test]
fn a_worker_claims_with_its_own_token_and_its_command_does_not_see_it() {
    let server = Server::builder().flags(&["--enable-shell"]).start();
    server.everytick(&["job", "create", "q", "--queue", "mail"]).ok();
    let token = create(&server, "mailer", &["--role", "worker", "--queue", "mail"]);
    let seen = server.dir().join("seen");
    let script = format!("echo \"[$EVERYTICK_TOKEN]\" >> {}", seen.display());
    let args = ["worker", "--queue", "mail", "--", "sh", "-c", &script];
    for given in [None, Some(&token)] {
        let mut command = server.command(&args);
        if let Some(token) = given {
            command.env("XDG_CONFIG_HOME", server.dir().join("none")).env("EVERYTICK_TOKEN", token);
        }
        let mut worker = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        server.everytick(&["job", "trigger", "q", "--wait"]).ok();
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    assert_eq!(fs::read_to_string(&seen).unwrap(), "[]\n[]\n");
}

#[test]
fn the_first_token_is_created_in_a_sqlite_file_without_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let create_as = |name: &str, role: &str| {
        let args = ["token", "create", name, "--role", role, "--data-dir", "data"];
        Done::from(everytick_command(dir.path()).args(args).output().unwrap())
    };
    let create = |name: &str| create_as(name, "admin");
    assert!(create("first").failed(2).contains("there is no folder data"));
    assert!(!dir.path().join("data").exists(), "a folder that was misspelled is not created");
    fs::create_dir(dir.path().join("data")).unwrap();
    let weak = create_as("first", "viewer").failed(2);
    assert!(weak.contains("--role: ") && weak.contains("the role admin first"), "{weak}");
    let first = create("first");
    assert!(first.stderr.contains("the server is closed now"), "{first:?}");
    let token = first.ok();
    let again = create("second").failed(4);
    assert!(again.contains("a credential exists"), "{again}");
    let server = Server::builder().dir(dir).start();
    assert_eq!(server.everytick(&["job", "list"]).code, 1);
    with_token(&server, &token, &["job", "list"]).ok();
    // A token in the environment is sent only to a server that a flag or a variable names.
    let mut command = everytick_command(server.dir());
    let elsewhere: Done = command.env("EVERYTICK_TOKEN", "nonsense").args(["job", "list"]).output().unwrap().into();
    let stderr = &elsewhere.stderr;
    assert!(stderr.contains("EVERYTICK_TOKEN is ignored") && !stderr.contains("not a token"), "{elsewhere:?}");
    let dir = server.stop().0;
    let reset = ["access", "reset", "--data-dir", "data"];
    Done::from(everytick_command(dir.path()).args(reset).output().unwrap()).ok();
    let server = Server::builder().dir(dir).start();
    server.everytick(&["job", "list"]).ok();
}

#[test]
fn the_first_token_is_created_in_postgresql_and_revocation_reaches_other_nodes() {
    let database = database();
    let url = everytick_url_file(&database);
    let file = url.path().join("url").display().to_string();
    let args = ["token", "create", "first", "--role", "instance", "--database-url-file", &file];
    let instance = everytick(&args).ok();
    let node = |name: &str| Server::builder().flags(&["--database-url-file", &file, "--node-name", name]).start();
    let (a, b) = (node("a"), node("b"));
    assert_eq!(with_token(&a, &instance, &["job", "list"]).code, 1, "an instance token belongs to no tenant");
    let create = ["token", "create", "ops", "--role", "admin", "--tenant", "default"];
    let admin = with_token(&a, &instance, &create).ok();
    with_token(&b, &admin, &["job", "list"]).ok();
    // An admin does not see the instance token, which remains.
    with_token(&a, &admin, &["token", "revoke", "ops", "--yes"]).ok();
    wait_for("the revocation on the other node", || (with_token(&b, &admin, &["job", "list"]).code == 1).then_some(()));
    with_token(&b, &instance, &["whoami"]).ok();
}

fn everytick_url_file(database: &Database) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("url"), &database.url).unwrap();
    dir
}

#[test]
fn a_container_gets_its_first_token_from_a_file_and_ignores_it_later() {
    let token = everytick(&["token", "generate"]).ok();
    let secret = tempfile::tempdir().unwrap();
    let path = secret.path().join("token");
    fs::write(&path, &token).unwrap();
    let start = |dir: TempDir| {
        Server::builder().env("EVERYTICK_BOOTSTRAP_TOKEN_FILE", &path.display().to_string()).dir(dir).start()
    };
    let server = start(tempfile::tempdir().unwrap());
    with_token(&server, &token, &["job", "create", "j", "--queue", "q"]).ok();
    fs::write(&path, everytick(&["token", "generate"]).ok()).unwrap();
    let server = start(server.stop().0);
    server.wait_for_log("it can be removed");
    with_token(&server, &token, &["job", "get", "j"]).ok();
    let tokens: Value = with_token(&server, &token, &["token", "list", "-o", "json"]).json();
    assert_eq!(tokens["items"].as_array().unwrap().len(), 1, "{tokens}");
}

#[test]
fn an_open_api_is_set_only_by_a_flag_and_logs_a_warning() {
    let server = Server::builder().flags(&["--auth", "open", "--enable-shell"]).start();
    server.wait_for_log("--auth open");
    other_user(&server, &["job", "list"]).ok();
    create(&server, "first", &["--role", "admin"]);
    other_user(&server, &["job", "list"]).ok();
    let mut command = everytick_command(Path::new("/tmp"));
    let refused: Done = command.env("EVERYTICK_AUTH", "open").args(["serve"]).output().unwrap().into();
    assert!(refused.failed(2).contains("only on the command line"));
}

#[test]
fn a_name_means_the_newest_token_for_a_rotation_and_all_of_them_for_a_revocation() {
    let server = Server::start();
    let admin = create(&server, "ops", &["--role", "admin"]);
    let ops = |args: &[&str]| with_token(&server, &admin, args);
    let first = ops(&["token", "create", "ci", "--role", "viewer"]).ok();
    let second = ops(&["token", "rotate", "ci"]).ok();
    for token in [&first, &second] {
        with_token(&server, token, &["job", "list"]).ok();
    }
    let refused = ops(&["token", "rotate", "ci"]).failed(4);
    assert!(refused.contains("made by a rotation"), "the newest one was chosen: {refused}");
    let ended = ops(&["token", "revoke", "ci"]);
    assert_eq!(ended.stderr.matches("revoked ci").count(), 2, "{ended:?}");
    for token in [&first, &second] {
        assert_eq!(with_token(&server, token, &["job", "list"]).code, 1);
    }
}

#[test]
fn each_unix_socket_has_its_own_entry_and_a_foreign_one_gets_no_token() {
    let server = Server::builder().flags(&["--listen", "unix:api.sock", "--enable-shell"]).start();
    let socket = server.dir().join("api.sock");
    let at = |path: &Path, args: &[&str]| {
        let mut command = server.command(args);
        Done::from(command.env("EVERYTICK_SERVER", format!("unix:{}", path.display())).output().unwrap())
    };
    assert!(at(&socket, &["whoami"]).ok().contains("local-admin@"), "the node stores its token for each listener");
    let stored = fs::read_to_string(server.dir().join("config/everytick/credentials.toml")).unwrap();
    assert!(stored.contains(&format!("unix:{}", socket.canonicalize().unwrap().display())), "{stored}");
    // A foreign program tries to receive the token: first at another path, then as another user at the path of the server.
    let foreign = server.dir().join("foreign.sock");
    let listener = UnixListener::bind(&foreign).unwrap();
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4_096];
        let count = stream.read(&mut request).unwrap();
        String::from_utf8_lossy(&request[..count]).into_owned()
    });
    let answer = at(&foreign, &["whoami"]);
    assert_ne!(answer.code, 0);
    let request = asked.join().unwrap();
    assert!(request.starts_with("GET /api/v1/me") && !request.to_lowercase().contains("authorization"), "{request}");
    if std::os::unix::fs::chown(&socket, Some(12_345), None).is_ok() {
        let refused = at(&socket, &["whoami"]).failed(2);
        assert!(refused.contains("12345"), "{refused}");
    }
}

/// The node must not start open when the operator gives it a first token.
#[test]
fn a_bootstrap_token_that_cannot_be_created_stops_the_start() {
    let database = database();
    let url = everytick_url_file(&database);
    let file = url.path().join("url").display().to_string();
    // A file that cannot be used stops the start too. The message has the line of the settings file.
    fs::write(url.path().join("bad"), [0xff, 0xfe]).unwrap();
    for (name, expected) in [("bad", "not UTF-8"), ("none", "no such file")] {
        let path = url.path().join(name).display().to_string();
        fs::write(url.path().join("t.toml"), format!("\nbootstrap_token_file = {path:?}\n")).unwrap();
        let args = ["--config", "t.toml", "serve", "--listen", "127.0.0.1:0", "--data-dir", "data"];
        let refused = Done::from(everytick_command(url.path()).args(args).output().unwrap()).failed(2);
        assert!(refused.contains("t.toml: line 2: bootstrap_token_file: ") && refused.contains(expected), "{refused}");
    }
    // A node of a release that checks no tokens.
    let server = Server::builder().flags(&["--database-url-file", &file, "--node-name", "old"]).start();
    sql(&database, "update leases set checks_tokens = false");
    let token = url.path().join("token");
    fs::write(&token, everytick(&["token", "generate"]).ok()).unwrap();
    let token = token.display().to_string();
    let args = ["serve", "--listen", "127.0.0.1:0", "--database-url-file", &file, "--bootstrap-token-file", &token];
    let mut node = Killed(everytick_command(url.path()).args(args).stderr(Stdio::piped()).spawn().unwrap());
    let status = wait_for("the node to refuse the start", || node.0.try_wait().unwrap());
    let mut refused = String::new();
    node.0.stderr.take().unwrap().read_to_string(&mut refused).unwrap();
    assert_eq!(status.code(), Some(2), "{refused}");
    assert!(refused.contains("--bootstrap-token-file") && refused.contains("old"), "{refused}");
    server.everytick(&["job", "list"]).ok();
}

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sql(database: &Database, statement: &'static str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
    });
}

#[test]
fn guesses_from_one_address_never_refuse_a_valid_token_from_another() {
    const GUESSES: usize = 1_500;
    let server = Server::start();
    let admin = create(&server, "first", &["--role", "admin"]);
    let fresh: Vec<String> = (0..20)
        .map(|n| with_token(&server, &admin, &["token", "create", &format!("t{n}"), "--role", "viewer"]).ok())
        .collect();
    let url = format!("{}/api/v1/jobs", server.url());
    let client = |address: [u8; 4]| {
        let builder = reqwest::Client::builder().no_proxy().local_address(std::net::IpAddr::from(address));
        builder.build().unwrap()
    };
    let (guesser, owner) = (client([127, 0, 0, 1]), client([127, 0, 0, 2]));
    let guesses: Vec<String> = (0..GUESSES)
        .map(|_| everytick_domain::access::Token::from_random(&random()).unwrap().expose().to_owned())
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (refused, served) = runtime.block_on(async {
        let refused = futures::stream::iter(&guesses)
            .map(|guess| ask(&guesser, &url, guess))
            .buffer_unordered(64)
            .collect::<Vec<_>>();
        // None of these tokens was used before, so each needs a lookup of its own.
        let served = async {
            let mut answers = Vec::new();
            for token in &fresh {
                answers.push(ask(&owner, &url, token).await);
            }
            answers
        };
        tokio::join!(refused, served)
    });
    assert_eq!(served, [200; 20]);
    assert!(refused.iter().all(|status| [401, 429].contains(status)), "{refused:?}");
    assert!(refused.iter().filter(|status| **status == 429).count() > GUESSES / 2, "{refused:?}");
    // The address is known by now. A valid token from there is served all the same.
    assert_eq!(runtime.block_on(ask(&guesser, &url, &admin)), 200);
    // Their audit rows are limited, and the answers to wrong tokens are counted in them.
    let rows = with_token(&server, &admin, &["audit", "--action", "denied", "--limit", "1000", "-o", "json"]).json();
    let rows = rows["items"].as_array().unwrap();
    assert!((1..GUESSES / 2).contains(&rows.len()), "{}", rows.len());
    assert!(rows.iter().all(|row| row["ip"] == "127.0.0.1"), "{rows:?}");
}

async fn ask(client: &reqwest::Client, url: &str, token: &str) -> u16 {
    client.get(url).bearer_auth(token.trim()).send().await.unwrap().status().as_u16()
}

fn random() -> [u8; 64] {
    let mut bytes = [0; 64];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}

/// Creates a token and searches for it in all output and files of the server and the commands.
#[test]
fn a_token_is_in_no_log_and_no_file_of_the_server() {
    let server = Server::builder().flags(&["--log-level", "trace"]).start();
    let token = create(&server, "canary", &["--role", "admin"]);
    let mut shown = String::new();
    for args in [
        &["whoami", "-o", "json"][..],
        &["token", "list", "-o", "json"],
        &["audit", "-o", "json"],
        &["job", "get", "none"],
        &["token", "create", "canary", "--role", "admin"],
        &["job", "list", "--cursor", "wrong"],
    ] {
        let done = with_token(&server, &token, args);
        shown += &format!("{}{}", done.stdout, done.stderr);
    }
    let wrong = with_token(&server, &token[..41], &["job", "list"]);
    let secret = &token[8..];
    assert!(!shown.contains(secret) && !wrong.stderr.contains(&secret[..30]), "{shown}{wrong:?}");
    let (dir, _, log) = server.stop();
    assert!(!log.contains(secret), "the log has the token");
    for file in fs::read_dir(dir.path().join("data")).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "the data has the token");
    }
}

#[test]
fn a_token_is_not_sent_over_http_to_another_machine() {
    let token = everytick(&["token", "generate"]).ok();
    let dir = tempfile::tempdir().unwrap();
    let mut command = everytick_command(dir.path());
    command.env("EVERYTICK_TOKEN", token.trim()).args(["--server", "http://192.0.2.1:8640", "job", "list"]);
    let refused = Done::from(command.output().unwrap()).failed(2);
    assert!(refused.contains("https://") && !refused.contains(token.trim()), "{refused}");
}
