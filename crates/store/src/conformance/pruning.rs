//! Pruning: old history is deleted, and no tick fires again because of it (I17).

use everytick_domain::{
    edit::Change,
    ids::{JobId, RunId},
    job::Job,
    plan::Fate,
    run::{SkipReason, State, Verdict},
    time::Span,
};

use super::{Bench, START, TENANT, actor, new_run, overlapping, range, s, settle, spec, tick, ticks};
use crate::{IDEMPOTENCY_KEPT, IdempotencyKey, Lease, NewJob, RangePlan, RowAnswer, RunFilter, Settle, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_pruning {
    ($open:path) => {
        $crate::conformance_group! { $open, pruning:
            old_runs_are_pruned_except_the_last_of_each_job,
            open_runs_are_never_pruned,
            runs_that_ended_after_the_limit_are_kept,
            a_tick_that_the_cursor_has_not_passed_is_kept,
            a_pruned_tick_is_never_recorded_again,
            pruning_obeys_its_limit,
            attempts_are_pruned_with_their_run,
            a_deleted_job_is_pruned_after_its_runs_have_ended,
            only_old_idempotency_keys_are_pruned,
            only_old_audit_rows_are_pruned,
            an_old_run_that_ended_later_stays,
            attempts_and_failures_of_runs_that_stay_are_left,
            old_ranges_are_pruned_and_newer_ones_are_kept,
            a_range_that_the_cursor_has_not_passed_stays,
            a_deleted_job_stays_while_a_range_of_it_is_left,
            the_removal_of_a_deleted_job_changes_no_other_job,
        }
    };
}

/// [`START`] is a midnight. Stores that drop whole days keep the day that contains the given instant.
const NEXT_DAY: i64 = 2 * 86_400;

/// A job whose ticks 10 to 50 were skipped and passed by the cursor.
async fn with_history(bench: &Bench) -> (Lease, Job) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(50);
    let rows = (1..=5).map(|n| tick(&job, n * 10, Fate::Skip(SkipReason::Overlap))).collect();
    bench.record(&lease, ticks(&job, 1, rows)).await;
    bench.raise(&job, 1, Some(s(60))).await;
    (lease, job)
}

async fn left(bench: &Bench, job: &Job) -> Vec<i64> {
    bench.history(job).await.iter().map(|run| (run.scheduled_at.millis() - START.millis()) / 1_000).collect()
}

pub async fn old_runs_are_pruned_except_the_last_of_each_job(bench: &Bench) {
    let (_, job) = with_history(bench).await;
    let pruned = bench.store.prune(s(NEXT_DAY), 100).await.unwrap();
    assert_eq!((pruned.runs, pruned.jobs), (4, 0));
    assert_eq!(left(bench, &job).await, [50]);
    assert_eq!(bench.store.prune(s(NEXT_DAY), 100).await.unwrap().runs, 0);
}

pub async fn open_runs_are_never_pruned(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(30);
    bench.claimed(&lease, &job, 10).await;
    bench.waiting(&lease, &job, 20).await;
    bench.record(&lease, ticks(&job, 1, vec![tick(&job, 30, Fate::Skip(SkipReason::Overlap))])).await;
    bench.raise(&job, 1, Some(s(40))).await;
    bench.store.prune(s(NEXT_DAY), 100).await.unwrap();
    assert_eq!(left(bench, &job).await, [10, 20, 30]);
    assert_eq!(bench.load(&job).await.open.len(), 2);
}

pub async fn runs_that_ended_after_the_limit_are_kept(bench: &Bench) {
    let (_, job) = with_history(bench).await;
    assert_eq!(bench.store.prune(s(50), 100).await.unwrap().runs, 0);
    assert_eq!(left(bench, &job).await, [10, 20, 30, 40, 50]);
}

pub async fn an_old_run_that_ended_later_stays(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(20);
    let runs = [bench.claimed(&lease, &job, 10).await, bench.claimed(&lease, &job, 20).await];
    // The cursor stays in the day of the runs, so that the day is not dropped as a whole.
    bench.raise(&job, 1, Some(s(30))).await;
    bench.go(NEXT_DAY + 10);
    let ends = runs.each_ref().map(|run| Settle { ended_at: s(NEXT_DAY + 5), ..settle(run, Verdict::Succeeded) });
    bench.store.settle(&ends).await.unwrap();
    bench.store.prune(s(NEXT_DAY), 100).await.unwrap();
    assert_eq!(left(bench, &job).await, [10, 20]);
    bench.store.prune(s(NEXT_DAY + 6), 100).await.unwrap();
    assert_eq!(left(bench, &job).await, [20]);
}

