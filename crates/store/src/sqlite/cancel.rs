//! Cancels runs that newer ones supersede, and stores the output of cancelled runs.

use everytick_domain::{ids::RunId, overlap};
use uuid::Uuid;

use super::{
    Failed, SqliteStore, Write, flows, node, rows,
    rows::{Hex, Text},
    settle, sql,
};
use crate::{KeptOutput, Lease, Result, Supersede};

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
    let cancelled: Vec<Uuid> = sqlx::query_scalar(sql!("runs/supersede"))
        .bind(rows::json(&asked).failed(doing)?)
        .bind(now.millis())
        .fetch_all(&mut *write.tx)
        .await
        .failed(doing)?;
    let cancelled: Vec<_> = cancelled.into_iter().map(RunId::from_uuid).collect();
    sqlx::query(sql!("waiting/dequeue"))
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
    sqlx::query(sql!("runs/keep_outputs"))
        .bind(rows::json(&kept).failed(DOING)?)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    write.commit().await
}
