//! Requests runs of past ticks. The command only stores the request; the owner of the job creates the runs.

use everytick_domain::{
    backfill::{BackfillState, Stretch, payload_problem},
    ids::{BackfillId, TenantId},
    queue::Rate,
    time::Span,
};
use everytick_store::{
    Actor, BackfillPreview, BackfillRecord, IdempotencyKey, JobRef, NewBackfill, Result, StoreError,
};

use super::Commands;

/// A request for runs of past ticks.
#[derive(Clone, Debug)]
pub struct Backfill {
    pub job: JobRef,
    pub stretch: Stretch,
    pub rate: Option<Rate>,
    /// JSON text that the runs deliver instead of the job's payload.
    pub payload: Option<String>,
    /// How long ended runs are kept.
    pub history: Span,
    pub idempotency: Option<IdempotencyKey>,
}

impl Commands {
    /// Shows what the backfill would do, without creating it.
    pub async fn preview_backfill(&self, tenant: TenantId, request: Backfill) -> Result<BackfillPreview> {
        let new = self.new_backfill(request).await?;
        self.store.preview_backfill(tenant, &new).await
    }

    pub async fn backfill(&self, tenant: TenantId, actor: &Actor, request: Backfill) -> Result<BackfillRecord> {
        let new = self.new_backfill(request).await?;
        self.store.create_backfill(tenant, actor, new).await
    }

    async fn new_backfill(&self, request: Backfill) -> Result<NewBackfill> {
        if let Some(invalid) = request.payload.as_deref().and_then(payload_problem) {
            return Err(StoreError::Invalid(vec![invalid]));
        }
        let now = self.store.now().await?;
        let mut random = [0; 10];
        self.entropy.fill(&mut random);
        let Backfill { job, stretch, rate, payload, history, idempotency } = request;
        Ok(NewBackfill { id: BackfillId::new(now, random), job, stretch, rate, payload, kept: history, idempotency })
    }

    /// Stops creating runs of a backfill. Its open runs continue; with `cancel_runs` they are cancelled one by one. If the
    /// process ends in between, the caller repeats the request, and the rest is cancelled. If nothing is left to cancel, the
    /// request is refused: [`StoreError::BackfillEnded`].
    pub async fn cancel_backfill(
        &self,
        tenant: TenantId,
        actor: &Actor,
        id: BackfillId,
        cancel_runs: bool,
    ) -> Result<BackfillRecord> {
        let before = self.store.get_backfill(tenant, id).await?.state;
        let cancelled = self.store.cancel_backfill(tenant, actor, id).await?;
        if before != BackfillState::Running && (!cancel_runs || cancelled.open.is_empty()) {
            return Err(StoreError::BackfillEnded(before));
        }
        if !cancel_runs || cancelled.open.is_empty() {
            return Ok(cancelled.backfill);
        }
        for run in cancelled.open {
            match self.cancel_run(tenant, actor, run).await {
                // The run has ended meanwhile.
                Err(StoreError::Rejected { .. } | StoreError::NotFound(_)) => {}
                answer => _ = answer?,
            }
        }
        self.store.get_backfill(tenant, id).await
    }
}
