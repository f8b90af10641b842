//! Starts runs by request (trigger, rerun) and cancels runs.

use everytick_domain::{
    ids::{RunId, TenantId},
    run::{Request, answer},
};
use everytick_store::{Actor, CancelledJob, IdempotencyKey, JobRef, NewRun, Result, RunRecord, StoreError};

use metrics::counter;

use super::Commands;

/// A request for a run.
#[derive(Clone, Debug)]
pub struct Trigger {
    pub job: JobRef,
    /// JSON text that this run delivers instead of the job's payload.
    pub payload: Option<String>,
    /// Start the run beside open runs, even if the overlap policy would skip it or make it wait.
    pub force: bool,
    pub idempotency: Option<IdempotencyKey>,
}

impl Commands {
    pub async fn trigger(&self, tenant: TenantId, actor: &Actor, request: Trigger) -> Result<RunRecord> {
        let key = self.key_of(request.idempotency.as_ref());
        let Trigger { job, payload, force, idempotency } = request;
        let new = NewRun { job, key, payload, force, idempotency };
        let run = self.store.trigger(tenant, actor, new).await?;
        self.hints.run_waits();
        Ok(run)
    }

    /// Creates a new run of the same job with cause `request` and the old run's own payload. The old run does not change (I8).
    pub async fn rerun(
        &self,
        tenant: TenantId,
        actor: &Actor,
        run: RunId,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<RunRecord> {
        let old = self.store.get_run(tenant, run).await?;
        answer(old.state, Request::Rerun)
            .map_err(|rejected| StoreError::Rejected { state: rejected.state, request: rejected.request })?;
        let request = Trigger { job: JobRef::Id(old.job), payload: old.payload, force: false, idempotency };
        self.trigger(tenant, actor, request).await
    }

    /// Cancels all open runs of a job.
    pub async fn cancel_job(&self, tenant: TenantId, actor: &Actor, job: &JobRef) -> Result<CancelledJob> {
        let cancelled = self.store.cancel_job(tenant, actor, job).await?;
        let runs = cancelled.runs.all();
        count_cancelled(runs.len());
        self.hints.runs_ended(cancelled.job, runs);
        self.notify_flows();
        Ok(cancelled)
    }

    pub async fn cancel_run(&self, tenant: TenantId, actor: &Actor, run: RunId) -> Result<RunRecord> {
        let cancelled = self.store.cancel_run(tenant, actor, run).await?;
        count_cancelled(1);
        self.hints.runs_ended(cancelled.run.job, [run]);
        self.notify_flows();
        Ok(cancelled.run)
    }
}

/// Counts runs that a request has cancelled.
pub(super) fn count_cancelled(runs: usize) {
    counter!("everytick_runs_total", "state" => "cancelled").increment(runs as u64);
}
