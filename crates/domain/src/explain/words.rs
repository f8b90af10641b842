//! The text of explanations.

use crate::{
    run::{SkipReason, State},
    time::DbTime,
};

use super::TickRecord;

pub(super) const fn state_words(state: State) -> &'static str {
    match state {
        State::Waiting => "waits",
        State::Claimed => "is in progress",
        State::Succeeded => "succeeded",
        State::Failed => "failed",
        State::Cancelled => "was cancelled",
        State::Skipped => "was skipped",
        State::Unknown(_) => "is in a state that only a later release knows",
    }
}

/// ` by ann`, or nothing if the author is not known.
pub(super) fn author_words(by: Option<&str>) -> String {
    by.map(|by| format!(" by {by}")).unwrap_or_default()
}

pub(super) fn run_words(record: &TickRecord) -> String {
    let run = record.run;
    let at = |at: Option<DbTime>| at.map(|at| format!(" at {at}")).unwrap_or_default();
    let why = record.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    match record.state {
        State::Waiting if record.attempt > 0 => {
            format!("run {run} waits for its next attempt, due at {}{why}", record.due_at)
        }
        State::Waiting => format!("run {run} waits to be started; it was due at {}", record.due_at),
        State::Claimed => {
            let node = record.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
            format!("run {run} is in progress{node}, attempt {}", record.attempt)
        }
        State::Succeeded => format!("run {run} succeeded{}", at(record.finished_at)),
        State::Failed => format!("run {run} failed{}{why}", at(record.finished_at)),
        State::Cancelled => format!("run {run} was cancelled{}", at(record.finished_at)),
        State::Skipped => format!("run {run} was skipped"),
        State::Unknown(code) => format!("run {run} is in state {code}, which only a later release knows"),
    }
}

/// Why there is no run, as text for users.
#[must_use]
pub fn reason_words(reason: SkipReason, calendar: Option<&str>) -> String {
    match reason {
        SkipReason::Overlap => {
            "as many runs of the job as its overlap policy allows were still open, or a newer tick was due as well"
                .to_owned()
        }
        SkipReason::Misfire => "it was recorded too late to fire: it was older than the job's grace".to_owned(),
        SkipReason::CatchUp => "it was late and catch-up did not choose it".to_owned(),
        SkipReason::Calendar => match calendar {
            Some(calendar) => format!("calendar {calendar} excludes the date"),
            None => "a calendar excluded the date".to_owned(),
        },
        SkipReason::Quota => "too many runs of the job were already waiting".to_owned(),
        SkipReason::Error => "the database rejected it, and the job was paused".to_owned(),
        SkipReason::Parent => "a parent did not end as depends_on requires".to_owned(),
        SkipReason::Paused => "the job was paused when the flow reached it".to_owned(),
        SkipReason::Unknown(code) => format!("the reason has code {code}, which only a later release knows"),
    }
}
