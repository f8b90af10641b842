//! The history for users: lists of runs by filter, attempts, the audit trail, and who cancelled a run.

use std::collections::HashMap;

use everytick_domain::{
    ids::{BackfillId, IdPrefix, JobId, RunId, TenantId},
    run::State,
    time::{DbTime, Span},
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{
    DbRow, DbStore, DbTx, Failed,
    db_tx::Query,
    page,
    read::{self, run_record},
    rows,
};
use crate::{
    AttemptRecord, AuditFilter, AuditRecord, Page, Result, RunFilter, RunRecord,
    failures::{self, Search},
    flows::FlowRow,
    tx::flow::ROOTS_SEARCHED_MAX,
};

/// Audit rows are numbered in the order of their transactions' first statements, and their times are read later. So a row with a
/// higher number may have an earlier time, but only by as long as a transaction lasts.
const AUDIT_TIMES_OUT_OF_ORDER_MAX: Span = Span::minutes(1);

pub(super) async fn list_runs(
    store: &DbStore,
    tenant: TenantId,
    filter: &RunFilter,
    before: Option<RunId>,
    limit: usize,
) -> Result<Page<RunRecord, RunId>> {
    let mut tx = store.read("list runs").await?;
    let (low, high) = filter.bounds(before);
    let list = List { tenant, filter, high: high.map_or(Uuid::max(), RunId::uuid), limit };
    let search = Search::of(filter);
    let end = list.search_end(&mut tx, search, low.uuid()).await?;
    let low = end.unwrap_or(low).max(low).uuid();
    let mut found = tx.fetch_all(if search.is_of_failures() { list.failed(low) } else { list.runs(low) }).await?;
    if let Some(statement) = page::outlived_runs(filter.job.is_some()) {
        found.extend(tx.fetch_all(list.runs_of(statement, low)).await?);
    }
    let mut items = tx.unreadable.each("runs", &found, rows::run);
    if filter.allows_ranges() {
        let found = tx.fetch_all(list.ranges()).await?;
        items.extend(tx.unreadable.each("skip_ranges", &found, rows::range));
        items.retain(|run| filter.ids.is_none_or(|ids| ids.contains(run.id.uuid())));
    }
    let mut page = failures::page(items, end, limit);
    add_cancelled_by(&mut tx, tenant, &mut page.items).await?;
    Ok(page)
}

/// The end of a search as the position of the next page. A search reads the ids of all tenants, and a position is shown to the
/// caller, so it is rounded down: it then names no run of another tenant.
fn position(end: Uuid) -> RunId {
    RunId::from_uuid(Uuid::from_u64_pair(end.as_u64_pair().0, 0))
}

/// The parameters of a list of runs.
struct List<'a> {
    tenant: TenantId,
    filter: &'a RunFilter,
    high: Uuid,
    limit: usize,
}

impl<'a> List<'a> {
    /// The lowest run of a search that reads a limited number of rows; `None` if it reads all of them.
    async fn search_end(&self, tx: &mut DbTx, search: Search, low: Uuid) -> Result<Option<RunId>> {
        let (tenant, high, most) = (self.tenant.raw(), self.high, tx.limits.runs_searched_max.saturating_sub(1));
        let most = rows::limit(most);
        let query = match (search, self.filter.job.map(JobId::uuid)) {
            (Search::All | Search::Failures, _) => return Ok(None),
            (Search::Scan, None) => query!("reads/search_end", low, high, most),
            (Search::Scan, Some(job)) => query!("reads/search_job_end", low, high, most, job),
            (Search::FailuresScan, None) => query!("reads/search_failed_end", tenant, low, high, most),
            (Search::FailuresScan, Some(job)) => query!("reads/search_job_failed_end", tenant, low, high, most, job),
        };
        Ok(tx.optional_scalar::<Uuid>(query).await?.map(position))
    }

    fn runs(&self, low: Uuid) -> Query<'a> {
        self.runs_of(
            match self.filter.job {
                Some(_) => sql!("reads/list_job_runs"),
                None => sql!("reads/list_runs"),
            },
            low,
        )
    }

    fn runs_of(&self, statement: &'static str, low: Uuid) -> Query<'a> {
        let states = codes(self.filter.states.iter().map(|state| state.code()));
        let query = sqlx::query(statement).bind(self.tenant.raw()).bind(low).bind(self.high);
        self.filtered(query.bind(states).bind(self.one_more()))
    }

    fn failed(&self, low: Uuid) -> Query<'a> {
        let statement = match self.filter.job {
            Some(_) => sql!("reads/list_job_failed"),
            None => sql!("reads/list_failed"),
        };
        let query = sqlx::query(statement).bind(self.tenant.raw()).bind(low).bind(self.high);
        self.filtered(query.bind(self.one_more()))
    }

    fn filtered(&self, query: Query<'a>) -> Query<'a> {
        let causes = codes(self.filter.causes.iter().map(|cause| cause.code()));
        let flow = self.filter.flow.map(RunId::uuid);
        self.of_job(query.bind(causes).bind(flow).bind(labels(self.filter)))
    }

    fn ranges(&self) -> Query<'a> {
        let statement = match self.filter.job {
            Some(_) => sql!("reads/list_job_ranges"),
            None => sql!("reads/list_ranges"),
        };
        let begins = self.filter.ids.map(|ids| RunId::from_uuid(ids.low()).time());
        let from = self.filter.from.into_iter().chain(begins).max().map_or(i64::MIN, DbTime::millis);
        let query = sqlx::query(statement).bind(self.tenant.raw()).bind(from).bind(self.high).bind(self.one_more());
        self.of_job(query.bind(labels(self.filter)))
    }

    fn of_job(&self, query: Query<'a>) -> Query<'a> {
        match self.filter.job {
            Some(job) => query.bind(job.uuid()),
            None => query,
        }
    }

    fn one_more(&self) -> i64 {
        rows::limit(self.limit.saturating_add(1))
    }
}

