//! Plans what to record next for one job, from its first unrecorded tick and the current time. Every tick gets a run or a skip
//! with its reason. The next tick is always computed from the previous one, never from the current time (I3). The caller
//! commits the plan.

use crate::{
    ids::{Cause, JobId, RunId},
    job::{CatchUp, Job, Overlap},
    mutant::Mutant,
    overlap::{Admission, OpenRuns, admit},
    run::SkipReason,
    schedule::Schedule,
    time::{DbTime, Span},
};

/// This many skipped ticks in a row, or more, are recorded as one range. Fewer get a row each, which needs no lock.
pub const RANGE_TICKS_MIN: u64 = 16;
/// One statement contains at most this many ticks of one job.
pub const TICKS_PER_PLAN_MAX: usize = 64;
/// The default grace is one period of the job, but at least this long.
pub const GRACE_MIN: Span = Span::hours(1);

/// What to record now for one job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// No tick is due.
    Idle,
    /// Rows under the ids of their ticks, in order. Inserting a row again does nothing.
    Rows(Vec<TickRow>),
    /// A long range of skips. It has no tick id, so it is written together with the cursor that passes it.
    Range(SkipRange),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TickRow {
    pub id: RunId,
    /// The instant of the tick.
    pub at: DbTime,
    /// The tick plus the job's jitter. No delivery starts before it.
    pub due_at: DbTime,
    pub fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// On time: starts now.
    Run,
    /// Chosen by catch-up: starts after on-time runs, one after another.
    Late,
    Skip(SkipReason),
}

/// The ticks `from` to `to`, both included, that have no rows of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SkipRange {
    pub from: DbTime,
    pub to: DbTime,
    pub count: u64,
    pub reason: SkipReason,
}

/// Decides what to record for `job` at `now`, given its first unrecorded tick and its open runs. The caller commits the plan
/// and calls again from the tick after it, until the plan is `Idle`.
#[must_use]
pub fn decide(job: &Job, next: Option<DbTime>, now: DbTime, open: OpenRuns) -> Plan {
    let (Some(schedule), Some(next)) = (job.ticking(), next.filter(|tick| *tick <= now)) else { return Plan::Idle };
    // An excluded tick is a skip with reason `calendar`, even if it is late. It does not affect other ticks.
    if let Some(through) = schedule.excluded_through(next, now) {
        return skipped(job.id, schedule, next, through, SkipReason::Calendar);
    }
    // The instants after `free_to` are excluded. Their ticks are planned once the ticks up to `free_to` are recorded.
    let free_to = schedule.free_through(next, now);
    let misfire = job.spec.misfire;
    let on_time_from = now.minus(misfire.late_after);
    if next >= on_time_from {
        return on_time(job, schedule, next, (free_to, now), open);
    }

    let late_to = before(on_time_from);
    let stale_to = before(now.minus(grace(job, schedule, next, now))).min(late_to);
    if next <= stale_to {
        return skipped(job.id, schedule, next, stale_to.min(free_to), SkipReason::Misfire);
    }
    match chosen_by_catch_up(job, schedule, next, late_to).first() {
        Some(first) if *first == next => {
            let ticks = schedule.ticks(next, late_to.min(free_to));
            Plan::Rows(ticks.map(|tick| row(job.id, schedule, tick, Fate::Late)).collect())
        }
        Some(first) => skipped(job.id, schedule, next, before(*first).min(free_to), SkipReason::CatchUp),
        None => skipped(job.id, schedule, next, late_to.min(free_to), SkipReason::CatchUp),
    }
}

/// The late ticks in `from..=to` that catch-up chooses, in order. Excluded ticks are never chosen.
pub(crate) fn chosen_by_catch_up(job: &Job, schedule: &Schedule, from: DbTime, to: DbTime) -> Vec<DbTime> {
    match job.spec.misfire.catch_up {
        CatchUp::None => Vec::new(),
        CatchUp::Latest => schedule.newest_free(from, to, 1),
        CatchUp::All => schedule.newest_free(from, to, job.spec.misfire.max_runs as usize),
    }
}

