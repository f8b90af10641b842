//! Queues: which runs workers can claim, how heartbeats keep a claim, and how claims are lost.

use everytick_domain::{
    edit::Change,
    ids::{Fence, RunId, TenantId},
    job::{Job, JobSpec, Overlap},
    plan::Fate,
    queue::{KeyExpression, LOG_BYTES_MAX, QueueLimits},
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};

use super::{
    Bench, OTHER_TENANT, START, TENANT, actor, by_name, change, new_run, overlapping, pause, s, settle, spec, tick,
    ticks,
};
use crate::{
    ClaimBeat, ClaimQueue, ClaimedRun, Lease, NewRun, QueueRecord, SettleAnswer, StoreError, Success, WorkerClaim,
};

const LEASE: Span = Span::seconds(30);

/// The same job with a queue target.
pub(crate) fn queued(spec: JobSpec) -> JobSpec {
    in_queue(spec, "q")
}

fn in_queue(spec: JobSpec, name: &str) -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: name.into() }), ..spec }
}

fn keyed(spec: JobSpec, max_per_key: u32) -> JobSpec {
    let key = KeyExpression::try_from("payload.customer".to_owned()).unwrap();
    JobSpec { concurrency_key: Some(key), max_per_key, ..spec }
}

fn of_customer(job: &str, key: &str, customer: &str) -> NewRun {
    NewRun { payload: Some(format!("{{\"customer\":\"{customer}\"}}")), ..new_run(job, key) }
}

fn ask(limit: usize) -> ClaimQueue {
    ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit, lease: LEASE }
}

async fn claims(bench: &Bench, limit: usize) -> Vec<WorkerClaim> {
    bench.store.claim_queue(&ask(limit)).await.unwrap().claims
}

async fn ids(bench: &Bench, limit: usize) -> Vec<RunId> {
    claims(bench, limit).await.iter().map(|claim| claim.run.id).collect()
}

async fn one(bench: &Bench) -> ClaimedRun {
    let mut claims = claims(bench, 1).await;
    assert_eq!(claims.len(), 1, "a run is claimed");
    claims.remove(0).run
}

async fn beat(bench: &Bench, run: &ClaimedRun) -> ClaimBeat {
    bench.store.beat_claim(TENANT, run.id, run.fence, LEASE).await.unwrap()
}

async fn joined(bench: &Bench, spec: JobSpec) -> (Lease, Job) {
    (bench.join("a", 1).await, bench.create(spec).await)
}

async fn queue(bench: &Bench, name: &str) -> QueueRecord {
    bench.store.list_queues(TENANT, Some(name), 1).await.unwrap().items.remove(0)
}

async fn backlog(bench: &Bench, lease: &Lease, job: &Job, count: i64) {
    let rows = (1..=count).map(|n| tick(job, n * 10, Fate::Run)).collect();
    bench.record(lease, ticks(job, bench.epoch(job).await, rows)).await;
}

pub async fn nodes_do_not_see_runs_of_queue_jobs(bench: &Bench) {
    let (lease, job) = joined(bench, queued(spec("j"))).await;
    let other = bench.create(spec("other")).await;
    bench.go(10);
    let id = bench.waiting(&lease, &job, 10).await;
    let peeked = bench.peek(&lease).await;
    assert_eq!((peeked.due.len(), peeked.next_due), (0, None));
    assert!(bench.store.claim(&lease, &bench.all(), &[id]).await.unwrap().is_empty());
    let run = bench.waiting(&lease, &other, 10).await;
    assert_eq!(bench.due(&lease).await, [run]);
    assert_eq!(ids(bench, 9).await, [id], "and workers do not see runs that nodes deliver");
}

pub async fn a_worker_claims_a_run_with_a_raised_fence_and_a_lease(bench: &Bench) {
    let (lease, job) = joined(bench, JobSpec { timeout: Span::seconds(90), ..queued(spec("j")) }).await;
    bench.go(10);
    let id = bench.waiting(&lease, &job, 10).await;
    let before = bench.run(id).await;
    bench.go(12);
    let claim = claims(bench, 5).await.remove(0);
    assert_eq!((claim.run.id, claim.run.attempt, claim.run.lost), (id, 1, 0));
    assert_eq!((claim.run.scheduled_at, claim.job.id), (s(10), job.id));
    assert_eq!((claim.until, claim.timeout_at), (s(42), s(102)));
    assert!(claim.run.fence > before.fence);
    let run = bench.run(id).await;
    assert_eq!((run.state, run.attempt, run.fence), (State::Claimed, 1, claim.run.fence));
    assert_eq!((run.node, run.worker.as_deref(), run.started_at), (None, Some("w"), Some(s(12))));
    assert!(claims(bench, 5).await.is_empty(), "a run is claimed by one worker");
    let attempts = bench.store.list_attempts(TENANT, id).await.unwrap();
    assert_eq!((attempts.len(), attempts[0].worker.as_deref(), attempts[0].outcome.as_deref()), (1, Some("w"), None));
}

