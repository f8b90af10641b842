//! Claims of workers: heartbeat, log, settlement, cancellation, expiry.

use everytick_domain::{
    ids::{Fence, RunId},
    job::{JobSpec, Overlap},
    output,
    plan::Fate,
    queue::LOG_BYTES_MAX,
    run::{State, Verdict},
    time::Span,
};

use super::queue_limits::{keyed, of_customer};
use super::queues::{LEASE, backlog, claims, joined, one, queue, queued};
use super::{
    Bench, OTHER_TENANT, START, TENANT, actor, by_name, change, overlapping, pause, s, settle, spec, tick, ticks,
};
use crate::{ClaimBeat, ClaimedRun, SettleAnswer, StoreError, Success};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_worker_claims {
    ($open:path) => {
        $crate::conformance_group! { $open, worker_claims:
            a_heartbeat_extends_the_claim_unless_its_fence_is_old,
            a_heartbeat_and_a_log_affect_only_the_named_run,
            a_settlement_ends_the_claim_and_its_repeat_is_stale,
            a_returned_claim_waits_in_its_queue_again_and_spends_no_attempt,
            a_returned_run_keeps_its_position_in_the_queue,
            a_returned_run_of_a_serial_job_is_still_the_first,
            a_returned_late_run_waits_behind_runs_that_are_on_time,
            a_worker_learns_of_a_cancel_at_its_next_heartbeat,
            a_pause_with_cancel_ends_runs_that_workers_have_claimed,
            cancelling_a_job_keeps_worker_claims_of_other_jobs,
            the_run_of_a_lost_worker_returns_to_the_queue,
            a_success_is_accepted_only_from_the_current_claim,
            a_run_times_out_despite_heartbeats,
            a_log_grows_and_keeps_its_end,
            a_long_log_and_an_output_state_how_much_is_missing,
            a_cancelled_run_keeps_the_log_of_its_worker,
            a_log_is_stored_only_on_its_own_run,
            a_run_claimed_by_a_worker_is_never_pruned,
        }
    };
}

async fn beat(bench: &Bench, run: &ClaimedRun) -> ClaimBeat {
    bench.store.beat_claim(TENANT, run.id, run.fence, LEASE).await.unwrap()
}

