//! Finds ticks that should be recorded and are not, because of a defect, a restored backup or manual SQL. If the cursor
//! has passed such a tick, no node will ever plan it. Otherwise the owner of the job should have recorded it.

use crate::{
    job::Job,
    plan::{self, Fate, TickRow},
    run::SkipReason,
    time::{DbTime, Span},
};

/// One walk checks at most this many ticks of a job: the newest of the ticks that must be recorded.
pub const TICKS_CHECKED_MAX: usize = 256;

/// The ticks from `from` to `to`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    pub from: DbTime,
    pub to: DbTime,
}

/// What is recorded in a window: ticks with their own rows, and ranges of skips.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    pub ticks: Vec<DbTime>,
    pub ranges: Vec<Window>,
}

impl Ledger {
    fn has(&self, tick: DbTime) -> bool {
        self.ticks.contains(&tick) || self.ranges.iter().any(|range| (range.from..=range.to).contains(&tick))
    }
}

/// The unrecorded ticks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Ticks that the cursor has passed, with the rows to record for them.
    pub passed: Vec<TickRow>,
    /// Ticks from the cursor on: the owner of the job does not record them.
    pub overdue: Vec<DbTime>,
}

impl Missing {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.passed.is_empty() && self.overdue.is_empty()
    }

    /// Every missing tick.
    pub fn ticks(&self) -> impl Iterator<Item = DbTime> + '_ {
        self.passed.iter().map(|row| row.at).chain(self.overdue.iter().copied())
    }
}

/// The ticks of the present definition that must be recorded by `now`. They are older than `margin`, because the owner
/// may still record younger ticks. They are younger than the job's grace, and than `history`, because older runs may be
/// pruned. `None` if there are none.
#[must_use]
pub fn window(job: &Job, now: DbTime, margin: Span, history: Span) -> Option<Window> {
    let schedule = job.ticking()?;
    let to = now.minus(margin);
    // Ticks before the last change belong to an older definition. The change itself recorded those that were due.
    let changed = job.updated_at.plus(Span::millis(1));
    let from = now.minus(plan::grace(job, schedule, changed, now)).max(changed).max(now.minus(history));
    let ticks = schedule.newest(from, to, TICKS_CHECKED_MAX);
    Some(Window { from: *ticks.first()?, to: *ticks.last()? })
}

