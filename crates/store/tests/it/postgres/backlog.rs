//! Backlogs too long for one transaction: marked at once, processed in batches, and none of their runs starts
//! meanwhile.

use std::{collections::BTreeSet, time::Duration};

use everytick_domain::{
    edit::Change,
    ids::RunId,
    job::{Job, JobSpec},
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};
use everytick_store::{
    BacklogAction, BacklogStep, BacklogWork, Beat, ClaimQueue, EditJob, JobRef, Lease, PostgresOptions, PostgresStore,
    QueueStore, RowAnswer, SettleAnswer, Store,
    conformance::{
        Bench, LIMITS, TENANT, actor, born, by_name, change, overlapping, pause, s, server::options, settle, spec,
        ticks,
    },
};
use sqlx::PgConnection;

use super::{Opened, bench};

/// More than two batches.
const LONG: usize = LIMITS.backlog_batch_max * 2 + 5;

/// A job with `count` waiting ticks, and their runs. A further tick would be queued after them.
async fn backlog(bench: &Bench, spec: JobSpec, count: usize) -> (Lease, Job, Vec<RunId>) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec).await);
    let mut runs = Vec::new();
    for n in 1..=count {
        let at = 10 * i64::try_from(n).unwrap();
        bench.go(at);
        runs.push(bench.waiting(&lease, &job, at).await);
    }
    (lease, job, runs)
}

async fn work(opened: &Opened, job: &str) -> Option<BacklogWork> {
    opened.store.get_job(TENANT, &by_name(job)).await.unwrap().backlog
}

/// Processes every batch until nothing is left. Returns how many runs each one processed.
async fn batches(opened: &Opened) -> Vec<usize> {
    let mut worked = Vec::new();
    loop {
        match opened.store.advance_backlog().await.unwrap() {
            BacklogStep { job: None, .. } => return worked,
            step => worked.push(step.cancelled + step.moved),
        }
    }
}

fn in_batches() -> Vec<usize> {
    let max = LIMITS.backlog_batch_max;
    vec![max, max, LONG - 2 * max]
}

fn ask() -> ClaimQueue {
    ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit: 99, lease: Span::minutes(1) }
}

fn queued(spec: JobSpec) -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: "q".into() }), ..spec }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_backlog_is_cancelled_in_batches_and_none_of_it_starts() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job, runs) = backlog(bench, overlapping("j"), LONG).await;
    let cancelled = opened.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap();
    assert!(cancelled.runs.backlog && cancelled.runs.waited.is_empty());
    assert_eq!(bench.due(&lease).await, [], "no peek returns them");
    assert!(opened.store.claim(&lease, &bench.all(), &runs).await.unwrap().is_empty(), "no claim takes them");
    let remaining = LONG as u64;
    assert_eq!(work(&opened, "j").await, Some(BacklogWork { action: BacklogAction::Cancel, done: 0, remaining }));
    // A run that begins to wait later is not marked.
    let at = 10 * (i64::try_from(LONG).unwrap() + 1);
    bench.go(at);
    let later = bench.waiting(&lease, &job, at).await;
    assert_eq!(bench.due(&lease).await, [later]);
    assert_eq!(opened.store.advance_backlog().await.unwrap().cancelled, LIMITS.backlog_batch_max);
    assert_eq!(work(&opened, "j").await.unwrap().done, LIMITS.backlog_batch_max as u64);
    assert_eq!(batches(&opened).await, in_batches()[1..]);
    assert_eq!(work(&opened, "j").await, None);
    for run in runs {
        assert_eq!(bench.run(run).await.state, State::Cancelled);
    }
    assert_eq!(bench.claim(&lease, later).await.id, later);
}

