//! Ranges of skips are written only together with the cursor that passes them.

use everytick_domain::{
    ids::{Cause, Epoch, JobId, RunId},
    plan::Fate,
    run::{SkipReason, State},
};

use super::{Bench, TTL, incarnation, new_run, raised, range, s, spec, tick, ticks};
use crate::{ChangeMark, NodeInfo, RangeAnswer, RangePlan, RowAnswer, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_ranges {
    ($open:path) => {
        $crate::conformance_group! { $open, ranges:
            a_range_is_written_with_the_cursor_that_passes_it_and_raises_the_epoch,
            a_range_is_stale_when_the_cursor_has_changed,
            a_range_is_stale_when_the_epoch_has_changed,
            a_range_that_ends_in_the_future_is_stale,
            a_range_is_stale_when_one_of_its_ticks_has_a_row,
            a_triggered_run_does_not_make_a_range_stale,
            a_range_of_an_unknown_job_is_stale,
            a_lost_lease_records_no_range,
            ticks_planned_before_a_range_are_stale_after_it,
            a_range_may_end_the_schedule,
        }
    };
}

pub async fn a_range_is_written_with_the_cursor_that_passes_it_and_raises_the_epoch(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    let mark = bench.store.changes(&bench.all(), ChangeMark::default(), 10).await.unwrap().mark;
    bench.go(400);
    let answer = bench.range(&lease, &range(&job, 1, 10, 200)).await;
    assert_eq!(answer, RangeAnswer::Recorded { epoch: Epoch::from_raw(raised(s(400))) });
    let loaded = bench.load(&job).await;
    assert_eq!((loaded.epoch.raw(), loaded.cursor), (raised(s(400)), Some(s(210))));
    assert_eq!(bench.store.changes(&bench.all(), mark, 10).await.unwrap().jobs.len(), 1);
    let history = bench.history(&job).await;
    assert_eq!(history.len(), 1);
    let run = &history[0];
    assert_eq!(run.id, RunId::of(job.id, Cause::Range { from: s(10) }));
    assert_eq!(
        (run.state, run.skip_reason, run.finished_at),
        (State::Skipped, Some(SkipReason::Misfire), Some(s(400)))
    );
    assert_eq!(run.range, Some(range(&job, 1, 10, 200).range));
}

async fn is_stale(bench: &Bench, lease: &crate::Lease, plan: &RangePlan) {
    let before = bench.store.load_jobs(&[plan.job]).await.unwrap().first().map(|job| (job.epoch, job.cursor));
    assert_eq!(bench.range(lease, plan).await, RangeAnswer::Stale);
    let after = bench.store.load_jobs(&[plan.job]).await.unwrap().first().map(|job| (job.epoch, job.cursor));
    assert_eq!(before, after);
    let id = RunId::of(plan.job, Cause::Range { from: plan.range.from });
    assert!(matches!(bench.store.get_run(plan.tenant, id).await, Err(StoreError::NotFound("run"))));
}

pub async fn a_range_is_stale_when_the_cursor_has_changed(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(400);
    is_stale(bench, &lease, &range(&job, 1, 20, 200)).await;
    bench.raise(&job, 1, Some(s(20))).await;
    is_stale(bench, &lease, &range(&job, 1, 10, 200)).await;
}

pub async fn a_range_is_stale_when_the_epoch_has_changed(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(400);
    is_stale(bench, &lease, &range(&job, 2, 10, 200)).await;
}

pub async fn a_range_that_ends_in_the_future_is_stale(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(199);
    is_stale(bench, &lease, &range(&job, 1, 10, 200)).await;
    bench.go(200);
    assert!(matches!(bench.range(&lease, &range(&job, 1, 10, 200)).await, RangeAnswer::Recorded { .. }));
}

pub async fn a_range_is_stale_when_one_of_its_ticks_has_a_row(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    for (name, recorded) in [("first", 10), ("middle", 100), ("last", 200)] {
        let job = bench.create(spec(name)).await;
        bench.go(400);
        bench.waiting(&lease, &job, recorded).await;
        is_stale(bench, &lease, &range(&job, 1, 10, 200)).await;
        bench.go(0);
    }
}

pub async fn a_triggered_run_does_not_make_a_range_stale(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(50);
    bench.trigger(new_run("j", "k")).await;
    bench.go(400);
    assert!(matches!(bench.range(&lease, &range(&job, 1, 10, 200)).await, RangeAnswer::Recorded { .. }));
    assert_eq!(bench.history(&job).await.len(), 2);
}

pub async fn a_range_of_an_unknown_job_is_stale(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(400);
    let plan = RangePlan { job: JobId::from_uuid(uuid::Uuid::from_u128(99)), ..range(&job, 1, 10, 200) };
    is_stale(bench, &lease, &plan).await;
}

pub async fn a_lost_lease_records_no_range(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    let job = bench.create(spec("j")).await;
    bench.go(400);
    let answer = bench.store.record_range(&lease, &range(&job, 1, 10, 200)).await;
    assert!(matches!(answer, Err(StoreError::LeaseLost)), "{answer:?}");
    assert_eq!(bench.cursor(&job).await, Some(s(10)));
}

pub async fn ticks_planned_before_a_range_are_stale_after_it(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(400);
    bench.range(&lease, &range(&job, 1, 10, 200)).await;
    let after = bench.epoch(&job).await;
    for (epoch, seconds) in [(1, 100), (1, 210), (after, 100)] {
        let rows = vec![tick(&job, seconds, Fate::Run)];
        assert_eq!(bench.record(&lease, ticks(&job, epoch, rows)).await, [RowAnswer::Stale]);
    }
    assert_eq!(bench.range(&lease, &range(&job, 1, 10, 200)).await, RangeAnswer::Stale);
    assert_eq!(bench.record(&lease, ticks(&job, after, vec![tick(&job, 210, Fate::Run)])).await, [RowAnswer::Inserted]);
}

pub async fn a_range_may_end_the_schedule(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(400);
    bench.range(&lease, &RangePlan { cursor: None, ..range(&job, 1, 10, 200) }).await;
    assert_eq!(bench.cursor(&job).await, None);
    let after = bench.epoch(&job).await;
    assert_eq!(bench.record(&lease, ticks(&job, after, vec![tick(&job, 210, Fate::Run)])).await, [RowAnswer::Stale]);
}
