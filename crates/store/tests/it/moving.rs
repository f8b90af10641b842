//! The move of a file to PostgreSQL.

use std::sync::Arc;

use everytick_store::{
    ManualClock, Move, MoveBatch, SqliteStore, Store,
    conformance::{Bench, LIMITS, START, TENANT, actor, by_name, overlapping, server::Server},
};
use sqlx::{ConnectOptions as _, sqlite::SqliteConnectOptions};
use uuid::Uuid;

/// The move does not copy the marks of a backlog, so it must copy none of the marked runs as waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_first_cancels_the_rest_of_a_cancelled_backlog() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("everytick.db");
    let bench = Bench::open(async |clock, _| {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path.clone(), clock, LIMITS).await.unwrap());
        (store, Box::new(()) as _)
    })
    .await;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    let count = i64::try_from(LIMITS.backlog_batch_max).unwrap() + 1;
    for n in 1..=count {
        bench.go(n * 10);
        bench.waiting(&lease, &job, n * 10).await;
    }
    assert!(bench.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap().runs.backlog);
    drop(bench);
    let database = Server::shared().blank().await;
    let (clock, id) = (Arc::new(ManualClock::at(START)), Uuid::from_u128(1));
    let moving = Move::begin(&path, &database.url, clock, id, MoveBatch::default()).await.unwrap();
    drop(moving);
    let mut look = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let left = "select count(*) from (select job from waiting union all select job from backlog_work)";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&mut look).await.unwrap(), 0);
}
