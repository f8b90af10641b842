//! Rows that the server cannot decode: the other jobs and queues continue, the server stays ready and lists the rows.

use everytick_store::conformance::server::Server as Postgres;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};

use crate::support::{Server, Sink, wait_for};

/// Damages a definition, and the run at the head of a queue: its fence is the maximum and cannot increase.
const DAMAGE: [&str; 2] = [
    "update jobs set spec = '{\"garbage\": 1}' where name = 'damaged'",
    "update runs set fence = 9223372036854775807 where id = (select run from waiting order by run limit 1)",
];

/// Creates a job that fires every second, another one to be damaged, and a queue with two runs. Returns these runs.
fn fill(node: &Server, sink: &Sink) -> Vec<String> {
    for name in ["sound", "damaged"] {
        node.everytick(&["job", "create", name, "--every", "1s", "--url", &sink.url()]).ok();
    }
    node.everytick(&["job", "create", "queued", "--queue", "q", "--overlap", "allow"]).ok();
    let run = || node.everytick(&["job", "trigger", "queued", "-o", "json"]).json()["id"].as_str().unwrap().to_owned();
    let mut runs = vec![run(), run()];
    runs.sort();
    runs
}

fn delivered(sink: &Sink, job: &str) -> usize {
    sink.deliveries().iter().filter(|delivery| delivery.headers["everytick-job"] == job).count()
}

fn check_that_the_rest_continues(node: &Server, sink: &Sink, runs: &[String]) {
    let (sound, damaged) = (delivered(sink, "sound"), delivered(sink, "damaged"));
    wait_for("ticks of the sound job", || (delivered(sink, "sound") >= sound + 3).then_some(()));
    assert_eq!(delivered(sink, "damaged"), damaged, "a job with an unreadable definition does not fire");
    let ask = "curl -s -X POST -H 'content-type: application/json' -d '{\"worker\": \"w\", \"limit\": 2}' \
               $EVERYTICK_SERVER/api/v1/queues/q/claim";
    let claimed: serde_json::Value = serde_json::from_str(&node.script(ask)).unwrap();
    let ids: Vec<&str> = claimed["runs"].as_array().unwrap().iter().filter_map(|run| run["id"].as_str()).collect();
    assert_eq!(ids, [&runs[1]], "the damaged run stays and does not hide the other run");
    let ready = node.script("curl -s -o /dev/null -w '%{http_code}' $EVERYTICK_SERVER/readyz");
    assert_eq!(ready.trim(), "200", "the server is ready, because a restart would not help");
    let problem: serde_json::Value =
        serde_json::from_str(&node.script("curl -s $EVERYTICK_SERVER/api/v1/jobs/damaged")).unwrap();
    assert_eq!(
        (problem["status"].as_u64(), problem["type"].as_str()),
        (Some(500), Some("urn:everytick:problem:unreadable"))
    );
    let rows = wait_for("the rows to be listed", || {
        let metrics = node.script("curl -s $EVERYTICK_SERVER/metrics");
        let rows = metrics.lines().find_map(|line| line.strip_prefix("everytick_unreadable_rows "))?;
        rows.parse::<f64>().ok().filter(|rows| *rows >= 2.0)
    });
    let cluster = node.everytick(&["cluster", "-o", "json"]).json();
    assert_eq!(cluster["unreadable_rows"].as_f64(), Some(rows));
    let tables: Vec<_> = cluster["unreadable"].as_array().unwrap().iter().map(|row| row["table"].as_str()).collect();
    assert!(tables.contains(&Some("jobs")) && tables.contains(&Some("runs")), "{tables:?}");
    let shown = node.everytick(&["cluster"]).ok();
    assert!(shown.contains("stored rows cannot be decoded") && shown.contains(&runs[0]), "{shown}");
}

#[test]
fn unreadable_rows_in_sqlite_do_not_stop_other_jobs() {
    let (runtime, sink) = (runtime(), Sink::start());
    let flags = ["--allow-webhook-range", "127.0.0.0/8", "--lease", "6s"];
    let node = Server::builder().flags(&flags).start();
    let runs = fill(&node, &sink);
    wait_for("ticks", || (delivered(&sink, "damaged") >= 1).then_some(()));
    let dir = node.kill();
    let file = dir.path().join("data/everytick.db");
    runtime.block_on(async {
        let mut raw = SqliteConnection::connect(&format!("sqlite:{}", file.display())).await.unwrap();
        for damage in DAMAGE {
            assert_eq!(sqlx::query(damage).execute(&mut raw).await.unwrap().rows_affected(), 1, "{damage}");
        }
        raw.close().await.unwrap();
    });
    let node = Server::builder().flags(&flags).dir(dir).start();
    check_that_the_rest_continues(&node, &sink, &runs);
}

#[test]
fn unreadable_rows_in_postgresql_do_not_stop_other_jobs() {
    let (runtime, sink) = (runtime(), Sink::start());
    let database = runtime.block_on(Postgres::shared().blank());
    let flags = ["--database-url", &database.url, "--allow-webhook-range", "127.0.0.0/8", "--lease", "6s"];
    let node = Server::builder().flags(&flags).start();
    let runs = fill(&node, &sink);
    wait_for("ticks", || (delivered(&sink, "damaged") >= 1).then_some(()));
    drop(node.kill());
    runtime.block_on(async {
        let mut raw = PgConnection::connect(&database.url).await.unwrap();
        for damage in DAMAGE {
            let done = sqlx::query(AssertSqlSafe(damage)).execute(&mut raw).await.unwrap();
            assert_eq!(done.rows_affected(), 1, "{damage}");
        }
    });
    let node = Server::builder().flags(&flags).start();
    check_that_the_rest_continues(&node, &sink, &runs);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
