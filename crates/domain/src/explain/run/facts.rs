//! What an explanation of a run is made from. The store loads it.

use std::collections::BTreeMap;

use crate::{
    explain::Backfilled,
    flow::When,
    ids::RunId,
    job::Job,
    overlap::Open,
    plan::SkipRange,
    queue::QueueLimits,
    run::{CauseKind, SkipReason, State},
    time::DbTime,
};

/// The facts about one run, or one range of skips.
#[derive(Clone, Debug)]
pub struct RunFacts {
    pub now: DbTime,
    pub run: RunRow,
    /// The job, deleted or not; `None` if its row was pruned.
    pub job: Option<Job>,
    pub job_name: String,
    /// For an open run: attempts that ended without ending the run, oldest first.
    pub attempts: Vec<Attempt>,
    /// The requests about the run, oldest first.
    pub actions: Vec<Action>,
    /// Runs of the same job that may block this run or may have caused its skip. These are the open runs, and the runs
    /// recorded shortly before and after this run.
    pub others: Vec<RunRow>,
    /// For a waiting run: the open runs of its job. These are all runs in progress, and as many waiting runs as the
    /// overlap policy needs. `others` has only the first of them.
    pub open: BTreeMap<RunId, Open>,
    /// The first of the job's claimed runs that have the same concurrency key.
    pub same_key: Vec<RunRow>,
    /// How many claimed runs have the same concurrency key, counted up to `max_per_key`.
    pub same_key_count: usize,
    /// Set if the run waits in a queue.
    pub queue: Option<QueueFacts>,
    /// If the run waits for a node: the node that owns the job's partition.
    pub owner: Option<String>,
    /// The waiting runs of the job are being cancelled in the background.
    pub is_cancelling: bool,
    /// Set if a worker has claimed the run.
    pub claim: Option<ClaimFacts>,
    pub flow: Option<FlowFacts>,
    /// The backfill that created it.
    pub backfill: Option<Backfilled>,
    /// The run that redrives it, and its state.
    pub redriven: Option<(RunId, State)>,
    /// The job was edited after the failed run ended, so its retry policy may have changed since.
    pub is_edited_since: bool,
}

/// A row of the history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunRow {
    pub run: RunId,
    pub cause: CauseKind,
    pub scheduled_at: DbTime,
    pub due_at: DbTime,
    pub state: State,
    pub skip_reason: Option<SkipReason>,
    pub attempt: u32,
    pub lost: u32,
    pub node: Option<String>,
    pub worker: Option<String>,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    pub error: Option<String>,
    /// Set for a range of skips.
    pub range: Option<SkipRange>,
}

impl RunRow {
    /// When the run entered its state. For a run that has ended: when it began.
    #[must_use]
    pub fn since(&self) -> DbTime {
        self.started_at.unwrap_or(self.due_at)
    }

    /// True from the first claim to the end of the run, also between two attempts.
    #[must_use]
    pub const fn is_in_progress(&self) -> bool {
        match self.state {
            State::Claimed => true,
            State::Waiting => self.attempt > 0,
            _ => false,
        }
    }
}

/// An attempt that ended without ending its run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub attempt: u32,
    pub finished_at: Option<DbTime>,
    /// `failed` or `lost`.
    pub outcome: Option<String>,
    pub error: Option<String>,
}

/// A request about a run, from the audit trail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Action {
    pub at: DbTime,
    pub by: String,
    pub what: Did,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Did {
    Triggered {
        force: bool,
    },
    /// The run repeats this failed run.
    Redrove {
        failed: Option<RunId>,
    },
    Cancelled,
}

/// The queue in which a run waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueFacts {
    pub name: String,
    pub limits: QueueLimits,
    /// Microseconds: the time up to which earlier claims have used the rate.
    pub spent_until: i64,
    /// Runs that workers have claimed.
    pub claimed: u64,
    /// Due runs that are claimed before this one, counted up to [`AHEAD_COUNTED_MAX`].
    pub ahead: u64,
    /// When a worker last asked for runs of the queue.
    pub asked: Option<Asked>,
}

/// Runs ahead in a queue are counted up to this many.
pub const AHEAD_COUNTED_MAX: usize = 1_000;

/// The last request of a worker for runs of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    pub at: DbTime,
    pub worker: String,
}

/// A worker's claim on a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimFacts {
    pub worker: String,
    /// The claim is lost at this instant unless a heartbeat arrives.
    pub until: DbTime,
    pub timeout_at: DbTime,
    /// The receiver of a webhook accepted the run and reports later; it sends no heartbeat.
    pub is_accepted: bool,
}

/// The flow of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowFacts {
    pub flow: RunId,
    pub cancelled_at: Option<DbTime>,
    /// Parents come before their children.
    pub nodes: Vec<FlowJob>,
}

/// A job of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowJob {
    pub job: String,
    pub parents: Vec<(String, When)>,
    pub run: Option<FlowRun>,
}

/// A parent of a job, and its run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parent {
    pub job: String,
    pub when: When,
    pub run: Option<FlowRun>,
}

/// A run of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRun {
    pub run: RunId,
    pub state: State,
    pub finished_at: Option<DbTime>,
    pub error: Option<String>,
}
