//! The runs of flows: how they are inserted and cancelled, and the steps that they leave.

use std::collections::BTreeSet;

use everytick_domain::{ids::RunId, run::SkipReason};
use uuid::Uuid;

use super::{
    DbTx,
    record::{self, Queued},
    rows::{self, Hex},
};
use crate::{
    Result,
    flows::{ChildRow, FlowRow},
};

/// Inserts runs of a flow, and enqueues those that wait. Returns the inserted ones.
pub(super) async fn insert(tx: &mut DbTx, row: &FlowRow, children: &[ChildRow]) -> Result<BTreeSet<RunId>> {
    let batch: Vec<_> = children
        .iter()
        .map(|child| {
            let (run, job, reason) = (Hex(child.run.uuid()), Hex(child.job.uuid()), child.reason.map(SkipReason::code));
            let (error, payload) = (child.error.as_deref().map(rows::text), child.payload.as_deref().map(rows::text));
            (run, job, child.cause.code(), child.state.code(), reason, error, payload)
        })
        .collect();
    let inserted = tx
        .written_runs(query!(
            "flows/flow_record",
            rows::json(&batch),
            row.tenant.raw(),
            row.id.uuid(),
            row.scheduled_at.millis(),
            tx.now.millis()
        ))
        .await?;
    let inserted: BTreeSet<RunId> = inserted.into_iter().collect();
    let waiting = children.iter().filter(|child| child.waits() && inserted.contains(&child.run));
    let queued: Vec<_> =
        waiting.map(|child| Queued { run: child.run, priority: child.priority, key: child.key.as_deref() }).collect();
    record::wait(tx, &queued).await?;
    Ok(inserted)
}

/// Cancels those of the runs that are open: run, job, and whether it was claimed.
pub(super) async fn cancel(tx: &mut DbTx, runs: &[RunId]) -> Result<Vec<(Uuid, Uuid, bool)>> {
    let ended = tx.fetch_all_as(query!("flows/flow_open", rows::run_ids(runs))).await?;
    tx.execute(query!("runs/cancel_runs", rows::run_ids(runs), tx.now.millis())).await?;
    Ok(ended)
}

/// Writes a step for each of these ended runs that a flow may follow. Every transaction that ends runs calls this.
pub(super) async fn leave_steps(tx: &mut DbTx, runs: impl IntoIterator<Item = RunId>) -> Result<()> {
    let any: bool = tx.scalar(query!("flows/flow_any")).await?;
    if !any {
        return Ok(());
    }
    let left = tx.execute(query!("flows/flow_leave_steps", rows::run_ids(runs))).await?;
    tx.left_steps |= left > 0;
    Ok(())
}
