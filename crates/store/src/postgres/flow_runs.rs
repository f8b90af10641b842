//! The runs of flows: how they are inserted and cancelled, and the steps that they leave.

use std::collections::BTreeSet;

use everytick_domain::{ids::RunId, run::SkipReason};
use uuid::Uuid;

use super::{DbTx, rows};
use crate::{
    Result,
    flows::{ChildRow, FlowRow},
};

/// Inserts runs of a flow, and enqueues those that wait. Returns the inserted ones.
pub(super) async fn insert(tx: &mut DbTx, row: &FlowRow, children: &[ChildRow]) -> Result<BTreeSet<RunId>> {
    fn column<T>(children: &[ChildRow], value: impl Fn(&ChildRow) -> T) -> Vec<T> {
        children.iter().map(value).collect()
    }
    let inserted = tx
        .written_runs(query!(
            "flows/flow_record",
            column(children, |child| child.run.uuid()),
            column(children, |child| child.job.uuid()),
            column(children, |child| child.cause.code()),
            column(children, |child| child.state.code()),
            column(children, |child| child.reason.map(SkipReason::code)),
            column(children, |child| rows::texts(child.error.as_ref())),
            column(children, |child| rows::texts(child.payload.as_ref())),
            column(children, |child| rows::partition(child.partition)),
            column(children, |child| i16::from(child.priority)),
            column(children, |child| child.queue.clone()),
            column(children, |child| child.rank),
            column(children, |child| child.key.clone()),
            row.tenant.raw(),
            row.id.uuid(),
            row.scheduled_at.millis(),
            tx.now.millis()
        ))
        .await?;
    Ok(inserted.into_iter().collect())
}

/// Cancels those of the runs that are open: run, job, and whether it was claimed.
pub(super) async fn cancel(tx: &mut DbTx, runs: &[RunId]) -> Result<Vec<(Uuid, Uuid, bool)>> {
    tx.fetch_all_as(query!("flows/flow_cancel_runs", rows::run_ids(runs), tx.now.millis())).await
}

/// Writes a step for each of these ended runs that a flow may follow. Every transaction that ends runs calls this.
pub(super) async fn leave_steps(tx: &mut DbTx, runs: &[Uuid]) -> Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let left = tx.execute(query!("flows/flow_leave_steps", runs)).await?;
    tx.left_steps |= left > 0;
    Ok(())
}
