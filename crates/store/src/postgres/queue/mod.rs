//! The transactions of workers: how they claim runs from queues, keep claims alive, and lose them. Lock order of a
//! claim: the queue's limits, its jobs in order, the waiting rows, the runs. A settlement locks the run, then the
//! claim.

mod claim;
mod limits;
pub(super) mod line;
mod previous;
mod succeed;
mod worker_claims;

pub(super) use limits::limits;

use async_trait::async_trait;
use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    output::LogPart,
    queue::QueueLimits,
    time::Span,
};

use super::{PostgresStore, asked};
use crate::{
    Actor, ClaimBeat, ClaimQueue, LoadedClaim, OverdueClaim, Page, QueueClaims, QueueLook, QueueRecord, QueueStore,
    Result, Success,
};

#[async_trait]
impl QueueStore for PostgresStore {
    async fn claim_queue(&self, ask: &ClaimQueue) -> Result<QueueClaims> {
        self.writes(claim::claim_queue(self, ask)).await
    }
    async fn beat_claim(&self, tenant: TenantId, run: RunId, fence: Fence, lease: Span) -> Result<ClaimBeat> {
        self.writes(worker_claims::beat_claim(self, tenant, run, fence, lease)).await
    }
    async fn log_claim(&self, tenant: TenantId, run: RunId, fence: Fence, part: LogPart<'_>) -> Result<bool> {
        self.writes(worker_claims::log_claim(self, tenant, run, fence, part)).await
    }
    async fn claim_log(&self, tenant: TenantId, run: RunId) -> Result<Option<String>> {
        self.reads(worker_claims::claim_log(self, tenant, run)).await
    }
    async fn load_claims(&self, tenant: TenantId, runs: &[RunId]) -> Result<Vec<LoadedClaim>> {
        self.reads(worker_claims::load_claims(self, tenant, runs)).await
    }
    async fn succeed(&self, tenant: TenantId, done: &[Success]) -> Result<Vec<Option<JobId>>> {
        self.writes(succeed::succeed(self, tenant, done)).await
    }
    async fn load_overdue_claims(&self, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
        self.writes(worker_claims::load_overdue_claims(self, grace, limit)).await
    }
    async fn look_at_queues(&self, queues: &[(TenantId, String)]) -> Result<QueueLook> {
        self.reads(limits::look_at_queues(self, queues)).await
    }
    async fn list_queues(
        &self,
        tenant: TenantId,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Page<QueueRecord, String>> {
        self.reads(limits::list_queues(self, tenant, from, limit)).await
    }
    async fn note_asked(&self, tenant: TenantId, queue: &str, worker: &str) -> Result<()> {
        self.writes(async { asked::note(self.write("note that a worker asked").await?, tenant, queue, worker).await })
            .await
    }
    async fn set_queue(&self, tenant: TenantId, actor: &Actor, name: &str, limits: QueueLimits) -> Result<()> {
        self.writes(limits::set_queue(self, tenant, actor, name, limits)).await
    }
    async fn supersede_in_queues(&self, limit: usize) -> Result<Vec<RunId>> {
        self.writes(previous::supersede_in_queues(self, limit)).await
    }
}
