//! The verbs of explanations. The transactions that use them are in `crate::tx::explain`.

use async_trait::async_trait;
use everytick_domain::{
    backfill::BackfillState,
    explain::{AHEAD_COUNTED_MAX, Asked, BACKFILLED_SHOWN_MAX, Backfilled, ClaimFacts, QueueFacts},
    ids::{BackfillId, JobId, RunId, TenantId},
    plan::SkipRange,
    run::State,
    time::{DbTime, Span},
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbRow, DbTx, Failed, calendars, queue, read, rows};
use crate::{
    AttemptRecord, AuditRecord, JobRef, Result, RunRecord, StoreError,
    tx::{JobRow, explain::ExplainTx},
};

/// Rows that a search for runs between skips reads.
const RUNS_SEARCHED_MAX: usize = 10_000;

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
    async fn backfills_over(&mut self, job: JobId, at: DbTime) -> Result<Vec<Backfilled>> {
        let found = self
            .fetch_all(query!("reads/backfilled", job.uuid(), at.millis(), rows::limit(BACKFILLED_SHOWN_MAX)))
            .await?;
        let backfilled = |row: &DbRow| {
            let backfill = BackfillId::from_uuid(row.try_get("id")?);
            let state: BackfillState = row.try_get("state").map(BackfillState::from_code)?;
            let origin = rows::origin(backfill, row)?;
            Ok(Backfilled {
                backfill,
                by: row.try_get("created_by")?,
                created_at: origin.created_at,
                run: origin.run(job, at),
                state: None,
                // The end of the period is excluded. A backfill of an earlier build included it, and may have a run for it.
                is_running: state == BackfillState::Running && at < origin.stretch.to,
            })
        };
        Ok(self.unreadable.each("backfills", &found, backfilled))
    }
    async fn audit_of(&mut self, tenant: TenantId, subject: &str, limit: usize) -> Result<Vec<AuditRecord>> {
        let trail = self.fetch_all(query!("audit/audit_of", tenant.raw(), subject, rows::limit(limit))).await?;
        Ok(self.unreadable.each("audit", &trail, read::audit))
    }
    async fn attempts_of(&mut self, tenant: TenantId, run: RunId) -> Result<Vec<AttemptRecord>> {
        let found = self.fetch_all(query!("reads/list_attempts", run.uuid(), tenant.raw())).await?;
        Ok(self.unreadable.each("attempts", &found, |row| rows::attempt(run, row)))
    }
    async fn runs_between(
        &mut self,
        tenant: TenantId,
        job: JobId,
        low: RunId,
        high: RunId,
        limit: usize,
    ) -> Result<Vec<RunRecord>> {
        let (low, high) = (low.uuid(), high.uuid());
        let most = rows::limit(RUNS_SEARCHED_MAX - 1);
        let end: Option<Uuid> =
            self.optional_scalar(query!("reads/search_job_end", low, high, most, job.uuid())).await?;
        let states = State::ALL.iter().filter(|state| **state != State::Skipped).map(|state| state.code());
        let found = self
            .fetch_all(query!(
                "reads/list_job_runs",
                tenant.raw(),
                end.unwrap_or(low),
                high,
                rows::codes(states.collect()),
                rows::limit(limit),
                // No filter by cause, flow or labels.
                None::<rows::Codes>,
                None::<Uuid>,
                None::<String>,
                job.uuid()
            ))
            .await?;
        Ok(self.unreadable.each("runs", &found, rows::run))
    }
    async fn last_runs(&mut self, jobs: &[JobId]) -> Result<Vec<RunRecord>> {
        let found = self.fetch_all(query!("reads/last_runs", rows::job_ids(jobs.iter().copied()))).await?;
        Ok(self.unreadable.each("runs", &found, rows::run))
    }
    async fn queue_facts(&mut self, tenant: TenantId, queue: &str, run: RunId, now: DbTime) -> Result<QueueFacts> {
        let ahead: i64 = self
            .scalar(query!(
                "queue/queue_ahead",
                tenant.raw(),
                queue,
                run.uuid(),
                now.millis(),
                rows::limit(AHEAD_COUNTED_MAX)
            ))
            .await?;
        let row = self.fetch_one(query!("queue/queue_state", tenant.raw(), queue)).await?;
        let facts = |row: &DbRow| -> std::result::Result<QueueFacts, sqlx::Error> {
            let asked = rows::time(row, "asked_at")?.zip(row.try_get::<Option<String>, _>("worker")?);
            Ok(QueueFacts {
                name: queue.to_owned(),
                limits: queue::limits(row)?,
                spent_until: row.try_get::<Option<i64>, _>("spent_until")?.unwrap_or(0),
                claimed: row.try_get::<i64, _>("claimed")?.unsigned_abs(),
                ahead: ahead.unsigned_abs(),
                asked: asked.map(|(at, worker)| Asked { at, worker }),
            })
        };
        facts(&row).failed(self.doing)
    }
    async fn claimed_with_key(&mut self, job: JobId, key: &str, limit: usize) -> Result<Vec<RunId>> {
        let found: Vec<Uuid> =
            self.scalars(query!("worker_claims/worker_claims_keyed", job.uuid(), key, rows::limit(limit))).await?;
        Ok(found.into_iter().map(RunId::from_uuid).collect())
    }
    async fn worker_claim(&mut self, tenant: TenantId, run: RunId) -> Result<Option<ClaimFacts>> {
        let found = self.fetch_optional(query!("worker_claims/worker_claim", tenant.raw(), run.uuid())).await?;
        let claim = |row: &DbRow| -> std::result::Result<ClaimFacts, sqlx::Error> {
            Ok(ClaimFacts {
                worker: row.try_get("worker")?,
                until: rows::at(row, "until")?,
                timeout_at: rows::at(row, "timeout_at")?,
                is_accepted: row.try_get("accepted")?,
            })
        };
        found.as_ref().map(claim).transpose().failed(self.doing)
    }
    async fn partition_owner(&mut self, partition: u16, now: DbTime) -> Result<Option<String>> {
        self.optional_scalar(query!("partitions/owner_of", rows::partition(partition), now.millis())).await
    }
}
