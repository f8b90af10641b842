//! Another session keeps one row locked. Every batch continues without that row.

use std::collections::BTreeSet;

use everytick_domain::{
    ids::{Epoch, JobId, RunId},
    job::{Job, JobSpec, Overlap},
    plan::Fate,
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};
use everytick_store::{
    AcceptedRun, ClaimQueue, Raise, RunRecord, Settle, SettleAnswer, Success, Supersede,
    conformance::{TENANT, overlapping, s, settle, spec, tick, ticks},
};
use sqlx::PgConnection;

use super::{Opened, bench};

/// Locks the row until the connection is dropped.
async fn lock(opened: &Opened, table: &str, key: &str, id: impl std::fmt::Display) -> PgConnection {
    let mut session = opened.connect().await;
    let text = format!("begin; select from {table} where {key} = '{id}' for update");
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut session).await.unwrap();
    session
}

async fn unlock(mut session: PgConnection) {
    sqlx::raw_sql("rollback").execute(&mut session).await.unwrap();
}

fn queued(name: &str) -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: "q".into() }), ..overlapping(name) }
}

fn ask(limit: usize) -> ClaimQueue {
    ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit, lease: Span::seconds(30) }
}

#[tokio::test]
async fn a_locked_run_is_not_settled_and_the_others_are() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(60);
    let mut runs = Vec::new();
    for n in 1..=5 {
        runs.push(bench.claimed(&lease, &job, n * 10).await);
    }
    let verdicts =
        [Verdict::Succeeded, Verdict::Failed, Verdict::Retry { due_at: s(90) }, Verdict::HandBack, Verdict::Redeliver];
    let batch: Vec<_> = runs.iter().zip(verdicts).map(|(run, verdict)| settle(run, verdict)).collect();
    use SettleAnswer::{Locked, Settled, Stale};
    let (failing, returning) =
        (lock(&opened, "runs", "id", runs[1].id).await, lock(&opened, "runs", "id", runs[3].id).await);
    assert_eq!(bench.store.settle(&batch).await.unwrap(), [Settled, Locked, Settled, Locked, Settled]);
    unlock(failing).await;
    assert_eq!(bench.store.settle(&batch).await.unwrap(), [Stale, Settled, Stale, Locked, Stale]);
    assert_eq!((bench.run(runs[1].id).await.state, bench.run(runs[3].id).await.state), (State::Failed, State::Claimed));
    unlock(returning).await;
    assert_eq!(bench.settle(&runs[3], Verdict::HandBack).await, Settled);
}

/// A remaining row of `open_claims` proves nothing. The next comparison of its node removes it.
#[tokio::test]
async fn a_locked_row_of_a_listed_claim_does_not_block_settlements_and_is_removed_later() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(60);
    let mut runs = Vec::new();
    for n in 1..=3 {
        runs.push(bench.claimed(&lease, &job, n * 10).await);
    }
    bench.go(600);
    bench.pass_claims(&lease, RunId::floor(s(540))).await;
    let rows = async || -> Vec<RunId> {
        let mut look = opened.connect().await;
        let found: Vec<uuid::Uuid> =
            sqlx::query_scalar("select run from open_claims order by run").fetch_all(&mut look).await.unwrap();
        found.into_iter().map(RunId::from_uuid).collect()
    };
    let session = lock(&opened, "open_claims", "run", runs[0].id).await;
    let batch: Vec<_> = runs.iter().map(|run| Settle { ended_at: s(600), ..settle(run, Verdict::Succeeded) }).collect();
    assert_eq!(bench.store.settle(&batch).await.unwrap(), [SettleAnswer::Settled; 3]);
    assert_eq!(rows().await, [runs[0].id]);
    assert!(bench.store.load_claimed(&lease).await.unwrap().is_empty(), "a comparison does not wait either");
    unlock(session).await;
    assert!(bench.store.load_claimed(&lease).await.unwrap().is_empty());
    assert!(rows().await.is_empty());
}

