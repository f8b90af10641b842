//! Settling: a run ends or waits again, and only under the current fence of its claim.

use everytick_domain::{
    ids::{Fence, RunId},
    plan::Fate,
    run::{State, Verdict},
    time::Span,
};

use super::{Bench, START, TENANT, born, overlapping, s, settle, settle_with, spec, tick, ticks};
use crate::{ClaimedRun, SettleAnswer};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_settles {
    ($open:path) => {
        $crate::conformance_group! { $open, settles:
            a_success_ends_the_run_with_its_output,
            a_failure_ends_the_run_with_its_error,
            a_cancelled_outcome_ends_the_run_as_cancelled,
            an_old_fence_changes_nothing,
            an_ended_run_cannot_be_settled_again,
            a_waiting_run_cannot_be_settled,
            a_run_is_not_released_under_an_old_fence,
            an_unknown_run_cannot_be_settled,
            a_retry_waits_until_it_is_due_and_keeps_the_failed_attempt,
            a_lost_attempt_is_recorded_and_the_run_waits_at_once,
            an_unsent_claim_is_released_without_using_an_attempt,
            a_retry_that_is_released_unsent_keeps_its_earlier_attempts,
            a_batch_answers_for_each_settlement,
            a_batch_of_terminal_settlements_answers_for_each,
            a_batch_records_the_result_of_each_run_separately,
            a_run_named_twice_is_settled_by_the_first,
            a_thousand_runs_are_settled_in_one_batch,
            a_settlement_needs_no_lease,
            attempts_are_listed_in_order,
            the_attempt_in_progress_is_listed_without_an_outcome,
            the_fence_of_a_claim_increases_even_when_the_clock_goes_back,
        }
    };
}

/// A run that was born claimed at second 10.
async fn claimed(bench: &Bench) -> (crate::Lease, ClaimedRun) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    bench.go(12);
    (lease, run)
}

pub async fn a_success_ends_the_run_with_its_output(bench: &Bench) {
    let (lease, run) = claimed(bench).await;
    assert_eq!(bench.settle(&run, Verdict::Succeeded).await, SettleAnswer::Settled);
    let record = bench.run(run.id).await;
    assert_eq!((record.state, record.attempt, record.fence), (State::Succeeded, 1, run.fence));
    assert_eq!((record.started_at, record.finished_at), (Some(s(11)), Some(s(12))));
    assert_eq!((record.error, record.output.as_deref()), (None, Some("printed")));
    assert_eq!(record.node.as_deref(), Some("a"));
    assert!(bench.store.load_claimed(&lease).await.unwrap().is_empty());
}

pub async fn a_failure_ends_the_run_with_its_error(bench: &Bench) {
    let (_, run) = claimed(bench).await;
    bench.settle(&run, Verdict::Failed).await;
    let record = bench.run(run.id).await;
    assert_eq!((record.state, record.error.as_deref()), (State::Failed, Some("it said no")));
}

pub async fn a_cancelled_outcome_ends_the_run_as_cancelled(bench: &Bench) {
    let (_, run) = claimed(bench).await;
    bench.settle(&run, Verdict::Cancelled).await;
    assert_eq!(bench.run(run.id).await.state, State::Cancelled);
}

pub async fn an_old_fence_changes_nothing(bench: &Bench) {
    let (_, run) = claimed(bench).await;
    let before = bench.run(run.id).await;
    let (old, newer) = (Fence::from_raw(run.fence.raw() - 1), run.fence.next());
    for fence in [old, newer] {
        for verdict in [Verdict::Succeeded, Verdict::Redeliver, Verdict::HandBack, Verdict::Retry { due_at: s(20) }] {
            let answer = bench.store.settle(&[settle_with(run.id, fence, run.job, TENANT, verdict)]).await.unwrap();
            assert_eq!(answer, [SettleAnswer::Stale]);
        }
    }
    assert_eq!(bench.run(run.id).await, before);
}

pub async fn an_ended_run_cannot_be_settled_again(bench: &Bench) {
    let (lease, run) = claimed(bench).await;
    bench.settle(&run, Verdict::Succeeded).await;
    for verdict in [Verdict::Failed, Verdict::Succeeded, Verdict::Redeliver, Verdict::HandBack] {
        assert_eq!(bench.settle(&run, verdict).await, SettleAnswer::Stale);
    }
    assert_eq!(bench.run(run.id).await.state, State::Succeeded);
    assert!(bench.due(&lease).await.is_empty());
}