/// The codes of a filter; `None` if it is not set.
fn codes(codes: impl Iterator<Item = i16>) -> Option<rows::Codes> {
    Some(codes.collect::<Vec<_>>()).filter(|codes| !codes.is_empty()).map(rows::codes)
}

/// The labels of a filter as a JSON array of [key, value]. NUL becomes U+FFFD, as in stored text.
fn labels(filter: &RunFilter) -> Option<String> {
    let text = |text: &str| text.replace('\0', "\u{fffd}");
    let pair = |(key, value): &(String, Option<String>)| serde_json::json!([text(key), value.as_deref().map(text)]);
    let pairs: Vec<_> = filter.labels.iter().map(pair).collect();
    (!pairs.is_empty()).then(|| serde_json::Value::Array(pairs).to_string())
}

/// Adds the authors of cancellations to cancelled runs.
pub(super) async fn add_cancelled_by(tx: &mut DbTx, tenant: TenantId, runs: &mut [RunRecord]) -> Result<()> {
    let cancelled: Vec<String> =
        runs.iter().filter(|run| run.state == State::Cancelled).map(|run| run.id.to_string()).collect();
    if cancelled.is_empty() {
        return Ok(());
    }
    let query = query!("audit/cancelled_by", tenant.raw(), rows::strings(cancelled));
    let found: Vec<(String, String)> = tx.fetch_all_as(query).await?;
    let found: HashMap<String, String> = found.into_iter().collect();
    for run in runs {
        run.cancelled_by = found.get(&run.id.to_string()).cloned();
    }
    Ok(())
}

pub(super) async fn list_attempts(store: &DbStore, tenant: TenantId, id: RunId) -> Result<Vec<AttemptRecord>> {
    let mut tx = store.read("list attempts").await?;
    let run = run_record(&mut tx, tenant, id).await?;
    let found = tx.fetch_all(query!("reads/list_attempts", id.uuid())).await?;
    let attempts = tx.unreadable.each("attempts", &found, |row| rows::attempt(id, row));
    Ok(AttemptRecord::all_of(run, attempts))
}

