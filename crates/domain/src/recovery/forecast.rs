//! What a restart would record for one job: plans all due ticks with [`plan::decide`], as a node does, and counts the results.

use std::collections::BTreeMap;

use crate::{
    job::Job,
    overlap::OpenRuns,
    plan::{self, Fate, Plan},
    run::SkipReason,
    time::DbTime,
};

/// What happens to the due, unrecorded ticks of one job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Forecast {
    /// The number of ticks.
    pub ticks: u64,
    /// The first and the last tick.
    pub span: Option<(DbTime, DbTime)>,
    /// On-time runs.
    pub on_time: u64,
    /// Late runs, chosen by catch-up.
    pub late: u64,
    pub skips: BTreeMap<SkipReason, u64>,
}

impl Forecast {
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skips.values().sum()
    }

    /// Adds the forecast of another job.
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

/// What a node that starts at `now` would record for a job, given its first unrecorded tick and its open runs. Runs count as
/// open until everything is recorded, because a node records a backlog at full speed before runs end.
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
                let Some(last) = rows.last().map(|row| row.at) else { return forecast };
                for row in &rows {
                    forecast.count(row.at, row.at, 1, row.fate);
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

    /// A job that fires each minute, not planned from second 60 to second 36,000: 600 ticks. 61 of them are within the grace of
    /// one hour; the last two of these are on time.
    #[test]
    fn every_tick_is_counted_once_by_its_fate() {
        for (catch_up, late) in [(CatchUp::None, 0), (CatchUp::Latest, 1), (CatchUp::All, 10)] {
            let mut spec = spec(Span::minutes(1));
            spec.overlap = Overlap::Allow;
            spec.misfire = Misfire { catch_up, ..Misfire::default() };
            let found = forecast(&job(spec), Some(s(60)), s(36_000), OpenRuns::NONE);
            assert_eq!((found.ticks, found.on_time, found.late), (600, 2, late));
            assert_eq!(found.span, Some((s(60), s(36_000))));
            let skips = [(SkipReason::Misfire, 539), (SkipReason::CatchUp, 59 - late)];
            assert_eq!(found.skips, BTreeMap::from(skips));
            assert_eq!(found.ticks, found.on_time + found.late + found.skipped());
        }
    }

    #[test]
    fn an_open_run_blocks_on_time_ticks_but_not_catch_up_runs() {
        let job = job(spec(Span::minutes(1)));
        let found = forecast(&job, Some(s(36_000)), s(36_030), ONE);
        assert_eq!((found.on_time, found.skips[&SkipReason::Overlap]), (0, 1));
        let found = forecast(&job, Some(s(35_940)), s(36_000), OpenRuns::NONE);
        assert_eq!((found.on_time, found.skips[&SkipReason::Overlap]), (1, 1), "the first tick blocks the second");
        let found = forecast(&job, Some(s(35_880)), s(36_000), ONE);
        assert_eq!((found.late, found.on_time, found.skips[&SkipReason::Overlap]), (1, 0, 2));
    }

    #[test]
    fn a_job_without_due_ticks_has_an_empty_forecast() {
        let mut paused = job(spec(Span::minutes(1)));
        assert_eq!(forecast(&paused, Some(s(120)), s(119), OpenRuns::NONE), Forecast::default());
        assert_eq!(forecast(&paused, None, s(119), OpenRuns::NONE), Forecast::default());
        paused.paused = Some(crate::job::Paused { at: s(0), note: None });
        assert_eq!(forecast(&paused, Some(s(60)), s(600), OpenRuns::NONE), Forecast::default());
    }

    #[test]
    fn a_sum_covers_all_its_parts() {
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
