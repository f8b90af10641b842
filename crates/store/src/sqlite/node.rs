//! The lease of a node: had, renewed, raised, ended, and checked where others write under it.

use everytick_domain::{
    ids::{Fence, Incarnation, RunId},
    job::LATE_AFTER_MAX,
    time::{DbTime, Span},
};
use sqlx::SqliteConnection;
use uuid::Uuid;

use super::{Failed, SqliteStore, Write, sql};
use crate::{Lease, Result, StoreError};

pub(super) async fn join(
    store: &SqliteStore,
    node: &str,
    incarnation: Incarnation,
    ttl: Span,
) -> Result<(Lease, DbTime)> {
    const DOING: &str = "join";
    let mut write = store.write(DOING).await?;
    let now = write.now;
    let fence = next_fence(&mut write).await?;
    sqlx::query(sql!("join_end_others"))
        .bind(incarnation.uuid())
        .bind(fence.raw())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    // Runs are born claimed within `late_after` of their tick.
    let open_from = RunId::floor(now.minus(LATE_AFTER_MAX));
    // The fence of those that ended is another than that of the new one.
    let fence = next_fence(&mut write).await?;
    sqlx::query(sql!("join"))
        .bind(incarnation.uuid())
        .bind(node)
        .bind(fence.raw())
        .bind(now.plus(ttl).millis())
        .bind(open_from.uuid())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    write.commit().await?;
    Ok((Lease { node: node.to_owned(), incarnation, fence }, now))
}

pub(super) async fn renew(store: &SqliteStore, lease: &Lease, ttl: Span, open_from: RunId) -> Result<DbTime> {
    const DOING: &str = "renew the lease";
    let mut write = store.write(DOING).await?;
    let now = write.now;
    check(&mut write.tx, lease, now, DOING).await?;
    sqlx::query(sql!("renew"))
        .bind(lease.incarnation.uuid())
        .bind(now.plus(ttl).millis())
        .bind(open_from.uuid())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    write.commit().await?;
    Ok(now)
}

pub(super) async fn raise_fence(store: &SqliteStore, lease: &Lease) -> Result<Lease> {
    const DOING: &str = "raise the lease's fence";
    let mut write = store.write(DOING).await?;
    let fence = next_fence(&mut write).await?;
    let raised = sqlx::query(sql!("raise_fence"))
        .bind(lease.incarnation.uuid())
        .bind(&lease.node)
        .bind(fence.raw())
        .bind(write.now.millis())
        .bind(lease.fence.raw())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    if raised.rows_affected() == 0 {
        return Err(StoreError::LeaseLost);
    }
    write.commit().await?;
    Ok(Lease { fence, ..lease.clone() })
}

pub(super) async fn leave(store: &SqliteStore, lease: &Lease) -> Result<()> {
    const DOING: &str = "leave";
    let mut write = store.write(DOING).await?;
    let now = write.now;
    check(&mut write.tx, lease, now, DOING).await?;
    let fence = next_fence(&mut write).await?;
    sqlx::query(sql!("leave"))
        .bind(lease.incarnation.uuid())
        .bind(fence.raw())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    write.commit().await
}

/// Sees that the lease lives and carries the fence; gives the lowest id that it may have claimed.
pub(super) async fn check(
    connection: &mut SqliteConnection,
    lease: &Lease,
    now: DbTime,
    doing: &'static str,
) -> Result<RunId> {
    let open_from: Option<Uuid> = sqlx::query_scalar(sql!("lease_lives"))
        .bind(lease.incarnation.uuid())
        .bind(&lease.node)
        .bind(lease.fence.raw())
        .bind(now.millis())
        .fetch_optional(connection)
        .await
        .failed(doing)?;
    open_from.map(RunId::from_uuid).ok_or(StoreError::LeaseLost)
}

/// Notes that the lease claims a run as low as this: whoever looks for its claims begins there.
pub(super) async fn lower_open_from(write: &mut Write, lease: &Lease, lowest: RunId) -> Result<()> {
    sqlx::query(sql!("lower_open_from"))
        .bind(lease.incarnation.uuid())
        .bind(lowest.uuid())
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(())
}

pub(super) async fn next_fence(write: &mut Write) -> Result<Fence> {
    let fence = sqlx::query_scalar(sql!("next_lease_fence"))
        .bind(write.now.millis())
        .fetch_one(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(Fence::from_raw(fence))
}
