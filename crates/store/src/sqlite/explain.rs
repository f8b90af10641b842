//! The verbs of explanations. The transaction that uses them is `crate::tx::explain::load_facts`.

use std::sync::Arc;

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    explain::BACKFILLED_SHOWN_MAX,
    ids::{BackfillId, JobId, RunId, TenantId},
    plan::SkipRange,
    time::{DbTime, Span},
};
use sqlx::{Row as _, sqlite::SqliteRow};

use super::{Failed, Write, calendars, read, rows, sql};
use crate::{
    AuditRecord, JobRef, Result, StoreError,
    facts::CHANGES_MAX,
    tx::{JobRow, explain::ExplainTx},
};

#[async_trait]
impl ExplainTx for Write {
    async fn find_deleted_job(&mut self, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
        let query = match job {
            JobRef::Id(id) => sqlx::query(sql!("reads/job_gone_by_id")).bind(tenant.raw()).bind(id.uuid()),
            JobRef::Name(name) => sqlx::query(sql!("reads/job_gone_by_name")).bind(tenant.raw()).bind(name),
        };
        let found = query.fetch_optional(&mut *self.tx).await.failed(self.doing)?;
        let mut row = rows::job(&found.ok_or(StoreError::NotFound("job"))?).failed(self.doing)?;
        calendars::give_what_there_is(&mut self.tx, &self.unreadable, &mut row, self.doing).await?;
        Ok(row)
    }
    async fn range_before(&mut self, tenant: TenantId, job: JobId, at: DbTime) -> Result<Option<SkipRange>> {
        let range = sqlx::query(sql!("reads/range_before")).bind(tenant.raw()).bind(job.uuid());
        let range = range.bind(RunId::floor(at.plus(Span::millis(1))).uuid());
        let range = range.fetch_optional(&mut *self.tx).await.failed(self.doing)?;
        Ok(range.as_ref().map(rows::range).transpose().failed(self.doing)?.and_then(|run| run.range))
    }
    async fn backfilled_at(&mut self, job: JobId, at: DbTime) -> Result<Vec<RunId>> {
        let found = sqlx::query(sql!("reads/backfilled")).bind(job.uuid()).bind(at.millis());
        let found = found.bind(rows::limit(BACKFILLED_SHOWN_MAX));
        let found = found.fetch_all(&mut *self.tx).await.failed(self.doing)?;
        let run = |row: &SqliteRow| Ok(rows::origin(BackfillId::from_uuid(row.try_get("id")?), row)?.run(job, at));
        Ok(self.unreadable.each("backfills", &found, run))
    }
    async fn calendars_named(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        let known = calendars::of_tenant(&mut self.tx, &self.unreadable, tenant, names, self.doing).await?;
        Ok(known.into_values().collect())
    }
    async fn job_audit(&mut self, tenant: TenantId, job: JobId) -> Result<Vec<AuditRecord>> {
        let trail = sqlx::query(sql!("audit/job_audit")).bind(tenant.raw()).bind(job.to_string());
        let trail = trail.bind(rows::limit(CHANGES_MAX)).fetch_all(&mut *self.tx).await.failed(self.doing)?;
        Ok(self.unreadable.each("audit", &trail, read::audit))
    }
}
