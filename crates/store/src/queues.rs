//! The transactions of workers and of queue operators. Unlike a node's claim, a worker's claim has a lease of its own
//! and does not depend on a node's lease. Any node may serve it.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    job::Job,
    output::{LogPart, join},
    queue::QueueLimits,
    run::Settlement,
    time::{DbTime, Span},
};

use crate::{Actor, ClaimedRun, Page, Result, Settle, SettleAnswer, Store};

/// A worker's request for runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimQueue {
    pub tenant: TenantId,
    pub queue: String,
    pub worker: String,
    pub limit: usize,
    /// How long each claim lives without a heartbeat.
    pub lease: Span,
}

#[derive(Clone, Debug)]
pub struct QueueClaims {
    pub now: DbTime,
    /// In the order of the queue.
    pub claims: Vec<WorkerClaim>,
}

/// A committed claim of a worker.
#[derive(Clone, Debug)]
pub struct WorkerClaim {
    pub run: ClaimedRun,
    pub job: Arc<Job>,
    /// The claim is lost at this instant unless a heartbeat arrives.
    pub until: DbTime,
    /// The run times out at this instant, whether heartbeats arrive or not.
    pub timeout_at: DbTime,
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClaimBeat {
    Extended {
        until: DbTime,
    },
    /// The run was cancelled: the worker must stop the work.
    Cancelled,
    /// The run has a newer claim or has ended: nothing was written (I7).
    Stale,
}

/// A worker's claim and the data to settle it.
#[derive(Clone, Debug)]
pub struct LoadedClaim {
    pub run: ClaimedRun,
    pub job: Arc<Job>,
    pub started_at: Option<DbTime>,
    /// What the worker has logged so far.
    pub log: Option<String>,
    /// A receiver accepted it from a node; no worker claimed it from a queue.
    pub accepted: bool,
    /// The database clock when the claim was read. The settlement is derived for this instant.
    pub now: DbTime,
}

impl LoadedClaim {
    /// The settlement as succeeded, if a worker has the claim under the given fence.
    pub fn success(&self, done: &Success, ended_at: DbTime) -> Option<Settle> {
        let output = join(self.log.clone(), done.output.clone());
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

/// Settles runs as succeeded after reading their claims, and returns the job of each settled run.
pub(crate) async fn settle_successes(
    store: &impl Store,
    tenant: TenantId,
    done: &[&Success],
) -> Result<HashMap<RunId, JobId>> {
    let runs: Vec<RunId> = done.iter().map(|done| done.run).collect();
    let claims = store.load_claims(tenant, &runs).await?;
    let claims: HashMap<RunId, LoadedClaim> = claims.into_iter().map(|claim| (claim.run.id, claim)).collect();
    let now = store.now().await?;
    let settles: Vec<Settle> = done.iter().filter_map(|done| claims.get(&done.run)?.success(done, now)).collect();
    let answers = store.settle(&settles).await?;
    let settled = settles.iter().zip(&answers).filter(|(_, answer)| **answer == SettleAnswer::Settled);
    Ok(settled.map(|(settle, _)| (settle.settlement.run, settle.job)).collect())
}

/// A worker's report that a run has succeeded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Success {
    pub run: RunId,
    pub fence: Fence,
    /// Stored behind the worker's log.
    pub output: Option<String>,
}

/// A claim whose lease or timeout has expired.
#[derive(Clone, Debug)]
pub struct OverdueClaim {
    pub claim: LoadedClaim,
    pub worker: String,
    /// The run exceeded its timeout; otherwise the worker sent no heartbeat.
    pub timed_out: bool,
}

/// The answer to a caller that waits for work in queues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueLook {
    pub now: DbTime,
    /// Queues with a due run. A limit may still prevent a claim.
    pub due: Vec<(TenantId, String)>,
    /// When the next run of any of these queues becomes due.
    pub next_due: Option<DbTime>,
}

/// A queue as the API returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueRecord {
    pub name: String,
    pub limits: QueueLimits,
    /// Waiting runs that are due, counted up to [`DEPTH_COUNTED_MAX`].
    pub due: u64,
    /// Waiting runs that are due later, counted likewise.
    pub later: u64,
    /// The due time of the oldest waiting run.
    pub oldest: Option<DbTime>,
    /// Runs claimed by workers.
    pub claimed: u64,
    /// When a worker last asked for runs.
    pub asked_at: Option<DbTime>,
}

