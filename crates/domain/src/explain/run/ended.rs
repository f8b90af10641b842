//! How a run ended, and why a tick, a request or a job of a flow was skipped.

use crate::{
    explain::{
        Explanation, Kind, Reason,
        local::{Local, about},
        words::{late_words, reason_words, state_words},
    },
    overlap::superseded_by,
    run::{SkipReason, State, is_lost_error},
};

use super::{Did, FlowJob, FlowRun, Parent, RunFacts, about_run, in_the_way};

pub(super) fn ended(facts: &RunFacts, local: Local<'_>) -> Explanation {
    match facts.run.state {
        State::Failed => failed(facts, local),
        State::Cancelled => cancelled(facts, local),
        _ => {
            let attempts =
                if facts.run.attempt > 1 { format!(" at attempt {}", facts.run.attempt) } else { String::new() };
            about_run(facts, local, Reason::Succeeded, &format!("succeeded{attempts}{}", when(facts, local)))
        }
    }
}

/// ` at T`
fn when(facts: &RunFacts, local: Local<'_>) -> String {
    facts.run.finished_at.map(|at| format!(" at {}", local.text(at))).unwrap_or_default()
}

fn failed(facts: &RunFacts, local: Local<'_>) -> Explanation {
    let row = &facts.run;
    let error = row.error.as_deref().unwrap_or("no error was reported");
    let (reason, why) = no_retry(facts, error);
    let attempts = if row.attempt == 1 { "1 attempt".to_owned() } else { format!("{} attempts", row.attempt) };
    let words = format!("failed{} after {attempts}: {error}{why}", when(facts, local));
    let mut answer = about_run(facts, local, reason, &words);
    let run = row.run;
    answer.commands.push(format!("everytick run log {run}"));
    if row.attempt > 1 {
        answer.commands.push(format!("everytick run attempts {run}"));
    }
    match facts.redriven {
        Some((redriven, state)) => {
            answer.details.push(format!("redriven: run {redriven} {}", state_words(state)));
            answer.commands.push(format!("everytick run explain {redriven}"));
        }
        None if facts.job.as_ref().is_some_and(|job| job.deleted_at.is_none()) => {
            answer.commands.push(format!("everytick run rerun {run}"));
        }
        None => {}
    }
    answer
}

/// Why a failed run was not retried.
fn no_retry(facts: &RunFacts, error: &str) -> (Reason, String) {
    let row = &facts.run;
    if is_lost_error(error, row.lost) {
        return (Reason::Lost, String::new());
    }
    let retries = row.attempt.saturating_sub(1).saturating_sub(row.lost);
    match facts.job.as_ref().map(|job| job.spec.retry.max_retries) {
        None => (Reason::Failed, String::new()),
        Some(_) if facts.is_edited_since => (Reason::Failed, "; the job was edited since".to_owned()),
        Some(0) => (Reason::AttemptsUsed, "; the job has no retries (max_retries is 0)".to_owned()),
        Some(max) if retries >= max => (Reason::AttemptsUsed, format!("; all retries are used (max_retries is {max})")),
        Some(_) => (Reason::NotRetried, "; the target allowed no retry".to_owned()),
    }
}

fn cancelled(facts: &RunFacts, local: Local<'_>) -> Explanation {
    let at = when(facts, local);
    let error = facts.run.error.as_deref().unwrap_or_default();
    if let Some(newer) = superseded_by(error) {
        let words = format!("was cancelled{at}: run {newer} superseded it, because overlap is cancel_previous");
        let in_the_way = facts.others.iter().filter(|row| row.run == newer).cloned().collect();
        let answer = about_run(facts, local, Reason::Superseded, &words);
        return Explanation { in_the_way, ..answer };
    }
    let by = facts.actions.iter().rev().find(|action| action.what == Did::Cancelled);
    let flow = facts.flow.as_ref().and_then(|flow| flow.cancelled_at.filter(|at| Some(*at) == facts.run.finished_at));
    let with = if flow.is_some() { " with its flow" } else { "" };
    let words = match by {
        Some(action) => format!("was cancelled{with} by {}{at}", action.by),
        None => format!("was cancelled{with}{at}"),
    };
    let answer = about_run(facts, local, Reason::Cancelled, &words);
    Explanation { by: by.map(|action| action.by.clone()), since: facts.run.finished_at, ..answer }
}

pub(super) fn skipped(facts: &RunFacts, local: Local<'_>) -> Explanation {
    let row = &facts.run;
    let reason = row.skip_reason.unwrap_or(SkipReason::Error);
    if let Some(range) = row.range {
        let words = format!(
            "skipped: {}{}; {} ticks from {} to {} were skipped as one range",
            reason_words(reason, None),
            late_words(reason, facts.job.as_ref()),
            range.count,
            local.text(range.from),
            local.text(range.to)
        );
        return Explanation::new(local, row.scheduled_at, Kind::Skipped, &words);
    }
    match reason {
        SkipReason::Overlap => overlapped(facts, local),
        SkipReason::Parent => unmet(facts, local),
        SkipReason::Misfire | SkipReason::CatchUp => late(facts, local, reason),
        _ => skip(facts, local, &detailed(facts, reason)),
    }
}