pub async fn a_waiting_run_cannot_be_settled(bench: &Bench) {
    let (_, run) = claimed(bench).await;
    bench.settle(&run, Verdict::HandBack).await;
    assert_eq!(bench.settle(&run, Verdict::Succeeded).await, SettleAnswer::Stale);
    assert_eq!(bench.settle(&run, Verdict::HandBack).await, SettleAnswer::Stale);
    assert_eq!(bench.run(run.id).await.state, State::Waiting);
}

/// A node that was suspended reports a loss, a failure or an unsent claim of an attempt after the next attempt has started.
pub async fn a_run_is_not_released_under_an_old_fence(bench: &Bench) {
    let (lease, old) = claimed(bench).await;
    bench.settle(&old, Verdict::Redeliver).await;
    let new = bench.claim(&lease, old.id).await;
    for verdict in [Verdict::Redeliver, Verdict::HandBack, Verdict::Retry { due_at: s(40) }] {
        assert_eq!(bench.settle(&old, verdict).await, SettleAnswer::Stale);
        let record = bench.run(old.id).await;
        assert_eq!((record.state, record.attempt, record.fence), (State::Claimed, 2, new.fence), "{verdict:?}");
    }
    // Also in one batch with the current claim.
    let both = [settle(&old, Verdict::Redeliver), settle(&new, Verdict::Redeliver)];
    assert_eq!(bench.store.settle(&both).await.unwrap(), [SettleAnswer::Stale, SettleAnswer::Settled]);
    let record = bench.run(old.id).await;
    assert_eq!((record.state, record.attempt, record.lost), (State::Waiting, 2, 2));
    assert_eq!(bench.store.list_attempts(TENANT, old.id).await.unwrap().len(), 2);
}

pub async fn an_unknown_run_cannot_be_settled(bench: &Bench) {
    let (_, run) = claimed(bench).await;
    let unknown = settle_with(RunId::floor(START), run.fence, run.job, TENANT, Verdict::Succeeded);
    assert_eq!(bench.store.settle(&[unknown]).await.unwrap(), [SettleAnswer::Stale]);
}

pub async fn a_retry_waits_until_it_is_due_and_keeps_the_failed_attempt(bench: &Bench) {
    let (lease, run) = claimed(bench).await;
    assert_eq!(bench.settle(&run, Verdict::Retry { due_at: s(40) }).await, SettleAnswer::Settled);
    let record = bench.run(run.id).await;
    assert_eq!((record.state, record.attempt, record.lost), (State::Waiting, 1, 0));
    assert_eq!((record.node, record.started_at, record.finished_at), (None, None, None));
    let peeked = bench.peek(&lease).await;
    assert_eq!((peeked.due.len(), peeked.next_due), (0, Some(s(40))));
    let attempts = bench.store.list_attempts(TENANT, run.id).await.unwrap();
    assert_eq!(attempts.len(), 1);
    let ended = &attempts[0];
    assert_eq!((ended.run, ended.attempt, ended.fence), (run.id, 1, run.fence));
    assert_eq!((ended.node.as_deref(), ended.outcome.as_deref()), (Some("a"), Some("failed")));
    assert_eq!((ended.started_at, ended.finished_at), (Some(s(11)), Some(s(12))));
    assert_eq!((ended.error.as_deref(), ended.output.as_deref()), (Some("it said no"), Some("printed")));
    bench.go(40);
    let due = bench.peek(&lease).await.due;
    assert_eq!((due[0].id, due[0].attempts, due[0].due_at), (run.id, 1, s(40)));
    let again = bench.claim(&lease, run.id).await;
    assert_eq!((again.attempt, again.lost), (2, 0));
    assert!(again.fence > run.fence);
}

pub async fn a_lost_attempt_is_recorded_and_the_run_waits_at_once(bench: &Bench) {
    let (lease, run) = claimed(bench).await;
    bench.settle(&run, Verdict::Redeliver).await;
    let record = bench.run(run.id).await;
    assert_eq!((record.state, record.attempt, record.lost), (State::Waiting, 1, 1));
    let attempts = bench.store.list_attempts(TENANT, run.id).await.unwrap();
    assert_eq!(attempts.iter().map(|at| at.outcome.as_deref()).collect::<Vec<_>>(), [Some("lost")]);
    let due = bench.peek(&lease).await.due;
    assert_eq!((due[0].id, due[0].attempts, due[0].due_at), (run.id, 1, s(12)));
}

