//! Cancels runs: those superseded by a newer one, and all open runs of a job. Also stores the output of cancelled runs.

use everytick_domain::{
    ids::{RunId, TenantId},
    overlap,
};
use uuid::Uuid;

use super::{
    Failed, SqliteStore, Write, edit, flows, node, rows,
    rows::{Hex, Text},
    settle, sql,
};
use crate::{Actor, CancelledJob, JobRef, KeptOutput, Lease, Result, Supersede};

pub(super) async fn supersede(store: &SqliteStore, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>> {
    const DOING: &str = "cancel superseded runs";
    let mut write = store.write(DOING).await?;
    let now = write.now;
    node::check(&mut write.tx, lease, now, DOING).await?;
    let cancelled = end_given(&mut write, runs).await?;
    write.commit().await?;
    Ok(cancelled)
}

/// Cancels those of the runs that are open.
pub(super) async fn end_given(write: &mut Write, runs: &[Supersede]) -> Result<Vec<RunId>> {
    let (doing, now) = (write.doing, write.now);
    let asked: Vec<_> = runs.iter().map(|given| (Hex(given.run.uuid()), overlap::superseded_error(given.to))).collect();
    let cancelled: Vec<Uuid> = sqlx::query_scalar(sql!("supersede"))
        .bind(rows::json(&asked).failed(doing)?)
        .bind(now.millis())
        .fetch_all(&mut *write.tx)
        .await
        .failed(doing)?;
    let cancelled: Vec<_> = cancelled.into_iter().map(RunId::from_uuid).collect();
    sqlx::query(sql!("dequeue"))
        .bind(rows::run_ids(cancelled.iter().copied()).failed(doing)?)
        .execute(&mut *write.tx)
        .await
        .failed(doing)?;
    settle::end_cancelled(write, cancelled.iter().copied()).await?;
    flows::leave_steps(write, cancelled.iter().copied()).await?;
    Ok(cancelled)
}

pub(super) async fn keep_outputs(store: &SqliteStore, outputs: &[KeptOutput]) -> Result<()> {
    const DOING: &str = "store the outputs of cancelled runs";
    let mut write = store.write(DOING).await?;
    let kept: Vec<_> = outputs.iter().map(|kept| (Hex(kept.run.uuid()), kept.attempt, Text(&kept.output))).collect();
    sqlx::query(sql!("keep_outputs"))
        .bind(rows::json(&kept).failed(DOING)?)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    write.commit().await
}

pub(super) async fn cancel_job(
    store: &SqliteStore,
    tenant: TenantId,
    actor: &Actor,
    job: &JobRef,
) -> Result<CancelledJob> {
    const DOING: &str = "cancel the runs of a job";
    let mut write = store.write(DOING).await?;
    let job = edit::find(&mut write.tx, &write.unreadable, tenant, job, DOING).await?.job;
    let runs = edit::cancel_open(&mut write, tenant, actor, job.id).await?;
    write.commit().await?;
    Ok(CancelledJob { job: job.id, job_name: job.spec.name.clone(), runs })
}
