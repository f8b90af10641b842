//! Cancels runs that newer ones supersede, and stores the output of cancelled runs.

use everytick_domain::{ids::RunId, overlap};
use uuid::Uuid;

use super::{DbTx, PostgresStore, flows, lease, rows, settle};
use crate::{KeptOutput, Lease, Result, Supersede};

pub(super) async fn supersede(store: &PostgresStore, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>> {
    let mut write = store.write("cancel superseded runs").await?;
    let done = end(&mut write, lease, runs).await;
    write.finish(done).await
}

async fn end(write: &mut DbTx, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>> {
    lease::lock_lease(write, lease).await?;
    end_given(write, runs).await
}

/// Cancels those of the runs that are open. Skips a run whose row another session has locked: the others need not wait
/// for it, and the caller repeats the call.
pub(super) async fn end_given(write: &mut DbTx, runs: &[Supersede]) -> Result<Vec<RunId>> {
    let cancelled: Vec<Uuid> = write
        .scalars(query!(
            "runs/supersede",
            rows::run_ids(runs.iter().map(|given| given.run)),
            runs.iter().map(|given| overlap::superseded_error(given.to)).collect::<Vec<_>>(),
            write.now.millis()
        ))
        .await?;
    // In a statement after the locks: a settlement that ended before them may have put a run back.
    write.execute(query!("waiting/dequeue_runs", &cancelled)).await?;
    settle::end_cancelled(write, cancelled.clone()).await?;
    flows::leave_steps(write, &cancelled).await?;
    Ok(cancelled.into_iter().map(RunId::from_uuid).collect())
}

pub(super) async fn keep_outputs(store: &PostgresStore, outputs: &[KeptOutput]) -> Result<()> {
    const DOING: &str = "store the outputs of cancelled runs";
    let mut write = store.write_brief(DOING).await?;
    write
        .execute_or_refuse(query!(
            "runs/keep_outputs",
            rows::run_ids(outputs.iter().map(|kept| kept.run)),
            outputs.iter().map(|kept| i32::try_from(kept.attempt).unwrap_or(i32::MAX)).collect::<Vec<_>>(),
            outputs.iter().map(|kept| rows::text(&kept.output).into_owned()).collect::<Vec<_>>()
        ))
        .await?;
    write.commit().await
}
