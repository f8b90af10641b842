//! Edit, pause, resume and delete. Up to the instant `effective_at` the old definition applies, after it the new one (I11). The
//! store locks the job, reads its state, calls `edit`, and writes the result in the same transaction.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    calendar::Calendar,
    ids::RunId,
    invalid::Invalid,
    job::{self, Job, JobSpec, Paused},
    mutant::Mutant,
    overlap::OpenRuns,
    plan::{Fate, Plan, SkipRange, TickRow, decide},
    run::SkipReason,
    schedule::CronCache,
    time::DbTime,
};

#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    Replace(Box<JobSpec>),
    Pause {
        note: Option<String>,
    },
    /// The database rejects the job's ticks: the job is paused, and its due ticks become skips with reason `error`.
    Quarantine {
        note: String,
    },
    Resume,
    Delete,
}

impl Change {
    /// The action name in the audit trail.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Replace(_) => "edit",
            Self::Pause { .. } | Self::Quarantine { .. } => "pause",
            Self::Resume => "resume",
            Self::Delete => "delete",
        }
    }
}

/// The state of a job, read under its lock.
#[derive(Clone, Debug)]
pub struct LockedJob {
    pub job: Job,
    pub cursor: Option<DbTime>,
    /// The database clock, read after the lock was acquired.
    pub now: DbTime,
    /// The last recorded tick, if it matters for an edit: only a tick at or after the cursor, or after `now`, is read.
    pub last_recorded: Option<DbTime>,
    pub open: OpenRuns,
    /// The existing calendars among those that the new definition names.
    pub calendars: Vec<Arc<Calendar>>,
}

/// What to write: the last ticks of the old definition, then the changed job.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The old definition applies up to this instant, the new one after it.
    pub effective_at: DbTime,
    pub rows: Vec<TickRow>,
    pub ranges: Vec<SkipRange>,
    pub job: Job,
    pub cursor: Option<DbTime>,
    /// The tick of a new `at` that is already due. It is the last of `rows`.
    pub at: Option<RunId>,
}

impl Edit {
    /// Checks that the store inserted every row. Planned ticks come after the last recorded one, so only a new `at` can name a
    /// tick that already has a row. Without this check, such an edit would be answered with success and never fire.
    pub fn check_inserted(&self, inserted: &BTreeSet<RunId>) -> Result<(), NotInserted> {
        let missing = |row: &&TickRow| !inserted.contains(&row.id);
        match self.rows.iter().find(missing) {
            None => Ok(()),
            Some(row) if self.at == Some(row.id) => Err(NotInserted::At(Invalid::new(
                "schedule.at",
                format!("{} is already recorded as a tick of this job; choose a later instant", row.at),
            ))),
            Some(row) => Err(NotInserted::Due(row.at)),
        }
    }
}

/// Why an edit must not be committed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotInserted {
    /// The tick of the new `at` is already recorded.
    At(Invalid),
    /// A tick due under the old definition got no row.
    Due(DbTime),
}

/// Decides an edit. `None` if it changes nothing: nothing is written, and the answer is the unchanged job.
pub fn edit(locked: &LockedJob, change: Change, crons: &CronCache) -> Result<Option<Edit>, Vec<Invalid>> {
    let LockedJob { job, now, .. } = locked;
    let mut new = job.clone();
    let mut quarantined = false;
    let effective_at = locked.last_recorded.map_or(*now, |last| last.max(*now));
    match change {
        Change::Replace(spec) if *spec == *job.spec => return Ok(None),
        Change::Pause { .. } | Change::Quarantine { .. } if job.paused.is_some() => return Ok(None),
        Change::Resume if job.paused.is_none() => return Ok(None),
        Change::Replace(spec) => {
            if spec.schedule != job.spec.schedule {
                job::check_at(&spec, *now).map_err(|invalid| vec![invalid])?;
            }
            new.schedule = job::compile(&spec, &locked.calendars, crons)?;
            new.spec = Arc::new(*spec);
        }
        Change::Pause { note } => new.paused = Some(Paused { at: effective_at, note }),
        Change::Quarantine { note } => {
            quarantined = true;
            new.paused = Some(Paused { at: effective_at, note: Some(note) });
        }
        Change::Resume => new.paused = None,
        Change::Delete => new.deleted_at = Some(effective_at),
    }
    new.version = job.version.next();
    // Not `now`: the old definition applies until `effective_at`.
    new.updated_at = effective_at;

    let (mut rows, mut ranges) =
        if Mutant::EditRecordsNoOldTicks.is_on() { Default::default() } else { plan_due(locked) };
    if quarantined {
        rows.iter_mut().for_each(|row| row.fate = Fate::Skip(SkipReason::Error));
        ranges.iter_mut().for_each(|range| range.reason = SkipReason::Error);
    }
    let mut at_row = None;
    let cursor = match new.ticking() {
        Some(schedule) if new.spec.schedule == job.spec.schedule => schedule.next_after(effective_at),
        Some(schedule) => match job::first_cursor(&new.spec, schedule, effective_at, *now) {
            // An `at` that has just passed fires at once. It must be recorded here, because ticks up to `effective_at`
            // count as recorded. After the database clock was set back, this `at` may be in the future: then the run
            // waits until it is due.
            Some(at) if at <= effective_at => {
                let open = locked.open.and_waiting(runs_among(&rows));
                if let Plan::Rows(due) = decide(&new, Some(at), at.max(*now), open) {
                    // A tick that is due under both definitions is one tick.
                    let due: Vec<_> =
                        due.into_iter().filter(|row| !rows.iter().any(|known| known.id == row.id)).collect();
                    at_row = due.last().map(|row| row.id);
                    rows.extend(due);
                }
                schedule.next_after(effective_at)
            }
            first => first,
        },
        None => None,
    };
    Ok(Some(Edit { effective_at, rows, ranges, job: new, cursor, at: at_row }))
}