/// Only the runs that are marked wait for the work on the backlog.
#[tokio::test]
async fn a_long_backlog_keeps_neither_later_runs_of_its_job_nor_other_jobs_from_being_claimed() {
    let opened = bench().await;
    let bench = &opened.bench;
    let at = 10 * (i64::try_from(LONG).unwrap() + 1);
    for (job, other, queue) in [("j", "other", false), ("queued", "other queued", true)] {
        let spec = |name| if queue { queued(overlapping(name)) } else { overlapping(name) };
        bench.go(0);
        let other = bench.create(spec(other)).await;
        let (lease, job, _) = backlog(bench, spec(job), LONG).await;
        let beside = bench.waiting(&lease, &other, 10).await;
        assert!(opened.store.cancel_job(TENANT, &actor(), &JobRef::Id(job.id)).await.unwrap().runs.backlog);
        bench.go(at);
        let later = bench.waiting(&lease, &job, at).await;
        let claimed: BTreeSet<_> = if queue {
            let claims = opened.store.claim_queue(&ask()).await.unwrap().claims;
            claims.iter().map(|claim| claim.run.id).collect()
        } else {
            let claims = opened.store.claim(&lease, &bench.all(), &[beside, later]).await.unwrap();
            claims.iter().map(|claim| claim.id).collect()
        };
        assert_eq!(claimed, BTreeSet::from([beside, later]), "{queue}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_or_delete_that_cancels_marks_a_long_backlog() {
    for (end, ends) in [("pause", pause()), ("delete", Change::Delete)] {
        let opened = bench().await;
        let bench = &opened.bench;
        let (lease, _, runs) = backlog(bench, queued(overlapping("j")), LONG).await;
        drop(lease);
        let edit = EditJob { cancel: true, ..change("j", ends) };
        assert!(opened.store.edit_job(TENANT, &actor(), edit).await.unwrap().backlog, "{end}");
        assert!(opened.store.claim_queue(&ask()).await.unwrap().claims.is_empty(), "{end}: workers get none of them");
        assert_eq!(batches(&opened).await, in_batches(), "{end}");
        for run in runs {
            assert_eq!(bench.run(run).await.state, State::Cancelled, "{end}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_backlog_follows_its_job_to_another_target_in_batches() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job, runs) = backlog(bench, overlapping("j"), LONG).await;
    let replace = |spec: JobSpec| Change::Replace(Box::new(spec));
    let to_queue = change("j", replace(queued((*job.spec).clone())));
    assert!(opened.store.edit_job(TENANT, &actor(), to_queue).await.unwrap().backlog);
    assert_eq!(bench.due(&lease).await, [], "no node delivers them to the old target");
    assert!(opened.store.claim_queue(&ask()).await.unwrap().claims.is_empty(), "the batches have not moved them yet");
    let moved = BacklogStep { job: Some(job.id), cancelled: 0, moved: LIMITS.backlog_batch_max };
    assert_eq!(opened.store.advance_backlog().await.unwrap(), moved);
    let first = opened.store.claim_queue(&ask()).await.unwrap().claims;
    assert_eq!(first.len(), LIMITS.backlog_batch_max);
    // The target changes back during the first move: the rest goes to the job's current target.
    assert!(bench.edit("j", replace((*job.spec).clone())).await.backlog);
    assert_eq!(batches(&opened).await.iter().sum::<usize>(), LONG - first.len());
    let mut due = bench.due(&lease).await;
    due.extend(first.iter().map(|claim| claim.run.id));
    due.sort_unstable();
    assert_eq!(due, runs);
    assert!(opened.store.claim_queue(&ask()).await.unwrap().claims.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_of_one_batch_is_cancelled_at_once() {
    let opened = bench().await;
    let (_, _, runs) = backlog(&opened.bench, overlapping("j"), LIMITS.backlog_batch_max).await;
    let cancelled = opened.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap();
    assert_eq!((cancelled.runs.backlog, cancelled.runs.waited.len()), (false, runs.len()));
    assert!(batches(&opened).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_a_cancelled_backlog_write_flow_steps() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (_, _, runs) = backlog(bench, overlapping("j"), LONG).await;
    let after = everytick_domain::flow::DependsOn { job: "j".into(), when: everytick_domain::flow::When::Succeeded };
    bench.create(JobSpec { schedule: None, depends_on: vec![after], ..spec("child") }).await;
    opened.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap();
    batches(&opened).await;
    let mut look = opened.connect().await;
    let steps: i64 = sqlx::query_scalar("select count(*) from flow_steps").fetch_one(&mut look).await.unwrap();
    assert_eq!(usize::try_from(steps).unwrap(), runs.len());
}

/// A claim that began before the mark may take a marked run. The cancel waits for the claim and cancels the run that it
/// took.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_taken_by_a_claim_in_progress_is_cancelled_too() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, _, runs) = backlog(bench, overlapping("j"), LONG).await;
    let mut claimer = opened.connect().await;
    let begun = format!(
        "begin; select 1 from leases where incarnation = '{lease}' for share;
         delete from waiting where run = '{run}';
         update runs set state = 1, attempt = 1, fence = 7, node = 'a', incarnation = '{lease}', started_at = 1 where id = '{run}'",
        lease = lease.incarnation,
        run = runs[0],
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(begun)).execute(&mut claimer).await.unwrap();
    let store = opened.store.clone();
    let cancelling = tokio::spawn(async move { store.cancel_job(TENANT, &actor(), &by_name("j")).await });
    let mut look = opened.connect().await;
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut look).await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    sqlx::raw_sql("commit").execute(&mut claimer).await.unwrap();
    let cancelled = cancelling.await.unwrap().unwrap();
    assert_eq!(cancelled.runs.claimed, [runs[0]]);
    assert_eq!(bench.run(runs[0]).await.state, State::Cancelled);
}

/// Waits until this many sessions wait for a lock.
async fn until_blocked(opened: &Opened, sessions: i64) {
    let mut look = opened.connect().await;
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut look).await.unwrap() < sessions {
        tokio::task::yield_now().await;
    }
}

/// Opens a transaction that share-locks a lease, as every claim and every batch of ticks does.
async fn share_lease(opened: &Opened, lease: &Lease) -> PgConnection {
    let mut session = opened.connect().await;
    let share = format!("begin; select 1 from leases where incarnation = '{}' for share", lease.incarnation);
    sqlx::raw_sql(sqlx::AssertSqlSafe(share)).execute(&mut session).await.unwrap();
    session
}

async fn end(session: &mut PgConnection) {
    sqlx::raw_sql("commit").execute(session).await.unwrap();
}

/// Claims a run in an open transaction.
async fn claim_in(session: &mut PgConnection, lease: &Lease, run: RunId) {
    let claim = format!(
        "delete from waiting where run = '{run}';
         update runs set state = 1, attempt = 1, fence = 7, node = 'a', incarnation = '{}', started_at = 1 where id = '{run}'",
        lease.incarnation,
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(claim)).execute(session).await.unwrap();
}

/// The claim began before the mark. Its attempt fails at once, and the run waits again before the cancel reads the
/// claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_put_back_while_its_backlog_is_cancelled_is_cancelled_too() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, _, runs) = backlog(bench, overlapping("j"), LONG).await;
    let other = bench.join("b", 9).await;
    let (mut slow, mut claimer) = (share_lease(&opened, &other).await, share_lease(&opened, &lease).await);
    claim_in(&mut claimer, &lease, runs[0]).await;
    let store = opened.store.clone();
    let cancelling = tokio::spawn(async move { store.cancel_job(TENANT, &actor(), &by_name("j")).await });
    until_blocked(&opened, 1).await;
    end(&mut claimer).await;
    let claim = bench.store.load_claimed(&lease).await.unwrap().remove(0);
    let again = settle(&claim, Verdict::Retry { due_at: bench.store.now().await.unwrap() });
    assert_eq!(bench.store.settle(&[again]).await.unwrap(), [SettleAnswer::Settled]);
    assert_eq!(bench.due(&lease).await, [], "no node starts it again");
    end(&mut slow).await;
    assert!(cancelling.await.unwrap().unwrap().runs.backlog);
    batches(&opened).await;
    assert_eq!(bench.run(runs[0]).await.state, State::Cancelled);
    assert_eq!(bench.due(&lease).await, []);
}

/// As before, but the settlement has locked the run and is not committed when the cancel reads the claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_waits_for_a_settlement_that_puts_a_run_of_the_backlog_back() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, _, runs) = backlog(bench, overlapping("j"), LONG).await;
    let other = bench.join("b", 9).await;
    let (mut slow, mut claimer) = (share_lease(&opened, &other).await, share_lease(&opened, &lease).await);
    claim_in(&mut claimer, &lease, runs[0]).await;
    let store = opened.store.clone();
    let cancelling = tokio::spawn(async move { store.cancel_job(TENANT, &actor(), &by_name("j")).await });
    until_blocked(&opened, 1).await;
    end(&mut claimer).await;
    let mut settler = opened.connect().await;
    let lock = format!("begin; select 1 from runs where id = '{}' for update", runs[0]);
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut settler).await.unwrap();
    end(&mut slow).await;
    let blocked = "select count(*) from pg_stat_activity a where pg_backend_pid() = any(pg_blocking_pids(a.pid))";
    while sqlx::query_scalar::<_, i64>(blocked).fetch_one(&mut settler).await.unwrap() == 0 {
        tokio::task::yield_now().await;
    }
    let back = format!(
        "update runs set state = 0, incarnation = null where id = '{run}';
         insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts)
           select id, job, tenant, 0, 5, due_at, false, false, 1 from runs where id = '{run}'",
        run = runs[0],
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(back)).execute(&mut settler).await.unwrap();
    end(&mut settler).await;
    cancelling.await.unwrap().unwrap();
    batches(&opened).await;
    assert_eq!(bench.run(runs[0]).await.state, State::Cancelled);
}

/// The node that cancels dies after its mark is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_whose_node_died_is_finished_by_the_node_that_processes_the_backlog() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job, runs) = backlog(bench, overlapping("j"), LONG).await;
    let mut slow = share_lease(&opened, &lease).await;
    let store = opened.store.clone();
    let cancelling = tokio::spawn(async move { store.cancel_job(TENANT, &actor(), &by_name("j")).await });
    until_blocked(&opened, 1).await;
    cancelling.abort();
    end(&mut slow).await;
    assert_eq!(batches(&opened).await, in_batches());
    for run in runs {
        assert_eq!(bench.run(run).await.state, State::Cancelled);
    }
    let at = 10 * (i64::try_from(LONG).unwrap() + 1);
    bench.go(at);
    let later = bench.waiting(&lease, &job, at).await;
    assert_eq!(bench.due(&lease).await, [later]);
}

