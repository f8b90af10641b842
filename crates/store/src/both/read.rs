//! Reads for users: jobs, runs and ranges as one history, attempts, the audit trail.

use std::collections::HashMap;

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    run::State,
    time::DbTime,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbRow, DbStore, DbTx, Failed, backlog, calendars, db_tx::Query, jobs, page, rows};
use crate::tx::{JobRow, Tx as _};
use crate::{
    AttemptRecord, AuditRecord, JobFilter, JobRecord, JobRef, Page, Result, RunFilter, RunRecord, StoreError,
    failures::{self, Search},
};

pub(super) async fn get_job(store: &DbStore, tenant: TenantId, job: &JobRef) -> Result<JobRecord> {
    let mut tx = store.read("read the job").await?;
    let row = jobs::find(&mut tx, tenant, job).await?;
    let mut last = last_runs(&mut tx, &[row.job.id]).await?;
    let now = tx.read_clock().await?;
    let backlog = backlog::work_of(&mut tx, row.job.id, store.limits.waiting_per_job_max).await?;
    Ok(JobRecord { backlog, ..record(row, &mut last, now) })
}

pub(super) async fn list_jobs(
    store: &DbStore,
    tenant: TenantId,
    filter: &JobFilter,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<JobRecord, String>> {
    let mut tx = store.read("list jobs").await?;
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
    JobRecord { last_run: last.remove(&row.job.id), job: row.job, cursor: row.cursor, now, backlog: None }
}

async fn last_runs(tx: &mut DbTx, jobs: &[JobId]) -> Result<HashMap<JobId, RunRecord>> {
    let found = tx.fetch_all(query!("reads/last_runs", rows::job_ids(jobs.iter().copied()))).await?;
    Ok(tx.unreadable.each("runs", &found, rows::run).into_iter().map(|run| (run.job, run)).collect())
}

pub(super) async fn get_run(store: &DbStore, tenant: TenantId, run: RunId) -> Result<RunRecord> {
    run_record(&mut store.read("read the run").await?, tenant, run).await
}

/// A run, also one that outlived its day's table, or the range with this id.
pub(super) async fn run_record(tx: &mut DbTx, tenant: TenantId, id: RunId) -> Result<RunRecord> {
    let by_id = |statement| sqlx::query(statement).bind(tenant.raw()).bind(id.uuid());
    for statement in [Some(sql!("runs/get_run")), page::outlived_run()].into_iter().flatten() {
        if let Some(row) = tx.fetch_optional(by_id(statement)).await? {
            return rows::run(&row).failed(tx.doing);
        }
    }
    let range = tx.fetch_optional(by_id(sql!("reads/get_range"))).await?;
    rows::range(&range.ok_or(StoreError::NotFound("run"))?).failed(tx.doing)
}

/// The runs that a list covers: ids from `low` to before `high`, of one job or of all.
struct Covered {
    tenant: TenantId,
    job: Option<JobId>,
    low: Uuid,
    high: Uuid,
}

impl Covered {
    /// Binds the job as the last parameter, if the list is of one job.
    fn bind_job<'q>(&self, query: Query<'q>) -> Query<'q> {
        match self.job {
            Some(job) => query.bind(job.uuid()),
            None => query,
        }
    }

    /// A statement about one job, or its counterpart about all jobs.
    const fn choose(&self, of_job: &'static str, of_all: &'static str) -> &'static str {
        if self.job.is_some() { of_job } else { of_all }
    }
}

pub(super) async fn list_runs(
    store: &DbStore,
    tenant: TenantId,
    filter: &RunFilter,
    before: Option<RunId>,
    limit: usize,
) -> Result<Page<RunRecord, RunId>> {
    let mut tx = store.read("list runs").await?;
    let mut covered = Covered {
        tenant,
        job: filter.job,
        low: filter.from.map_or_else(Uuid::nil, |from| RunId::floor(from).uuid()),
        high: filter.to.map(RunId::floor).into_iter().chain(before).min().map_or_else(Uuid::max, RunId::uuid),
    };
    let search = Search::of(filter);
    let end = match search {
        Search::All | Search::Failures => None,
        Search::Scan => search_end(&mut tx, &covered, store.limits.runs_searched_max).await?,
    };
    covered.low = end.map_or(covered.low, |end| covered.low.max(end.uuid()));
    let one_more = rows::limit(limit.saturating_add(1));
    let mut items = match search {
        Search::Failures => failed_runs(&mut tx, &covered, one_more).await?,
        Search::All | Search::Scan => {
            let statement = covered.choose(sql!("reads/list_job_runs"), sql!("reads/list_runs"));
            runs_in(&mut tx, statement, &covered, filter, one_more).await?
        }
    };
    if let Some(statement) = page::outlived_runs(covered.job.is_some()) {
        items.extend(runs_in(&mut tx, statement, &covered, filter, one_more).await?);
    }
    if filter.states.is_empty() || filter.states.contains(&State::Skipped) {
        let from = filter.from.map_or(i64::MIN, DbTime::millis);
        items.extend(ranges(&mut tx, &covered, from, one_more).await?);
    }
    Ok(failures::page(items, end, limit))
}

