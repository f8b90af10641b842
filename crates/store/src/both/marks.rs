//! The marks of backlogs that are too long for one transaction: `backlog` cancels or moves their runs in batches.

use everytick_domain::{
    ids::{JobId, TenantId},
    time::DbTime,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbTx, Failed, rows};
use crate::{Actor, BacklogAction, BacklogWork, Result, tx::Tx as _};

/// What happens to the waiting runs of a job up to a lot.
pub(super) struct Mark {
    pub(super) action: BacklogAction,
    pub(super) tenant: TenantId,
    pub(super) up_to: i64,
    done: u64,
    pub(super) actor: Actor,
}

/// Whether more runs of a job wait than one transaction processes, or its backlog is being processed already.
pub(super) async fn is_long(tx: &mut DbTx, job: JobId) -> Result<bool> {
    tx.scalar(query!("backlog/backlog_is_long", job.uuid(), rows::limit(tx.limits.backlog_batch_max))).await
}

/// Marks the waiting runs of a job. The caller has the job locked.
pub(super) async fn set(
    tx: &mut DbTx,
    tenant: TenantId,
    actor: &Actor,
    job: JobId,
    action: BacklogAction,
) -> Result<()> {
    let (by, now) = (rows::text(&actor.name), tx.now.millis());
    tx.execute(query!("backlog/backlog_mark", job.uuid(), tenant.raw(), action.code(), now, by)).await?;
    if action == BacklogAction::Cancel {
        // A cancelled run need not be moved.
        remove(tx, job, BacklogAction::Move).await?;
    }
    let detail = serde_json::json!({ "backlog": action.word() });
    tx.audit(tenant, actor, "backlog", &[(job.to_string(), detail.to_string())]).await
}

pub(super) async fn remove(tx: &mut DbTx, job: JobId, action: BacklogAction) -> Result<()> {
    tx.execute(query!("backlog/backlog_unmark", job.uuid(), action.code())).await.map(drop)
}

/// The mark that is processed next. A cancel comes before a move.
pub(super) async fn of(tx: &mut DbTx, job: JobId) -> Result<Option<Mark>> {
    let found = tx.fetch_optional(query!("backlog/backlog_of", job.uuid())).await?;
    let Some(row) = found else { return Ok(None) };
    let Some(action) = BacklogAction::from_code(row.try_get("action").failed(tx.doing)?) else { return Ok(None) };
    Ok(Some(Mark {
        action,
        tenant: rows::tenant(&row).failed(tx.doing)?,
        up_to: row.try_get("up_to").failed(tx.doing)?,
        done: row.try_get::<i64, _>("done").failed(tx.doing)?.unsigned_abs(),
        actor: Actor::local(row.try_get::<String, _>("actor").failed(tx.doing)?),
    }))
}

/// The marked job whose backlog was processed longest ago.
pub(super) async fn next(tx: &mut DbTx) -> Result<Option<JobId>> {
    let next: Option<Uuid> = tx.optional_scalar(query!("backlog/backlog_next")).await?;
    Ok(next.map(JobId::from_uuid))
}

/// The number of marked runs, counted up to `max`.
pub(super) async fn left(tx: &mut DbTx, job: JobId, up_to: i64, max: usize) -> Result<u64> {
    let left: i64 = tx.scalar(query!("backlog/backlog_left", job.uuid(), up_to, rows::limit(max))).await?;
    Ok(left.unsigned_abs())
}

/// Notes that a batch of `count` runs was processed.
pub(super) async fn worked(tx: &mut DbTx, job: JobId, action: BacklogAction, count: usize) -> Result<()> {
    let (count, now) = (rows::limit(count), tx.now.millis());
    tx.execute(query!("backlog/backlog_worked", job.uuid(), action.code(), count, now)).await.map(drop)
}

/// The progress of a job's backlog.
pub(super) async fn work_of(tx: &mut DbTx, job: JobId, max: usize) -> Result<Option<BacklogWork>> {
    let Some(mark) = of(tx, job).await? else { return Ok(None) };
    let remaining = left(tx, job, mark.up_to, max).await?;
    Ok(Some(BacklogWork { action: mark.action, done: mark.done, remaining }))
}

/// What happens to the waiting runs of a job, without counting them.
pub(super) async fn action_of(tx: &mut DbTx, job: JobId) -> Result<Option<BacklogAction>> {
    Ok(of(tx, job).await?.map(|mark| mark.action))
}

/// The author of the cancellation of a long backlog that ended a run at this instant. Its runs are cancelled under one audit
/// row, whose subject is the job.
pub(super) async fn cancelled_by(
    tx: &mut DbTx,
    tenant: TenantId,
    job: JobId,
    ended_at: Option<DbTime>,
) -> Result<Option<String>> {
    let Some(ended_at) = ended_at else { return Ok(None) };
    tx.optional_scalar(query!("audit/backlog_by", tenant.raw(), job.to_string(), ended_at.millis())).await
}

/// Writes one audit row for the cancelled runs of a batch.
pub(super) async fn audit_cancelled(tx: &mut DbTx, job: JobId, mark: &Mark, count: usize) -> Result<()> {
    let detail = serde_json::json!({ "backlog": "cancel", "runs": count });
    tx.audit(mark.tenant, &mark.actor, "cancel", &[(job.to_string(), detail.to_string())]).await
}