pub async fn higher_priority_goes_first_and_waiting_time_counts(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let mut jobs = Vec::new();
    for (name, priority) in [("low", 1), ("high", 9), ("old", 0), ("late", 9)] {
        jobs.push(bench.create(JobSpec { priority, ..queued(overlapping(name)) }).await);
    }
    bench.go(700);
    let row = |job: usize, seconds, fate| ticks(&jobs[job], 1, vec![tick(&jobs[job], seconds, fate)]);
    let batch = [
        row(3, 100, Fate::Late),
        row(0, 700, Fate::Run),
        row(1, 700, Fate::Run),
        row(1, 690, Fate::Run),
        row(2, 140, Fate::Run),
    ];
    let expected: Vec<_> = [4, 3, 2, 1, 0].map(|n: usize| batch[n].rows[0].tick.id).to_vec();
    bench.store.record(&lease, &batch).await.unwrap();
    assert_eq!(ids(bench, 9).await, expected, "the old run has waited longer than nine priority steps");
}

pub async fn a_claim_obeys_its_limit_and_takes_only_due_runs(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(40);
    backlog(bench, &lease, &job, 3).await;
    let mut later = tick(&job, 40, Fate::Run);
    later.tick.due_at = s(45);
    let last = later.tick.id;
    bench.record(&lease, ticks(&job, 1, vec![later])).await;
    assert_eq!(claims(bench, 2).await.len(), 2);
    assert_eq!(claims(bench, 9).await.len(), 1);
    assert!(claims(bench, 9).await.is_empty());
    bench.go(45);
    assert_eq!(ids(bench, 9).await, [last]);
}

pub async fn a_job_that_may_not_overlap_has_one_claimed_run_at_a_time(bench: &Bench) {
    let (lease, job) = joined(bench, queued(spec("j"))).await;
    bench.go(20);
    backlog(bench, &lease, &job, 2).await;
    let first = one(bench).await;
    assert!(claims(bench, 9).await.is_empty());
    bench.settle(&first, Verdict::Retry { due_at: s(60) }).await;
    assert!(claims(bench, 9).await.is_empty(), "a run between two attempts is in progress");
    let forced = bench.trigger(NewRun { force: true, ..new_run("j", "k") }).await;
    assert_eq!(ids(bench, 9).await, [forced.id]);
    bench.go(60);
    assert!(claims(bench, 9).await.is_empty(), "the forced run blocks it");
    let run = ClaimedRun { id: forced.id, fence: bench.run(forced.id).await.fence, ..first.clone() };
    bench.settle(&run, Verdict::Succeeded).await;
    let again = one(bench).await;
    assert_eq!((again.id, again.attempt), (first.id, 2));
    bench.settle(&again, Verdict::Succeeded).await;
    assert_eq!(claims(bench, 9).await.len(), 1);
}

pub async fn claims_obey_max_concurrent_of_the_job(bench: &Bench) {
    let limited = JobSpec { overlap: Overlap::Allow, max_concurrent: Some(2), ..queued(spec("j")) };
    let (lease, job) = joined(bench, limited).await;
    bench.go(40);
    backlog(bench, &lease, &job, 4).await;
    let first = claims(bench, 9).await;
    assert_eq!(first.len(), 2);
    assert!(claims(bench, 9).await.is_empty());
    bench.settle(&first[0].run, Verdict::Succeeded).await;
    assert_eq!(claims(bench, 9).await.len(), 1);
}

pub async fn a_run_that_a_node_has_claimed_counts_too(bench: &Bench) {
    let (lease, job) = joined(bench, spec("j")).await;
    bench.go(10);
    let by_node = bench.claimed(&lease, &job, 10).await;
    bench.edit("j", Change::Replace(Box::new(queued(spec("j"))))).await;
    bench.go(20);
    bench.waiting(&lease, &job, 20).await;
    assert!(claims(bench, 9).await.is_empty());
    bench.settle(&by_node, Verdict::Succeeded).await;
    assert_eq!(claims(bench, 9).await.len(), 1);
}

