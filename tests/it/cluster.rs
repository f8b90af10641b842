//! Nodes that share one PostgreSQL.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use everytick_store::conformance::server::{Database, Server as Postgres};
use serde_json::{Value, json};

use crate::support::{Server, Sink, everytick, everytick_command, wait_for};

fn database() -> Database {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Postgres::shared().blank())
}

fn node(database: &Database, name: &str, more: &[&str]) -> Server {
    // Each node has credentials of its own in these tests.
    let flags = ["--database-url", &database.url, "--node-name", name, "--lease", "8s", "--auth", "open"];
    Server::builder().flags(&flags).flags(&["--allow-webhook-range", "127.0.0.0/8"]).flags(more).start()
}

/// The number of partitions that each live node owns, by name. `None` if a busy database does not answer in time.
fn owned(node: &Server) -> Option<Vec<(String, u64)>> {
    let done = node.everytick(&["cluster", "-o", "json"]);
    let view = (done.code == 0).then(|| done.json())?;
    let live = view["nodes"].as_array()?.iter().filter(|node| node["state"] == "live");
    live.map(|node| Some((node["name"].as_str()?.to_owned(), node["partitions"].as_u64()?))).collect()
}

fn wait_for_owners(node: &Server, expected: &[(&str, u64)]) {
    let expected: Vec<_> = expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    wait_for(&format!("partitions owned as {expected:?}"), || (owned(node)? == expected).then_some(()));
}

#[test]
fn nodes_share_the_partitions_and_each_serves_the_api() {
    let (database, sink) = (database(), Sink::start());
    let a = node(&database, "a", &[]);
    wait_for_owners(&a, &[("a", 256)]);
    let b = node(&database, "b", &["--region", "north"]);
    wait_for_owners(&b, &[("a", 128), ("b", 128)]);
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
    // A request to one node also takes effect on jobs that the other node owns.
    for n in 0..20 {
        a.everytick(&["job", "pause", &format!("job-{n}")]).ok();
    }
    let runs: Value = serde_json::from_str(&b.everytick(&["run", "list", "-o", "json"]).ok()).unwrap();
    assert!(!runs["items"].as_array().unwrap().is_empty());
}

