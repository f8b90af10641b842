//! Chooses the waiting runs to start, and applies the claims.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use everytick_domain::{
    ids::{JobId, TenantId},
    job::{Job, Overlap},
    overlap::Open,
    target::Destination,
};
use everytick_store::{ClaimedRun, Waiting, WaitingRun};

use super::{Claimed, Memory, SlotUser, entry::Entry};
use crate::settings::{BLOCKED_RELOADS_MAX, SLOTS_PER_RESERVED_SLOT};

impl Memory {
    /// Jobs that have waiting runs but may not start another run now. The search for waiting runs skips them.
    pub(crate) fn blocked_jobs(&mut self) -> Vec<JobId> {
        let jobs = &self.jobs;
        self.with_waiting.retain(|id| jobs.get(id).is_some_and(|entry| entry.open_runs().waiting > 0));
        self.with_waiting
            .iter()
            .filter_map(|id| Some((id, self.jobs.get(id)?)))
            // Under `cancel_previous` a waiting run supersedes the run in progress. Runs of queues are started by workers.
            .filter(|(_, entry)| {
                !entry.is_pulled() && entry.job.spec.overlap != Overlap::CancelPrevious && entry.is_blocked()
            })
            .map(|(id, _)| *id)
            .collect()
    }

    /// Jobs that could not be loaded. None of their runs can start.
    pub(crate) fn missing_jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.missing.iter().copied()
    }

    /// Marks blocked jobs as stale, because this node may not have learned that the run which blocks them has ended:
    ///
    /// - all jobs blocked by a run in progress on another node,
    /// - some jobs blocked by a run between two attempts, which a user may have cancelled. They are marked a few at a time and in
    ///   rotation: when a receiver is down there are many, and nearly all are still blocked.
    pub(crate) fn mark_blocked_stale(&mut self) {
        let blocked = self.blocked_jobs();
        let elsewhere =
            |entry: &Entry| entry.open.iter().any(|(run, open)| open.claimed && !self.claims.contains_key(run));
        let (now, later): (Vec<_>, Vec<_>) =
            blocked.into_iter().partition(|job| self.jobs.get(job).is_some_and(elsewhere));
        let later: BTreeSet<_> = later.into_iter().filter(|job| self.jobs.contains_key(job)).collect();
        let after = self.blocked_after.map_or(Bound::Unbounded, Bound::Excluded);
        let page: Vec<_> = later.range((after, Bound::Unbounded)).copied().take(BLOCKED_RELOADS_MAX).collect();
        // After the last page, the rotation starts again with the first job.
        self.blocked_after = page.last().copied().filter(|_| page.len() == BLOCKED_RELOADS_MAX);
        for job in now.into_iter().chain(page) {
            self.mark_stale(job);
        }
    }

    /// Every job in memory.
    pub(crate) fn jobs(&self) -> Vec<Arc<Job>> {
        self.jobs.values().map(|entry| entry.job.clone()).collect()
    }

    /// The tenant of the last late run that was started.
    pub(crate) fn late_after(&self) -> Option<TenantId> {
        self.late_after
    }

    /// Adds all waiting runs to memory. The caller then decides which of them to start or to cancel.
    pub(super) fn note_waiting(&mut self, waiting: &Waiting) {
        for run in &waiting.due {
            let Some(entry) = self.jobs.get_mut(&run.job).filter(|entry| !entry.is_stale()) else { continue };
            self.with_waiting.insert(run.job);
            let known = entry.open.entry(run.id).or_insert(Open { claimed: false, attempts: run.attempts });
            if !known.claimed {
                known.attempts = run.attempts;
            } else if !self.claims.contains_key(&run.id) {
                // In memory the run is claimed by another node, so the job was loaded before that claim was lost.
                self.mark_stale(run.job);
            }
        }
    }

    /// Chooses among the due runs. It leaves out runs of jobs that are not in memory (those jobs are loaded first), and of jobs
    /// that have their maximum in progress. It leaves out late runs when their rate is used up or only reserved slots are free.
    pub(crate) fn choose(&mut self, waiting: &Waiting, slots: usize, mut late_budget: usize) -> Vec<WaitingRun> {
        self.note_waiting(waiting);
        self.end_postponements();
        self.due_runs_may_wait = !waiting.due.is_empty() || self.full_jobs_wait;
        let free = |destination: Destination| self.destination_free(destination, slots) > 0;
        if self.queued_destination.is_some_and(free) {
            self.queued_destination = None;
        }
        let mut started: BTreeMap<JobId, usize> = BTreeMap::new();
        let mut chosen = Vec::new();
        let mut lacks_slots = false;
        let reserved = slots / SLOTS_PER_RESERVED_SLOT;
        for run in &waiting.due {
            let starting = started.entry(run.job).or_default();
            let Some(user) = self.may_start(run, *starting) else { continue };
            let free = self.slots_free(slots);
            if run.late && (late_budget == 0 || free <= reserved) {
                continue;
            }
            if free == 0 {
                lacks_slots |= !run.late;
                continue;
            }
            if !self.may_have_slot(user, slots) {
                self.queued_destination = self.queued_destination.or(self.full_destination(user, slots));
                continue;
            }
            if run.late {
                late_budget -= 1;
                self.late_after = Some(run.tenant);
            }
            *starting += 1;
            self.reserve_slot(user);
            if let Some(entry) = self.jobs.get_mut(&run.job) {
                entry.in_flight += 1;
            }
            chosen.push(*run);
        }
        self.backlog = lacks_slots;
        chosen
    }

    /// The job and destination for which the slot of the run counts; `None` if the run may not start now. `starting`:
    /// how many runs of its job were chosen already. Marks the job to be loaded if memory does not know enough to
    /// decide.
    fn may_start(&mut self, run: &WaitingRun, starting: usize) -> Option<SlotUser> {
        let Some(entry) = self.jobs.get(&run.job) else {
            if !self.missing.contains(&run.job) {
                self.wanted.insert(run.job);
            }
            return None;
        };
        if self.postponed.contains_key(&run.id)
            || entry.is_stale()
            || entry.open.get(&run.id).is_none_or(|known| known.claimed)
            || self.routes.awaits_restart(entry.needs)
        {
            return None;
        }
        // The run of a tick that is being recorded may already be in progress. The answer of the recording wakes the
        // claim loop.
        if entry.job.spec.in_progress_max().is_some() && entry.is_recording() {
            self.deferred = true;
            return None;
        }
        if !run.force && !entry.may_start(run.id, starting) {
            return None;
        }
        // Runs between two attempts count as in progress, and the last load left some of them out.
        if !run.force && run.attempts == 0 && entry.unread.tried && entry.job.spec.in_progress_max().is_some() {
            self.mark_stale(run.job);
            return None;
        }
        Some(entry.user)
    }

    /// Whether `choose` left out a run because an answer about its job was pending. Clears the flag.
    pub(crate) fn take_deferred(&mut self) -> bool {
        std::mem::take(&mut self.deferred)
    }

    /// Notes whether due runs wait, when no slot is free for them.
    pub(crate) fn no_slot(&mut self, waiting: &Waiting) {
        self.due_runs_may_wait = !waiting.due.is_empty() || self.full_jobs_wait;
        self.backlog = waiting.due.iter().any(|run| !run.late);
    }

    /// Applies the committed claims. A run that was not claimed has changed in the database, so its job is reloaded.
    pub(crate) fn claimed(&mut self, requested: &[WaitingRun], got: Vec<ClaimedRun>) -> Vec<Claimed> {
        let mut got: BTreeMap<_, _> = got.into_iter().map(|run| (run.id, run)).collect();
        let mut send = Vec::new();
        for run in requested {
            self.end_reservation(run.job);
            self.answered(run.job);
            let Some(claimed) = got.remove(&run.id) else {
                self.postpone(run.id);
                self.mark_stale(run.job);
                continue;
            };
            let Some(entry) = self.jobs.get_mut(&run.job) else {
                self.unsent_claim(run.id, claimed.attempt);
                continue;
            };
            entry.open.insert(run.id, Open { claimed: true, attempts: claimed.attempt });
            let job = entry.job.clone();
            send.push(self.add_claim(claimed, job, run.due_at));
        }
        send
    }

    /// Releases the reservations of chosen runs that were not claimed. With `unsure`, the claims may have been
    /// committed.
    pub(crate) fn not_claimed(&mut self, requested: &[WaitingRun], unsure: bool) {
        for run in requested {
            self.end_reservation(run.job);
            self.answered(run.job);
            if unsure {
                self.unsure_claim(run);
                self.mark_unsure(run.job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use everytick_domain::{
        ids::{Cause, Epoch, Fence, RunId},
        job::{Creation, create},
        run::State,
        schedule::CronCache,
    };
    use everytick_store::{
        LoadedJob, OpenRun, Unread,
        conformance::{OTHER_TENANT, START, TENANT, job_id, overlapping, s},
    };

    use super::*;
    use crate::clock::MonoTime;

    fn loaded(tenant: TenantId, name: &str) -> LoadedJob {
        let creation = Creation { id: job_id(tenant, name), tenant, partition: 0, by: "test".into(), at: START };
        let (job, cursor) = create(creation, overlapping(name), &[], &CronCache::default()).unwrap();
        let (unread, open) = (Unread::default(), Vec::new());
        LoadedJob {
            job: Arc::new(job),
            epoch: Epoch::from_raw(1),
            cursor,
            last_tick: None,
            open,
            unread,
            remaining: 100,
        }
    }

    /// Runs of two jobs of two tenants, in the order in which a store returns them: first on-time runs, then late runs
    /// of alternating tenants.
    fn backlog(on_time: usize, late: usize) -> (Memory, Waiting) {
        let mut memory = Memory::default();
        let jobs = [loaded(TENANT, "ours"), loaded(OTHER_TENANT, "theirs")];
        let run = |n: usize, late: bool| {
            let job = &jobs[n % 2].job;
            let due_at = s(i64::try_from(n).unwrap() * 10 + if late { 0 } else { 100_000 });
            WaitingRun {
                id: RunId::of(job.id, Cause::Tick(due_at)),
                job: job.id,
                tenant: job.tenant,
                priority: 5,
                due_at,
                late,
                force: false,
                attempts: 0,
            }
        };
        let due = (0..on_time).map(|n| run(n, false)).chain((0..late).map(|n| run(n, true))).collect();
        memory.add_partitions(&everytick_domain::partition::PartitionSet::all(1));
        let partition_generation = memory.partition_generation();
        memory.add_horizon(jobs.to_vec(), partition_generation);
        (memory, Waiting { now: s(200_000), due, next_due: None })
    }

    #[test]
    fn late_runs_start_after_those_on_time_and_within_their_budget() {
        let (mut memory, waiting) = backlog(3, 10);
        let chosen = memory.choose(&waiting, 100, 4);
        assert_eq!(chosen.iter().filter(|run| !run.late).count(), 3);
        assert_eq!(chosen.len(), 7);
        assert!(!chosen[2].late && chosen[3].late);
        assert_eq!(memory.late_after(), Some(OTHER_TENANT), "the next late run is of the other tenant");
        assert_eq!(memory.choose(&waiting, 100, 0).iter().filter(|run| run.late).count(), 0);
        assert_eq!(memory.late_after(), Some(OTHER_TENANT));
    }

    /// One run is between two attempts, and another waits behind it.
    #[test]
    fn jobs_blocked_by_a_run_between_two_attempts_are_reloaded_in_rotation() {
        let mut memory = Memory::default();
        memory.add_partitions(&everytick_domain::partition::PartitionSet::all(1));
        let jobs = BLOCKED_RELOADS_MAX + 1;
        for n in 0..jobs {
            let mut loaded = loaded(TENANT, &format!("j{n}"));
            let mut spec = (*loaded.job.spec).clone();
            spec.overlap = Overlap::Skip;
            Arc::make_mut(&mut loaded.job).spec = Arc::new(spec);
            let run = |attempt: u32| OpenRun {
                id: RunId::of(loaded.job.id, Cause::Tick(s(attempt.into()))),
                state: State::Waiting,
                attempt,
                fence: Fence::default(),
            };
            loaded.open = vec![run(1), run(0)];
            let partition_generation = memory.partition_generation();
            memory.add_horizon(vec![loaded], partition_generation);
        }
        let mut read = BTreeSet::new();
        for expected in [BLOCKED_RELOADS_MAX, 1] {
            memory.mark_blocked_stale();
            let wanted: BTreeSet<_> =
                memory.take_wanted(usize::MAX, MonoTime::now()).into_iter().map(|(job, _)| job).collect();
            assert_eq!(wanted.difference(&read).count(), expected);
            read.extend(wanted);
        }
        assert_eq!(read.len(), jobs);
    }

    #[test]
    fn some_slots_are_reserved_for_runs_on_time() {
        // Only jobs without a run in progress get the last slot.
        for (slots, on_time, started) in [(8, 0, 6), (8, 4, 2), (8, 7, 0), (1, 0, 1), (3, 0, 2), (4, 0, 3)] {
            let (mut memory, waiting) = backlog(on_time, 20);
            memory.set_job_share(100);
            let chosen = memory.choose(&waiting, slots, 100);
            let late = chosen.iter().filter(|run| run.late).count();
            assert_eq!((chosen.len() - late, late), (on_time, started), "{slots} slots");
        }
    }
}
