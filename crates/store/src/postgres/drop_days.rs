//! Drops the tables of whole days, once no run of the day is open and every cursor has passed it (I17).

use everytick_domain::time::DbTime;

use super::{
    Failed, PostgresStore,
    days::{self, Day},
    horizon,
};
use crate::Result;

const DOING: &str = "prune";

/// Drops the days before the day of `before`, and returns how many runs were removed.
pub(super) async fn drop_before(store: &PostgresStore, before: DbTime) -> Result<u64> {
    let mut gone = 0;
    for day in days::half_dropped(store).await? {
        // As below: a day that cannot be dropped now must not prevent the pruning of other days and rows.
        match finish(store, day).await {
            Ok(runs) => gone += runs,
            Err(error) => {
                tracing::warn!(%error, day = day.table(), "could not drop a detached day; trying again later")
            }
        }
    }
    close_days(store, Day::of(before)).await?;
    let days = days::make(store).await?;
    for day in days.before(Day::of(before)) {
        if is_done_with(store, day).await? {
            // A day that another session has locked is dropped later; the other days and rows do not wait for it.
            match drop_day(store, day).await {
                Ok(runs) => gone += runs,
                Err(error) => tracing::warn!(%error, day = day.table(), "could not drop a day; trying again later"),
            }
        }
    }
    days::look(store).await?;
    Ok(gone)
}

/// The start of the day of `before`. Runs from before it are deleted one by one, where their day could not be dropped.
pub(super) fn start_of(before: DbTime) -> DbTime {
    Day::of(before).start()
}

/// The statements that delete the rows of removed jobs.
pub(super) fn rows_of_jobs() -> [&'static str; 3] {
    [sql!("prune/prune_epochs"), sql!("prune/prune_cursors"), sql!("prune/prune_last_runs")]
}

/// The statement that deletes the last run of a removed job, which outlives its day.
pub(super) fn last_run_of_job() -> Option<&'static str> {
    Some(sql!("tenants/remove_last_runs"))
}

/// Returns how many runs were removed.
async fn drop_day(store: &PostgresStore, day: Day) -> Result<u64> {
    days::detach(store, day).await?;
    finish(store, day).await
}

/// From now on no redrive creates a run in a day before this one.
async fn close_days(store: &PostgresStore, first: Day) -> Result<()> {
    let mut write = store.write(DOING).await?;
    write.execute(query!("days/days_close", first.start().millis())).await?;
    write.commit().await
}

/// Drops a detached day and returns how many runs were removed. A redrive by a node of the previous release may have
/// created a run in it after [`is_done_with`] checked. The detach waited for that transaction, so the run is visible
/// here, and the day is attached again. `day_open` scans the whole table, which exceeds the usual statement timeout on
/// a large day.
async fn finish(store: &PostgresStore, day: Day) -> Result<u64> {
    let ((low, high), table) = (day.ids(), day.table());
    let mut read = store.write_slow(DOING).await?;
    let open: bool = sqlx::query_scalar(day_sql!("days/day_open", &table))
        .bind(low.uuid())
        .bind(high.uuid())
        .fetch_one(&mut *read)
        .await
        .failed(DOING)?;
    drop(read);
    if open {
        days::attach(store, day).await?;
        return Ok(0);
    }
    let gone = keep_last_runs(store, day).await?;
    days::drop_detached(store, day).await?;
    Ok(gone)
}

/// Whether no run of the day is open, none of its flows continues, and every cursor has passed it. This stays true: no
/// cursor is set to before the clock, an ended run does not reopen, and the day is [closed](close_days) to redrives. `read`
/// has one snapshot; otherwise a run that is put back to waiting meanwhile might be found neither among the waiting nor
/// among the claimed runs.
async fn is_done_with(store: &PostgresStore, day: Day) -> Result<bool> {
    let (low, high) = day.ids();
    let mut read = store.read(DOING).await?;
    let lags: bool = read.scalar(query!("days/day_cursors", day.next().start().millis())).await?;
    let waits: bool = read.scalar(query!("days/day_waiting", low.uuid(), high.uuid())).await?;
    if lags || waits {
        return Ok(false);
    }
    let lowest = horizon::lowest_open_from(&mut read, day.next().start()).await?;
    let claimed: bool = read.scalar(query!("days/day_claimed", low.uuid(), high.uuid(), lowest.uuid())).await?;
    Ok(!claimed)
}

/// Copies the last run of each job of the day to `last_runs`, if no later day has one. Returns how many runs are
/// removed with the day.
async fn keep_last_runs(store: &PostgresStore, day: Day) -> Result<u64> {
    let ((low, high), table) = (day.ids(), day.table());
    let mut write = store.write_slow(DOING).await?;
    let count: i64 =
        sqlx::query_scalar(day_sql!("days/day_count", &table)).fetch_one(&mut *write.tx).await.failed(DOING)?;
    let kept = sqlx::query(day_sql!("days/day_last_runs", &table))
        .bind(high.uuid())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?
        .rows_affected();
    for statement in [sql!("days/day_attempts"), sql!("days/day_failures")] {
        sqlx::query(statement).bind(low.uuid()).bind(high.uuid()).execute(&mut *write.tx).await.failed(DOING)?;
    }
    write.commit().await?;
    Ok(count.unsigned_abs().saturating_sub(kept))
}
