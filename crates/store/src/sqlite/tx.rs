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
    DbTx, Failed, calendars, define, flows, jobs, lease, open_runs, queue, range, read,
    record::{self, Queued},
    rows::{self, Hex},
    settle,
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
impl Tx for DbTx {
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
        self.execute(query!("audit/audit", tenant.raw(), self.now.millis(), &actor.0, action, rows::json(&audit)))
            .await?;
        Ok(())
    }

    async fn lock_lease(&mut self, lease: &Lease) -> Result<()> {
        lease::lock_lease(self, lease).await.map(drop)
    }

    async fn find_request(&mut self, tenant: TenantId, key: &str, since: DbTime) -> Result<Option<StoredRequest>> {
        let found: Option<(Vec<u8>, String, Uuid)> =
            self.fetch_optional_as(query!("requests/find_request", tenant.raw(), key, since.millis())).await?;
        Ok(found.map(|(fingerprint, kind, id)| StoredRequest { fingerprint, kind, id }))
    }
    async fn insert_request(&mut self, tenant: TenantId, key: &IdempotencyKey, made: Made) -> Result<()> {
        self.execute(query!(
            "requests/remember_request",
            tenant.raw(),
            &key.key,
            key.fingerprint.as_slice(),
            made.kind.word(),
            made.id,
            self.now.millis()
        ))
        .await?;
        Ok(())
    }

    async fn find_job(&mut self, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
        jobs::find(self, tenant, job).await
    }
    async fn load_jobs(&mut self, ids: &[JobId]) -> Result<Vec<JobRow>> {
        jobs::load(self, ids).await
    }
    async fn raise_epoch(&mut self, job: JobId) -> Result<Epoch> {
        let change = define::next_change(self, 1).await?;
        let epoch = self.scalar(query!("epochs/raise_epoch", job.uuid(), change, self.now.millis())).await?;
        Ok(Epoch::from_raw(epoch))
    }
    async fn set_cursor(&mut self, job: JobId, cursor: Option<DbTime>) -> Result<()> {
        self.execute(query!("cursors/set_cursor", job.uuid(), cursor.map(DbTime::millis))).await.map(drop)
    }

    async fn lock_tenant(&mut self, tenant: TenantId) -> Result<u64> {
        let live: Option<i64> = self.optional_scalar(query!("tenants/count_jobs", tenant.raw())).await?;
        Ok(live.unwrap_or(0).unsigned_abs())
    }
    async fn names_taken(&mut self, tenant: TenantId, names: &[String]) -> Result<HashSet<String>> {
        let names = rows::json(&names);
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
        let known = calendars::of_tenant(self, tenant, names).await?;
        Ok(known.into_values().collect())
    }
    async fn insert_jobs(&mut self, tenant: TenantId, actor: &Actor, created: &[&Created]) -> Result<()> {
        define::insert(self, tenant, actor, created).await
    }
    async fn update_job(&mut self, was: &JobRow, job: &Job) -> Result<()> {
        define::update(self, was, job).await
    }
    async fn last_recorded(&mut self, job: JobId, from: DbTime) -> Result<Option<DbTime>> {
        let tick: Option<i64> =
            self.optional_scalar(query!("runs/last_tick", job.uuid(), RunId::floor(from).uuid())).await?;
        let range: Option<i64> = self.optional_scalar(query!("ranges/last_range", job.uuid())).await?;
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
        let found: Vec<(Uuid, String)> = self
            .fetch_all_as(query!(
                "edges/flow_named",
                tenant.raw(),
                rows::json(&names),
                rows::job_ids(ids.iter().copied())
            ))
            .await?;
        Ok(found.into_iter().map(|(id, name)| (JobId::from_uuid(id), name)).collect())
    }
    async fn edges_near(&mut self, jobs: &[JobId]) -> Result<Edges> {
        flows::edges(self, sql!("edges/flow_near"), jobs).await
    }
    async fn children_of(&mut self, job: JobId) -> Result<Vec<String>> {
        self.scalars(query!("edges/flow_children", job.uuid())).await
    }
    async fn set_parents(&mut self, job: &Job, parents: &[(JobId, When)]) -> Result<()> {
        self.execute(query!("edges/flow_orphan", job.id.uuid())).await?;
        if parents.is_empty() {
            return Ok(());
        }
        let parents: Vec<_> = parents.iter().map(|(id, when)| (Hex(id.uuid()), when.code())).collect();
        self.execute_or_refuse(query!("edges/flow_adopt", job.tenant.raw(), job.id.uuid(), rows::json(&parents)))
            .await?;
        Ok(())
    }

    async fn get_run(&mut self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        read::run_record(self, tenant, run).await
    }
    async fn open_runs(&mut self, jobs: &[&Job]) -> Result<HashMap<JobId, Vec<OpenRun>>> {
        open_runs::open_runs(self, jobs.iter().copied()).await
    }
    async fn count_waiting(&mut self, job: JobId, max: u64) -> Result<u64> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let waiting: i64 = self.scalar(query!("waiting/count_waiting", job.uuid(), max)).await?;
        Ok(waiting.unsigned_abs())
    }
    async fn insert_requested(&mut self, run: RequestedRun<'_>) -> Result<bool> {
        let (job, spec, now) = (run.job, &run.job.spec, self.now.millis());
        let skipped = run.state == State::Skipped;
        let inserted = self
            .execute_or_refuse(query!(
                "runs/trigger",
                run.id.uuid(),
                job.tenant.raw(),
                job.id.uuid(),
                now,
                run.state.code(),
                run.force,
                skipped.then_some(now),
                skipped.then_some(SkipReason::Overlap.code()),
                run.payload
            ))
            .await?;
        if inserted == 0 {
            return Ok(false);
        }
        if !skipped {
            let key = spec.key_of(run.payload.map(String::as_str));
            let queued = Queued { run: run.id, priority: spec.priority, key: key.as_deref() };
            record::wait(self, &[queued]).await?;
        }
        Ok(true)
    }
    async fn dequeue(&mut self, runs: &[RunId]) -> Result<()> {
        let runs = rows::run_ids(runs.iter().copied());
        self.execute(query!("waiting/dequeue", runs)).await?;
        Ok(())
    }
    async fn dequeue_job(&mut self, job: JobId) -> Result<Vec<RunId>> {
        self.scalars(query!("waiting/dequeue_job", job.uuid())).await.map(run_ids)
    }
    async fn cancel_runs(&mut self, runs: &[RunId]) -> Result<()> {
        let runs = rows::run_ids(runs.iter().copied());
        self.execute(query!("runs/cancel_runs", runs, self.now.millis())).await?;
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
        let found = self
            .fetch_all(query!(
                "runs/redrive_failed",
                job.id.uuid(),
                from.uuid(),
                to.uuid(),
                rows::limit(limit),
                job.spec.concurrency_key.is_some()
            ))
            .await?;
        Ok(self.unreadable.each("runs", &found, rows::run))
    }
    async fn run_states(&mut self, runs: &[RunId]) -> Result<HashMap<RunId, State>> {
        let runs = rows::run_ids(runs.iter().copied());
        let found = self.fetch_all(query!("runs/run_states", runs)).await?;
        found.iter().map(rows::run_state).collect::<std::result::Result<_, _>>().failed(self.doing)
    }
    async fn insert_redriven(&mut self, job: &Job, runs: &[(RunId, RunId, Option<String>)]) -> Result<()> {
        let pairs: Vec<_> = runs.iter().map(|(failed, run, _)| (Hex(failed.uuid()), Hex(run.uuid()))).collect();
        self.execute_or_refuse(query!("runs/redrive_runs", rows::json(&pairs), self.now.millis())).await?;
        let priority = job.spec.priority;
        let queued = runs.iter().map(|(_, run, key)| Queued { run: *run, priority, key: key.as_deref() });
        let queued: Vec<_> = queued.collect();
        record::wait(self, &queued).await
    }
}
