//! Superseded and cancelled runs, and requests under the policies `queue` and `cancel_previous`.

use everytick_domain::{
    edit::Change,
    job::{JobSpec, Overlap},
    run::{State, Verdict},
};

use super::{Bench, OTHER_TENANT, TENANT, actor, by_name, new_run, overlapping, s, settle, spec, tick, ticks};
use crate::{KeptOutput, RowAnswer, SettleAnswer, StoreError, Supersede};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_cancels {
    ($open:path) => {
        $crate::conformance_group! { $open, cancels:
            a_superseded_run_is_cancelled_with_a_raised_fence_and_a_reason,
            an_ended_run_is_not_superseded,
            a_lost_lease_supersedes_nothing,
            a_cancelled_run_keeps_the_output_of_its_last_attempt,
            an_output_is_stored_only_on_the_named_run,
            a_succeeded_run_keeps_its_own_output,
            cancelling_a_job_cancels_all_its_open_runs,
            an_unknown_deleted_or_foreign_job_cannot_be_cancelled,
            under_queue_requests_wait_up_to_the_limit,
            under_queue_a_run_between_two_attempts_does_not_count_as_waiting,
            under_queue_a_request_makes_earlier_plans_stale,
            under_cancel_previous_requests_wait,
        }
    };
}

fn previous(name: &str) -> JobSpec {
    JobSpec { overlap: Overlap::CancelPrevious, ..spec(name) }
}

fn queue(name: &str, limit: u32) -> JobSpec {
    JobSpec { overlap: Overlap::Queue { limit }, ..spec(name) }
}