pub async fn a_busy_job_does_not_block_other_jobs(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let busy = bench.create(JobSpec { priority: 9, ..queued(spec("busy")) }).await;
    let idle = bench.create(JobSpec { priority: 0, ..queued(spec("idle")) }).await;
    bench.go(2_000);
    backlog(bench, &lease, &busy, 180).await;
    let run = bench.waiting(&lease, &idle, 2_000).await;
    assert_eq!(one(bench).await.job, busy.id);
    assert_eq!(ids(bench, 9).await, [run]);
}

pub async fn a_run_claimed_by_a_worker_is_an_open_run_of_its_job(bench: &Bench) {
    let (lease, job) = joined(bench, queued(spec("j"))).await;
    bench.go(10);
    let id = bench.waiting(&lease, &job, 10).await;
    // Below the bound of claims of any node.
    bench.go(86_400);
    bench.store.leave(&lease).await.unwrap();
    let lease = bench.join("b", 2).await;
    let run = one(bench).await;
    let open = bench.load(&job).await.open;
    assert_eq!((open.len(), open[0].id, open[0].state), (1, id, State::Claimed));
    let asked = bench.trigger(new_run("j", "k")).await;
    assert_eq!(asked.state, State::Skipped);
    assert!(bench.store.load_claimed(&lease).await.unwrap().is_empty(), "no node has claimed it");
    bench.join("b", 3).await;
    bench.go(86_500);
    let last = bench.join("b", 4).await;
    assert!(bench.store.load_lost(&last, 9).await.unwrap().is_empty(), "and no node has lost it");
    bench.settle(&run, Verdict::Succeeded).await;
    assert!(bench.load(&job).await.open.is_empty());
}

pub async fn a_heartbeat_extends_the_claim_unless_its_fence_is_old(bench: &Bench) {
    let (lease, job) = joined(bench, queued(spec("j"))).await;
    bench.go(10);
    bench.waiting(&lease, &job, 10).await;
    let run = one(bench).await;
    bench.go(35);
    assert_eq!(beat(bench, &run).await, ClaimBeat::Held { until: s(65) });
    let stale = bench.store.beat_claim(TENANT, run.id, Fence::from_raw(1), LEASE).await.unwrap();
    assert_eq!(stale, ClaimBeat::Stale);
    bench.go(64);
    assert!(bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap().is_empty());
    bench.go(65);
    assert_eq!(bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap().len(), 1);
    assert_eq!(beat(bench, &run).await, ClaimBeat::Held { until: s(95) }, "the claim has not been settled yet");
    assert!(bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap().is_empty());
    bench.settle(&run, Verdict::Succeeded).await;
    assert_eq!(beat(bench, &run).await, ClaimBeat::Stale);
    let unknown = bench.store.beat_claim(TENANT, RunId::floor(START), run.fence, LEASE).await;
    assert!(matches!(unknown, Err(StoreError::NotFound("run"))));
}

pub async fn a_heartbeat_and_a_log_affect_only_the_named_run(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(20);
    backlog(bench, &lease, &job, 2).await;
    let held = claims(bench, 2).await;
    let (kept, other) = (&held[0].run, &held[1].run);
    bench.go(40);
    assert_eq!(beat(bench, kept).await, ClaimBeat::Held { until: s(70) });
    assert!(bench.store.log_claim(TENANT, kept.id, kept.fence, "so far").await.unwrap());
    bench.go(50);
    let overdue = bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap();
    let found: Vec<_> = overdue.into_iter().map(|claim| (claim.held.run.id, claim.held.log)).collect();
    assert_eq!(found, [(other.id, None)], "claims of one batch may have the same fence");
}

pub async fn a_settlement_ends_the_claim_and_its_repeat_is_stale(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(20);
    backlog(bench, &lease, &job, 2).await;
    let runs: Vec<_> = claims(bench, 2).await.into_iter().map(|claim| claim.run).collect();
    assert_eq!(queue(bench, "q").await.claimed, 2);
    assert_eq!(bench.settle(&runs[0], Verdict::Succeeded).await, SettleAnswer::Settled);
    assert_eq!(bench.settle(&runs[0], Verdict::Succeeded).await, SettleAnswer::Stale);
    let batch = [settle(&runs[0], Verdict::Failed), settle(&runs[1], Verdict::Failed)];
    assert_eq!(bench.store.settle(&batch).await.unwrap(), [SettleAnswer::Stale, SettleAnswer::Settled]);
    assert_eq!(queue(bench, "q").await.claimed, 0);
    let run = bench.run(runs[1].id).await;
    assert_eq!((run.state, run.worker.as_deref()), (State::Failed, Some("w")));
    bench.go(9_000);
    assert!(bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap().is_empty());
}

