//! One job in memory.

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::{
    ids::{Epoch, RunId},
    job::Job,
    mutant::Mutant,
    overlap::{Open, OpenRuns, is_decided, may_start},
    time::DbTime,
};
use everytick_store::{LoadedJob, Unread};
use everytick_targets::Needs;

use super::SlotUser;
use crate::{clock::MonoTime, settings::OPEN_UNSEEN_MAX};

/// Whether the job may be planned, and if not, what has to happen first.
///
/// ```text
///            begin_recording                mark
///   Ready ------------------> Recording ----------> Recording { stale }
///     | <---------------------    |                      |
///     |       end_recording                              | end_recording
///     |  mark                                            v
///     +-----------------------------------------------> Stale
///     ^                                                  |
///     +----------------- reloaded -----------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The job is planned at its next tick. `timer` is set unless the job has no next tick or is being planned.
    Ready { timer: Option<DbTime>, verified: Option<DbTime> },
    /// Ticks of the job are being recorded. The next are planned after the answer, or after the reload if it became stale.
    Recording { stale: Option<Stale>, verified: Option<DbTime> },
    /// The job must be reloaded before anything is planned.
    Stale(Stale),
}

/// A job that must be reloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stale {
    reason: StaleReason,
    /// The tick for which the job is reloaded before a skip is written. After the reload it is `verified`.
    verify: Option<DbTime>,
}

/// Why a job must be reloaded. A later reason includes the earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum StaleReason {
    /// The definition or the open runs may have changed.
    Changed,
    /// The first unrecorded tick in memory is wrong too, and must come from the reload.
    NextTickWrong,
    /// A statement about the job may still take effect. The job is not reloaded before the fence has been raised.
    Unsure,
}

/// How far the cursor in the database is behind the recorded ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lag {
    /// Ticks recorded since the cursor was raised.
    pub ticks: u32,
    pub since: MonoTime,
}

impl Lag {
    /// The cursor lags from now on.
    pub(super) fn begin() -> Self {
        Self { ticks: 0, since: MonoTime::now() }
    }
}

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
    state: State,
    /// Open runs. A run is removed only when its own terminal settlement is committed, or by a reload.
    pub open: BTreeMap<RunId, Open>,
    /// How many open runs the last load returned.
    pub open_read: usize,
    /// Which waiting runs the last load left out because there were too many.
    pub unread: Unread,
    /// How many more runs of this job may wait. It only decreases until the job is reloaded.
    pub remaining: usize,
    /// How many statements about this job have no answer yet. A load before the answer may miss their effect.
    pub in_flight: u32,
    /// Counts answers, so that a load from before one is recognized as old.
    pub seq: u64,
    /// How far `cursor` is behind `next`. `None` if they are equal; otherwise the job is in `Memory::lagging`.
    pub lag: Option<Lag>,
    /// What a delivery needs from a node, if not every node can provide it.
    pub needs: Option<Needs>,
}

impl Entry {
    pub(super) fn new(loaded: LoadedJob, open: BTreeMap<RunId, Open>) -> Self {
        let mut entry = Self {
            next: loaded.first_unrecorded(),
            open,
            open_read: 0,
            unread: loaded.unread,
            remaining: loaded.remaining,
            user: SlotUser::of(&loaded.job),
            job: loaded.job,
            epoch: loaded.epoch,
            cursor: loaded.cursor,
            state: State::Ready { timer: None, verified: None },
            in_flight: 0,
            seq: 0,
            lag: None,
            needs: None,
        };
        entry.set_open(None);
        entry
    }

    pub(super) fn is_stale(&self) -> bool {
        self.stale().is_some()
    }

    /// Whether ticks of the job are being recorded.
    pub(super) fn is_recording(&self) -> bool {
        matches!(self.state, State::Recording { .. })
    }

    /// Whether the first unrecorded tick must come from the reload.
    pub(super) fn has_wrong_next_tick(&self) -> bool {
        self.stale().is_some_and(|stale| stale.reason >= StaleReason::NextTickWrong)
    }

    /// Whether a statement with an unknown outcome may still change the job, so that a load now may be too old.
    pub(super) fn is_unsure(&self) -> bool {
        self.stale().is_some_and(|stale| stale.reason == StaleReason::Unsure) && !Mutant::ReadWhileUnsure.is_on()
    }

    /// Whether the job was reloaded for this tick, so that a skip may be written.
    pub(super) fn is_verified_for(&self, tick: DbTime) -> bool {
        match self.state {
            State::Ready { verified, .. } | State::Recording { verified, .. } => verified == Some(tick),
            State::Stale(_) => false,
        }
    }

    fn stale(&self) -> Option<Stale> {
        match self.state {
            State::Ready { .. } => None,
            State::Recording { stale, .. } => stale,
            State::Stale(stale) => Some(stale),
        }
    }

    /// Sets the timer. Returns `false` if the job may not be planned now.
    pub(super) fn set_timer(&mut self, at: DbTime) -> bool {
        match &mut self.state {
            State::Ready { timer, .. } => *timer = Some(at),
            State::Recording { .. } | State::Stale(_) => return false,
        }
        true
    }

    /// Clears the timer and returns it.
    pub(super) fn take_timer(&mut self) -> Option<DbTime> {
        match &mut self.state {
            State::Ready { timer, .. } => timer.take(),
            State::Recording { .. } | State::Stale(_) => None,
        }
    }

