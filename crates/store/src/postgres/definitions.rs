//! Definitions that were read lately, each with the epoch under which it holds: whatever changes a job raises that. A worker's
//! claim and its settlement each need the job of every run, and reading and compiling one costs more than the rest.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use everytick_domain::{
    ids::{Epoch, JobId},
    job::Job,
};
use sqlx::PgConnection;

use super::{PostgresStore, horizon};
use crate::Result;

/// When there are more, all are forgotten: those in use come back at once.
const KEPT_MAX: usize = 20_000;

#[derive(Default)]
pub(super) struct Definitions(Mutex<HashMap<JobId, (Epoch, Arc<Job>)>>);

impl Definitions {
    fn known(&self, asked: &[(JobId, Epoch)]) -> HashMap<JobId, Arc<Job>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |(job, epoch): &(JobId, Epoch)| {
            kept.get(job).filter(|(under, _)| under == epoch).map(|(_, definition)| (*job, definition.clone()))
        };
        asked.iter().filter_map(known).collect()
    }

    fn keep(&self, job: &Arc<Job>, epoch: Epoch) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(job.id, (epoch, job.clone()));
    }
}

/// These jobs, whose epochs the caller has just read. One that cannot be read is left out.
pub(super) async fn of(
    store: &PostgresStore,
    connection: &mut PgConnection,
    asked: &[(JobId, Epoch)],
    doing: &'static str,
) -> Result<HashMap<JobId, Arc<Job>>> {
    let mut jobs = store.definitions.known(asked);
    let new: Vec<JobId> = asked.iter().map(|(job, _)| *job).filter(|job| !jobs.contains_key(job)).collect();
    for row in horizon::job_rows(connection, &new, doing).await? {
        let job = Arc::new(row.job);
        store.definitions.keep(&job, row.epoch);
        jobs.insert(job.id, job);
    }
    Ok(jobs)
}
