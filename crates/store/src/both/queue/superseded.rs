//! Under `cancel_previous`: which runs a newer run that waits in a queue supersedes.

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::{
    ids::{JobId, RunId},
    job::Job,
    overlap::{JobRuns, Open},
};
use sqlx::Row as _;

use super::{
    super::{DbTx, Failed, cancel, rows},
    previous,
};
use crate::{Result, Supersede};

/// Cancels the open runs of these jobs that are older than the newest due one. The caller has the jobs locked.
pub(super) async fn supersede(tx: &mut DbTx, jobs: &[Arc<Job>]) -> Result<Vec<RunId>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let runs = runs_of(tx, jobs).await?;
    let older_runs = |job: &Arc<Job>| {
        let superseded = runs.get(&job.id).and_then(|runs| runs.supersede(&job.spec));
        let job = job.id;
        superseded.into_iter().flat_map(move |(older, to)| older.into_iter().map(move |run| Supersede { job, run, to }))
    };
    let superseded: Vec<Supersede> = jobs.iter().flat_map(older_runs).collect();
    if superseded.is_empty() { Ok(Vec::new()) } else { cancel::end_superseded(tx, &superseded).await }
}

async fn runs_of(tx: &mut DbTx, jobs: &[Arc<Job>]) -> Result<BTreeMap<JobId, JobRuns>> {
    let mut runs: BTreeMap<JobId, JobRuns> = BTreeMap::new();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let found = tx.fetch_all(query!("queue/queue_counts", rows::job_ids(&ids), tx.now.millis())).await?;
    for row in &found {
        let (job, run) = (rows::job_id(row, "job").failed(tx.doing)?, rows::run_id(row, "run").failed(tx.doing)?);
        let runs = runs.entry(job).or_default();
        let (claimed, attempts) = (row.try_get("claimed"), rows::count(row, "attempts"));
        let open = Open { claimed: claimed.failed(tx.doing)?, attempts: attempts.failed(tx.doing)? };
        runs.open.insert(run, open);
        if row.try_get("due").failed(tx.doing)? {
            runs.due.insert(run);
        }
        if row.try_get("force").failed(tx.doing)? {
            runs.forced.insert(run);
        }
    }
    // Nodes may still have claims on runs of a job that had another target.
    for (job, run) in previous::claimed_runs(tx, &ids).await? {
        runs.entry(job).or_default().open.entry(run.id).or_insert(run.into());
    }
    Ok(runs)
}
