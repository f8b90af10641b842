//! The node's copy of its jobs: next tick, open runs, and statements in progress. It is only a cache: a job is reloaded when
//! its copy is stale or a statement about it has an unknown outcome. Nothing here waits or does I/O.

mod claims;
mod comparing;
mod entry;
mod loading;
mod parked;
mod partitions;
mod planning;
mod routes;
mod settling;
mod slots;
mod supersede;
mod ticking;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
    time::Duration,
};

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    job::Job,
    partition::PartitionSet,
    run::Claim,
    target::Destination,
    time::DbTime,
};
use everytick_store::OldClaim;
use everytick_targets::Needs;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::MonoTime,
    settings::{LOCKED_RETRY_AFTER, UNSETTLED_MAX},
};
use entry::{Entry, StaleReason};

pub(crate) use routes::{Chosen, DelegatedRun, Routes};
pub(crate) use slots::{JOB_SHARE_DEFAULT, SlotUser};
pub(crate) use ticking::Claimed;

/// A map without a random seed, so that the simulator sees the same order each time.
type Map<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// A cheap hasher for ids: it takes a fifth of the time of the standard one. The last bytes of an id are random, so a little
/// mixing is enough.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0 = (self.0.rotate_left(26) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The partitions that this node owns and runs. Jobs of other partitions are not kept.
    partitions: PartitionSet,
    /// The part of `partitions` whose horizon is not loaded yet.
    new_partitions: PartitionSet,
    /// Counts the changes of `partitions`. Data that was read before a change is not applied after it.
    partition_generation: u64,
    jobs: Map<JobId, Entry>,
    /// When each job is planned next: at its next tick, unless a statement about it is in progress.
    timers: BTreeSet<(DbTime, JobId)>,
    /// The claims of this node, from their commit until their settlement is answered.
    claims: BTreeMap<RunId, OwnClaim>,
    /// The same claims by job: when partitions are acquired, claims are looked up for each loaded job.
    claims_by_job: BTreeSet<(JobId, RunId)>,
    /// Claims that the database has and memory did not know, until they are settled.
    settling_unknown: BTreeMap<RunId, OldClaim>,
    /// Claims that statements with an unknown outcome may have made, each with its attempt. If the database has one, it was
    /// never sent.
    unsure_claims: BTreeMap<RunId, UnsureClaim>,
    /// The run id below which the database was asked to list this node's claims.
    listing_to: Option<RunId>,
    /// How many slots are reserved for runs that are being recorded or claimed for this node.
    reserved: usize,
    in_use: slots::InUse,
    job_share: slots::JobShare,
    /// The last search skipped jobs at their slot limit that have runs waiting.
    full_jobs_wait: bool,
    /// Jobs to load or reload.
    wanted: BTreeSet<JobId>,
    /// For how many checks each of them has waited.
    wanted_for: BTreeMap<JobId, u64>,
    /// The last job that was taken from `wanted`. The next page starts after it, so that every job is reached.
    wanted_after: Option<JobId>,
    /// Wanted jobs that could not be loaded. They are retried one by one, so that they do not stop other jobs.
    load_retries: BTreeMap<JobId, LoadRetry>,
    /// Jobs whose cursor lags behind the ticks that are known to be recorded.
    lagging: BTreeSet<JobId>,
    /// Due runs wait for a slot. The runs of new ticks queue behind them.
    backlog: bool,
    /// A waiting run was not considered, because a statement about its job was in progress.
    deferred: bool,
    /// Jobs that could not be found or decoded. Their runs are ignored until the horizon is read again.
    missing: BTreeSet<JobId>,
    /// The tenant of the last late run that was started. Late runs rotate over the tenants.
    late_after: Option<TenantId>,
    /// The job that was reloaded last among the jobs that a run between two attempts blocks. The next page of reloads
    /// starts after it.
    blocked_after: Option<JobId>,
    /// How many of `claims` wait for their receiver's report.
    accepted: usize,
    /// How many of `claims` have ended and are being settled.
    ended: usize,
    /// Since when ticks wait for slots that are about to become free.
    slots_awaited_since: Option<MonoTime>,
    /// Ticks that wait for slots of their destination.
    parked: Option<parked::Parked>,
    /// A destination that is at its slot limit and has runs waiting. The runs of its new ticks queue behind them.
    queued_destination: Option<Destination>,
    /// A superset of the jobs that have a run waiting.
    with_waiting: BTreeSet<JobId>,
    /// Runs that could not be claimed or cancelled, each with the time of its next retry.
    postponed: BTreeMap<RunId, MonoTime>,
    /// The last search found due runs, and some may still wait.
    due_runs_may_wait: bool,
    /// The capabilities of the nodes, which decide where a run is delivered.
    routes: Routes,
    /// Jobs at their slot limit, whose delegated runs were left waiting.
    full_delegated: BTreeMap<JobId, Arc<Job>>,
    /// Delegated runs may wait for a slot.
    delegated_wait: bool,
    /// What each job needs from a node, as failed deliveries have shown.
    learned_needs: BTreeMap<JobId, Needs>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct UnsureClaim {
    attempt: u32,
    /// The fence was raised since, so the claim was committed by now or never will be.
    fenced: bool,
}