pub async fn a_worker_learns_of_a_cancel_at_its_next_heartbeat(bench: &Bench) {
    let (lease, job) = joined(bench, queued(spec("j"))).await;
    bench.go(10);
    bench.waiting(&lease, &job, 10).await;
    let run = one(bench).await;
    assert!(bench.store.cancel_run(TENANT, &actor(), run.id).await.unwrap().was_claimed);
    assert_eq!(beat(bench, &run).await, ClaimBeat::Cancelled);
    assert_eq!(bench.settle(&run, Verdict::Succeeded).await, SettleAnswer::Stale);
    assert_eq!(bench.run(run.id).await.state, State::Cancelled);
    assert_eq!(queue(bench, "q").await.claimed, 0);
}

pub async fn a_pause_with_cancel_ends_runs_that_workers_have_claimed(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(20);
    backlog(bench, &lease, &job, 2).await;
    let run = one(bench).await;
    bench.go(86_400);
    let ask = crate::EditJob { cancel: true, ..change("j", pause()) };
    assert_eq!(bench.store.edit_job(TENANT, &actor(), ask).await.unwrap().cancelled, [run.id]);
    assert_eq!(beat(bench, &run).await, ClaimBeat::Cancelled);
    assert_eq!((queue(bench, "q").await.claimed, queue(bench, "q").await.due), (0, 0));
}

pub async fn cancelling_a_job_keeps_worker_claims_of_other_jobs(bench: &Bench) {
    let (lease, job) = joined(bench, queued(spec("j"))).await;
    let other = bench.create(queued(spec("other"))).await;
    bench.go(10);
    let ours = bench.waiting(&lease, &job, 10).await;
    let theirs = bench.waiting(&lease, &other, 10).await;
    let held = claims(bench, 2).await;
    let cancelled = bench.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap();
    assert_eq!(cancelled.runs.claimed, [ours]);
    let run = &held.iter().find(|claim| claim.run.id == theirs).unwrap().run;
    assert!(matches!(beat(bench, run).await, ClaimBeat::Held { .. }));
    assert_eq!(bench.run(theirs).await.state, State::Claimed);
}

pub async fn the_run_of_a_lost_worker_returns_to_the_queue(bench: &Bench) {
    let (lease, job) = joined(bench, queued(spec("j"))).await;
    bench.go(10);
    bench.waiting(&lease, &job, 10).await;
    let run = one(bench).await;
    assert!(bench.store.log_claim(TENANT, run.id, run.fence, "so far").await.unwrap());
    bench.go(40);
    assert!(bench.store.load_overdue_claims(Span::millis(1), 9).await.unwrap().is_empty(), "within the grace");
    let overdue = bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap().remove(0);
    assert_eq!((&overdue.held.run, overdue.worker.as_str(), overdue.timed_out), (&run, "w", false));
    assert_eq!((overdue.held.log.as_deref(), overdue.held.started_at), (Some("so far"), Some(s(10))));
    let ids = [run.id, RunId::floor(START)];
    let held = bench.store.held_claims(TENANT, &ids).await.unwrap();
    assert_eq!((held.len(), &held[0].run, held[0].job.id), (1, &run, job.id));
    assert_eq!(bench.settle(&overdue.held.run, Verdict::Redeliver).await, SettleAnswer::Settled);
    let attempts = bench.store.list_attempts(TENANT, run.id).await.unwrap();
    assert_eq!((attempts[0].outcome.as_deref(), attempts[0].worker.as_deref()), (Some("lost"), Some("w")));
    assert!(bench.due(&lease).await.is_empty(), "no node delivers it");
    let again = one(bench).await;
    assert_eq!((again.id, again.attempt, again.lost), (run.id, 2, 1));
    assert!(again.fence > run.fence);
    assert_eq!(beat(bench, &run).await, ClaimBeat::Stale, "a worker that returns late");
    assert_eq!(bench.settle(&run, Verdict::Succeeded).await, SettleAnswer::Stale);
    assert!(!bench.store.log_claim(TENANT, run.id, run.fence, "late").await.unwrap());
    bench.settle(&again, Verdict::Succeeded).await;
    assert!(bench.store.held_claims(TENANT, &ids).await.unwrap().is_empty());
}

