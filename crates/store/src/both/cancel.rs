//! Cancels runs that newer ones supersede, and stores the output of cancelled runs.

use everytick_domain::{ids::RunId, overlap};
use uuid::Uuid;

use super::{DbStore, DbTx, lease};
use crate::tx::{Tx as _, in_tx};
use crate::{KeptOutput, Lease, Result, Supersede};

pub(super) async fn supersede(store: &DbStore, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>> {
    in_tx!(store, "cancel superseded runs", tx => supersede_in(tx, lease, runs))
}

async fn supersede_in(tx: &mut DbTx, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>> {
    lease::lock_lease(tx, lease).await?;
    end_superseded(tx, runs).await
}

/// Cancels those of the runs that are open. Skips a run whose row another session has locked: the others need not wait
/// for it, and the caller repeats the call.
pub(super) async fn end_superseded(tx: &mut DbTx, runs: &[Supersede]) -> Result<Vec<RunId>> {
    let cancel =
        batch!("runs/supersede", [tx.now.millis()], runs, |older| (older.run, overlap::superseded_error(older.to)));
    let cancelled: Vec<Uuid> = tx.scalars(cancel).await?;
    let cancelled: Vec<RunId> = cancelled.into_iter().map(RunId::from_uuid).collect();
    // Dequeues in a later statement than the locks, because a settlement that committed before them may have put a run back.
    tx.dequeue(&cancelled).await?;
    tx.end_claims(&cancelled).await?;
    tx.leave_steps(&cancelled).await?;
    Ok(cancelled)
}

pub(super) async fn keep_outputs(store: &DbStore, outputs: &[KeptOutput]) -> Result<()> {
    let mut tx = store.write_brief("store the outputs of cancelled runs").await?;
    let keep = batch!("runs/keep_outputs", [], outputs, |kept| (kept.run, kept.attempt, &kept.output));
    tx.execute_or_refuse(keep).await?;
    tx.commit().await
}