pub async fn a_heartbeat_extends_the_claim_unless_its_fence_is_old(bench: &Bench) {
    let (lease, job) = joined(bench, queued(spec("j"))).await;
    bench.go(10);
    bench.waiting(&lease, &job, 10).await;
    let run = one(bench).await;
    bench.go(35);
    assert_eq!(beat(bench, &run).await, ClaimBeat::Extended { until: s(65) });
    let stale = bench.store.beat_claim(TENANT, run.id, Fence::from_raw(1), LEASE).await.unwrap();
    assert_eq!(stale, ClaimBeat::Stale);
    bench.go(64);
    assert!(bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap().is_empty());
    bench.go(65);
    assert_eq!(bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap().len(), 1);
    assert_eq!(beat(bench, &run).await, ClaimBeat::Extended { until: s(95) }, "the claim has not been settled yet");
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
    assert_eq!(beat(bench, kept).await, ClaimBeat::Extended { until: s(70) });
    assert!(bench.store.log_claim(TENANT, kept.id, kept.fence, "so far".into()).await.unwrap());
    bench.go(50);
    let overdue = bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap();
    let found: Vec<_> = overdue.into_iter().map(|claim| (claim.claim.run.id, claim.claim.log)).collect();
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

pub async fn a_returned_claim_waits_in_its_queue_again_and_spends_no_attempt(bench: &Bench) {
    joined(bench, keyed(queued(overlapping("j")), 1)).await;
    bench.go(10);
    let made = bench.trigger(of_customer("j", "1", "a")).await;
    let run = one(bench).await;
    assert!(bench.store.log_claim(TENANT, run.id, run.fence, "begun".into()).await.unwrap());
    assert_eq!(bench.settle(&run, Verdict::Return).await, SettleAnswer::Settled);
    assert_eq!(bench.settle(&run, Verdict::Return).await, SettleAnswer::Stale);
    assert_eq!(beat(bench, &run).await, ClaimBeat::Stale);
    let waits = bench.run(run.id).await;
    assert_eq!((waits.state, waits.attempt, waits.lost, waits.worker), (State::Waiting, 0, 0, None));
    assert!(bench.store.list_attempts(TENANT, run.id).await.unwrap().is_empty());
    assert_eq!((queue(bench, "q").await.claimed, queue(bench, "q").await.due), (0, 1));
    let again = one(bench).await;
    assert!(again.id == made.id && again.attempt == 1 && again.fence > run.fence);
    let other = bench.trigger(of_customer("j", "2", "a")).await;
    assert!(claims(bench, 9).await.is_empty(), "it still has its key");
    bench.settle(&again, Verdict::Succeeded).await;
    assert_eq!(one(bench).await.id, other.id);
}

pub async fn a_returned_run_keeps_its_position_in_the_queue(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(40);
    backlog(bench, &lease, &job, 3).await;
    let first = one(bench).await;
    bench.go(50);
    bench.settle(&first, Verdict::Return).await;
    assert_eq!(bench.run(first.id).await.due_at, s(10), "it is due since its tick, not since its return");
    let order: Vec<_> = claims(bench, 9).await.into_iter().map(|claim| claim.run.id).collect();
    assert_eq!(order.len(), 3);
    assert_eq!(order[0], first.id);
}

pub async fn a_returned_run_of_a_serial_job_is_still_the_first(bench: &Bench) {
    let (lease, job) = joined(bench, queued(JobSpec { overlap: Overlap::Queue { limit: 5 }, ..spec("j") })).await;
    bench.go(40);
    backlog(bench, &lease, &job, 2).await;
    let first = one(bench).await;
    bench.settle(&first, Verdict::Return).await;
    assert_eq!(one(bench).await.id, first.id);
}

pub async fn a_returned_late_run_waits_behind_runs_that_are_on_time(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(40);
    let late = vec![tick(&job, 10, Fate::Late), tick(&job, 20, Fate::Late)];
    bench.record(&lease, ticks(&job, bench.epoch(&job).await, late)).await;
    let late = claims(bench, 9).await;
    for claim in &late {
        bench.settle(&claim.run, Verdict::Return).await;
    }
    bench.record(&lease, ticks(&job, bench.epoch(&job).await, vec![tick(&job, 40, Fate::Run)])).await;
    let order: Vec<_> = claims(bench, 9).await.into_iter().map(|claim| claim.run.id).collect();
    assert_eq!(order.len(), 3);
    assert!(late.iter().all(|claim| claim.run.id != order[0]), "the run that is on time comes first");
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
    assert!(matches!(beat(bench, run).await, ClaimBeat::Extended { .. }));
    assert_eq!(bench.run(theirs).await.state, State::Claimed);
}

pub async fn the_run_of_a_lost_worker_returns_to_the_queue(bench: &Bench) {
    let (lease, job) = joined(bench, queued(spec("j"))).await;
    bench.go(10);
    bench.waiting(&lease, &job, 10).await;
    let run = one(bench).await;
    assert!(bench.store.log_claim(TENANT, run.id, run.fence, "so far".into()).await.unwrap());
    bench.go(40);
    assert!(bench.store.load_overdue_claims(Span::millis(1), 9).await.unwrap().is_empty(), "within the grace");
    let overdue = bench.store.load_overdue_claims(Span::ZERO, 9).await.unwrap().remove(0);
    assert_eq!((&overdue.claim.run, overdue.worker.as_str(), overdue.timed_out), (&run, "w", false));
    assert_eq!((overdue.claim.log.as_deref(), overdue.claim.started_at), (Some("so far"), Some(s(10))));
    let ids = [run.id, RunId::floor(START)];
    let held = bench.store.load_claims(TENANT, &ids).await.unwrap();
    assert_eq!((held.len(), &held[0].run, held[0].job.id), (1, &run, job.id));
    assert_eq!(bench.settle(&overdue.claim.run, Verdict::Redeliver).await, SettleAnswer::Settled);
    let attempts = bench.store.list_attempts(TENANT, run.id).await.unwrap();
    assert_eq!((attempts[0].outcome.as_deref(), attempts[0].worker.as_deref()), (Some("lost"), Some("w")));
    assert!(bench.due(&lease).await.is_empty(), "no node delivers it");
    let again = one(bench).await;
    assert_eq!((again.id, again.attempt, again.lost), (run.id, 2, 1));
    assert!(again.fence > run.fence);
    assert_eq!(beat(bench, &run).await, ClaimBeat::Stale, "a worker that returns late");
    assert_eq!(bench.settle(&run, Verdict::Succeeded).await, SettleAnswer::Stale);
    assert!(!bench.store.log_claim(TENANT, run.id, run.fence, "late".into()).await.unwrap());
    bench.settle(&again, Verdict::Succeeded).await;
    assert!(bench.store.load_claims(TENANT, &ids).await.unwrap().is_empty());
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
    assert!(bench.store.log_claim(TENANT, first.id, first.fence, "logged".into()).await.unwrap());
    assert!(bench.store.log_claim(TENANT, second.id, second.fence, "logged".into()).await.unwrap());
    let done =
        [said(first, None), said(second, Some("said")), Success { fence: Fence::from_raw(1), ..said(third, None) }];
    assert_eq!(bench.store.succeed(OTHER_TENANT, &done).await.unwrap(), [None, None, None]);
    assert_eq!(bench.store.succeed(TENANT, &done).await.unwrap(), [Some(job.id), Some(job.id), None]);
    let record = async |run: &ClaimedRun| bench.store.get_run(TENANT, run.id).await.unwrap();
    let (ended, other, held) = (record(first).await, record(second).await, record(third).await);
    assert_eq!((ended.state, ended.output.as_deref()), (State::Succeeded, Some("logged")));
    assert_eq!((ended.started_at, ended.finished_at, ended.error), (Some(s(30)), Some(s(30)), None));
    assert_eq!((other.state, other.output.as_deref()), (State::Succeeded, Some("logged\nsaid")));
    assert_eq!(held.state, State::Claimed);
    let still = bench.store.load_claims(TENANT, &[first.id, second.id, third.id]).await.unwrap();
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
        assert!(bench.store.log_claim(TENANT, run.id, run.fence, text.into()).await.unwrap());
    }
    assert_eq!(log().await.as_deref(), Some("one\ntwo é\u{fffd}\n"));
    let before = log().await.unwrap().len();
    bench.store.log_claim(TENANT, run.id, run.fence, "é".repeat(LOG_BYTES_MAX / 2).as_str().into()).await.unwrap();
    let stored = log().await.unwrap();
    let (missing, body) = output::split(&stored);
    assert!(stored.len() <= LOG_BYTES_MAX && missing > 0 && body.chars().all(|c| c == 'é'));
    assert_eq!(missing as usize + body.len(), before + LOG_BYTES_MAX);
    let part = output::LogPart { missing: 5, text: "after a gap" };
    bench.store.log_claim(TENANT, run.id, run.fence, part).await.unwrap();
    assert_eq!(output::split(&log().await.unwrap()), ((before + LOG_BYTES_MAX + 5) as u64, "after a gap"));
    assert!(!bench.store.log_claim(TENANT, run.id, Fence::from_raw(1), "old".into()).await.unwrap());
    bench.settle(&run, Verdict::Succeeded).await;
    assert_eq!(log().await, None);
}

