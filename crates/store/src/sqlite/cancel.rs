//! Cancels runs that newer ones supersede, and stores the output of cancelled runs.

use everytick_domain::{ids::RunId, overlap};
use uuid::Uuid;

use super::{
    DbTx, SqliteStore, flows, lease, rows,
    rows::{Hex, Text},
    settle,
};
use crate::{KeptOutput, Lease, Result, Supersede};

pub(super) async fn supersede(store: &SqliteStore, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>> {
    const DOING: &str = "cancel superseded runs";
    let mut write = store.write(DOING).await?;
    lease::lock_lease(&mut write, lease).await?;
    let cancelled = end_given(&mut write, runs).await?;
    write.commit().await?;
    Ok(cancelled)
}

/// Cancels those of the runs that are open.
pub(super) async fn end_given(write: &mut DbTx, runs: &[Supersede]) -> Result<Vec<RunId>> {
    let asked: Vec<_> = runs.iter().map(|given| (Hex(given.run.uuid()), overlap::superseded_error(given.to))).collect();
    let cancelled: Vec<Uuid> = write.scalars(query!("runs/supersede", rows::json(&asked), write.now.millis())).await?;
    let cancelled: Vec<_> = cancelled.into_iter().map(RunId::from_uuid).collect();
    write.execute(query!("waiting/dequeue", rows::run_ids(cancelled.iter().copied()))).await?;
    settle::end_cancelled(write, cancelled.iter().copied()).await?;
    flows::leave_steps(write, cancelled.iter().copied()).await?;
    Ok(cancelled)
}

pub(super) async fn keep_outputs(store: &SqliteStore, outputs: &[KeptOutput]) -> Result<()> {
    const DOING: &str = "store the outputs of cancelled runs";
    let mut write = store.write(DOING).await?;
    let kept: Vec<_> = outputs.iter().map(|kept| (Hex(kept.run.uuid()), kept.attempt, Text(&kept.output))).collect();
    write.execute_or_refuse(query!("runs/keep_outputs", rows::json(&kept))).await?;
    write.commit().await
}