#[tokio::test]
async fn a_locked_run_is_not_accepted_and_the_others_are() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(40);
    let mut batch = Vec::new();
    for n in 1..=3 {
        let run = bench.claimed(&lease, &job, n * 10).await;
        let (worker, timeout_at) = ("http".to_owned(), s(100));
        batch.push(AcceptedRun { run: run.id, fence: run.fence, worker, timeout_at, previous: false });
    }
    use SettleAnswer::{Locked, Settled, Stale};
    let session = lock(&opened, "runs", "id", batch[1].run).await;
    assert_eq!(bench.store.accept(&lease, &batch).await.unwrap(), [Settled, Locked, Settled]);
    unlock(session).await;
    assert_eq!(bench.store.accept(&lease, &batch).await.unwrap(), [Stale, Settled, Stale]);
}

#[tokio::test]
async fn a_locked_run_is_not_claimed_and_the_others_are() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(40);
    let mut runs: Vec<RunId> = Vec::new();
    for n in 1..=3 {
        runs.push(bench.waiting(&lease, &job, n * 10).await);
    }
    for table in [("runs", "id"), ("waiting", "run")] {
        let session = lock(&opened, table.0, table.1, runs[0]).await;
        let free = runs.pop().unwrap();
        let claimed = bench.store.claim(&lease, &bench.all(), &[runs[0], free]).await.unwrap();
        assert_eq!(claimed.iter().map(|run| run.id).collect::<Vec<_>>(), [free], "{}", table.0);
        unlock(session).await;
    }
    assert_eq!(bench.claim(&lease, runs[0]).await.attempt, 1, "it still waits");
}

#[tokio::test]
async fn a_locked_run_is_not_delegated_and_the_others_are() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, other) = (bench.join("a", 1).await, bench.join("b", 2).await);
    let job = bench.create(overlapping("j")).await;
    bench.go(20);
    let (locked, free) = (bench.waiting(&lease, &job, 10).await, bench.waiting(&lease, &job, 20).await);
    let session = lock(&opened, "waiting", "run", locked).await;
    let to = [(locked, other.incarnation), (free, other.incarnation)];
    assert_eq!(bench.store.delegate(&lease, &bench.all(), &to).await.unwrap(), [free]);
    unlock(session).await;
    assert_eq!(bench.store.delegate(&lease, &bench.all(), &to).await.unwrap(), [locked]);
    // When the node stops, its delegated runs wait again, except the one that another session has locked.
    let session = lock(&opened, "waiting", "run", locked).await;
    bench.store.retire(&other).await.unwrap();
    assert_eq!(bench.due(&lease).await, [free]);
    unlock(session).await;
    assert!(bench.store.load_lost(&lease, 10).await.unwrap().is_empty());
    assert_eq!(bench.due(&lease).await, [locked, free]);
}

#[tokio::test]
async fn a_locked_cursor_is_not_raised_and_the_others_are() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (locked, free) = (bench.create(spec("locked")).await, bench.create(spec("free")).await);
    bench.go(10);
    let session = lock(&opened, "cursors", "job", locked.id).await;
    let epoch = bench.load(&free).await.epoch;
    let raise = |job: JobId| Raise { job, epoch, cursor: Some(s(20)) };
    let raised = bench.store.raise_cursors(&[raise(locked.id), raise(free.id)]).await.unwrap();
    assert_eq!(raised, [free.id]);
    assert_eq!((bench.cursor(&locked).await, bench.cursor(&free).await), (Some(s(10)), Some(s(20))));
    unlock(session).await;
}

