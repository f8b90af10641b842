//! One job as the node remembers it.

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::{
    ids::{Epoch, RunId},
    job::Job,
    overlap::{Open, OpenRuns, is_decided, may_start},
    time::DbTime,
};
use everytick_store::{LoadedJob, Unread};
use everytick_targets::Needs;

use super::SlotUser;
use crate::{clock::MonoTime, settings::OPEN_UNTOLD_MAX};

#[derive(Debug)]
pub(super) struct Entry {
    pub job: Arc<Job>,
    /// For whom its slots are counted.
    pub user: SlotUser,
    pub epoch: Epoch,
    /// The cursor as the database is known to have it.
    pub cursor: Option<DbTime>,
    /// The first tick not known to be recorded.
    pub next: Option<DbTime>,
    pub timer: Option<DbTime>,
    /// Runs that are not over. One leaves only when its own terminal settlement is committed, or by reading again.
    pub open: BTreeMap<RunId, Open>,
    /// How many of them there were when they were read last.
    pub open_read: usize,
    /// Which waiting runs were not read then because there were many.
    pub unread: Unread,
    /// How many more of its runs may wait. It only falls until the job is read again.
    pub room: usize,
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
    /// What a delivery needs that not every node can do.
    pub needs: Option<Needs>,
}

impl Entry {
    pub(super) fn new(loaded: LoadedJob, open: BTreeMap<RunId, Open>) -> Self {
        let mut entry = Self {
            next: loaded.first_unrecorded(),
            open,
            open_read: 0,
            unread: loaded.unread,
            room: loaded.room,
            user: SlotUser::of(&loaded.job),
            job: loaded.job,
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
            needs: None,
        };
        entry.set_open(None);
        entry
    }

    pub(super) fn set_job(&mut self, job: Arc<Job>) {
        self.user = SlotUser::of(&job);
        self.job = job;
    }

    /// The open runs as they were read, where they count.
    pub(super) fn set_open(&mut self, open: Option<BTreeMap<RunId, Open>>) {
        if let Some(open) = open {
            self.open = open;
        }
        if !self.counts_open() {
            self.open.clear();
        }
        self.open_read = self.open.len();
    }

    /// Whether so many are remembered as open that nobody has told us the end of: workers report theirs to any node.
    pub(super) fn may_be_over(&self) -> bool {
        self.is_pulled() && self.open.len() > self.open_read * 2 + OPEN_UNTOLD_MAX
    }

    /// Whether workers take its runs from a queue. Nobody tells this node of their ends: its open runs are only what was read.
    pub(super) fn is_pulled(&self) -> bool {
        self.job.spec.target.queue().is_some()
    }

    /// Whether its open runs matter here.
    pub(super) fn counts_open(&self) -> bool {
        self.job.spec.counts_open()
    }

    /// Whether the open runs that are known decide about a further one. Where they do not, the job is read again.
    pub(super) fn is_decided(&self) -> bool {
        !self.unread.waiting || is_decided(&self.job.spec, self.open_runs())
    }

    /// What is open of the job, counted.
    pub(super) fn open_runs(&self) -> OpenRuns {
        self.open.values().copied().collect()
    }

    /// Whether another of the job's runs may be in progress beside those that are, and `starting` others.
    pub(super) fn may_start(&self, run: RunId, starting: usize) -> bool {
        may_start(&self.job.spec, &self.open, run, starting)
    }

    /// Whether a run waits that may not start because as many are in progress as may be.
    pub(super) fn is_blocked(&self) -> bool {
        let open = self.open_runs();
        open.waiting > 0 && self.job.spec.in_progress_max().is_some_and(|max| open.in_progress >= max as usize)
    }
}
