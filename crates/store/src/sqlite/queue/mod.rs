//! The transactions of workers: how they claim runs from queues, keep claims alive, and lose them. There is one writer
//! at a time, so what a claim reads does not change before its commit.

mod claim;
mod limits;
mod previous;
mod worker_claims;

pub(super) use limits::limits;

use async_trait::async_trait;
use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    job::Job,
    output::LogPart,
    queue::{QueueLimits, lead},
    time::Span,
};

use super::{DbTx, SqliteStore, asked};
use crate::{
    Actor, ClaimBeat, ClaimQueue, LoadedClaim, OverdueClaim, Page, QueueClaims, QueueLook, QueueRecord, QueueStore,
    Result, Success,
};

#[async_trait]
impl QueueStore for SqliteStore {
    async fn claim_queue(&self, ask: &ClaimQueue) -> Result<QueueClaims> {
        claim::claim_queue(self, ask).await
    }
    async fn beat_claim(&self, tenant: TenantId, run: RunId, fence: Fence, lease: Span) -> Result<ClaimBeat> {
        worker_claims::beat_claim(self, tenant, run, fence, lease).await
    }
    async fn log_claim(&self, tenant: TenantId, run: RunId, fence: Fence, part: LogPart<'_>) -> Result<bool> {
        worker_claims::log_claim(self, tenant, run, fence, part).await
    }
    async fn claim_log(&self, tenant: TenantId, run: RunId) -> Result<Option<String>> {
        const DOING: &str = "read a worker's log";
        let mut read = self.read(DOING).await?;
        let log: Option<Option<String>> =
            read.optional_scalar(query!("worker_claims/worker_log_get", tenant.raw(), run.uuid())).await?;
        Ok(log.flatten())
    }
    async fn load_claims(&self, tenant: TenantId, runs: &[RunId]) -> Result<Vec<LoadedClaim>> {
        worker_claims::load_claims(self, tenant, runs).await
    }
    async fn succeed(&self, tenant: TenantId, done: &[Success]) -> Result<Vec<Option<JobId>>> {
        worker_claims::succeed(self, tenant, done).await
    }
    async fn load_overdue_claims(&self, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
        worker_claims::load_overdue_claims(self, grace, limit).await
    }
    async fn look_at_queues(&self, queues: &[(TenantId, String)]) -> Result<QueueLook> {
        limits::look_at_queues(self, queues).await
    }
    async fn list_queues(
        &self,
        tenant: TenantId,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Page<QueueRecord, String>> {
        limits::list_queues(self, tenant, from, limit).await
    }
    async fn note_asked(&self, tenant: TenantId, queue: &str, worker: &str) -> Result<()> {
        asked::note(self.write("note that a worker asked").await?, tenant, queue, worker).await
    }
    async fn set_queue(&self, tenant: TenantId, actor: &Actor, name: &str, limits: QueueLimits) -> Result<()> {
        limits::set_queue(self, tenant, actor, name, limits).await
    }
    async fn supersede_in_queues(&self, limit: usize) -> Result<Vec<RunId>> {
        previous::supersede_in_queues(self, limit).await
    }
}

/// Moves the waiting runs of a job to the queue of its new target.
pub(super) async fn requeue(write: &mut DbTx, job: &Job) -> Result<()> {
    let queue = job.spec.target.queue();
    write
        .execute(query!(
            "waiting/requeue_waiting",
            job.id.uuid(),
            queue,
            lead(job.spec.priority, false),
            lead(job.spec.priority, true),
            write.now.millis()
        ))
        .await?;
    write.execute(query!("epochs/requeue_epoch", job.id.uuid(), queue)).await?;
    Ok(())
}