/// The others are raised under the same rules as in a batch without a locked cursor.
#[tokio::test]
async fn beside_a_locked_cursor_none_is_lowered_or_raised_under_another_plan() {
    let opened = bench().await;
    let bench = &opened.bench;
    let create = async |name| bench.create(spec(name)).await;
    let (locked, free, ahead) = (create("locked").await, create("free").await, create("ahead").await);
    let (ended, edited, newer) = (create("ended").await, create("edited").await, create("newer").await);
    let untouched = create("untouched").await;
    bench.raise(&ahead, 1, Some(s(90))).await;
    bench.raise(&ended, 1, None).await;
    let mut session = opened.connect().await;
    let planned = format!("update epochs set zone_data = 999912 where job = '{}'", newer.id);
    sqlx::raw_sql(sqlx::AssertSqlSafe(planned)).execute(&mut session).await.unwrap();
    let raise = |job: &Job, epoch| Raise { job: job.id, epoch: Epoch::from_raw(epoch), cursor: Some(s(20)) };
    let raises =
        [(&free, 1), (&ahead, 1), (&ended, 1), (&edited, 7), (&newer, 1)].map(|(job, epoch)| raise(job, epoch));
    let expected = [Some(s(20)), Some(s(90)), None, Some(s(10)), Some(s(10)), Some(s(10))];
    let cursors = async || {
        let mut found = Vec::new();
        for job in [&free, &ahead, &ended, &edited, &newer, &untouched] {
            found.push(bench.cursor(job).await);
        }
        found
    };
    let session = lock(&opened, "cursors", "job", locked.id).await;
    let edit = lock(&opened, "epochs", "job", untouched.id).await;
    let beside: Vec<_> = raises.iter().cloned().chain([raise(&locked, 1), raise(&untouched, 1)]).collect();
    let raised: BTreeSet<_> = bench.store.raise_cursors(&beside).await.unwrap().into_iter().collect();
    assert_eq!(raised, BTreeSet::from([free.id, ahead.id, ended.id, newer.id]));
    assert_eq!(cursors().await, expected);
    unlock(session).await;
    unlock(edit).await;
    bench.store.raise_cursors(&raises).await.unwrap();
    assert_eq!(cursors().await, expected);
}

/// A settlement of a run that has ended, or that was claimed again, is answered as stale even while another session has locked
/// the row.
#[tokio::test]
async fn only_a_claim_under_the_fence_named_is_answered_as_locked() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(30);
    let mut runs = Vec::new();
    for n in 1..=3 {
        runs.push(bench.claimed(&lease, &job, n * 10).await);
    }
    let batch: Vec<_> = runs.iter().map(|run| settle(run, Verdict::Failed)).collect();
    bench.settle(&runs[0], Verdict::Succeeded).await;
    bench.settle(&runs[1], Verdict::HandBack).await;
    bench.claim(&lease, runs[1].id).await;
    let mut sessions = Vec::new();
    for run in &runs {
        sessions.push(lock(&opened, "runs", "id", run.id).await);
    }
    use SettleAnswer::{Locked, Stale};
    assert_eq!(bench.store.settle(&batch).await.unwrap(), [Stale, Stale, Locked]);
    for session in sessions {
        unlock(session).await;
    }
}

#[tokio::test]
async fn a_locked_run_is_not_superseded_and_the_others_are() {
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let previous = |name| JobSpec { overlap: Overlap::CancelPrevious, ..spec(name) };
    let (one, other) = (bench.create(previous("one")).await, bench.create(previous("other")).await);
    bench.go(40);
    let working = bench.claimed(&lease, &one, 10).await.id;
    let (waits, to) = (bench.waiting(&lease, &other, 10).await, bench.waiting(&lease, &other, 20).await);
    let given = [Supersede { job: one.id, run: working, to }, Supersede { job: other.id, run: waits, to }];
    for (table, key, locked, cancelled) in
        [("runs", "id", working, vec![waits]), ("runs", "id", working, vec![]), ("waiting", "run", to, vec![working])]
    {
        let session = lock(&opened, table, key, locked).await;
        assert_eq!(bench.store.supersede(&lease, &given).await.unwrap(), cancelled);
        unlock(session).await;
    }
    assert_eq!(bench.due(&lease).await, [to]);
}