/// Runs of a queue are counted up to this many.
pub const DEPTH_COUNTED_MAX: usize = 100_000;
/// How often a claim chooses again after other claims have taken the runs that it chose.
pub const CLAIM_ROUNDS_MAX: usize = 8;
/// A claim reads at most this many pages of waiting runs and leaves the rest to the next claim.
pub const CLAIM_PAGES_MAX: usize = 8;
/// The minimum size of a page in runs. It doubles with each further page, so that busy jobs hide no other.
pub const CLAIM_PAGE_MIN: usize = 50;

/// The part of a [`crate::Store`] that workers use.
#[async_trait]
pub trait QueueStore: Send + Sync + 'static {
    /// Claims due runs of a queue for a worker, in the order of their ranks. One commit raises fence and attempt and
    /// starts the lease of each claim. The job's overlap policy and concurrency key are checked again under the job's
    /// lock, and the queue's limits under the queue's lock. Under `cancel_previous`, runs older than the newest due one
    /// are cancelled.
    async fn claim_queue(&self, ask: &ClaimQueue) -> Result<QueueClaims>;
    /// Extends the lease of a claim if the claim is still valid.
    async fn beat_claim(&self, tenant: TenantId, run: RunId, fence: Fence, lease: Span) -> Result<ClaimBeat>;
    /// Appends to the log of a claim if the claim is still valid; of a long log, only the end is stored. Returns
    /// whether it did.
    async fn log_claim(&self, tenant: TenantId, run: RunId, fence: Fence, part: LogPart<'_>) -> Result<bool>;
    /// The log of the worker that has claimed the run.
    async fn claim_log(&self, tenant: TenantId, run: RunId) -> Result<Option<String>>;
    /// Those of the runs that workers have claimed, in any order.
    async fn load_claims(&self, tenant: TenantId, runs: &[RunId]) -> Result<Vec<LoadedClaim>>;
    /// Settles as succeeded the runs that workers have claimed under the given fences (I7). No run may occur twice. Returns
    /// the job of each settled run. Does not settle claims that a receiver has accepted. Runs that are locked, or whose log
    /// is joined with an output, may be settled in a second commit, or be left to the caller. An error means that no run is
    /// known to be settled.
    async fn succeed(&self, tenant: TenantId, done: &[Success]) -> Result<Vec<Option<JobId>>>;
    /// Claims whose lease or timeout expired more than `grace` ago, of any worker; at most `limit`. The caller settles
    /// them.
    async fn load_overdue_claims(&self, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>>;
    /// Under `cancel_previous`, for at most `limit` jobs with a newer due run, cancels the run that a worker has
    /// claimed and all older runs. A claim does this too, but while all workers are busy, no claim comes. Returns the
    /// cancelled runs.
    async fn supersede_in_queues(&self, limit: usize) -> Result<Vec<RunId>>;
    /// Reads all these queues with one call.
    async fn look_at_queues(&self, queues: &[(TenantId, String)]) -> Result<QueueLook>;
    /// Queues that jobs use or that have limits, by name, from the given name on, which is the position of the next
    /// page.
    async fn list_queues(
        &self,
        tenant: TenantId,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Page<QueueRecord, String>>;
    /// Notes that a worker asks for runs of a queue now. A caller does this once in a few seconds per queue, not at each
    /// request. Returns false, and notes nothing, if no job uses the queue and it has no limits.
    async fn note_asked(&self, tenant: TenantId, queue: &str, worker: &str) -> Result<bool>;
    /// Sets or removes the limits of a queue.
    async fn set_queue(&self, tenant: TenantId, actor: &Actor, name: &str, limits: QueueLimits) -> Result<()>;
}

/// The audit detail of a queue's limits.
pub fn limits_detail(limits: &QueueLimits) -> String {
    serde_json::json!({ "concurrency": limits.concurrency, "rate": limits.rate.map(|rate| rate.to_string()) })
        .to_string()
}
