//! Nodes that share one PostgreSQL.

use everytick_store::conformance::server::{Database, Server as Postgres};
use serde_json::Value;

use crate::support::{Server, Sink, wait_for};

fn database() -> Database {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Postgres::shared().blank())
}

fn node(database: &Database, name: &str, more: &[&str]) -> Server {
    let flags = ["--database-url", &database.url, "--node-name", name, "--lease", "8s"];
    Server::builder().flags(&flags).flags(&["--allow-webhook-range", "127.0.0.0/8"]).flags(more).start()
}

/// How many partitions each living node holds, by name. A database that is busy may not answer in time.
fn held(node: &Server) -> Option<Vec<(String, u64)>> {
    let done = node.everytick(&["cluster", "-o", "json"]);
    let view = (done.code == 0).then(|| done.json())?;
    let live = view["nodes"].as_array()?.iter().filter(|node| node["state"] == "live");
    live.map(|node| Some((node["name"].as_str()?.to_owned(), node["partitions"].as_u64()?))).collect()
}

fn held_as(node: &Server, expected: &[(&str, u64)]) {
    let expected: Vec<_> = expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    wait_for(&format!("partitions held as {expected:?}"), || (held(node)? == expected).then_some(()));
}

#[test]
fn nodes_share_the_partitions_and_any_of_them_answers() {
    let (database, sink) = (database(), Sink::start());
    let a = node(&database, "a", &[]);
    held_as(&a, &[("a", 256)]);
    let b = node(&database, "b", &["--region", "north"]);
    held_as(&b, &[("a", 128), ("b", 128)]);
    for n in 0..20 {
        let name = format!("job-{n}");
        b.everytick(&["job", "create", &name, "--every", "1s", "--url", &sink.url()]).ok();
    }
    let by = |deliveries: &[crate::support::Delivery], node: &str| {
        deliveries.iter().any(|delivery| delivery.headers.get("everytick-node").is_some_and(|by| by == node))
    };
    wait_for("deliveries by both nodes", || {
        let deliveries = sink.deliveries();
        (by(&deliveries, "a") && by(&deliveries, "b")).then_some(())
    });
    let table = a.everytick(&["cluster"]).ok();
    assert!(table.contains("NODE") && table.contains("north") && table.contains("256 partitions"), "{table}");
    // What is asked of one node is done by the other, where that holds the job.
    for n in 0..20 {
        a.everytick(&["job", "pause", &format!("job-{n}")]).ok();
    }
    let runs: Value = serde_json::from_str(&b.everytick(&["run", "list", "-o", "json"]).ok()).unwrap();
    assert!(!runs["items"].as_array().unwrap().is_empty());
}

#[test]
fn a_node_that_stops_hands_over_and_one_that_is_killed_is_replaced() {
    let (database, sink) = (database(), Sink::start());
    let (a, b) = (node(&database, "a", &[]), node(&database, "b", &[]));
    held_as(&a, &[("a", 128), ("b", 128)]);
    for n in 0..10 {
        a.everytick(&["job", "create", &format!("job-{n}"), "--every", "1s", "--url", &sink.url()]).ok();
    }
    let (_, status, log) = b.stop();
    assert!(status.success(), "{log}");
    held_as(&a, &[("a", 256)]);
    let c = node(&database, "c", &[]);
    held_as(&c, &[("a", 128), ("c", 128)]);
    a.kill();
    held_as(&c, &[("c", 256)]);
    let seen = sink.deliveries().len();
    sink.wait_for(seen + 20);
    // On the record once each, and every attempt was seen once.
    let mut attempts: Vec<_> = sink
        .deliveries()
        .iter()
        .map(|delivery| (delivery.headers["everytick-run"].clone(), delivery.headers["everytick-attempt"].clone()))
        .collect();
    let count = attempts.len();
    attempts.sort();
    attempts.dedup();
    assert_eq!(attempts.len(), count);
}

#[test]
fn a_node_may_only_answer_or_only_play() {
    let (database, sink) = (database(), Sink::start());
    let answers = node(&database, "answers", &["--roles", "api"]);
    let plays = node(&database, "plays", &["--roles", "scheduler,dispatcher"]);
    held_as(&answers, &[("answers", 0), ("plays", 256)]);
    answers.everytick(&["job", "create", "j", "--every", "1s", "--url", &sink.url()]).ok();
    let delivered = sink.wait_for(2);
    assert!(delivered.iter().all(|delivery| delivery.headers["everytick-node"] == "plays"));
    assert_ne!(plays.everytick(&["job", "list"]).code, 0, "it does not answer the API");
}

#[test]
fn of_two_nodes_under_one_name_the_older_stops_and_says_why() {
    let database = database();
    let mut old = node(&database, "same", &[]);
    let new = node(&database, "same", &[]);
    assert!(!old.ended().success());
    assert!(old.log().contains("--node-name"), "{}", old.log());
    held_as(&new, &[("same", 256)]);
}
