//! The lease of a node and the partitions that it owns: join, renew, raise the fence, leave. `lease.rs` of each database
//! has the check that other transactions make under a lease.

use std::collections::BTreeMap;

use everytick_domain::{
    ids::{Fence, Incarnation, RunId},
    partition::PartitionSet,
    time::{DbTime, Span},
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbRow, DbStore, DbTx, lease, lost, rows};
use crate::tx::{SharedTx as _, Tx as _};
use crate::{
    Beat, Cluster, GoneNode, JOBS_COUNTED_MAX, Lease, NodeInfo, NodeProcess, NodeRecord, OLD_CLAIM_AFTER,
    PartitionRecord, Result, Store as _,
};

pub(super) async fn join(
    store: &DbStore,
    node: &NodeInfo,
    incarnation: Incarnation,
    ttl: Span,
) -> Result<(Lease, DbTime)> {
    lease::shorten(store).await;
    let mut tx = store.write("join the cluster").await?;
    lease::lock_name(&mut tx, node, incarnation).await?;
    let now = tx.now;
    // The ended leases and the new one must have different fences.
    let fence = next_fence(&mut tx).await?;
    tx.execute(query!("leases/join_end_older", incarnation.uuid(), &node.name, fence.raw())).await?;
    let fence = next_fence(&mut tx).await?;
    let join = query!(
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
        millis(ttl),
    );
    tx.execute(join).await?;
    tx.commit().await?;
    Ok((Lease { node: node.name.clone(), incarnation, fence }, now))
}

pub(super) fn process(row: &DbRow) -> rows::Decoded<Option<NodeProcess>> {
    let host: Option<String> = row.try_get("host")?;
    let (pid, mark): (Option<i64>, Option<String>) = (row.try_get("pid")?, row.try_get("process")?);
    let pid = pid.and_then(|pid| u32::try_from(pid).ok());
    Ok(host.zip(pid).map(|(host, pid)| NodeProcess { host, pid, mark: mark.unwrap_or_default() }))
}

pub(super) fn millis(span: Span) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

pub(super) async fn renew(store: &DbStore, lease: &Lease, ttl: Span, beat: &Beat) -> Result<DbTime> {
    let mut tx = store.write("renew the lease").await?;
    lease::lock_lease_alone(&mut tx, lease).await?;
    let now = tx.now;
    lost::list(&mut tx, lease, &beat.old_claims).await?;
    let renew = query!(
        "leases/renew",
        lease.incarnation.uuid(),
        now.plus(ttl).millis(),
        beat.open_from.map(RunId::uuid),
        now.millis(),
        millis(beat.lag),
        beat.clock_offset_ms,
        beat.old_claims.iter().map(|claim| claim.run).min().map(RunId::uuid),
        millis(ttl),
    );
    tx.execute(renew).await?;
    tx.commit().await?;
    lease::renewed(store, now).await;
    Ok(now)
}

pub(super) async fn raise_fence(store: &DbStore, lease: &Lease) -> Result<Lease> {
    let mut tx = store.write("raise the lease's fence").await?;
    lease::lock_lease_alone(&mut tx, lease).await?;
    let fence = next_fence(&mut tx).await?;
    tx.execute(query!("leases/raise_fence", lease.incarnation.uuid(), fence.raw())).await?;
    tx.commit().await?;
    Ok(Lease { fence, ..lease.clone() })
}

pub(super) async fn retire(store: &DbStore, lease: &Lease) -> Result<()> {
    let mut tx = store.write("release all partitions").await?;
    lease::lock_lease_alone(&mut tx, lease).await?;
    free(&mut tx, lease, &PartitionSet::all(store.partitions())).await?;
    tx.execute(query!("leases/retire", lease.incarnation.uuid())).await?;
    tx.notify_owners().await?;
    tx.commit().await?;
    // Any node does this periodically; done at once, so that other nodes can start these runs.
    lease::undelegate(store).await
}

pub(super) async fn leave(store: &DbStore, lease: &Lease) -> Result<()> {
    let mut tx = store.write("leave the cluster").await?;
    lease::lock_lease_alone(&mut tx, lease).await?;
    free(&mut tx, lease, &PartitionSet::all(store.partitions())).await?;
    let fence = next_fence(&mut tx).await?;
    tx.execute(query!("leases/leave", lease.incarnation.uuid(), fence.raw(), tx.now.millis())).await?;
    tx.commit().await
}