pub async fn a_large_claim_misses_no_run(bench: &Bench) {
    let (lease, job) = joined(bench, JobSpec { overlap: Overlap::Allow, ..queued(spec("j")) }).await;
    let urgent = bench.create(JobSpec { priority: 9, ..queued(spec("urgent")) }).await;
    bench.go(1_000);
    backlog(bench, &lease, &job, 60).await;
    assert_eq!(ids(bench, 50).await.len(), 50);
    let first = bench.waiting(&lease, &urgent, 10).await;
    let rest = ids(bench, 50).await;
    assert_eq!((rest.len(), rest[0]), (11, first), "the urgent run comes before all that are left");
    assert!(ids(bench, 50).await.is_empty());
}

pub async fn a_large_claim_keeps_the_order_of_a_serial_job(bench: &Bench) {
    let (lease, job) = joined(bench, JobSpec { overlap: Overlap::Queue { limit: 200 }, ..queued(spec("j")) }).await;
    bench.go(10_000);
    backlog(bench, &lease, &job, 120).await;
    for n in 0..4 {
        let [claim] = &claims(bench, 50).await[..] else { panic!("expected one run at a time") };
        assert_eq!(claim.run.scheduled_at, s((n + 1) * 10));
        let done = Success { run: claim.run.id, fence: claim.run.fence, output: None };
        assert_eq!(bench.store.succeed(TENANT, &[done]).await.unwrap(), [Some(job.id)]);
    }
}

pub async fn a_claim_never_skips_an_older_run_of_a_serial_job(bench: &Bench) {
    let (lease, job) = joined(bench, JobSpec { overlap: Overlap::Allow, ..queued(spec("j")) }).await;
    let turns = bench.create(JobSpec { overlap: Overlap::Queue { limit: 5 }, ..queued(spec("turns")) }).await;
    bench.go(10_000);
    backlog(bench, &lease, &job, 120).await;
    assert_eq!(ids(bench, 50).await.len(), 50);
    // One run before the part that was searched, and one after it.
    let rows = vec![tick(&turns, 20, Fate::Run), tick(&turns, 610, Fate::Run)];
    let [older, newer] = [rows[0].tick.id, rows[1].tick.id];
    bench.record(&lease, ticks(&turns, bench.epoch(&turns).await, rows)).await;
    // A claim that is already full leaves the run to the next claim.
    let next = [ids(bench, 50).await, ids(bench, 50).await].concat();
    assert!(next.contains(&older) && !next.contains(&newer), "the older run comes first");
}

pub async fn a_success_is_accepted_only_from_the_current_claim(bench: &Bench) {
    let (lease, job) = joined(bench, JobSpec { overlap: Overlap::Allow, ..queued(spec("j")) }).await;
    bench.go(30);
    for tick in [10, 20, 30] {
        bench.waiting(&lease, &job, tick).await;
    }
    let runs: Vec<ClaimedRun> = claims(bench, 3).await.into_iter().map(|claim| claim.run).collect();
    let said = |run: &ClaimedRun, output: Option<&str>| Success {
        run: run.id,
        fence: run.fence,
        output: output.map(str::to_owned),
    };
    let [first, second, third] = &runs[..] else { panic!("{runs:?}") };
    assert!(bench.store.log_claim(TENANT, first.id, first.fence, "logged").await.unwrap());
    assert!(bench.store.log_claim(TENANT, second.id, second.fence, "logged").await.unwrap());
    let done =
        [said(first, None), said(second, Some("said")), Success { fence: Fence::from_raw(1), ..said(third, None) }];
    assert_eq!(bench.store.succeed(OTHER_TENANT, &done).await.unwrap(), [None, None, None]);
    assert_eq!(bench.store.succeed(TENANT, &done).await.unwrap(), [Some(job.id), Some(job.id), None]);
    let record = async |run: &ClaimedRun| bench.store.get_run(TENANT, run.id).await.unwrap();
    let (ended, other, held) = (record(first).await, record(second).await, record(third).await);
    assert_eq!((ended.state, ended.output.as_deref()), (State::Succeeded, Some("logged")));
    assert_eq!((ended.started_at, ended.finished_at, ended.error), (Some(s(30)), Some(s(30)), None));
    assert_eq!((other.state, other.output.as_deref()), (State::Succeeded, Some("said")));
    assert_eq!(held.state, State::Claimed);
    let still = bench.store.held_claims(TENANT, &[first.id, second.id, third.id]).await.unwrap();
    assert_eq!(still.iter().map(|held| held.run.id).collect::<Vec<_>>(), [third.id]);
    assert_eq!(bench.store.succeed(TENANT, &[said(first, None)]).await.unwrap(), [None], "it was already settled");
    assert_eq!(bench.store.succeed(TENANT, &[]).await.unwrap(), []);
}

