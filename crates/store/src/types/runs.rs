//! Runs: waiting, claimed, settled, and as the API returns them.

use std::collections::HashMap;

use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    plan::SkipRange,
    run::{CauseKind, Settlement, SkipReason, State},
    time::DbTime,
};

use super::OldClaim;

/// A run that waits for a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitingRun {
    pub id: RunId,
    pub job: JobId,
    pub tenant: TenantId,
    pub priority: u8,
    pub due_at: DbTime,
    /// Chosen by catch-up: starts after runs that are on time.
    pub late: bool,
    /// Triggered with `force`: starts even if the job is busy.
    pub force: bool,
    /// The number of its attempts. A run with more than 0 counts as in progress.
    pub attempts: u32,
}

#[derive(Clone, Debug)]
pub struct Waiting {
    pub now: DbTime,
    /// Runs that are due: on-time runs by priority, then oldest first; after them late runs, with tenants in rotation,
    /// each tenant's in the same order.
    pub due: Vec<WaitingRun>,
    /// When the next run becomes due.
    pub next_due: Option<DbTime>,
}

/// Late runs of one tenant that one peek returns. They start at a bounded rate, and the next peek reads again.
pub const LATE_PER_TENANT_MAX: usize = 100;

/// A job that may start no further waiting runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy {
    pub job: JobId,
    /// Exclude also forced runs and runs in progress: the job uses all the slots that it may.
    pub full: bool,
}

/// A committed claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimedRun {
    pub id: RunId,
    pub job: JobId,
    pub tenant: TenantId,
    pub cause: CauseKind,
    pub scheduled_at: DbTime,
    pub fence: Fence,
    pub attempt: u32,
    pub lost: u32,
    /// The run's own payload, if it has one; otherwise the job's payload is delivered.
    pub payload: Option<String>,
}

impl ClaimedRun {
    /// Sorts claims as their caller listed the runs: it put the most urgent ones first.
    pub(crate) fn sort_as(claimed: &mut [Self], runs: &[RunId]) {
        let places: HashMap<_, _> = runs.iter().enumerate().map(|(place, run)| (*run, place)).collect();
        claimed.sort_by_key(|run| places.get(&run.id).copied());
    }
}

/// A settlement and the data that the store needs to write it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settle {
    pub settlement: Settlement,
    pub job: JobId,
    pub tenant: TenantId,
    /// As the node knows it. A run that waits again gets the partition that the job has in the database; the job may
    /// have moved.
    pub partition: u16,
    pub priority: u8,
    /// When the target was called; `None` for a claim never sent.
    pub started_at: Option<DbTime>,
    /// When the target answered.
    pub ended_at: DbTime,
}

impl Settle {
    /// The runs whose claims may be listed. The settlement removes them from the list.
    pub(crate) fn listed<'a>(settles: impl IntoIterator<Item = &'a Self>) -> Vec<RunId> {
        let runs = settles.into_iter().map(|settle| (settle.settlement.run, settle.ended_at));
        runs.filter(|(run, at)| OldClaim::may_be_listed(*run, *at)).map(|(run, _)| run).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleAnswer {
    Settled,
    /// The run has a newer claim or has ended: nothing was written (I7).
    Stale,
    /// Another session has locked the run: nothing was written. Send it again later.
    Locked,
}

impl SettleAnswer {
    pub(crate) const fn of(done: bool) -> Self {
        if done { Self::Settled } else { Self::Stale }
    }
}

/// A claim whose receiver has accepted the work and reports later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptedRun {
    pub run: RunId,
    pub fence: Fence,
    /// The receiver: the target kind, and its connection if it has one.
    pub worker: String,
    /// Without a report, it times out at this instant.
    pub timeout_at: DbTime,
    /// Whether a newer run of its job supersedes it.
    pub previous: bool,
}

/// A run, or a range of skips, as the API returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunRecord {
    pub id: RunId,
    pub job: JobId,
    pub job_name: String,
    pub tenant: TenantId,
    pub cause: CauseKind,
    pub scheduled_at: DbTime,
    pub due_at: DbTime,
    pub state: State,
    pub attempt: u32,
    pub lost: u32,
    pub fence: Fence,
    pub node: Option<String>,
    /// The worker that claimed it from a queue.
    pub worker: Option<String>,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    pub error: Option<String>,
    pub output: Option<String>,
    pub skip_reason: Option<SkipReason>,
    /// Delivered instead of the job's payload. Left out of lists, like the output.
    pub payload: Option<String>,
    /// The flow that it belongs to, or opens.
    pub flow: Option<RunId>,
    /// The author of its cancellation, if the audit trail still has it. `None` for a run that a newer run superseded.
    pub cancelled_by: Option<String>,
    /// Set for a range of skips.
    pub range: Option<SkipRange>,
}

impl RunRecord {
    /// A range of skips, in the form of a run as the API returns it.
    #[must_use]
    pub fn of_range(
        id: RunId,
        (job, job_name): (JobId, String),
        tenant: TenantId,
        range: SkipRange,
        recorded_at: DbTime,
    ) -> Self {
        Self {
            id,
            job,
            job_name,
            tenant,
            cause: CauseKind::Tick,
            scheduled_at: range.from,
            due_at: range.from,
            state: State::Skipped,
            attempt: 0,
            lost: 0,
            fence: Fence::default(),
            node: None,
            worker: None,
            started_at: None,
            finished_at: Some(recorded_at),
            error: None,
            output: None,
            skip_reason: Some(range.reason),
            payload: None,
            flow: None,
            cancelled_by: None,
            range: Some(range),
        }
    }
}

/// One attempt of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptRecord {
    pub run: RunId,
    pub attempt: u32,
    pub fence: Fence,
    pub node: Option<String>,
    /// The worker that claimed it from a queue.
    pub worker: Option<String>,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    /// `succeeded`, `failed`, `lost`, `cancelled`; `None` while it is in progress.
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub output: Option<String>,
}

impl AttemptRecord {
    /// Every attempt of a run: the stored ones, and the last one, which is in the run's own row until a retry.
    #[must_use]
    pub fn all_of(run: RunRecord, mut stored: Vec<Self>) -> Vec<Self> {
        let outcome = match run.state {
            State::Waiting | State::Skipped | State::Unknown(_) => return stored,
            State::Claimed => None,
            State::Succeeded | State::Failed | State::Cancelled => Some(run.state.word().to_owned()),
        };
        // A run that was cancelled between two attempts has no attempt that ended it.
        if run.attempt > 0 && stored.last().is_none_or(|last| last.attempt < run.attempt) {
            stored.push(Self {
                run: run.id,
                attempt: run.attempt,
                fence: run.fence,
                node: run.node,
                worker: run.worker,
                started_at: run.started_at,
                finished_at: run.finished_at,
                outcome,
                error: run.error,
                output: run.output,
            });
        }
        stored
    }
}
