//! What workers and the operators of queues ask of a store. Apart from the transactions of nodes: a worker's claim lives by a
//! lease of its own, needs no node's, and any node may answer for it.

use std::sync::Arc;

use async_trait::async_trait;
use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    job::Job,
    queue::QueueLimits,
    run::Settlement,
    time::{DbTime, Span},
};

use crate::{Actor, ClaimedRun, Page, Result, Settle};

/// A worker's wish.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimQueue {
    pub tenant: TenantId,
    pub queue: String,
    pub worker: String,
    pub limit: usize,
    /// How long each claim lives without a beat.
    pub lease: Span,
}

#[derive(Clone, Debug)]
pub struct QueueClaims {
    pub now: DbTime,
    /// In the order of the queue.
    pub claims: Vec<WorkerClaim>,
}

/// A claim that was committed for a worker.
#[derive(Clone, Debug)]
pub struct WorkerClaim {
    pub run: ClaimedRun,
    pub job: Arc<Job>,
    /// It is lost then, unless a beat comes.
    pub until: DbTime,
    /// It has timed out then, whatever comes.
    pub timeout_at: DbTime,
}

/// What a beat is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClaimBeat {
    Held {
        until: DbTime,
    },
    /// Somebody has cancelled the run: the work is to be stopped.
    Cancelled,
    /// A newer claim, or the end of the run, has passed this one: nothing was written (I7).
    Stale,
}

/// A claim that a worker holds, with what is needed to settle it.
#[derive(Clone, Debug)]
pub struct HeldClaim {
    pub run: ClaimedRun,
    pub job: Arc<Job>,
    pub started_at: Option<DbTime>,
    /// What the worker has logged so far.
    pub log: Option<String>,
    /// A receiver has taken it from a node: no worker claimed it from a queue.
    pub accepted: bool,
}

impl HeldClaim {
    /// The settlement of its success, if a worker holds it under the fence that it names.
    pub fn success(&self, done: &Success, ended_at: DbTime) -> Option<Settle> {
        let output = done.output.clone().or_else(|| self.log.clone());
        (self.run.fence == done.fence && !self.accepted).then(|| Settle {
            settlement: Settlement::success(done.run, done.fence, output),
            job: self.job.id,
            tenant: self.run.tenant,
            partition: self.job.partition,
            priority: self.job.spec.priority,
            started_at: self.started_at,
            ended_at,
        })
    }
}

/// What a worker says of a run that has succeeded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Success {
    pub run: RunId,
    pub fence: Fence,
    /// Without one, what it has logged is kept.
    pub output: Option<String>,
}

/// A claim whose lease or time has run out.
#[derive(Clone, Debug)]
pub struct OverdueClaim {
    pub held: HeldClaim,
    pub worker: String,
    /// The run has taken longer than its job allows; else the worker was not heard of.
    pub timed_out: bool,
}

/// What somebody who waits for work in queues is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueLook {
    pub now: DbTime,
    /// Those in which something is due; a limit may still be in its way.
    pub due: Vec<(TenantId, String)>,
    /// When the next run in any of them is due that is not due yet.
    pub next_due: Option<DbTime>,
}

/// A queue as people read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueRecord {
    pub name: String,
    pub limits: QueueLimits,
    /// Runs that wait and are due, counted up to [`DEPTH_COUNTED_MAX`].
    pub due: u64,
    /// Runs that wait for a later instant, likewise.
    pub later: u64,
    /// When the run was due that is due first.
    pub oldest: Option<DbTime>,
    /// Runs that workers hold.
    pub claimed: u64,
}

/// Runs of a queue are counted up to this many.
pub const DEPTH_COUNTED_MAX: usize = 100_000;
/// A claim whose choice was taken by others chooses anew so often.
pub const CLAIM_ROUNDS_MAX: usize = 8;
/// A claim looks through so many pages of what waits before it leaves the rest to the next one...
pub const CLAIM_PAGES_MAX: usize = 8;
/// ...of at least so many runs, each twice as long as the one before: jobs that are busy hide no other.
pub const CLAIM_PAGE_MIN: usize = 50;

/// The part of a [`crate::Store`] that workers use.
#[async_trait]
pub trait QueueStore: Send + Sync + 'static {
    /// Claims for a worker, highest rank first, what waits in a queue and is due: fence and attempt raised, the lease of each
    /// begun, one commit. Under the job's lock it is judged again what its overlap and its key allow, and under the queue's
    /// what its limits do. Under `cancel_previous` what is older than the newest that is due is cancelled.
    async fn claim_queue(&self, ask: &ClaimQueue) -> Result<QueueClaims>;
    /// Lengthens the lease of a claim, where it still holds the run.
    async fn beat_claim(&self, tenant: TenantId, run: RunId, fence: Fence, lease: Span) -> Result<ClaimBeat>;
    /// Adds to the log of a claim, where it still holds the run; of a long one the end is kept. Whether it did.
    async fn log_claim(&self, tenant: TenantId, run: RunId, fence: Fence, text: &str) -> Result<bool>;
    /// What the worker that holds the run has logged.
    async fn claim_log(&self, tenant: TenantId, run: RunId) -> Result<Option<String>>;
    /// Those of the runs that workers hold, in any order.
    async fn held_claims(&self, tenant: TenantId, runs: &[RunId]) -> Result<Vec<HeldClaim>>;
    /// Ends as succeeded those runs that workers hold under the fences they name (I7), in one commit; no run is named twice. Gives
    /// the job of each that it ended. What a receiver has accepted is not among them. A success needs nothing of its job to be judged by, so nothing has to be read first.
    async fn succeed(&self, tenant: TenantId, done: &[Success]) -> Result<Vec<Option<JobId>>>;
    /// Claims whose lease or time ran out before `grace` ago, whoever asks; at most `limit`. They are to be settled.
    async fn load_overdue_claims(&self, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>>;
    /// Under `cancel_previous`, cancels what workers hold of a job of which a newer run is due, and whatever else of it is older:
    /// of at most `limit` jobs. A claim does this too; but where all workers are busy none comes. Gives what was cancelled.
    async fn give_way_in_queues(&self, limit: usize) -> Result<Vec<RunId>>;
    /// Looks at all these queues at once.
    async fn look_at_queues(&self, queues: &[(TenantId, String)]) -> Result<QueueLook>;
    /// Queues that jobs have or that are limited, by name, from the given one on, which is the place to go on from.
    async fn list_queues(
        &self,
        tenant: TenantId,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Page<QueueRecord, String>>;
    /// Limits a queue, or frees it of limits.
    async fn set_queue(&self, tenant: TenantId, actor: &Actor, name: &str, limits: QueueLimits) -> Result<()>;
}

/// The audit trail's words for a queue's limits.
pub fn limits_detail(limits: &QueueLimits) -> String {
    serde_json::json!({ "concurrency": limits.concurrency, "rate": limits.rate.map(|rate| rate.to_string()) })
        .to_string()
}
