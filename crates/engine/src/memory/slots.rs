//! Counts the slots of a node by job and by destination, so that no job and no destination uses all of them. A slot is in use
//! from the time it is reserved for a run that is being recorded or claimed, until the work on that run has ended or its
//! receiver has accepted it.

use everytick_domain::{
    ids::JobId,
    job::{Job, Overlap},
    target::Destination,
    time::DbTime,
};

use super::{Map, Memory};

/// The share of the slots that one job may use by default, in percent.
pub(crate) const JOB_SHARE_DEFAULT: u8 = 25;
/// The share of the slots that one destination may use, in percent.
const DESTINATION_SHARE: usize = 75;
/// The share of the slots that only jobs without a run in progress may use, in percent.
const IDLE_JOBS_SHARE: usize = 5;

/// How many slots one job and one destination may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    job: usize,
    destination: usize,
    /// The last free slots, which only jobs without a run in progress may use.
    idle_jobs: usize,
}

impl Limits {
    fn of(slots: usize, job_share: u8) -> Self {
        let part = |share: usize| (slots.saturating_mul(share) / 100).max(1);
        Self { job: part(job_share.into()), destination: part(DESTINATION_SHARE), idle_jobs: part(IDLE_JOBS_SHARE) }
    }
}

/// The share of the slots that one job may use, in percent.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobShare(pub u8);

impl Default for JobShare {
    fn default() -> Self {
        Self(JOB_SHARE_DEFAULT)
    }
}

/// The job and destination for which a slot is counted. The destination is cached: parsing the URL costs more than the count
/// itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotUser {
    job: JobId,
    destination: Option<Destination>,
}

impl SlotUser {
    pub(crate) fn of(job: &Job) -> Self {
        Self { job: job.id, destination: job.spec.target.destination() }
    }

    pub(super) fn goes_to(self, destination: Option<Destination>) -> bool {
        destination.is_some() && self.destination == destination
    }
}

/// The slots in use, by job and by destination.
#[derive(Debug, Default)]
pub(super) struct InUse {
    jobs: Map<JobId, usize>,
    destinations: Map<Destination, usize>,
    /// The part of these slots that is reserved and not yet used, by job.
    reserved: Map<JobId, (usize, Option<Destination>)>,
    /// The same part, by destination.
    reserved_for: Map<Destination, usize>,
}

impl InUse {
    fn of_job(&self, job: JobId) -> usize {
        self.jobs.get(&job).copied().unwrap_or(0)
    }

    fn at(&self, destination: Option<Destination>) -> usize {
        destination.and_then(|destination| self.destinations.get(&destination)).copied().unwrap_or(0)
    }

    /// How many slots are reserved for runs of the destination.
    pub(super) fn reserved_for(&self, destination: Destination) -> usize {
        self.reserved_for.get(&destination).copied().unwrap_or(0)
    }

    fn take(&mut self, SlotUser { job, destination }: SlotUser) {
        *self.jobs.entry(job).or_default() += 1;
        if let Some(destination) = destination {
            *self.destinations.entry(destination).or_default() += 1;
        }
    }

    fn release(&mut self, SlotUser { job, destination }: SlotUser) {
        decrement(&mut self.jobs, job);
        if let Some(destination) = destination {
            decrement(&mut self.destinations, destination);
        }
    }
}