pub async fn a_run_times_out_despite_heartbeats(bench: &Bench) {
    let (lease, job) = joined(bench, JobSpec { timeout: Span::seconds(20), ..queued(spec("j")) }).await;
    bench.go(10);
    bench.waiting(&lease, &job, 10).await;
    let run = one(bench).await;
    bench.go(29);
    beat(bench, &run).await;
    assert!(bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap().is_empty());
    bench.go(30);
    beat(bench, &run).await;
    let overdue = bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap();
    assert_eq!((overdue.len(), overdue[0].timed_out), (1, true));
}

pub async fn a_log_grows_and_keeps_its_end(bench: &Bench) {
    let (lease, job) = joined(bench, queued(spec("j"))).await;
    bench.go(10);
    bench.waiting(&lease, &job, 10).await;
    let run = one(bench).await;
    let log = async || bench.store.claim_log(TENANT, run.id).await.unwrap();
    assert_eq!(log().await, None);
    for text in ["one\n", "two é\0\n"] {
        assert!(bench.store.log_claim(TENANT, run.id, run.fence, text).await.unwrap());
    }
    assert_eq!(log().await.as_deref(), Some("one\ntwo é\u{fffd}\n"));
    bench.store.log_claim(TENANT, run.id, run.fence, &"x".repeat(LOG_BYTES_MAX - 1)).await.unwrap();
    assert_eq!(log().await.unwrap().chars().count(), LOG_BYTES_MAX);
    assert!(log().await.unwrap().starts_with("\nxxx"));
    assert!(!bench.store.log_claim(TENANT, run.id, Fence::from_raw(1), "old").await.unwrap());
    bench.settle(&run, Verdict::Succeeded).await;
    assert_eq!(log().await, None);
}

pub async fn a_cancelled_run_keeps_the_log_of_its_worker(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(20);
    backlog(bench, &lease, &job, 2).await;
    let both = claims(bench, 2).await;
    for claim in &both {
        assert!(bench.store.log_claim(TENANT, claim.run.id, claim.run.fence, "half done").await.unwrap());
    }
    bench.store.cancel_run(TENANT, &actor(), both[0].run.id).await.unwrap();
    bench.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap();
    for claim in &both {
        let run = bench.run(claim.run.id).await;
        assert_eq!((run.state, run.output.as_deref()), (State::Cancelled, Some("half done")));
    }
}

pub async fn a_log_is_stored_only_on_its_own_run(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(20);
    backlog(bench, &lease, &job, 2).await;
    let held = claims(bench, 2).await;
    let (silent, logged) = (&held[0].run, &held[1].run);
    bench.store.cancel_run(TENANT, &actor(), silent.id).await.unwrap();
    assert!(bench.store.log_claim(TENANT, logged.id, logged.fence, "half done").await.unwrap());
    bench.store.cancel_run(TENANT, &actor(), logged.id).await.unwrap();
    assert_eq!(bench.run(logged.id).await.output.as_deref(), Some("half done"));
    assert_eq!(bench.run(silent.id).await.output, None);
}

pub async fn waiting_runs_follow_their_job_to_another_target(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(20);
    backlog(bench, &lease, &job, 2).await;
    let held = one(bench).await;
    let replace = |spec: JobSpec| Change::Replace(Box::new(spec));
    bench.edit("j", replace(in_queue(overlapping("j"), "r"))).await;
    assert!(claims(bench, 9).await.is_empty());
    assert_eq!((queue(bench, "r").await.due, queue(bench, "r").await.claimed), (1, 0));
    bench.settle(&held, Verdict::Redeliver).await;
    assert_eq!(queue(bench, "r").await.due, 2, "a released run waits in the job's present queue");
    bench.edit("j", replace(overlapping("j"))).await;
    assert_eq!(bench.due(&lease).await.len(), 2, "they wait for nodes");
    bench.edit("j", replace(queued(overlapping("j")))).await;
    assert!(bench.due(&lease).await.is_empty());
    assert_eq!(claims(bench, 9).await.len(), 2);
}

