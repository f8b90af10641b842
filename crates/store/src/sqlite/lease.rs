//! The lease of a node, where SQLite differs from PostgreSQL: one process has the file open and one connection writes,
//! so there is nothing to lock, and there are no other nodes.

use everytick_domain::{
    ids::{Incarnation, RunId},
    time::DbTime,
};

use super::{DbTx, SqliteStore};
use crate::tx::Tx as _;
use crate::{Lease, NodeInfo, Result, StoreError};

pub(super) async fn now(store: &SqliteStore) -> Result<DbTime> {
    Ok(store.clock.now())
}

/// Checks that the lease is alive and carries the fence. Returns the lease's `open_from`: the lowest run id that it may
/// have claimed without a listing.
pub(super) async fn lock_lease(tx: &mut DbTx, lease: &Lease) -> Result<RunId> {
    let (incarnation, fence) = (lease.incarnation.uuid(), lease.fence.raw());
    let lives = query!("leases/lease_lives", incarnation, &lease.node, fence, tx.now.millis());
    tx.optional_scalar(lives).await?.map(RunId::from_uuid).ok_or(StoreError::LeaseLost)
}

pub(super) async fn lock_lease_alone(tx: &mut DbTx, lease: &Lease) -> Result<RunId> {
    lock_lease(tx, lease).await
}

/// Checks the lease in a read transaction; returns the clock.
pub(super) async fn check(tx: &mut DbTx, lease: &Lease) -> Result<DbTime> {
    let now = tx.read_clock().await?;
    lock_lease(tx, lease).await?;
    Ok(now)
}

pub(super) async fn lock_name(_: &mut DbTx, _: &NodeInfo, _: Incarnation) -> Result<()> {
    Ok(())
}

pub(super) async fn shorten(_: &SqliteStore) {}

pub(super) async fn renewed(_: &SqliteStore, _: DbTime) {}

pub(super) async fn undelegate(_: &SqliteStore) -> Result<()> {
    Ok(())
}

pub(super) async fn old_release_lives(_: &mut DbTx) -> Result<bool> {
    Ok(false)
}

pub(super) async fn orphans(_: &mut DbTx) -> Result<Vec<Incarnation>> {
    Ok(Vec::new())
}
