//! Definitions that were read lately, each with the epoch under which it holds: whatever changes a job raises that. A worker's
//! claim and its settlement each need the job of every run, and reading and compiling one costs more than the rest.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use everytick_domain::{
    ids::{Epoch, JobId},
    job::Job,
};
use sqlx::PgConnection;

use super::{PostgresStore, horizon};
use crate::Result;

/// Those of workers' last claims and settlements are held.
const HELD_MAX: usize = 20_000;
/// Those that somebody else holds, above all the scheduler, are only known. When there are more, those that are no longer held
/// are forgotten, or all.
const KNOWN_MAX: usize = 200_000;

#[derive(Default)]
pub(super) struct Definitions(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    known: HashMap<JobId, (Epoch, Weak<Job>)>,
    held: VecDeque<Arc<Job>>,
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

    /// Keeps what was read for a worker.
    fn keep(&self, job: &Arc<Job>, epoch: Epoch) {
        let mut kept = self.kept();
        kept.note(job, epoch);
        if kept.held.len() >= HELD_MAX {
            kept.held.pop_front();
        }
        kept.held.push_back(job.clone());
    }

    /// Knows what was read for the scheduler, as long as that holds it; only jobs that workers pull are asked for here.
    pub(super) fn note(&self, job: &Arc<Job>, epoch: Epoch) {
        if job.spec.target.queue().is_some() {
            self.kept().note(job, epoch);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn note(&mut self, job: &Arc<Job>, epoch: Epoch) {
        if self.known.len() >= KNOWN_MAX {
            self.known.retain(|_, (_, definition)| definition.strong_count() > 0);
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(job.id, (epoch, Arc::downgrade(job)));
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

#[cfg(test)]
mod tests {
    use everytick_domain::job::{Birth, born};

    use super::*;
    use crate::conformance::{START, TENANT, job_id, queues::queued, spec};

    fn job(name: &str) -> Arc<Job> {
        let birth = Birth { id: job_id(TENANT, name), tenant: TENANT, partition: 0, by: "test".into(), at: START };
        Arc::new(born(birth, queued(spec(name)), &[]).unwrap().0)
    }

    #[test]
    fn a_definition_is_known_under_its_epoch_while_somebody_holds_it() {
        let (definitions, job) = (Definitions::default(), job("j"));
        let known = |epoch| !definitions.known(&[(job_id(TENANT, "j"), Epoch::from_raw(epoch))]).is_empty();
        definitions.note(&job, Epoch::from_raw(1));
        assert!(known(1) && !known(2));
        drop(job);
        assert!(!known(1), "the scheduler has let go of it");
    }

    #[test]
    fn the_last_ones_of_workers_are_held() {
        let definitions = Definitions::default();
        for n in 0..=HELD_MAX {
            definitions.keep(&job(&format!("j{n}")), Epoch::from_raw(1));
        }
        let known = |n| !definitions.known(&[(job_id(TENANT, &format!("j{n}")), Epoch::from_raw(1))]).is_empty();
        assert!(!known(0) && known(1) && known(HELD_MAX));
    }
}
