//! Cancels one run, or all open runs of a job.

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    run::{Request, State, answer},
};

use super::{JobLock, Tx, audit_one, lock_job};
use crate::{Actor, BacklogAction, CancelledJob, CancelledRun, CancelledRuns, JobRef, Result, StoreError};

pub async fn cancel_run<T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    id: RunId,
) -> Result<CancelledRun> {
    // Checks that the run belongs to the tenant. Then dequeues it, in the lock order of claims, and locks the run.
    tx.get_run(tenant, id).await?;
    tx.dequeue(&[id]).await?;
    tx.lock_run(tenant, id).await?;
    // Dequeues again: a settlement may have put it back before it was locked.
    tx.dequeue(&[id]).await?;
    let was = tx.get_run(tenant, id).await?;
    tx.read_clock().await?;
    answer(was.state, Request::Cancel)
        .map_err(|rejected| StoreError::Rejected { state: rejected.state, request: rejected.request })?;
    tx.cancel_runs(&[id]).await?;
    tx.end_claims(&[id]).await?;
    tx.leave_steps(&[id]).await?;
    let detail = serde_json::json!({ "job": was.job_name, "was": was.state.word() });
    audit_one(tx, tenant, actor, "cancel", id.to_string(), detail.to_string()).await?;
    let run = tx.get_run(tenant, id).await?;
    Ok(CancelledRun { run, was_claimed: was.state == State::Claimed })
}

pub async fn cancel_job<T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    job: &JobRef,
) -> Result<CancelledJob> {
    // Exclusive, so that a tick that is being recorded is already visible as open.
    let job = lock_job(tx, JobLock::All, tenant, job).await?.job;
    let runs = cancel_open(tx, tenant, actor, job.id).await?;
    Ok(CancelledJob { job: job.id, job_name: job.spec.name.clone(), runs })
}

/// Cancels all open runs of a locked job. If too many wait for one transaction, it only marks the waiting ones.
pub async fn cancel_open<T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    job: JobId,
) -> Result<CancelledRuns> {
    let backlog = tx.backlog_is_long(job).await?;
    let mut waited = Vec::new();
    if backlog {
        tx.mark_backlog(tenant, actor, job, BacklogAction::Cancel).await?;
    } else {
        // Dequeues first, in the lock order of claims, to avoid deadlocks. Dequeues again after the claimed runs are
        // locked: a settlement may have put one back meanwhile.
        waited.extend(tx.dequeue_job(job).await?);
        tx.lock_claimed(job).await?;
        waited.extend(tx.dequeue_job(job).await?);
        tx.cancel_runs(&waited).await?;
        tx.leave_steps(&waited).await?;
    }
    let claimed = cancel_claimed(tx, job).await?;
    let all: Vec<RunId> = waited.iter().chain(&claimed).copied().collect();
    audit_cancelled(tx, tenant, actor, &all).await?;
    Ok(CancelledRuns { waited, claimed, backlog })
}

/// Cancels the claimed runs of a locked job.
pub async fn cancel_claimed<T: Tx + ?Sized>(tx: &mut T, job: JobId) -> Result<Vec<RunId>> {
    let claimed = tx.cancel_claimed(job).await?;
    tx.end_claims(&claimed).await?;
    tx.leave_steps(&claimed).await?;
    Ok(claimed)
}

/// Writes an audit row for each cancelled run.
pub async fn audit_cancelled<T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    runs: &[RunId],
) -> Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = runs.iter().map(|run| (run.to_string(), "{}".to_owned())).collect();
    tx.audit(tenant, actor, "cancel", &rows).await
}