async fn with_lock_timeout(opened: &Opened, lock_timeout: Duration) -> PostgresStore {
    let options = PostgresOptions { lock_timeout, ..options(Some(opened.bench.clock.clone())) };
    PostgresStore::connect(&opened.database.url, options, LIMITS).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_waits_for_the_claims_of_one_node_locks_no_other_lease() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, _, _) = backlog(bench, overlapping("j"), LONG).await;
    let (healthy, stopped) = (bench.create(overlapping("healthy")).await, bench.join("z", 99).await);
    let at = 10 * (i64::try_from(LONG).unwrap() + 1);
    bench.go(at);
    bench.store.now().await.unwrap();
    let mut slow = share_lease(&opened, &stopped).await;
    // Long enough that the cancel still waits when the tick is recorded.
    let store = with_lock_timeout(&opened, Duration::from_secs(600)).await;
    let cancelling = tokio::spawn(async move { store.cancel_job(TENANT, &actor(), &by_name("j")).await });
    until_blocked(&opened, 1).await;
    let recorded = bench.record(&lease, ticks(&healthy, 1, vec![born(&healthy, at)])).await;
    assert_eq!(recorded, [RowAnswer::Inserted]);
    bench.store.renew(&lease, Span::days(9), &Beat::of(RunId::floor(s(0)))).await.unwrap();
    end(&mut slow).await;
    // The call has its own time limit; whether a slow machine reached it does not matter here.
    drop(cancelling);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_returns_while_a_claim_is_in_progress_and_continues_after_it() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, _, runs) = backlog(bench, overlapping("j"), LONG).await;
    let mut slow = share_lease(&opened, &lease).await;
    let store = with_lock_timeout(&opened, Duration::from_millis(50)).await;
    assert!(store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap().runs.backlog);
    assert_eq!(store.advance_backlog().await.unwrap(), BacklogStep::default(), "the claim is still in progress");
    claim_in(&mut slow, &lease, runs[0]).await;
    end(&mut slow).await;
    batches(&opened).await;
    for run in runs {
        assert_eq!(bench.run(run).await.state, State::Cancelled);
    }
}