#[test]
fn the_partitions_of_a_stopped_node_and_of_a_killed_node_move_to_the_others() {
    let (database, sink) = (database(), Sink::start());
    let (a, b) = (node(&database, "a", &[]), node(&database, "b", &[]));
    wait_for_owners(&a, &[("a", 128), ("b", 128)]);
    for n in 0..10 {
        a.everytick(&["job", "create", &format!("job-{n}"), "--every", "1s", "--url", &sink.url()]).ok();
    }
    let (_, status, log) = b.stop();
    assert!(status.success(), "{log}");
    wait_for_owners(&a, &[("a", 256)]);
    let c = node(&database, "c", &[]);
    wait_for_owners(&c, &[("a", 128), ("c", 128)]);
    a.kill();
    wait_for_owners(&c, &[("c", 256)]);
    let seen = sink.deliveries().len();
    sink.wait_for(seen + 20);
    // The sink received each attempt of each run once.
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
fn a_node_may_serve_only_the_api_or_only_run_jobs() {
    let (database, sink) = (database(), Sink::start());
    let api_node = node(&database, "api", &["--roles", "api"]);
    let runner = node(&database, "runner", &["--roles", "scheduler,dispatcher"]);
    wait_for_owners(&api_node, &[("api", 0), ("runner", 256)]);
    api_node.everytick(&["job", "create", "j", "--every", "1s", "--url", &sink.url()]).ok();
    let delivered = sink.wait_for(2);
    assert!(delivered.iter().all(|delivery| delivery.headers["everytick-node"] == "runner"));
    assert_ne!(runner.everytick(&["job", "list"]).code, 0, "a node without the role api does not serve the API");
}

#[test]
fn any_node_accepts_a_command_while_a_living_node_can_run_it_and_else_names_the_nodes() {
    let database = database();
    let api_node = node(&database, "api", &["--roles", "api"]);
    let create = |name: &str| api_node.everytick(&["job", "create", name, "--", "true"]);
    wait_for_owners(&api_node, &[("api", 0)]);
    let refused = create("early").failed(1);
    assert!(refused.contains("--enable-shell"), "{refused}");
    let runs = node(&database, "runs", &["--enable-shell"]);
    wait_for_owners(&api_node, &[("api", 0), ("runs", 256)]);
    create("j").ok();
    api_node.everytick(&["job", "update", "j", "--timeout", "77s"]).ok();
    api_node.everytick(&["job", "trigger", "j", "--wait"]).ok();
    let _ = runs.stop();
    wait_for_owners(&api_node, &[("api", 0)]);
    let unable = node(&database, "unable", &[]);
    wait_for_owners(&api_node, &[("api", 0), ("unable", 256)]);
    let refused = create("late").failed(1);
    for part in ["target.shell: is not enabled on this node", "do not have it: unable"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    drop(unable);
}

#[test]
fn the_cluster_shows_roles_capabilities_and_jobs_and_a_dead_node_as_gone() {
    let database = database();
    let a = node(&database, "a", &["--enable-shell"]);
    let b = node(&database, "b", &["--roles", "api"]);
    wait_for_owners(&a, &[("a", 256), ("b", 0)]);
    for name in ["x", "y"] {
        a.everytick(&["job", "create", name, "--every", "1h", "--queue", "q"]).ok();
    }
    a.everytick(&["job", "create", "triggered", "--queue", "q"]).ok();
    let view = a.everytick(&["cluster", "-o", "json"]).json();
    let (first, second) = (&view["nodes"][0], &view["nodes"][1]);
    assert_eq!((&first["roles"], &first["jobs"]), (&json!(["api", "scheduler", "dispatcher"]), &json!(2)));
    assert_eq!(first["capabilities"], json!({"shell": true, "webhook_ranges": ["127.0.0.0/8"]}));
    assert_eq!((&second["roles"], &second["jobs"]), (&json!(["api"]), &json!(0)));
    assert_eq!(view["gone"], json!([]));
    let table = a.everytick(&["cluster"]).ok();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..6], ["NODE", "STATE", "ROLES", "CAN", "JOBS", "PARTS"], "{table}");
    assert_eq!(rows[1][..6], ["a", "live", "all", "shell,127.0.0…", "2", "256"], "{table}");
    assert_eq!(rows[2][..6], ["b", "live", "api", "127.0.0.0/8", "0", "0"], "{table}");

    b.kill();
    let gone = wait_for("the killed node to be gone", || {
        let view = a.everytick(&["cluster", "-o", "json"]).json();
        view["gone"].as_array().filter(|gone| !gone.is_empty()).map(|gone| gone[0].clone())
    });
    assert_eq!((&gone["name"], &gone["roles"]), (&json!("b"), &json!(["api"])));
    let table = a.everytick(&["cluster"]).ok();
    assert!(table.contains("b  gone since ") && table.contains("ago; roles api, can 127.0.0.0/8"), "{table}");
    let _again = node(&database, "b", &["--roles", "api"]);
    wait_for("the node to return", || {
        (a.everytick(&["cluster", "-o", "json"]).json()["gone"] == json!([])).then_some(())
    });
}

#[test]
fn a_second_process_with_the_name_of_a_live_node_is_refused_and_the_first_continues() {
    let database = database();
    let first = node(&database, "same", &[]);
    wait_for_owners(&first, &[("same", 256)]);
    let second = everytick(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--database-url",
        &database.url,
        "--node-name",
        "same",
        "--lease",
        "8s",
    ]);
    assert_ne!(second.code, 0, "{second:?}");
    let second = second.stderr;
    for part in ["\"same\"", &format!("process {}", first.pid()), "--node-name", "--replace-node"] {
        assert!(second.contains(part), "{part} is missing: {second}");
    }
    wait_for_owners(&first, &[("same", 256)]);
}

#[test]
fn with_replace_node_the_older_process_stops_and_logs_the_reason() {
    let database = database();
    let mut old = node(&database, "same", &[]);
    let new = node(&database, "same", &["--replace-node"]);
    assert!(!old.ended().success());
    old.wait_for_log("--node-name");
    wait_for_owners(&new, &[("same", 256)]);
}

/// A supervisor restarts a killed process at once, while its lease of 10 minutes is still valid.
#[test]
fn a_killed_node_restarts_under_its_name_without_waiting_for_its_lease() {
    let database = database();
    let start = || {
        let flags = ["--database-url", &database.url, "--node-name", "same", "--lease", "10m"];
        Server::builder().flags(&flags).start()
    };
    let first = start();
    wait_for_owners(&first, &[("same", 256)]);
    first.kill();
    let again = start();
    wait_for_owners(&again, &[("same", 256)]);
}

