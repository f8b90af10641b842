//! Writes ranges of skips. A range has no tick id, so it is written only together with the cursor that passes it.

use everytick_domain::{
    ids::{Cause, Epoch, JobId, RunId, TenantId},
    plan::SkipRange,
    time::{DbTime, Span},
};

use super::{DbTx, SqliteStore, node, rows, rows::Hex};
use crate::{Lease, RangeAnswer, RangePlan, Result};

pub(super) async fn record_range(store: &SqliteStore, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
    const DOING: &str = "record a range of skips";
    let mut write = store.write(DOING).await?;
    node::lock_lease(&mut write, lease).await?;
    let tenant: Option<i32> = write
        .optional_scalar(query!("ranges/range_cursor", plan.job.uuid(), plan.epoch.raw(), plan.cursor_was.millis()))
        .await?;
    let Some(tenant) = tenant.filter(|_| plan.range.to <= write.now) else { return Ok(RangeAnswer::Stale) };
    let occupied: Option<i64> = write
        .optional_scalar(query!(
            "ranges/range_probe",
            plan.job.uuid(),
            RunId::floor(plan.range.from).uuid(),
            RunId::floor(plan.range.to.plus(Span::millis(1))).uuid()
        ))
        .await?;
    if occupied.is_some() {
        return Ok(RangeAnswer::Stale);
    }
    insert_ranges(&mut write, plan.job, TenantId::from_raw(tenant), &[plan.range]).await?;
    let epoch = move_on(&mut write, plan.job, plan.cursor).await?;
    write.commit().await?;
    Ok(RangeAnswer::Recorded { epoch })
}

pub(super) async fn insert_ranges(write: &mut DbTx, job: JobId, tenant: TenantId, ranges: &[SkipRange]) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let row = |range: &SkipRange| {
        let id = RunId::of(job, Cause::Range { from: range.from });
        (Hex(id.uuid()), range.from.millis(), range.to.millis(), range.count, range.reason.code())
    };
    write
        .execute_or_refuse(query!(
            "ranges/range_insert",
            job.uuid(),
            tenant.raw(),
            write.now.millis(),
            rows::json(&ranges.iter().map(row).collect::<Vec<_>>())
        ))
        .await?;
    Ok(())
}

/// Sets the job's cursor and raises its epoch, so that ticks planned before are rejected as stale.
pub(super) async fn move_on(write: &mut DbTx, job: JobId, cursor: Option<DbTime>) -> Result<Epoch> {
    set_cursor(write, job, cursor).await?;
    raise_epoch(write, job).await
}

/// Makes the owner plan again: ticks planned under the old epoch are rejected.
pub(super) async fn raise_epoch(write: &mut DbTx, job: JobId) -> Result<Epoch> {
    let change = next_change(write, 1).await?;
    let epoch = write.scalar(query!("epochs/raise_epoch", job.uuid(), change, write.now.millis())).await?;
    Ok(Epoch::from_raw(epoch))
}

pub(super) async fn set_cursor(write: &mut DbTx, job: JobId, cursor: Option<DbTime>) -> Result<()> {
    write.execute(query!("cursors/set_cursor", job.uuid(), cursor.map(DbTime::millis))).await?;
    Ok(())
}

/// Reserves this many change numbers and returns the last of them.
pub(super) async fn next_change(write: &mut DbTx, count: usize) -> Result<i64> {
    write.scalar(query!("epochs/next_change", rows::limit(count))).await
}