pub(super) async fn list_audit(
    store: &DbStore,
    tenant: TenantId,
    filter: &AuditFilter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<AuditRecord, i64>> {
    let mut tx = store.read("list the audit trail").await?;
    let slack = AUDIT_TIMES_OUT_OF_ORDER_MAX;
    let low = match filter.from {
        Some(from) => first_audit_at(&mut tx, from.minus(slack)).await?,
        None => 0,
    };
    let high = match filter.to {
        Some(to) => first_audit_at(&mut tx, to.plus(slack)).await?,
        None => i64::MAX,
    };
    let high = before.map_or(high, |before| before.min(high));
    let searched = filter.actor.is_some() || filter.action.is_some() || filter.result.is_some();
    let subjects: Vec<Option<&String>> =
        if filter.subjects.is_empty() { vec![None] } else { filter.subjects.iter().map(Some).collect() };
    let mut end = None;
    for subject in subjects.iter().filter(|_| searched) {
        end = end.max(audit_search_end(&mut tx, tenant, *subject, low, high).await?);
    }
    let low = end.unwrap_or(low).max(low);
    let (mut items, mut next) = (Vec::new(), end);
    for subject in subjects {
        let (found, more) = audit_rows(&mut tx, tenant, filter, subject, (low, high), limit).await?;
        next = next.max(more);
        items.extend(tx.unreadable.each("audit", &found, read::audit));
    }
    items.sort_unstable_by_key(|row| std::cmp::Reverse(row.id));
    // Below `next`, rows of a subject may be missing.
    items.retain(|row| next.is_none_or(|next| row.id >= next));
    let page = Page::cut(items, limit, |row| row.id);
    Ok(Page { next: page.next.or(next), ..page })
}

/// The newest audit rows with numbers in the range, at most `limit`. The second value is the last number, if there are more.
async fn audit_rows(
    tx: &mut DbTx,
    tenant: TenantId,
    filter: &AuditFilter,
    subject: Option<&String>,
    (low, high): (i64, i64),
    limit: usize,
) -> Result<(Vec<DbRow>, Option<i64>)> {
    let text = |text: &String| text.replace('\0', "\u{fffd}");
    let statement = if subject.is_some() { sql!("audit/list_audit_of") } else { sql!("audit/list_audit") };
    let list = page::list(statement, "id desc", "detail")
        .bind(tenant.raw())
        .bind(low)
        .bind(high)
        .bind(rows::limit(limit.saturating_add(1)))
        .bind(filter.actor.as_ref().map(text))
        .bind(filter.action.as_ref().map(text))
        .bind(filter.from.map_or(i64::MIN, DbTime::millis))
        .bind(filter.to.map_or(i64::MAX, DbTime::millis))
        .bind(filter.result.as_ref().map(text));
    let list = match subject {
        Some(subject) => list.bind(text(subject)),
        None => list,
    };
    let (found, more) = page::fetch(tx, list, limit, "detail").await?;
    // The position of the next page, even if the last row cannot be decoded.
    let next = found.last().filter(|_| more).map(|row| row.try_get("id")).transpose().failed(tx.doing)?;
    Ok((found, next))
}

/// The lowest row of a search that reads a limited number of rows; `None` if it reads all of them.
async fn audit_search_end(
    tx: &mut DbTx,
    tenant: TenantId,
    subject: Option<&String>,
    low: i64,
    high: i64,
) -> Result<Option<i64>> {
    let most = rows::limit(tx.limits.runs_searched_max.saturating_sub(1));
    let query = match subject {
        None => query!("audit/search_end", tenant.raw(), low, high, most),
        Some(subject) => {
            query!("audit/search_end_of", tenant.raw(), low, high, most, subject.replace('\0', "\u{fffd}"))
        }
    };
    tx.optional_scalar(query).await
}

/// The lowest number of the audit rows from this instant on, or the number after the last row. Numbers increase with time, so a
/// binary search needs no index on the time.
async fn first_audit_at(tx: &mut DbTx, from: DbTime) -> Result<i64> {
    let last: Option<i64> = tx.optional_scalar(query!("audit/last")).await?;
    let (mut low, mut high) = (0, last.map_or(0, |last| last + 1));
    while low < high {
        let middle = low + (high - low) / 2;
        match tx.fetch_optional_as::<(i64, i64)>(query!("audit/at", middle)).await? {
            Some((id, at)) if at < from.millis() => low = id + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

pub(super) async fn find_jobs(
    store: &DbStore,
    tenant: TenantId,
    ids: IdPrefix,
    limit: usize,
) -> Result<Vec<(JobId, String)>> {
    let query = query!("jobs/jobs_by_prefix", tenant.raw(), ids.low(), ids.high(), rows::limit(limit));
    let found: Vec<(Uuid, String)> = store.read("find jobs by id").await?.fetch_all_as(query).await?;
    Ok(found.into_iter().map(|(id, name)| (JobId::from_uuid(id), name)).collect())
}

pub(super) async fn find_backfills(
    store: &DbStore,
    tenant: TenantId,
    ids: IdPrefix,
    limit: usize,
) -> Result<Vec<(BackfillId, String)>> {
    let query = query!("backfills/backfills_by_prefix", tenant.raw(), ids.low(), ids.high(), rows::limit(limit));
    let found: Vec<(Uuid, String)> = store.read("find backfills by id").await?.fetch_all_as(query).await?;
    Ok(found.into_iter().map(|(id, job)| (BackfillId::from_uuid(id), job)).collect())
}

/// See `FlowTx::flow_rows`.
pub(super) async fn flow_rows(
    tx: &mut DbTx,
    tenant: TenantId,
    low: RunId,
    high: Option<RunId>,
    limit: usize,
) -> Result<(Vec<FlowRow>, Option<RunId>)> {
    let (low, high) = (low.uuid(), high.map_or(Uuid::max(), RunId::uuid));
    let most = rows::limit(tx.limits.runs_searched_max.saturating_sub(1));
    let end: Option<Uuid> = tx.optional_scalar(query!("flows/flow_search_end", low, high, most)).await?;
    let end = end.map(|end| position(end).uuid().max(low));
    let list = page::list(sql!("flows/flow_list"), "id desc", "graph").bind(tenant.raw());
    let list = list.bind(end.unwrap_or(low)).bind(high).bind(rows::limit(limit.saturating_add(1)));
    let (found, more) = page::fetch(tx, list, limit, "graph").await?;
    // The position of the next page, even if the last row cannot be decoded.
    let last = found.last().filter(|_| more).map(|row| rows::run_id(row, "id")).transpose().failed(tx.doing)?;
    Ok((tx.unreadable.each("flows", &found, rows::flow), last.or(end.map(RunId::from_uuid))))
}

/// See `FlowTx::open_roots`.
pub(super) async fn open_roots(
    tx: &mut DbTx,
    tenant: TenantId,
    low: RunId,
    high: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunId>> {
    let (low, high) = (low.uuid(), high.map_or(Uuid::max(), RunId::uuid));
    let (limit, most) = (rows::limit(limit), rows::limit(ROOTS_SEARCHED_MAX));
    let query = query!("flows/flow_open_roots", tenant.raw(), low, high, limit, most);
    tx.run_ids(query).await
}
