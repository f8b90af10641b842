//! One job in memory.

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
    /// The job and destination for which its slots are counted.
    pub user: SlotUser,
    pub epoch: Epoch,
    /// The cursor in the database, as last known.
    pub cursor: Option<DbTime>,
    /// The first tick that is not known to be recorded.
    pub next: Option<DbTime>,
    pub timer: Option<DbTime>,
    /// Open runs. A run is removed only when its own terminal settlement is committed, or by a reload.
    pub open: BTreeMap<RunId, Open>,
    /// How many open runs the last load returned.
    pub open_read: usize,
    /// Which waiting runs the last load left out because there were too many.
    pub unread: Unread,
    /// How many more runs of this job may wait. It only decreases until the job is reloaded.
    pub remaining: usize,
    /// Ticks of this job are being recorded. The next are claimed after the answer.
    pub recording: bool,
    /// Statements about this job without an answer yet. A load meanwhile may be older than their effect.
    pub under_way: u32,
    /// Counts answers, so that a load from before one is recognized as old.
    pub seq: u64,
    /// The job must be reloaded before anything is claimed.
    pub stale: bool,
    /// `next` is wrong too, and must come from the reload.
    pub forgotten: bool,
    /// A statement about the job may still take effect. The job is not reloaded before the fence has been raised.
    pub unsure: bool,
    /// The tick for which the job was reloaded before a skip was written; `verify` is the tick for which it is being reloaded.
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
            remaining: loaded.room,
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

    /// Replaces the open runs by those that were loaded, and clears them if they do not matter for this job.
    pub(super) fn set_open(&mut self, open: Option<BTreeMap<RunId, Open>>) {
        if let Some(open) = open {
            self.open = open;
        }
        if !self.counts_open() {
            self.open.clear();
        }
        self.open_read = self.open.len();
    }

    /// Whether many of the open runs may have ended meanwhile: workers report to any node, so this node does not learn it.
    pub(super) fn may_be_over(&self) -> bool {
        self.is_pulled() && self.open.len() > self.open_read * 2 + OPEN_UNTOLD_MAX
    }

    /// Whether workers claim its runs from a queue. This node does not learn when they end; its open runs are only those last
    /// loaded.
    pub(super) fn is_pulled(&self) -> bool {
        self.job.spec.target.queue().is_some()
    }

    /// Whether the overlap policy needs the open runs.
    pub(super) fn counts_open(&self) -> bool {
        self.job.spec.counts_open()
    }

    /// Whether the known open runs are enough to decide about one more. If not, the job is reloaded.
    pub(super) fn is_decided(&self) -> bool {
        !self.unread.waiting || is_decided(&self.job.spec, self.open_runs())
    }

    /// The open runs of the job, counted by kind.
    pub(super) fn open_runs(&self) -> OpenRuns {
        self.open.values().copied().collect()
    }

    /// Whether `run` may start, given the runs in progress and `starting` others that are about to start.
    pub(super) fn may_start(&self, run: RunId, starting: usize) -> bool {
        may_start(&self.job.spec, &self.open, run, starting)
    }

    /// Whether a run waits only because the maximum number of runs is in progress.
    pub(super) fn is_blocked(&self) -> bool {
        let open = self.open_runs();
        open.waiting > 0 && self.job.spec.in_progress_max().is_some_and(|max| open.in_progress >= max as usize)
    }
}
