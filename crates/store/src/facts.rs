//! What the explanation of an instant is made of, beside the rows themselves: the audit trail, read back.

use everytick_domain::{
    edit::Edit,
    explain::{Changed, Facts, TickRecord, Was, What},
    job::Job,
    time::DbTime,
};
use serde::Deserialize;

use crate::{AuditRecord, RunRecord};

/// How many changes of one job are looked at, the newest first. What lies before is told as far as the rows tell it.
pub(crate) const CHANGES_MAX: usize = 1_000;

/// So many names stand in one audit row, of jobs that were made together.
const NAMES_PER_ROW_MAX: usize = 250;

/// The audit rows (subject, detail) of jobs that were made together. One job has a row under its id. Of many, rows tell the
/// names, for no job has been changed yet, and what else there is to know of its making stands with the job: a row for each
/// would be a third of what a plain job takes.
pub(crate) fn created(jobs: &[&Job]) -> Vec<(String, String)> {
    if let [job] = jobs {
        return vec![(job.id.to_string(), serde_json::json!({ "name": job.spec.name, "version": 1 }).to_string())];
    }
    let row = |jobs: &[&Job]| {
        let names: Vec<&str> = jobs.iter().map(|job| job.spec.name.as_str()).collect();
        (CREATED_TOGETHER.to_owned(), serde_json::json!({ "names": names, "version": 1 }).to_string())
    };
    jobs.chunks(NAMES_PER_ROW_MAX).map(row).collect()
}

/// The subject of an audit row that tells of many jobs.
pub(crate) const CREATED_TOGETHER: &str = "jobs";

/// What was changed of a job, the oldest first, from its part of the trail, the newest first. Where it was made together with
/// others, the job itself tells of that.
pub(crate) fn changes(trail: Vec<AuditRecord>, job: &Job) -> Vec<Changed> {
    let whole = trail.len() < CHANGES_MAX;
    let mut changes: Vec<Changed> = trail.into_iter().rev().filter_map(changed).collect();
    if whole && !changes.iter().any(|changed| changed.what == What::Created) {
        changes.insert(0, Changed { x: job.created_at, by: job.created_by.clone(), what: What::Created });
    }
    changes
}

/// What the audit trail says of an edit: enough to know later what it ended.
pub(crate) fn edit_detail(action: &str, was: &Job, edit: &Edit) -> String {
    let job = &edit.job;
    let mut detail = serde_json::json!({ "name": job.spec.name, "version": job.version.raw(), "x": edit.x });
    if action == "edit" {
        detail["was"] = serde_json::to_value(Was::of(was)).unwrap_or_default();
    }
    detail.to_string()
}

#[derive(Deserialize)]
struct Detail {
    x: Option<DbTime>,
    was: Option<Was>,
}

/// A row of the trail as a change of the job; `None` for what changes no ticks, such as a repair.
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
    Some(Changed { x: detail.x.unwrap_or(record.at), by: record.actor, what })
}

/// The calendars that the job names, or has named.
pub(crate) fn named(facts: &Facts) -> Vec<String> {
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

pub(crate) fn record(run: RunRecord) -> TickRecord {
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

#[cfg(all(test, feature = "sim"))]
mod tests {
    use everytick_domain::{
        ids::{JobId, TenantId},
        job::{Birth, born},
    };

    use super::*;
    use crate::conformance::{START, spec};

    #[test]
    fn many_jobs_share_rows_of_a_bounded_size() {
        let job = |n: u128| {
            let id = JobId::from_uuid(uuid::Uuid::from_u128(n));
            let birth = Birth { id, tenant: TenantId::DEFAULT, partition: 0, by: "t".into(), at: START };
            born(birth, spec(&format!("j{n}")), &[]).unwrap().0
        };
        let jobs: Vec<Job> = (0..600).map(job).collect();
        for (count, rows) in [(1, 1), (2, 1), (250, 1), (251, 2), (600, 3)] {
            let rows_of = created(&jobs.iter().take(count).collect::<Vec<_>>());
            assert_eq!(rows_of.len(), rows, "{count}");
            let told: usize = rows_of.iter().map(|(_, detail)| detail.matches("\"j").count()).sum();
            assert_eq!(told, count);
        }
    }
}
