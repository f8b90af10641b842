//! Turns the audit trail and the rows of runs into the facts that explain an instant or a run.

use std::collections::BTreeSet;

use everytick_domain::{
    edit::{Edit, NotInserted},
    explain::{Action, Attempt, Changed, Did, Facts, FlowFacts, FlowJob, FlowRun, RunRow, Was, What},
    ids::RunId,
    job::Job,
    time::DbTime,
};
use serde::Deserialize;

use crate::{AttemptRecord, AuditRecord, FlowNode, FlowRecord, NodeRun, Result, RunRecord, StoreError};

/// Changes of one job that are read, newest first. Older instants are explained from the other rows alone.
pub const CHANGES_MAX: usize = 1_000;

/// Requests about one run that are read. A run has at most a few.
pub const ACTIONS_MAX: usize = 10;

/// The audit rows (subject, detail) of created jobs: one for each (I21).
pub fn created(jobs: &[&Job]) -> Vec<(String, String)> {
    let detail = |job: &Job| serde_json::json!({ "name": job.spec.name, "version": 1 }).to_string();
    jobs.iter().map(|job| (job.id.to_string(), detail(job))).collect()
}

/// The changes of a job, oldest first, from its audit rows, newest first.
pub fn changes(trail: Vec<AuditRecord>) -> Vec<Changed> {
    trail.into_iter().rev().filter_map(changed).collect()
}

/// The audit detail of an edit: enough to reconstruct the definition that it replaced.
pub fn edit_detail(action: &str, was: &Job, edit: &Edit) -> String {
    let job = &edit.job;
    let mut detail = serde_json::json!({ "name": job.spec.name, "version": job.version.raw(), "x": edit.effective_at });
    if action == "pause"
        && let Some(note) = job.paused.as_ref().and_then(|paused| paused.note.as_ref())
    {
        detail["note"] = note.as_str().into();
    }
    if action == "edit" {
        detail["was"] = serde_json::to_value(Was::of(was)).unwrap_or_default();
    }
    detail.to_string()
}

/// Refuses an edit if one of its due ticks got no row. Committed, the edit would succeed and lose that tick.
pub fn check_inserted(edit: &Edit, inserted: &BTreeSet<RunId>, doing: &'static str) -> Result<()> {
    edit.check_inserted(inserted).map_err(|why| match why {
        NotInserted::At(invalid) => StoreError::Invalid(vec![invalid]),
        NotInserted::Due(tick) => {
            StoreError::Failed { doing, source: format!("the tick at {tick} was not recorded").into() }
        }
    })
}

#[derive(Deserialize)]
struct Detail {
    x: Option<DbTime>,
    was: Option<Was>,
}

/// An audit row as a change of the job; `None` for an action that changes no ticks, such as a repair.
fn changed(record: AuditRecord) -> Option<Changed> {
    let detail = serde_json::from_str(&record.detail).unwrap_or(Detail { x: None, was: None });
    let what = match record.action.as_str() {
        "create" => What::Created,
        "pause" => What::Paused,
        "resume" => What::Resumed,
        "delete" => What::Deleted,
        "edit" => What::Edited(detail.was),
        _ => return None,
    };
    Some(Changed { effective_at: detail.x.unwrap_or(record.at), by: record.actor, what })
}

/// The calendars that the job uses or has used.
pub fn named(facts: &Facts) -> Vec<String> {
    let was = |changed: &Changed| match &changed.what {
        What::Edited(Some(was)) => was.schedule.as_ref().map(|schedule| schedule.exclude.clone()).unwrap_or_default(),
        _ => Vec::new(),
    };
    let mut names: Vec<String> =
        facts.changes.iter().flat_map(was).chain(facts.job.spec.exclude().iter().cloned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

pub fn row(run: &RunRecord) -> RunRow {
    RunRow {
        run: run.id,
        cause: run.cause,
        scheduled_at: run.scheduled_at,
        due_at: run.due_at,
        state: run.state,
        skip_reason: run.skip_reason,
        attempt: run.attempt,
        lost: run.lost,
        node: run.node.clone(),
        worker: run.worker.clone(),
        started_at: run.started_at,
        finished_at: run.finished_at,
        error: run.error.clone(),
        range: run.range,
    }
}

pub fn attempt(record: AttemptRecord) -> Attempt {
    let AttemptRecord { attempt, finished_at, outcome, error, .. } = record;
    Attempt { attempt, finished_at, outcome, error }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RunDetail {
    force: bool,
    failed: Option<String>,
}

/// The requests about a run, oldest first, from its audit rows, newest first.
pub fn actions(trail: Vec<AuditRecord>) -> Vec<Action> {
    let action = |record: AuditRecord| {
        let detail: RunDetail = serde_json::from_str(&record.detail).unwrap_or_default();
        let what = match record.action.as_str() {
            "trigger" => Did::Triggered { force: detail.force },
            "redrive" => Did::Redrove { failed: detail.failed.and_then(|failed| failed.parse().ok()) },
            "cancel" => Did::Cancelled,
            _ => return None,
        };
        Some(Action { at: record.at, by: record.actor, what })
    };
    trail.into_iter().rev().filter_map(action).collect()
}

pub fn flow_facts(flow: FlowRecord) -> FlowFacts {
    let run = |run: NodeRun| FlowRun { run: run.id, state: run.state, finished_at: run.finished_at, error: run.error };
    let node = |node: FlowNode| FlowJob { job: node.job_name, parents: node.parents, run: node.run.map(run) };
    FlowFacts { flow: flow.id, cancelled_at: flow.cancelled_at, nodes: flow.nodes.into_iter().map(node).collect() }
}
