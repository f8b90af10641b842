//! Turns the audit trail back into the facts that explain an instant.

use std::collections::BTreeSet;

use everytick_domain::{
    edit::{Edit, NotInserted},
    explain::{Changed, Facts, TickRecord, Was, What},
    ids::RunId,
    job::Job,
    time::DbTime,
};
use serde::Deserialize;

use crate::{AuditRecord, Result, RunRecord, StoreError};

/// Changes of one job that are read, newest first. Older instants are explained from the other rows alone.
pub const CHANGES_MAX: usize = 1_000;

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

pub fn record(run: RunRecord) -> TickRecord {
    TickRecord {
        run: run.id,
        state: run.state,
        skip_reason: run.skip_reason,
        due_at: run.due_at,
        started_at: run.started_at,
        finished_at: run.finished_at,
        attempt: run.attempt,
        node: run.node,
        error: run.error,
    }
}
