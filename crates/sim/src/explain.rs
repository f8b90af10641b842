//! The verbs of explanations on maps.

use async_trait::async_trait;
use everytick_domain::{
    explain::{Backfilled, ClaimFacts, QueueFacts},
    ids::{JobId, RunId, TenantId},
    plan::SkipRange,
    run::State,
    time::DbTime,
};
use everytick_store::{
    AttemptRecord, AuditRecord, JobRef, Result, RunRecord, StoreError,
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
    async fn backfills_over(&mut self, job: JobId, at: DbTime) -> Result<Vec<Backfilled>> {
        Ok(self.db.backfills_over(job, at))
    }
    async fn audit_of(&mut self, tenant: TenantId, subject: &str, limit: usize) -> Result<Vec<AuditRecord>> {
        let trail = self.db.audit.iter().filter(|(owner, record)| *owner == tenant && record.subject == subject);
        Ok(trail.rev().take(limit).map(|(_, record)| record.clone()).collect())
    }
    async fn attempts_of(&mut self, _: TenantId, run: RunId) -> Result<Vec<AttemptRecord>> {
        Ok(self.db.attempts.range((run, 0)..=(run, u32::MAX)).map(|(_, attempt)| attempt.clone()).collect())
    }
    async fn runs_between(
        &mut self,
        tenant: TenantId,
        job: JobId,
        low: RunId,
        high: RunId,
        limit: usize,
    ) -> Result<Vec<RunRecord>> {
        let runs = self
            .db
            .runs_of(job)
            .rev()
            .filter(|(id, run)| (low..high).contains(id) && run.tenant == tenant && run.state != State::Skipped);
        Ok(runs.take(limit).map(|(id, run)| self.db.run_record(id, run)).collect())
    }
    async fn last_runs(&mut self, jobs: &[JobId]) -> Result<Vec<RunRecord>> {
        let last = |job: &JobId| self.db.runs_of(*job).next_back().map(|(id, run)| self.db.run_record(id, run));
        Ok(jobs.iter().filter_map(last).collect())
    }
    async fn queue_facts(&mut self, tenant: TenantId, queue: &str, run: RunId, now: DbTime) -> Result<QueueFacts> {
        Ok(self.db.queue_facts(tenant, queue, run, now))
    }
    async fn claimed_with_key(&mut self, job: JobId, key: &str, limit: usize) -> Result<Vec<RunId>> {
        let claims = self.db.worker_claims.iter().filter(|(_, claim)| claim.key.as_deref() == Some(key));
        let of_job = claims.filter(|(run, _)| self.db.runs.get(run).is_some_and(|run| run.job == job));
        Ok(of_job.take(limit).map(|(run, _)| *run).collect())
    }
    async fn worker_claim(&mut self, tenant: TenantId, run: RunId) -> Result<Option<ClaimFacts>> {
        let claim = self.db.worker_claims.get(&run).filter(|claim| claim.tenant == tenant);
        Ok(claim.map(|claim| ClaimFacts {
            worker: claim.worker.clone(),
            until: claim.until,
            timeout_at: claim.timeout_at,
            is_accepted: claim.queue.is_empty(),
        }))
    }
    async fn partition_owner(&mut self, partition: u16, now: DbTime) -> Result<Option<String>> {
        let owner = self.db.partitions.get(usize::from(partition)).and_then(|row| row.owner);
        let lease = self.db.leases.values().find(|lease| Some(lease.incarnation) == owner);
        let alive = lease.filter(|lease| !lease.ended && lease.until > now);
        Ok(alive.map(|lease| lease.info.name.clone()))
    }
}
