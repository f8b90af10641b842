//! Guards that no rule of the suite can reach through [`Store`] alone: another session must create the state that they
//! refuse.

use everytick_domain::{
    ids::RunId,
    job::JobSpec,
    run::State,
    target::{QueueTarget, TargetSpec},
    time::Span,
};
use everytick_store::{
    ClaimQueue, IdempotencyKey, NewRun, QueueStore, Store,
    conformance::{TENANT, actor, new_run, overlapping, spec},
};
use sqlx::PgConnection;

use super::{Opened, bench};

async fn run(connection: &mut PgConnection, text: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(connection).await.unwrap();
}

fn queued() -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: "q".into() }), ..overlapping("j") }
}

/// Ends a run outside the store and leaves its waiting row, as a promotion that lost half of a repair could.
async fn end_and_leave_waiting(opened: &Opened, id: RunId) {
    let mut session = opened.connect().await;
    run(&mut session, &format!("update runs set state = 2, finished_at = 1 where id = '{id}'")).await;
}

#[tokio::test]
async fn a_worker_never_claims_an_ended_run_whose_waiting_row_remains() {
    let opened = bench().await;
    opened.bench.create(queued()).await;
    let ended = opened.bench.trigger(new_run("j", "ended")).await;
    let open = opened.bench.trigger(new_run("j", "open")).await;
    end_and_leave_waiting(&opened, ended.id).await;
    let ask = ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit: 10, lease: Span::seconds(30) };
    let claimed = opened.store.claim_queue(&ask).await.unwrap().claims;
    assert_eq!(claimed.iter().map(|claim| claim.run.id).collect::<Vec<_>>(), [open.id]);
    assert_eq!(opened.bench.run(ended.id).await.state, State::Succeeded);
}

#[tokio::test]
async fn a_node_never_claims_an_ended_run_whose_waiting_row_remains() {
    let opened = bench().await;
    let lease = opened.bench.join("a", 1).await;
    opened.bench.create(overlapping("j")).await;
    let ended = opened.bench.trigger(new_run("j", "ended")).await;
    end_and_leave_waiting(&opened, ended.id).await;
    let claimed = opened.store.claim(&lease, &opened.bench.all(), &[ended.id]).await.unwrap();
    assert!(claimed.is_empty(), "{claimed:?}");
    assert_eq!(opened.bench.run(ended.id).await.state, State::Succeeded);
}

/// The second of two requests under one key must see the result of the first, so it waits until that is committed.
#[tokio::test]
async fn a_request_waits_for_another_under_the_same_key() {
    let opened = bench().await;
    opened.bench.create(spec("j")).await;
    let mut first = opened.connect().await;
    let lock = format!("begin; select pg_advisory_xact_lock(hashtextextended('k', {}))", TENANT.raw());
    run(&mut first, &lock).await;
    let idempotency = Some(IdempotencyKey { key: "k".into(), fingerprint: [1; 32] });
    let (store, ask) = (opened.store.clone(), NewRun { idempotency, ..new_run("j", "random") });
    let mut second = tokio::spawn(async move { store.create_run(TENANT, &actor(), ask).await });
    let mut look = opened.connect().await;
    let waits = "select exists (select 1 from pg_locks l join pg_database d on d.oid = l.database
                  where d.datname = current_database() and l.locktype = 'advisory' and not l.granted)";
    loop {
        let waiting: bool = sqlx::query_scalar(waits).fetch_one(&mut look).await.unwrap();
        if waiting {
            break;
        }
        let ended = tokio::time::timeout(std::time::Duration::from_millis(5), &mut second).await;
        assert!(ended.is_err(), "it did not wait for the other request under its key");
    }
    run(&mut first, "commit").await;
    second.await.unwrap().unwrap();
}
