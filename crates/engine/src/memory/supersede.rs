//! Overlap `cancel_previous`: chooses the runs that a newer run supersedes, and applies their cancels. The newer run starts
//! when the cancel of the older ones is committed and, for work on this node, when that work has stopped.

use std::collections::{BTreeMap, BTreeSet};

use everytick_domain::{
    ids::{JobId, RunId},
    overlap,
};
use everytick_store::{Supersede, Waiting};

use super::Memory;

impl Memory {
    /// The runs that a due run supersedes. Leaves out runs that are being stopped already.
    pub(crate) fn choose_superseded(&mut self, waiting: &Waiting) -> Vec<Supersede> {
        self.note_waiting(waiting);
        self.end_postponements();
        let mut due: BTreeMap<JobId, (BTreeSet<RunId>, BTreeSet<RunId>)> = BTreeMap::new();
        for run in &waiting.due {
            let (due, forced) = due.entry(run.job).or_default();
            due.insert(run.id);
            if run.force {
                forced.insert(run.id);
            }
        }
        let mut superseded = Vec::new();
        for (job, (due, forced)) in due {
            let Some(entry) = self.jobs.get_mut(&job).filter(|entry| !entry.is_stale()) else { continue };
            let Some((older, to)) = overlap::supersede(&entry.job.spec, &entry.open, &due, &forced) else { continue };
            // A tick that is being recorded may be even newer. Its answer wakes the claim loop.
            if entry.is_recording() {
                self.deferred = true;
                continue;
            }
            let stopping = |run: &RunId| self.claims.get(run).is_some_and(|own| own.cancel.is_cancelled());
            let older: Vec<_> =
                older.into_iter().filter(|run| !stopping(run) && !self.postponed.contains_key(run)).collect();
            entry.in_flight += u32::try_from(older.len()).unwrap_or(u32::MAX);
            superseded.extend(older.into_iter().map(|run| Supersede { job, run, to }));
        }
        superseded
    }

    /// Applies the cancels. A run that was not cancelled has changed in the database, so its job is reloaded.
    pub(crate) fn superseded(&mut self, requested: &[Supersede], cancelled: &[RunId]) {
        let cancelled: BTreeSet<_> = cancelled.iter().collect();
        for Supersede { job, run, .. } in requested {
            self.answered(*job);
            if !cancelled.contains(run) {
                self.postpone(*run);
                self.mark_stale(*job);
            } else if let Some(own) = self.claims.get(run) {
                // The run stays open until its work has stopped.
                own.cancel.cancel();
            } else if let Some(entry) = self.jobs.get_mut(job) {
                entry.open.remove(run);
            }
            // The last load left out some waiting runs, and they may have to be superseded too.
            if self.jobs.get(job).is_some_and(|entry| entry.unread.waiting) {
                self.mark_stale(*job);
            }
        }
    }

