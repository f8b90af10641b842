//! The lease of a node and the partitions it holds: had, renewed, raised, ended, and checked where others write under it.

use everytick_domain::{
    ids::{Fence, Incarnation, RunId},
    partition::PartitionSet,
    time::{DbTime, Span},
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{Failed, PostgresStore, Write, days, range, rows, sql};
use crate::{Beat, Cluster, Lease, NodeInfo, NodeRecord, PartitionRecord, Result, StoreError};

/// Runs are born claimed soon after their tick. One that is born later lowers the lease's bound with its claim; whoever looks
/// for claims reads every run from there on, so the bound is a near one.
const BORN_LATE: Span = Span::seconds(10);

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
    const DOING: &str = "join";
    let mut write = store.write(DOING).await?;
    // What older incarnations of the node have under way ends first.
    sqlx::query(sql!("join_lock"))
        .bind(incarnation.uuid())
        .bind(&node.name)
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    let now = write.read_clock().await?;
    let replaced: bool = sqlx::query_scalar(sql!("join_replaced"))
        .bind(incarnation.uuid())
        .bind(&node.name)
        .bind(now.millis())
        .fetch_one(&mut *write.tx)
        .await
        .failed(DOING)?;
    if node.again && replaced {
        return Err(StoreError::replaced(&node.name));
    }
    let fence = next_fence(&mut write).await?;
    sqlx::query(sql!("join_end_older"))
        .bind(incarnation.uuid())
        .bind(&node.name)
        .bind(fence.raw())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    let fence = next_fence(&mut write).await?;
    sqlx::query(sql!("join"))
        .bind(incarnation.uuid())
        .bind(&node.name)
        .bind(fence.raw())
        .bind(now.plus(ttl).millis())
        .bind(RunId::floor(now.minus(BORN_LATE)).uuid())
        .bind(&node.region)
        .bind(&node.version)
        .bind(now.millis())
        .bind(node.holds)
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    write.commit().await?;
    Ok((Lease { node: node.name.clone(), incarnation, fence }, now))
}

pub(super) async fn renew(store: &PostgresStore, lease: &Lease, ttl: Span, beat: &Beat) -> Result<DbTime> {
    const DOING: &str = "renew the lease";
    let mut write = store.write(DOING).await?;
    hold_alone(&mut write, lease).await?;
    let now = write.now;
    sqlx::query(sql!("renew"))
        .bind(lease.incarnation.uuid())
        .bind(now.plus(ttl).millis())
        .bind(beat.open_from.uuid())
        .bind(now.millis())
        .bind(i64::try_from(beat.lag.as_millis()).unwrap_or(i64::MAX))
        .bind(beat.clock_offset_ms)
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    write.commit().await?;
    days::make_ahead(store, now).await;
    Ok(now)
}

pub(super) async fn raise_fence(store: &PostgresStore, lease: &Lease) -> Result<Lease> {
    const DOING: &str = "raise the lease's fence";
    let mut write = store.write(DOING).await?;
    hold_alone(&mut write, lease).await?;
    let fence = next_fence(&mut write).await?;
    sqlx::query(sql!("raise_fence"))
        .bind(lease.incarnation.uuid())
        .bind(fence.raw())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    write.commit().await?;
    Ok(Lease { fence, ..lease.clone() })
}

pub(super) async fn retire(store: &PostgresStore, lease: &Lease) -> Result<()> {
    const DOING: &str = "give all partitions back";
    let mut write = store.write(DOING).await?;
    hold_alone(&mut write, lease).await?;
    free(&mut write, lease, &PartitionSet::all(u16::MAX)).await?;
    sqlx::query(sql!("retire")).bind(lease.incarnation.uuid()).execute(&mut *write.tx).await.failed(DOING)?;
    range::notify(&mut write).await?;
    write.commit().await
}

pub(super) async fn leave(store: &PostgresStore, lease: &Lease) -> Result<()> {
    const DOING: &str = "leave";
    let mut write = store.write(DOING).await?;
    hold_alone(&mut write, lease).await?;
    free(&mut write, lease, &PartitionSet::all(u16::MAX)).await?;
    let fence = next_fence(&mut write).await?;
    sqlx::query(sql!("leave"))
        .bind(lease.incarnation.uuid())
        .bind(fence.raw())
        .bind(write.now.millis())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
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
            holds: row.try_get("holds")?,
            lag: Span::millis(row.try_get::<i64, _>("lag_ms")?.unsigned_abs()),
            clock_offset_ms: row.try_get("clock_offset_ms")?,
        })
    };
    let partition = |row: &PgRow| {
        Ok(PartitionRecord {
            partition: row.try_get::<i16, _>("partition")?.unsigned_abs(),
            holder: row.try_get::<Option<Uuid>, _>("holder")?.map(Incarnation::from_uuid),
            fence: Fence::from_raw(row.try_get("fence")?),
            since: rows::at(row, "since")?,
            home_region: row.try_get("home_region")?,
        })
    };
    let nodes = sqlx::query(sql!("cluster_nodes")).fetch_all(&mut *read).await.failed(DOING)?;
    let partitions = sqlx::query(sql!("cluster_partitions")).fetch_all(&mut *read).await.failed(DOING)?;
    let now = sqlx::query_scalar(sql!("now")).fetch_one(&mut *read).await.failed(DOING)?;
    Ok(Cluster {
        now: DbTime::from_millis(now),
        nodes: nodes.iter().map(node).collect::<std::result::Result<_, sqlx::Error>>().failed(DOING)?,
        partitions: partitions.iter().map(partition).collect::<std::result::Result<_, sqlx::Error>>().failed(DOING)?,
    })
}

