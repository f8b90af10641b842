//! `cancel_previous` for queue jobs: a claim of the newest run, or the periodic pass over queues, cancels older runs.

use everytick_domain::{
    ids::RunId,
    job::{Job, JobSpec, Overlap},
    plan::Fate,
    run::State,
    target::{QueueTarget, TargetSpec},
    time::Span,
};

use super::{Bench, TENANT, spec, tick, ticks};
use crate::{ClaimBeat, ClaimQueue, ClaimedRun, Lease};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_queue_previous {
    ($open:path) => {
        $crate::conformance_group! { $open, queue_previous:
            a_claim_supersedes_older_runs,
            a_due_run_supersedes_runs_that_workers_have_claimed,
            a_run_that_is_not_due_supersedes_nothing,
        }
    };
}

const LEASE: Span = Span::seconds(30);

async fn joined(bench: &Bench) -> (Lease, Job) {
    let target = TargetSpec::Queue(QueueTarget { name: "q".into() });
    let job = bench.create(JobSpec { overlap: Overlap::CancelPrevious, target, ..spec("j") }).await;
    (bench.join("a", 1).await, job)
}

async fn recorded(bench: &Bench, lease: &Lease, job: &Job, seconds: &[i64]) {
    let rows = seconds.iter().map(|seconds| tick(job, *seconds, Fate::Run)).collect();
    bench.record(lease, ticks(job, bench.epoch(job).await, rows)).await;
}

async fn claimed(bench: &Bench) -> Vec<ClaimedRun> {
    let ask = ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit: 9, lease: LEASE };
    bench.store.claim_queue(&ask).await.unwrap().claims.into_iter().map(|claim| claim.run).collect()
}

fn run(job: &Job, seconds: i64) -> RunId {
    tick(job, seconds, Fate::Run).tick.id
}

async fn state(bench: &Bench, run: RunId) -> (State, Option<String>) {
    let record = bench.run(run).await;
    (record.state, record.error)
}

fn gave_way(to: RunId) -> (State, Option<String>) {
    (State::Cancelled, Some(everytick_domain::overlap::superseded_error(to)))
}

pub async fn a_claim_supersedes_older_runs(bench: &Bench) {
    let (lease, job) = joined(bench).await;
    bench.go(10);
    recorded(bench, &lease, &job, &[10]).await;
    let first = claimed(bench).await.remove(0);
    bench.go(30);
    recorded(bench, &lease, &job, &[20, 30]).await;
    let newest: Vec<RunId> = claimed(bench).await.iter().map(|run| run.id).collect();
    assert_eq!(newest, [run(&job, 30)], "only the newest run is claimed");
    for older in [10, 20] {
        assert_eq!(state(bench, run(&job, older)).await, gave_way(run(&job, 30)), "{older}");
    }
    let beat = bench.store.beat_claim(TENANT, first.id, first.fence, LEASE).await.unwrap();
    assert_eq!(beat, ClaimBeat::Cancelled, "the worker learns it at its next heartbeat");
    assert!(claimed(bench).await.is_empty());
}

pub async fn a_due_run_supersedes_runs_that_workers_have_claimed(bench: &Bench) {
    let (lease, job) = joined(bench).await;
    bench.go(10);
    recorded(bench, &lease, &job, &[10]).await;
    claimed(bench).await;
    assert!(bench.store.supersede_in_queues(9).await.unwrap().is_empty(), "no newer run waits");
    bench.go(20);
    recorded(bench, &lease, &job, &[20]).await;
    assert_eq!(bench.store.supersede_in_queues(9).await.unwrap(), [run(&job, 10)]);
    assert_eq!(state(bench, run(&job, 10)).await, gave_way(run(&job, 20)));
    assert_eq!(state(bench, run(&job, 20)).await.0, State::Waiting);
    assert!(bench.store.supersede_in_queues(9).await.unwrap().is_empty(), "each run is superseded once");
}

pub async fn a_run_that_is_not_due_supersedes_nothing(bench: &Bench) {
    let (lease, job) = joined(bench).await;
    bench.go(20);
    recorded(bench, &lease, &job, &[10]).await;
    claimed(bench).await;
    let mut later = tick(&job, 20, Fate::Run);
    later.tick.due_at = later.tick.at.plus(Span::seconds(5));
    bench.record(&lease, ticks(&job, bench.epoch(&job).await, vec![later])).await;
    assert!(bench.store.supersede_in_queues(9).await.unwrap().is_empty());
    assert!(claimed(bench).await.is_empty());
    assert_eq!(state(bench, run(&job, 10)).await.0, State::Claimed);
    bench.go(25);
    assert_eq!(bench.store.supersede_in_queues(9).await.unwrap(), [run(&job, 10)]);
}
