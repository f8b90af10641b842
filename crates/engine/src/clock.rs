//! Estimates the database clock from its answers. This is the only file that reads the monotonic clock.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use everytick_domain::time::DbTime;

/// An instant on the monotonic clock of this process. It is only used to sleep and to measure durations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct MonoTime(tokio::time::Instant);

impl MonoTime {
    #[expect(clippy::disallowed_methods, reason = "the one reading of the monotonic clock")]
    pub(crate) fn now() -> Self {
        Self(tokio::time::Instant::now())
    }
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
    pub(crate) fn plus(self, wait: Duration) -> Self {
        Self(self.0 + wait)
    }
}

/// A lower bound of the database clock. The database read its clock before the answer arrived. Since then the database
/// clock has advanced at least by the time that has passed on this node. Waiting until the bound passes a tick is never
/// early, and at most one round trip late.
#[derive(Debug, Default)]
pub(crate) struct DbClock(Mutex<Option<Bound>>);

#[derive(Clone, Copy, Debug)]
struct Bound {
    reading: DbTime,
    at: MonoTime,
}

impl Bound {
    fn at(self, now: MonoTime) -> DbTime {
        self.reading.plus(now.since(self.at).into())
    }
}

impl DbClock {
    /// Applies a reading that was requested at `sent` and has just arrived.
    pub(crate) fn observe(&self, sent: MonoTime, reading: DbTime) {
        let now = MonoTime::now();
        let mut bound = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let believed = bound.map(|bound| bound.at(now));
        let newest_possible = reading.plus(now.since(sent).into());
        // Keep the highest lower bound. If it can no longer be true, the clock was set back: take the new reading.
        if believed.is_none_or(|believed| reading > believed || newest_possible < believed) {
            *bound = Some(Bound { reading, at: now });
        }
    }

    /// The database clock shows at least this time.
    pub(crate) fn now(&self) -> DbTime {
        let bound = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bound.map_or(DbTime::EPOCH, |bound| bound.at(MonoTime::now()))
    }

    /// How long to wait until the database clock has reached `at`.
    pub(crate) fn until(&self, at: DbTime) -> Duration {
        at.since(self.now()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: i64) -> DbTime {
        DbTime::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn the_lower_bound_advances_with_time_and_keeps_the_higher_of_two_readings() {
        let clock = DbClock::default();
        clock.observe(MonoTime::now(), ms(1_000));
        tokio::time::advance(Duration::from_millis(50)).await;
        assert_eq!(clock.now(), ms(1_050));
        let sent = MonoTime::now();
        tokio::time::advance(Duration::from_millis(30)).await;
        clock.observe(sent, ms(1_055)); // below the bound: ignored
        assert_eq!(clock.now(), ms(1_080));
        clock.observe(sent, ms(1_100));
        assert_eq!(clock.now(), ms(1_100));
    }

    #[tokio::test(start_paused = true)]
    async fn the_bound_follows_a_clock_that_was_set_back() {
        let clock = DbClock::default();
        clock.observe(MonoTime::now(), ms(10_000));
        clock.observe(MonoTime::now(), ms(4_000));
        assert_eq!(clock.now(), ms(4_000));
        assert_eq!(clock.until(ms(4_500)), Duration::from_millis(500));
    }
}
