//! Accepted runs: the receiver will report later, so the claim outlives the node that sent it.

use everytick_domain::{
    edit::Change,
    ids::{Fence, RunId},
    job::{Job, JobSpec, Overlap},
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};

use super::{Bench, TENANT, TTL, actor, incarnation, new_run, overlapping, s, spec};
use crate::{
    AcceptedRun, ClaimBeat, ClaimedRun, Lease, LoadedClaim, NodeInfo, SettleAnswer, StoreError, Success, Supersede,
};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_accepted {
    ($open:path) => {
        $crate::conformance_group! { $open, accepted:
            an_accepted_run_outlives_its_node_and_is_settled_by_its_fence,
            only_a_current_claim_of_the_incarnation_is_accepted,
            a_claim_of_another_incarnation_is_not_accepted,
            a_lost_lease_accepts_nothing,
            an_accepted_run_counts_for_overlap,
            an_accepted_run_can_be_superseded_and_cancelled,
            an_accepted_run_of_an_edited_job_is_redelivered_to_the_new_target,
            an_accepted_run_times_out_without_a_report,
            an_accepted_run_is_never_pruned,
            an_accepted_run_is_not_ended_by_a_workers_success,
        }
    };
}

fn taken(run: &ClaimedRun) -> AcceptedRun {
    AcceptedRun { run: run.id, fence: run.fence, worker: "http".into(), timeout_at: s(100), previous: false }
}

async fn accept(bench: &Bench, lease: &Lease, run: &ClaimedRun) -> SettleAnswer {
    bench.store.accept(lease, &[taken(run)]).await.unwrap().remove(0)
}

async fn held(bench: &Bench, run: RunId) -> Option<LoadedClaim> {
    bench.store.load_claims(TENANT, &[run]).await.unwrap().pop()
}

/// A run of a new job that its receiver has accepted.
async fn accepted(bench: &Bench, spec: JobSpec) -> (Lease, Job, ClaimedRun) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    assert_eq!(accept(bench, &lease, &run).await, SettleAnswer::Settled);
    (lease, job, run)
}

pub async fn an_accepted_run_outlives_its_node_and_is_settled_by_its_fence(bench: &Bench) {
    let (lease, _, run) = accepted(bench, spec("j")).await;
    assert!(bench.store.load_claimed(&lease).await.unwrap().is_empty(), "the node no longer has the claim");
    bench.store.leave(&lease).await.unwrap();
    let next = bench.join("a", 2).await;
    assert!(bench.store.load_lost(&next, 10).await.unwrap().is_empty(), "and it is not lost with the node");
    let held = held(bench, run.id).await.unwrap();
    assert_eq!((held.run, held.accepted), (run.clone(), true));
    bench.settle(&run, Verdict::Succeeded).await;
    assert_eq!(bench.run(run.id).await.state, State::Succeeded);
    assert!(self::held(bench, run.id).await.is_none());
    assert_eq!(accept(bench, &next, &run).await, SettleAnswer::Stale);
}

pub async fn only_a_current_claim_of_the_incarnation_is_accepted(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(30);
    let (over, other, waits) = (
        bench.claimed(&lease, &job, 10).await,
        bench.claimed(&lease, &job, 20).await,
        bench.claimed(&lease, &job, 30).await,
    );
    bench.settle(&over, Verdict::Succeeded).await;
    bench.settle(&waits, Verdict::Redeliver).await;
    let old = ClaimedRun { fence: Fence::from_raw(1), ..other.clone() };
    for run in [&over, &old, &waits] {
        assert_eq!(accept(bench, &lease, run).await, SettleAnswer::Stale);
    }
    assert_eq!(bench.store.load_claimed(&lease).await.unwrap(), std::slice::from_ref(&other));
    let twice = [taken(&other), taken(&other), taken(&over)];
    let answers = bench.store.accept(&lease, &twice).await.unwrap();
    assert_eq!(answers, [SettleAnswer::Settled, SettleAnswer::Stale, SettleAnswer::Stale]);
}

pub async fn a_claim_of_another_incarnation_is_not_accepted(bench: &Bench) {
    let (old, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&old, &job, 10).await;
    let new = bench.join("a", 2).await;
    assert_eq!(accept(bench, &new, &run).await, SettleAnswer::Stale);
    assert!(held(bench, run.id).await.is_none());
    assert_eq!(bench.store.load_lost(&new, 10).await.unwrap(), [run], "it is a lost claim of the old incarnation");
}