pub async fn an_unsent_claim_is_released_without_using_an_attempt(bench: &Bench) {
    let (lease, run) = claimed(bench).await;
    bench.settle(&run, Verdict::HandBack).await;
    let record = bench.run(run.id).await;
    assert_eq!((record.state, record.attempt, record.lost, record.fence), (State::Waiting, 0, 0, run.fence));
    assert!(bench.store.list_attempts(TENANT, run.id).await.unwrap().is_empty());
    assert_eq!(bench.peek(&lease).await.due[0].attempts, 0);
    let again = bench.claim(&lease, run.id).await;
    assert_eq!(again.attempt, 1);
    assert!(again.fence > run.fence);
    assert_eq!(bench.settle(&run, Verdict::Succeeded).await, SettleAnswer::Stale);
}

pub async fn a_retry_that_is_released_unsent_keeps_its_earlier_attempts(bench: &Bench) {
    let (lease, run) = claimed(bench).await;
    bench.settle(&run, Verdict::Retry { due_at: s(12) }).await;
    let second = bench.claim(&lease, run.id).await;
    bench.settle(&second, Verdict::HandBack).await;
    assert_eq!(bench.peek(&lease).await.due[0].attempts, 1);
    let outcomes = |attempts: Vec<crate::AttemptRecord>| {
        attempts.into_iter().map(|at| (at.attempt, at.outcome)).collect::<Vec<_>>()
    };
    let failed = || (1, Some("failed".to_owned()));
    assert_eq!(outcomes(bench.store.list_attempts(TENANT, run.id).await.unwrap()), [failed()]);
    // Cancelled between two attempts: there is no second attempt to list.
    bench.store.cancel_run(TENANT, &super::actor(), run.id).await.unwrap();
    assert_eq!(outcomes(bench.store.list_attempts(TENANT, run.id).await.unwrap()), [failed()]);
}

pub async fn a_batch_answers_for_each_settlement(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(50);
    let mut runs = Vec::new();
    for n in 1..=5 {
        runs.push(bench.claimed(&lease, &job, n * 10).await);
    }
    bench.settle(&runs[1], Verdict::Succeeded).await;
    let batch = [
        settle(&runs[0], Verdict::Succeeded),
        settle(&runs[1], Verdict::Failed),
        settle(&runs[2], Verdict::Retry { due_at: s(60) }),
        settle(&runs[3], Verdict::Redeliver),
        settle(&runs[4], Verdict::HandBack),
    ];
    use SettleAnswer::{Settled, Stale};
    assert_eq!(bench.store.settle(&batch).await.unwrap(), [Settled, Stale, Settled, Settled, Settled]);
    let states: Vec<_> = bench.history(&job).await.iter().map(|run| run.state).collect();
    use State::{Succeeded, Waiting};
    assert_eq!(states, [Succeeded, Succeeded, Waiting, Waiting, Waiting]);
}

pub async fn a_batch_of_terminal_settlements_answers_for_each(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(30);
    let mut runs = Vec::new();
    for n in 1..=3 {
        runs.push(bench.claimed(&lease, &job, n * 10).await);
    }
    bench.store.cancel_run(TENANT, &super::actor(), runs[1].id).await.unwrap();
    let batch: Vec<_> = runs.iter().map(|run| settle(run, Verdict::Succeeded)).collect();
    use SettleAnswer::{Settled, Stale};
    assert_eq!(bench.store.settle(&batch).await.unwrap(), [Settled, Stale, Settled]);
    let states: Vec<_> = bench.history(&job).await.iter().map(|run| run.state).collect();
    assert_eq!(states, [State::Succeeded, State::Cancelled, State::Succeeded]);
}