/// One of two nodes may neither run commands nor call the receiver. It owns half of the jobs, and fails none of their runs.
#[test]
fn a_node_that_cannot_deliver_a_run_leaves_it_to_a_node_that_can() {
    let (database, sink) = (database(), Sink::start());
    let able = node(&database, "able", &["--enable-shell"]);
    let flags = ["--database-url", &database.url, "--node-name", "unable", "--lease", "8s"];
    let unable = Server::builder().flags(&flags).start();
    wait_for_owners(&able, &[("able", 128), ("unable", 128)]);
    let by_name = sink.url().replace("127.0.0.1", "localhost");
    for n in 0..8 {
        let job = |kind: &str, target: &[&str]| {
            let name = format!("{kind}-{n}");
            able.everytick(&[&["job", "create", &name, "--every", "1s"], target].concat()).ok();
        };
        job("shell", &["--shell", "true"]);
        job("address", &["--url", &sink.url()]);
        job("name", &["--url", &by_name]);
    }
    // Every job has had some runs, on both owners.
    let ended = || {
        let runs = able.everytick(&["run", "list", "--limit", "1000", "-o", "json"]).json();
        let runs = runs["items"].as_array().unwrap().clone();
        runs.into_iter().filter(|run| run["finished_at"].is_string() && run["state"] != "skipped").collect::<Vec<_>>()
    };
    let ended = wait_for("three runs of each job", || {
        let ended = ended();
        let of = |kind: &str, n: usize| ended.iter().filter(|run| run["job"] == format!("{kind}-{n}")).count();
        let all = (0..8).all(|n| ["shell", "address", "name"].iter().all(|kind| of(kind, n) >= 3));
        all.then_some(ended)
    });
    for run in &ended {
        assert_eq!((run["state"].as_str(), run["attempt"].as_u64()), (Some("succeeded"), Some(1)), "{run}");
    }
    let table = unable.everytick(&["cluster"]).ok();
    for part in ["warning", "able: shell, 127.0.0.0/8", "unable: public webhooks only", "--enable-shell"] {
        assert!(table.contains(part), "{part} is missing: {table}");
    }
    unable.wait_for_log("the nodes differ in what they can deliver");
    // Without the other node the run fails, and the error names the missing flag.
    able.stop();
    wait_for_owners(&unable, &[("unable", 256)]);
    unable.everytick(&["job", "trigger", "shell-0", "--force"]).ok();
    wait_for("a run that fails", || {
        let runs = unable.everytick(&["run", "list", "--status", "failed", "-o", "json"]).json();
        runs["items"][0]["error"].as_str().filter(|error| error.contains("--")).map(ToOwned::to_owned)
    });
}

#[test]
fn a_webhook_cannot_call_the_api_of_a_node_of_the_cluster() {
    let database = database();
    let (a, b) = (node(&database, "a", &[]), node(&database, "b", &[]));
    wait_for_owners(&a, &[("a", 128), ("b", 128)]);
    let urls = [a.url(), b.url()].map(|url| [url.to_owned(), url.replace("127.0.0.1", "localhost")]).concat();
    for (n, url) in urls.iter().enumerate() {
        let name = format!("job-{n}");
        a.everytick(&["job", "create", &name, "--every", "1d", "--url", &format!("{url}/api/v1/jobs/{name}/trigger")])
            .ok();
        a.everytick(&["job", "trigger", &name]).ok();
        let error = wait_for("the run to fail", || {
            let runs = a.everytick(&["job", "runs", &name, "-o", "json"]).json();
            let run = &runs["items"][0];
            (run["state"] == "failed").then(|| run["error"].as_str().unwrap_or_default().to_owned())
        });
        assert!(error.contains("the API of a node of this cluster"), "{url}: {error}");
    }
}

#[test]
fn a_starting_node_waits_for_a_database_that_does_not_answer() {
    // A free port, on which no process listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let mut child = everytick_command(dir.path())
        .args(["serve", "--listen", "127.0.0.1:0", "--database-url", &format!("postgres://u@127.0.0.1:{port}/d")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let waits =
        lines.find_map(|line| line.ok().filter(|line| line.contains("trying again"))).expect("the node tries again");
    assert!(waits.contains(&format!("127.0.0.1 port {port}: ")), "{waits}");
    assert_eq!(child.try_wait().unwrap(), None, "the node has not ended");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_cancelled_run_is_counted_in_the_metrics() {
    let node = Server::start();
    node.everytick(&["job", "create", "queued", "--queue", "q"]).ok();
    let run = node.everytick(&["job", "trigger", "queued", "-o", "json"]).json()["id"].as_str().unwrap().to_owned();
    node.everytick(&["run", "cancel", &run]).ok();
    let metrics = node.script("curl -s $EVERYTICK_SERVER/metrics");
    assert!(metrics.contains("everytick_runs_total{state=\"cancelled\"} 1\n"), "{metrics}");
}
