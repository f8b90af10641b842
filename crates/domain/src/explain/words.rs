//! The text that several answers share.

use crate::{
    job::{CatchUp, Job},
    run::{SkipReason, State},
    time::Span,
};

use super::{Backfilled, Explanation, Kind, local::Local};

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

/// A backfill over an instant. `None` if it ended without a run for the instant: then it did not include the instant.
pub(super) fn backfilled_words(of: &Backfilled, local: Local<'_>) -> Option<String> {
    let run = of.run;
    let made = format!("backfill {} by {} at {}", of.backfill, of.by, local.text(of.created_at));
    match of.state {
        Some(state) => Some(format!("backfilled: run {run} {} ({made})", state_words(state))),
        None if of.is_running => Some(format!("not backfilled yet: {made} has not reached it")),
        None => None,
    }
}

/// Adds that a past tick without a run was not backfilled, and the command that backfills it.
pub(super) fn suggest_backfill(explanation: &mut Explanation, job: &Job) {
    let lacks_run = matches!(explanation.kind, Kind::Skipped | Kind::Missing);
    if !lacks_run || !explanation.backfilled.is_empty() || job.deleted_at.is_some() {
        return;
    }
    let tick =
        job.schedule.as_ref().is_some_and(|schedule| schedule.first_from(explanation.at) == Some(explanation.at));
    if tick {
        explanation.details.push("not backfilled".to_owned());
        let (name, at) = (&job.spec.name, explanation.at);
        // The end of a period is excluded.
        let to = at.plus(Span::seconds(1));
        explanation.commands.push(format!("everytick job backfill {name} --from {at} --to {to}"));
    }
}

/// `; catch_up is none, late_after is 1m`: the fields of the job that decide about late ticks.
pub(super) fn late_words(reason: SkipReason, job: Option<&Job>) -> String {
    let Some(misfire) = job.map(|job| &job.spec.misfire) else { return String::new() };
    match (reason, misfire.grace) {
        (SkipReason::Misfire, Some(grace)) => format!("; grace is {grace}"),
        (SkipReason::CatchUp, _) => {
            let max = if misfire.catch_up == CatchUp::All {
                format!(", max_runs is {}", misfire.max_runs)
            } else {
                String::new()
            };
            format!("; catch_up is {}, late_after is {}{max}", misfire.catch_up.word(), misfire.late_after)
        }
        _ => String::new(),
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
