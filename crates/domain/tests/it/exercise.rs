//! The code that the fuzzers run on a text: all that an untrusted expression can reach. No input may panic or hang, and an
//! accepted expression must keep the guarantees of a schedule.

use everytick_domain::{
    schedule::{Fold, Gap, Schedule, ScheduleSpec},
    time::DbTime,
};

pub(crate) fn exercise(expression: &str, zone: &str, after_ms: i64) {
    let (gap, fold) = match after_ms.rem_euclid(6) {
        0 => (Gap::Shift, Fold::First),
        1 => (Gap::Shift, Fold::Last),
        2 => (Gap::Shift, Fold::Both),
        3 => (Gap::Skip, Fold::First),
        4 => (Gap::Skip, Fold::Last),
        _ => (Gap::Skip, Fold::Both),
    };
    let timing = match ScheduleSpec::cron(expression, Some(zone), gap, fold, "seed") {
        Ok(timing) => timing,
        Err(wrong) => {
            assert!(!wrong.is_empty() && wrong.iter().all(|invalid| !invalid.message.is_empty()));
            return;
        }
    };
    let schedule = Schedule::compile(&timing.into()).expect("an accepted expression compiles");
    let from = DbTime::from_millis(after_ms);
    let mut last = from;
    for seen in 1..=5 {
        let Some(tick) = schedule.next_after(last) else { break };
        assert!(tick > last, "{expression:?} in {zone} goes back from {last} to {tick}");
        assert!(tick <= DbTime::MAX);
        assert_eq!(schedule.first_from(tick), Some(tick), "{expression:?} in {zone} at {tick}");
        if from >= DbTime::EPOCH {
            assert_eq!(
                schedule.count(DbTime::from_millis(after_ms + 1), tick),
                seen,
                "{expression:?} in {zone} to {tick}"
            );
            assert_eq!(schedule.last_up_to(from, tick), Some(tick), "{expression:?} in {zone} to {tick}");
        }
        last = tick;
    }
    assert!(!schedule.describe().is_empty());
    let _ = schedule.preview(from, 3);
}
