//! Writes ranges of skips. A range has no tick id, so it is written only together with the cursor that passes it.

use everytick_domain::{
    ids::{Cause, Epoch, JobId, RunId, TenantId},
    plan::SkipRange,
    time::{DbTime, Span},
};

use super::{DbStore, DbTx, Failed, lease, rows};
use crate::tx::{Tx as _, in_tx};
use crate::{Lease, RangeAnswer, RangePlan, Result};

pub(super) async fn record_range(store: &DbStore, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
    in_tx!(store, "record a range of skips", tx => write_range(tx, lease, plan))
}

async fn write_range(tx: &mut DbTx, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
    lease::lock_lease(tx, lease).await?;
    let Some((tenant, cursor)) = lock(tx, plan.job, plan.epoch).await? else { return Ok(RangeAnswer::Stale) };
    if cursor != Some(plan.cursor_was) || plan.range.to > tx.now {
        return Ok(RangeAnswer::Stale);
    }
    if is_occupied(tx, plan.job, plan.range).await? {
        return Ok(RangeAnswer::Stale);
    }
    insert_ranges(tx, plan.job, tenant, &[plan.range]).await?;
    let epoch = move_on(tx, plan.job, plan.cursor).await?;
    Ok(RangeAnswer::Recorded { epoch })
}

/// Locks the job if it has this epoch. Then, in the next statement, reads its cursor and the clock.
pub(super) async fn lock(tx: &mut DbTx, job: JobId, epoch: Epoch) -> Result<Option<(TenantId, Option<DbTime>)>> {
    let tenant: Option<i32> = tx.optional_scalar(query!("ranges/lock_range", job.uuid(), epoch.raw())).await?;
    let Some(tenant) = tenant else { return Ok(None) };
    let row = tx.fetch_one(query!("ranges/cursor_now", job.uuid())).await?;
    if let Some(now) = rows::time(&row, "now").failed(tx.doing)? {
        tx.now = now;
    }
    Ok(Some((TenantId::from_raw(tenant), rows::time(&row, "next_tick").failed(tx.doing)?)))
}

/// Whether a tick of the range has a row.
async fn is_occupied(tx: &mut DbTx, job: JobId, range: SkipRange) -> Result<bool> {
    let (from, to) = (RunId::floor(range.from), RunId::floor(range.to.plus(Span::millis(1))));
    let occupied = tx.fetch_optional(query!("ranges/range_probe", job.uuid(), from.uuid(), to.uuid())).await?;
    Ok(occupied.is_some())
}

pub(super) async fn insert_ranges(tx: &mut DbTx, job: JobId, tenant: TenantId, ranges: &[SkipRange]) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let insert = batch!("ranges/range_insert", [job.uuid(), tenant.raw(), tx.now.millis()], ranges, |range| (
        RunId::of(job, Cause::Range { from: range.from }),
        range.from,
        range.to,
        i64::try_from(range.count).unwrap_or(i64::MAX),
        range.reason.code(),
    ));
    tx.execute_or_refuse(insert).await?;
    Ok(())
}

/// Sets the job's cursor and raises its epoch, so that ticks planned before are rejected as stale. The caller has the
/// job locked.
pub(super) async fn move_on(tx: &mut DbTx, job: JobId, cursor: Option<DbTime>) -> Result<Epoch> {
    tx.set_cursor(job, cursor).await?;
    tx.raise_epoch(job).await
}
