//! A node that is stopped inside a transaction, by SIGSTOP or a paused machine: it keeps its locks no longer than the
//! server allows, and its statements after resuming are rejected.

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

/// Passes the database URL to the process that will be stopped.
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

    /// Stops the process and waits until all its threads have stopped. The signal goes to one thread, and the others
    /// run until that thread gets a core: on a busy machine long enough to commit.
    fn stop(&self) {
        self.signal("-STOP");
        let threads = format!("/proc/{}/task", self.0.id());
        // A thread that ends meanwhile is checked again.
        let stands = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
        };
        let began = clock();
        while !std::fs::read_dir(&threads).unwrap().all(|thread| stands(thread.unwrap())) {
            assert!(began.elapsed().as_secs() < 60, "the process does not stop");
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

#[expect(clippy::disallowed_methods, reason = "measures elapsed time")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_stopped_inside_a_transaction_does_not_block_take_over_and_is_rejected_after_resuming() {
    if let Ok(url) = std::env::var(DATABASE) {
        return play(&url).await;
    }
    let opened = bench().await;
    let bench = &opened.bench;
    let job = bench.create(overlapping("j")).await;
    bench.go(10);
    bench.store.now().await.unwrap();

    // With its lease locked, its statement waits for a row with the same id that is never committed.
    let (mut holder, mut look) = (opened.connect().await, opened.connect().await);
    let row = born(&job, 10).tick;
    let insert = format!(
        "begin; insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at, skip_reason)
         values ('{}', 1, '{}', 1, {at}, {at}, 5, false, false, 0, 0, 0, {at}, 1)",
        row.id, job.id, at = row.at.millis()
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(&mut holder).await.unwrap();
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    assert!(name.contains("stopped"), "the name of this test, for the child process: {name}");
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
        assert!(node.0.try_wait().unwrap().is_none(), "the node ended before it was stopped");
    }
    node.stop();
    sqlx::raw_sql("rollback").execute(&mut holder).await.unwrap();
    let began = clock();
    while !is(&mut look, "state = 'idle in transaction' and query like '-- Records ticks%'").await {
        assert!(began.elapsed().as_secs() < 60, "the node's statement did not end");
    }

    bench.go(40);
    let new = bench.join("new", 2).await;
    let began = clock();
    let acquired = bench.store.acquire(&new, &bench.all()).await.unwrap();
    println!("taken over from a node stopped inside a transaction within {:?}", began.elapsed());
    assert_eq!(acquired, bench.all());
    let batch = ticks(&job, 1, vec![born(&job, 10)]);
    assert_eq!(bench.record(&new, batch).await, [RowAnswer::Inserted], "the stopped node's statement was rolled back");

    node.signal("-CONT");
    let mut said = String::new();
    node.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("during: Err(Unsure"), "{said}");
    assert!(said.contains("after: Err(LeaseLost)"), "{said}");
    assert_eq!(bench.history(&job).await.len(), 1);
}
