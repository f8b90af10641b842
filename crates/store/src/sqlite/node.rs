//! The lease of a node: join, renew, raise the fence, leave, and the check that other transactions make under a lease.

use everytick_domain::{
    ids::{Fence, Incarnation, RunId},
    partition::PartitionSet,
    time::{DbTime, Span},
};
use sqlx::{Row as _, sqlite::SqliteRow};
use uuid::Uuid;

use super::{DbTx, SqliteStore, lost, rows};
use crate::tx::Tx as _;
use crate::{
    Beat, Cluster, Lease, NodeInfo, NodeProcess, NodeRecord, OLD_CLAIM_AFTER, PartitionRecord, Result, Store as _,
    StoreError,
};

pub(super) async fn join(
    store: &SqliteStore,
    node: &NodeInfo,
    incarnation: Incarnation,
    ttl: Span,
) -> Result<(Lease, DbTime)> {
    const DOING: &str = "join the cluster";
    let mut write = store.write(DOING).await?;
    let now = write.now;
    let fence = next_fence(&mut write).await?;
    write.execute(query!("leases/join_end_others", incarnation.uuid(), fence.raw())).await?;
    let open_from = RunId::floor(now.minus(OLD_CLAIM_AFTER));
    // The ended leases and the new one must have different fences.
    let fence = next_fence(&mut write).await?;
    write
        .execute(query!(
            "leases/join",
            incarnation.uuid(),
            &node.name,
            fence.raw(),
            now.plus(ttl).millis(),
            open_from.uuid(),
            &node.region,
            &node.version,
            now.millis(),
            node.may_own,
            node.process.as_ref().map(|process| &process.host),
            node.process.as_ref().map(|process| i64::from(process.pid)),
            node.process.as_ref().map(|process| &process.mark),
            &node.can,
            &node.listen
        ))
        .await?;
    write.commit().await?;
    Ok((Lease { node: node.name.clone(), incarnation, fence }, now))
}

pub(super) async fn renew(store: &SqliteStore, lease: &Lease, ttl: Span, beat: &Beat) -> Result<DbTime> {
    const DOING: &str = "renew the lease";
    let mut write = store.write(DOING).await?;
    lock_lease(&mut write, lease).await?;
    lost::list(&mut write, lease, &beat.old_claims).await?;
    write
        .execute(query!(
            "leases/renew",
            lease.incarnation.uuid(),
            write.now.plus(ttl).millis(),
            beat.open_from.map(RunId::uuid),
            write.now.millis(),
            i64::try_from(beat.lag.as_millis()).unwrap_or(i64::MAX),
            beat.clock_offset_ms
        ))
        .await?;
    let now = write.now;
    write.commit().await?;
    Ok(now)
}

pub(super) async fn raise_fence(store: &SqliteStore, lease: &Lease) -> Result<Lease> {
    const DOING: &str = "raise the lease's fence";
    let mut write = store.write(DOING).await?;
    let fence = next_fence(&mut write).await?;
    let raised = write
        .execute(query!(
            "leases/raise_fence",
            lease.incarnation.uuid(),
            &lease.node,
            fence.raw(),
            write.now.millis(),
            lease.fence.raw()
        ))
        .await?;
    if raised == 0 {
        return Err(StoreError::LeaseLost);
    }
    write.commit().await?;
    Ok(Lease { fence, ..lease.clone() })
}

pub(super) async fn retire(store: &SqliteStore, lease: &Lease) -> Result<()> {
    const DOING: &str = "release all partitions";
    let mut write = store.write(DOING).await?;
    lock_lease(&mut write, lease).await?;
    free(&mut write, lease, &PartitionSet::all(store.partitions())).await?;
    write.execute(query!("leases/retire", lease.incarnation.uuid())).await?;
    write.commit().await
}

pub(super) async fn leave(store: &SqliteStore, lease: &Lease) -> Result<()> {
    const DOING: &str = "leave the cluster";
    let mut write = store.write(DOING).await?;
    lock_lease(&mut write, lease).await?;
    free(&mut write, lease, &PartitionSet::all(store.partitions())).await?;
    let fence = next_fence(&mut write).await?;
    write.execute(query!("leases/leave", lease.incarnation.uuid(), fence.raw())).await?;
    write.commit().await
}

