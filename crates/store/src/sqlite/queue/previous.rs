//! Under `cancel_previous`: finds jobs with a newer run that waits in a queue, and cancels their older runs.

use std::sync::Arc;

use everytick_domain::{
    ids::{JobId, RunId},
    job::Job,
};
use uuid::Uuid;

use super::{
    super::{DbTx, SqliteStore, rows},
    superseded::supersede,
};
use crate::{
    OpenRun, Result,
    tx::{in_read, in_tx},
};

pub(super) async fn supersede_in_queues(store: &SqliteStore, limit: usize) -> Result<Vec<RunId>> {
    let now = store.clock.now().millis();
    // Usually there is nothing to cancel, so this is found out without the write lock.
    let found: Vec<Uuid> = in_read!(store, "cancel superseded runs in queues", tx => {
        tx.scalars(query!("queue/queue_previous", now, rows::limit(limit)))
    })?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let jobs: Vec<JobId> = found.into_iter().map(JobId::from_uuid).collect();
    in_tx!(store, "cancel superseded runs in queues", tx => cancel_older(tx, &jobs))
}

async fn cancel_older(tx: &mut DbTx, jobs: &[JobId]) -> Result<Vec<RunId>> {
    let found = tx.fetch_all(query!("jobs/load_jobs", rows::job_ids(jobs))).await?;
    let jobs = tx.unreadable.each("jobs", &found, rows::job);
    let jobs: Vec<Arc<Job>> = jobs.into_iter().map(|row| Arc::new(row.job)).collect();
    supersede(tx, &jobs).await
}

/// The runs of jobs that nodes have claimed.
pub(super) async fn claimed_runs(tx: &mut DbTx, jobs: &[JobId]) -> Result<Vec<(JobId, OpenRun)>> {
    tx.fetch_decoded(query!("horizon/open_claimed", rows::job_ids(jobs)), rows::open_run).await
}