#[tokio::test]
async fn a_locked_waiting_row_keeps_its_run_waiting() {
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let job = bench.create(JobSpec { overlap: Overlap::CancelPrevious, ..spec("j") }).await;
    bench.go(40);
    let (older, newest) = (bench.waiting(&lease, &job, 10).await, bench.waiting(&lease, &job, 20).await);
    let given = [Supersede { job: job.id, run: older, to: newest }];
    let session = lock(&opened, "waiting", "run", older).await;
    assert!(bench.store.supersede(&lease, &given).await.unwrap().is_empty());
    unlock(session).await;
    assert_eq!(bench.due(&lease).await, [older, newest], "the locked run still waits");
    assert_eq!(bench.store.supersede(&lease, &given).await.unwrap(), [older]);
}

#[tokio::test]
async fn a_locked_run_or_job_does_not_stop_its_queue() {
    for table in ["runs", "epochs"] {
        let opened = bench().await;
        let bench = &opened.bench;
        let lease = bench.join("a", 1).await;
        let (locked, free) = (bench.create(queued("locked")).await, bench.create(queued("free")).await);
        bench.go(40);
        for job in [&locked, &free] {
            bench.record(&lease, ticks(job, 1, vec![tick(job, 10, Fate::Run), tick(job, 20, Fate::Run)])).await;
        }
        let oldest = tick(&locked, 10, Fate::Run).tick.id;
        let session = match table {
            "runs" => lock(&opened, table, "id", oldest).await,
            _ => lock(&opened, table, "job", locked.id).await,
        };
        let claims = bench.store.claim_queue(&ask(10)).await.unwrap().claims;
        let handed: Vec<_> = claims.iter().map(|claim| claim.run.id).collect();
        assert_eq!(handed.len(), if table == "runs" { 3 } else { 2 }, "{table}: {handed:?}");
        assert!(!handed.contains(&oldest));
        unlock(session).await;
        assert!(bench.store.claim_queue(&ask(10)).await.unwrap().claims.iter().any(|claim| claim.run.id == oldest));
    }
}

#[tokio::test]
async fn a_locked_run_does_not_fail_a_batch_of_successes() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(queued("j")).await);
    bench.go(40);
    bench.record(&lease, ticks(&job, 1, vec![tick(&job, 10, Fate::Run), tick(&job, 20, Fate::Run)])).await;
    let claims = bench.store.claim_queue(&ask(2)).await.unwrap().claims;
    let session = lock(&opened, "runs", "id", claims[0].run.id).await;
    let done: Vec<_> =
        claims.iter().map(|claim| Success { run: claim.run.id, fence: claim.run.fence, output: None }).collect();
    assert_eq!(bench.store.succeed(TENANT, &done).await.unwrap(), [None, Some(job.id)]);
    let batch: Vec<_> = claims.iter().map(|claim| settle(&claim.run, Verdict::Succeeded)).collect();
    assert_eq!(bench.store.settle(&batch).await.unwrap(), [SettleAnswer::Locked, SettleAnswer::Stale]);
    unlock(session).await;
    assert_eq!(bench.store.succeed(TENANT, &done).await.unwrap(), [Some(job.id), None]);
}

#[tokio::test]
async fn a_locked_run_is_not_pruned_and_the_others_are() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(60);
    let mut runs = Vec::new();
    for n in 1..=4 {
        let run = bench.claimed(&lease, &job, n * 10).await;
        bench.settle(&run, Verdict::Succeeded).await;
        runs.push(run.id);
    }
    // An open run keeps the day's table, so that its rows are pruned one by one.
    let open = bench.waiting(&lease, &job, 50).await;
    bench.raise(&job, 1, Some(s(60))).await;
    bench.go(2 * 86_400);
    // Drops the days without runs first: dropping one waits for every session with an open transaction.
    bench.store.prune(s(0), 100).await.unwrap();
    let session = lock(&opened, "runs", "id", runs[0]).await;
    bench.store.prune(s(86_400), 100).await.unwrap();
    let left = |runs: Vec<RunRecord>| runs.iter().map(|run| run.id).collect::<BTreeSet<_>>();
    assert_eq!(left(bench.history(&job).await), BTreeSet::from([runs[0], open]));
    unlock(session).await;
    bench.store.prune(s(86_400), 100).await.unwrap();
    assert_eq!(left(bench.history(&job).await), BTreeSet::from([open]));
}
