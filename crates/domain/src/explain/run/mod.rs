//! Explains why one run is in its state: why it waits, how it ended, or why it was skipped. `waiting` and `ended` decide,
//! `in_the_way` finds the runs that it waits for, and `origin` describes where the run comes from.

mod ended;
mod facts;
mod in_the_way;
mod origin;
#[cfg(test)]
pub(super) mod tests;
mod waiting;

use crate::{
    queue::{CLAIM_BEAT, CLAIM_LEASE},
    retry::LOST_MAX,
    run::State,
    time::Span,
};

use super::{
    Explanation, Kind, Reason,
    local::{Local, ShownIn, about},
};
pub(super) use ended::parent_words;
pub use facts::{
    AHEAD_COUNTED_MAX, Action, Asked, Attempt, ClaimFacts, Did, FlowFacts, FlowJob, FlowRun, Parent, QueueFacts,
    RunFacts, RunRow,
};

/// A worker that has sent no heartbeat for this long is reported.
const SILENT_AFTER: Span = Span::seconds(15);
/// The outcome of an attempt whose node or worker vanished.
const LOST: &str = "lost";

/// Explains a run, or a range of skips. `shown_in` applies to the text.
#[must_use]
pub fn explain_run(facts: &RunFacts, shown_in: ShownIn) -> Explanation {
    let local = Local::of_some(facts.job.as_ref(), shown_in);
    let row = &facts.run;
    let mut answer = match row.state {
        State::Waiting => waiting::waiting(facts, local),
        State::Claimed => in_progress(facts, local),
        State::Succeeded | State::Failed | State::Cancelled => ended::ended(facts, local),
        State::Skipped => ended::skipped(facts, local),
        State::Unknown(code) => {
            let words = format!("run {} is in state {code}, which only a later release knows", row.run);
            Explanation::new(local, row.scheduled_at, Kind::Run, &words)
        }
    };
    let mut details = origin::details(facts, local);
    details.append(&mut answer.details);
    if row.range.is_none() {
        answer.commands.insert(0, format!("everytick run get {}", row.run));
    }
    Explanation { details, record: Some(row.clone()), skip_reason: row.skip_reason, range: row.range, ..answer }
}

/// The start of an answer about a run.
fn about_run(facts: &RunFacts, local: Local<'_>, reason: Reason, words: &str) -> Explanation {
    let words = format!("run {} {words}", facts.run.run);
    Explanation { reason: Some(reason), ..Explanation::new(local, facts.run.scheduled_at, Kind::Run, &words) }
}

/// `attempt 2 of 4`. Lost attempts use no retry, so with them a total would be wrong.
fn attempt_words(facts: &RunFacts, attempt: u32) -> String {
    if facts.run.lost > 0 {
        return format!("attempt {attempt}, {} lost before it", facts.run.lost);
    }
    let max = facts.job.as_ref().map(|job| 1 + job.spec.retry.max_retries);
    // After the job's retries were lowered, a run may have more attempts than `max`.
    max.filter(|max| attempt <= *max)
        .map_or_else(|| format!("attempt {attempt}"), |max| format!("attempt {attempt} of {max}"))
}

/// How the last attempt ended after which the run continued.
fn last_attempt(facts: &RunFacts, local: Local<'_>) -> Vec<String> {
    let Some(attempt) = facts.attempts.last() else { return Vec::new() };
    let at = attempt.finished_at.map(|at| format!(" at {}", local.text(at))).unwrap_or_default();
    let outcome = attempt.outcome.as_deref().unwrap_or("failed");
    let mut details = Vec::new();
    if outcome == LOST {
        let error = attempt.error.as_deref().and_then(|error| error.strip_prefix("lost: "));
        let error = error.map(|error| format!(": {error}")).unwrap_or_default();
        details.push(format!("attempt {} was lost{at}{error}", attempt.attempt));
        let retries = facts.job.as_ref().map(|job| format!(" (max_retries is {})", job.spec.retry.max_retries));
        details.push(format!(
            "lost attempts use no retry{}; a run is started again after at most {LOST_MAX} of them",
            retries.unwrap_or_default()
        ));
    } else {
        let error = attempt.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        details.push(format!("attempt {} {outcome}{at}{error}", attempt.attempt));
    }
    details
}

fn in_progress(facts: &RunFacts, local: Local<'_>) -> Explanation {
    let (row, now) = (&facts.run, facts.now);
    let attempt = attempt_words(facts, row.attempt);
    let by = match (&row.worker, &row.node) {
        (Some(worker), _) => format!(" by worker {worker}"),
        (None, Some(node)) => format!(" on {node}"),
        (None, None) => String::new(),
    };
    let since = row.started_at.map(|at| format!(", since {} ({})", local.text(at), about(now.since(at))));
    let is_accepted = facts.claim.as_ref().is_some_and(|claim| claim.is_accepted);
    let doing = if is_accepted {
        "waits for the report of its receiver, which answered 202".to_owned()
    } else {
        format!("is in progress{by}")
    };
    let words = format!("{doing}, {attempt}{}", since.unwrap_or_default());
    let mut answer = about_run(facts, local, Reason::InProgress, &words);
    answer.details.extend(last_attempt(facts, local));
    let by_timeout = row.started_at.zip(facts.job.as_ref()).map(|(at, job)| at.plus(job.spec.timeout));
    let timeout = facts.claim.as_ref().map(|claim| claim.timeout_at).or(by_timeout);
    answer.details.extend(timeout.map(|at| format!("it times out at {}", local.text(at))));
    if let Some(claim) = facts.claim.as_ref().filter(|claim| !claim.is_accepted) {
        let beat = now.since(claim.until.minus(CLAIM_LEASE));
        answer.details.push(format!("the last heartbeat of worker {} was {} ago", claim.worker, about(beat)));
        if beat > SILENT_AFTER {
            answer.reason = Some(Reason::NoHeartbeat);
            answer.details.push(format!(
                "a worker sends a heartbeat every {CLAIM_BEAT}; without one, the claim is lost at {}",
                local.text(claim.until)
            ));
        }
    }
    let run = row.run;
    if !facts.attempts.is_empty() {
        answer.commands.push(format!("everytick run attempts {run}"));
    }
    answer.commands.extend([format!("everytick run log {run}"), format!("everytick run cancel {run}")]);
    answer
}