/// Plans the due ticks of the old definition from the first unrecorded one on. Ticks are recorded in order, so every tick up to
/// the last recorded one already has a row.
fn plan_due(locked: &LockedJob) -> (Vec<TickRow>, Vec<SkipRange>) {
    let (mut rows, mut ranges) = (Vec::new(), Vec::new());
    let Some(schedule) = locked.job.ticking() else { return (rows, ranges) };
    let mut open = locked.open;
    let mut next = match (locked.cursor, locked.last_recorded) {
        (Some(cursor), Some(last)) if last >= cursor => schedule.next_after(last),
        // The cursor is a lower bound; it need not be a tick.
        (cursor, _) => cursor.and_then(|cursor| schedule.first_from(cursor)),
    };
    loop {
        let last = match decide(&locked.job, next, locked.now, open) {
            Plan::Idle => return (rows, ranges),
            Plan::Range(range) => {
                ranges.push(range);
                range.to
            }
            Plan::Rows(planned) => {
                let Some(last) = planned.last().map(|row| row.at) else { return (rows, ranges) };
                open = open.and_waiting(runs_among(&planned));
                rows.extend(planned);
                last
            }
        };
        next = schedule.next_after(last);
    }
}

fn runs_among(rows: &[TickRow]) -> usize {
    rows.iter().filter(|row| !matches!(row.fate, Fate::Skip(_))).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::tests::{job, spec},
        schedule::Timing,
        time::Span,
    };

    fn s(seconds: i64) -> DbTime {
        DbTime::from_millis(seconds * 1_000)
    }

    fn edit(locked: &LockedJob, change: Change) -> Result<Option<Edit>, Vec<Invalid>> {
        super::edit(locked, change, &CronCache::default())
    }

    fn locked(cursor: i64, now: i64, last_recorded: Option<i64>) -> LockedJob {
        LockedJob {
            job: job(spec(Span::seconds(10))),
            cursor: Some(s(cursor)),
            now: s(now),
            last_recorded: last_recorded.map(s),
            open: OpenRuns::NONE,
            calendars: Vec::new(),
        }
    }

    #[test]
    fn a_definition_that_names_an_unknown_calendar_is_refused() {
        let mut named = spec(Span::seconds(10));
        named.schedule.as_mut().unwrap().exclude = vec!["holidays".into()];
        let wrong = edit(&locked(30, 25, None), Change::Replace(Box::new(named))).unwrap_err();
        assert!(wrong[0].field == "schedule.exclude" && wrong[0].message.contains("\"holidays\""));
    }

    #[test]
    fn the_ticks_due_under_the_old_definition_are_recorded_before_the_switch() {
        let edit = edit(&locked(10, 25, Some(10)), Change::Pause { note: None }).unwrap().unwrap();
        assert_eq!(edit.rows.iter().map(|row| row.at).collect::<Vec<_>>(), [s(20)]);
        assert_eq!((edit.effective_at, edit.cursor), (s(25), None));
        assert!(edit.job.paused.is_some());
    }

    #[test]
    fn the_next_tick_after_an_edit_is_one_of_the_new_definition() {
        let edit = edit(&locked(30, 25, None), Change::Replace(Box::new(spec(Span::seconds(7))))).unwrap().unwrap();
        assert_eq!(edit.cursor, Some(s(28)));
        assert_eq!(edit.job.version.raw(), 2);
    }

    #[test]
    fn an_edit_takes_effect_at_the_last_recorded_tick_if_the_clock_was_set_back_before_it() {
        let edit = edit(&locked(30, 25, Some(50)), Change::Replace(Box::new(spec(Span::seconds(7))))).unwrap().unwrap();
        assert_eq!((edit.effective_at, edit.cursor), (s(50), Some(s(56))));
        assert!(edit.rows.is_empty());
    }

    #[test]
    fn an_edit_without_a_change_writes_nothing() {
        assert!(edit(&locked(30, 25, None), Change::Resume).unwrap().is_none());
        assert!(edit(&locked(30, 25, None), Change::Replace(Box::new(spec(Span::seconds(10))))).unwrap().is_none());
    }

    #[test]
    fn a_long_backlog_is_recorded_as_ranges_within_the_edit() {
        let edit = edit(&locked(10, 100_000, None), Change::Delete).unwrap().unwrap();
        assert_eq!(edit.ranges.len(), 2);
        assert_eq!(edit.ranges[0].reason, SkipReason::Misfire);
        let recorded = edit.ranges.iter().map(|range| range.count).sum::<u64>() + edit.rows.len() as u64;
        assert_eq!(recorded, 10_000);
    }

    #[test]
    fn a_cursor_between_two_ticks_is_a_lower_bound() {
        let edit = edit(&locked(13, 17, None), Change::Pause { note: None }).unwrap().unwrap();
        assert!(edit.rows.is_empty(), "13 is not a tick, and 20 is not due yet");
    }

    #[test]
    fn a_quarantined_job_is_paused_and_its_due_ticks_are_error_skips() {
        let edit = edit(&locked(10, 25, None), Change::Quarantine { note: "no".into() }).unwrap().unwrap();
        assert!(edit.rows.iter().all(|row| row.fate == Fate::Skip(SkipReason::Error)) && edit.rows.len() == 2);
        assert_eq!(edit.job.paused.unwrap().note.as_deref(), Some("no"));
    }

    #[test]
    fn an_at_that_has_just_passed_is_recorded_by_the_edit_itself() {
        let mut at = spec(Span::seconds(10));
        at.schedule.as_mut().unwrap().timing = Timing::At { at: s(23) };
        let edit = edit(&locked(30, 25, Some(20)), Change::Replace(Box::new(at))).unwrap().unwrap();
        assert_eq!(edit.rows.iter().map(|row| (row.at, row.fate)).collect::<Vec<_>>(), [(s(23), Fate::Run)]);
        assert_eq!(edit.cursor, None);
    }

    #[test]
    fn an_at_that_is_due_under_both_definitions_is_one_tick() {
        let mut at = spec(Span::seconds(10));
        at.schedule.as_mut().unwrap().timing = Timing::At { at: s(20) };
        let edit = edit(&locked(20, 23, Some(10)), Change::Replace(Box::new(at))).unwrap().unwrap();
        assert_eq!(edit.rows.iter().map(|row| row.at).collect::<Vec<_>>(), [s(20)]);
        assert_eq!((edit.at, edit.cursor), (None, None));
    }

    #[test]
    fn an_edit_whose_row_was_not_inserted_is_refused() {
        let mut at = spec(Span::seconds(10));
        at.schedule.as_mut().unwrap().timing = Timing::At { at: s(23) };
        let edit = edit(&locked(10, 25, Some(10)), Change::Replace(Box::new(at))).unwrap().unwrap();
        let all: Vec<RunId> = edit.rows.iter().map(|row| row.id).collect();
        let without = |missing: RunId| all.iter().copied().filter(|id| *id != missing).collect();
        assert_eq!(edit.check_inserted(&all.iter().copied().collect()), Ok(()));
        assert_eq!(edit.check_inserted(&without(all[0])), Err(NotInserted::Due(s(20))));
        let Err(NotInserted::At(invalid)) = edit.check_inserted(&without(all[1])) else { panic!("the at is new") };
        assert_eq!(invalid.field, "schedule.at");
        assert!(invalid.message.contains("already recorded"), "{}", invalid.message);
    }

    #[test]
    fn an_at_between_a_clock_that_went_back_and_the_last_recorded_tick_is_not_lost() {
        let mut at = spec(Span::seconds(10));
        at.schedule.as_mut().unwrap().timing = Timing::At { at: s(40) };
        let edit = edit(&locked(30, 25, Some(50)), Change::Replace(Box::new(at))).unwrap().unwrap();
        let recorded: Vec<_> = edit.rows.iter().map(|row| (row.at, row.due_at, row.fate)).collect();
        assert_eq!(recorded, [(s(40), s(40), Fate::Run)]);
        assert_eq!((edit.effective_at, edit.cursor), (s(50), None));
    }
}
