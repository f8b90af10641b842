//! The verbs of cold transactions on PostgreSQL. Each is one or two statements.

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
    plan::{SkipRange, TickRow},
    queue::lead,
    run::{SkipReason, State},
    time::DbTime,
};
use uuid::Uuid;

use super::{
    Failed, Write, backlog, calendars, days::Day, flows, homes, horizon, jobs, node, range, read, record, rows, settle,
    sql,
};
use crate::{
    Actor, BacklogAction, Created, IdempotencyKey, JobRef, JobTicks, Lease, Limits, OpenRun, RecordRow, Result,
    RunRecord,
    tx::{
        JobLock, JobRow, RequestedRun, Tx,
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
        let now = sqlx::query_scalar(sql!("setup/now")).fetch_one(&mut *self.tx).await.failed(self.doing)?;
        self.now = DbTime::from_millis(now);
        Ok(self.now)
    }
    async fn audit(&mut self, tenant: TenantId, actor: &Actor, action: &str, audit: &[(String, String)]) -> Result<()> {
        sqlx::query(sql!("audit/audit"))
            .bind(tenant.raw())
            .bind(self.now.millis())
            .bind(&*rows::text(&actor.0))
            .bind(action)
            .bind(audit.iter().map(|(subject, _)| subject.clone()).collect::<Vec<_>>())
            .bind(audit.iter().map(|(_, detail)| detail.clone()).collect::<Vec<_>>())
            .execute(&mut *self.tx)
            .await
            .failed(self.doing)?;
        Ok(())
    }
    async fn notify_owners(&mut self) -> Result<()> {
        range::notify(self).await
    }

    async fn lock_lease(&mut self, lease: &Lease) -> Result<()> {
        node::lock_lease(self, lease).await.map(drop)
    }

    async fn lock_key(&mut self, tenant: TenantId, key: &str) -> Result<()> {
        let lock = sqlx::query(sql!("requests/lock_key")).bind(i64::from(tenant.raw())).bind(key);
        lock.execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
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
    async fn lock_jobs(&mut self, ids: &[JobId], lock: JobLock) -> Result<()> {
        let query = match (ids, lock) {
            ([], _) => return Ok(()),
            ([job], JobLock::All) => sqlx::query(sql!("epochs/lock_epoch")).bind(job.uuid()),
            ([job], JobLock::Requests) => sqlx::query(sql!("epochs/lock_job")).bind(job.uuid()),
            (_, JobLock::All) => sqlx::query(sql!("epochs/lock_epochs")).bind(rows::job_ids(ids.iter().copied())),
            (_, JobLock::Requests) => sqlx::query(sql!("epochs/lock_jobs")).bind(rows::job_ids(ids.iter().copied())),
        };
        query.execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn raise_epoch(&mut self, job: JobId) -> Result<Epoch> {
        range::raise_epoch(self, job).await
    }
    async fn set_cursor(&mut self, job: JobId, cursor: Option<DbTime>) -> Result<()> {
        range::set_cursor(self, job, cursor).await
    }

    async fn lock_tenant(&mut self, tenant: TenantId) -> Result<u64> {
        let lock = || sqlx::query_scalar(sql!("tenants/lock_tenant")).bind(tenant.raw());
        let live: Option<i64> = lock().fetch_optional(&mut *self.tx).await.failed(self.doing)?;
        let live = match live {
            Some(live) => live,
            // Only before the tenant's first job does the row not exist.
            None => {
                sqlx::query(sql!("tenants/add_tenant"))
                    .bind(tenant.raw())
                    .execute(&mut *self.tx)
                    .await
                    .failed(self.doing)?;
                lock().fetch_one(&mut *self.tx).await.failed(self.doing)?
            }
        };
        Ok(live.unsigned_abs())
    }
    async fn names_taken(&mut self, tenant: TenantId, names: &[String]) -> Result<HashSet<String>> {
        let taken = sqlx::query_scalar(sql!("jobs/names_taken")).bind(tenant.raw()).bind(names);
        Ok(taken.fetch_all(&mut *self.tx).await.failed(self.doing)?.into_iter().collect())
    }
    async fn lock_homes(&mut self, regions: &[&str]) -> Result<Homes> {
        homes::load(self, regions).await
    }
    async fn claim_block(&mut self, claim: &BlockClaim) -> Result<()> {
        homes::claim(self, claim).await
    }
    async fn lock_calendars(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        Ok(calendars::lock(self, tenant, names).await?.into_values().collect())
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
        let job = &edit.job;
        // Ticks before the oldest day have no table: they are recorded as skips.
        let oldest = self.oldest_day;
        let is_old = |tick: &TickRow| oldest.is_some_and(|oldest| Day::of(tick.at) < oldest);
        let (old, kept): (Vec<&TickRow>, Vec<&TickRow>) = edit.rows.iter().partition(|tick| is_old(tick));
        let due = JobTicks {
            job: job.id,
            tenant: job.tenant,
            partition: job.partition,
            epoch: was.epoch,
            priority: was.job.spec.priority,
            key: was.job.spec.key_of(None),
            rows: kept.into_iter().map(|tick| RecordRow { tick: tick.clone(), born_claimed: false }).collect(),
        };
        let mut recorded = record::insert_edited(self, &due, was.job.spec.target.queue()).await?;
        recorded.extend(old.iter().map(|tick| tick.id));
        range::insert_ranges(self, job.id, job.tenant, &record::ranges_of(old.into_iter())).await?;
        Ok(recorded)
    }
    async fn insert_ranges(&mut self, job: JobId, tenant: TenantId, ranges: &[SkipRange]) -> Result<()> {
        range::insert_ranges(self, job, tenant, ranges).await
    }
    async fn move_job(&mut self, was: &Job, job: &Job, marked: bool) -> Result<()> {
        if job.partition != was.partition {
            homes::move_job(self, job, marked).await?;
        }
        let requeued = job.spec.target.queue() != was.spec.target.queue();
        if requeued || job.spec.is_guarded() != was.spec.is_guarded() {
            homes::requeue(self, job, requeued && !marked).await?;
        }
        Ok(())
    }

    async fn jobs_called(&mut self, tenant: TenantId, names: &[String], ids: &[JobId]) -> Result<Vec<(JobId, String)>> {
        let found: Vec<(Uuid, String)> = sqlx::query_as(sql!("edges/flow_named"))
            .bind(tenant.raw())
            .bind(names)
            .bind(rows::job_ids(ids.iter().copied()))
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
        sqlx::query(sql!("edges/flow_adopt"))
            .bind(job.tenant.raw())
            .bind(job.id.uuid())
            .bind(rows::job_ids(parents.iter().map(|(id, _)| *id)))
            .bind(parents.iter().map(|(_, when)| when.code()).collect::<Vec<_>>())
            .execute(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        Ok(())
    }

    async fn get_run(&mut self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        read::run_record(&mut self.tx, tenant, run, self.doing).await
    }
    async fn lock_run(&mut self, tenant: TenantId, run: RunId) -> Result<()> {
        let lock = sqlx::query(sql!("runs/lock_run")).bind(tenant.raw()).bind(run.uuid());
        lock.execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn lock_claimed(&mut self, job: JobId) -> Result<()> {
        homes::lock_claimed(self, job.uuid()).await
    }
    async fn open_runs(&mut self, jobs: &[&Job]) -> Result<HashMap<JobId, Vec<OpenRun>>> {
        horizon::open_runs(&mut self.tx, jobs.iter().copied(), self.now, self.doing).await
    }
    async fn count_waiting(&mut self, job: JobId, max: u64) -> Result<u64> {
        let count = sqlx::query_scalar(sql!("waiting/count_waiting")).bind(job.uuid());
        let count = count.bind(i64::try_from(max).unwrap_or(i64::MAX));
        let waiting: i64 = count.fetch_one(&mut *self.tx).await.failed(self.doing)?;
        Ok(waiting.unsigned_abs())
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
            .bind(rows::texts(run.payload))
            .execute(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        if inserted.rows_affected() == 0 {
            return Ok(false);
        }
        if !skipped {
            sqlx::query(sql!("waiting/enqueue_run"))
                .bind(run.id.uuid())
                .bind(job.id.uuid())
                .bind(job.tenant.raw())
                .bind(rows::partition(job.partition))
                .bind(i16::from(spec.priority))
                .bind(now)
                .bind(run.force)
                .bind(spec.target.queue())
                .bind(spec.target.queue().map(|_| now - lead(spec.priority, false)))
                .bind(spec.key_of(run.payload.map(String::as_str)))
                .execute(&mut *self.tx)
                .await
                .failed_or_refused(self.doing)?;
        }
        Ok(true)
    }
    async fn dequeue(&mut self, runs: &[RunId]) -> Result<()> {
        let dequeue = sqlx::query(sql!("waiting/dequeue_runs")).bind(rows::run_ids(runs.iter().copied()));
        dequeue.execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn dequeue_job(&mut self, job: JobId) -> Result<Vec<RunId>> {
        let dequeue = sqlx::query_scalar(sql!("waiting/dequeue_job")).bind(job.uuid());
        dequeue.fetch_all(&mut *self.tx).await.failed(self.doing).map(run_ids)
    }
    async fn cancel_runs(&mut self, runs: &[RunId]) -> Result<()> {
        let cancel = sqlx::query(sql!("runs/cancel_runs")).bind(rows::run_ids(runs.iter().copied()));
        cancel.bind(self.now.millis()).execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    // A worker's claim on a run that has ended already is not removed here: every transaction that ends a run removes it,
    // and the search for overdue claims removes what a node of an early release left.
    async fn cancel_claimed(&mut self, job: JobId) -> Result<Vec<RunId>> {
        let lowest = horizon::lowest_open_from(&mut self.tx, self.now, self.doing).await?;
        let cancel = sqlx::query_scalar(sql!("runs/cancel_claimed")).bind(job.uuid());
        let cancel = cancel.bind(self.now.millis()).bind(lowest.uuid());
        let mut claimed = cancel.fetch_all(&mut *self.tx).await.failed(self.doing).map(run_ids)?;
        let listed = sqlx::query_scalar(sql!("runs/lock_claimed_listed")).bind(job.uuid());
        let listed = listed.fetch_all(&mut *self.tx).await.failed(self.doing).map(run_ids)?;
        self.cancel_runs(&listed).await?;
        claimed.extend(listed);
        Ok(claimed)
    }
    async fn end_claims(&mut self, runs: &[RunId]) -> Result<()> {
        settle::end_cancelled(self, rows::run_ids(runs.iter().copied())).await
    }
    async fn leave_steps(&mut self, runs: &[RunId]) -> Result<()> {
        flows::leave_steps(self, &rows::run_ids(runs.iter().copied())).await
    }
    async fn failed_runs(&mut self, job: &Job, from: RunId, to: RunId, limit: usize) -> Result<Vec<RunRecord>> {
        // Without runs that outlived their day: the day's table for a new run no longer exists.
        let closed: i64 =
            sqlx::query_scalar(sql!("days/days_closed")).fetch_one(&mut *self.tx).await.failed(self.doing)?;
        let from = from.max(RunId::floor(DbTime::from_millis(closed)));
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
        let found = sqlx::query(sql!("runs/run_states")).bind(rows::run_ids(runs.iter().copied()));
        let found = found.fetch_all(&mut *self.tx).await.failed(self.doing)?;
        found.iter().map(rows::run_state).collect::<std::result::Result<_, _>>().failed(self.doing)
    }
    async fn insert_redriven(&mut self, job: &Job, runs: &[(RunId, RunId, Option<String>)]) -> Result<()> {
        let queue = job.spec.target.queue();
        sqlx::query(sql!("runs/redrive_runs"))
            .bind(rows::run_ids(runs.iter().map(|(failed, _, _)| *failed)))
            .bind(rows::run_ids(runs.iter().map(|(_, run, _)| *run)))
            .bind(self.now.millis())
            .bind(rows::partition(job.partition))
            .bind(i16::from(job.spec.priority))
            .bind(queue)
            .bind(queue.map(|_| self.now.millis() - lead(job.spec.priority, true)))
            .bind(runs.iter().map(|(_, _, key)| key.clone()).collect::<Vec<_>>())
            .execute(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        Ok(())
    }

    async fn backlog_is_long(&mut self, job: JobId) -> Result<bool> {
        backlog::is_long(self, job).await
    }
    async fn mark_backlog(&mut self, tenant: TenantId, actor: &Actor, job: JobId, action: BacklogAction) -> Result<()> {
        backlog::mark(self, tenant, actor, job, action).await
    }
}
