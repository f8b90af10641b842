//! Deletes one-shot jobs whose last run ended longer ago than `keep`. The leader does this as part of the search for dead
//! schedules.

use std::sync::Arc;

use everytick_domain::{
    edit::Change,
    job::{Job, is_spent},
    time::DbTime,
};
use everytick_store::{Actor, EditJob, JobRef, Result, StoreError};

use crate::{cluster::unsure, shared::Shared};

/// Deletes the jobs whose `keep` time has passed.
pub(crate) async fn pass<'a>(shared: &Arc<Shared>, jobs: impl Iterator<Item = (&'a Job, Option<DbTime>)>, now: DbTime) {
    for (job, cursor) in jobs {
        // Most jobs have no `keep`, or have ticks ahead. They cost no query.
        if job.spec.keep.is_none() || cursor.is_some() {
            continue;
        }
        // The next search tries again. The other jobs are checked anyway.
        if let Err(error) = expire(shared, job, now).await {
            unsure::report(shared, &error);
        }
    }
}

async fn expire(shared: &Arc<Shared>, job: &Job, now: DbTime) -> Result<()> {
    let store = &shared.parts.store;
    let named = JobRef::Id(job.id);
    let record = match shared.read("read the job", store.get_job(job.tenant, &named)).await {
        Err(StoreError::NotFound(_)) => return Ok(()),
        read => read?,
    };
    let ended = record.last_run.as_ref().filter(|run| !run.state.is_open());
    if !is_spent(&record.job, ended.and_then(|run| run.finished_at), now) {
        return Ok(());
    }
    // An earlier run may still be open.
    let open = shared.read("load jobs", store.load_jobs(&[job.id])).await?;
    if open.iter().any(|loaded| !loaded.open.is_empty()) {
        return Ok(());
    }
    let edit = EditJob { job: named, change: Change::Delete, if_match: Some(record.job.version), cancel: false };
    let actor = Actor::node(&shared.parts.settings.node);
    match shared.call("delete an expired one-shot job", store.edit_job(job.tenant, &actor, edit)).await {
        // The job was changed meanwhile, or other jobs depend on it.
        Err(StoreError::VersionMismatch { .. } | StoreError::NotFound(_) | StoreError::InUse { .. }) => Ok(()),
        done => {
            done?;
            tracing::info!(job = job.spec.name, id = %job.id, "deleted a one-shot job: its keep time has passed");
            Ok(())
        }
    }
}