pub async fn claims_obey_the_concurrency_limit_of_the_queue(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(50);
    backlog(bench, &lease, &job, 5).await;
    let limits = QueueLimits { concurrency: Some(2), rate: None };
    bench.store.set_queue(TENANT, &actor(), "q", limits).await.unwrap();
    let first = claims(bench, 9).await;
    assert_eq!(first.len(), 2);
    assert!(claims(bench, 9).await.is_empty());
    bench.settle(&first[0].run, Verdict::Succeeded).await;
    assert_eq!(claims(bench, 9).await.len(), 1);
    bench.store.set_queue(TENANT, &actor(), "q", QueueLimits::default()).await.unwrap();
    assert_eq!(claims(bench, 9).await.len(), 2);
    let audit = bench.audit().await;
    let last = audit.last().unwrap();
    assert_eq!((last.action.as_str(), last.subject.as_str()), ("limit", "queue q"));
}

pub async fn claims_obey_the_rate_limit_of_the_queue(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(100);
    backlog(bench, &lease, &job, 10).await;
    let limits = QueueLimits { concurrency: None, rate: Some("2/10s".parse().unwrap()) };
    bench.store.set_queue(TENANT, &actor(), "q", limits).await.unwrap();
    assert_eq!(claims(bench, 9).await.len(), 2);
    assert!(claims(bench, 9).await.is_empty());
    bench.go(104);
    assert!(claims(bench, 9).await.is_empty());
    bench.go(105);
    assert_eq!(claims(bench, 9).await.len(), 1);
    bench.go(300);
    assert_eq!(claims(bench, 1).await.len(), 1);
    assert_eq!(claims(bench, 9).await.len(), 1);
}

pub async fn a_claim_uses_only_the_rate_of_its_own_queue(bench: &Bench) {
    let limits = QueueLimits { concurrency: None, rate: Some("1/10s".parse().unwrap()) };
    let queues = [(TENANT, "q"), (TENANT, "r"), (OTHER_TENANT, "q")];
    for (tenant, queue) in queues {
        bench.created(tenant, in_queue(overlapping(queue), queue)).await.unwrap();
        bench.store.set_queue(tenant, &actor(), queue, limits).await.unwrap();
        bench.store.trigger(tenant, &actor(), new_run(queue, "k")).await.unwrap();
    }
    for (tenant, queue) in queues {
        let ask = ClaimQueue { tenant, queue: queue.into(), ..ask(9) };
        assert_eq!(bench.store.claim_queue(&ask).await.unwrap().claims.len(), 1, "{tenant:?} {queue}");
    }
}

pub async fn changing_the_target_of_a_job_does_not_move_other_jobs(bench: &Bench) {
    let (lease, job) = joined(bench, overlapping("j")).await;
    let other = bench.create(overlapping("other")).await;
    bench.go(10);
    let (moved, waits) = (bench.waiting(&lease, &job, 10).await, bench.waiting(&lease, &other, 10).await);
    bench.edit("j", Change::Replace(Box::new(queued(overlapping("j"))))).await;
    bench.go(20);
    let later = bench.waiting(&lease, &other, 20).await;
    assert_eq!(bench.due(&lease).await, [waits, later]);
    assert_eq!(ids(bench, 9).await, [moved]);
}

pub async fn claims_obey_the_limit_per_key(bench: &Bench) {
    joined(bench, keyed(queued(overlapping("j")), 1)).await;
    let first = bench.trigger(of_customer("j", "1", "acme")).await;
    bench.go(1);
    let second = bench.trigger(of_customer("j", "2", "acme")).await;
    let third = bench.trigger(of_customer("j", "3", "other")).await;
    let got = claims(bench, 9).await;
    assert_eq!(got.iter().map(|claim| claim.run.id).collect::<Vec<_>>(), [first.id, third.id]);
    assert!(claims(bench, 9).await.is_empty());
    // The redelivered run waits again under its key.
    bench.settle(&got[0].run, Verdict::Redeliver).await;
    let again = claims(bench, 9).await;
    assert_eq!(again.len(), 1);
    assert!(claims(bench, 9).await.is_empty());
    bench.settle(&again[0].run, Verdict::Succeeded).await;
    let last = one(bench).await;
    assert!([first.id, second.id].contains(&last.id) && last.id != again[0].run.id);
}

pub async fn a_redelivered_run_keeps_its_key(bench: &Bench) {
    joined(bench, keyed(queued(overlapping("j")), 1)).await;
    bench.trigger(of_customer("j", "1", "acme")).await;
    bench.trigger(of_customer("j", "2", "other")).await;
    let held = claims(bench, 2).await;
    assert_eq!(held.len(), 2);
    for claim in held {
        bench.settle(&claim.run, Verdict::Redeliver).await;
        assert_eq!(ids(bench, 2).await, [claim.run.id], "only the other key is busy");
    }
}

