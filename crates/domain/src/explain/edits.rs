//! The edits of a job since an instant, each with the definition that it set. The audit trail stores only the
//! definition that each edit replaced. So the result of an edit is the definition that the next edit replaced. The
//! result of the last edit is the present definition.

use crate::{schedule::ScheduleSpec, time::DbTime};

use super::{Changed, Facts, Was, What};

/// An edit whose definitions before and after it are known.
pub(super) struct Edit<'a> {
    pub changed: &'a Changed,
    was: &'a Was,
    pub result: Was,
}

/// Edits, oldest first.
pub(super) struct Edits<'a> {
    /// Ends before the first edit whose result is not known.
    edits: Vec<Edit<'a>>,
    /// Whether the results of all edits are known.
    pub are_known: bool,
}

/// The edit that replaced the definition in force at `at`, and all later edits.
pub(super) fn edits_from(facts: &Facts, at: DbTime) -> Edits<'_> {
    let since = facts.changes.iter().filter(|changed| changed.effective_at >= at);
    let edited: Vec<(&Changed, Option<&Was>)> = since
        .filter_map(|changed| match &changed.what {
            What::Edited(was) => Some((changed, was.as_ref())),
            _ => None,
        })
        .collect();
    let results = edited.iter().skip(1).map(|(_, was)| was.cloned()).chain([Some(Was::of(&facts.job))]);
    let known = edited.iter().zip(results).map_while(|((changed, was), result)| {
        let (was, result) = ((*was)?, result?);
        Some(Edit { changed, was, result })
    });
    let edits: Vec<Edit<'_>> = known.collect();
    let are_known = edits.len() == edited.len();
    Edits { edits, are_known }
}

impl<'a> Edits<'a> {
    /// The first edit whose result passes the test.
    pub(super) fn first(&self, test: impl Fn(&Edit<'a>) -> bool) -> Option<&Edit<'a>> {
        self.edits.iter().find(|edit| test(edit))
    }

    /// The edit that set the present schedule; `None` if no edit changed the schedule, or if that is not known.
    pub(super) fn last_of_schedule(&self) -> Option<&Edit<'a>> {
        self.edits.iter().rfind(|edit| edit.was.schedule != edit.result.schedule).filter(|_| self.are_known)
    }

    /// When this schedule was replaced; `None` if it was not, or if that is not known.
    pub(super) fn end_of(&self, schedule: Option<&ScheduleSpec>) -> Option<DbTime> {
        self.first(|edit| edit.result.schedule.as_ref() != schedule).map(|edit| edit.changed.effective_at)
    }
}
