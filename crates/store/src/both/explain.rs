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
use sqlx::Row as _;

use super::{DbRow, DbTx, Failed, calendars, read, rows};
use crate::{
    AuditRecord, JobRef, Result, StoreError,
    facts::CHANGES_MAX,
    tx::{JobRow, explain::ExplainTx},
};

#[async_trait]
impl ExplainTx for DbTx {
    async fn find_deleted_job(&mut self, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
        let query = match job {
            JobRef::Id(id) => query!("reads/job_gone_by_id", tenant.raw(), id.uuid()),
            JobRef::Name(name) => query!("reads/job_gone_by_name", tenant.raw(), name),
        };
        let found = self.fetch_optional(query).await?;
        let mut row = rows::job(&found.ok_or(StoreError::NotFound("job"))?).failed(self.doing)?;
        calendars::attach_existing(self, &mut row).await?;
        Ok(row)
    }
    async fn range_before(&mut self, tenant: TenantId, job: JobId, at: DbTime) -> Result<Option<SkipRange>> {
        let range = self
            .fetch_optional(query!(
                "reads/range_before",
                tenant.raw(),
                job.uuid(),
                RunId::floor(at.plus(Span::millis(1))).uuid()
            ))
            .await?;
        Ok(range.as_ref().map(rows::range).transpose().failed(self.doing)?.and_then(|run| run.range))
    }
    async fn backfilled_at(&mut self, job: JobId, at: DbTime) -> Result<Vec<RunId>> {
        let found = self
            .fetch_all(query!("reads/backfilled", job.uuid(), at.millis(), rows::limit(BACKFILLED_SHOWN_MAX)))
            .await?;
        let run = |row: &DbRow| Ok(rows::origin(BackfillId::from_uuid(row.try_get("id")?), row)?.run(job, at));
        Ok(self.unreadable.each("backfills", &found, run))
    }
    async fn calendars_named(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        let known = calendars::of_tenant(self, tenant, names).await?;
        Ok(known.into_values().collect())
    }
    async fn job_audit(&mut self, tenant: TenantId, job: JobId) -> Result<Vec<AuditRecord>> {
        let trail =
            self.fetch_all(query!("audit/job_audit", tenant.raw(), job.to_string(), rows::limit(CHANGES_MAX))).await?;
        Ok(self.unreadable.each("audit", &trail, read::audit))
    }
}
