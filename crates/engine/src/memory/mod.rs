//! The node's copy of its jobs: next tick, open runs, and statements in progress. It is only a cache: dropped after an unsure
//! answer, reloaded when stale. Nothing here waits or does I/O.

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
    settings::{SET_ASIDE, UNSETTLED_MAX},
};
use entry::{Entry, StaleReason};

pub(crate) use routes::{Chosen, DelegatedRun, Routes};
pub(crate) use slots::{JOB_SHARE_DEFAULT, SlotUser};
pub(crate) use ticking::Claimed;

/// Without a random seed, so that the simulator sees the same order each time.
type Map<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// The last bytes of our ids are random, so a little mixing is enough. It costs a fifth of the standard hasher.
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
    fresh: PartitionSet,
    /// Counts the changes of `partitions`. What was read before a change is not applied after it.
    partition_generation: u64,
    jobs: Map<JobId, Entry>,
    /// When each job is claimed next: at its next tick, unless a statement about it is in progress.
    timers: BTreeSet<(DbTime, JobId)>,
    /// The claims of this node, from their commit until their settlement is answered.
    claims: BTreeMap<RunId, OwnClaim>,
    /// The same claims by job: a take-over looks them up for each of its jobs.
    claims_by_job: BTreeSet<(JobId, RunId)>,
    /// Claims that the database has and memory did not know, until they are settled.
    returning: BTreeMap<RunId, OldClaim>,
    /// Claims that statements with an unknown outcome may have made, each with its attempt. If the database has one, it was
    /// never sent.
    unsure_claims: BTreeMap<RunId, UnsureClaim>,
    /// The run id below which the database was asked to list this node's claims.
    listing_to: Option<RunId>,
    /// Slots promised to rows that are being recorded or claimed for this node.
    reserved: usize,
    in_use: slots::InUse,
    job_share: slots::JobShare,
    /// The last search skipped jobs at their slot limit that have runs waiting.
    full_jobs_wait: bool,
    /// Jobs to load or reload.
    wanted: BTreeSet<JobId>,
    /// For how many checks each of them has waited.
    waits: BTreeMap<JobId, u64>,
    /// The last job that was taken from `wanted`. The next page starts after it, so that every job is reached.
    wanted_after: Option<JobId>,
    /// Wanted jobs that could not be loaded. They are retried one by one, so that they do not stop other jobs.
    aside: BTreeMap<JobId, Aside>,
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
    /// The last job reloaded of those that a run between two attempts blocks.
    blocked_after: Option<JobId>,
    /// How many of these claims wait for their receiver's report.
    accepted: usize,
    /// How many of these claims have ended and are being settled.
    ended: usize,
    /// Since when ticks wait for slots that are about to become free.
    crowded: Option<MonoTime>,
    /// Ticks that wait for slots of their destination.
    parked: Option<parked::Parked>,
    /// A destination that is at its slot limit and has runs waiting. The runs of its new ticks queue behind them.
    queued_destination: Option<Destination>,
    /// A superset of the jobs that have a run waiting.
    with_waiting: BTreeSet<JobId>,
    /// Runs that could not be claimed or cancelled, and until when they are left alone.
    locked: BTreeMap<RunId, MonoTime>,
    /// The last search found due runs, and some may still wait.
    left_waiting: bool,
    /// Which node can deliver what.
    routes: Routes,
    /// Jobs at their slot limit, whose delegated runs were left waiting.
    full_delegated: BTreeMap<JobId, Arc<Job>>,
    /// Delegated runs may wait for a slot.
    delegated_wait: bool,
    /// What each job needs from a node, as failed deliveries have shown.
    learned: BTreeMap<JobId, Needs>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct UnsureClaim {
    attempt: u32,
    /// The fence was raised since, so the claim was committed by now or never will be.
    fenced: bool,
}

/// Claims whose receiver reports later use no slot, up to this many: the node does no work for them.
const ACCEPTED_FREE_MAX: usize = 10_000;

/// A job that could not be loaded.
#[derive(Clone, Copy, Debug)]
struct Aside {
    until: MonoTime,
    wait: Duration,
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
    pub(crate) fn coming(&self, count: usize) -> Vec<(DbTime, String)> {
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

    /// Stops the work on a run that was ended elsewhere, and reloads its job.
    pub(crate) fn ended_elsewhere(&mut self, job: JobId, run: RunId) {
        if let Some(own) = self.claims.get(&run) {
            own.cancel.cancel();
        }
        // A queue job need not be reloaded here: before one of its ticks is skipped for overlap, it is reloaded anyway.
        if self.jobs.get(&job).is_some_and(|entry| entry.counts_open() && !entry.is_pulled()) {
            self.mark_stale(job);
        }
    }

    /// Leaves a run alone for a moment: another session has locked it, or it has changed. A retry at once would only delay the
    /// others.
    fn leave_alone(&mut self, run: RunId) {
        self.locked.insert(run, MonoTime::now().plus(SET_ASIDE));
    }

    fn end_leaving_alone(&mut self) {
        if !self.locked.is_empty() {
            let now = MonoTime::now();
            self.locked.retain(|_, until| *until > now);
        }
    }

    /// Marks the job as stale: it is reloaded before anything more is claimed for it.
    pub(crate) fn mark_stale(&mut self, job: JobId) {
        self.mark(job, StaleReason::Changed, None);
    }

    /// Reloads the job before a skip of this tick is written.
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

    /// After an unsure answer, forgets the state of the job. The job is not reloaded before the fence has been raised: an
    /// earlier load may miss the effect of the unsure statement.
    pub(crate) fn unsure(&mut self, job: JobId) {
        self.mark(job, StaleReason::Unsure, None);
    }

    /// The fence has been raised: no unknown statement of this node can take effect any more.
    pub(crate) fn sure(&mut self) {
        for entry in self.jobs.values_mut() {
            entry.mark_sure();
        }
        self.sure_of_claims();
    }

    /// The state of the job in memory is wrong: reload all of it.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.mark(job, StaleReason::Forgotten, None);
    }

    fn unset_timer(&mut self, job: JobId) {
        let timer = self.jobs.get_mut(&job).and_then(Entry::take_timer);
        if let Some(at) = timer.filter(|at| !self.timers.remove(&(*at, job))) {
            self.remove_parked(at, job);
        }
    }

    /// Sets the job's timer to its next tick, if the job may be claimed now.
    fn set_timer(&mut self, job: JobId) {
        self.unset_timer(job);
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if let Some(next) = entry.next
            && entry.set_timer(next)
        {
            self.timers.insert((next, job));
        }
    }

    /// A statement about this job has been answered.
    fn answered(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.under_way = entry.under_way.saturating_sub(1);
            entry.seq += 1;
        }
    }
}
