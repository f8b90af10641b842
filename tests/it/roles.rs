//! Nodes that connect to PostgreSQL as a role that owns nothing, after `everytick migrate --app-role`.

use everytick_store::conformance::server::{APP, Database, Server as Postgres, as_app};
use serde_json::Value;

use crate::support::{Server, Sink, everytick, wait_for};

fn database() -> Database {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Postgres::shared().blank())
}

fn node(url: &str, name: &str) -> Server {
    let flags = ["--database-url", url, "--node-name", name, "--auth", "open", "--allow-webhook-range", "127.0.0.0/8"];
    Server::builder().flags(&flags).start()
}

fn security(node: &Server) -> Value {
    node.everytick(&["cluster", "-o", "json"]).json()["row_level_security"].clone()
}

#[test]
fn a_node_serves_and_runs_jobs_as_a_role_that_owns_nothing() {
    let (database, sink) = (database(), Sink::start());
    let prepared = everytick(&["migrate", "--database-url", &database.url, "--app-role", APP]);
    assert_eq!(prepared.code, 0, "{}", prepared.stderr);
    assert!(prepared.stderr.contains(&format!("nodes that connect as {APP}")), "{}", prepared.stderr);
    let app = node(&as_app(&database.url), "app");
    app.wait_for_log("row_level_security=\"on\"");
    assert_eq!(security(&app), "on");
    let table = app.everytick(&["cluster"]).ok();
    assert!(table.contains("; row-level security: on\n"), "{table}");
    app.everytick(&["job", "create", "ticks", "--every", "1s", "--url", &sink.url()]).ok();
    sink.wait_for(2);
    app.everytick(&["job", "create", "asked", "--queue", "q"]).ok();
    app.everytick(&["job", "trigger", "asked"]).ok();
    let mut worker = app.command(&["worker", "--quiet", "--queue", "q", "--", "true"]).spawn().unwrap();
    wait_for("the run that the worker claimed", || {
        let runs = app.everytick(&["job", "runs", "asked", "-o", "json"]).json();
        (runs["items"][0]["state"] == "succeeded").then_some(())
    });
    worker.kill().unwrap();
    worker.wait().unwrap();
    app.everytick(&["job", "update", "ticks", "--every", "2s"]).ok();
    app.everytick(&["job", "explain", "ticks"]).ok();
    app.everytick(&["job", "delete", "ticks"]).ok();
    app.everytick(&["audit"]).ok();
    let owner = node(&database.url, "owner");
    assert_eq!(security(&owner), "off", "it connects as the owner of the tables");
    let (_, status, log) = app.stop();
    assert!(status.success() && !log.contains("permission denied"), "{log}");
}

#[test]
fn migrate_and_serve_name_what_is_missing() {
    let database = database();
    let app = as_app(&database.url);
    everytick(&["migrate", "--database-url", &database.url, "--app-role", APP]).ok();
    let wrong = everytick(&["migrate", "--database-url", &app]).failed(1);
    assert!(wrong.contains("use the owner's URL"), "{wrong}");
    let wrong = everytick(&["migrate", "--app-role", APP]).failed(2);
    assert!(wrong.contains("--database-url is missing or names the SQLite file"), "{wrong}");
    let wrong =
        everytick(&["serve", "--listen", "127.0.0.1:0", "--database-url", &app, "--audit-retention", "29d"]).failed(2);
    assert!(wrong.contains("--audit-retention 29d is below 30d"), "{wrong}");
}
