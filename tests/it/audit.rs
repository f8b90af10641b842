//! The audit trail outside of the database: exports, and the stream of the leader.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Stdio},
    sync::{Arc, Mutex},
};

use everytick_store::conformance::server::{Database, Server as Postgres};
use serde_json::Value;

use crate::support::{Ca, Server, wait_for};

fn database() -> Database {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Postgres::shared().blank())
}

fn ids(text: &str) -> Vec<u64> {
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap()).collect()
}

/// The ids of all rows, in their order.
fn exported(server: &Server) -> Vec<u64> {
    ids(&server.everytick(&["audit", "export"]).ok())
}

/// A reader that follows the trail. Killed at the end of the test.
struct Follower {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Follower {
    fn start(server: &Server, after: u64) -> Self {
        let mut command = server.command(&["audit", "export", "--follow", "--after", &after.to_string()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (stdout, lines) = (BufReader::new(child.stdout.take().unwrap()), Arc::new(Mutex::new(Vec::new())));
        std::thread::spawn({
            let lines = lines.clone();
            move || stdout.lines().map_while(Result::ok).for_each(|line| lines.lock().unwrap().push(line))
        });
        Self { child, lines }
    }

    fn ids(&self) -> Vec<u64> {
        ids(&self.lines.lock().unwrap().join("\n"))
    }

    #[track_caller]
    fn wait_for(&self, expected: &[u64]) {
        wait_for("the followed rows", || (self.ids().len() >= expected.len()).then_some(()));
        assert_eq!(self.ids(), expected, "each row once, in the order of the ids");
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn create(server: &Server, names: &[&str]) {
    for name in names {
        server.everytick(&["job", "create", name, "--queue", "q"]).ok();
    }
}

/// The ids in a file to which the trail is sent.
fn sent(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may not be complete yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    ids(whole)
}

#[test]
fn an_export_is_printed_from_an_id_on_and_wrong_ids_are_refused() {
    let server = Server::start();
    create(&server, &["a", "b", "c"]);
    let all = exported(&server);
    assert_eq!(all.len(), 3);
    let rest = server.everytick(&["audit", "export", "--after", &all[0].to_string()]).ok();
    assert_eq!(ids(&rest), all[1..]);
    let listed = server.everytick(&["audit", "list", "-o", "json"]).json();
    let first: Value = serde_json::from_str(rest.lines().next().unwrap()).unwrap();
    assert_eq!(listed["items"][1], first, "a line is the object of the list");
    let refused = server.everytick(&["audit", "export", "--after", "1000000"]).failed(4);
    assert!(refused.contains("above the last id, 3"), "{refused}");
    assert!(server.everytick(&["audit", "--result", "maybe"]).failed(1).contains("\"failed\""));
}

#[test]
fn a_follower_misses_no_row_while_the_server_restarts() {
    let server = Server::start();
    create(&server, &["a", "b"]);
    let follower = Follower::start(&server, 0);
    follower.wait_for(&exported(&server));
    let url = server.url().to_owned();
    let dir = server.kill();
    let server = Server::builder().dir(dir).url(&url).start();
    create(&server, &["c", "d"]);
    follower.wait_for(&exported(&server));
    // Another reader continues after the last line of the first.
    let last = *follower.ids().last().unwrap();
    create(&server, &["e"]);
    Follower::start(&server, last).wait_for(&[last + 1]);
}

#[test]
fn a_follower_and_the_stream_miss_no_row_when_the_leader_changes() {
    let (database, files) = (database(), tempfile::tempdir().unwrap());
    let file = |name: &str| files.path().join(name);
    let node = |name: &str| {
        let stream = format!("file:{}", file(name).display());
        let flags = ["--database-url", &database.url, "--node-name", name, "--lease", "8s", "--auth", "open"];
        Server::builder().flags(&flags).flags(&["--audit-stream", &stream]).start()
    };
    let a = node("a");
    create(&a, &["j1", "j2"]);
    wait_for("the stream of the first leader", || (sent(&file("a")).len() == 2).then_some(()));
    let b = node("b");
    let follower = Follower::start(&b, 0);
    create(&b, &["j3", "j4"]);
    // The leader is killed at any point of its work.
    drop(a.kill());
    create(&b, &["j5", "j6", "j7"]);
    let all = exported(&b);
    follower.wait_for(&all);
    wait_for("all rows in one of the files", || {
        let sent: BTreeSet<u64> = [sent(&file("a")), sent(&file("b"))].concat().into_iter().collect();
        all.iter().all(|id| sent.contains(id)).then_some(())
    });
    assert!(sent(&file("a")).is_sorted() && sent(&file("b")).is_sorted());
    let metrics = b.script("curl -fsS $EVERYTICK_SERVER/metrics");
    assert!(metrics.contains("everytick_audit_stream_lag_seconds"), "{metrics}");
}

#[test]
fn a_file_that_cannot_be_written_loses_nothing() {
    let server = Server::builder().flags(&["--audit-stream", "file:logs/audit.ndjson"]).start();
    create(&server, &["a", "b"]);
    server.wait_for_log("could not send the audit trail");
    assert!(server.log().contains("logs/audit.ndjson"), "{}", server.log());
    std::fs::create_dir(server.dir().join("logs")).unwrap();
    let path = server.dir().join("logs/audit.ndjson");
    wait_for("the rows", || (sent(&path) == exported(&server)).then_some(()));
    let last = *exported(&server).last().unwrap();
    // After a restart, only new rows are sent.
    let server = Server::builder().dir(server.stop().0).flags(&["--audit-stream", "stderr"]).start();
    create(&server, &["c"]);
    server.wait_for_log(&format!("{{\"id\":{}", last + 1));
    assert!(!server.log().contains(&format!("{{\"id\":{last},")), "{}", server.log());
}

#[test]
fn rows_are_sent_over_https_only_where_webhooks_may_go_and_again_until_they_are_confirmed() {
    let (ca, dir) = (Ca::new("test"), tempfile::tempdir().unwrap());
    let trusted = dir.path().join("ca.pem");
    std::fs::write(&trusted, ca.pem()).unwrap();
    // A second server is the receiver. It has no such path, so it confirms nothing, and it is not the API of this cluster.
    let pair = ca.issue("localhost", &["localhost", "127.0.0.1"]);
    let [cert, key] = [("cert.pem", &pair.cert), ("key.pem", &pair.key)].map(|(name, text)| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    });
    let receiver = Server::builder().flags(&["--tls-cert", &cert, "--tls-key", &key]).start();
    let stream = format!("{}/api/v1/none?token=t0ken", receiver.url());
    let start = |flags: &[&str]| {
        let trusted = trusted.display().to_string();
        Server::builder().flags(&["--audit-stream", &stream]).flags(flags).env("SSL_CERT_FILE", &trusted).start()
    };
    for (flags, expected) in [(&[][..], "loopback"), (&["--allow-webhook-range", "127.0.0.0/8"][..], "answered 404")] {
        let server = start(flags);
        create(&server, &["a"]);
        server.wait_for_log("could not send the audit trail");
        wait_for(expected, || server.log().contains(expected).then_some(()));
        assert!(!server.log().contains("t0ken"), "{}", server.log());
    }
}