pub async fn a_long_log_and_an_output_state_how_much_is_missing(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(20);
    backlog(bench, &lease, &job, 2).await;
    let held = claims(bench, 2).await;
    let log = "x".repeat(LOG_BYTES_MAX);
    for (claim, output) in held.iter().zip([None, Some("done".to_owned())]) {
        let run = &claim.run;
        assert!(bench.store.log_claim(TENANT, run.id, run.fence, "first ".into()).await.unwrap());
        assert!(bench.store.log_claim(TENANT, run.id, run.fence, log.as_str().into()).await.unwrap());
        let done = Success { run: run.id, fence: run.fence, output: output.clone() };
        assert_eq!(bench.store.succeed(TENANT, &[done]).await.unwrap(), [Some(job.id)]);
        let stored = bench.run(run.id).await.output.unwrap();
        let (missing, body) = output::split(&stored);
        let end = output.unwrap_or_default();
        assert!(stored.len() <= LOG_BYTES_MAX && body.ends_with(&end));
        let line_end = usize::from(!end.is_empty());
        assert_eq!(missing as usize + body.len(), "first ".len() + log.len() + line_end + end.len());
    }
}

pub async fn a_cancelled_run_keeps_the_log_of_its_worker(bench: &Bench) {
    let (lease, job) = joined(bench, queued(overlapping("j"))).await;
    bench.go(20);
    backlog(bench, &lease, &job, 2).await;
    let both = claims(bench, 2).await;
    for claim in &both {
        assert!(bench.store.log_claim(TENANT, claim.run.id, claim.run.fence, "half done".into()).await.unwrap());
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
    assert!(bench.store.log_claim(TENANT, logged.id, logged.fence, "half done".into()).await.unwrap());
    bench.store.cancel_run(TENANT, &actor(), logged.id).await.unwrap();
    assert_eq!(bench.run(logged.id).await.output.as_deref(), Some("half done"));
    assert_eq!(bench.run(silent.id).await.output, None);
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
