//! Reads for users: jobs, runs and ranges as one history, attempts, the audit trail.

use std::collections::HashMap;

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    run::State,
    time::DbTime,
};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, backlog, calendars, jobs, rows};
use crate::tx::JobRow;
use crate::{
    AttemptRecord, AuditRecord, JobFilter, JobRecord, JobRef, PAGE_BYTES_MAX, Page, Result, RunFilter, RunRecord,
    StoreError,
    failures::{self, Search},
};

pub(super) async fn get_job(store: &PostgresStore, tenant: TenantId, job: &JobRef) -> Result<JobRecord> {
    const DOING: &str = "read the job";
    let mut read = store.read(DOING).await?;
    let row = jobs::find(&mut read, tenant, job).await?;
    let mut last = last_runs(&mut read, &[row.job.id]).await?;
    let now = read.scalar(query!("setup/now")).await?;
    let max = store.limits.waiting_per_job_max;
    let backlog = backlog::work_of(&mut read, row.job.id, max).await?;
    Ok(JobRecord { backlog, ..record(row, &mut last, DbTime::from_millis(now)) })
}

pub(super) async fn list_jobs(
    store: &PostgresStore,
    tenant: TenantId,
    filter: &JobFilter,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<JobRecord, String>> {
    const DOING: &str = "list jobs";
    let mut read = store.read(DOING).await?;
    let found = sqlx::query(ended_by_bytes(sql!("reads/list_jobs"), "name", "spec"))
        .bind(tenant.raw())
        .bind(after.unwrap_or_default())
        .bind(filter.enabled)
        .bind(filter.paused)
        .bind(rows::texts(filter.target.as_ref()))
        .bind(filter.labels.iter().map(|(key, _)| rows::text(key).into_owned()).collect::<Vec<_>>())
        .bind(filter.labels.iter().map(|(_, value)| rows::texts(value.as_ref())).collect::<Vec<_>>())
        .bind(filter.q.as_ref().map(|q| rows::text(&q.to_lowercase()).into_owned()))
        .bind(rows::limit(limit.saturating_add(1)))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let (found, more) = page(found, limit).failed(DOING)?;
    // The next page starts after the last row, even if that row cannot be decoded.
    let next = match found.last() {
        Some(row) if more => Some(row.try_get("name").failed(DOING)?),
        _ => None,
    };
    let mut jobs = store.unreadable.each("jobs", &found, rows::job);
    calendars::attach_all(&mut read, &mut jobs).await?;
    let ids: Vec<_> = jobs.iter().map(|row| row.job.id).collect();
    let mut last = last_runs(&mut read, &ids).await?;
    let now = read.scalar(query!("setup/now")).await?;
    let now = DbTime::from_millis(now);
    Ok(Page { items: jobs.into_iter().map(|row| record(row, &mut last, now)).collect(), next })
}

/// A list ordered by `order` that ends when the column `text` of its rows has reached [`PAGE_BYTES_MAX`]. The server
/// knows the length of a text without reading it. `listed` counts the rows before the cut.
pub(super) fn ended_by_bytes(list: &str, order: &str, text: &str) -> AssertSqlSafe<String> {
    let list = list.trim_end().trim_end_matches(';');
    let size = format!("coalesce(octet_length(l.{text}), 0)");
    AssertSqlSafe(format!(
        "select * from (select l.*, count(*) over () as listed, sum({size}) over (order by l.{order}) - {size} as before \
           from ({list}) l) p where before < {PAGE_BYTES_MAX} order by {order}"
    ))
}

/// The rows of a page, and whether more exist. One row more than `limit` was requested.
pub(super) fn page(mut found: Vec<PgRow>, limit: usize) -> std::result::Result<(Vec<PgRow>, bool), sqlx::Error> {
    let listed = found.first().map_or(Ok(0), |row| row.try_get::<i64, _>("listed"))?;
    found.truncate(limit);
    let more = listed > rows::limit(found.len());
    Ok((found, more))
}

fn record(row: JobRow, last: &mut HashMap<JobId, RunRecord>, now: DbTime) -> JobRecord {
    JobRecord { last_run: last.remove(&row.job.id), job: row.job, cursor: row.cursor, now, backlog: None }
}

async fn last_runs(tx: &mut DbTx, jobs: &[JobId]) -> Result<HashMap<JobId, RunRecord>> {
    let asked = rows::job_ids(jobs.iter().copied());
    let found = tx.fetch_all(query!("reads/last_runs", asked)).await?;
    Ok(tx.unreadable.each("runs", &found, rows::run).into_iter().map(|run| (run.job, run)).collect())
}

pub(super) async fn get_run(store: &PostgresStore, tenant: TenantId, run: RunId) -> Result<RunRecord> {
    const DOING: &str = "read the run";
    let mut read = store.read(DOING).await?;
    run_record(&mut read, tenant, run).await
}

/// A run, also one that outlived its day's table, or the range with this id.
pub(super) async fn run_record(tx: &mut DbTx, tenant: TenantId, id: RunId) -> Result<RunRecord> {
    let by_id = |statement| sqlx::query(statement).bind(tenant.raw()).bind(id.uuid());
    for statement in [sql!("runs/get_run"), sql!("reads/get_last_run")] {
        if let Some(row) = by_id(statement).fetch_optional(&mut *tx.tx).await.failed(tx.doing)? {
            return rows::run(&row).failed_or_refused(tx.doing);
        }
    }
    match by_id(sql!("reads/get_range")).fetch_optional(&mut *tx.tx).await.failed(tx.doing)? {
        Some(row) => rows::range(&row).failed_or_refused(tx.doing),
        None => Err(StoreError::NotFound("run")),
    }
}

pub(super) async fn list_runs(
    store: &PostgresStore,
    tenant: TenantId,
    filter: &RunFilter,
    before: Option<RunId>,
    limit: usize,
) -> Result<Page<RunRecord, RunId>> {
    const DOING: &str = "list runs";
    let mut read = store.read(DOING).await?;
    let low = filter.from.map_or_else(Uuid::nil, |from| RunId::floor(from).uuid());
    let past = filter.to.map(RunId::floor);
    let high = past.into_iter().chain(before).min().map_or_else(Uuid::max, RunId::uuid);
    let search = Search::of(filter);
    let end = match search {
        Search::All | Search::Failures => None,
        Search::Scan => search_end(&mut read, filter.job, low, high, store.limits.runs_searched_max).await?,
    };
    let low = end.map_or(low, |end| low.max(end.uuid()));
    let one_more = rows::limit(limit.saturating_add(1));
    let states: Option<Vec<i16>> =
        Some(filter.states.iter().map(|state| state.code()).collect()).filter(|states: &Vec<_>| !states.is_empty());
    let job = filter.job.map(JobId::uuid);
    let mut items = Vec::new();
    if search == Search::Failures {
        let statement = if job.is_some() { sql!("reads/list_job_failed") } else { sql!("reads/list_failed") };
        let mut query = sqlx::query(statement).bind(tenant.raw()).bind(low).bind(high).bind(one_more);
        if let Some(job) = job {
            query = query.bind(job);
        }
        items.extend(store.unreadable.each("runs", &query.fetch_all(&mut *read).await.failed(DOING)?, rows::run));
    }
    // Also runs that outlived their day's table.
    let (runs, last_runs) = match job {
        Some(_) => (sql!("reads/list_job_runs"), sql!("reads/list_job_last_runs")),
        None => (sql!("reads/list_runs"), sql!("reads/list_last_runs")),
    };
    for statement in Some(runs).filter(|_| search != Search::Failures).into_iter().chain([last_runs]) {
        let mut query = sqlx::query(statement).bind(tenant.raw()).bind(low).bind(high).bind(&states).bind(one_more);
        if let Some(job) = job {
            query = query.bind(job);
        }
        items.extend(store.unreadable.each("runs", &query.fetch_all(&mut *read).await.failed(DOING)?, rows::run));
    }

    if filter.states.is_empty() || filter.states.contains(&State::Skipped) {
        let statement = if job.is_some() { sql!("reads/list_job_ranges") } else { sql!("reads/list_ranges") };
        let from = filter.from.map_or(i64::MIN, DbTime::millis);
        let mut query = sqlx::query(statement).bind(tenant.raw()).bind(from).bind(high).bind(one_more);
        if let Some(job) = job {
            query = query.bind(job);
        }
        let found = query.fetch_all(&mut *read).await.failed(DOING)?;
        items.extend(store.unreadable.each("skip_ranges", &found, rows::range));
    }
    Ok(failures::page(items, end, limit))
}

/// The lowest run of a search that reads at most `most` runs; `None` if it reads all of them.
async fn search_end(tx: &mut DbTx, job: Option<JobId>, low: Uuid, high: Uuid, most: usize) -> Result<Option<RunId>> {
    let statement = if job.is_some() { sql!("reads/search_job_end") } else { sql!("reads/search_end") };
    let mut query =
        sqlx::query_scalar::<_, Uuid>(statement).bind(low).bind(high).bind(rows::limit(most.saturating_sub(1)));
    if let Some(job) = job {
        query = query.bind(job.uuid());
    }
    Ok(query.fetch_optional(&mut *tx.tx).await.failed(tx.doing)?.map(RunId::from_uuid))
}

pub(super) async fn list_attempts(store: &PostgresStore, tenant: TenantId, id: RunId) -> Result<Vec<AttemptRecord>> {
    const DOING: &str = "list attempts";
    let mut read = store.read(DOING).await?;
    let run = run_record(&mut read, tenant, id).await?;
    let found = read.fetch_all(query!("reads/list_attempts", id.uuid())).await?;
    let mut attempts = store.unreadable.each("attempts", &found, |row| rows::attempt(id, row));
    let outcome = match run.state {
        State::Waiting | State::Skipped | State::Unknown(_) => return Ok(attempts),
        State::Claimed => None,
        State::Succeeded | State::Failed | State::Cancelled => Some(run.state.word().to_owned()),
    };
    // A run that was cancelled between two attempts has no attempt that ended it.
    if run.attempt > 0 && attempts.last().is_none_or(|last| last.attempt < run.attempt) {
        attempts.push(AttemptRecord {
            run: id,
            attempt: run.attempt,
            fence: run.fence,
            node: run.node,
            worker: run.worker.clone(),
            started_at: run.started_at,
            finished_at: run.finished_at,
            outcome,
            error: run.error,
            output: run.output,
        });
    }
    Ok(attempts)
}

pub(super) async fn list_audit(
    store: &PostgresStore,
    tenant: TenantId,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<AuditRecord, i64>> {
    const DOING: &str = "list the audit trail";
    let mut read = store.read(DOING).await?;
    let found = sqlx::query(ended_by_bytes(sql!("audit/list_audit"), "id desc", "detail"))
        .bind(tenant.raw())
        .bind(before.unwrap_or(i64::MAX))
        .bind(rows::limit(limit.saturating_add(1)))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let (found, more) = page(found, limit).failed(DOING)?;
    // Set even if the last row cannot be decoded.
    let next = found.last().filter(|_| more).map(|row| row.try_get("id")).transpose().failed(DOING)?;
    let items = store.unreadable.each("audit", &found, audit);
    Ok(Page { items, next })
}

pub(super) fn audit(row: &PgRow) -> std::result::Result<AuditRecord, sqlx::Error> {
    Ok(AuditRecord {
        id: row.try_get("id")?,
        at: rows::at(row, "at")?,
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        subject: row.try_get("subject")?,
        detail: row.try_get("detail")?,
    })
}
