//! The lease of a node and the partitions that it owns: join, renew, raise the fence, leave, and the check that other
//! transactions make under a lease.

use everytick_domain::{
    ids::{Fence, Incarnation, RunId},
    partition::PartitionSet,
    time::{DbTime, Span},
};
use sqlx::{Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, days, lost, range, rows};
use crate::tx::Tx as _;
use crate::{
    Beat, Cluster, Lease, NameOwner, NodeInfo, NodeProcess, NodeRecord, OLD_CLAIM_AFTER, PartitionRecord, Result,
    StoreError,
};

/// The longest lease that a node may have.
const LEASE_MAX: Span = Span::minutes(10);

pub(super) async fn now(store: &PostgresStore) -> Result<DbTime> {
    let mut read = store.write("read the clock").await?;
    read.read_clock().await
}

pub(super) async fn join(
    store: &PostgresStore,
    node: &NodeInfo,
    incarnation: Incarnation,
    ttl: Span,
) -> Result<(Lease, DbTime)> {
    const DOING: &str = "join the cluster";
    cap(store).await;
    let mut write = store.write(DOING).await?;
    // Waits for the executing statements of older incarnations of the node.
    write.execute(query!("leases/lock_name", incarnation.uuid(), &node.name)).await?;
    let now = write.read_clock().await?;
    if let Some(owner) = name_owner(&mut write, node, incarnation).await? {
        if node.again {
            return Err(StoreError::replaced(&node.name));
        }
        if !node.takes_over.includes(owner.incarnation) {
            return Err(StoreError::NameHeld(Box::new(owner)));
        }
    }
    let fence = next_fence(&mut write).await?;
    write.execute(query!("leases/join_end_older", incarnation.uuid(), &node.name, fence.raw())).await?;
    let fence = next_fence(&mut write).await?;
    write
        .execute(query!(
            "leases/join",
            incarnation.uuid(),
            &node.name,
            fence.raw(),
            now.plus(ttl).millis(),
            RunId::floor(now.minus(OLD_CLAIM_AFTER)).uuid(),
            &node.region,
            &node.version,
            now.millis(),
            node.may_own,
            node.process.as_ref().map(|process| &process.host),
            node.process.as_ref().map(|process| i64::from(process.pid)),
            node.process.as_ref().map(|process| &process.mark),
            &node.can,
            &node.listen,
            millis(ttl)
        ))
        .await?;
    write.commit().await?;
    Ok((Lease { node: node.name.clone(), incarnation, fence }, now))
}

/// Another live process under the node's name. The leases of that name are locked.
async fn name_owner(write: &mut DbTx, node: &NodeInfo, incarnation: Incarnation) -> Result<Option<NameOwner>> {
    let found = write
        .fetch_optional(query!("leases/join_name_owner", incarnation.uuid(), &node.name, write.now.millis()))
        .await?;
    let owner = |row: PgRow| {
        Ok(NameOwner {
            node: node.name.clone(),
            incarnation: Incarnation::from_uuid(row.try_get("incarnation")?),
            process: process(&row)?,
            renewed_at: rows::at(&row, "renewed_at")?,
            until: rows::at(&row, "until")?,
            now: write.now,
        })
    };
    found.map(owner).transpose().failed(write.doing)
}

fn process(row: &PgRow) -> std::result::Result<Option<NodeProcess>, sqlx::Error> {
    let host: Option<String> = row.try_get("host")?;
    let (pid, mark): (Option<i64>, Option<String>) = (row.try_get("pid")?, row.try_get("process")?);
    let pid = pid.and_then(|pid| u32::try_from(pid).ok());
    Ok(host.zip(pid).map(|(host, pid)| NodeProcess { host, pid, mark: mark.unwrap_or_default() }))
}

pub(super) async fn renew(store: &PostgresStore, lease: &Lease, ttl: Span, beat: &Beat) -> Result<DbTime> {
    const DOING: &str = "renew the lease";
    let mut write = store.write(DOING).await?;
    lock_lease_alone(&mut write, lease).await?;
    let now = write.now;
    lost::list(&mut write, lease, &beat.old_claims).await?;
    write
        .execute(query!(
            "leases/renew",
            lease.incarnation.uuid(),
            now.plus(ttl).millis(),
            beat.open_from.map(RunId::uuid),
            now.millis(),
            i64::try_from(beat.lag.as_millis()).unwrap_or(i64::MAX),
            beat.clock_offset_ms,
            beat.old_claims.iter().map(|claim| claim.run).min().map(RunId::uuid),
            millis(ttl)
        ))
        .await?;
    write.commit().await?;
    cap(store).await;
    days::make_ahead(store, now).await;
    Ok(now)
}