/// Claims whose receiver reports later use no slot, up to this many: the node does no work for them.
const ACCEPTED_FREE_MAX: usize = 10_000;

/// The next retry of a job that could not be loaded.
#[derive(Clone, Copy, Debug)]
struct LoadRetry {
    at: MonoTime,
    delay: Duration,
}

/// A committed claim of this node.
#[derive(Clone, Debug)]
pub(crate) struct OwnClaim {
    pub claim: Claim,
    pub job: Arc<Job>,
    /// The job and destination for which its slot is counted.
    pub user: SlotUser,
    pub tenant: TenantId,
    /// Stops the work.
    pub cancel: CancellationToken,
    /// The receiver has accepted the work and will report later.
    pub accepted: bool,
    /// The work has ended; its settlement is not answered yet.
    pub ended: bool,
    /// When this node learned of the claim.
    pub since: MonoTime,
}

impl Memory {
    pub(crate) fn slots_free(&self, slots: usize) -> usize {
        let idle = self.accepted.min(ACCEPTED_FREE_MAX) + self.ended.min(UNSETTLED_MAX);
        slots.saturating_sub((self.claims.len() + self.reserved).saturating_sub(idle))
    }

    pub(crate) fn claims(&self) -> &BTreeMap<RunId, OwnClaim> {
        &self.claims
    }

    /// How many jobs are in memory.
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(crate) fn next_timer(&self) -> Option<DbTime> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The next ticks, for users.
    pub(crate) fn next_ticks(&self, count: usize) -> Vec<(DbTime, String)> {
        let names = self.timers.iter().filter_map(|(at, id)| Some((*at, self.jobs.get(id)?.job.spec.name.clone())));
        names.take(count).collect()
    }

    pub(crate) fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// How many runs have ended and are not settled yet.
    pub(crate) fn ended(&self) -> usize {
        self.ended
    }

    /// Stops the work on a run that a user, a worker or another node ended, and reloads its job.
    pub(crate) fn ended_elsewhere(&mut self, job: JobId, run: RunId) {
        if let Some(own) = self.claims.get(&run) {
            own.cancel.cancel();
        }
        // A queue job need not be reloaded here: before one of its ticks is skipped for overlap, it is reloaded anyway.
        if self.jobs.get(&job).is_some_and(|entry| entry.counts_open() && !entry.is_pulled()) {
            self.mark_stale(job);
        }
    }

    /// Postpones a run that another session has locked or changed. A retry at once would only delay the others.
    fn postpone(&mut self, run: RunId) {
        self.postponed.insert(run, MonoTime::now().plus(LOCKED_RETRY_AFTER));
    }

    fn end_postponements(&mut self) {
        if !self.postponed.is_empty() {
            let now = MonoTime::now();
            self.postponed.retain(|_, until| *until > now);
        }
    }

    /// Marks the job as stale: it is reloaded before it is planned or its runs are claimed.
    pub(crate) fn mark_stale(&mut self, job: JobId) {
        self.mark(job, StaleReason::Changed, None);
    }

    /// Marks the job to be reloaded before a skip of this tick is written.
    fn verify(&mut self, job: JobId, tick: DbTime) {
        self.mark(job, StaleReason::Changed, Some(tick));
    }

    fn mark(&mut self, job: JobId, reason: StaleReason, verify: Option<DbTime>) {
        self.unset_timer(job);
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.mark(reason, verify);
            // A load in progress may be older than this mark.
            entry.seq += 1;
            self.wanted.insert(job);
        }
    }

    /// Marks the job after a statement about it with an unknown outcome. The job is not reloaded before the fence has been
    /// raised: an earlier load may miss the effect of that statement.
    pub(crate) fn mark_unsure(&mut self, job: JobId) {
        self.mark(job, StaleReason::Unsure, None);
    }

    /// Notes that the fence has been raised: no earlier statement of this node can take effect any more.
    pub(crate) fn fence_raised(&mut self) {
        for entry in self.jobs.values_mut() {
            entry.mark_fenced();
        }
        self.mark_claims_fenced();
    }

    /// Marks the job as wrong in memory, including its next tick: all of it is reloaded.
    pub(crate) fn mark_wrong(&mut self, job: JobId) {
        self.mark(job, StaleReason::NextTickWrong, None);
    }

    fn unset_timer(&mut self, job: JobId) {
        let timer = self.jobs.get_mut(&job).and_then(Entry::take_timer);
        if let Some(at) = timer.filter(|at| !self.timers.remove(&(*at, job))) {
            self.remove_parked(at, job);
        }
    }

    /// Sets the job's timer to its next tick, if the job may be planned.
    fn set_timer(&mut self, job: JobId) {
        self.unset_timer(job);
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if let Some(next) = entry.next
            && entry.set_timer(next)
        {
            self.timers.insert((next, job));
        }
    }

    /// Notes that a statement about this job has been answered.
    fn answered(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.in_flight = entry.in_flight.saturating_sub(1);
            entry.seq += 1;
        }
    }
}
