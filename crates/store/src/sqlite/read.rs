//! Reads for users: jobs, runs and ranges as one history, attempts, the audit trail.

use std::collections::HashMap;

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    run::State,
    time::DbTime,
};
use futures::{Stream, TryStreamExt as _};
use sqlx::{Row as _, sqlite::SqliteRow};
use uuid::Uuid;

use super::{DbTx, Failed, SqliteStore, calendars, jobs, rows};
use crate::tx::JobRow;
use crate::{
    AttemptRecord, AuditRecord, JobFilter, JobRecord, JobRef, PAGE_BYTES_MAX, Page, Result, RunFilter, RunRecord,
    StoreError,
    failures::{self, Search},
};

pub(super) async fn get_job(store: &SqliteStore, tenant: TenantId, job: &JobRef) -> Result<JobRecord> {
    const DOING: &str = "read the job";
    let mut read = store.read(DOING).await?;
    let row = jobs::find(&mut read, tenant, job).await?;
    let mut last = last_runs(&mut read, &[row.job.id]).await?;
    Ok(record(row, &mut last, store.clock.now()))
}

pub(super) async fn list_jobs(
    store: &SqliteStore,
    tenant: TenantId,
    filter: &JobFilter,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<JobRecord, String>> {
    const DOING: &str = "list jobs";
    let mut read = store.read(DOING).await?;
    let labels = rows::json(&filter.labels);
    let list = query!(
        "reads/list_jobs",
        tenant.raw(),
        after.unwrap_or_default(),
        filter.enabled,
        filter.paused,
        &filter.target,
        labels
    )
    // SQLite lowercases only ASCII letters, so other letters must match exactly.
    .bind(filter.q.as_ref().map(|q| q.to_ascii_lowercase()))
    .bind(rows::limit(limit.saturating_add(1)));
    let (found, more) = page(list.fetch(&mut *read), limit, "spec").await.failed(DOING)?;
    // The next page starts after the last row, even if that row cannot be decoded.
    let next = match found.last() {
        Some(row) if more => Some(row.try_get("name").failed(DOING)?),
        _ => None,
    };
    let mut jobs = store.unreadable.each("jobs", &found, rows::job);
    calendars::attach_all(&mut read, &mut jobs).await?;
    let ids: Vec<_> = jobs.iter().map(|row| row.job.id).collect();
    let mut last = last_runs(&mut read, &ids).await?;
    let now = store.clock.now();
    Ok(Page { items: jobs.into_iter().map(|row| record(row, &mut last, now)).collect(), next })
}

/// The rows of a page, and whether more exist. The page ends with `limit` rows, or when the column `text` of its rows
/// has reached [`PAGE_BYTES_MAX`]; further rows are not read.
pub(super) async fn page(
    mut list: impl Stream<Item = std::result::Result<SqliteRow, sqlx::Error>> + Unpin,
    limit: usize,
    text: &str,
) -> std::result::Result<(Vec<SqliteRow>, bool), sqlx::Error> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = list.try_next().await? {
        if found.len() >= limit || bytes >= PAGE_BYTES_MAX {
            return Ok((found, true));
        }
        bytes += row.try_get::<Option<&str>, _>(text)?.map_or(0, str::len);
        found.push(row);
    }
    Ok((found, false))
}

fn record(row: JobRow, last: &mut HashMap<JobId, RunRecord>, now: DbTime) -> JobRecord {
    JobRecord { last_run: last.remove(&row.job.id), job: row.job, cursor: row.cursor, now, backlog: None }
}

async fn last_runs(tx: &mut DbTx, jobs: &[JobId]) -> Result<HashMap<JobId, RunRecord>> {
    let asked = rows::job_ids(jobs.iter().copied());
    let found = tx.fetch_all(query!("reads/last_runs", asked)).await?;
    Ok(tx.unreadable.each("runs", &found, rows::run).into_iter().map(|run| (run.job, run)).collect())
}

pub(super) async fn get_run(store: &SqliteStore, tenant: TenantId, run: RunId) -> Result<RunRecord> {
    const DOING: &str = "read the run";
    let mut read = store.read(DOING).await?;
    run_record(&mut read, tenant, run).await
}

/// A run, or the range with this id.
pub(super) async fn run_record(tx: &mut DbTx, tenant: TenantId, id: RunId) -> Result<RunRecord> {
    let by_id = |statement| sqlx::query(statement).bind(tenant.raw()).bind(id.uuid());
    if let Some(row) = by_id(sql!("runs/get_run")).fetch_optional(&mut *tx.tx).await.failed(tx.doing)? {
        return rows::run(&row).failed(tx.doing);
    }
    match by_id(sql!("reads/get_range")).fetch_optional(&mut *tx.tx).await.failed(tx.doing)? {
        Some(row) => rows::range(&row).failed(tx.doing),
        None => Err(StoreError::NotFound("run")),
    }
}

