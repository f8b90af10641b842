//! Cancels that race with a settlement that puts the run back, and edits that race with a stream of claims.

use everytick_domain::{
    edit::Change,
    job::JobSpec,
    plan::Fate,
    run::State,
    target::{QueueTarget, TargetSpec},
    time::Span,
};
use everytick_store::{
    ClaimQueue, EditJob, QueueStore, Store,
    conformance::{TENANT, actor, by_name, change, overlapping, pause, spec, tick, ticks},
};
use sqlx::PgConnection;

use super::{Opened, bench};

async fn run(connection: &mut PgConnection, text: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(connection).await.unwrap();
}

/// Waits until a session in this database waits for a lock.
async fn somebody_waits(opened: &Opened) {
    so_many_wait(opened, 1).await;
}

async fn so_many_wait(opened: &Opened, count: i64) {
    let mut look = opened.connect().await;
    let all = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(all).fetch_one(&mut look).await.unwrap() < count {
        tokio::task::yield_now().await;
    }
}

#[derive(Clone, Copy, Debug)]
enum Cancel {
    Run,
    Job,
    Delete,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_a_settlement_is_putting_back_is_cancelled() {
    for cancel in [Cancel::Run, Cancel::Job, Cancel::Delete] {
        let opened = bench().await;
        let bench = &opened.bench;
        let lease = bench.join("a", 1).await;
        let job = bench.create(spec("j")).await;
        bench.go(10);
        let claimed = bench.claimed(&lease, &job, 10).await;
        // What a settlement with a retry does.
        let mut settler = opened.connect().await;
        let back = format!(
            "begin; update runs set state = 0, node = null, incarnation = null, started_at = null where id = '{id}';
             insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts)
             values ('{id}', '{job}', 1, 0, 5, 0, false, false, 1)",
            id = claimed.id,
            job = job.id
        );
        run(&mut settler, &back).await;
        let (store, id) = (opened.store.clone(), claimed.id);
        let cancelling = tokio::spawn(async move {
            match cancel {
                Cancel::Run => drop(store.cancel_run(TENANT, &actor(), id).await.unwrap()),
                Cancel::Job => drop(store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap()),
                Cancel::Delete => {
                    let delete = EditJob { cancel: true, ..change("j", Change::Delete) };
                    drop(store.edit_job(TENANT, &actor(), delete).await.unwrap());
                }
            }
        });
        somebody_waits(&opened).await;
        run(&mut settler, "commit").await;
        cancelling.await.unwrap();
        assert_eq!(bench.run(id).await.state, State::Cancelled, "{cancel:?}");
        let waits: i64 = sqlx::query_scalar("select count(*) from waiting").fetch_one(&mut settler).await.unwrap();
        assert_eq!(waits, 0, "{cancel:?}");
    }
}

/// PostgreSQL grants a share lock while another session waits for an exclusive one, so a stream of claims could starve
/// an edit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_queues_behind_an_edit_that_already_waits() {
    let opened = bench().await;
    let bench = &opened.bench;
    let target = TargetSpec::Queue(QueueTarget { name: "q".into() });
    let (lease, job) = (bench.join("a", 1).await, bench.create(JobSpec { target, ..overlapping("j") }).await);
    bench.go(10);
    bench.record(&lease, ticks(&job, 1, vec![tick(&job, 10, Fate::Run)])).await;
    let mut claimer = opened.connect().await;
    let claim = include_str!("../../../src/postgres/sql/epochs/epochs_shared.sql")
        .replace("$1", &format!("array['{}'::uuid]", job.id));
    run(&mut claimer, &format!("begin; {claim}")).await;
    let store = opened.store.clone();
    let editing = tokio::spawn(async move { store.edit_job(TENANT, &actor(), change("j", pause())).await });
    so_many_wait(&opened, 1).await;
    let ask = ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit: 9, lease: Span::minutes(1) };
    let store = opened.store.clone();
    let claiming = tokio::spawn(async move { store.claim_queue(&ask).await });
    so_many_wait(&opened, 2).await;
    run(&mut claimer, "commit").await;
    let edited = editing.await.unwrap().unwrap();
    let claims = claiming.await.unwrap().unwrap().claims;
    assert_eq!(claims.iter().map(|claim| claim.job.version).collect::<Vec<_>>(), [edited.job.version]);
}
