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
    DbTx, Failed, backlog, calendars, days::Day, define, flows, homes, horizon, jobs, lease, open_runs, range, read,
    record, rows, settle,
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
        let now = self.scalar(query!("setup/now")).await?;
        self.now = DbTime::from_millis(now);
        Ok(self.now)
    }
    async fn audit(&mut self, tenant: TenantId, actor: &Actor, action: &str, audit: &[(String, String)]) -> Result<()> {
        self.execute(query!(
            "audit/audit",
            tenant.raw(),
            self.now.millis(),
            &*rows::text(&actor.0),
            action,
            audit.iter().map(|(subject, _)| subject.clone()).collect::<Vec<_>>(),
            audit.iter().map(|(_, detail)| detail.clone()).collect::<Vec<_>>()
        ))
        .await?;
        Ok(())
    }
    async fn notify_owners(&mut self) -> Result<()> {
        self.execute(query!("ranges/notify")).await.map(drop)
    }

    async fn lock_lease(&mut self, lease: &Lease) -> Result<()> {
        lease::lock_lease(self, lease).await.map(drop)
    }

    async fn lock_key(&mut self, tenant: TenantId, key: &str) -> Result<()> {
        self.execute(query!("requests/lock_key", i64::from(tenant.raw()), key)).await?;
        Ok(())
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
    async fn lock_jobs(&mut self, ids: &[JobId], lock: JobLock) -> Result<()> {
        let query = match (ids, lock) {
            ([], _) => return Ok(()),
            ([job], JobLock::All) => query!("epochs/lock_epoch", job.uuid()),
            ([job], JobLock::Requests) => query!("epochs/lock_job", job.uuid()),
            (_, JobLock::All) => query!("epochs/lock_epochs", rows::job_ids(ids.iter().copied())),
            (_, JobLock::Requests) => query!("epochs/lock_jobs", rows::job_ids(ids.iter().copied())),
        };
        self.execute(query).await.map(drop)
    }
    async fn raise_epoch(&mut self, job: JobId) -> Result<Epoch> {
        let epoch = self.scalar(query!("epochs/raise_epoch", job.uuid(), self.now.millis())).await?;
        Ok(Epoch::from_raw(epoch))
    }
    async fn set_cursor(&mut self, job: JobId, cursor: Option<DbTime>) -> Result<()> {
        self.execute(query!("cursors/set_cursor", job.uuid(), cursor.map(DbTime::millis))).await.map(drop)
    }

    async fn lock_tenant(&mut self, tenant: TenantId) -> Result<u64> {
        let lock = || sqlx::query_scalar(sql!("tenants/lock_tenant")).bind(tenant.raw());
        let live: Option<i64> = lock().fetch_optional(&mut *self.tx).await.failed(self.doing)?;
        let live = match live {
            Some(live) => live,
            // Only before the tenant's first job does the row not exist.
            None => {
                self.execute(query!("tenants/add_tenant", tenant.raw())).await?;
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
        let found: Vec<(Uuid, String)> = self
            .fetch_all_as(query!("edges/flow_named", tenant.raw(), names, rows::job_ids(ids.iter().copied())))
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
        self.execute_or_refuse(query!(
            "edges/flow_adopt",
            job.tenant.raw(),
            job.id.uuid(),
            rows::job_ids(parents.iter().map(|(id, _)| *id)),
            parents.iter().map(|(_, when)| when.code()).collect::<Vec<_>>()
        ))
        .await?;
        Ok(())
    }

    async fn get_run(&mut self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        read::run_record(self, tenant, run).await
    }
    async fn lock_run(&mut self, tenant: TenantId, run: RunId) -> Result<()> {
        self.execute(query!("runs/lock_run", tenant.raw(), run.uuid())).await?;
        Ok(())
    }
    async fn lock_claimed(&mut self, job: JobId) -> Result<()> {
        homes::lock_claimed(self, job.uuid()).await
    }
    async fn open_runs(&mut self, jobs: &[&Job]) -> Result<HashMap<JobId, Vec<OpenRun>>> {
        open_runs::open_runs(self, jobs.iter().copied()).await
    }
    async fn count_waiting(&mut self, job: JobId, max: u64) -> Result<u64> {
        let waiting: i64 =
            self.scalar(query!("waiting/count_waiting", job.uuid(), i64::try_from(max).unwrap_or(i64::MAX))).await?;
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
                rows::texts(run.payload)
            ))
            .await?;
        if inserted == 0 {
            return Ok(false);
        }
        if !skipped {
            self.execute_or_refuse(query!(
                "waiting/enqueue_run",
                run.id.uuid(),
                job.id.uuid(),
                job.tenant.raw(),
                rows::partition(job.partition),
                i16::from(spec.priority),
                now,
                run.force,
                spec.target.queue(),
                spec.target.queue().map(|_| now - lead(spec.priority, false)),
                spec.key_of(run.payload.map(String::as_str))
            ))
            .await?;
        }
        Ok(true)
    }
    async fn dequeue(&mut self, runs: &[RunId]) -> Result<()> {
        self.execute(query!("waiting/dequeue_runs", rows::run_ids(runs.iter().copied()))).await?;
        Ok(())
    }
    async fn dequeue_job(&mut self, job: JobId) -> Result<Vec<RunId>> {
        self.scalars(query!("waiting/dequeue_job", job.uuid())).await.map(run_ids)
    }
    async fn cancel_runs(&mut self, runs: &[RunId]) -> Result<()> {
        self.execute(query!("runs/cancel_runs", rows::run_ids(runs.iter().copied()), self.now.millis())).await?;
        Ok(())
    }
    // A worker's claim on a run that has ended already is not removed here: every transaction that ends a run removes it,
    // and the search for overdue claims removes what a node of an early release left.
    async fn cancel_claimed(&mut self, job: JobId) -> Result<Vec<RunId>> {
        let lowest = horizon::lowest_open_from(self, self.now).await?;
        let mut claimed = self
            .scalars(query!("runs/cancel_claimed", job.uuid(), self.now.millis(), lowest.uuid()))
            .await
            .map(run_ids)?;
        let listed = self.scalars(query!("runs/lock_claimed_listed", job.uuid())).await.map(run_ids)?;
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
        let closed: i64 = self.scalar(query!("days/days_closed")).await?;
        let from = from.max(RunId::floor(DbTime::from_millis(closed)));
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
        let found = self.fetch_all(query!("runs/run_states", rows::run_ids(runs.iter().copied()))).await?;
        found.iter().map(rows::run_state).collect::<std::result::Result<_, _>>().failed(self.doing)
    }
    async fn insert_redriven(&mut self, job: &Job, runs: &[(RunId, RunId, Option<String>)]) -> Result<()> {
        let queue = job.spec.target.queue();
        self.execute_or_refuse(query!(
            "runs/redrive_runs",
            rows::run_ids(runs.iter().map(|(failed, _, _)| *failed)),
            rows::run_ids(runs.iter().map(|(_, run, _)| *run)),
            self.now.millis(),
            rows::partition(job.partition),
            i16::from(job.spec.priority),
            queue,
            queue.map(|_| self.now.millis() - lead(job.spec.priority, true)),
            runs.iter().map(|(_, _, key)| key.clone()).collect::<Vec<_>>()
        ))
        .await?;
        Ok(())
    }

    async fn backlog_is_long(&mut self, job: JobId) -> Result<bool> {
        backlog::is_long(self, job).await
    }
    async fn backlog_action(&mut self, job: JobId) -> Result<Option<BacklogAction>> {
        backlog::action_of(self, job).await
    }
    async fn mark_backlog(&mut self, tenant: TenantId, actor: &Actor, job: JobId, action: BacklogAction) -> Result<()> {
        backlog::mark(self, tenant, actor, job, action).await
    }
}
