//! Reads the facts about one instant of a job, which may be deleted, in one snapshot.

use std::sync::Arc;

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    explain::{Backfilled, Facts, expected},
    ids::{Cause, JobId, RunId, TenantId},
    plan::SkipRange,
    time::{DbTime, Span},
};

use super::{JobRow, Tx};
use crate::{
    AuditRecord, JobRef, Result, StoreError,
    facts::{changes, named, record},
};

/// The verbs of explanations.
#[async_trait]
pub trait ExplainTx: Tx {
    /// A deleted job that still has a row; by name, the last deleted one.
    async fn find_deleted_job(&mut self, tenant: TenantId, job: &JobRef) -> Result<JobRow>;
    /// The last skip range of a job that begins at or before this instant.
    async fn range_before(&mut self, tenant: TenantId, job: JobId, at: DbTime) -> Result<Option<SkipRange>>;
    /// The ids that the newest backfills over this instant give to their runs.
    async fn backfilled_at(&mut self, job: JobId, at: DbTime) -> Result<Vec<RunId>>;
    /// Those of the named calendars that exist.
    async fn calendars_named(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>>;
    /// The newest audit rows of a job.
    async fn job_audit(&mut self, tenant: TenantId, job: JobId) -> Result<Vec<AuditRecord>>;
}

pub async fn load_facts<T: ExplainTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    job: &JobRef,
    at: Option<DbTime>,
    kept: Span,
) -> Result<(Facts, DbTime)> {
    let row = match tx.find_job(tenant, job).await {
        Err(StoreError::NotFound(_)) => tx.find_deleted_job(tenant, job).await?,
        found => found?,
    };
    let now = tx.read_clock().await?;
    let at = at.unwrap_or_else(|| expected(&row.job, now));
    let id = row.job.id;
    let tick = match tx.get_run(tenant, RunId::of(id, Cause::Tick(at))).await {
        Err(StoreError::NotFound(_)) => None,
        found => Some(found?),
    };
    let range = tx.range_before(tenant, id, at).await?;
    let backfilled = tx.backfilled_at(id, at).await?;
    let backfilled = tx.run_states(&backfilled).await?;
    let mut facts = Facts {
        job: row.job,
        cursor: row.cursor,
        now,
        kept_from: now.minus(kept),
        changes: changes(tx.job_audit(tenant, id).await?),
        calendars: Vec::new(),
        record: tick.map(record),
        range: range.filter(|range| range.to >= at),
        backfilled: backfilled.into_iter().map(|(run, state)| Backfilled { run, state }).collect(),
    };
    facts.backfilled.sort_by_key(|backfilled| backfilled.run);
    facts.calendars = tx.calendars_named(tenant, &named(&facts)).await?;
    Ok((facts, at))
}
