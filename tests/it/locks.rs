//! A database session keeps a lock on one run. The other jobs continue, and the node still stops on SIGTERM.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use everytick_store::conformance::server::Server as Postgres;
use sqlx::{Connection as _, PgConnection};

use crate::support::{Delivery, Server, Sink, pause, wait_for};

/// Answers requests to `/blocked` after `released` is set, and all other requests at once.
fn sink(released: &Arc<AtomicBool>) -> Sink {
    let released = Arc::clone(released);
    Sink::answering(move |delivery: &Delivery| {
        while delivery.path == "/blocked" && !released.load(Ordering::SeqCst) {
            pause(std::time::Duration::from_millis(10));
        }
        "200 OK".to_owned()
    })
}

fn deliveries_by_job(sink: &Sink) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for delivery in sink.deliveries() {
        *counts.entry(delivery.headers["everytick-job"].clone()).or_default() += 1;
    }
    counts
}

#[test]
fn a_run_that_cannot_be_settled_blocks_neither_other_jobs_nor_the_shutdown() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(Postgres::shared().blank());
    let released = Arc::new(AtomicBool::new(false));
    let sink = sink(&released);
    let flags = ["--database-url", &database.url, "--allow-webhook-range", "127.0.0.0/8", "--lease", "8s"];
    let node = Server::builder().flags(&flags).start();
    let blocked_url = sink.url().replace("/hook", "/blocked");
    node.everytick(&["job", "create", "blocked", "--url", &blocked_url, "--timeout", "10m"]).ok();
    let run = node.everytick(&["job", "trigger", "blocked", "-o", "json"]).json()["id"].as_str().unwrap().to_owned();
    let mut session = runtime.block_on(PgConnection::connect(&database.url)).unwrap();
    let lock = format!("begin; select from runs where id = '{run}' and state = 1 for update");
    wait_for("the run to be claimed", || {
        let found = sqlx::raw_sql(sqlx::AssertSqlSafe(lock.clone())).execute(&mut session);
        let found = runtime.block_on(found).unwrap().rows_affected() > 0;
        if !found {
            runtime.block_on(sqlx::raw_sql("rollback").execute(&mut session)).unwrap();
        }
        found.then_some(())
    });
    released.store(true, Ordering::SeqCst);
    for n in 0..10 {
        node.everytick(&["job", "create", &format!("job-{n}"), "--every", "1s", "--url", &sink.url()]).ok();
    }
    // Three runs of a job prove settling: a run that is not settled blocks the next tick of its job.
    wait_for("three runs of each job", || {
        let counts = deliveries_by_job(&sink);
        (0..10).all(|n| counts.get(&format!("job-{n}")).is_some_and(|count| *count >= 3)).then_some(())
    });
    wait_for("the age of the oldest unsettled run", || {
        let metrics = node.script("curl -s $EVERYTICK_SERVER/metrics");
        let age = metrics.lines().find_map(|line| line.strip_prefix("everytick_oldest_unsettled_seconds "))?;
        age.parse::<f64>().is_ok_and(|age| age > 1.0).then_some(())
    });
    let (_, status, log) = node.stop();
    assert!(status.success(), "{log}");
    runtime.block_on(sqlx::raw_sql("rollback").execute(&mut session)).unwrap();
}
