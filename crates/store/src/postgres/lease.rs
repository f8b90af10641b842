//! The lease of a node, where PostgreSQL differs from SQLite: any number of nodes have leases, so transactions lock
//! them, names may be taken, and nodes of the previous release may be alive.

use everytick_domain::{
    ids::{Incarnation, RunId},
    time::{DbTime, Span},
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, days, node, rows};
use crate::tx::Tx as _;
use crate::{Lease, NameOwner, NodeInfo, Result, StoreError};

/// The longest lease that a node may have.
const LEASE_MAX: Span = Span::minutes(10);
/// Incarnations without a lease whose claims one call reads.
const ORPHANS_MAX: usize = 100;

/// The database clock.
pub(super) async fn now(store: &PostgresStore) -> Result<DbTime> {
    store.write("read the clock").await?.read_clock().await
}

/// Share-locks the lease until the transaction ends. Checks that it is alive and carries the fence, reads the clock,
/// and returns the lease's `open_from`: the lowest run id that it may have claimed without a listing.
pub(super) async fn lock_lease(tx: &mut DbTx, lease: &Lease) -> Result<RunId> {
    lives(tx, sql!("leases/lock_lease"), lease).await
}

/// The same with an exclusive lock, for transactions that change the lease.
pub(super) async fn lock_lease_alone(tx: &mut DbTx, lease: &Lease) -> Result<RunId> {
    lives(tx, sql!("leases/lock_lease_alone"), lease).await
}

/// Checks the lease without a lock, for read transactions; returns the clock.
pub(super) async fn check(tx: &mut DbTx, lease: &Lease) -> Result<DbTime> {
    lives(tx, sql!("leases/lease_lives"), lease).await?;
    Ok(tx.now)
}

async fn lives(tx: &mut DbTx, statement: &'static str, lease: &Lease) -> Result<RunId> {
    let query = sqlx::query(statement).bind(lease.incarnation.uuid()).bind(&lease.node).bind(lease.fence.raw());
    let row = tx.fetch_optional(query).await?.ok_or(StoreError::LeaseLost)?;
    tx.now = rows::at(&row, "now").failed(tx.doing)?;
    if rows::at(&row, "until").failed(tx.doing)? <= tx.now {
        return Err(StoreError::LeaseLost);
    }
    rows::run_id(&row, "open_from").failed(tx.doing)
}

/// Locks the leases of the node's name, which waits for the executing statements of older incarnations. Refuses a name
/// that another live process has.
pub(super) async fn lock_name(tx: &mut DbTx, node: &NodeInfo, incarnation: Incarnation) -> Result<()> {
    tx.execute(query!("leases/lock_name", incarnation.uuid(), &node.name)).await?;
    tx.read_clock().await?;
    match name_owner(tx, node, incarnation).await? {
        Some(_) if node.again => Err(StoreError::replaced(&node.name)),
        Some(owner) if !node.takes_over.includes(owner.incarnation) => Err(StoreError::NodeNameTaken(Box::new(owner))),
        _ => Ok(()),
    }
}

/// Another live process under the node's name. The leases of that name are locked.
async fn name_owner(tx: &mut DbTx, node: &NodeInfo, incarnation: Incarnation) -> Result<Option<NameOwner>> {
    let owner = query!("leases/join_name_owner", incarnation.uuid(), &node.name, tx.now.millis());
    let Some(row) = tx.fetch_optional(owner).await? else { return Ok(None) };
    let owner = || {
        Ok(NameOwner {
            node: node.name.clone(),
            incarnation: Incarnation::from_uuid(row.try_get("incarnation")?),
            process: node::process(&row)?,
            renewed_at: rows::at(&row, "renewed_at")?,
            until: rows::at(&row, "until")?,
            now: tx.now,
        })
    };
    owner().failed(tx.doing).map(Some)
}

/// Shortens leases that a clock that was ahead made too long. A live node renews its own lease before it ends; a node
/// that died while the clock was ahead then expires after one lease time. The next renewal retries a failure.
pub(super) async fn shorten(store: &PostgresStore) {
    let shorten = async {
        let mut tx = store.write("shorten leases").await?;
        let now = tx.read_clock().await?;
        tx.execute(query!("leases/cap_leases", now.millis(), node::millis(LEASE_MAX))).await?;
        tx.commit().await
    };
    if let Err(error) = shorten.await {
        tracing::debug!(%error, "could not shorten leases");
    }
}

/// The work that each renewal does for the whole cluster.
pub(super) async fn renewed(store: &PostgresStore, now: DbTime) {
    shorten(store).await;
    days::make_ahead(store, now).await;
}

/// Makes runs wait again that were delegated to nodes which have ended. In a transaction of its own, after the commit
/// that ended the leases.
pub(super) async fn undelegate(store: &PostgresStore) -> Result<()> {
    let mut tx = store.write("take back delegated runs of dead nodes").await?;
    tx.execute(query!("open_claims/undelegate")).await?;
    tx.commit().await
}

/// Whether a node of a release that does not read `open_claims` is alive. Then `open_from` must not pass a claim.
pub(super) async fn old_release_lives(tx: &mut DbTx) -> Result<bool> {
    tx.scalar(query!("open_claims/leases_before_lists")).await
}

/// Incarnations that have listed claims and no lease.
pub(super) async fn orphans(tx: &mut DbTx) -> Result<Vec<Incarnation>> {
    let orphans: Vec<Uuid> = tx.scalars(query!("open_claims/claims_orphaned", rows::limit(ORPHANS_MAX))).await?;
    Ok(orphans.into_iter().map(Incarnation::from_uuid).collect())
}

/// Lowers `open_from` to this run, for nodes that do not read `open_claims`. The caller has the lease locked
/// exclusively, and has read since then that its `open_from` is higher.
pub(super) async fn lower_open_from(tx: &mut DbTx, lease: &Lease, lowest: RunId) -> Result<()> {
    tx.execute(query!("leases/lower_open_from", lease.incarnation.uuid(), lowest.uuid())).await?;
    Ok(())
}