pub async fn a_lost_lease_accepts_nothing(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    bench.go(60);
    assert!(matches!(bench.store.accept(&lease, &[taken(&run)]).await, Err(StoreError::LeaseLost)));
    assert!(held(bench, run.id).await.is_none());
}

pub async fn an_accepted_run_counts_for_overlap(bench: &Bench) {
    let (_, job, run) = accepted(bench, spec("j")).await;
    let open = bench.load(&job).await.open;
    assert_eq!(open.iter().map(|open| (open.id, open.state)).collect::<Vec<_>>(), [(run.id, State::Claimed)]);
    let asked = bench.store.trigger(TENANT, &actor(), new_run("j", "k")).await.unwrap();
    assert_eq!(asked.state, State::Skipped, "skipped for overlap");
}

pub async fn an_accepted_run_can_be_superseded_and_cancelled(bench: &Bench) {
    let (lease, job, run) = accepted(bench, JobSpec { overlap: Overlap::CancelPrevious, ..spec("j") }).await;
    let newer = bench.trigger(new_run("j", "k")).await;
    let given = Supersede { job: job.id, run: run.id, to: newer.id };
    assert_eq!(bench.store.supersede(&lease, &[given]).await.unwrap(), [run.id]);
    let newer = bench.claim(&lease, newer.id).await;
    assert_eq!(accept(bench, &lease, &newer).await, SettleAnswer::Settled);
    assert!(bench.store.cancel_run(TENANT, &actor(), newer.id).await.unwrap().was_claimed);
    for run in [&run, &newer] {
        assert_eq!(bench.run(run.id).await.state, State::Cancelled);
        assert!(held(bench, run.id).await.is_none());
        let late = bench.store.settle(&[super::settle(run, Verdict::Succeeded)]).await.unwrap();
        assert_eq!(late, [SettleAnswer::Stale], "a late report changes nothing");
    }
}

pub async fn an_accepted_run_of_an_edited_job_is_redelivered_to_the_new_target(bench: &Bench) {
    let (_, _, run) = accepted(bench, spec("j")).await;
    let target = TargetSpec::Queue(QueueTarget { name: "q".into() });
    let edited = JobSpec { target, ..spec("j") };
    bench.edit("j", Change::Replace(Box::new(edited))).await;
    assert!(held(bench, run.id).await.is_some(), "an edit does not change the claim");
    bench.settle(&run, Verdict::Redeliver).await;
    let look = bench.store.look_at_queues(&[(TENANT, "q".into())]).await.unwrap();
    assert_eq!(look.due.len(), 1);
}

pub async fn an_accepted_run_times_out_without_a_report(bench: &Bench) {
    let (_, _, run) = accepted(bench, spec("j")).await;
    bench.go(99);
    // A heartbeat does not shorten a claim that needs no heartbeats.
    let beat = bench.store.beat_claim(TENANT, run.id, run.fence, Span::millis(1)).await.unwrap();
    assert!(matches!(beat, ClaimBeat::Extended { .. }));
    assert!(bench.store.load_overdue_claims(Span::ZERO, 10).await.unwrap().is_empty());
    bench.go(100);
    let overdue = bench.store.load_overdue_claims(Span::ZERO, 10).await.unwrap();
    assert_eq!(overdue.iter().map(|one| (one.claim.run.id, one.timed_out)).collect::<Vec<_>>(), [(run.id, true)]);
}

pub async fn an_accepted_run_is_never_pruned(bench: &Bench) {
    const DAY: i64 = 86_400;
    let (lease, job, run) = accepted(bench, overlapping("j")).await;
    bench.go(3 * DAY);
    let young = bench.claimed(&lease, &job, 3 * DAY).await;
    bench.settle(&young, Verdict::Succeeded).await;
    bench.raise(&job, 1, Some(s(3 * DAY + 10))).await;
    bench.pass_claims(&lease, RunId::floor(s(3 * DAY - 60))).await;
    bench.store.prune(s(2 * DAY), 100).await.unwrap();
    assert_eq!(bench.run(run.id).await.state, State::Claimed);
}

/// `succeed` counts successes of workers without reading their jobs, so it must not end an accepted run.
pub async fn an_accepted_run_is_not_ended_by_a_workers_success(bench: &Bench) {
    let (_, _, run) = accepted(bench, spec("j")).await;
    let done = Success { run: run.id, fence: run.fence, output: None };
    assert_eq!(bench.store.succeed(TENANT, &[done]).await.unwrap(), [None]);
    assert_eq!(bench.run(run.id).await.state, State::Claimed);
}