fn decrement<K: std::hash::Hash + Eq>(counts: &mut Map<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

impl Memory {
    /// Sets the share of the slots that one job may use, in percent.
    pub(crate) fn set_job_share(&mut self, share: u8) {
        self.job_share = JobShare(share);
    }

    /// Whether one more run of the job may get a slot now.
    pub(super) fn may_have_slot(&self, user: SlotUser, slots: usize) -> bool {
        self.slots_free(slots) > 0 && !self.is_at_slot_limit(user, slots)
    }

    /// Whether the job is at its slot limit, even if slots are free.
    pub(super) fn is_at_slot_limit(&self, user: SlotUser, slots: usize) -> bool {
        let limits = Limits::of(slots, self.job_share.0);
        let used = self.in_use.of_job(user.job);
        used >= limits.job
            || self.full_destination(user, slots).is_some()
            || (used > 0 && self.slots_free(slots) <= limits.idle_jobs)
    }

    /// The destination, if it is at its slot limit.
    pub(super) fn full_destination(&self, user: SlotUser, slots: usize) -> Option<Destination> {
        user.destination.filter(|destination| self.destination_free(*destination, slots) == 0)
    }

    /// The destination, if a tick has to wait for a slot of it: the destination is at its limit, or older ticks wait for it.
    pub(super) fn destination_to_wait_for(&self, user: SlotUser, tick: DbTime, slots: usize) -> Option<Destination> {
        let waits = |destination: &Destination| self.parked_before(tick, user.job, *destination);
        self.full_destination(user, slots).or(user.destination.filter(waits))
    }

    /// How many more slots the destination may use, even if more are free.
    pub(super) fn destination_free(&self, destination: Destination, slots: usize) -> usize {
        let limits = Limits::of(slots, self.job_share.0);
        limits.destination.saturating_sub(self.in_use.at(Some(destination)))
    }

    /// Jobs with waiting runs that are at their slot limit, or that wait for a node that restarts. A search that returns their
    /// runs would hide runs of other jobs. Jobs under `cancel_previous` are not included: a waiting run supersedes the run in
    /// progress.
    pub(crate) fn jobs_at_slot_limit(&mut self, slots: usize) -> Vec<JobId> {
        let entries = self.with_waiting.iter().filter_map(|id| self.jobs.get(id));
        let full: Vec<_> = entries
            .filter(|entry| !entry.is_pulled() && entry.job.spec.overlap != Overlap::CancelPrevious)
            .filter(|entry| self.is_at_slot_limit(entry.user, slots) || self.routes.awaits_restart(entry.needs))
            .map(|entry| entry.user)
            .collect();
        // Only `choose` clears the destination, after it has chosen the runs that get the free slots.
        let queued = full.iter().find_map(|user| self.full_destination(*user, slots));
        self.queued_destination = queued.or(self.queued_destination);
        let full: Vec<_> = full.iter().map(|user| user.job).collect();
        self.full_jobs_wait = !full.is_empty();
        full
    }

    /// Reserves a slot for a run of the job.
    pub(super) fn reserve_slot(&mut self, user: SlotUser) {
        self.reserved += 1;
        // Reservations of one job count for one destination, even if its URL changes in between: `end_reservation` gets only the
        // job.
        let (count, destination) = self.in_use.reserved.entry(user.job).or_insert((0, user.destination));
        *count += 1;
        let user = SlotUser { destination: *destination, ..user };
        self.in_use.take(user);
        if let Some(destination) = user.destination {
            *self.in_use.reserved_for.entry(destination).or_default() += 1;
        }
    }

    /// Ends a reservation: the run uses its slot now, or needs none.
    pub(super) fn end_reservation(&mut self, job: JobId) {
        self.reserved -= 1;
        let Some((count, destination)) = self.in_use.reserved.get_mut(&job) else { return };
        let destination = *destination;
        *count -= 1;
        if *count == 0 {
            self.in_use.reserved.remove(&job);
        }
        if let Some(destination) = destination {
            decrement(&mut self.in_use.reserved_for, destination);
        }
        self.in_use.release(SlotUser { job, destination });
    }

    pub(super) fn occupy_slot(&mut self, user: SlotUser) {
        self.in_use.take(user);
    }

    pub(super) fn release_slot(&mut self, user: SlotUser) {
        self.in_use.release(user);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use everytick_domain::{
        ids::{Cause, Epoch, Fence, RunId, TenantId},
        job::{Creation, create},
        partition::PartitionSet,
        run::{CauseKind, Verdict},
        schedule::CronCache,
        target::{HttpMethod, HttpTarget, TargetSpec},
    };
    use everytick_store::{
        ClaimedRun, LoadedJob, Waiting, WaitingRun,
        conformance::{START, TENANT, job_id, overlapping, s},
    };

    use super::*;

    /// A memory with these jobs, each with its URL, due every 10 s.
    pub(in crate::memory) fn memory_with(jobs: &[(&str, &str)]) -> Memory {
        let mut memory = Memory::default();
        memory.add_partitions(&PartitionSet::all(1));
        let loaded = |(name, url): &(&str, &str)| {
            let creation =
                Creation { id: job_id(TENANT, name), tenant: TENANT, partition: 0, by: "test".into(), at: START };
            let mut spec = overlapping(name);
            let url = (*url).to_owned();
            spec.target = TargetSpec::Http(HttpTarget {
                url,
                method: HttpMethod::Post,
                headers: Default::default(),
                secret: None,
                client_cert: None,
            });
            let (job, cursor) = create(creation, spec, &[], &CronCache::default()).unwrap();
            LoadedJob {
                job: Arc::new(job),
                epoch: Epoch::from_raw(1),
                cursor,
                last_tick: None,
                open: Vec::new(),
                unread: Default::default(),
                remaining: 1_000,
            }
        };
        let partition_generation = memory.partition_generation();
        memory.add_horizon(jobs.iter().map(loaded).collect(), partition_generation);
        memory
    }

    /// `each` runs of each job wait, those of the first job before all others.
    fn waiting(jobs: &[(&str, &str)], each: i64) -> Waiting {
        let run = |name: &str, n: i64| {
            let (job, due_at) = (job_id(TENANT, name), s(n));
            let tenant: TenantId = TENANT;
            WaitingRun {
                id: RunId::of(job, Cause::Tick(due_at)),
                job,
                tenant,
                priority: 5,
                due_at,
                late: false,
                force: n % 2 == 0,
                attempts: 0,
            }
        };
        let due = jobs.iter().flat_map(|(name, _)| (0..each).map(move |n| run(name, n))).collect();
        Waiting { now: s(200_000), due, next_due: None }
    }

    fn claimed(run: &WaitingRun, attempt: u32) -> ClaimedRun {
        ClaimedRun {
            id: run.id,
            job: run.job,
            tenant: run.tenant,
            cause: CauseKind::Tick,
            scheduled_at: run.due_at,
            fence: Fence::from_raw(attempt.into()),
            attempt,
            lost: 0,
            payload: None,
        }
    }

    fn started(memory: &mut Memory, waiting: &Waiting, slots: usize, name: &str) -> usize {
        let chosen = memory.choose(waiting, slots, 0);
        chosen.iter().filter(|run| run.job == job_id(TENANT, name)).count()
    }

    const TWO: [(&str, &str); 2] = [("greedy", "https://a.example/"), ("modest", "https://b.example/")];

    #[test]
    fn one_job_uses_at_most_its_share_of_the_slots_however_many_of_its_runs_wait() {
        for (slots, share, most) in [(100, 25, 25), (1_000, 25, 250), (4, 25, 1), (1, 25, 1), (100, 50, 50)] {
            let mut memory = memory_with(&TWO);
            memory.set_job_share(share);
            assert_eq!(started(&mut memory, &waiting(&TWO[..1], 400), slots, "greedy"), most, "{slots} slots");
            assert_eq!(memory.jobs_at_slot_limit(slots), [job_id(TENANT, "greedy")], "the next search skips it");
            let modest = started(&mut memory, &waiting(&TWO[1..], 1), slots, "modest");
            assert_eq!(modest, usize::from(slots > 1), "{slots} slots");
        }
    }

    #[test]
    fn one_destination_uses_at_most_three_quarters_of_the_slots() {
        let names: Vec<String> = (0..10).map(|n| format!("j{n}")).collect();
        let mut jobs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "https://slow.example/x")).collect();
        jobs.push(("other", "https://slow.example:8443/"));
        let mut memory = memory_with(&jobs);
        let chosen = memory.choose(&waiting(&jobs[..10], 20), 100, 0);
        assert_eq!(chosen.len(), 75);
        assert_eq!(
            started(&mut memory, &waiting(&jobs[10..], 20), 100, "other"),
            20,
            "another port is another destination"
        );
    }

    #[test]
    fn only_jobs_without_a_run_in_progress_get_the_last_slots() {
        let names: Vec<String> = (0..5).map(|n| format!("j{n}")).collect();
        let urls: Vec<String> = names.iter().map(|name| format!("https://{name}.example/")).collect();
        let jobs: Vec<(&str, &str)> =
            names.iter().zip(&urls).map(|(name, url)| (name.as_str(), url.as_str())).collect();
        let mut memory = memory_with(&jobs);
        let chosen = memory.choose(&waiting(&jobs[..4], 30), 100, 0);
        assert_eq!(chosen.len(), 95, "5 of 100 slots are reserved");
        assert_eq!(memory.jobs_at_slot_limit(100).len(), 4);
        assert_eq!(started(&mut memory, &waiting(&jobs[4..], 30), 100, "j4"), 1);
    }

    #[test]
    fn a_slot_is_free_again_when_the_work_or_the_reservation_ends() {
        let mut memory = memory_with(&TWO);
        let all = waiting(&TWO[..1], 10);
        let chosen = memory.choose(&all, 8, 0);
        assert_eq!(chosen.len(), 2);
        // One run was claimed, the other was not.
        let claimed = memory.claimed(&chosen, vec![claimed(&chosen[0], 1)]).remove(0);
        let job = claimed.own.job.clone();
        assert_eq!(memory.in_use.of_job(job.id), 1);
        memory.outcome_arrived(job.id, claimed.run.id, claimed.run.fence);
        memory.settled(job.id, claimed.run.id, claimed.run.fence, Verdict::Succeeded, 1);
        assert_eq!((memory.in_use.of_job(job.id), memory.in_use.destinations.len()), (0, 0));
        memory.not_claimed(&[], false);
        assert!(memory.in_use.reserved.is_empty());
    }

    #[test]
    fn the_reservations_of_a_job_end_even_if_its_url_changes_in_between() {
        let mut memory = memory_with(&TWO);
        let [one, other] = [0, 1].map(|n| SlotUser::of(&memory.jobs()[n]));
        memory.reserve_slot(one);
        memory.reserve_slot(SlotUser { destination: other.destination, ..one });
        memory.end_reservation(one.job);
        memory.end_reservation(one.job);
        assert!(memory.in_use.destinations.is_empty() && memory.in_use.reserved_for.is_empty());
    }

    #[test]
    fn an_outcome_of_an_older_attempt_frees_no_slot_of_the_newer_one() {
        let mut memory = memory_with(&TWO);
        let run = waiting(&TWO[..1], 1).due[0];
        let job = memory.jobs()[0].clone();
        let job = if job.id == run.job { job } else { memory.jobs()[1].clone() };
        let [old, new] =
            [1, 2].map(|attempt| memory.add_claim(claimed(&run, attempt), job.clone(), run.due_at).own.claim.fence);
        memory.outcome_arrived(run.job, run.id, old);
        memory.accepted(run.id, old);
        assert_eq!((memory.ended(), memory.slots_free(4), memory.in_use.of_job(run.job)), (0, 3, 1));
        memory.outcome_arrived(run.job, run.id, new);
        assert_eq!((memory.ended(), memory.slots_free(4), memory.in_use.of_job(run.job)), (1, 4, 0));
    }
}
