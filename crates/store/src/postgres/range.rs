//! Writes ranges of skips. A range has no tick id, so it is written only together with the cursor that passes it.

use everytick_domain::{
    ids::{Cause, Epoch, JobId, RunId, TenantId},
    plan::SkipRange,
    time::{DbTime, Span},
};

use super::{DbTx, Failed, PostgresStore, node, rows};
use crate::{Lease, RangeAnswer, RangePlan, Result};

pub(super) async fn record_range(store: &PostgresStore, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
    const DOING: &str = "record a range of skips";
    let mut write = store.write(DOING).await?;
    let done = write_range(&mut write, lease, plan).await;
    write.finish(done).await
}

async fn write_range(write: &mut DbTx, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
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
pub(super) async fn lock(write: &mut DbTx, job: JobId, epoch: Epoch) -> Result<Option<(TenantId, Option<DbTime>)>> {
    let tenant: Option<i32> = write.optional_scalar(query!("ranges/lock_range", job.uuid(), epoch.raw())).await?;
    let Some(tenant) = tenant else { return Ok(None) };
    let row = write.fetch_one(query!("ranges/cursor_now", job.uuid())).await?;
    write.now = rows::at(&row, "now").failed(write.doing)?;
    Ok(Some((TenantId::from_raw(tenant), rows::time(&row, "next_tick").failed(write.doing)?)))
}

/// Whether a tick of the range has a row.
pub(super) async fn is_occupied(write: &mut DbTx, job: JobId, range: SkipRange) -> Result<bool> {
    let occupied: Option<i32> = write
        .optional_scalar(query!(
            "ranges/range_probe",
            job.uuid(),
            RunId::floor(range.from).uuid(),
            RunId::floor(range.to.plus(Span::millis(1))).uuid()
        ))
        .await?;
    Ok(occupied.is_some())
}

pub(super) async fn insert_ranges(write: &mut DbTx, job: JobId, tenant: TenantId, ranges: &[SkipRange]) -> Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let column = |of: fn(&SkipRange) -> i64| ranges.iter().map(of).collect::<Vec<_>>();
    write
        .execute_or_refuse(query!(
            "ranges/range_insert",
            rows::run_ids(ranges.iter().map(|range| RunId::of(job, Cause::Range { from: range.from }))),
            column(|range| range.from.millis()),
            column(|range| range.to.millis()),
            column(|range| i64::try_from(range.count).unwrap_or(i64::MAX)),
            ranges.iter().map(|range| range.reason.code()).collect::<Vec<_>>(),
            job.uuid(),
            tenant.raw(),
            write.now.millis()
        ))
        .await?;
    Ok(())
}

/// Sets the job's cursor and raises its epoch, so that ticks planned before are rejected as stale. The caller has the
/// job locked.
pub(super) async fn move_on(write: &mut DbTx, job: JobId, cursor: Option<DbTime>) -> Result<Epoch> {
    set_cursor(write, job, cursor).await?;
    raise_epoch(write, job).await
}

pub(super) async fn set_cursor(write: &mut DbTx, job: JobId, cursor: Option<DbTime>) -> Result<()> {
    write.execute(query!("cursors/set_cursor", job.uuid(), cursor.map(DbTime::millis))).await?;
    Ok(())
}

/// Makes the owner plan again: ticks planned under the old epoch are rejected. The caller has the job locked.
pub(super) async fn raise_epoch(write: &mut DbTx, job: JobId) -> Result<Epoch> {
    let epoch = write.scalar(query!("epochs/raise_epoch", job.uuid(), write.now.millis())).await?;
    Ok(Epoch::from_raw(epoch))
}

/// Notifies the listeners for job changes when this transaction commits.
pub(super) async fn notify(write: &mut DbTx) -> Result<()> {
    write.execute(query!("ranges/notify")).await?;
    Ok(())
}