async fn runs_in(
    tx: &mut DbTx,
    statement: &'static str,
    covered: &Covered,
    filter: &RunFilter,
    limit: i64,
) -> Result<Vec<RunRecord>> {
    let states: Vec<i16> = filter.states.iter().map(|state| state.code()).collect();
    let states = Some(states).filter(|states| !states.is_empty()).map(rows::codes);
    let list = sqlx::query(statement).bind(covered.tenant.raw()).bind(covered.low).bind(covered.high);
    let found = tx.fetch_all(covered.bind_job(list.bind(states).bind(limit))).await?;
    Ok(tx.unreadable.each("runs", &found, rows::run))
}

async fn failed_runs(tx: &mut DbTx, covered: &Covered, limit: i64) -> Result<Vec<RunRecord>> {
    let list = sqlx::query(covered.choose(sql!("reads/list_job_failed"), sql!("reads/list_failed")));
    let list = list.bind(covered.tenant.raw()).bind(covered.low).bind(covered.high).bind(limit);
    let found = tx.fetch_all(covered.bind_job(list)).await?;
    Ok(tx.unreadable.each("runs", &found, rows::run))
}

async fn ranges(tx: &mut DbTx, covered: &Covered, from: i64, limit: i64) -> Result<Vec<RunRecord>> {
    let list = sqlx::query(covered.choose(sql!("reads/list_job_ranges"), sql!("reads/list_ranges")));
    let list = list.bind(covered.tenant.raw()).bind(from).bind(covered.high).bind(limit);
    let found = tx.fetch_all(covered.bind_job(list)).await?;
    Ok(tx.unreadable.each("skip_ranges", &found, rows::range))
}

/// The lowest run of a search that reads at most `most` runs; `None` if it reads all of them.
async fn search_end(tx: &mut DbTx, covered: &Covered, most: usize) -> Result<Option<RunId>> {
    let end = sqlx::query(covered.choose(sql!("reads/search_job_end"), sql!("reads/search_end")));
    let end = end.bind(covered.low).bind(covered.high).bind(rows::limit(most.saturating_sub(1)));
    Ok(tx.optional_scalar(covered.bind_job(end)).await?.map(RunId::from_uuid))
}

pub(super) async fn list_attempts(store: &DbStore, tenant: TenantId, id: RunId) -> Result<Vec<AttemptRecord>> {
    let mut tx = store.read("list attempts").await?;
    let run = run_record(&mut tx, tenant, id).await?;
    let found = tx.fetch_all(query!("reads/list_attempts", id.uuid())).await?;
    let mut attempts = tx.unreadable.each("attempts", &found, |row| rows::attempt(id, row));
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
    store: &DbStore,
    tenant: TenantId,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<AuditRecord, i64>> {
    let mut tx = store.read("list the audit trail").await?;
    let list = page::list(sql!("audit/list_audit"), "id desc", "detail").bind(tenant.raw());
    let list = list.bind(before.unwrap_or(i64::MAX)).bind(rows::limit(limit.saturating_add(1)));
    let (found, more) = page::fetch(&mut tx, list, limit, "detail").await?;
    // Set even if the last row cannot be decoded.
    let next = found.last().filter(|_| more).map(|row| row.try_get("id")).transpose().failed(tx.doing)?;
    Ok(Page { items: tx.unreadable.each("audit", &found, audit), next })
}

pub(super) fn audit(row: &DbRow) -> rows::Decoded<AuditRecord> {
    Ok(AuditRecord {
        id: row.try_get("id")?,
        at: rows::at(row, "at")?,
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        subject: row.try_get("subject")?,
        detail: row.try_get("detail")?,
    })
}
