//! Under `cancel_previous`: cancels runs superseded by a newer run that waits in a queue.

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::{
    ids::{JobId, RunId},
    job::Job,
    overlap::{JobRuns, Open},
    run::State,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::super::{DbTx, Failed, PostgresStore, cancel, horizon, jobs, rows};
use crate::tx::Tx as _;
use crate::{Result, Supersede};

const DOING: &str = "cancel superseded runs in queues";

pub(super) async fn supersede_in_queues(store: &PostgresStore, limit: usize) -> Result<Vec<RunId>> {
    let mut write = store.write(DOING).await?;
    let done = look(&mut write, limit).await;
    write.finish(done).await
}

async fn look(write: &mut DbTx, limit: usize) -> Result<Vec<RunId>> {
    let now = write.read_clock().await?;
    let found: Vec<Uuid> = write.scalars(query!("queue/queue_previous", now.millis(), rows::limit(limit))).await?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let locked: Vec<Uuid> = write.scalars(query!("epochs/epochs_guarded", found)).await?;
    let locked: Vec<JobId> = locked.into_iter().map(JobId::from_uuid).collect();
    let jobs = jobs::readable(write, &locked).await?;
    let jobs: Vec<Arc<Job>> = jobs.into_iter().map(|row| Arc::new(row.job)).collect();
    supersede(write, &jobs).await
}

/// Cancels the open runs of these jobs that are older than the newest due one. The caller has the jobs locked.
pub(super) async fn supersede(write: &mut DbTx, jobs: &[Arc<Job>]) -> Result<Vec<RunId>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let standing = standing(write, jobs).await?;
    let mut given = Vec::new();
    for job in jobs {
        let Some((older, to)) = standing.get(&job.id).and_then(|standing| standing.supersede(&job.spec)) else {
            continue;
        };
        given.extend(older.into_iter().map(|run| Supersede { job: job.id, run, to }));
    }
    if given.is_empty() {
        return Ok(Vec::new());
    }
    cancel::end_superseded(write, &given).await
}

async fn standing(write: &mut DbTx, jobs: &[Arc<Job>]) -> Result<BTreeMap<JobId, JobRuns>> {
    let mut standing: BTreeMap<JobId, JobRuns> = BTreeMap::new();
    let asked = rows::job_ids(jobs.iter().map(|job| job.id));
    let found = write.fetch_all(query!("queue/queue_counts", &asked, write.now.millis())).await?;
    for row in &found {
        let (job, run) = (rows::job_id(row, "job").failed(DOING)?, rows::run_id(row, "run").failed(DOING)?);
        let standing = standing.entry(job).or_default();
        let open = Open {
            claimed: row.try_get("claimed").failed(DOING)?,
            attempts: row.try_get::<i32, _>("attempts").failed(DOING)?.unsigned_abs(),
        };
        standing.open.insert(run, open);
        if row.try_get("due").failed(DOING)? {
            standing.due.insert(run);
        }
        if row.try_get("force").failed(DOING)? {
            standing.forced.insert(run);
        }
    }
    // Nodes may still have claims on runs of a job that had another target.
    let jobs: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    for (job, run) in horizon::claimed_runs(write, &jobs).await? {
        let open = Open { claimed: run.state == State::Claimed, attempts: run.attempt };
        standing.entry(job).or_default().open.entry(run.id).or_insert(open);
    }
    Ok(standing)
}
