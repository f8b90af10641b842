//! Reads for users: jobs and single runs. `history` has the lists of runs.

use std::collections::HashMap;

use everytick_domain::{
    ids::{JobId, RunId, TenantId, TokenId},
    run::State,
    time::DbTime,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbRow, DbStore, DbTx, Failed, calendars, history, jobs, marks, page, rows};
use crate::tx::{JobRow, Tx as _};
use crate::{ActorKind, AuditRecord, JobFilter, JobRecord, JobRef, Page, Result, RunRecord, StoreError};

pub(super) async fn get_job(store: &DbStore, tenant: TenantId, job: &JobRef) -> Result<JobRecord> {
    let mut tx = store.of(tenant).read("read the job").await?;
    let row = jobs::find(&mut tx, tenant, job).await?;
    let mut last = last_runs(&mut tx, &[row.job.id]).await?;
    let now = tx.read_clock().await?;
    let backlog = marks::work_of(&mut tx, row.job.id, store.limits.waiting_per_job_max).await?;
    let followers = tx.children_of(row.job.id).await?;
    Ok(JobRecord { backlog, followers, ..record(row, &mut last, now) })
}

pub(super) async fn list_jobs(
    store: &DbStore,
    tenant: TenantId,
    filter: &JobFilter,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<JobRecord, String>> {
    let mut tx = store.of(tenant).read("list jobs").await?;
    let list = page::list(sql!("reads/list_jobs"), "name", "spec").bind(tenant.raw()).bind(after.unwrap_or_default());
    let list = page::bind_filter(list.bind(filter.enabled).bind(filter.paused), filter);
    let list = list.bind(rows::limit(limit.saturating_add(1)));
    let (found, more) = page::fetch(&mut tx, list, limit, "spec").await?;
    // The next page starts after the last row, even if that row cannot be decoded.
    let next = found.last().filter(|_| more).map(|row| row.try_get("name")).transpose().failed(tx.doing)?;
    let mut jobs = tx.unreadable.each("jobs", &found, rows::job);
    calendars::attach_all(&mut tx, &mut jobs).await?;
    let ids: Vec<_> = jobs.iter().map(|row| row.job.id).collect();
    let mut last = last_runs(&mut tx, &ids).await?;
    let now = tx.read_clock().await?;
    Ok(Page { items: jobs.into_iter().map(|row| record(row, &mut last, now)).collect(), next })
}

fn record(row: JobRow, last: &mut HashMap<JobId, RunRecord>, now: DbTime) -> JobRecord {
    JobRecord {
        last_run: last.remove(&row.job.id),
        job: row.job,
        cursor: row.cursor,
        now,
        backlog: None,
        followers: Vec::new(),
    }
}

async fn last_runs(tx: &mut DbTx, jobs: &[JobId]) -> Result<HashMap<JobId, RunRecord>> {
    let found = tx.fetch_all(query!("reads/last_runs", rows::job_ids(jobs.iter().copied()))).await?;
    Ok(tx.unreadable.each("runs", &found, rows::run).into_iter().map(|run| (run.job, run)).collect())
}

pub(super) async fn get_run(store: &DbStore, tenant: TenantId, run: RunId) -> Result<RunRecord> {
    run_record(&mut store.of(tenant).read("read the run").await?, tenant, run).await
}

/// A run, also one that outlived its day's table, or the range with this id.
pub(super) async fn run_record(tx: &mut DbTx, tenant: TenantId, id: RunId) -> Result<RunRecord> {
    let by_id = |statement| sqlx::query(statement).bind(tenant.raw()).bind(id.uuid());
    for statement in [Some(sql!("runs/get_run")), page::outlived_run()].into_iter().flatten() {
        if let Some(row) = tx.fetch_optional(by_id(statement)).await? {
            let mut run = rows::run(&row).failed(tx.doing)?;
            history::add_cancelled_by(tx, tenant, std::slice::from_mut(&mut run)).await?;
            // A superseded run has the reason as its error.
            if run.state == State::Cancelled && run.cancelled_by.is_none() && run.error.is_none() {
                run.cancelled_by = marks::cancelled_by(tx, tenant, run.job, run.finished_at).await?;
            }
            return Ok(run);
        }
    }
    let range = tx.fetch_optional(by_id(sql!("reads/get_range"))).await?;
    rows::range(&range.ok_or(StoreError::NotFound("run"))?).failed(tx.doing)
}

pub(super) fn audit(row: &DbRow) -> rows::Decoded<AuditRecord> {
    let kind: Option<String> = row.try_get("actor_kind")?;
    Ok(AuditRecord {
        id: row.try_get("id")?,
        at: rows::at(row, "at")?,
        actor: row.try_get("actor")?,
        actor_kind: kind.unwrap_or_else(|| ActorKind::Local.word().to_owned()),
        token: row.try_get::<Option<Uuid>, _>("token_id")?.map(TokenId::from_uuid),
        ip: row.try_get("ip")?,
        request: row.try_get("request_id")?,
        action: row.try_get("action")?,
        subject: row.try_get("subject")?,
        result: row.try_get("result")?,
        detail: row.try_get("detail")?,
    })
}