pub(super) async fn cluster(store: &SqliteStore) -> Result<Cluster> {
    const DOING: &str = "read the cluster";
    let mut read = store.read(DOING).await?;
    let node = |row: &SqliteRow| {
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
    let partition = |row: &SqliteRow| {
        Ok(PartitionRecord {
            partition: row.try_get("partition")?,
            owner: row.try_get::<Option<Uuid>, _>("holder")?.map(Incarnation::from_uuid),
            fence: Fence::from_raw(row.try_get("fence")?),
            since: rows::at(row, "since")?,
            home_region: None,
        })
    };
    let nodes = read.fetch_all(query!("leases/cluster_nodes")).await?;
    let partitions = read.fetch_all(query!("partitions/cluster_partitions")).await?;
    Ok(Cluster {
        now: store.clock.now(),
        nodes: store.unreadable.each("leases", &nodes, node),
        partitions: store.unreadable.each("partitions", &partitions, partition),
    })
}

fn process(row: &SqliteRow) -> std::result::Result<Option<NodeProcess>, sqlx::Error> {
    let host: Option<String> = row.try_get("host")?;
    let (pid, mark): (Option<i64>, Option<String>) = (row.try_get("pid")?, row.try_get("process")?);
    let pid = pid.and_then(|pid| u32::try_from(pid).ok());
    Ok(host.zip(pid).map(|(host, pid)| NodeProcess { host, pid, mark: mark.unwrap_or_default() }))
}

pub(super) async fn acquire(store: &SqliteStore, lease: &Lease, asked: &PartitionSet) -> Result<PartitionSet> {
    const DOING: &str = "acquire partitions";
    let mut write = store.write(DOING).await?;
    lock_lease(&mut write, lease).await?;
    let named = rows::json(&asked.iter().collect::<Vec<_>>());
    fence_expired(&mut write, lease.incarnation).await?;
    write.execute(query!("partitions/acquire", &named, lease.incarnation.uuid(), write.now.millis())).await?;
    let owned: Vec<u16> = write.scalars(query!("partitions/owned", &named, lease.incarnation.uuid())).await?;
    write.commit().await?;
    Ok(owned.into_iter().collect())
}

pub(super) async fn release(store: &SqliteStore, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
    const DOING: &str = "release partitions";
    let mut write = store.write(DOING).await?;
    lock_lease(&mut write, lease).await?;
    free(&mut write, lease, partitions).await?;
    write.commit().await
}

async fn free(write: &mut DbTx, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
    write
        .execute(query!(
            "partitions/release",
            rows::json(&partitions.iter().collect::<Vec<_>>()),
            lease.incarnation.uuid(),
            write.now.millis()
        ))
        .await?;
    Ok(())
}

/// Ends expired leases of other nodes: statements that they send later have an old fence and are rejected.
pub(super) async fn fence_expired(write: &mut DbTx, but: Incarnation) -> Result<()> {
    let expired: bool = write.scalar(query!("leases/has_expired", but.uuid(), write.now.millis())).await?;
    if expired {
        let fence = next_fence(write).await?;
        write.execute(query!("leases/fence_lost", but.uuid(), write.now.millis(), fence.raw())).await?;
    }
    Ok(())
}

/// Checks that the lease is alive and carries the fence. Returns the lease's `open_from`: the lowest run id that it may
/// have claimed without a listing. One connection writes, so there is nothing to lock.
pub(super) async fn lock_lease(tx: &mut DbTx, lease: &Lease) -> Result<RunId> {
    let lives = query!("leases/lease_lives", lease.incarnation.uuid(), &lease.node, lease.fence.raw(), tx.now.millis());
    tx.optional_scalar(lives).await?.map(RunId::from_uuid).ok_or(StoreError::LeaseLost)
}

/// Checks the lease in a read transaction; returns the clock.
pub(super) async fn check(tx: &mut DbTx, lease: &Lease) -> Result<DbTime> {
    let now = tx.read_clock().await?;
    lock_lease(tx, lease).await?;
    Ok(now)
}

pub(super) async fn next_fence(write: &mut DbTx) -> Result<Fence> {
    let fence = write.scalar(query!("leases/next_lease_fence", write.now.millis())).await?;
    Ok(Fence::from_raw(fence))
}
