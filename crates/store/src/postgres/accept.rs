//! Claims whose receivers have taken the work and report later. They no longer belong to the node that sent them: they outlive it.

use std::collections::HashSet;

use everytick_domain::ids::RunId;
use uuid::Uuid;

use super::{Failed, PostgresStore, day_sql, lost, node, rows, settle};
use crate::{AcceptedRun, Lease, OldClaim, Result, SettleAnswer};

const DOING: &str = "hand claims over to receivers";

pub(super) async fn accept(store: &PostgresStore, lease: &Lease, runs: &[AcceptedRun]) -> Result<Vec<SettleAnswer>> {
    let mut taken = settle::with_known_days(store, || take(store, lease, runs)).await?;
    // A run that is named twice is taken by the first.
    Ok(runs.iter().map(|run| SettleAnswer::of(taken.remove(&run.run))).collect())
}

async fn take(store: &PostgresStore, lease: &Lease, runs: &[AcceptedRun]) -> Result<HashSet<RunId>> {
    let mut write = store.write_batch(DOING).await?;
    node::hold(&mut write, lease).await?;
    let mut taken = HashSet::with_capacity(runs.len());
    for (table, runs) in store.by_table(runs.iter().collect(), |run| run.run) {
        let found: Vec<Uuid> = sqlx::query_scalar(day_sql!("accept", &table))
            .bind(lease.incarnation.uuid())
            .bind(rows::run_ids(runs.iter().map(|run| run.run)))
            .bind(runs.iter().map(|run| run.fence.raw()).collect::<Vec<_>>())
            .bind(runs.iter().map(|run| run.worker.clone()).collect::<Vec<_>>())
            .bind(runs.iter().map(|run| run.timeout_at.millis()).collect::<Vec<_>>())
            .bind(runs.iter().map(|run| run.previous).collect::<Vec<_>>())
            .fetch_all(&mut *write.tx)
            .await
            .failed_or_refused(DOING)?;
        taken.extend(found.into_iter().map(RunId::from_uuid));
    }
    let now = write.now;
    let listed = taken.iter().copied().filter(|run| OldClaim::may_be_listed(*run, now)).collect();
    lost::unlist(&mut write, listed).await?;
    write.commit().await?;
    Ok(taken)
}
