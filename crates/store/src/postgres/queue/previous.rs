//! Under `cancel_previous`: finds jobs with a newer run that waits in a queue, and cancels their older runs.

use std::sync::Arc;

use everytick_domain::{
    ids::{JobId, RunId},
    job::Job,
};
use uuid::Uuid;

use super::{
    super::{DbTx, PostgresStore, horizon, jobs, rows},
    superseded::supersede,
};
use crate::{
    OpenRun, Result,
    tx::{Tx as _, in_tx},
};

pub(super) async fn supersede_in_queues(store: &PostgresStore, limit: usize) -> Result<Vec<RunId>> {
    in_tx!(store, "cancel superseded runs in queues", tx => look(tx, limit))
}

async fn look(tx: &mut DbTx, limit: usize) -> Result<Vec<RunId>> {
    let now = tx.read_clock().await?;
    let found: Vec<Uuid> = tx.scalars(query!("queue/queue_previous", now.millis(), rows::limit(limit))).await?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let locked: Vec<Uuid> = tx.scalars(query!("epochs/epochs_guarded", found)).await?;
    let locked: Vec<JobId> = locked.into_iter().map(JobId::from_uuid).collect();
    let jobs = jobs::readable(tx, &locked).await?;
    let jobs: Vec<Arc<Job>> = jobs.into_iter().map(|row| Arc::new(row.job)).collect();
    supersede(tx, &jobs).await
}

/// The runs of jobs that nodes have claimed.
pub(super) async fn claimed_runs(tx: &mut DbTx, jobs: &[JobId]) -> Result<Vec<(JobId, OpenRun)>> {
    horizon::claimed_runs(tx, jobs).await
}