pub(super) async fn list_runs(
    store: &SqliteStore,
    tenant: TenantId,
    filter: &RunFilter,
    before: Option<RunId>,
    limit: usize,
) -> Result<Page<RunRecord, RunId>> {
    const DOING: &str = "list runs";
    let mut read = store.read(DOING).await?;
    let low = filter.from.map_or_else(Vec::new, |from| id_bytes(RunId::floor(from)));
    let past = filter.to.map(RunId::floor);
    // One byte longer than an id, so it sorts after all ids.
    let high = past.into_iter().chain(before).min().map_or_else(|| vec![0xff; 17], id_bytes);
    let one_more = rows::limit(limit.saturating_add(1));
    let states = match filter.states.as_slice() {
        [] => None,
        states => Some(rows::json(&states.iter().map(|state| state.code()).collect::<Vec<_>>())),
    };
    let search = Search::of(filter);
    let end = match search {
        Search::All | Search::Failures => None,
        Search::Scan => search_end(&mut read, filter.job, &low, &high, store.limits.runs_searched_max).await?,
    };
    let low = end.map_or(low, id_bytes);
    let job = filter.job.map(JobId::uuid);
    let mut query = match search {
        Search::Failures => {
            let statement = if job.is_some() { sql!("reads/list_job_failed") } else { sql!("reads/list_failed") };
            sqlx::query(statement).bind(tenant.raw()).bind(low).bind(&high).bind(one_more)
        }
        Search::All | Search::Scan => {
            let statement = if job.is_some() { sql!("reads/list_job_runs") } else { sql!("reads/list_runs") };
            sqlx::query(statement).bind(tenant.raw()).bind(low).bind(&high).bind(states).bind(one_more)
        }
    };
    if let Some(job) = job {
        query = query.bind(job);
    }
    let mut items = store.unreadable.each("runs", &query.fetch_all(&mut *read).await.failed(DOING)?, rows::run);

    if filter.states.is_empty() || filter.states.contains(&State::Skipped) {
        let statement = if job.is_some() { sql!("reads/list_job_ranges") } else { sql!("reads/list_ranges") };
        let from = filter.from.map_or(i64::MIN, DbTime::millis);
        let mut query = sqlx::query(statement).bind(tenant.raw()).bind(from).bind(&high).bind(one_more);
        if let Some(job) = job {
            query = query.bind(job);
        }
        items.extend(store.unreadable.each(
            "skip_ranges",
            &query.fetch_all(&mut *read).await.failed(DOING)?,
            rows::range,
        ));
    }
    Ok(failures::page(items, end, limit))
}

/// The lowest run of a search that reads at most `most` runs; `None` if it reads all of them.
async fn search_end(tx: &mut DbTx, job: Option<JobId>, low: &[u8], high: &[u8], most: usize) -> Result<Option<RunId>> {
    let statement = if job.is_some() { sql!("reads/search_job_end") } else { sql!("reads/search_end") };
    let mut query =
        sqlx::query_scalar::<_, Uuid>(statement).bind(low).bind(high).bind(rows::limit(most.saturating_sub(1)));
    if let Some(job) = job {
        query = query.bind(job.uuid());
    }
    Ok(query.fetch_optional(&mut *tx.tx).await.failed(tx.doing)?.map(RunId::from_uuid))
}

pub(super) async fn list_attempts(store: &SqliteStore, tenant: TenantId, id: RunId) -> Result<Vec<AttemptRecord>> {
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
    store: &SqliteStore,
    tenant: TenantId,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<AuditRecord, i64>> {
    const DOING: &str = "list the audit trail";
    let mut read = store.read(DOING).await?;
    let list =
        query!("audit/list_audit", tenant.raw(), before.unwrap_or(i64::MAX), rows::limit(limit.saturating_add(1)));
    let (found, more) = page(list.fetch(&mut *read), limit, "detail").await.failed(DOING)?;
    // Set even if the last row cannot be decoded.
    let next = found.last().filter(|_| more).map(|row| row.try_get("id")).transpose().failed(DOING)?;
    let items = store.unreadable.each("audit", &found, audit);
    Ok(Page { items, next })
}

pub(super) fn audit(row: &SqliteRow) -> std::result::Result<AuditRecord, sqlx::Error> {
    Ok(AuditRecord {
        id: row.try_get("id")?,
        at: rows::at(row, "at")?,
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        subject: row.try_get("subject")?,
        detail: row.try_get("detail")?,
    })
}

fn id_bytes(id: RunId) -> Vec<u8> {
    id.uuid().into_bytes().to_vec()
}