/// Output and times of one run must not appear on another run of the batch.
pub async fn a_batch_records_the_result_of_each_run_separately(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(40);
    let mut batch = Vec::new();
    for (n, verdict) in (1..).zip([Verdict::Failed, Verdict::Succeeded, Verdict::Succeeded, Verdict::Cancelled]) {
        let run = bench.claimed(&lease, &job, n * 10).await;
        let mut settle = settle(&run, verdict);
        settle.ended_at = s(40 + n);
        batch.push(settle);
    }
    batch[1].settlement.output = None;
    batch[1].started_at = None;
    batch[2].settlement.output = Some("alone".into());
    batch[2].started_at = Some(s(32));
    batch[3].started_at = None;
    // In another order than the ids.
    batch.swap(0, 2);
    assert_eq!(bench.store.settle(&batch).await.unwrap(), [SettleAnswer::Settled; 4]);
    let mut kept = Vec::new();
    for run in bench.history(&job).await {
        let run = bench.run(run.id).await;
        kept.push((run.state, run.error.is_some(), run.output, run.started_at, run.finished_at));
    }
    let expected = [
        (State::Failed, true, Some("printed".to_owned()), Some(s(11)), Some(s(41))),
        // Without a reported start, it is the time of the claim.
        (State::Succeeded, false, None, Some(s(40)), Some(s(42))),
        (State::Succeeded, false, Some("alone".to_owned()), Some(s(32)), Some(s(43))),
        (State::Cancelled, true, Some("printed".to_owned()), Some(s(40)), Some(s(44))),
    ];
    assert_eq!(kept, expected);
}

pub async fn a_run_named_twice_is_settled_by_the_first(bench: &Bench) {
    let (_, run) = claimed(bench).await;
    let batch = [settle(&run, Verdict::Failed), settle(&run, Verdict::Succeeded), settle(&run, Verdict::HandBack)];
    use SettleAnswer::{Settled, Stale};
    assert_eq!(bench.store.settle(&batch).await.unwrap(), [Settled, Stale, Stale]);
    assert_eq!(bench.run(run.id).await.state, State::Failed);
    assert!(bench.store.settle(&[]).await.unwrap().is_empty());
}

pub async fn a_thousand_runs_are_settled_in_one_batch(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(10_000);
    let rows: Vec<_> =
        (641..=1_000).map(|n| born(&job, n * 10)).chain((1..=640).map(|n| tick(&job, n * 10, Fate::Late))).collect();
    let ids: Vec<_> = rows[360..].iter().map(|row| row.tick.id).collect();
    // The claims are of both kinds: born claimed, and claimed while waiting.
    bench.record(&lease, ticks(&job, 1, rows)).await;
    assert_eq!(bench.store.claim(&lease, &bench.all(), &ids).await.unwrap().len(), 640);
    let claimed = bench.store.load_claimed(&lease).await.unwrap();
    assert_eq!(claimed.len(), 1_000);
    let batch: Vec<_> = claimed.iter().map(|run| settle(run, Verdict::Succeeded)).collect();
    assert_eq!(bench.store.settle(&batch).await.unwrap(), vec![SettleAnswer::Settled; 1_000]);
    assert!(bench.load(&job).await.open.is_empty());
}

pub async fn a_settlement_needs_no_lease(bench: &Bench) {
    let (lease, run) = claimed(bench).await;
    bench.store.leave(&lease).await.unwrap();
    assert_eq!(bench.settle(&run, Verdict::Succeeded).await, SettleAnswer::Settled);
}

pub async fn attempts_are_listed_in_order(bench: &Bench) {
    let (lease, run) = claimed(bench).await;
    bench.settle(&run, Verdict::Retry { due_at: s(12) }).await;
    let second = bench.claim(&lease, run.id).await;
    bench.settle(&second, Verdict::Redeliver).await;
    let third = bench.claim(&lease, run.id).await;
    bench.settle(&third, Verdict::Succeeded).await;
    let attempts = bench.store.list_attempts(TENANT, run.id).await.unwrap();
    let seen: Vec<_> = attempts.iter().map(|at| (at.attempt, at.outcome.as_deref().unwrap(), at.fence)).collect();
    assert_eq!(seen, [(1, "failed", run.fence), (2, "lost", second.fence), (3, "succeeded", third.fence)]);
    assert_eq!(bench.run(run.id).await.attempt, 3);
}

pub async fn the_attempt_in_progress_is_listed_without_an_outcome(bench: &Bench) {
    let (_, run) = claimed(bench).await;
    let attempts = bench.store.list_attempts(TENANT, run.id).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].attempt, &attempts[0].outcome, attempts[0].finished_at), (1, &None, None));
    assert_eq!((attempts[0].fence, attempts[0].started_at), (run.fence, Some(s(10))));
}

pub async fn the_fence_of_a_claim_increases_even_when_the_clock_goes_back(bench: &Bench) {
    let (lease, run) = claimed(bench).await;
    bench.clock.set(s(12).minus(Span::seconds(1)));
    bench.settle(&run, Verdict::HandBack).await;
    let again = bench.claim(&lease, run.id).await;
    assert!(again.fence > run.fence);
}
