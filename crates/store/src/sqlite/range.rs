//! Writes ranges of skips. A range has no tick id, so it is written only together with the cursor that passes it.

use everytick_domain::{
    ids::{Cause, Epoch, JobId, RunId, TenantId},
    plan::SkipRange,
    time::{DbTime, Span},
};

use super::{Failed, SqliteStore, Write, node, rows, rows::Hex, sql};
use crate::{Lease, RangeAnswer, RangePlan, Result};

pub(super) async fn record_range(store: &SqliteStore, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
    const DOING: &str = "record a range of skips";
    let mut write = store.write(DOING).await?;
    let now = write.now;
    node::check(&mut write.tx, lease, now, DOING).await?;
    let tenant: Option<i32> = sqlx::query_scalar(sql!("ranges/range_cursor"))
        .bind(plan.job.uuid())
        .bind(plan.epoch.raw())
        .bind(plan.cursor_was.millis())
        .fetch_optional(&mut *write.tx)
        .await
        .failed(DOING)?;
    let Some(tenant) = tenant.filter(|_| plan.range.to <= now) else { return Ok(RangeAnswer::Stale) };
    let occupied: Option<i64> = sqlx::query_scalar(sql!("ranges/range_probe"))
        .bind(plan.job.uuid())
        .bind(RunId::floor(plan.range.from).uuid())
        .bind(RunId::floor(plan.range.to.plus(Span::millis(1))).uuid())
        .fetch_optional(&mut *write.tx)
        .await
        .failed(DOING)?;
    if occupied.is_some() {
        return Ok(RangeAnswer::Stale);
    }
    insert_ranges(&mut write, plan.job, TenantId::from_raw(tenant), &[plan.range]).await?;
    let epoch = move_on(&mut write, plan.job, plan.cursor).await?;
    write.commit().await?;
    Ok(RangeAnswer::Recorded { epoch })
}

pub(super) async fn insert_ranges(write: &mut Write, job: JobId, tenant: TenantId, ranges: &[SkipRange]) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let row = |range: &SkipRange| {
        let id = RunId::of(job, Cause::Range { from: range.from });
        (Hex(id.uuid()), range.from.millis(), range.to.millis(), range.count, range.reason.code())
    };
    sqlx::query(sql!("ranges/range_insert"))
        .bind(job.uuid())
        .bind(tenant.raw())
        .bind(write.now.millis())
        .bind(rows::json(&ranges.iter().map(row).collect::<Vec<_>>()).failed(write.doing)?)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(write.doing)?;
    Ok(())
}

/// Sets the job's cursor and raises its epoch, so that ticks planned before are rejected as stale.
pub(super) async fn move_on(write: &mut Write, job: JobId, cursor: Option<DbTime>) -> Result<Epoch> {
    set_cursor(write, job, cursor).await?;
    raise_epoch(write, job).await
}

/// Makes the owner plan again: ticks planned under the old epoch are rejected.
pub(super) async fn raise_epoch(write: &mut Write, job: JobId) -> Result<Epoch> {
    let change = next_change(write, 1).await?;
    let epoch = sqlx::query_scalar(sql!("epochs/raise_epoch"))
        .bind(job.uuid())
        .bind(change)
        .bind(write.now.millis())
        .fetch_one(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(Epoch::from_raw(epoch))
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

/// Reserves this many change numbers and returns the last of them.
pub(super) async fn next_change(write: &mut Write, count: usize) -> Result<i64> {
    sqlx::query_scalar(sql!("epochs/next_change"))
        .bind(rows::limit(count))
        .fetch_one(&mut *write.tx)
        .await
        .failed(write.doing)
}
