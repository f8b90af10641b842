//! One job as the node remembers it.

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::run::State;
use everytick_domain::{
    ids::{Epoch, RunId},
    job::Job,
    time::DbTime,
};
use everytick_store::{LoadedJob, OpenRun};

use crate::clock::MonoTime;

#[derive(Debug)]
pub(super) struct Entry {
    pub job: Arc<Job>,
    pub epoch: Epoch,
    /// The cursor as the database is known to have it.
    pub cursor: Option<DbTime>,
    /// The first tick not known to be recorded.
    pub next: Option<DbTime>,
    pub timer: Option<DbTime>,
    /// Runs that are not over. One leaves only when its own terminal settlement is committed, or by reading again.
    pub open: BTreeMap<RunId, Open>,
    /// Ticks of this job are being recorded: the next are planned when the answer is known.
    pub recording: bool,
    /// Statements about this job that are not answered yet; what was read meanwhile may be older than their effect.
    pub under_way: u32,
    /// Counts answers, so that a reading from before one is known to be old.
    pub seq: u64,
    /// To be read again before anything is planned.
    pub stale: bool,
    /// `next` is not to be trusted either.
    pub forgotten: bool,
    /// A statement about it may still land: it is not read before the fence was raised.
    pub unsure: bool,
    /// The tick for which the open runs were looked up, because a skip was about to be written.
    pub verified: Option<DbTime>,
    pub verify: Option<DbTime>,
    /// Ticks recorded since the cursor was raised, and since when it lags.
    pub lag: u32,
    pub lags_since: Option<MonoTime>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Open {
    pub claimed: bool,
    pub attempts: u32,
}

impl Open {
    /// In progress from its first claim on, also between two attempts.
    pub(super) fn in_progress(self) -> bool {
        self.claimed || self.attempts > 0
    }
}

impl From<OpenRun> for Open {
    fn from(run: OpenRun) -> Self {
        Self { claimed: run.state == State::Claimed, attempts: run.attempt }
    }
}

impl Entry {
    pub(super) fn new(loaded: LoadedJob, open: BTreeMap<RunId, Open>) -> Self {
        let mut entry = Self {
            next: loaded.first_unrecorded(),
            open,
            job: Arc::new(loaded.job),
            epoch: loaded.epoch,
            cursor: loaded.cursor,
            timer: None,
            recording: false,
            under_way: 0,
            seq: 0,
            stale: false,
            forgotten: false,
            unsure: false,
            verified: None,
            verify: None,
            lag: 0,
            lags_since: None,
        };
        entry.set_open(None);
        entry
    }

    /// The open runs as they were read, where they count.
    pub(super) fn set_open(&mut self, open: Option<BTreeMap<RunId, Open>>) {
        if let Some(open) = open {
            self.open = open;
        }
        if !self.counts_open() {
            self.open.clear();
        }
    }

    /// Whether workers take its runs from a queue. Nobody tells this node of their ends: its open runs are only what was read.
    pub(super) fn is_pulled(&self) -> bool {
        self.job.spec.target.queue().is_some()
    }

    /// Whether its open runs matter here: what workers may have together is judged where they claim it.
    pub(super) fn counts_open(&self) -> bool {
        !self.is_pulled() || self.job.spec.open_max().is_some()
    }

    /// How many others stand in the way of a run. Of those that wait between two attempts the lower goes first: where the
    /// job's limit was lowered meanwhile, they would else wait for each other for ever.
    pub(super) fn in_progress_besides(&self, run: RunId) -> usize {
        let waits_itself = self.open.get(&run).is_some_and(|open| open.in_progress());
        let before = |id: RunId, open: &Open| open.claimed || (open.in_progress() && (!waits_itself || id < run));
        self.open.iter().filter(|(id, open)| **id != run && before(**id, open)).count()
    }

    /// Whether another of the job's runs may be in progress beside those that are.
    pub(super) fn may_start(&self, run: RunId) -> bool {
        self.job.spec.open_max().is_none_or(|max| self.in_progress_besides(run) < max as usize)
    }
}
