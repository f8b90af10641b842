//! The rate at which a backlog starts (I14). Late runs start at most as fast as the normal rate of ticks, so the total is at
//! most twice the normal rate. Targets that can handle a normal day can then handle a recovery.

use std::time::Duration;

use crate::{
    job::Job,
    time::{DbTime, Span},
};

/// The minimum rate of late starts, even if the jobs of a node have few ticks. Otherwise a few hundred nightly jobs would
/// take days to catch up with one night. Five requests per second are a small load.
pub const LATE_STARTS_PER_SECOND_MIN: f64 = 5.0;
/// The period over which ticks are counted. It is long enough to spread jobs that all fire at the full hour, and short enough
/// to follow the difference between day and night.
const COUNTED_OVER: Span = Span::hours(1);
/// At most the starts of this many seconds are saved, so that a loop that polls rarely can use all its starts.
const SAVED_SECONDS: f64 = 1.0;

/// Starts per second.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Rate(f64);

impl Rate {
    /// The normal rate of these jobs, from their ticks in the coming hour. It is computed from the schedules and not
    /// from past runs, so a node that has just started knows it too. A backlog does not raise it.
    #[must_use]
    pub fn normal<'a>(jobs: impl IntoIterator<Item = &'a Job>, now: DbTime) -> Self {
        let (from, to) = (now.plus(Span::millis(1)), now.plus(COUNTED_OVER));
        let ticks = |job: &Job| job.ticking().map_or(0, |schedule| schedule.count(from, to));
        Self::of_ticks(jobs.into_iter().map(ticks).sum())
    }

    /// The rate of `per_hour` ticks per hour, at least the minimum.
    #[must_use]
    pub fn of_ticks(per_hour: u64) -> Self {
        let seconds = Duration::from(COUNTED_OVER).as_secs_f64();
        Self((per_hour as f64 / seconds).max(LATE_STARTS_PER_SECOND_MIN))
    }

    #[must_use]
    pub const fn per_second(self) -> f64 {
        self.0
    }

    /// How long `starts` starts take.
    #[must_use]
    pub fn time_for(self, starts: u64) -> Span {
        Span::millis((starts as f64 / self.0 * 1_000.0).ceil() as u64)
    }
}

/// The budget of late starts. It begins empty, so restarts do not add to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LateStarts {
    saved: f64,
}

impl LateStarts {
    /// Adds the starts earned in `passed` at `rate`.
    pub fn earn(&mut self, passed: Duration, rate: Rate) {
        self.saved = (self.saved + passed.as_secs_f64() * rate.0).min((rate.0 * SAVED_SECONDS).max(1.0));
    }

    #[must_use]
    pub fn budget(&self) -> usize {
        self.saved.max(0.0) as usize
    }

    pub fn spend(&mut self, starts: usize) {
        self.saved -= starts as f64;
    }

    /// How long until the budget is at least one start; zero if it is already.
    #[must_use]
    pub fn wait(&self, rate: Rate) -> Duration {
        Duration::from_secs_f64((1.0 - self.saved).max(0.0) / rate.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::tests::{job, spec};

    fn rate(periods: &[Span]) -> f64 {
        let jobs: Vec<_> = periods.iter().map(|period| job(spec(*period))).collect();
        Rate::normal(&jobs, DbTime::from_millis(1_794_787_200_000)).per_second()
    }

    #[test]
    fn the_normal_rate_follows_the_schedules_and_has_a_minimum() {
        for (periods, expected) in [
            (vec![], LATE_STARTS_PER_SECOND_MIN),
            (vec![Span::days(1); 300], LATE_STARTS_PER_SECOND_MIN),
            (vec![Span::seconds(1); 8], 8.0),
            (vec![Span::minutes(1); 1_200], 20.0),
            ([vec![Span::seconds(1); 6], vec![Span::hours(1); 7_200]].concat(), 8.0),
        ] {
            assert_eq!(rate(&periods), expected, "{} jobs", periods.len());
        }
    }

    #[test]
    fn paused_jobs_do_not_count_for_the_rate() {
        let mut paused = job(spec(Span::seconds(1)));
        paused.paused = Some(crate::job::Paused { at: DbTime::EPOCH, note: None });
        let jobs = vec![paused; 100];
        assert_eq!(Rate::normal(&jobs, DbTime::EPOCH).per_second(), LATE_STARTS_PER_SECOND_MIN);
    }

    #[test]
    fn the_time_for_a_backlog_follows_from_its_rate() {
        assert_eq!(Rate::of_ticks(0).time_for(0), Span::ZERO);
        assert_eq!(Rate::of_ticks(0).time_for(1_000), Span::seconds(200));
        assert_eq!(Rate::of_ticks(36_000).time_for(1), Span::millis(100));
    }

    #[test]
    fn a_new_node_has_no_budget_for_late_starts() {
        let (mut starts, rate) = (LateStarts::default(), Rate::of_ticks(0));
        assert_eq!((starts.budget(), starts.wait(rate)), (0, Duration::from_millis(200)));
        starts.earn(starts.wait(rate), rate);
        assert_eq!((starts.budget(), starts.wait(rate)), (1, Duration::ZERO));
    }

    proptest! {
        /// Whatever the pauses between polls, no interval has more starts than the rate allows, plus the starts of one
        /// second that were saved before it.
        #[test]
        fn no_interval_has_more_starts_than_its_rate_allows(
            pauses in proptest::collection::vec(0_u64..5_000, 1..60),
            per_hour in 0_u64..400_000,
        ) {
            let (mut starts, rate) = (LateStarts::default(), Rate::of_ticks(per_hour));
            let mut passes = Vec::new();
            for pause in &pauses {
                starts.earn(Duration::from_millis(*pause), rate);
                let budget = starts.budget();
                starts.spend(budget);
                passes.push((*pause, budget));
            }
            for from in 0..passes.len() {
                let (mut passed, mut started) = (0.0, 0_usize);
                for (pass, (pause, budget)) in passes.iter().enumerate().skip(from) {
                    // An interval begins with a poll, not with the pause before it.
                    passed += if pass == from { 0.0 } else { *pause as f64 / 1_000.0 };
                    started += budget;
                    prop_assert!(started as f64 <= rate.per_second() * (passed + SAVED_SECONDS) + 1e-6);
                }
            }
        }

        /// After the computed wait there is a budget, so a backlog drains.
        #[test]
        fn after_the_wait_there_is_a_budget(spent in 0_usize..500, per_hour in 0_u64..400_000) {
            let (mut starts, rate) = (LateStarts::default(), Rate::of_ticks(per_hour));
            starts.earn(Duration::from_secs(9), rate);
            starts.spend(spent.min(starts.budget()));
            starts.earn(starts.wait(rate) + Duration::from_micros(1), rate);
            prop_assert!(starts.budget() >= 1);
        }
    }
}