    /// Notes that ticks of the job are sent to be recorded.
    pub(super) fn begin_recording(&mut self) {
        self.in_flight += 1;
        self.state = match self.state {
            State::Ready { verified, .. } => State::Recording { stale: None, verified },
            State::Stale(stale) => State::Recording { stale: Some(stale), verified: None },
            recording @ State::Recording { .. } => recording,
        };
    }

    /// Notes that the recording was answered or has failed.
    pub(super) fn end_recording(&mut self) {
        if let State::Recording { stale, verified } = self.state {
            self.state = stale.map_or(State::Ready { timer: None, verified }, State::Stale);
        }
    }

    /// Marks the job to be reloaded, for this reason or one that includes it. The caller has taken the timer.
    pub(super) fn mark(&mut self, reason: StaleReason, verify: Option<DbTime>) {
        let was = self.stale();
        let reason = was.map_or(reason, |was| was.reason.max(reason));
        let stale = Stale { reason, verify: verify.or(was.and_then(|was| was.verify)) };
        self.state = match self.state {
            State::Recording { verified, .. } => State::Recording { stale: Some(stale), verified },
            State::Ready { .. } | State::Stale(_) => State::Stale(stale),
        };
    }

    /// The fence has been raised: no statement with an unknown outcome can change the job any more.
    pub(super) fn mark_fenced(&mut self) {
        if let State::Stale(stale) | State::Recording { stale: Some(stale), .. } = &mut self.state {
            stale.reason = stale.reason.min(StaleReason::NextTickWrong);
        }
    }

    /// Marks the job as reloaded, so that it may be planned.
    pub(super) fn mark_reloaded(&mut self) {
        let verified = self.stale().and_then(|stale| stale.verify);
        self.state = match self.state {
            State::Ready { timer, .. } => State::Ready { timer, verified },
            State::Recording { .. } => State::Recording { stale: None, verified },
            State::Stale(_) => State::Ready { timer: None, verified },
        };
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

    /// Whether many of the open runs may have ended meanwhile. Workers report to any node, so this node may not know
    /// that their runs have ended.
    pub(super) fn open_runs_may_have_ended(&self) -> bool {
        self.is_pulled() && self.open.len() > self.open_read * 2 + OPEN_UNSEEN_MAX
    }

    /// Whether workers claim the runs of the job from a queue. This node does not know when such runs end, so `open`
    /// has only the runs that were last loaded.
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

#[cfg(test)]
mod tests {
    use everytick_domain::{
        job::{Creation, create},
        schedule::CronCache,
    };
    use everytick_store::conformance::{START, TENANT, job_id, overlapping, s};

    use super::*;

    fn entry() -> Entry {
        let creation = Creation { id: job_id(TENANT, "j"), tenant: TENANT, partition: 0, by: "test".into(), at: START };
        let (job, cursor) = create(creation, overlapping("j"), &[], &CronCache::default()).unwrap();
        let loaded = LoadedJob {
            job: Arc::new(job),
            epoch: Epoch::from_raw(1),
            cursor,
            last_tick: None,
            open: Vec::new(),
            unread: Unread::default(),
            remaining: 100,
        };
        Entry::new(loaded, BTreeMap::new())
    }

    #[test]
    fn a_job_has_a_timer_only_while_it_may_be_planned() {
        let mut entry = entry();
        assert!(entry.set_timer(s(10)));
        assert_eq!(entry.take_timer(), Some(s(10)));
        entry.begin_recording();
        assert!(entry.is_recording() && !entry.is_stale() && !entry.set_timer(s(20)));
        entry.end_recording();
        assert!(entry.set_timer(s(20)));
        entry.mark(StaleReason::Changed, None);
        assert!(!entry.set_timer(s(20)) && entry.take_timer().is_none());
        entry.mark_reloaded();
        assert!(entry.set_timer(s(20)));
    }

    #[test]
    fn a_job_that_becomes_stale_while_its_ticks_are_recorded_is_stale_after_the_answer() {
        let mut entry = entry();
        entry.begin_recording();
        entry.mark(StaleReason::Changed, None);
        assert!(entry.is_recording() && entry.is_stale());
        entry.end_recording();
        assert!(!entry.is_recording() && entry.is_stale());
    }

    #[test]
    fn a_reason_to_reload_does_not_replace_one_that_includes_it() {
        let mut entry = entry();
        entry.mark(StaleReason::Unsure, None);
        entry.mark(StaleReason::Changed, None);
        assert!(entry.is_unsure() && entry.has_wrong_next_tick());
        entry.mark_fenced();
        assert!(!entry.is_unsure() && entry.has_wrong_next_tick(), "the fence was raised; the reload is still to come");
        entry.mark_reloaded();
        assert!(!entry.is_stale() && !entry.has_wrong_next_tick());
        entry.mark_fenced();
        assert!(!entry.is_stale());
    }

    #[test]
    fn a_reload_verifies_one_tick_until_the_next_reload() {
        let mut entry = entry();
        entry.mark(StaleReason::Changed, Some(s(10)));
        entry.mark(StaleReason::Changed, None);
        assert!(!entry.is_verified_for(s(10)), "the reload is still to come");
        entry.mark_reloaded();
        entry.begin_recording();
        entry.end_recording();
        assert!(entry.is_verified_for(s(10)) && !entry.is_verified_for(s(20)), "a failed recording is planned again");
        entry.mark(StaleReason::Changed, None);
        entry.mark_reloaded();
        assert!(!entry.is_verified_for(s(10)));
    }
}