pub async fn a_busy_key_does_not_block_other_keys(bench: &Bench) {
    let of = |customer: &str| {
        let payload = Some(format!("{{\"customer\":\"{customer}\"}}"));
        JobSpec { payload, ..keyed(queued(overlapping("j")), 1) }
    };
    let (lease, job) = joined(bench, of("acme")).await;
    bench.go(1_790);
    backlog(bench, &lease, &job, 179).await;
    let job = bench.edit("j", Change::Replace(Box::new(of("other")))).await.job;
    bench.go(1_800);
    let other = bench.waiting(&lease, &job, 1_800).await;
    assert!(one(bench).await.id < other);
    assert_eq!(ids(bench, 9).await, [other]);
}

pub async fn a_poll_returns_the_queues_with_due_runs(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.create(in_queue(overlapping("later"), "r")).await;
    bench.go(20);
    let asked = [(TENANT, "q".to_owned()), (TENANT, "r".to_owned()), (OTHER_TENANT, "q".to_owned())];
    let look = async || bench.store.look_at_queues(&asked).await.unwrap();
    assert_eq!((look().await.due.len(), look().await.next_due), (0, None));
    let mut row = tick(&job, 20, Fate::Run);
    row.tick.due_at = s(25);
    bench.record(&lease, ticks(&job, 1, vec![row])).await;
    assert_eq!((look().await.due.len(), look().await.next_due, look().await.now), (0, Some(s(25)), s(20)));
    bench.go(25);
    assert_eq!((look().await.due, look().await.next_due), (vec![(TENANT, "q".to_owned())], None));
    assert!(bench.store.look_at_queues(&[]).await.unwrap().due.is_empty());
}

pub async fn queues_are_listed_with_their_counts_in_pages(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.create(in_queue(spec("k"), "a")).await;
    let limits = QueueLimits { concurrency: Some(3), rate: Some("5/1m".parse().unwrap()) };
    bench.store.set_queue(TENANT, &actor(), "z", limits).await.unwrap();
    bench.go(30);
    backlog(bench, &lease, &job, 2).await;
    let mut later = tick(&job, 30, Fate::Run);
    later.tick.due_at = s(50);
    bench.record(&lease, ticks(&job, 1, vec![later])).await;
    one(bench).await;
    let page = bench.store.list_queues(TENANT, None, 2).await.unwrap();
    let names: Vec<_> = page.items.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!((names, page.next.as_deref()), (vec!["a", "q"], Some("z")));
    let q = &page.items[1];
    assert_eq!((q.due, q.later, q.claimed, q.oldest), (1, 1, 1, Some(s(20))));
    let page = bench.store.list_queues(TENANT, page.next.as_deref(), 2).await.unwrap();
    assert_eq!((page.items.len(), page.items[0].limits, page.next), (1, limits, None));
    assert!(bench.store.list_queues(OTHER_TENANT, None, 9).await.unwrap().items.is_empty());
}

pub async fn a_worker_cannot_see_runs_of_another_tenant(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let theirs = bench.created(OTHER_TENANT, queued(spec("j"))).await.unwrap().job;
    bench.go(10);
    bench.waiting(&lease, &theirs, 10).await;
    assert!(claims(bench, 9).await.is_empty());
    let ask = ClaimQueue { tenant: OTHER_TENANT, ..ask(9) };
    let run = bench.store.claim_queue(&ask).await.unwrap().claims.remove(0).run;
    let foreign: TenantId = TENANT;
    assert!(matches!(
        bench.store.beat_claim(foreign, run.id, run.fence, LEASE).await,
        Err(StoreError::NotFound("run"))
    ));
    assert!(matches!(bench.store.log_claim(foreign, run.id, run.fence, "x").await, Err(StoreError::NotFound("run"))));
    assert_eq!(bench.store.claim_log(foreign, run.id).await.unwrap(), None);
}

pub async fn a_run_claimed_by_a_worker_is_never_pruned(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(20);
    backlog(bench, &lease, &job, 2).await;
    let run = one(bench).await;
    let over = one(bench).await;
    bench.settle(&over, Verdict::Succeeded).await;
    let days = 86_400 * 30;
    bench.go(days);
    bench.store.leave(&lease).await.unwrap();
    bench.join("b", 2).await;
    bench.raise(&job, 1, Some(s(days + 10))).await;
    bench.store.prune(s(days - 86_400), 100).await.unwrap();
    assert_eq!(bench.run(run.id).await.state, State::Claimed);
    assert_eq!(bench.settle(&run, Verdict::Succeeded).await, SettleAnswer::Settled);
}
