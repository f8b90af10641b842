//! What a node remembers of the jobs it plays: where each stands, which of its runs are open, and what is under way. It is
//! only ever a copy: dropped after an unsure answer, read again when in doubt. Nothing here waits or does I/O.

mod claims;
mod comparing;
mod entry;
mod giving_way;
mod holding;
mod loading;
mod parked;
mod routes;
mod settling;
mod slots;
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
use entry::Entry;

pub(crate) use routes::{Chosen, Routes, TakenOver};
pub(crate) use slots::{JOB_SHARE_DEFAULT, SlotUser};
pub(crate) use ticking::Planned;

/// Not seeded: the simulator must see the same order each time.
type Map<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// The ends of our ids are random: they need no more than a little mixing, which is a fifth of the usual cost.
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
    /// What this node plays. Jobs of other partitions do not come in.
    partitions: PartitionSet,
    /// Those of them whose horizon has not been loaded yet.
    fresh: PartitionSet,
    /// Counts the changes of `partitions`: what was read before one is not taken in after it.
    turn: u64,
    jobs: Map<JobId, Entry>,
    /// When each job is to be looked at next: its next tick, unless something of it is under way.
    timers: BTreeSet<(DbTime, JobId)>,
    /// The claims in our hands, from their commit until their settlement is answered.
    held: BTreeMap<RunId, Held>,
    /// The same by job: a take-over asks for each of its jobs.
    held_of: BTreeSet<(JobId, RunId)>,
    /// Claims that the database has and we did not know, until they are settled.
    returning: BTreeMap<RunId, OldClaim>,
    /// Claims that statements without an answer may have made, each with its attempt: if the database has one, it was never sent.
    unsure_claims: BTreeMap<RunId, UnsureClaim>,
    /// Up to where the database was asked to list our claims.
    listing_to: Option<RunId>,
    /// Slots promised to rows that are being recorded or claimed as ours.
    reserved: usize,
    in_use: slots::InUse,
    job_share: slots::JobShare,
    /// Jobs that use all the slots they may have were not looked at, and have runs waiting.
    held_back: bool,
    /// Jobs to be read, or read again.
    wanted: BTreeSet<JobId>,
    /// For how many checks each of them has waited.
    waits: BTreeMap<JobId, u64>,
    /// The last job that was taken from `wanted`: the next page begins behind it, so that all have their turn.
    wanted_turn: Option<JobId>,
    /// Wanted jobs that could not be loaded: they are tried again one by one, so that they keep no other job from being loaded.
    aside: BTreeMap<JobId, Aside>,
    /// Jobs whose cursor lags behind what is known to be recorded.
    lagging: BTreeSet<JobId>,
    /// Runs that are due wait for a slot: a new tick queues behind them.
    backlog: bool,
    /// A waiting run was passed over because an answer about its job was awaited.
    deferred: bool,
    /// Jobs that were asked for and could not be read: their runs are left alone until the horizon is read again.
    missing: BTreeSet<JobId>,
    /// The tenant of the last late run that was started: the next turn is another's.
    late_turn: Option<TenantId>,
    /// Where the looks at jobs that are blocked by a run between two attempts have come to.
    blocked_turn: Option<JobId>,
    /// How many of the held claims wait for their receiver's report.
    accepted: usize,
    /// How many of the held claims have ended and are being settled.
    ended: usize,
    /// Since when ticks wait for slots that are about to be free.
    crowded: Option<MonoTime>,
    /// Ticks that wait for slots of their destination.
    parked: Option<parked::Parked>,
    /// A destination that uses all the slots it may and has runs waiting: a new tick queues behind them.
    queued_destination: Option<Destination>,
    /// Jobs that may have a run waiting; all that have one are in it.
    with_waiting: BTreeSet<JobId>,
    /// Runs that could not be claimed or cancelled, and until when they are left alone.
    locked: BTreeMap<RunId, MonoTime>,
    /// Something was due when the waiting runs were looked at last, and may be there still.
    left_waiting: bool,
    /// Which node delivers what.
    routes: Routes,
    /// Jobs with delegated runs that were left because the job uses all the slots it may.
    full_delegated: BTreeMap<JobId, Arc<Job>>,
    /// Delegated runs may wait for a slot.
    delegated_wait: bool,
    /// What deliveries have shown that their jobs need.
    learned: BTreeMap<JobId, Needs>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct UnsureClaim {
    attempt: u32,
    /// The fence was raised since: it has been made by now, or never will be.
    fenced: bool,
}

