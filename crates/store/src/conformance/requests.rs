//! Triggered runs and cancelled runs.

use everytick_domain::{
    edit::Change,
    ids::{Cause, RunId},
    job::JobSpec,
    run::{CauseKind, Request, SkipReason, State, Verdict},
};

use super::{Bench, LIMITS, OTHER_TENANT, START, TENANT, actor, new_run, overlapping, pause, range, s, spec};
use crate::{Busy, IdempotencyKey, JobRef, NewRun, SettleAnswer, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_requests {
    ($open:path) => {
        $crate::conformance_group! { $open, requests:
            a_triggered_run_waits_and_is_due_at_once,
            a_request_that_overlaps_an_open_run_is_recorded_as_skipped,
            a_forced_request_waits_although_a_run_is_open,
            a_request_obeys_max_concurrent,
            requests_beyond_the_backlog_limit_are_refused,
            a_paused_job_can_be_triggered,
            a_repeated_request_returns_the_same_run,
            a_key_reused_for_another_run_is_refused,
            an_unknown_deleted_or_foreign_job_cannot_be_triggered,
            a_waiting_run_is_cancelled,
            a_claimed_run_is_cancelled_and_later_settlements_are_stale,
            an_ended_run_cannot_be_cancelled,
            a_range_cannot_be_cancelled,
            an_unknown_or_foreign_run_cannot_be_cancelled,
            requests_have_audit_rows,
        }
    };
}

pub async fn a_triggered_run_waits_and_is_due_at_once(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(3);
    let run = bench.trigger(new_run("j", "k")).await;
    assert_eq!(run.id, RunId::of(job.id, Cause::Request { at: s(3), key: b"k" }));
    assert_eq!((run.cause, run.state, run.scheduled_at, run.due_at), (CauseKind::Request, State::Waiting, s(3), s(3)));
    assert_eq!((run.job_name.as_str(), run.attempt), ("j", 0));
    assert_eq!(bench.run(run.id).await, run);
    assert_eq!(bench.due(&lease).await, [run.id]);
    assert_eq!(bench.load(&job).await.open.len(), 1);
}

pub async fn a_request_that_overlaps_an_open_run_is_recorded_as_skipped(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let open = bench.claimed(&lease, &job, 10).await;
    let skipped = bench.trigger(new_run("j", "k")).await;
    assert_eq!((skipped.state, skipped.skip_reason), (State::Skipped, Some(SkipReason::Overlap)));
    assert_eq!(skipped.finished_at, Some(s(10)));
    assert!(bench.due(&lease).await.is_empty());
    bench.settle(&open, Verdict::Succeeded).await;
    assert_eq!(bench.trigger(new_run("j", "k2")).await.state, State::Waiting);
    assert_eq!(bench.trigger(new_run("j", "k3")).await.state, State::Skipped);
}

pub async fn a_forced_request_waits_although_a_run_is_open(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    bench.claimed(&lease, &job, 10).await;
    let forced = bench.trigger(NewRun { force: true, ..new_run("j", "k") }).await;
    assert_eq!(forced.state, State::Waiting);
    let due = bench
        .store
        .peek_waiting(&lease, &bench.all(), &[Busy { job: job.id, full: false }], None, 10)
        .await
        .unwrap()
        .due;
    assert_eq!(due.iter().map(|run| (run.id, run.force)).collect::<Vec<_>>(), [(forced.id, true)]);
}

pub async fn a_request_obeys_max_concurrent(bench: &Bench) {
    bench.create(JobSpec { max_concurrent: Some(2), ..overlapping("two") }).await;
    let mut states = Vec::new();
    for key in ["a", "b", "c"] {
        states.push(bench.trigger(new_run("two", key)).await.state);
    }
    assert_eq!(states, [State::Waiting, State::Waiting, State::Skipped]);
}

pub async fn requests_beyond_the_backlog_limit_are_refused(bench: &Bench) {
    let job = bench.create(overlapping("j")).await;
    for n in 0..LIMITS.open_requests_per_job_max {
        bench.trigger(new_run("j", &n.to_string())).await;
    }
    let refused = bench.store.trigger(TENANT, &actor(), new_run("j", "more")).await;
    let max = LIMITS.open_requests_per_job_max;
    assert!(matches!(&refused, Err(StoreError::BacklogFull(waiting)) if *waiting == max), "{refused:?}");
    assert_eq!(bench.history(&job).await.len() as u64, LIMITS.open_requests_per_job_max);
}

pub async fn a_paused_job_can_be_triggered(bench: &Bench) {
    bench.create(spec("j")).await;
    bench.edit("j", pause()).await;
    assert_eq!(bench.trigger(new_run("j", "k")).await.state, State::Waiting);
}

fn under(key: &str, fingerprint: u8, random: &str) -> NewRun {
    let idempotency = IdempotencyKey { key: key.into(), fingerprint: [fingerprint; 32] };
    NewRun { idempotency: Some(idempotency), ..new_run("j", random) }
}

pub async fn a_repeated_request_returns_the_same_run(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    let first = bench.trigger(under("k", 1, "x")).await;
    bench.go(5);
    let claimed = bench.claim(&lease, first.id).await;
    bench.settle(&claimed, Verdict::Succeeded).await;
    let again = bench.trigger(under("k", 1, "y")).await;
    assert_eq!((again.id, again.state), (first.id, State::Succeeded));
    assert_eq!(bench.history(&job).await.len(), 1);
}

pub async fn a_key_reused_for_another_run_is_refused(bench: &Bench) {
    bench.create(spec("j")).await;
    bench.trigger(under("k", 1, "x")).await;
    let other = bench.store.trigger(TENANT, &actor(), under("k", 2, "y")).await;
    assert!(matches!(other, Err(StoreError::KeyReused)), "{other:?}");
}

pub async fn an_unknown_deleted_or_foreign_job_cannot_be_triggered(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.create(spec("gone")).await;
    bench.edit("gone", Change::Delete).await;
    let by_id = NewRun { job: JobRef::Id(job.id), ..new_run("j", "k") };
    for (tenant, ask) in [
        (TENANT, new_run("unknown", "k")),
        (TENANT, new_run("gone", "k")),
        (OTHER_TENANT, new_run("j", "k")),
        (OTHER_TENANT, by_id),
    ] {
        let refused = bench.store.trigger(tenant, &actor(), ask).await;
        assert!(matches!(refused, Err(StoreError::NotFound("job"))), "{refused:?}");
    }
}

pub async fn a_waiting_run_is_cancelled(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    let run = bench.trigger(new_run("j", "k")).await;
    bench.go(5);
    let cancelled = bench.store.cancel_run(TENANT, &actor(), run.id).await.unwrap();
    assert_eq!((cancelled.run.state, cancelled.run.finished_at), (State::Cancelled, Some(s(5))));
    assert!(!cancelled.was_claimed);
    assert_eq!(bench.run(run.id).await, cancelled.run);
    assert!(bench.due(&lease).await.is_empty());
    assert!(bench.store.claim(&lease, &bench.all(), &[run.id]).await.unwrap().is_empty());
    assert!(bench.load(&job).await.open.is_empty());
}

pub async fn a_claimed_run_is_cancelled_and_later_settlements_are_stale(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    let cancelled = bench.store.cancel_run(TENANT, &actor(), run.id).await.unwrap();
    assert!(cancelled.was_claimed && cancelled.run.fence > run.fence);
    for verdict in [Verdict::Succeeded, Verdict::Retry { due_at: s(11) }, Verdict::HandBack] {
        assert_eq!(bench.settle(&run, verdict).await, SettleAnswer::Stale);
    }
    assert_eq!(bench.run(run.id).await.state, State::Cancelled);
    assert!(bench.store.load_claimed(&lease).await.unwrap().is_empty());
    let attempts = bench.store.list_attempts(TENANT, run.id).await.unwrap();
    assert_eq!(attempts.iter().map(|at| at.outcome.as_deref()).collect::<Vec<_>>(), [Some("cancelled")]);
}

async fn is_rejected(bench: &Bench, run: RunId, in_state: State) {
    let refused = bench.store.cancel_run(TENANT, &actor(), run).await;
    let Err(StoreError::Rejected { state, request }) = refused else { panic!("{refused:?}") };
    assert_eq!((state, request), (in_state, Request::Cancel));
}

pub async fn an_ended_run_cannot_be_cancelled(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    let skipped = bench.trigger(new_run("j", "k")).await;
    bench.settle(&run, Verdict::Succeeded).await;
    is_rejected(bench, run.id, State::Succeeded).await;
    is_rejected(bench, skipped.id, State::Skipped).await;
    let waiting = bench.trigger(new_run("j", "k2")).await;
    bench.store.cancel_run(TENANT, &actor(), waiting.id).await.unwrap();
    is_rejected(bench, waiting.id, State::Cancelled).await;
}

pub async fn a_range_cannot_be_cancelled(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(400);
    bench.range(&lease, &range(&job, 1, 10, 200)).await;
    is_rejected(bench, RunId::of(job.id, Cause::Range { from: s(10) }), State::Skipped).await;
}

pub async fn an_unknown_or_foreign_run_cannot_be_cancelled(bench: &Bench) {
    bench.create(spec("j")).await;
    let run = bench.trigger(new_run("j", "k")).await;
    for (tenant, id) in [(TENANT, RunId::floor(START)), (OTHER_TENANT, run.id)] {
        let refused = bench.store.cancel_run(tenant, &actor(), id).await;
        assert!(matches!(refused, Err(StoreError::NotFound("run"))), "{refused:?}");
    }
    assert_eq!(bench.run(run.id).await.state, State::Waiting);
}

pub async fn requests_have_audit_rows(bench: &Bench) {
    bench.create(spec("j")).await;
    let run = bench.trigger(new_run("j", "k")).await;
    bench.store.cancel_run(TENANT, &actor(), run.id).await.unwrap();
    let audit = bench.audit().await;
    let rows: Vec<_> = audit[1..].iter().map(|row| (row.action.as_str(), row.subject.clone())).collect();
    assert_eq!(rows, [("trigger", run.id.to_string()), ("cancel", run.id.to_string())]);
}