/// Shortens leases that a clock that was ahead made too long. A live node renews its own lease before it ends; a node
/// that died while the clock was ahead then expires after one lease time. The next renewal retries a failure.
async fn cap(store: &PostgresStore) {
    const DOING: &str = "shorten leases";
    let shorten = async {
        let mut write = store.write(DOING).await?;
        let now = write.read_clock().await?;
        write.execute(query!("leases/cap_leases", now.millis(), millis(LEASE_MAX))).await?;
        write.commit().await
    };
    if let Err(error) = shorten.await {
        tracing::debug!(%error, "could not shorten leases");
    }
}

fn millis(span: Span) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

pub(super) async fn raise_fence(store: &PostgresStore, lease: &Lease) -> Result<Lease> {
    const DOING: &str = "raise the lease's fence";
    let mut write = store.write(DOING).await?;
    lock_lease_alone(&mut write, lease).await?;
    let fence = next_fence(&mut write).await?;
    write.execute(query!("leases/raise_fence", lease.incarnation.uuid(), fence.raw())).await?;
    write.commit().await?;
    Ok(Lease { fence, ..lease.clone() })
}

pub(super) async fn retire(store: &PostgresStore, lease: &Lease) -> Result<()> {
    const DOING: &str = "release all partitions";
    let mut write = store.write(DOING).await?;
    lock_lease_alone(&mut write, lease).await?;
    free(&mut write, lease, &PartitionSet::all(u16::MAX)).await?;
    write.execute(query!("leases/retire", lease.incarnation.uuid())).await?;
    range::notify(&mut write).await?;
    write.commit().await?;
    // Any node does this periodically; done at once, so that other nodes can start these runs.
    lost::undelegate(store).await
}

pub(super) async fn leave(store: &PostgresStore, lease: &Lease) -> Result<()> {
    const DOING: &str = "leave the cluster";
    let mut write = store.write(DOING).await?;
    lock_lease_alone(&mut write, lease).await?;
    free(&mut write, lease, &PartitionSet::all(u16::MAX)).await?;
    let fence = next_fence(&mut write).await?;
    write.execute(query!("leases/leave", lease.incarnation.uuid(), fence.raw(), write.now.millis())).await?;
    write.commit().await
}

pub(super) async fn cluster(store: &PostgresStore) -> Result<Cluster> {
    const DOING: &str = "read the cluster";
    let mut read = store.read(DOING).await?;
    let node = |row: &PgRow| {
        Ok(NodeRecord {
            name: row.try_get("node")?,
            region: row.try_get("region")?,
            version: row.try_get("version")?,
            incarnation: Incarnation::from_uuid(row.try_get("incarnation")?),
            fence: Fence::from_raw(row.try_get("fence")?),
            until: rows::at(row, "until")?,
            started_at: rows::at(row, "started_at")?,
            renewed_at: rows::at(row, "renewed_at")?,
            may_own: row.try_get("holds")?,
            lag: Span::millis(row.try_get::<i64, _>("lag_ms")?.unsigned_abs()),
            clock_offset_ms: row.try_get("clock_offset_ms")?,
            process: process(row)?,
            can: row.try_get("can")?,
            listen: row.try_get("listen")?,
        })
    };
    let partition = |row: &PgRow| {
        Ok(PartitionRecord {
            partition: row.try_get::<i16, _>("partition")?.unsigned_abs(),
            owner: row.try_get::<Option<Uuid>, _>("holder")?.map(Incarnation::from_uuid),
            fence: Fence::from_raw(row.try_get("fence")?),
            since: rows::at(row, "since")?,
            home_region: row.try_get("home_region")?,
        })
    };
    let nodes = read.fetch_all(query!("leases/cluster_nodes")).await?;
    let partitions = read.fetch_all(query!("partitions/cluster_partitions")).await?;
    let now = read.scalar(query!("setup/now")).await?;
    Ok(Cluster {
        now: DbTime::from_millis(now),
        nodes: store.unreadable.each("leases", &nodes, node),
        partitions: store.unreadable.each("partitions", &partitions, partition),
    })
}

