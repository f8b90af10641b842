//! Reads for the detector of dead schedules, and the repair of lost ticks.

use everytick_domain::ids::JobId;
use uuid::Uuid;

use super::{DbStore, DbTx, jobs, lease, range, record, rows};
use crate::tx::{JobRow, SharedTx as _, Tx as _, in_tx};
use crate::{Actor, JobTicks, Lease, Result, Walked, WalkedJob};

pub(super) async fn walk_jobs(store: &DbStore, after: Option<JobId>, limit: usize) -> Result<Walked> {
    let mut tx = store.read("page through the jobs").await?;
    let after = after.map_or_else(Uuid::nil, JobId::uuid);
    let ids: Vec<Uuid> = tx.scalars(query!("repair/walk_jobs", after, rows::limit(limit))).await?;
    let ids: Vec<JobId> = ids.into_iter().map(JobId::from_uuid).collect();
    let found = jobs::readable(&mut tx, &ids).await?;
    let walked = |row: JobRow| WalkedJob { job: row.job, epoch: row.epoch, cursor: row.cursor };
    Ok(Walked { jobs: found.into_iter().map(walked).collect(), last: ids.last().copied() })
}

pub(super) async fn repair(store: &DbStore, lease: &Lease, ticks: &JobTicks) -> Result<bool> {
    in_tx!(store, "record lost ticks", tx => write_repair(tx, lease, ticks))
}

async fn write_repair(tx: &mut DbTx, lease: &Lease, ticks: &JobTicks) -> Result<bool> {
    lease::lock_lease(tx, lease).await?;
    let Some((tenant, cursor)) = range::lock(tx, ticks.job, ticks.epoch).await? else { return Ok(false) };
    if !ticks.passed_by(cursor, tx.now) {
        return Ok(false);
    }
    record::insert_repaired(tx, ticks).await?;
    range::move_on(tx, ticks.job, cursor).await?;
    tx.notify_owners().await?;
    let actor = Actor::node(&lease.node);
    tx.audit(tenant, &actor, "repair", &[(ticks.job.to_string(), ticks.repair_detail())]).await?;
    Ok(true)
}
