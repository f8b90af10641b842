//! Writes ranges of skips. A range has no tick id, so it is written only together with the cursor that passes it.

use everytick_domain::{
    ids::{Cause, Epoch, JobId, RunId, TenantId},
    plan::SkipRange,
    time::{DbTime, Span},
};

use super::{Failed, PostgresStore, Write, node, rows, sql};
use crate::{Lease, RangeAnswer, RangePlan, Result};

pub(super) async fn record_range(store: &PostgresStore, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
    const DOING: &str = "record a range of skips";
    let mut write = store.write(DOING).await?;
    let done = write_range(&mut write, lease, plan).await;
    write.finish(done).await
}

async fn write_range(write: &mut Write, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
    node::lock_lease(write, lease).await?;
    let Some((tenant, cursor)) = lock(write, plan.job, plan.epoch).await? else { return Ok(RangeAnswer::Stale) };
    if cursor != Some(plan.cursor_was) || plan.range.to > write.now {
        return Ok(RangeAnswer::Stale);
    }
    if is_occupied(write, plan.job, plan.range).await? {
        return Ok(RangeAnswer::Stale);
    }
    insert_ranges(write, plan.job, tenant, &[plan.range]).await?;
    let epoch = move_on(write, plan.job, plan.cursor).await?;
    Ok(RangeAnswer::Recorded { epoch })
}

/// Locks the job if it has this epoch. Then, in the next statement, reads its cursor and the clock.
pub(super) async fn lock(write: &mut Write, job: JobId, epoch: Epoch) -> Result<Option<(TenantId, Option<DbTime>)>> {
    let tenant: Option<i32> = sqlx::query_scalar(sql!("ranges/lock_range"))
        .bind(job.uuid())
        .bind(epoch.raw())
        .fetch_optional(&mut *write.tx)
        .await
        .failed(write.doing)?;
    let Some(tenant) = tenant else { return Ok(None) };
    let row =
        sqlx::query(sql!("ranges/cursor_now")).bind(job.uuid()).fetch_one(&mut *write.tx).await.failed(write.doing)?;
    write.now = rows::at(&row, "now").failed(write.doing)?;
    Ok(Some((TenantId::from_raw(tenant), rows::time(&row, "next_tick").failed(write.doing)?)))
}

/// Whether a tick of the range has a row.
pub(super) async fn is_occupied(write: &mut Write, job: JobId, range: SkipRange) -> Result<bool> {
    let occupied: Option<i32> = sqlx::query_scalar(sql!("ranges/range_probe"))
        .bind(job.uuid())
        .bind(RunId::floor(range.from).uuid())
        .bind(RunId::floor(range.to.plus(Span::millis(1))).uuid())
        .fetch_optional(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(occupied.is_some())
}

pub(super) async fn insert_ranges(write: &mut Write, job: JobId, tenant: TenantId, ranges: &[SkipRange]) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let column = |of: fn(&SkipRange) -> i64| ranges.iter().map(of).collect::<Vec<_>>();
    sqlx::query(sql!("ranges/range_insert"))
        .bind(rows::run_ids(ranges.iter().map(|range| RunId::of(job, Cause::Range { from: range.from }))))
        .bind(column(|range| range.from.millis()))
        .bind(column(|range| range.to.millis()))
        .bind(column(|range| i64::try_from(range.count).unwrap_or(i64::MAX)))
        .bind(ranges.iter().map(|range| range.reason.code()).collect::<Vec<_>>())
        .bind(job.uuid())
        .bind(tenant.raw())
        .bind(write.now.millis())
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(write.doing)?;
    Ok(())
}

/// Sets the job's cursor and raises its epoch, so that ticks planned before are rejected as stale. The caller has the
/// job locked.
pub(super) async fn move_on(write: &mut Write, job: JobId, cursor: Option<DbTime>) -> Result<Epoch> {
    set_cursor(write, job, cursor).await?;
    raise_epoch(write, job).await
}

pub(super) async fn set_cursor(write: &mut Write, job: JobId, cursor: Option<DbTime>) -> Result<()> {
    sqlx::query(sql!("cursors/set_cursor"))
        .bind(job.uuid())
        .bind(cursor.map(DbTime::millis))
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(())
}

/// Makes the owner plan again: ticks planned under the old epoch are rejected. The caller has the job locked.
pub(super) async fn raise_epoch(write: &mut Write, job: JobId) -> Result<Epoch> {
    let epoch = sqlx::query_scalar(sql!("epochs/raise_epoch"))
        .bind(job.uuid())
        .bind(write.now.millis())
        .fetch_one(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(Epoch::from_raw(epoch))
}

/// Notifies the listeners for job changes when this transaction commits.
pub(super) async fn notify(write: &mut Write) -> Result<()> {
    sqlx::query(sql!("ranges/notify")).execute(&mut *write.tx).await.failed(write.doing)?;
    Ok(())
}
