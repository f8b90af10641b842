//! Ticks that calendars exclude. They remain ticks: each is recorded as a skip.

use super::Schedule;
use crate::{
    calendar::{Excluded, Exclusion},
    time::{DbTime, Span},
};

/// How many excluded periods a search for the next firing tick skips. If all ticks of a schedule lie on excluded dates, the
/// search gives up after this many.
const PERIODS_SKIPPED_MAX: usize = 100;

impl Schedule {
    /// Adds the calendars that the schedule names.
    #[must_use]
    pub fn excluding(mut self, exclusion: Exclusion) -> Self {
        self.exclusion = exclusion;
        self
    }

    /// The calendar that excludes a tick.
    #[must_use]
    pub fn excluded(&self, tick: DbTime) -> Option<Excluded<'_>> {
        self.exclusion.of(tick)
    }

    /// The last instant of the excluded period that starts at `tick`, at most `to`; `None` if the tick fires.
    pub(crate) fn excluded_through(&self, tick: DbTime, to: DbTime) -> Option<DbTime> {
        self.exclusion.excluded_through(tick, to)
    }

    /// The last instant before the next excluded one, for a tick that fires; at most `to`.
    pub(crate) fn free_through(&self, tick: DbTime, to: DbTime) -> DbTime {
        self.exclusion.next_from(tick, to).map_or(to, |excluded| excluded.minus(Span::millis(1)))
    }

    /// The newest `n` ticks in `from..=to` that are not excluded, in ascending order.
    pub(crate) fn newest_free(&self, from: DbTime, to: DbTime, n: usize) -> Vec<DbTime> {
        let (mut found, mut high) = (Vec::with_capacity(n.min(64)), to);
        'periods: while found.len() < n && high >= from {
            let ticks = self.newest(from, high, n - found.len());
            for tick in ticks.into_iter().rev() {
                if let Some(since) = self.exclusion.excluded_since(tick, from) {
                    high = since.minus(Span::millis(1));
                    continue 'periods;
                }
                found.push(tick);
            }
            break;
        }
        found.reverse();
        found
    }

    /// The first tick at or after `from` that is not excluded.
    #[must_use]
    pub fn first_free_from(&self, from: DbTime) -> Option<DbTime> {
        let mut tick = self.first_from(from)?;
        for _ in 0..PERIODS_SKIPPED_MAX {
            match self.exclusion.excluded_through(tick, DbTime::MAX) {
                None => return Some(tick),
                Some(through) => tick = self.next_after(through)?,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        calendar::{Calendar, CalendarSpec, CalendarVersion},
        ids::Version,
        schedule::{Fold, Gap, ScheduleSpec},
    };

    fn at(text: &str) -> DbTime {
        text.parse().unwrap()
    }

    fn schedule(cron: &str, dates: &[&str]) -> Schedule {
        let timing = ScheduleSpec::cron(cron, None, Gap::Shift, Fold::First, "").unwrap();
        let dates = dates.iter().map(|text| text.parse().unwrap()).collect();
        let spec = CalendarSpec::new("UTC", dates, vec![]).unwrap();
        let version = CalendarVersion::new(Version::from_raw(1), DbTime::EPOCH, &spec).unwrap();
        let calendar = Arc::new(Calendar::new("c", vec![version]).unwrap());
        Schedule::compile(&timing.into()).unwrap().excluding(Exclusion::new(vec![calendar]))
    }

    #[test]
    fn the_newest_firing_ticks_skip_excluded_dates() {
        let hourly = schedule("0 * * * *", &["2026-12-25/2026-12-26"]);
        let newest = |n| hourly.newest_free(at("2026-12-24T20:00:00Z"), at("2026-12-27T01:30:00Z"), n);
        assert_eq!(newest(1), [at("2026-12-27T01:00:00Z")]);
        assert_eq!(newest(3), [at("2026-12-24T23:00:00Z"), at("2026-12-27T00:00:00Z"), at("2026-12-27T01:00:00Z")]);
        assert_eq!(newest(100).len(), 6);
        assert_eq!(hourly.newest_free(at("2026-12-25T05:00:00Z"), at("2026-12-26T05:00:00Z"), 5), []);
    }

    #[test]
    fn the_next_firing_tick_comes_after_the_excluded_dates() {
        let hourly = schedule("0 * * * *", &["2026-12-25/2026-12-26"]);
        assert_eq!(hourly.first_free_from(at("2026-12-24T23:30:00Z")), Some(at("2026-12-27T00:00:00Z")));
        assert_eq!(hourly.first_free_from(at("2026-12-24T22:30:00Z")), Some(at("2026-12-24T23:00:00Z")));
        let once = schedule("0 0 12 25 12 * 2026", &["2026-12-25"]);
        assert_eq!(once.first_free_from(at("2026-12-24T23:30:00Z")), None);
    }
}