pub async fn a_tick_that_the_cursor_has_not_passed_is_kept(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(30);
    let rows = (1..=3).map(|n| tick(&job, n * 10, Fate::Skip(SkipReason::Overlap))).collect();
    bench.record(&lease, ticks(&job, 1, rows)).await;
    bench.raise(&job, 1, Some(s(20))).await;
    bench.store.prune(s(NEXT_DAY), 100).await.unwrap();
    assert_eq!(left(bench, &job).await, [20, 30]);
}

pub async fn a_pruned_tick_is_never_recorded_again(bench: &Bench) {
    let (lease, job) = with_history(bench).await;
    bench.store.prune(s(NEXT_DAY), 100).await.unwrap();
    let rows = (1..=5).map(|n| tick(&job, n * 10, Fate::Run)).collect();
    let answers = bench.record(&lease, ticks(&job, 1, rows)).await;
    assert!(!answers.contains(&RowAnswer::Inserted), "{answers:?}");
    assert_eq!(left(bench, &job).await, [50]);
}

pub async fn pruning_obeys_its_limit(bench: &Bench) {
    let (_, job) = with_history(bench).await;
    assert_eq!(bench.store.prune(s(NEXT_DAY), 3).await.unwrap().runs, 3);
    assert_eq!(left(bench, &job).await, [40, 50], "the oldest are pruned first");
}

pub async fn attempts_are_pruned_with_their_run(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(20);
    let run = bench.claimed(&lease, &job, 10).await;
    bench.settle(&run, Verdict::Retry { due_at: s(20) }).await;
    let again = bench.claim(&lease, run.id).await;
    bench.settle(&again, Verdict::Succeeded).await;
    bench.record(&lease, ticks(&job, 1, vec![tick(&job, 20, Fate::Skip(SkipReason::Overlap))])).await;
    bench.raise(&job, 1, Some(s(30))).await;
    assert_eq!(bench.store.prune(s(NEXT_DAY), 100).await.unwrap().runs, 1);
    assert!(matches!(bench.store.list_attempts(TENANT, run.id).await, Err(StoreError::NotFound("run"))));
}

