//! Backlogs too long for one transaction, which would keep the one writer from recording ticks.
//!
//! A cancel, or an edit that moves waiting runs, marks the job in its own short transaction. From then on no claim takes
//! a marked run. The runs are cancelled or moved in batches, each one commit. A crash leaves the mark, and the next batch
//! continues. Runs that begin to wait later get a higher lot, so they are not marked. A claim is one transaction of the
//! same writer, so unlike on PostgreSQL none is in progress when the mark is set.

use everytick_domain::{
    ids::{JobId, TenantId},
    queue::lead,
};

use super::{
    DbTx, SqliteStore, jobs,
    marks::{self, Mark},
    rows,
};
use crate::tx::{Tx as _, cancel, edit, in_tx};
use crate::{Actor, BacklogAction, BacklogStep, CancelledJob, EditJob, Edited, JobRef, Result, TenantJob};

pub(super) async fn edit_job(store: &SqliteStore, tenant: TenantId, actor: &Actor, edit: EditJob) -> Result<Edited> {
    in_tx!(store, "edit the job", tx => edit::edit_job(tx, tenant, actor, edit))
}

pub(super) async fn cancel_job(
    store: &SqliteStore,
    tenant: TenantId,
    actor: &Actor,
    job: &JobRef,
) -> Result<CancelledJob> {
    in_tx!(store, "cancel the runs of a job", tx => cancel::cancel_job(tx, tenant, actor, job))
}

/// One process writes, so no claim began before the transaction that cancelled the runs.
#[expect(clippy::unused_async, reason = "PostgreSQL's sends statements")]
pub(super) async fn after_cancel(
    _: &SqliteStore,
    _: &Actor,
    _: TenantId,
    _: JobId,
    done: TenantJob,
) -> Result<TenantJob> {
    Ok(done)
}

/// Marks the waiting runs of a job, and begins the lot of those that begin to wait later.
pub(super) async fn mark(
    write: &mut DbTx,
    tenant: TenantId,
    actor: &Actor,
    job: JobId,
    action: BacklogAction,
) -> Result<()> {
    marks::set(write, tenant, actor, job, action).await?;
    write.execute(query!("backlog/next_lot")).await.map(drop)
}

pub(super) async fn advance(store: &SqliteStore) -> Result<BacklogStep> {
    // Usually nothing is marked, so this is found out without the write lock.
    let mut read = store.read("process a backlog").await?;
    let Some(job) = marks::next(&mut read).await? else { return Ok(BacklogStep::default()) };
    drop(read);
    in_tx!(store, "process a backlog", tx => step(tx, job))
}

async fn step(write: &mut DbTx, job: JobId) -> Result<BacklogStep> {
    let Some(mark) = marks::of(write, job).await? else { return Ok(BacklogStep::default()) };
    let count = match mark.action {
        BacklogAction::Cancel => cancel_batch(write, job, &mark).await?,
        BacklogAction::Move => move_batch(write, job, &mark).await?,
    };
    marks::worked(write, job, mark.action, count).await?;
    if count < write.limits.backlog_batch_max {
        marks::remove(write, job, mark.action).await?;
    }
    let (cancelled, moved) = if mark.action == BacklogAction::Cancel { (count, 0) } else { (0, count) };
    Ok(BacklogStep { job: Some(job), cancelled, moved })
}

async fn cancel_batch(write: &mut DbTx, job: JobId, mark: &Mark) -> Result<usize> {
    let batch = rows::limit(write.limits.backlog_batch_max);
    let taken = write.run_ids(query!("backlog/backlog_take", job.uuid(), mark.up_to, batch)).await?;
    if !taken.is_empty() {
        write.cancel_runs(&taken).await?;
        write.leave_steps(&taken).await?;
        marks::audit_cancelled(write, job, mark, taken.len()).await?;
    }
    Ok(taken.len())
}

async fn move_batch(write: &mut DbTx, job: JobId, mark: &Mark) -> Result<usize> {
    let batch = rows::limit(write.limits.backlog_batch_max);
    let spec = jobs::load(write, &[job]).await?.into_iter().next().map(|row| row.job.spec);
    let queue = spec.as_ref().and_then(|spec| spec.target.queue());
    let priority = spec.as_ref().map_or(0, |spec| spec.priority);
    let (on_time, late, now) = (lead(priority, false), lead(priority, true), write.now.millis());
    let to = query!("backlog/backlog_move", job.uuid(), mark.up_to, batch, queue, on_time, late, now);
    Ok(usize::try_from(write.execute(to).await?).unwrap_or(usize::MAX))
}