/// The server counts the rows that a load reads: one run more than the policy needs, however many wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_reads_no_more_of_a_long_backlog_than_the_policy_needs() {
    let opened = bench().await;
    let (_, job, _) = backlog(&opened.bench, overlapping("j"), LONG).await;
    let mut look = opened.connect().await;
    for (statement, most) in [("horizon/open_waiting", 2), ("horizon/open_backlog", 2), ("horizon/waiting_counts", 7)] {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/sql/").to_owned() + statement + ".sql";
        let text = std::fs::read_to_string(file).unwrap();
        let limit =
            if statement == "horizon/waiting_counts" { most.to_string() } else { format!("array[{most}::bigint]") };
        let text = text.replace("$1", &format!("array['{}'::uuid]", job.id)).replace("$2", &limit);
        // For a small table the planner would use a bitmap scan, which reads all entries of the job.
        let alone = "set enable_seqscan = off; set enable_bitmapscan = off";
        let explain = format!("{alone}; explain (analyze, costs off, timing off) {text}");
        let plan = sqlx::raw_sql(sqlx::AssertSqlSafe(explain)).fetch_all(&mut look).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| sqlx::Row::get(row, 0)).collect();
        let scanned = |line: &&String| line.contains("waiting_job") && line.contains("actual rows=");
        let scans: Vec<&String> = plan.iter().filter(scanned).collect();
        assert!(!scans.is_empty(), "{statement}: {plan:#?}");
        for scan in scans {
            assert!(scan.contains(&format!("actual rows={most} ")), "{statement}: {scan}");
        }
    }
}
