//! A node that is stopped inside a transaction, as by SIGSTOP or by a machine that is paused: it keeps its locks for no longer
//! than the server allows, and what it does after waking is refused.

use std::{
    io::Read as _,
    process::{Child, Command, Stdio},
};

use everytick_domain::partition::PartitionSet;
use everytick_store::{
    NodeInfo, PostgresStore, RowAnswer, Store,
    conformance::{LIMITS, TENANT, TTL, born, by_name, incarnation, overlapping, server::options, ticks},
};

use super::bench;

/// Names the database to the process that is to be stopped.
const DATABASE: &str = "EVERYTICK_TEST_STOPPED";

/// The node that is stopped: this test again, in a process of its own.
async fn play(url: &str) {
    let store = PostgresStore::connect(url, options(None), LIMITS).await.unwrap();
    let (lease, _) = store.join(&NodeInfo::named("stopped"), incarnation(7), TTL).await.unwrap();
    store.acquire(&lease, &PartitionSet::all(256)).await.unwrap();
    let job = store.get_job(TENANT, &by_name("j")).await.unwrap().job;
    let batch = [ticks(&job, 1, vec![born(&job, 10)])];
    let during = store.record(&lease, &batch).await.map(|recorded| recorded.jobs);
    println!("during: {during:?}");
    let after = store.record(&lease, &batch).await.map(|recorded| recorded.jobs);
    println!("after: {after:?}");
}

struct Node(Child);

impl Node {
    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success(), "{signal}");
    }

    /// Stops it and waits until it stands. The signal goes to one of its threads, and until that one has been given a core the
    /// others run on: on a busy machine long enough to commit what they had under way.
    fn stop(&self) {
        self.signal("-STOP");
        let threads = format!("/proc/{}/task", self.0.id());
        // One that ends meanwhile is looked for again.
        let stands = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
        };
        let began = clock();
        while !std::fs::read_dir(&threads).unwrap().all(|thread| stands(thread.unwrap())) {
            assert!(began.elapsed().as_secs() < 60, "it does not stand");
            std::thread::yield_now();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_stopped_inside_a_transaction_does_not_block_take_over_and_is_refused_after_waking() {
    if let Ok(url) = std::env::var(DATABASE) {
        return play(&url).await;
    }
    let opened = bench().await;
    let bench = &opened.bench;
    let job = bench.create(overlapping("j")).await;
    bench.go(10);
    bench.store.now().await.unwrap();

    // Its statement waits, holding its lease, for a row under the same id that is never committed.
    let (mut holder, mut look) = (opened.connect().await, opened.connect().await);
    let row = born(&job, 10).tick;
    let insert = format!(
        "begin; insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at, skip_reason)
         values ('{}', 1, '{}', 1, {at}, {at}, 5, false, false, 0, 0, 0, {at}, 1)",
        row.id, job.id, at = row.tick.millis()
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(&mut holder).await.unwrap();
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    assert!(name.contains("stopped"), "the test's own name, to be run by: {name}");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &name])
        .env(DATABASE, &opened.database.url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut node = Node(child);
    let is = async |look: &mut sqlx::PgConnection, what: &str| {
        let text = format!(
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'everytick' and {what}"
        );
        sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(text)).fetch_one(look).await.unwrap() > 0
    };
    while !is(&mut look, "wait_event_type = 'Lock' and query like '-- Records ticks%'").await {
        assert!(node.0.try_wait().unwrap().is_none(), "it ended before it was stopped");
    }
    node.stop();
    sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
    let began = clock();
    while !is(&mut look, "state = 'idle in transaction' and query like '-- Records ticks%'").await {
        assert!(began.elapsed().as_secs() < 60, "its statement did not end");
    }

    bench.go(40);
    let new = bench.join("new", 2).await;
    let began = clock();
    let acquired = bench.store.acquire(&new, &bench.all()).await.unwrap();
    println!("taken over from a node stopped inside a transaction within {:?}", began.elapsed());
    assert_eq!(acquired, bench.all());
    let batch = ticks(&job, 1, vec![born(&job, 10)]);
    assert_eq!(bench.record(&new, batch).await, [RowAnswer::Inserted], "what it had under way was given up");

    node.signal("-CONT");
    let mut said = String::new();
    node.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("during: Err(Unsure"), "{said}");
    assert!(said.contains("after: Err(LeaseLost)"), "{said}");
    assert_eq!(bench.history(&job).await.len(), 1);
}
