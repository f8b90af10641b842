//! The verbs of cold transactions. Each is one or two statements. `verbs` has those whose statements differ; the locks
//! that only PostgreSQL needs are in `postgres/locks.rs`.

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
    DbTx, calendars, define, flows, job_row, jobs, lease, open_runs, range, read, rows, secrets, tenants, verbs,
};
use crate::{
    Actor, AuditResult, Created, IdempotencyKey, JobRef, Lease, Limits, OpenRun, Result, RunRecord, TenantNow,
    tx::{
        JobRow, RequestedRun, Tx,
        requests::{Made, StoredRequest},
        secret::NamedSecret,
    },
};

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
        verbs::read_clock(self).await
    }
    async fn audit(&mut self, tenant: TenantId, actor: &Actor, action: &str, rows: &[(String, String)]) -> Result<()> {
        verbs::audit(self, tenant, actor, action, rows, AuditResult::Ok).await
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
        verbs::raise_epoch(self, job).await
    }
    async fn set_cursor(&mut self, job: JobId, cursor: Option<DbTime>) -> Result<()> {
        self.execute(query!("cursors/set_cursor", job.uuid(), cursor.map(DbTime::millis))).await.map(drop)
    }

    async fn lock_tenant(&mut self, tenant: TenantId) -> Result<TenantNow> {
        tenants::lock(self, tenant).await
    }
    async fn share_tenant(&mut self, tenant: TenantId) -> Result<Option<TenantNow>> {
        tenants::share(self, tenant).await
    }
    async fn names_taken(&mut self, tenant: TenantId, names: &[String]) -> Result<HashSet<String>> {
        let taken = self.scalars(query!("jobs/names_taken", tenant.raw(), rows::names(names))).await?;
        Ok(taken.into_iter().collect())
    }
    async fn lock_homes(&mut self, regions: &[&str]) -> Result<Homes> {
        verbs::lock_homes(self, regions).await
    }
    async fn claim_block(&mut self, claim: &BlockClaim) -> Result<()> {
        verbs::claim_block(self, claim).await
    }
    async fn calendars_named(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        Ok(calendars::of_tenant(self, tenant, names).await?.into_values().collect())
    }
    async fn secrets_named(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<NamedSecret>> {
        secrets::named(self, tenant, names).await
    }
    async fn insert_jobs(&mut self, tenant: TenantId, actor: &Actor, created: &[&Created]) -> Result<()> {
        define::insert(self, tenant, actor, created).await
    }
    async fn update_job(&mut self, was: &JobRow, job: &Job) -> Result<()> {
        job_row::update(self, was, job).await
    }
    async fn last_recorded(&mut self, job: JobId, from: DbTime) -> Result<Option<DbTime>> {
        let last_tick = query!("runs/last_tick", job.uuid(), RunId::floor(from).uuid());
        let tick: Option<i64> = self.optional_scalar(last_tick).await?;
        let range: Option<i64> = self.optional_scalar(query!("ranges/last_range", job.uuid())).await?;
        Ok(tick.max(range).map(DbTime::from_millis))
    }
    async fn insert_edited(&mut self, was: &JobRow, edit: &Edit) -> Result<BTreeSet<RunId>> {
        verbs::insert_edited(self, was, edit).await
    }
    async fn insert_ranges(&mut self, job: JobId, tenant: TenantId, ranges: &[SkipRange]) -> Result<()> {
        range::insert_ranges(self, job, tenant, ranges).await
    }
    async fn move_job(&mut self, was: &Job, job: &Job, marked: bool) -> Result<()> {
        verbs::move_job(self, was, job, marked).await
    }

    async fn jobs_called(&mut self, tenant: TenantId, names: &[String], ids: &[JobId]) -> Result<Vec<(JobId, String)>> {
        let called = query!("edges/flow_named", tenant.raw(), rows::names(names), rows::job_ids(ids));
        let found: Vec<(Uuid, String)> = self.fetch_all_as(called).await?;
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
        if parents.is_empty() { Ok(()) } else { verbs::insert_parents(self, job, parents).await }
    }

    async fn get_run(&mut self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        read::run_record(self, tenant, run).await
    }
    async fn open_runs(&mut self, jobs: &[&Job]) -> Result<HashMap<JobId, Vec<OpenRun>>> {
        open_runs::open_runs(self, jobs.iter().copied()).await
    }
    async fn count_waiting(&mut self, job: JobId, max: u64) -> Result<u64> {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        self.scalar(query!("waiting/count_waiting", job.uuid(), max)).await.map(i64::unsigned_abs)
    }
    async fn insert_requested(&mut self, run: RequestedRun<'_>) -> Result<bool> {
        let (now, skipped) = (self.now.millis(), run.state == State::Skipped);
        let inserted = self
            .execute_or_refuse(query!(
                "runs/trigger",
                run.id.uuid(),
                run.job.tenant.raw(),
                run.job.id.uuid(),
                now,
                run.state.code(),
                run.force,
                skipped.then_some(now),
                skipped.then_some(SkipReason::Overlap.code()),
                rows::text_of(run.payload)
            ))
            .await?;
        if inserted > 0 && !skipped {
            verbs::enqueue_requested(self, &run).await?;
        }
        Ok(inserted > 0)
    }
    async fn dequeue(&mut self, runs: &[RunId]) -> Result<()> {
        self.execute(query!("waiting/dequeue_runs", rows::run_ids(runs))).await?;
        Ok(())
    }
    async fn dequeue_job(&mut self, job: JobId) -> Result<Vec<RunId>> {
        self.run_ids(query!("waiting/dequeue_job", job.uuid())).await
    }
    async fn cancel_runs(&mut self, runs: &[RunId]) -> Result<()> {
        self.execute(query!("runs/cancel_runs", rows::run_ids(runs), self.now.millis())).await?;
        Ok(())
    }
    async fn cancel_claimed(&mut self, job: JobId) -> Result<Vec<RunId>> {
        verbs::cancel_claimed(self, job).await
    }
    async fn end_claims(&mut self, runs: &[RunId]) -> Result<()> {
        verbs::end_claims(self, runs).await
    }
    async fn leave_steps(&mut self, runs: &[RunId]) -> Result<()> {
        verbs::leave_steps(self, runs).await
    }
    async fn failed_runs(&mut self, job: &Job, from: RunId, to: RunId, limit: usize) -> Result<Vec<RunRecord>> {
        let from = verbs::first_redrivable(self, from).await?;
        let (limit, payloads) = (rows::limit(limit), job.spec.concurrency_key.is_some());
        let failed = query!("runs/redrive_failed", job.id.uuid(), from.uuid(), to.uuid(), limit, payloads);
        let found = self.fetch_all(failed).await?;
        Ok(self.unreadable.each("runs", &found, rows::run))
    }
    async fn run_states(&mut self, runs: &[RunId]) -> Result<HashMap<RunId, State>> {
        self.fetch_decoded(query!("runs/run_states", rows::run_ids(runs)), rows::run_state).await
    }
    async fn insert_redriven(&mut self, job: &Job, runs: &[(RunId, RunId, Option<String>)]) -> Result<()> {
        verbs::insert_redriven(self, job, runs).await
    }
}
