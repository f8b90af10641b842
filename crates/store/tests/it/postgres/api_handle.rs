//! The API's handle: its calls wait for its own connections, and do not use the engine's.

use std::{sync::Arc, time::Duration};

use everytick_domain::{edit::Change, time::Span};
use everytick_store::{
    EditJob, ManualClock, NewJob, NodeInfo, PostgresOptions, PostgresStore, RowAnswer, Store, StoreError,
    conformance::{
        LIMITS, START, TENANT, actor, born, by_name, incarnation, job_id, s,
        server::{Server, options},
        spec, ticks,
    },
};
use sqlx::{Connection, PgConnection};

#[tokio::test]
async fn requests_that_use_every_connection_of_the_api_do_not_delay_a_tick() {
    // One for each connection of the API.
    const EDITED: [&str; 2] = ["edited", "edited too"];
    let database = Server::shared().migrated().await;
    let clock = Arc::new(ManualClock::at(START));
    // No request times out while the test runs.
    let (statement_timeout, lock_timeout) = (Duration::from_secs(60), Duration::from_secs(60));
    let options = PostgresOptions { statement_timeout, lock_timeout, ..options(Some(clock.clone())) };
    let engine = PostgresStore::connect(&database.url, options, LIMITS).await.unwrap();
    let api = Arc::new(engine.api_handle(EDITED.len() as u32));
    let (lease, _) = engine.join(&NodeInfo::named("a"), incarnation(1), Span::days(1)).await.unwrap();
    let new = ["ticks", EDITED[0], EDITED[1]].map(|name| NewJob { id: job_id(TENANT, name), spec: spec(name) });
    let job = api.create_jobs(TENANT, &actor(), new.into(), None).await.unwrap().remove(0).unwrap().job;
    clock.set(s(10));

    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    let lock = format!("begin; select * from epochs where job <> '{}' for update", job.id);
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut admin).await.unwrap();
    let held = EDITED.map(|name| tokio::spawn(pause(api.clone(), name)));
    // On another connection: within a transaction, the server shows the activity at the time of the first query.
    let mut watcher = PgConnection::connect(&database.url).await.unwrap();
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut watcher).await.unwrap() < 2 {
        assert!(held.iter().all(|held| !held.is_finished()), "the edits wait for the lock");
    }

    let refused = api.get_job(TENANT, &by_name("ticks")).await;
    assert!(matches!(refused, Err(StoreError::Busy { .. })), "{refused:?}");
    let recorded = engine.record(&lease, &[ticks(&job, 1, vec![born(&job, 10)])]).await.unwrap();
    assert_eq!(recorded.jobs.concat(), [RowAnswer::Inserted]);
    assert!(held.iter().all(|held| !held.is_finished()), "the edits still wait");

    sqlx::raw_sql("rollback").execute(&mut admin).await.unwrap();
    for held in held {
        held.await.unwrap().unwrap();
    }
    assert!(api.get_job(TENANT, &by_name(EDITED[0])).await.unwrap().job.paused.is_some());
}

async fn pause(store: Arc<PostgresStore>, name: &str) -> Result<(), StoreError> {
    let edit = EditJob { job: by_name(name), change: Change::Pause { note: None }, if_match: None, cancel: false };
    store.edit_job(TENANT, &actor(), edit).await.map(drop)
}
