//! Claims whose receivers have accepted the work and report later. They no longer belong to the node that sent them,
//! and outlive it.

use std::collections::HashSet;

use everytick_domain::ids::RunId;
use uuid::Uuid;

use super::{
    Failed, SqliteStore, lease, lost,
    rows::{self, Hex},
};
use crate::{AcceptedRun, Lease, OldClaim, Result, SettleAnswer};

const DOING: &str = "transfer claims to receivers";

pub(super) async fn accept(store: &SqliteStore, lease: &Lease, runs: &[AcceptedRun]) -> Result<Vec<SettleAnswer>> {
    let mut write = store.write(DOING).await?;
    lease::lock_lease(&mut write, lease).await?;
    let found: Vec<Uuid> = sqlx::query_scalar(sql!("settle/accept"))
        .bind(lease.incarnation.uuid())
        .bind(rows::json(&runs.iter().map(claim).collect::<Vec<_>>()))
        .fetch_all(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    let mut taken: HashSet<RunId> = found.into_iter().map(RunId::from_uuid).collect();
    let claims: Vec<_> = runs.iter().filter(|run| taken.contains(&run.run)).map(claim).collect();
    write.execute_or_refuse(query!("settle/accept_claims", rows::json(&claims))).await?;
    let listed = taken.iter().copied().filter(|run| OldClaim::may_be_listed(*run, write.now)).collect();
    lost::unlist(&mut write, listed).await?;
    write.commit().await?;
    // If a run occurs twice, the first entry transfers it.
    Ok(runs.iter().map(|run| SettleAnswer::of(taken.remove(&run.run))).collect())
}

/// The row that the statements read: run, fence, worker, timeout_at, previous.
fn claim(run: &AcceptedRun) -> (Hex, i64, rows::Text<'_>, i64, bool) {
    (Hex(run.run.uuid()), run.fence.raw(), rows::text(&run.worker), run.timeout_at.millis(), run.previous)
}