pub(super) async fn cluster(store: &DbStore) -> Result<Cluster> {
    let mut tx = store.read("read the cluster").await?;
    let node = |row: &DbRow| {
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
    let partition = |row: &DbRow| {
        Ok(PartitionRecord {
            partition: rows::partition_of(row)?,
            owner: row.try_get::<Option<Uuid>, _>("holder")?.map(Incarnation::from_uuid),
            fence: Fence::from_raw(row.try_get("fence")?),
            since: rows::at(row, "since")?,
            home_region: row.try_get("home_region")?,
        })
    };
    let nodes = tx.fetch_all(query!("leases/cluster_nodes")).await?;
    let partitions = tx.fetch_all(query!("partitions/cluster_partitions")).await?;
    Ok(Cluster {
        now: tx.read_clock().await?,
        nodes: tx.unreadable.each("leases", &nodes, node),
        partitions: tx.unreadable.each("partitions", &partitions, partition),
        row_level_security: store.has_row_level_security(),
    })
}

pub(super) async fn gone_nodes(store: &DbStore) -> Result<Vec<GoneNode>> {
    let mut tx = store.read("list the nodes that are gone").await?;
    let from = tx.read_clock().await?.minus(GoneNode::LISTED_FOR);
    let query = query!("leases/gone_nodes", from.millis(), rows::limit(GoneNode::LISTED_MAX));
    let found = tx.fetch_all(query).await?;
    let node = |row: &DbRow| {
        Ok(GoneNode {
            name: row.try_get("node")?,
            region: row.try_get("region")?,
            version: row.try_get("version")?,
            can: row.try_get("can")?,
            started_at: rows::at(row, "started_at")?,
            gone_since: rows::at(row, "renewed_at")?,
        })
    };
    Ok(GoneNode::once_each(tx.unreadable.each("leases", &found, node)))
}

/// Notes the node of an ended lease as gone, before the lease is removed.
pub(super) async fn note_gone(tx: &mut DbTx, incarnation: Incarnation) -> Result<()> {
    tx.execute(query!("leases/note_gone", incarnation.uuid())).await?;
    // Read here: the transaction of the caller has locked nothing, so it has no time yet.
    let before = tx.read_clock().await?.minus(GoneNode::LISTED_FOR);
    tx.execute(query!("leases/prune_gone", before.millis())).await?;
    Ok(())
}

pub(super) async fn count_jobs(store: &DbStore) -> Result<BTreeMap<u16, u64>> {
    let mut tx = store.read("count the jobs of the partitions").await?;
    let most = rows::limit(JOBS_COUNTED_MAX / usize::from(store.partitions()).max(1));
    let found = tx.fetch_all(query!("partitions/count_jobs", most)).await?;
    let counted = |row: &DbRow| Ok((rows::partition_of(row)?, row.try_get::<i64, _>("jobs")?.unsigned_abs()));
    Ok(tx.decode_all(&found, counted)?.into_iter().collect())
}

pub(super) async fn acquire(store: &DbStore, lease: &Lease, asked: &PartitionSet) -> Result<PartitionSet> {
    let named = rows::partitions(asked);
    let mut tx = store.write("acquire partitions").await?;
    lease::lock_lease(&mut tx, lease).await?;
    lock!(tx, "partitions/lock_partitions", &named)?;
    fence_expired(&mut tx, lease.incarnation).await?;
    let now = tx.read_clock().await?;
    tx.execute(query!("partitions/acquire", &named, lease.incarnation.uuid(), now.millis())).await?;
    let owned = tx.fetch_all(query!("partitions/owned", &named, lease.incarnation.uuid())).await?;
    let owned: Vec<u16> = tx.decode_all(&owned, rows::partition_of)?;
    tx.commit().await?;
    Ok(owned.into_iter().collect())
}

pub(super) async fn release(store: &DbStore, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
    let mut tx = store.write("release partitions").await?;
    lease::lock_lease(&mut tx, lease).await?;
    free(&mut tx, lease, partitions).await?;
    tx.notify_owners().await?;
    tx.commit().await
}

async fn free(tx: &mut DbTx, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
    let named = rows::partitions(partitions);
    lock!(tx, "partitions/lock_partitions", &named)?;
    tx.execute(query!("partitions/release", &named, lease.incarnation.uuid(), tx.now.millis())).await?;
    Ok(())
}

/// Ends expired leases of other nodes. Locking their rows waits for their executing statements. Statements that they
/// send later have an old fence.
pub(super) async fn fence_expired(tx: &mut DbTx, but: Incarnation) -> Result<()> {
    let expired: Vec<Uuid> = tx.scalars(query!("leases/lock_expired", but.uuid(), tx.now.millis())).await?;
    if !expired.is_empty() {
        let fence = next_fence(tx).await?;
        tx.execute(query!("leases/fence_lost", rows::ids(expired), fence.raw())).await?;
    }
    Ok(())
}

/// Call it after the lease rows are locked: a transaction that waits for a lease while it has the counter locked would
/// block all others.
async fn next_fence(tx: &mut DbTx) -> Result<Fence> {
    let fence = tx.scalar(query!("leases/next_lease_fence", tx.now.millis())).await?;
    Ok(Fence::from_raw(fence))
}