/// Plans the ticks from `next` on, none of which is late; those up to `free_to` are not excluded. If the policy allows one run
/// in progress, the newest due tick runs and the older ones are skips. Otherwise the choice would depend on the millisecond at
/// which the previous run ends.
fn on_time(job: &Job, schedule: &Schedule, next: DbTime, (free_to, now): (DbTime, DbTime), open: OpenRuns) -> Plan {
    let rows = |to: DbTime, fate: Fate| {
        let ticks = schedule.ticks(next, to).take(TICKS_PER_PLAN_MAX);
        Plan::Rows(ticks.map(|tick| row(job.id, schedule, tick, fate)).collect())
    };
    if job.spec.in_progress_max().is_none() {
        return rows(free_to, Fate::Run);
    }
    let skip = Fate::Skip(SkipReason::Overlap);
    let newest = match job.spec.overlap {
        _ if Mutant::OldestTickRuns.is_on() => next,
        Overlap::Skip | Overlap::CancelPrevious => schedule.newest_free(next, now, 1).pop().unwrap_or(next),
        Overlap::Queue { .. } | Overlap::Allow => next,
    };
    match admit(&job.spec, open) {
        Admission::Skip => rows(newest.min(free_to), skip),
        Admission::Start | Admission::Wait if next < newest => rows(before(newest).min(free_to), skip),
        // Whether the next tick overlaps is known only after this one is recorded: plan one at a time.
        Admission::Start | Admission::Wait => rows(next, Fate::Run),
    }
}

fn skipped(job: JobId, schedule: &Schedule, from: DbTime, to: DbTime, reason: SkipReason) -> Plan {
    let to = schedule.last_up_to(from, to).unwrap_or(from);
    let count = schedule.count(from, to);
    if count >= RANGE_TICKS_MIN {
        return Plan::Range(SkipRange { from, to, count, reason });
    }
    Plan::Rows(schedule.ticks(from, to).map(|tick| row(job, schedule, tick, Fate::Skip(reason))).collect())
}

pub(crate) fn row(job: JobId, schedule: &Schedule, tick: DbTime, fate: Fate) -> TickRow {
    TickRow { id: RunId::of(job, Cause::Tick(tick)), at: tick, due_at: schedule.due_at(job, tick), fate }
}

pub(crate) fn grace(job: &Job, schedule: &Schedule, next: DbTime, now: DbTime) -> Span {
    job.spec.misfire.grace.unwrap_or_else(|| {
        let newest = schedule.last_up_to(next, now).unwrap_or(next);
        schedule.period_at(newest).unwrap_or(GRACE_MIN).max(GRACE_MIN)
    })
}