fn skip(facts: &RunFacts, local: Local<'_>, why: &str) -> Explanation {
    Explanation::new(local, facts.run.scheduled_at, Kind::Skipped, &format!("skipped: {why}"))
}

/// The reason, with the text that was recorded with the skip.
fn detailed(facts: &RunFacts, reason: SkipReason) -> String {
    match facts.run.error.as_deref() {
        Some(error) if reason == SkipReason::Error => error.to_owned(),
        Some(error) => format!("{} ({error})", reason_words(reason, None)),
        None => reason_words(reason, None),
    }
}

fn overlapped(facts: &RunFacts, local: Local<'_>) -> Explanation {
    let policy = facts.job.as_ref().map(|job| format!("; overlap is {}", job.spec.overlap.word())).unwrap_or_default();
    let in_the_way = in_the_way::then(facts);
    if let Some(first) = in_the_way.first() {
        let runs = in_the_way::listed(&in_the_way, in_the_way.len(), local, facts.now);
        let mut answer = skip(facts, local, &format!("a run of the job was still open: {runs}{policy}"));
        answer.commands.push(format!("everytick run explain {}", first.run));
        if first.state.is_open() {
            answer.commands.push(format!("everytick run cancel {}", first.run));
        }
        return Explanation { in_the_way, ..answer };
    }
    match in_the_way::instead(facts) {
        Some(newer) => {
            let at = local.text(newer.scheduled_at);
            let words = format!("a newer tick was due as well, {at}: run {} ran instead{policy}", newer.run);
            let answer = skip(facts, local, &words);
            Explanation { in_the_way: vec![newer.clone()], ..answer }
        }
        None => skip(facts, local, &reason_words(SkipReason::Overlap, None)),
    }
}

fn late(facts: &RunFacts, local: Local<'_>, reason: SkipReason) -> Explanation {
    let why = reason_words(reason, None) + &late_words(reason, facts.job.as_ref());
    let mut answer = skip(facts, local, &why);
    if let Some(at) = facts.run.finished_at {
        let late = about(at.since(facts.run.scheduled_at));
        answer.details.push(format!("it was recorded at {}, {late} after the tick", local.text(at)));
    }
    answer
}

/// A job of a flow whose parents did not end as its edges require. Names the first job of the chain that did not.
fn unmet(facts: &RunFacts, local: Local<'_>) -> Explanation {
    let recorded = facts.run.error.as_deref().unwrap_or("a parent did not end as depends_on requires");
    let Some((chain, culprit)) = facts.flow.as_ref().and_then(|flow| blame(&flow.nodes, &facts.job_name)) else {
        return skip(facts, local, recorded);
    };
    let mut words = chain;
    let mut answer_commands = Vec::new();
    if let Some(run) = &culprit.run {
        let error = run.error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        let at = run.finished_at.map(|at| format!(" at {}", local.text(at))).unwrap_or_default();
        words += &format!("; run {} of {} {}{at}{error}", run.run, culprit.job, state_words(run.state));
        answer_commands.push(format!("everytick run explain {}", run.run));
    }
    let mut answer = skip(facts, local, &words);
    answer.commands = answer_commands;
    answer.commands.extend(facts.flow.as_ref().map(|flow| format!("everytick flow get {}", flow.flow)));
    answer
}

/// The chain of unmet edges above a job, as text, and its first job.
fn blame<'a>(nodes: &'a [FlowJob], job: &str) -> Option<(String, &'a FlowJob)> {
    let node = nodes.iter().find(|node| node.job == job)?;
    let unmet = node.parents.iter().find_map(|(parent, when)| {
        let parent = nodes.iter().find(|node| node.job == *parent)?;
        let run = parent.run.as_ref().filter(|run| !run.state.is_open() && !when.is_met_by(run.state))?;
        Some((parent, *when, run))
    });
    let (parent, when, run) = unmet?;
    let words = format!("parent {} {}, and depends_on requires {}", parent.job, state_words(run.state), when.word());
    match blame(nodes, &parent.job).filter(|_| run.state == State::Skipped) {
        Some((above, culprit)) => Some((format!("{words}; {} was skipped because {above}", parent.job), culprit)),
        None => Some((words, parent)),
    }
}

/// Describes the newest run of a parent, and the end that `depends_on` requires.
pub(in crate::explain) fn parent_words(parent: &Parent, local: Local<'_>) -> String {
    let Some(FlowRun { run, state, finished_at, error }) = &parent.run else {
        return format!("parent {} has not run yet", parent.job);
    };
    let at = finished_at.map(|at| format!(" at {}", local.text(at))).unwrap_or_default();
    let error = error.as_deref().filter(|_| !state.is_open()).map(|error| format!(": {error}")).unwrap_or_default();
    let words = format!("the newest run of parent {}, {run}, {}{at}{error}", parent.job, state_words(*state));
    let requires = format!("depends_on requires {}", parent.when.word());
    if state.is_open() { format!("{words}; {requires}") } else { format!("{words} ({requires})") }
}