/// The unrecorded ticks of the window. A tick that the cursor has passed gets the fate that it would have in a backlog.
#[must_use]
pub fn missing(job: &Job, cursor: Option<DbTime>, window: Window, ledger: &Ledger, now: DbTime) -> Missing {
    let mut missing = Missing::default();
    let Some(schedule) = job.ticking() else { return missing };
    let late_to = plan::before(now.minus(job.spec.misfire.late_after));
    let chosen = plan::chosen_by_catch_up(job, schedule, window.from, late_to);
    for tick in schedule.ticks(window.from, window.to).filter(|tick| !ledger.has(*tick)) {
        if cursor.is_none_or(|cursor| tick < cursor) {
            let fires = tick > late_to || chosen.contains(&tick);
            let fate = match schedule.excluded(tick) {
                Some(_) => Fate::Skip(SkipReason::Calendar),
                None if fires => Fate::Late,
                None => Fate::Skip(SkipReason::CatchUp),
            };
            missing.passed.push(plan::row(job.id, schedule, tick, fate));
        } else {
            missing.overdue.push(tick);
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{CatchUp, Misfire},
        plan::tests::{job, spec},
    };

    const MARGIN: Span = Span::seconds(90);
    const HISTORY: Span = Span::days(90);

    fn s(seconds: i64) -> DbTime {
        DbTime::from_millis(seconds * 1_000)
    }

    fn minutely(catch_up: CatchUp, max_runs: u32) -> Job {
        let mut spec = spec(Span::minutes(1));
        spec.misfire = Misfire { catch_up, max_runs, ..Misfire::default() };
        job(spec)
    }

    fn seconds(window: Option<Window>) -> Option<(i64, i64)> {
        window.map(|window| (window.from.millis() / 1_000, window.to.millis() / 1_000))
    }

    #[test]
    fn the_window_is_bounded_by_margin_grace_last_change_and_retention() {
        let now = s(36_000);
        let mut job = minutely(CatchUp::Latest, 1);
        assert_eq!(seconds(window(&job, now, MARGIN, HISTORY)), Some((32_400, 35_880)));
        assert_eq!(seconds(window(&job, now, MARGIN, Span::minutes(10))), Some((35_400, 35_880)));
        job.updated_at = s(35_700);
        assert_eq!(
            seconds(window(&job, now, MARGIN, HISTORY)),
            Some((35_760, 35_880)),
            "the tick at the instant of the change is not included"
        );
        job.updated_at = s(35_900);
        assert_eq!(window(&job, now, MARGIN, HISTORY), None);
        job.updated_at = s(0);
        job.deleted_at = Some(s(1));
        assert_eq!(window(&job, now, MARGIN, HISTORY), None);
    }

    #[test]
    fn only_the_newest_ticks_are_checked() {
        let job = job(spec(Span::seconds(1)));
        let window = window(&job, s(36_000), MARGIN, HISTORY).unwrap();
        assert_eq!(seconds(Some(window)), Some((35_910 - TICKS_CHECKED_MAX as i64 + 1, 35_910)));
    }

    #[test]
    fn a_daily_job_is_checked_for_a_day() {
        let daily = job(spec(Span::days(1)));
        assert_eq!(seconds(window(&daily, s(86_400 + 80_000), MARGIN, HISTORY)), Some((86_400, 86_400)));
    }

    #[test]
    fn ticks_without_a_row_or_a_range_are_missing() {
        let (job, now) = (minutely(CatchUp::None, 1), s(6_000));
        let window = Window { from: s(5_400), to: s(5_880) };
        let ledger = Ledger {
            ticks: vec![s(5_400), s(5_880)],
            ranges: vec![Window { from: s(5_460), to: s(5_520) }, Window { from: s(5_700), to: s(5_820) }],
        };
        let found = missing(&job, Some(s(5_640)), window, &ledger, now);
        let passed: Vec<_> = found.passed.iter().map(|row| (row.at, row.fate)).collect();
        assert_eq!(passed, [(s(5_580), Fate::Skip(SkipReason::CatchUp))]);
        assert_eq!(found.overdue, [s(5_640)]);
        assert_eq!(found.ticks().collect::<Vec<_>>(), [s(5_580), s(5_640)]);
        let ended = missing(&job, None, window, &ledger, now);
        assert_eq!((ended.passed.len(), ended.overdue.len()), (2, 0), "a schedule that ended has passed all ticks");
    }

    #[test]
    fn a_passed_tick_fires_if_it_would_fire_in_a_backlog() {
        let (now, window) = (s(6_000), Window { from: s(5_700), to: s(5_880) });
        let fired = |job: &Job| -> Vec<i64> {
            let found = missing(job, Some(s(6_060)), window, &Ledger::default(), now);
            assert_eq!(found.passed.len(), 4);
            let late = found.passed.iter().filter(|row| row.fate == Fate::Late);
            late.map(|row| row.at.millis() / 1_000).collect()
        };
        assert!(fired(&minutely(CatchUp::None, 9)).is_empty());
        assert_eq!(fired(&minutely(CatchUp::Latest, 9)), [5_880]);
        assert_eq!(fired(&minutely(CatchUp::All, 2)), [5_820, 5_880]);
        let mut patient = spec(Span::minutes(1));
        patient.misfire = Misfire { late_after: Span::seconds(240), catch_up: CatchUp::None, ..Misfire::default() };
        assert_eq!(fired(&job(patient)), [5_760, 5_820, 5_880], "these are still on time");
    }

    #[test]
    fn nothing_is_missing_from_a_full_ledger() {
        let job = minutely(CatchUp::All, 9);
        let window = Window { from: s(5_400), to: s(5_880) };
        let ledger = Ledger { ticks: (0..9).map(|n| s(5_400 + 60 * n)).collect(), ranges: Vec::new() };
        assert!(missing(&job, Some(s(5_940)), window, &ledger, s(6_000)).is_empty());
    }
}
