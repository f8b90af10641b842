//! Cursors are raised only under the current epoch and never lowered.

use everytick_domain::ids::{Epoch, JobId};

use super::{Bench, s, spec};
use crate::Raise;

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_cursors {
    ($open:path) => {
        $crate::conformance_group! { $open, cursors:
            a_cursor_is_raised,
            a_cursor_is_never_lowered,
            a_cursor_is_not_raised_under_another_epoch,
            a_cursor_raised_to_no_next_tick_stays_there,
            a_batch_of_raises_returns_the_jobs_whose_cursor_reached_the_value,
        }
    };
}

pub async fn a_cursor_is_raised(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    assert_eq!(bench.raise(&job, 1, Some(s(50))).await, [job.id]);
    assert_eq!(bench.cursor(&job).await, Some(s(50)));
    assert_eq!(bench.epoch(&job).await, 1, "raising a cursor is not a change of the job");
}

pub async fn a_cursor_is_never_lowered(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.raise(&job, 1, Some(s(50))).await;
    assert_eq!(bench.raise(&job, 1, Some(s(20))).await, [job.id], "the cursor is already beyond the requested value");
    assert_eq!(bench.raise(&job, 1, Some(s(50))).await, [job.id]);
    assert_eq!(bench.cursor(&job).await, Some(s(50)));
}

pub async fn a_cursor_is_not_raised_under_another_epoch(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    assert!(bench.raise(&job, 2, Some(s(50))).await.is_empty());
    assert!(bench.raise(&job, 0, None).await.is_empty());
    assert_eq!(bench.cursor(&job).await, Some(s(10)));
}

pub async fn a_cursor_raised_to_no_next_tick_stays_there(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    assert_eq!(bench.raise(&job, 1, None).await, [job.id]);
    assert_eq!(bench.raise(&job, 1, Some(s(50))).await, [job.id]);
    assert_eq!(bench.raise(&job, 1, None).await, [job.id]);
    assert_eq!(bench.cursor(&job).await, None);
}

pub async fn a_batch_of_raises_returns_the_jobs_whose_cursor_reached_the_value(bench: &Bench) {
    let (a, b, c) = (bench.create(spec("a")).await, bench.create(spec("b")).await, bench.create(spec("c")).await);
    bench.raise(&c, 1, Some(s(90))).await;
    let raise = |job, epoch, cursor| Raise { job, epoch: Epoch::from_raw(epoch), cursor: Some(s(cursor)) };
    let unknown = JobId::from_uuid(uuid::Uuid::from_u128(99));
    let raises = [raise(a.id, 1, 20), raise(b.id, 5, 20), raise(unknown, 1, 20), raise(c.id, 1, 20)];
    assert_eq!(bench.store.raise_cursors(&raises).await.unwrap(), [a.id, c.id]);
    let mut cursors = Vec::new();
    for job in [&a, &b, &c] {
        cursors.push(bench.cursor(job).await);
    }
    assert_eq!(cursors, [Some(s(20)), Some(s(10)), Some(s(90))]);
}
