//! After a gap of years, queries cost as little as after a minute.

use std::time::{Duration, Instant};

use everytick_domain::{
    schedule::{Schedule, ScheduleSpec},
    time::DbTime,
};

use crate::{at, cron};

/// These queries take microseconds. The limit detects a hang or a walk over ten years of seconds, also on a busy machine.
/// Benchmarks measure speed.
const HANG: Duration = Duration::from_secs(5);

#[test]
fn ten_years_of_seconds_are_counted_without_a_walk() {
    let (from, to) = (at("2016-01-01T00:00:00Z"), at("2025-12-31T23:59:59Z"));
    for zone in ["UTC", "America/New_York", "Australia/Lord_Howe"] {
        let schedule = cron("* * * * * *", zone).unwrap();
        let (count, took) = timed(|| schedule.count(from, to));
        assert_eq!(count, 3_653 * 86_400, "{zone}");
        assert!(took < HANG, "{zone}: {took:?}");
        let (newest, took) = timed(|| schedule.newest(from, to, 3));
        assert_eq!(newest, [at("2025-12-31T23:59:57Z"), at("2025-12-31T23:59:58Z"), to], "{zone}");
        assert!(took < HANG, "{zone}: {took:?}");
    }
}

#[test]
fn the_whole_time_range_can_be_counted() {
    let every = Schedule::compile(&ScheduleSpec::every("1s").unwrap().into()).unwrap();
    assert_eq!(every.count(DbTime::EPOCH, DbTime::MAX), 253_402_207_200);
    assert_eq!(every.last_up_to(DbTime::EPOCH, DbTime::MAX), Some(DbTime::from_millis(253_402_207_199_000)));
    let schedule = cron("* * * * * *", "America/New_York").unwrap();
    assert_eq!(schedule.count(DbTime::EPOCH, DbTime::MAX), 253_402_207_200);
}

#[test]
fn a_sparse_schedule_skips_years_at_a_time() {
    for expression in ["0 0 29 2 *", "0 0 29 2 +MON", "0 0 0 1 1 * 9999", "0 0 0 1 1 * 1999"] {
        let schedule = cron(expression, "America/New_York").unwrap();
        let from = at("2025-01-01T00:00:00Z");
        let ((), took) = timed(|| {
            for _ in 0..100 {
                std::hint::black_box(schedule.next_after(from));
            }
        });
        assert!(took < HANG, "{expression}: {took:?} for 100");
    }
}

#[allow(clippy::disallowed_methods)] // only measures; no decision depends on it
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let done = work();
    (done, began.elapsed())
}