pub(super) async fn acquire(store: &PostgresStore, lease: &Lease, asked: &PartitionSet) -> Result<PartitionSet> {
    const DOING: &str = "acquire partitions";
    let named = rows::partitions(asked);
    let mut write = store.write(DOING).await?;
    hold(&mut write, lease).await?;
    sqlx::query(sql!("acquire_lock")).bind(&named).execute(&mut *write.tx).await.failed(DOING)?;
    fence_expired(&mut write, lease.incarnation).await?;
    let now = write.read_clock().await?;
    sqlx::query(sql!("acquire"))
        .bind(&named)
        .bind(lease.incarnation.uuid())
        .bind(now.millis())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    let held: Vec<i16> = sqlx::query_scalar(sql!("held"))
        .bind(&named)
        .bind(lease.incarnation.uuid())
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    write.commit().await?;
    Ok(held.into_iter().map(i16::unsigned_abs).collect())
}

pub(super) async fn release(store: &PostgresStore, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
    const DOING: &str = "release partitions";
    let mut write = store.write(DOING).await?;
    hold(&mut write, lease).await?;
    free(&mut write, lease, partitions).await?;
    range::notify(&mut write).await?;
    write.commit().await
}

async fn free(write: &mut Write, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
    let named = rows::partitions(partitions);
    sqlx::query(sql!("acquire_lock")).bind(&named).execute(&mut *write.tx).await.failed(write.doing)?;
    sqlx::query(sql!("release"))
        .bind(&named)
        .bind(lease.incarnation.uuid())
        .bind(write.now.millis())
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(())
}

/// Ends the leases of others that have expired. Taking their rows waits for the statements that they have under way, and
/// whatever they send later finds another fence.
pub(super) async fn fence_expired(write: &mut Write, but: Incarnation) -> Result<()> {
    let expired: Vec<Uuid> = sqlx::query_scalar(sql!("expired_lock"))
        .bind(but.uuid())
        .bind(write.now.millis())
        .fetch_all(&mut *write.tx)
        .await
        .failed(write.doing)?;
    if !expired.is_empty() {
        let fence = next_fence(write).await?;
        sqlx::query(sql!("fence_lost"))
            .bind(expired)
            .bind(fence.raw())
            .execute(&mut *write.tx)
            .await
            .failed(write.doing)?;
    }
    Ok(())
}

/// Holds the lease for as long as the transaction lasts, together with others who write under it. Sees that it lives and
/// carries the fence, reads the clock, and gives the lowest id that the lease may have claimed.
pub(super) async fn hold(write: &mut Write, lease: &Lease) -> Result<RunId> {
    let (now, open_from) = lives(&mut write.tx, sql!("lease_held"), lease, write.doing).await?;
    write.now = now;
    Ok(open_from)
}

/// The same, alone: for whoever changes the lease.
pub(super) async fn hold_alone(write: &mut Write, lease: &Lease) -> Result<RunId> {
    let (now, open_from) = lives(&mut write.tx, sql!("lease_held_alone"), lease, write.doing).await?;
    write.now = now;
    Ok(open_from)
}

/// Looks at the lease, for those who only read; gives the clock.
pub(super) async fn check(read: &mut PgConnection, lease: &Lease, doing: &'static str) -> Result<DbTime> {
    lives(read, sql!("lease_lives"), lease, doing).await.map(|(now, _)| now)
}

async fn lives(
    connection: &mut PgConnection,
    statement: &'static str,
    lease: &Lease,
    doing: &'static str,
) -> Result<(DbTime, RunId)> {
    let found = sqlx::query(statement)
        .bind(lease.incarnation.uuid())
        .bind(&lease.node)
        .bind(lease.fence.raw())
        .fetch_optional(connection)
        .await
        .failed(doing)?;
    let row = found.ok_or(StoreError::LeaseLost)?;
    let (now, until) = (rows::at(&row, "now").failed(doing)?, rows::at(&row, "until").failed(doing)?);
    if until <= now {
        return Err(StoreError::LeaseLost);
    }
    Ok((now, rows::run_id(&row, "open_from").failed(doing)?))
}

/// Notes that the lease claims a run as low as this: whoever looks for its claims begins there. The lease is held alone.
pub(super) async fn lower_open_from(write: &mut Write, lease: &Lease, lowest: RunId) -> Result<()> {
    sqlx::query(sql!("lower_open_from"))
        .bind(lease.incarnation.uuid())
        .bind(lowest.uuid())
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(())
}

/// The lease rows are had before this: whoever waits for one would keep everybody from the counter.
async fn next_fence(write: &mut Write) -> Result<Fence> {
    let fence = sqlx::query_scalar(sql!("next_lease_fence"))
        .bind(write.now.millis())
        .fetch_one(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(Fence::from_raw(fence))
}
