//! Finds the runs of a job for which another run waits, or because of which it was skipped.

use crate::{
    explain::{
        IN_THE_WAY_SHOWN_MAX,
        local::{Local, about},
    },
    ids::RunId,
    overlap::may_start,
    run::State,
    time::{DbTime, Span},
};

use super::{RunFacts, RunRow};

/// A run is settled shortly after its target has answered. A tick in between still finds it open.
const SETTLED_WITHIN: Span = Span::seconds(2);

/// The runs in progress for which a waiting run waits under the overlap policy of its job: the first few of them, and
/// their total number.
pub(super) fn now(facts: &RunFacts) -> (Vec<RunRow>, usize) {
    let (run, nothing) = (facts.run.run, (Vec::new(), 0));
    let Some(job) = &facts.job else { return nothing };
    if may_start(&job.spec, &facts.open, run, 0) {
        return nothing;
    }
    let shown = facts.others.iter().filter(|row| row.run != run && row.is_in_progress());
    let count = facts.open.iter().filter(|(id, open)| **id != run && open.in_progress()).count();
    (shown.take(IN_THE_WAY_SHOWN_MAX).cloned().collect(), count)
}

/// The runs that were open when a skip was recorded.
pub(super) fn then(facts: &RunFacts) -> Vec<RunRow> {
    let recorded = facts.run.finished_at.unwrap_or(facts.run.scheduled_at);
    let others = facts.others.iter().filter(|row| row.run != facts.run.run && was_open(row, facts.run.run, recorded));
    let mut others: Vec<RunRow> = others.cloned().collect();
    others.sort_by_key(|row| row.run);
    others.dedup_by_key(|row| row.run);
    others.truncate(IN_THE_WAY_SHOWN_MAX);
    others
}

/// Whether a run was open when the skip of `skipped` was recorded, at `at`.
fn was_open(row: &RunRow, skipped: RunId, at: DbTime) -> bool {
    let begun = match row.attempt {
        // With at most one attempt, the recorded start is exact. The time in the id is not: a redriven run has the time
        // of the failed run.
        0 | 1 if row.run > skipped => row.since(),
        // The run may have waited before it started.
        0 | 1 => row.since().min(row.due_at),
        _ => row.run.time(),
    };
    let has_ended = row.finished_at.is_some_and(|ended| ended.plus(SETTLED_WITHIN) < at);
    row.state != State::Skipped && begun < at && !has_ended && row.run.time() <= at
}

/// The run of a later tick that was due together with the skipped one.
pub(super) fn instead(facts: &RunFacts) -> Option<&RunRow> {
    let recorded = facts.run.finished_at?;
    let later = |row: &&RunRow| row.run > facts.run.run && row.state != State::Skipped && row.scheduled_at <= recorded;
    facts.others.iter().filter(later).min_by_key(|row| row.run)
}

/// `run X (in progress since T, on n1)`
pub(super) fn words(row: &RunRow, local: Local<'_>, now: DbTime) -> String {
    let by = match (&row.worker, &row.node) {
        (Some(worker), _) => format!(", worker {worker}"),
        (None, Some(node)) => format!(", on {node}"),
        (None, None) => String::new(),
    };
    let since = format!("{} ({})", local.text(row.since()), about(now.since(row.since())));
    let state = match row.state {
        State::Claimed => format!("in progress since {since}{by}"),
        State::Waiting if row.attempt > 0 => {
            format!("waiting for attempt {} until {}", row.attempt + 1, local.text(row.due_at))
        }
        State::Waiting => format!("waiting since {since}"),
        ended => {
            let at = row.finished_at.map(|at| format!(" until {}", local.text(at))).unwrap_or_default();
            format!(
                "in progress from {}{at}{by}; it {}",
                local.text(row.since()),
                super::super::words::state_words(ended)
            )
        }
    };
    format!("run {} ({state})", row.run)
}

/// Several runs in the way, as one text. `count` is the number of all, of which `rows` are the first.
pub(super) fn listed(rows: &[RunRow], count: usize, local: Local<'_>, now: DbTime) -> String {
    let listed = rows.iter().map(|row| words(row, local, now)).collect::<Vec<_>>().join(", ");
    match count.saturating_sub(rows.len()) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}
