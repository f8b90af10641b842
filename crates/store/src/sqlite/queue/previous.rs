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

use super::super::{DbTx, Failed, SqliteStore, cancel, rows};
use crate::{Result, Supersede};

const DOING: &str = "cancel superseded runs in queues";

pub(super) async fn supersede_in_queues(store: &SqliteStore, limit: usize) -> Result<Vec<RunId>> {
    let mut read = store.read(DOING).await?;
    let look =
        sqlx::query_scalar(sql!("queue/queue_previous")).bind(store.clock.now().millis()).bind(rows::limit(limit));
    let found: Vec<Uuid> = look.fetch_all(&mut *read).await.failed(DOING)?;
    drop(read);
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let mut write = store.write(DOING).await?;
    let asked = rows::job_ids(found.into_iter().map(JobId::from_uuid));
    let jobs = write.fetch_all(query!("jobs/load_jobs", asked)).await?;
    let jobs: Vec<Arc<Job>> =
        write.unreadable.each("jobs", &jobs, rows::job).into_iter().map(|row| Arc::new(row.job)).collect();
    let gone = supersede(&mut write, &jobs).await?;
    write.commit().await?;
    Ok(gone)
}

/// Cancels the open runs of these jobs that are older than the newest due one.
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
        let (claimed, attempts) = (row.try_get("claimed").failed(DOING)?, row.try_get("attempts").failed(DOING)?);
        standing.open.insert(run, Open { claimed, attempts });
        if row.try_get("due").failed(DOING)? {
            standing.due.insert(run);
        }
        if row.try_get("force").failed(DOING)? {
            standing.forced.insert(run);
        }
    }
    // The node may still have claims on runs of a job that had another target.
    let found = write.fetch_all(query!("horizon/open_claimed", &asked)).await?;
    for row in &found {
        let (job, run) = rows::open_run(row).failed(DOING)?;
        let open = Open { claimed: run.state == State::Claimed, attempts: run.attempt };
        standing.entry(job).or_default().open.entry(run.id).or_insert(open);
    }
    Ok(standing)
}
