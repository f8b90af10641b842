//! The verbs of explanations on maps.

use std::sync::Arc;

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    ids::{JobId, RunId, TenantId},
    plan::SkipRange,
    time::DbTime,
};
use everytick_store::{
    AuditRecord, JobRef, Result, StoreError,
    tx::{JobRow, explain::ExplainTx},
};

use super::{db, tx::SimTx};

#[async_trait]
impl ExplainTx for SimTx<'_> {
    async fn find_deleted_job(&mut self, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
        let deleted = |row: &&db::JobRow| {
            let named = match job {
                JobRef::Id(id) => row.job.id == *id,
                JobRef::Name(name) => row.job.spec.name == *name,
            };
            named && row.job.tenant == tenant && row.job.deleted_at.is_some()
        };
        let last = self.db.jobs.values().filter(deleted).max_by_key(|row| row.job.deleted_at);
        last.map(Self::job_row).ok_or(StoreError::NotFound("job"))
    }
    async fn range_before(&mut self, _: TenantId, job: JobId, at: DbTime) -> Result<Option<SkipRange>> {
        let ranges = self.db.ranges.values().filter(|row| row.job == job && row.range.from <= at);
        Ok(ranges.map(|row| row.range).max_by_key(|range| range.from))
    }
    async fn backfilled_at(&mut self, job: JobId, at: DbTime) -> Result<Vec<RunId>> {
        Ok(self.db.backfilled(job, at))
    }
    async fn calendars_named(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        Ok(self.db.calendars_named(tenant, names))
    }
    async fn job_audit(&mut self, tenant: TenantId, job: JobId) -> Result<Vec<AuditRecord>> {
        let subject = job.to_string();
        let trail = self.db.audit.iter().filter(|(owner, record)| *owner == tenant && record.subject == subject);
        Ok(trail.rev().map(|(_, record)| record.clone()).collect())
    }
}
