//! The verbs of cold transactions on SQLite. Each is one or two statements. One connection writes, so no verb locks.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    edit::Edit,
    flow::{Edges, When},
    home::{BlockClaim, Homes},
    ids::{Epoch, JobId, RunId, TenantId},
    job::Job,
    plan::SkipRange,
    run::{SkipReason, State},
    time::DbTime,
};
use uuid::Uuid;

use super::{
    Failed, Write, calendars, flows, horizon, jobs, node, queue, range, read,
    record::{self, Queued},
    rows::{self, Hex},
    settle, sql,
};
use crate::{
    Actor, Created, IdempotencyKey, JobRef, JobTicks, Lease, Limits, OpenRun, RecordRow, Result, RunRecord,
    tx::{
        JobRow, RequestedRun, Tx,
        requests::{Made, StoredRequest},
    },
};

fn run_ids(found: Vec<Uuid>) -> Vec<RunId> {
    found.into_iter().map(RunId::from_uuid).collect()
}

#[async_trait]
impl Tx for Write {
    fn doing(&self) -> &'static str {
        self.doing
    }
    fn now(&self) -> DbTime {
        self.now
    }
    fn limits(&self) -> &Limits {
        &self.limits
    }
    async fn read_clock(&mut self) -> Result<DbTime> {
        if let Some(clock) = &self.clock {
            self.now = clock.now();
        }
        Ok(self.now)
    }
    async fn audit(&mut self, tenant: TenantId, actor: &Actor, action: &str, audit: &[(String, String)]) -> Result<()> {
        sqlx::query(sql!("audit/audit"))
            .bind(tenant.raw())
            .bind(self.now.millis())
            .bind(&actor.0)
            .bind(action)
            .bind(rows::json(&audit).failed(self.doing)?)
            .execute(&mut *self.tx)
            .await
            .failed(self.doing)?;
        Ok(())
    }

    async fn lock_lease(&mut self, lease: &Lease) -> Result<()> {
        node::check(&mut self.tx, lease, self.now, self.doing).await.map(drop)
    }

    async fn find_request(&mut self, tenant: TenantId, key: &str, since: DbTime) -> Result<Option<StoredRequest>> {
        let found: Option<(Vec<u8>, String, Uuid)> = sqlx::query_as(sql!("requests/find_request"))
            .bind(tenant.raw())
            .bind(key)
            .bind(since.millis())
            .fetch_optional(&mut *self.tx)
            .await
            .failed(self.doing)?;
        Ok(found.map(|(fingerprint, kind, id)| StoredRequest { fingerprint, kind, id }))
    }
    async fn insert_request(&mut self, tenant: TenantId, key: &IdempotencyKey, made: Made) -> Result<()> {
        sqlx::query(sql!("requests/remember_request"))
            .bind(tenant.raw())
            .bind(&key.key)
            .bind(key.fingerprint.as_slice())
            .bind(made.kind.word())
            .bind(made.id)
            .bind(self.now.millis())
            .execute(&mut *self.tx)
            .await
            .failed(self.doing)?;
        Ok(())
    }

    async fn find_job(&mut self, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
        jobs::find(&mut self.tx, &self.unreadable, tenant, job, self.doing).await
    }
    async fn load_jobs(&mut self, ids: &[JobId]) -> Result<Vec<JobRow>> {
        horizon::job_rows(&mut self.tx, &self.unreadable, ids, self.doing).await
    }
    async fn raise_epoch(&mut self, job: JobId) -> Result<Epoch> {
        range::raise_epoch(self, job).await
    }
    async fn set_cursor(&mut self, job: JobId, cursor: Option<DbTime>) -> Result<()> {
        range::set_cursor(self, job, cursor).await
    }

    async fn lock_tenant(&mut self, tenant: TenantId) -> Result<u64> {
        let count = sqlx::query_scalar(sql!("tenants/count_jobs")).bind(tenant.raw());
        let live: Option<i64> = count.fetch_optional(&mut *self.tx).await.failed(self.doing)?;
        Ok(live.unwrap_or(0).unsigned_abs())
    }
    async fn names_taken(&mut self, tenant: TenantId, names: &[String]) -> Result<HashSet<String>> {
        let names = rows::json(&names).failed(self.doing)?;
        let taken = sqlx::query_scalar(sql!("jobs/names_taken")).bind(tenant.raw()).bind(names);
        Ok(taken.fetch_all(&mut *self.tx).await.failed(self.doing)?.into_iter().collect())
    }
    /// A file has one partition and no regions.
    async fn lock_homes(&mut self, _: &[&str]) -> Result<Homes> {
        Ok(Homes::new(1, []))
    }
    async fn claim_block(&mut self, _: &BlockClaim) -> Result<()> {
        Ok(())
    }
    async fn lock_calendars(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        let known = calendars::of_tenant(&mut self.tx, &self.unreadable, tenant, names, self.doing).await?;
        Ok(known.into_values().collect())
    }
    async fn insert_jobs(&mut self, tenant: TenantId, actor: &Actor, created: &[&Created]) -> Result<()> {
        jobs::insert(self, tenant, actor, created).await
    }
    async fn update_job(&mut self, was: &JobRow, job: &Job) -> Result<()> {
        jobs::update(self, was, job).await
    }
    async fn last_recorded(&mut self, job: JobId, from: DbTime) -> Result<Option<DbTime>> {
        let tick = sqlx::query_scalar(sql!("runs/last_tick")).bind(job.uuid()).bind(RunId::floor(from).uuid());
        let tick: Option<i64> = tick.fetch_optional(&mut *self.tx).await.failed(self.doing)?;
        let range = sqlx::query_scalar(sql!("ranges/last_range")).bind(job.uuid());
        let range: Option<i64> = range.fetch_optional(&mut *self.tx).await.failed(self.doing)?;
        Ok(tick.max(range).map(DbTime::from_millis))
    }
    async fn insert_edited(&mut self, was: &JobRow, edit: &Edit) -> Result<BTreeSet<RunId>> {
        let due = JobTicks {
            job: edit.job.id,
            tenant: edit.job.tenant,
            partition: 0,
            epoch: was.epoch,
            priority: was.job.spec.priority,
            key: was.job.spec.key_of(None),
            rows: edit.rows.iter().map(|tick| RecordRow { tick: tick.clone(), born_claimed: false }).collect(),
        };
        record::insert_edited(self, &due).await
    }
    async fn insert_ranges(&mut self, job: JobId, tenant: TenantId, ranges: &[SkipRange]) -> Result<()> {
        range::insert_ranges(self, job, tenant, ranges).await
    }
    async fn move_job(&mut self, was: &Job, job: &Job, _: bool) -> Result<()> {
        if job.spec.target.queue() == was.spec.target.queue() {
            return Ok(());
        }
        queue::requeue(self, job).await
    }

    async fn jobs_called(&mut self, tenant: TenantId, names: &[String], ids: &[JobId]) -> Result<Vec<(JobId, String)>> {
        let found: Vec<(Uuid, String)> = sqlx::query_as(sql!("edges/flow_named"))
            .bind(tenant.raw())
            .bind(rows::json(&names).failed(self.doing)?)
            .bind(rows::job_ids(ids.iter().copied()).failed(self.doing)?)
            .fetch_all(&mut *self.tx)
            .await
            .failed(self.doing)?;
        Ok(found.into_iter().map(|(id, name)| (JobId::from_uuid(id), name)).collect())
    }
    async fn edges_near(&mut self, jobs: &[JobId]) -> Result<Edges> {
        flows::edges(&mut self.tx, sql!("edges/flow_near"), jobs, self.doing).await
    }
    async fn children_of(&mut self, job: JobId) -> Result<Vec<String>> {
        let found = sqlx::query_scalar(sql!("edges/flow_children")).bind(job.uuid());
        found.fetch_all(&mut *self.tx).await.failed(self.doing)
    }
    async fn set_parents(&mut self, job: &Job, parents: &[(JobId, When)]) -> Result<()> {
        sqlx::query(sql!("edges/flow_orphan")).bind(job.id.uuid()).execute(&mut *self.tx).await.failed(self.doing)?;
        if parents.is_empty() {
            return Ok(());
        }
        let parents: Vec<_> = parents.iter().map(|(id, when)| (Hex(id.uuid()), when.code())).collect();
        sqlx::query(sql!("edges/flow_adopt"))
            .bind(job.tenant.raw())
            .bind(job.id.uuid())
            .bind(rows::json(&parents).failed(self.doing)?)
            .execute(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        Ok(())
    }

    async fn get_run(&mut self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        read::run_record(&mut self.tx, tenant, run, self.doing).await
    }
    async fn open_runs(&mut self, jobs: &[&Job]) -> Result<HashMap<JobId, Vec<OpenRun>>> {
        horizon::open_runs(&mut self.tx, jobs.iter().copied(), self.doing).await
    }
    async fn count_waiting(&mut self, job: JobId, max: u64) -> Result<u64> {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        Ok(horizon::count_waiting(&mut self.tx, job, max, self.doing).await? as u64)
    }
    async fn insert_requested(&mut self, run: RequestedRun<'_>) -> Result<bool> {
        let (job, spec, now) = (run.job, &run.job.spec, self.now.millis());
        let skipped = run.state == State::Skipped;
        let inserted = sqlx::query(sql!("runs/trigger"))
            .bind(run.id.uuid())
            .bind(job.tenant.raw())
            .bind(job.id.uuid())
            .bind(now)
            .bind(run.state.code())
            .bind(run.force)
            .bind(skipped.then_some(now))
            .bind(skipped.then_some(SkipReason::Overlap.code()))
            .bind(run.payload)
            .execute(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        if inserted.rows_affected() == 0 {
            return Ok(false);
        }
        if !skipped {
            let key = spec.key_of(run.payload.map(String::as_str));
            let queued = Queued { run: run.id, priority: spec.priority, late: false, key: key.as_deref() };
            record::wait(self, &[queued], self.doing).await?;
        }
        Ok(true)
    }
    async fn dequeue(&mut self, runs: &[RunId]) -> Result<()> {
        let runs = rows::run_ids(runs.iter().copied()).failed(self.doing)?;
        sqlx::query(sql!("waiting/dequeue")).bind(runs).execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn dequeue_job(&mut self, job: JobId) -> Result<Vec<RunId>> {
        let dequeue = sqlx::query_scalar(sql!("waiting/dequeue_job")).bind(job.uuid());
        dequeue.fetch_all(&mut *self.tx).await.failed(self.doing).map(run_ids)
    }
    async fn cancel_runs(&mut self, runs: &[RunId]) -> Result<()> {
        let runs = rows::run_ids(runs.iter().copied()).failed(self.doing)?;
        let cancel = sqlx::query(sql!("runs/cancel_runs")).bind(runs).bind(self.now.millis());
        cancel.execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn cancel_claimed(&mut self, job: JobId) -> Result<Vec<RunId>> {
        let mut claimed = Vec::new();
        for statement in [sql!("runs/cancel_claimed"), sql!("runs/cancel_listed")] {
            let cancel = sqlx::query_scalar(statement).bind(job.uuid()).bind(self.now.millis());
            claimed.extend(cancel.fetch_all(&mut *self.tx).await.failed(self.doing).map(run_ids)?);
        }
        Ok(claimed)
    }
    async fn end_claims(&mut self, runs: &[RunId]) -> Result<()> {
        settle::end_cancelled(self, runs.iter().copied()).await
    }
    async fn leave_steps(&mut self, runs: &[RunId]) -> Result<()> {
        flows::leave_steps(self, runs.iter().copied()).await
    }
    async fn failed_runs(&mut self, job: &Job, from: RunId, to: RunId, limit: usize) -> Result<Vec<RunRecord>> {
        let found = sqlx::query(sql!("runs/redrive_failed"))
            .bind(job.id.uuid())
            .bind(from.uuid())
            .bind(to.uuid())
            .bind(rows::limit(limit))
            .bind(job.spec.concurrency_key.is_some())
            .fetch_all(&mut *self.tx)
            .await
            .failed(self.doing)?;
        Ok(self.unreadable.each("runs", &found, rows::run))
    }
    async fn run_states(&mut self, runs: &[RunId]) -> Result<HashMap<RunId, State>> {
        let runs = rows::run_ids(runs.iter().copied()).failed(self.doing)?;
        let found =
            sqlx::query(sql!("runs/run_states")).bind(runs).fetch_all(&mut *self.tx).await.failed(self.doing)?;
        found.iter().map(rows::run_state).collect::<std::result::Result<_, _>>().failed(self.doing)
    }
    async fn insert_redriven(&mut self, job: &Job, runs: &[(RunId, RunId, Option<String>)]) -> Result<()> {
        let pairs: Vec<_> = runs.iter().map(|(failed, run, _)| (Hex(failed.uuid()), Hex(run.uuid()))).collect();
        sqlx::query(sql!("runs/redrive_runs"))
            .bind(rows::json(&pairs).failed(self.doing)?)
            .bind(self.now.millis())
            .execute(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        let (priority, late) = (job.spec.priority, true);
        let queued = runs.iter().map(|(_, run, key)| Queued { run: *run, priority, late, key: key.as_deref() });
        let queued: Vec<_> = queued.collect();
        record::wait(self, &queued, self.doing).await
    }
}
