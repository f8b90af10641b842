//! Queues: which runs workers can claim, how heartbeats keep a claim, and how claims are lost.

use everytick_domain::{
    edit::Change,
    ids::{RunId, TenantId},
    job::{Job, JobSpec, Overlap},
    plan::Fate,
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};

use super::{Bench, OTHER_TENANT, TENANT, new_run, overlapping, s, spec, tick, ticks};
use crate::{ClaimQueue, ClaimedRun, Lease, NewRun, QueueRecord, StoreError, Success, WorkerClaim};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_queues {
    ($open:path) => {
        $crate::conformance_group! { $open, queues:
            nodes_do_not_see_runs_of_queue_jobs,
            a_worker_claims_a_run_with_a_raised_fence_and_a_lease,
            higher_priority_goes_first_and_waiting_time_counts,
            a_claim_obeys_its_limit_and_takes_only_due_runs,
            a_job_that_may_not_overlap_has_one_claimed_run_at_a_time,
            claims_obey_max_concurrent_of_the_job,
            a_run_that_a_node_has_claimed_counts_too,
            a_busy_job_does_not_block_other_jobs,
            a_run_claimed_by_a_worker_is_an_open_run_of_its_job,
            a_large_claim_misses_no_run,
            a_claim_never_skips_an_older_run_of_a_serial_job,
            a_large_claim_keeps_the_order_of_a_serial_job,
            waiting_runs_follow_their_job_to_another_target,
            changing_the_target_of_a_job_does_not_move_other_jobs,
            a_worker_cannot_see_runs_of_another_tenant,
        }
    };
}

pub(super) async fn queue(bench: &Bench, name: &str) -> QueueRecord {
    bench.store.list_queues(TENANT, Some(name), 1).await.unwrap().items.remove(0)
}

pub(super) const LEASE: Span = Span::seconds(30);

/// The same job with a queue target.
pub(crate) fn queued(spec: JobSpec) -> JobSpec {
    in_queue(spec, "q")
}

pub(super) fn in_queue(spec: JobSpec, name: &str) -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: name.into() }), ..spec }
}

pub(super) fn ask(limit: usize) -> ClaimQueue {
    ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit, lease: LEASE }
}

pub(super) async fn claims(bench: &Bench, limit: usize) -> Vec<WorkerClaim> {
    bench.store.claim_queue(&ask(limit)).await.unwrap().claims
}

pub(super) async fn ids(bench: &Bench, limit: usize) -> Vec<RunId> {
    claims(bench, limit).await.iter().map(|claim| claim.run.id).collect()
}

pub(super) async fn one(bench: &Bench) -> ClaimedRun {
    let mut claims = claims(bench, 1).await;
    assert_eq!(claims.len(), 1, "a run is claimed");
    claims.remove(0).run
}

pub(super) async fn joined(bench: &Bench, spec: JobSpec) -> (Lease, Job) {
    (bench.join("a", 1).await, bench.create(spec).await)
}

pub(super) async fn backlog(bench: &Bench, lease: &Lease, job: &Job, count: i64) {
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
    assert!(matches!(
        bench.store.log_claim(foreign, run.id, run.fence, "x".into()).await,
        Err(StoreError::NotFound("run"))
    ));
    assert_eq!(bench.store.claim_log(foreign, run.id).await.unwrap(), None);
}
