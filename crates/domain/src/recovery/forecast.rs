//! What a restart would do about one job: plays what is due with [`plan::decide`], as a node does, and counts.

use std::collections::BTreeMap;

use crate::{
    job::Job,
    overlap::OpenRuns,
    plan::{self, Fate, Plan},
    run::SkipReason,
    time::DbTime,
};

/// What becomes of the ticks of one job that are due and not on the record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forecast {
    /// All of them.
    pub ticks: u64,
    /// The first and the last of them.
    pub span: Option<(DbTime, DbTime)>,
    /// Runs that are on time.
    pub on_time: u64,
    /// Runs that catch-up chose.
    pub late: u64,
    pub skips: BTreeMap<SkipReason, u64>,
}

impl Forecast {
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skips.values().sum()
    }

    /// Adds what becomes of another job's ticks.
    pub fn add(&mut self, other: &Self) {
        self.ticks += other.ticks;
        self.on_time += other.on_time;
        self.late += other.late;
        self.span = match (self.span, other.span) {
            (Some((from, to)), Some((other_from, other_to))) => Some((from.min(other_from), to.max(other_to))),
            (span, other) => span.or(other),
        };
        for (reason, count) in &other.skips {
            *self.skips.entry(*reason).or_default() += count;
        }
    }

    fn count(&mut self, from: DbTime, to: DbTime, count: u64, fate: Fate) {
        self.ticks += count;
        self.span = Some((self.span.map_or(from, |(first, _)| first), to));
        match fate {
            Fate::Run => self.on_time += count,
            Fate::Late => self.late += count,
            Fate::Skip(reason) => *self.skips.entry(reason).or_default() += count,
        }
    }
}

/// What a node that starts at `now` would record of a job, given its first unrecorded tick and what is open of its runs.
/// Runs are taken to be open until all is recorded, as they are when a node records a backlog at full speed.
#[must_use]
pub fn forecast(job: &Job, mut next: Option<DbTime>, now: DbTime, mut open: OpenRuns) -> Forecast {
    let mut forecast = Forecast::default();
    let Some(schedule) = job.ticking() else { return forecast };
    loop {
        let last = match plan::decide(job, next, now, open) {
            Plan::Idle => return forecast,
            Plan::Range(range) => {
                forecast.count(range.from, range.to, range.count, Fate::Skip(range.reason));
                range.to
            }
            Plan::Rows(rows) => {
                let Some(last) = rows.last().map(|row| row.tick) else { return forecast };
                for row in &rows {
                    forecast.count(row.tick, row.tick, 1, row.fate);
                    open = open.and_waiting(usize::from(!matches!(row.fate, Fate::Skip(_))));
                }
                last
            }
        };
        next = schedule.next_after(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{CatchUp, Misfire, Overlap},
        plan::tests::{job, spec},
        time::Span,
    };

    const ONE: OpenRuns = OpenRuns { in_progress: 1, waiting: 0 };

    fn s(seconds: i64) -> DbTime {
        DbTime::from_millis(seconds * 1_000)
    }

    /// A minute job, silent from second 60 until second 36,000: 600 ticks, 61 of them within the hour's grace, of which the
    /// last two are on time.
    #[test]
    fn every_tick_is_counted_once_under_what_becomes_of_it() {
        for (catch_up, late) in [(CatchUp::None, 0), (CatchUp::Latest, 1), (CatchUp::All, 10)] {
            let mut spec = spec(Span::minutes(1));
            spec.overlap = Overlap::Allow;
            spec.misfire = Misfire { catch_up, ..Misfire::default() };
            let said = forecast(&job(spec), Some(s(60)), s(36_000), OpenRuns::NONE);
            assert_eq!((said.ticks, said.on_time, said.late), (600, 2, late));
            assert_eq!(said.span, Some((s(60), s(36_000))));
            let skips = [(SkipReason::Misfire, 539), (SkipReason::CatchUp, 59 - late)];
            assert_eq!(said.skips, BTreeMap::from(skips));
            assert_eq!(said.ticks, said.on_time + said.late + said.skipped());
        }
    }

    #[test]
    fn an_open_run_is_in_the_way_of_what_is_on_time_and_not_of_what_catch_up_chose() {
        let job = job(spec(Span::minutes(1)));
        let said = forecast(&job, Some(s(36_000)), s(36_030), ONE);
        assert_eq!((said.on_time, said.skips[&SkipReason::Overlap]), (0, 1));
        let said = forecast(&job, Some(s(35_940)), s(36_000), OpenRuns::NONE);
        assert_eq!((said.on_time, said.skips[&SkipReason::Overlap]), (1, 1), "the first is in the way of the second");
        let said = forecast(&job, Some(s(35_880)), s(36_000), ONE);
        assert_eq!((said.late, said.on_time, said.skips[&SkipReason::Overlap]), (1, 0, 2));
    }

    #[test]
    fn what_is_not_due_or_does_not_tick_fires_nothing() {
        let mut paused = job(spec(Span::minutes(1)));
        assert_eq!(forecast(&paused, Some(s(120)), s(119), OpenRuns::NONE), Forecast::default());
        assert_eq!(forecast(&paused, None, s(119), OpenRuns::NONE), Forecast::default());
        paused.paused = Some(crate::job::Paused { at: s(0), note: None });
        assert_eq!(forecast(&paused, Some(s(60)), s(600), OpenRuns::NONE), Forecast::default());
    }

    #[test]
    fn a_sum_covers_all_of_its_parts() {
        let job = job(spec(Span::minutes(1)));
        let mut sum = forecast(&job, Some(s(600)), s(1_200), OpenRuns::NONE);
        let other = forecast(&job, Some(s(60)), s(300), OpenRuns::NONE);
        let ticks = sum.ticks + other.ticks;
        sum.add(&other);
        sum.add(&Forecast::default());
        assert_eq!((sum.ticks, sum.span), (ticks, Some((s(60), s(1_200)))));
        assert_eq!(sum.ticks, sum.on_time + sum.late + sum.skipped());
    }
}