    /// Notes that the cancels failed. With `unsure`, they may have been committed.
    pub(crate) fn supersede_failed(&mut self, requested: &[Supersede], unsure: bool) {
        for Supersede { job, .. } in requested {
            self.answered(*job);
            if unsure {
                self.mark_unsure(*job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use everytick_domain::{
        ids::{Cause, Epoch, Fence},
        job::{Creation, JobSpec, Overlap, create},
        partition::PartitionSet,
        run::{CauseKind, State},
        schedule::CronCache,
    };
    use everytick_store::{
        ClaimedRun, LoadedJob, OpenRun, Unread, WaitingRun,
        conformance::{START, TENANT, job_id, s, spec},
    };

    use super::*;

    fn job() -> JobId {
        job_id(TENANT, "j")
    }

    /// The run of the tick at `seconds`.
    fn run(seconds: i64) -> RunId {
        RunId::of(job(), Cause::Tick(s(seconds)))
    }

    /// A memory with the job and its open runs. The claimed ones are not claims of this node.
    fn memory_with(open: &[(i64, State)]) -> Memory {
        let creation = Creation { id: job(), tenant: TENANT, partition: 0, by: "test".into(), at: START };
        let (job, cursor) =
            create(creation, JobSpec { overlap: Overlap::CancelPrevious, ..spec("j") }, &[], &CronCache::default())
                .unwrap();
        let open = open.iter().map(|(seconds, state)| OpenRun {
            id: run(*seconds),
            state: *state,
            attempt: u32::from(*state == State::Claimed),
            fence: Fence::default(),
        });
        let loaded = LoadedJob {
            job: std::sync::Arc::new(job),
            epoch: Epoch::from_raw(1),
            cursor,
            last_tick: None,
            open: open.collect(),
            unread: Unread::default(),
            remaining: 100,
        };
        let mut memory = Memory::default();
        memory.add_partitions(&PartitionSet::all(1));
        let partition_generation = memory.partition_generation();
        memory.add_horizon(vec![loaded], partition_generation);
        memory
    }

    fn waiting(seconds: &[i64]) -> Waiting {
        let due = |seconds: &i64| WaitingRun {
            id: run(*seconds),
            job: job(),
            tenant: TENANT,
            priority: 5,
            due_at: s(*seconds),
            late: false,
            force: false,
            attempts: 0,
        };
        Waiting { now: s(1_000), due: seconds.iter().map(due).collect(), next_due: None }
    }

    fn started(memory: &mut Memory, waiting: &Waiting) -> Vec<RunId> {
        memory.choose(waiting, 10, 0).iter().map(|run| run.id).collect()
    }

    #[test]
    fn a_run_claimed_elsewhere_no_longer_blocks_once_its_cancel_is_committed() {
        let mut memory = memory_with(&[(10, State::Claimed), (20, State::Waiting)]);
        let found = waiting(&[20, 30]);
        assert!(started(&mut memory, &found).is_empty(), "a run is in progress");
        let superseded = memory.choose_superseded(&found);
        let to = run(30);
        assert_eq!(superseded, [10, 20].map(|seconds| Supersede { job: job(), run: run(seconds), to }));
        memory.superseded(&superseded, &[run(10), run(20)]);
        assert!(memory.choose_superseded(&waiting(&[30])).is_empty());
        assert_eq!(started(&mut memory, &waiting(&[30])), [run(30)]);
    }

    #[test]
    fn a_run_on_this_node_blocks_until_its_work_has_stopped() {
        let mut memory = memory_with(&[(10, State::Claimed)]);
        let entry = memory.jobs.get(&job()).unwrap().job.clone();
        let fence = Fence::from_raw(7);
        let claim = ClaimedRun {
            id: run(10),
            job: job(),
            tenant: TENANT,
            cause: CauseKind::Tick,
            scheduled_at: s(10),
            fence,
            attempt: 1,
            lost: 0,
            payload: None,
        };
        let own = memory.add_claim(claim, entry, s(10)).own;
        let superseded = memory.choose_superseded(&waiting(&[20]));
        memory.superseded(&superseded, &[run(10)]);
        assert!(own.cancel.is_cancelled());
        assert!(memory.choose_superseded(&waiting(&[20])).is_empty(), "the run is stopped only once");
        assert!(started(&mut memory, &waiting(&[20])).is_empty());
        memory.settling(job());
        memory.refused(job(), run(10), fence);
        assert!(memory.has_wanted(), "the job is reloaded");
    }

    #[test]
    fn a_run_that_was_not_cancelled_has_ended_elsewhere_and_its_job_is_reloaded() {
        let mut memory = memory_with(&[(10, State::Claimed)]);
        let superseded = memory.choose_superseded(&waiting(&[20]));
        memory.superseded(&superseded, &[]);
        assert!(memory.has_wanted());
        assert!(
            memory.choose_superseded(&waiting(&[20])).is_empty() && started(&mut memory, &waiting(&[20])).is_empty()
        );
    }

    #[test]
    fn no_run_is_superseded_while_a_tick_is_being_recorded() {
        let mut memory = memory_with(&[(10, State::Claimed)]);
        memory.jobs.get_mut(&job()).unwrap().begin_recording();
        assert!(memory.choose_superseded(&waiting(&[20])).is_empty());
        assert!(memory.take_deferred());
    }
}