pub(crate) fn before(at: DbTime) -> DbTime {
    at.minus(Span::millis(1))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        ids::{TenantId, Version},
        job::{JobSpec, Misfire},
        schedule::Timing,
        target::{Command, ShellTarget, TargetSpec},
    };

    pub(crate) fn spec(every: Span) -> JobSpec {
        let target = TargetSpec::Shell(ShellTarget {
            command: Command::Argv(vec!["true".into()]),
            env: Default::default(),
            workdir: None,
        });
        let schedule = Some(Timing::Every { every }.into());
        JobSpec { schedule, ..JobSpec::new("j", target) }
    }

    pub(crate) fn job(spec: JobSpec) -> Job {
        Job {
            id: JobId::from_uuid(uuid::Uuid::from_u128(1)),
            tenant: TenantId::DEFAULT,
            partition: 0,
            version: Version::from_raw(1),
            schedule: Some(Schedule::compile(spec.schedule.as_ref().unwrap()).unwrap()),
            spec: Arc::new(spec),
            created_at: DbTime::EPOCH,
            created_by: "test".into(),
            updated_at: DbTime::EPOCH,
            paused: None,
            deleted_at: None,
        }
    }

    fn s(seconds: i64) -> DbTime {
        DbTime::from_millis(seconds * 1_000)
    }

    /// Plans all due ticks, as the engine does, and returns (first tick, last tick, count, fate) in order.
    fn plan_all(job: &Job, mut next: Option<DbTime>, now: DbTime, mut open: usize) -> Vec<(i64, i64, u64, Fate)> {
        let schedule = job.schedule.as_ref().unwrap();
        let mut out = Vec::new();
        loop {
            match decide(job, next, now, OpenRuns { in_progress: open, waiting: 0 }) {
                Plan::Idle => return out,
                Plan::Range(r) => {
                    out.push((r.from.millis() / 1_000, r.to.millis() / 1_000, r.count, Fate::Skip(r.reason)));
                    next = schedule.next_after(r.to);
                }
                Plan::Rows(rows) => {
                    for row in &rows {
                        out.push((row.at.millis() / 1_000, row.at.millis() / 1_000, 1, row.fate));
                        open += usize::from(!matches!(row.fate, Fate::Skip(_)));
                    }
                    next = schedule.next_after(rows.last().unwrap().at);
                }
            }
        }
    }

    #[test]
    fn an_on_time_tick_runs_or_is_skipped_for_overlap_while_a_run_is_open() {
        let job = job(spec(Span::seconds(10)));
        assert_eq!(decide(&job, Some(s(20)), s(19), OpenRuns::NONE), Plan::Idle);
        assert_eq!(plan_all(&job, Some(s(20)), s(20), 0), [(20, 20, 1, Fate::Run)]);
        assert_eq!(plan_all(&job, Some(s(20)), s(20), 1), [(20, 20, 1, Fate::Skip(SkipReason::Overlap))]);
    }

    #[test]
    fn overlap_allow_runs_up_to_max_concurrent() {
        let mut spec = spec(Span::seconds(10));
        spec.overlap = Overlap::Allow;
        spec.max_concurrent = Some(2);
        let fates: Vec<_> = plan_all(&job(spec.clone()), Some(s(10)), s(30), 0).into_iter().map(|row| row.3).collect();
        assert_eq!(fates, [Fate::Run, Fate::Run, Fate::Skip(SkipReason::Overlap)]);
        spec.max_concurrent = None;
        assert_eq!(plan_all(&job(spec), Some(s(10)), s(30), 7).iter().filter(|row| row.3 == Fate::Run).count(), 3);
    }

    /// Ticks every 10 s; those at 10 to 60 s are due together and none of them is late.
    #[test]
    fn of_ticks_due_together_only_the_newest_runs_if_one_run_is_allowed() {
        const SKIP: Fate = Fate::Skip(SkipReason::Overlap);
        let queue = |limit| Overlap::Queue { limit };
        for (overlap, open, fates) in [
            (Overlap::Skip, 0, [SKIP, SKIP, SKIP, SKIP, SKIP, Fate::Run]),
            (Overlap::Skip, 1, [SKIP; 6]),
            (Overlap::CancelPrevious, 0, [SKIP, SKIP, SKIP, SKIP, SKIP, Fate::Run]),
            (Overlap::CancelPrevious, 1, [SKIP, SKIP, SKIP, SKIP, SKIP, Fate::Run]),
            (queue(100), 0, [Fate::Run; 6]),
            (queue(100), 1, [Fate::Run; 6]),
            (Overlap::Allow, 0, [Fate::Run; 6]),
            (Overlap::Allow, 5, [Fate::Run; 6]),
        ] {
            let mut spec = spec(Span::seconds(10));
            (spec.overlap, spec.misfire.late_after) = (overlap, Span::minutes(1));
            let rows = plan_all(&job(spec), Some(s(10)), s(60), open);
            assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [10, 20, 30, 40, 50, 60], "{overlap:?}");
            assert_eq!(rows.iter().map(|row| row.3).collect::<Vec<_>>(), fates, "{overlap:?} with {open} open");
        }
    }

    /// A run that is open at the first statement may have ended at the second, so skips and the run are recorded separately.
    #[test]
    fn older_ticks_are_recorded_in_an_earlier_statement_than_the_newest() {
        let job = job(spec(Span::seconds(10)));
        let Plan::Rows(rows) = decide(&job, Some(s(10)), s(40), OpenRuns::NONE) else { panic!("rows") };
        assert_eq!(rows.iter().map(|row| row.at).collect::<Vec<_>>(), [s(10), s(20), s(30)]);
        let Plan::Rows(rows) = decide(&job, Some(s(40)), s(40), OpenRuns::NONE) else { panic!("rows") };
        assert_eq!(rows.iter().map(|row| (row.at, row.fate)).collect::<Vec<_>>(), [(s(40), Fate::Run)]);
    }

    /// A job that fires each minute, not planned from second 60 to second 36,000: 600 ticks. Those from 32,400 on are within
    /// the grace of one hour.
    #[test]
    fn a_long_gap_becomes_a_misfire_range_a_catch_up_range_and_the_chosen_runs() {
        for (catch_up, max_runs, chosen) in [(CatchUp::None, 10, 0), (CatchUp::Latest, 10, 1), (CatchUp::All, 3, 3)] {
            let mut spec = spec(Span::minutes(1));
            spec.misfire = Misfire { catch_up, max_runs, ..Misfire::default() };
            spec.overlap = Overlap::Allow;
            let rows = plan_all(&job(spec), Some(s(60)), s(36_000), 0);
            assert_eq!(rows[0], (60, 32_340, 539, Fate::Skip(SkipReason::Misfire)));
            assert_eq!(rows[1], (32_400, 35_880 - 60 * chosen, 59 - chosen as u64, Fate::Skip(SkipReason::CatchUp)));
            let late: Vec<_> = rows.iter().filter(|row| row.3 == Fate::Late).map(|row| row.0).collect();
            assert_eq!(late, (1..=chosen).rev().map(|n| 35_880 + 60 - 60 * n).collect::<Vec<_>>());
            let on_time: Vec<_> = rows.iter().filter(|row| row.3 == Fate::Run).map(|row| row.0).collect();
            assert_eq!(on_time, [35_940, 36_000]);
            assert_eq!(rows.iter().map(|row| row.2).sum::<u64>(), 600, "every tick is recorded once");
        }
    }

    /// Days 10 to 12 and 14 are excluded from an hourly schedule that was not planned from day 9 to noon of day 14.
    #[test]
    fn an_excluded_tick_is_a_calendar_skip_however_late_it_is() {
        use crate::calendar::{Calendar, CalendarSpec, CalendarVersion, Exclusion};
        let dates = ["1970-01-11/1970-01-13", "1970-01-15"].map(|text| text.parse().unwrap());
        let calendar = CalendarSpec::new("UTC", dates.into(), vec![]).unwrap();
        let version = CalendarVersion::new(Version::from_raw(1), DbTime::EPOCH, &calendar).unwrap();
        let exclusion = Exclusion::new(vec![Arc::new(Calendar::new("c", vec![version]).unwrap())]);
        let excluding = |spec: JobSpec| {
            let mut job = job(spec);
            job.schedule = job.schedule.map(|schedule| schedule.excluding(exclusion.clone()));
            job
        };
        let day = |day: i64, hour: i64| day * 86_400 + hour * 3_600;
        for (catch_up, late) in [(CatchUp::None, vec![]), (CatchUp::Latest, vec![day(13, 23)]), (CatchUp::All, vec![])]
        {
            let mut spec = spec(Span::hours(1));
            spec.misfire = Misfire { catch_up, max_runs: 30, grace: Some(Span::hours(60)), ..Misfire::default() };
            let rows = plan_all(&excluding(spec), Some(s(day(9, 0))), s(day(14, 12)), 0);
            let skips = |reason| rows.iter().filter(|row| row.3 == Fate::Skip(reason)).map(|row| row.2).sum::<u64>();
            assert_eq!(rows[0], (day(9, 0), day(9, 23), 24, Fate::Skip(SkipReason::Misfire)));
            assert_eq!(rows[1], (day(10, 0), day(12, 23), 72, Fate::Skip(SkipReason::Calendar)));
            assert_eq!((skips(SkipReason::Misfire), skips(SkipReason::Calendar)), (24, 72 + 13));
            assert_eq!(rows.iter().map(|row| row.2).sum::<u64>(), 24 + 72 + 24 + 13, "every tick is recorded once");
            let fired: Vec<_> = rows.iter().filter(|row| row.3 == Fate::Late).map(|row| row.0).collect();
            let all = (0..24).map(|hour| day(13, hour)).collect();
            assert_eq!(fired, if catch_up == CatchUp::All { all } else { late });
        }
        // An on-time excluded tick is a `calendar` skip even while a run is open: not `overlap`.
        let job = excluding(spec(Span::hours(1)));
        assert_eq!(
            plan_all(&job, Some(s(day(14, 3))), s(day(14, 3)), 1),
            [(day(14, 3), day(14, 3), 1, Fate::Skip(SkipReason::Calendar))]
        );
        assert_eq!(plan_all(&job, Some(s(day(15, 0))), s(day(15, 0)), 0), [(day(15, 0), day(15, 0), 1, Fate::Run)]);
    }

    #[test]
    fn a_short_gap_gets_one_skip_row_per_tick() {
        let mut spec = spec(Span::minutes(1));
        spec.misfire.catch_up = CatchUp::None;
        let rows = plan_all(&job(spec), Some(s(60)), s(600), 0);
        assert!(rows.iter().all(|row| row.2 == 1));
        assert_eq!(rows.iter().filter(|row| row.3 == Fate::Skip(SkipReason::CatchUp)).count(), 8);
    }

    #[test]
    fn the_default_grace_is_one_period_if_that_exceeds_an_hour() {
        let daily = job(spec(Span::days(1)));
        let tick = s(86_400);
        assert_eq!(plan_all(&daily, Some(tick), s(86_400 + 80_000), 0)[0].3, Fate::Late);
        let mut strict = spec(Span::days(1));
        strict.misfire.grace = Some(Span::hours(2));
        assert_eq!(plan_all(&job(strict), Some(tick), s(86_400 + 80_000), 0)[0].3, Fate::Skip(SkipReason::Misfire));
    }

    #[test]
    fn a_paused_or_disabled_job_has_no_ticks() {
        let mut paused = job(spec(Span::seconds(1)));
        paused.paused = Some(crate::job::Paused { at: s(0), note: None });
        assert_eq!(decide(&paused, Some(s(1)), s(9), OpenRuns::NONE), Plan::Idle);
    }
}
