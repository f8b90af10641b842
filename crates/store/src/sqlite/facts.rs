//! Reads the facts about one instant of a job, which may be deleted, in one snapshot.

use everytick_domain::{
    explain::{BACKFILLED_SHOWN_MAX, Backfilled, Facts, expected},
    ids::{BackfillId, Cause, RunId, TenantId},
    time::{DbTime, Span},
};
use sqlx::SqliteConnection;

use super::{Failed, SqliteStore, calendars, jobs, read, rows, sql};
use crate::tx::JobRow;
use crate::unreadable::Unreadable;
use crate::{
    JobRef, Result, StoreError,
    facts::{CHANGES_MAX, changes, named, record},
};

const DOING: &str = "read the facts about a tick";

pub(super) async fn load_facts(
    store: &SqliteStore,
    tenant: TenantId,
    job: &JobRef,
    at: Option<DbTime>,
    kept: Span,
) -> Result<(Facts, DbTime)> {
    let mut read = store.read(DOING).await?;
    let row = find(&mut read, &store.unreadable, tenant, job).await?;
    let now = store.clock.now();
    let at = at.unwrap_or_else(|| expected(&row.job, now));
    let id = row.job.id;
    let tick = read::run_record(&mut read, tenant, RunId::of(id, Cause::Tick(at)), DOING).await;
    let tick = match tick {
        Err(StoreError::NotFound(_)) => None,
        found => Some(found?),
    };
    let range = sqlx::query(sql!("range_before"))
        .bind(tenant.raw())
        .bind(id.uuid())
        .bind(RunId::floor(at.plus(Span::millis(1))).uuid())
        .fetch_optional(&mut *read)
        .await
        .failed(DOING)?;
    let range = range.as_ref().map(rows::range).transpose().failed(DOING)?.and_then(|run| run.range);
    let found = sqlx::query(sql!("backfilled"))
        .bind(id.uuid())
        .bind(at.millis())
        .bind(rows::limit(BACKFILLED_SHOWN_MAX))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let run = |row: &sqlx::sqlite::SqliteRow| {
        Ok(rows::origin(BackfillId::from_uuid(sqlx::Row::try_get(row, "id")?), row)?.run(id, at))
    };
    let runs = store.unreadable.each("backfills", &found, run);
    let found = sqlx::query(sql!("run_states"))
        .bind(rows::run_ids(runs).failed(DOING)?)
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let made =
        |row: &sqlx::sqlite::SqliteRow| Ok(Backfilled { run: rows::run_id(row, "id")?, state: rows::state(row)? });
    let backfilled = store.unreadable.each("runs", &found, made);
    let trail = sqlx::query(sql!("job_audit"))
        .bind(tenant.raw())
        .bind(id.to_string())
        .bind(rows::limit(CHANGES_MAX))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let trail = store.unreadable.each("audit", &trail, read::audit);
    let changes = changes(trail);
    let mut facts = Facts {
        job: row.job,
        cursor: row.cursor,
        now,
        kept_from: now.minus(kept),
        changes,
        calendars: Vec::new(),
        record: tick.map(record),
        range: range.filter(|range| range.to >= at),
        backfilled,
    };
    let names = named(&facts);
    facts.calendars =
        calendars::of_tenant(&mut read, &store.unreadable, tenant, &names, DOING).await?.into_values().collect();
    Ok((facts, at))
}

/// A live job, or a deleted one that still has a row; by name, the last deleted one.
async fn find(read: &mut SqliteConnection, unreadable: &Unreadable, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
    match jobs::find(read, unreadable, tenant, job, DOING).await {
        Err(StoreError::NotFound(_)) => {}
        found => return found,
    }
    let query = match job {
        JobRef::Id(id) => sqlx::query(sql!("job_gone_by_id")).bind(tenant.raw()).bind(id.uuid()),
        JobRef::Name(name) => sqlx::query(sql!("job_gone_by_name")).bind(tenant.raw()).bind(name),
    };
    let found = query.fetch_optional(&mut *read).await.failed(DOING)?;
    let mut row = rows::job(&found.ok_or(StoreError::NotFound("job"))?).failed(DOING)?;
    calendars::give_what_there_is(read, unreadable, &mut row, DOING).await?;
    Ok(row)
}
