//! A cache of recently read definitions, each with its epoch: every change of a job raises the epoch. A worker's claim
//! and its settlement each need the job of every run, and reading and compiling a job costs more than the rest.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use everytick_domain::{
    ids::{Epoch, JobId},
    job::Job,
};

use super::{DbTx, PostgresStore, jobs};
use crate::Result;

/// The definitions of workers' last claims are kept alive up to this many bytes: a payload may be long.
const KEPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The size of a definition without its payload.
const DEFINITION_BYTES: usize = 1_536;
/// Other definitions, above all the scheduler's, are only referenced weakly. Beyond this number, dead references are
/// removed, or if that is not enough, all of them.
const KNOWN_MAX: usize = 200_000;

#[derive(Default)]
pub(super) struct Definitions(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    known: HashMap<JobId, (Epoch, Weak<Job>)>,
    jobs: VecDeque<Arc<Job>>,
    bytes: usize,
}

impl Definitions {
    fn known(&self, asked: &[(JobId, Epoch)]) -> HashMap<JobId, Arc<Job>> {
        let kept = self.kept();
        let known = |(job, epoch): &(JobId, Epoch)| {
            let (_, definition) = kept.known.get(job).filter(|(under, _)| under == epoch)?;
            Some((*job, definition.upgrade()?))
        };
        asked.iter().filter_map(known).collect()
    }

    /// Keeps a definition that was read for a worker.
    fn keep(&self, job: &Arc<Job>, epoch: Epoch) {
        let mut kept = self.kept();
        kept.note(job, epoch);
        kept.bytes += bytes(job);
        kept.jobs.push_back(job.clone());
        while kept.bytes > KEPT_BYTES_MAX
            && let Some(first) = kept.jobs.pop_front()
        {
            kept.bytes -= bytes(&first);
        }
    }

    /// References a definition that was read for the scheduler while the scheduler keeps it. Only queue jobs are looked
    /// up here.
    pub(super) fn note(&self, job: &Arc<Job>, epoch: Epoch) {
        if job.spec.target.queue().is_some() {
            self.kept().note(job, epoch);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes(job: &Job) -> usize {
    DEFINITION_BYTES + job.spec.payload.as_ref().map_or(0, String::len)
}

impl Kept {
    fn note(&mut self, job: &Arc<Job>, epoch: Epoch) {
        let looked = self.known.len() >= KNOWN_MAX;
        if looked {
            self.known.retain(|_, (_, definition)| definition.strong_count() > 0);
        }
        // Otherwise the next call would scan all of them again.
        if self.known.len() > KNOWN_MAX / 2 && looked {
            self.known.clear();
        }
        self.known.insert(job.id, (epoch, Arc::downgrade(job)));
    }
}

/// Returns these jobs, whose epochs the caller has just read. Leaves out a job that cannot be decoded.
pub(super) async fn of(
    store: &PostgresStore,
    tx: &mut DbTx,
    asked: &[(JobId, Epoch)],
) -> Result<HashMap<JobId, Arc<Job>>> {
    let mut jobs = store.definitions.known(asked);
    let new: Vec<JobId> = asked.iter().map(|(job, _)| *job).filter(|job| !jobs.contains_key(job)).collect();
    for row in jobs::readable(tx, &new).await? {
        let job = Arc::new(row.job);
        store.definitions.keep(&job, row.epoch);
        jobs.insert(job.id, job);
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use everytick_domain::job::{Creation, JobSpec, create};

    use super::*;
    use crate::conformance::{START, TENANT, job_id, queues::queued, spec};
    use crate::crons::CRONS;

    fn job(name: &str) -> Arc<Job> {
        let creation =
            Creation { id: job_id(TENANT, name), tenant: TENANT, partition: 0, by: "test".into(), at: START };
        Arc::new(create(creation, queued(spec(name)), &[], &CRONS).unwrap().0)
    }

    #[test]
    fn a_definition_is_found_under_its_epoch_while_it_is_referenced() {
        let (definitions, job) = (Definitions::default(), job("j"));
        let known = |epoch| !definitions.known(&[(job_id(TENANT, "j"), Epoch::from_raw(epoch))]).is_empty();
        definitions.note(&job, Epoch::from_raw(1));
        assert!(known(1) && !known(2));
        drop(job);
        assert!(!known(1), "the scheduler has dropped it");
    }

    #[test]
    fn the_definitions_of_the_last_worker_claims_are_kept() {
        let (definitions, long) = (Definitions::default(), "x".repeat(256 * 1024));
        let fit = KEPT_BYTES_MAX / (long.len() + DEFINITION_BYTES);
        for n in 0..=fit {
            let mut job = job(&format!("j{n}"));
            let made = Arc::get_mut(&mut job).unwrap();
            made.spec = Arc::new(JobSpec { payload: Some(long.clone()), ..(*made.spec).clone() });
            definitions.keep(&job, Epoch::from_raw(1));
        }
        let known = |n| !definitions.known(&[(job_id(TENANT, &format!("j{n}")), Epoch::from_raw(1))]).is_empty();
        assert!(!known(0) && known(1) && known(fit));
    }
}