pub(super) async fn acquire(store: &PostgresStore, lease: &Lease, asked: &PartitionSet) -> Result<PartitionSet> {
    const DOING: &str = "acquire partitions";
    let named = rows::partitions(asked);
    let mut write = store.write(DOING).await?;
    lock_lease(&mut write, lease).await?;
    write.execute(query!("partitions/lock_partitions", &named)).await?;
    fence_expired(&mut write, lease.incarnation).await?;
    let now = write.read_clock().await?;
    write.execute(query!("partitions/acquire", &named, lease.incarnation.uuid(), now.millis())).await?;
    let owned: Vec<i16> = write.scalars(query!("partitions/owned", &named, lease.incarnation.uuid())).await?;
    write.commit().await?;
    Ok(owned.into_iter().map(i16::unsigned_abs).collect())
}

pub(super) async fn release(store: &PostgresStore, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
    const DOING: &str = "release partitions";
    let mut write = store.write(DOING).await?;
    lock_lease(&mut write, lease).await?;
    free(&mut write, lease, partitions).await?;
    range::notify(&mut write).await?;
    write.commit().await
}

async fn free(write: &mut DbTx, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
    let named = rows::partitions(partitions);
    write.execute(query!("partitions/lock_partitions", &named)).await?;
    write.execute(query!("partitions/release", &named, lease.incarnation.uuid(), write.now.millis())).await?;
    Ok(())
}

/// Ends expired leases of other nodes. Locking their rows waits for their executing statements. Statements that they
/// send later have an old fence.
pub(super) async fn fence_expired(write: &mut DbTx, but: Incarnation) -> Result<()> {
    let expired: Vec<Uuid> = write.scalars(query!("leases/lock_expired", but.uuid(), write.now.millis())).await?;
    if !expired.is_empty() {
        let fence = next_fence(write).await?;
        write.execute(query!("leases/fence_lost", expired, fence.raw())).await?;
    }
    Ok(())
}

/// Share-locks the lease until the transaction ends. Checks that it is alive and carries the fence, reads the clock,
/// and returns the lease's `open_from`: the lowest run id that it may have claimed without a listing.
pub(super) async fn lock_lease(write: &mut DbTx, lease: &Lease) -> Result<RunId> {
    lives(write, sql!("leases/lock_lease"), lease).await
}

/// The same with an exclusive lock, for transactions that change the lease.
pub(super) async fn lock_lease_alone(write: &mut DbTx, lease: &Lease) -> Result<RunId> {
    lives(write, sql!("leases/lock_lease_alone"), lease).await
}

/// Checks the lease without a lock, for read transactions; returns the clock.
pub(super) async fn check(tx: &mut DbTx, lease: &Lease) -> Result<DbTime> {
    lives(tx, sql!("leases/lease_lives"), lease).await?;
    Ok(tx.now)
}

async fn lives(tx: &mut DbTx, statement: &'static str, lease: &Lease) -> Result<RunId> {
    let found = sqlx::query(statement)
        .bind(lease.incarnation.uuid())
        .bind(&lease.node)
        .bind(lease.fence.raw())
        .fetch_optional(&mut *tx.tx)
        .await
        .failed(tx.doing)?;
    let row = found.ok_or(StoreError::LeaseLost)?;
    tx.now = rows::at(&row, "now").failed(tx.doing)?;
    if rows::at(&row, "until").failed(tx.doing)? <= tx.now {
        return Err(StoreError::LeaseLost);
    }
    rows::run_id(&row, "open_from").failed(tx.doing)
}

/// Lowers `open_from` to this run, for nodes that do not read `open_claims`. The caller has the lease locked
/// exclusively.
pub(super) async fn lower_open_from(write: &mut DbTx, lease: &Lease, lowest: RunId) -> Result<()> {
    write.execute(query!("leases/lower_open_from", lease.incarnation.uuid(), lowest.uuid())).await?;
    Ok(())
}

/// Call it after the lease rows are locked: a transaction that waits for a lease while it has the counter locked would
/// block all others.
async fn next_fence(write: &mut DbTx) -> Result<Fence> {
    let fence = write.scalar(query!("leases/next_lease_fence", write.now.millis())).await?;
    Ok(Fence::from_raw(fence))
}