/// Claims whose receiver reports later need no slot, up to this many: nothing of ours works on them.
const ACCEPTED_FREE_MAX: usize = 10_000;

/// A job that could not be loaded.
#[derive(Clone, Copy, Debug)]
struct Aside {
    until: MonoTime,
    wait: Duration,
}

/// A claim that was committed for us and is being worked on.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub claim: Claim,
    pub job: Arc<Job>,
    /// For whom its slot is counted.
    pub user: SlotUser,
    pub tenant: TenantId,
    /// Stops the work.
    pub cancel: CancellationToken,
    /// The receiver has taken the work and will report later.
    pub accepted: bool,
    /// The work has ended; its settlement is not answered yet.
    pub ended: bool,
    /// When we learned that it is ours.
    pub since: MonoTime,
}

impl Memory {
    pub(crate) fn slots_free(&self, slots: usize) -> usize {
        let idle = self.accepted.min(ACCEPTED_FREE_MAX) + self.ended.min(UNSETTLED_MAX);
        slots.saturating_sub((self.held.len() + self.reserved).saturating_sub(idle))
    }

    pub(crate) fn held(&self) -> &BTreeMap<RunId, Held> {
        &self.held
    }

    /// How many jobs are remembered.
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(crate) fn next_timer(&self) -> Option<DbTime> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The ticks that come next, for people.
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

    /// Stops the work on a run that somebody else has ended, and reads its job again.
    pub(crate) fn ended_elsewhere(&mut self, job: JobId, run: RunId) {
        if let Some(held) = self.held.get(&run) {
            held.cancel.cancel();
        }
        // Of what workers end, a tick that finds it in its way looks for itself.
        if self.jobs.get(&job).is_some_and(|entry| entry.counts_open() && !entry.is_pulled()) {
            self.doubt(job);
        }
    }

    /// Leaves a run alone for a moment: another session has locked it, or it has changed. Asking again at once would only
    /// delay the others.
    fn leave_alone(&mut self, run: RunId) {
        self.locked.insert(run, MonoTime::now().plus(SET_ASIDE));
    }

    fn end_leaving_alone(&mut self) {
        if !self.locked.is_empty() {
            let now = MonoTime::now();
            self.locked.retain(|_, until| *until > now);
        }
    }

    /// The job is read again before anything more is planned for it.
    pub(crate) fn doubt(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.stale = true;
            // What is being read now may be older than the doubt.
            entry.seq += 1;
            self.wanted.insert(job);
            self.unset_timer(job);
        }
    }

    /// After an unsure answer: what we believed of the job is forgotten, and it is not read again before the fence was
    /// raised. What is read earlier may be overtaken by the statement that we do not know of.
    pub(crate) fn unsure(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.unsure = true;
        }
        self.forget(job);
    }

    /// The fence is raised: nothing of ours can land any more that we do not know of.
    pub(crate) fn sure(&mut self) {
        for entry in self.jobs.values_mut() {
            entry.unsure = false;
        }
        self.sure_of_claims();
    }

    /// What we believed of the job is wrong: it is read again, and nothing is kept.
    pub(crate) fn forget(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.forgotten = true;
        }
        self.doubt(job);
    }

    fn unset_timer(&mut self, job: JobId) {
        if let Some(at) = self.jobs.get_mut(&job).and_then(|entry| entry.timer.take()) {
            if !self.timers.remove(&(at, job)) {
                self.take_parked(at, job);
            }
        }
    }

    /// Sets the job's timer to its next tick, where it may be planned at all.
    fn set_timer(&mut self, job: JobId) {
        self.unset_timer(job);
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if entry.recording || entry.stale {
            return;
        }
        if let Some(next) = entry.next {
            entry.timer = Some(next);
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