pub async fn a_superseded_run_is_cancelled_with_a_raised_fence_and_a_reason(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(previous("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&lease, &job, 10).await;
    bench.go(20);
    let waits = bench.waiting(&lease, &job, 20).await;
    bench.go(30);
    let newest = bench.waiting(&lease, &job, 30).await;
    bench.go(31);
    let given = [claimed.id, waits].map(|run| Supersede { job: job.id, run, to: newest });
    let mut cancelled = bench.store.supersede(&lease, &given).await.unwrap();
    cancelled.sort_unstable();
    assert_eq!(cancelled, [claimed.id, waits]);
    for run in [claimed.id, waits] {
        let record = bench.run(run).await;
        assert_eq!((record.state, record.finished_at), (State::Cancelled, Some(s(31))));
        assert!(record.error.unwrap().contains(&newest.to_string()));
        assert!(record.fence > claimed.fence);
    }
    assert_eq!(bench.settle(&claimed, Verdict::Succeeded).await, SettleAnswer::Stale);
    assert!(bench.store.load_claimed(&lease).await.unwrap().is_empty());
    assert_eq!(bench.due(&lease).await, [newest]);
    assert_eq!(bench.load(&job).await.open.iter().map(|run| run.id).collect::<Vec<_>>(), [newest]);
    assert_eq!(bench.claim(&lease, newest).await.id, newest);
}

pub async fn an_ended_run_is_not_superseded(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(previous("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    bench.settle(&run, Verdict::Succeeded).await;
    bench.go(20);
    let newest = bench.waiting(&lease, &job, 20).await;
    let given = [Supersede { job: job.id, run: run.id, to: newest }];
    assert!(bench.store.supersede(&lease, &given).await.unwrap().is_empty());
    let record = bench.run(run.id).await;
    assert_eq!((record.state, record.error), (State::Succeeded, None));
}

pub async fn a_lost_lease_supersedes_nothing(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(previous("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    bench.store.raise_fence(&lease).await.unwrap();
    let given = [Supersede { job: job.id, run: run.id, to: run.id }];
    let refused = bench.store.supersede(&lease, &given).await;
    assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
    assert_eq!(bench.run(run.id).await.state, State::Claimed);
}

pub async fn a_cancelled_run_keeps_the_output_of_its_last_attempt(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    let keep = |attempt, text: &str| KeptOutput { run: run.id, attempt, output: text.into() };
    bench.store.keep_outputs(&[keep(1, "too soon")]).await.unwrap();
    assert_eq!(bench.run(run.id).await.output, None, "only a cancelled run keeps it");
    bench.store.cancel_run(TENANT, &actor(), run.id).await.unwrap();
    let cancelled = bench.run(run.id).await;
    bench.store.keep_outputs(&[keep(2, "of another attempt")]).await.unwrap();
    assert_eq!(bench.run(run.id).await, cancelled);
    bench.store.keep_outputs(&[keep(1, "half a\0 report")]).await.unwrap();
    let kept = bench.run(run.id).await;
    assert!(kept.output.as_deref().is_some_and(|output| output.starts_with("half a")), "{:?}", kept.output);
    assert_eq!(crate::RunRecord { output: None, ..kept.clone() }, cancelled, "nothing else changes");
    bench.store.keep_outputs(&[keep(1, "again")]).await.unwrap();
    assert_eq!(bench.run(run.id).await, kept);
}

pub async fn an_output_is_stored_only_on_the_named_run(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(20);
    let (named, other) = (bench.claimed(&lease, &job, 10).await, bench.claimed(&lease, &job, 20).await);
    for run in [&named, &other] {
        bench.store.cancel_run(TENANT, &actor(), run.id).await.unwrap();
    }
    bench.store.keep_outputs(&[KeptOutput { run: named.id, attempt: 1, output: "half".into() }]).await.unwrap();
    assert_eq!(bench.run(named.id).await.output.as_deref(), Some("half"));
    assert_eq!(bench.run(other.id).await.output, None);
}

pub async fn a_succeeded_run_keeps_its_own_output(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    let mut silent = settle(&run, Verdict::Succeeded);
    silent.settlement.output = None;
    bench.store.settle(&[silent]).await.unwrap();
    bench.store.keep_outputs(&[KeptOutput { run: run.id, attempt: 1, output: "no".into() }]).await.unwrap();
    assert_eq!(bench.run(run.id).await.output, None);
}

pub async fn cancelling_a_job_cancels_all_its_open_runs(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    let other = bench.create(overlapping("other")).await;
    bench.go(10);
    let done = bench.claimed(&lease, &job, 10).await;
    bench.settle(&done, Verdict::Succeeded).await;
    bench.go(20);
    let claimed = bench.claimed(&lease, &job, 20).await;
    let waits = bench.trigger(new_run("j", "k")).await.id;
    let theirs = bench.claimed(&lease, &other, 20).await;
    let before = bench.audit().await.len();
    let cancelled = bench.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap();
    assert_eq!((cancelled.job, cancelled.job_name.as_str()), (job.id, "j"));
    assert_eq!((cancelled.runs.waited.clone(), cancelled.runs.claimed.clone()), (vec![waits], vec![claimed.id]));
    assert_eq!(cancelled.runs.all().len(), 2);
    for run in [waits, claimed.id] {
        assert_eq!(bench.run(run).await.state, State::Cancelled);
    }
    assert!(bench.run(claimed.id).await.fence > claimed.fence);
    assert_eq!(bench.run(done.id).await.state, State::Succeeded);
    assert_eq!(bench.run(theirs.id).await.state, State::Claimed);
    assert!(bench.due(&lease).await.is_empty());
    assert!(bench.load(&job).await.open.is_empty());
    let audit = bench.audit().await.split_off(before);
    assert!(audit.len() == 2 && audit.iter().all(|row| row.action == "cancel"), "{audit:?}");
    assert!(bench.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap().runs.all().is_empty());
}

pub async fn an_unknown_deleted_or_foreign_job_cannot_be_cancelled(bench: &Bench) {
    bench.create(spec("j")).await;
    bench.create(spec("gone")).await;
    bench.edit("gone", Change::Delete).await;
    for (tenant, job) in [(TENANT, "unknown"), (TENANT, "gone"), (OTHER_TENANT, "j")] {
        let refused = bench.store.cancel_job(tenant, &actor(), &by_name(job)).await;
        assert!(matches!(refused, Err(StoreError::NotFound("job"))), "{refused:?}");
    }
}

pub async fn under_queue_requests_wait_up_to_the_limit(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(queue("j", 2)).await);
    bench.go(10);
    bench.claimed(&lease, &job, 10).await;
    let mut states = Vec::new();
    for key in ["a", "b", "c"] {
        states.push(bench.trigger(new_run("j", key)).await.state);
    }
    assert_eq!(states, [State::Waiting, State::Waiting, State::Skipped]);
}

pub async fn under_queue_a_run_between_two_attempts_does_not_count_as_waiting(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(queue("j", 1)).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    bench.settle(&run, Verdict::Retry { due_at: s(60) }).await;
    assert_eq!(bench.trigger(new_run("j", "a")).await.state, State::Waiting);
    assert_eq!(bench.trigger(new_run("j", "b")).await.state, State::Skipped);
}

/// This keeps the limit and the order when a tick and a request come at the same time.
pub async fn under_queue_a_request_makes_earlier_plans_stale(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(queue("j", 1)).await);
    let other = bench.create(spec("other")).await;
    bench.go(10);
    let (before, others) = (bench.epoch(&job).await, bench.epoch(&other).await);
    bench.trigger(new_run("j", "a")).await;
    bench.trigger(new_run("other", "a")).await;
    let planned = ticks(&job, before, vec![tick(&job, 10, everytick_domain::plan::Fate::Run)]);
    assert_eq!(bench.record(&lease, planned).await, [RowAnswer::Stale]);
    assert_eq!(bench.epoch(&other).await, others, "under other policies the owner decides when the run starts");
    let epoch = bench.epoch(&job).await;
    assert_eq!(bench.trigger(new_run("j", "b")).await.state, State::Skipped);
    assert_eq!(bench.epoch(&job).await, epoch, "a skipped request does not affect other runs");
}

pub async fn under_cancel_previous_requests_wait(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(previous("j")).await);
    bench.go(10);
    bench.claimed(&lease, &job, 10).await;
    assert_eq!(bench.trigger(new_run("j", "a")).await.state, State::Waiting);
    assert_eq!(bench.trigger(new_run("j", "b")).await.state, State::Waiting);
}