pub async fn attempts_and_failures_of_runs_that_stay_are_left(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(30);
    let mut ids = Vec::new();
    for seconds in [10, 20] {
        let run = bench.claimed(&lease, &job, seconds).await;
        bench.settle(&run, Verdict::Retry { due_at: s(20) }).await;
        let again = bench.claim(&lease, run.id).await;
        bench.settle(&again, Verdict::Failed).await;
        ids.push(run.id);
    }
    bench.waiting(&lease, &job, 30).await;
    bench.raise(&job, 1, Some(s(40))).await;
    let failed = async || {
        let filter = RunFilter { states: vec![State::Failed], ..Default::default() };
        let found = bench.store.list_runs(TENANT, &filter, None, 10).await.unwrap().items;
        found.iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(failed().await, [ids[1], ids[0]]);
    assert_eq!(bench.store.prune(s(NEXT_DAY), 1).await.unwrap().runs, 1);
    assert_eq!(failed().await, [ids[1]]);
    assert_eq!(bench.store.list_attempts(TENANT, ids[1]).await.unwrap().len(), 2);
}

pub async fn old_ranges_are_pruned_and_newer_ones_are_kept(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(300);
    bench.range(&lease, &range(&job, 1, 10, 200)).await;
    bench.store.prune(s(300), 100).await.unwrap();
    assert_eq!(left(bench, &job).await, [10], "its ticks are older, but it was recorded at 300");
    bench.store.prune(s(301), 100).await.unwrap();
    assert!(left(bench, &job).await.is_empty());
}

pub async fn a_range_that_the_cursor_has_not_passed_stays(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(300);
    bench.range(&lease, &RangePlan { cursor: Some(s(200)), ..range(&job, 1, 10, 200) }).await;
    bench.store.prune(s(NEXT_DAY), 100).await.unwrap();
    assert_eq!(left(bench, &job).await, [10]);
    bench.raise(&job, bench.epoch(&job).await, Some(s(210))).await;
    bench.store.prune(s(NEXT_DAY), 100).await.unwrap();
    assert!(left(bench, &job).await.is_empty());
}

pub async fn a_deleted_job_stays_while_a_range_of_it_is_left(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(400);
    bench.range(&lease, &range(&job, 1, 10, 200)).await;
    bench.range(&lease, &range(&job, bench.epoch(&job).await, 210, 400)).await;
    bench.edit("j", Change::Delete).await;
    assert_eq!(bench.store.prune(s(NEXT_DAY), 1).await.unwrap().jobs, 0, "one range went, one is left");
    assert_eq!(bench.store.prune(s(NEXT_DAY), 1).await.unwrap().jobs, 1);
}

pub async fn the_removal_of_a_deleted_job_changes_no_other_job(bench: &Bench) {
    let (lease, deleted) = (bench.join("a", 1).await, bench.create(spec("deleted")).await);
    let other = bench.create(spec("other")).await;
    bench.edit("deleted", Change::Delete).await;
    bench.go(NEXT_DAY + 10);
    bench.range(&lease, &range(&other, 1, 10, 200)).await;
    bench.waiting(&lease, &other, 210).await;
    let epoch = bench.epoch(&other).await;
    assert_eq!(bench.store.prune(s(NEXT_DAY), 100).await.unwrap().jobs, 1);
    assert!(bench.store.load_jobs(&[deleted.id]).await.unwrap().is_empty());
    assert_eq!((bench.cursor(&other).await, bench.epoch(&other).await), (Some(s(210)), epoch));
    assert_eq!(left(bench, &other).await, [10, 210]);
}

pub async fn a_deleted_job_is_pruned_after_its_runs_have_ended(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    let lease = bench.join("a", 1).await;
    let run = bench.trigger(new_run("j", "k")).await;
    bench.edit("j", Change::Delete).await;
    bench.store.prune(s(NEXT_DAY), 100).await.unwrap();
    assert_eq!(bench.store.load_jobs(&[job.id]).await.unwrap().len(), 1, "one of its runs still waits");
    let claimed = bench.claim(&lease, run.id).await;
    bench.settle(&claimed, Verdict::Succeeded).await;
    assert_eq!(bench.run(run.id).await.state, State::Succeeded);
    bench.store.prune(START, 100).await.unwrap();
    assert_eq!(bench.store.load_jobs(&[job.id]).await.unwrap().len(), 1, "it was deleted after the limit");
    assert_eq!(bench.store.prune(s(NEXT_DAY), 100).await.unwrap().jobs, 1);
    assert!(bench.store.load_jobs(&[job.id]).await.unwrap().is_empty());
}

pub async fn only_old_idempotency_keys_are_pruned(bench: &Bench) {
    let key = |name: &str| IdempotencyKey { key: name.into(), fingerprint: [1; 32] };
    let create = async |n: u128, name: &str| {
        let job = NewJob { id: JobId::from_uuid(uuid::Uuid::from_u128(n)), spec: spec(name) };
        let created = bench.store.create_jobs(TENANT, &actor(), vec![job], Some(&key(name))).await.unwrap();
        created.into_iter().next().unwrap()
    };
    create(1, "old").await.unwrap();
    bench.go(60);
    create(2, "newer").await.unwrap();
    bench.clock.set(START.plus(IDEMPOTENCY_KEPT).plus(Span::seconds(1)));
    let pruned = bench.store.prune(START, 100).await.unwrap();
    assert_eq!(pruned.requests, 1);
    assert!(create(3, "newer").await.unwrap().replayed);
    assert!(matches!(create(4, "old").await, Err(StoreError::NameTaken(_))), "without the key it is a new request");
    assert!(matches!(bench.store.get_run(TENANT, RunId::floor(START)).await, Err(StoreError::NotFound("run"))));
}

pub async fn only_old_audit_rows_are_pruned(bench: &Bench) {
    bench.create(spec("one")).await;
    bench.create(spec("two")).await;
    bench.go(100);
    bench.edit("one", super::pause()).await;
    // The last 30 days stay where the database separates tenants.
    bench.go(31 * NEXT_DAY);
    assert_eq!(bench.store.prune_audit(s(0), 10).await.unwrap(), 0);
    assert_eq!(bench.store.prune_audit(s(50), 1).await.unwrap(), 1, "at most the limit");
    assert_eq!(bench.store.prune_audit(s(50), 10).await.unwrap(), 1);
    assert_eq!(bench.store.prune_audit(s(50), 10).await.unwrap(), 0);
    let left: Vec<_> = bench.audit().await.into_iter().map(|row| row.action).collect();
    assert_eq!(left, ["pause"]);
}
