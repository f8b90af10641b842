//! The verbs of cold transactions on the maps. The simulator executes the scripts of `everytick_store::tx` with them, so
//! the scripts are tested under faults, and mutants break one verb each.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    edit::Edit,
    flow::{Edges, When},
    home::{BlockClaim, Homes},
    ids::{Epoch, JobId, RunId, TenantId},
    job::Job,
    mutant::Mutant,
    plan::SkipRange,
    run::{CauseKind, SkipReason, State},
    time::DbTime,
};
use everytick_store::{
    Actor, Created, IdempotencyKey, JobRef, Lease, Limits, OpenRun, Result, RunRecord, StoreError, TenantNow,
    shared::is_announced,
    tx::{
        JobRow, RequestedRun, SharedTx, Tx,
        requests::{Made, StoredRequest},
        secret::NamedSecret,
    },
};

use super::{
    backfills::Deferred,
    db::{self, Db, RequestRow, RunRow, WaitingRow},
    journal::Entry,
};

/// Transactions that mutants break.
pub(super) const EDIT: &str = "edit the job";
pub(super) const TRIGGER: &str = "create a run";

/// A write transaction with exclusive access to the database.
#[derive(Debug)]
pub(super) struct SimTx<'a> {
    pub db: &'a mut Db,
    doing: &'static str,
    /// The time at which the transaction executes.
    pub at: DbTime,
    /// The time that the script knows. A mutant makes it older than `at`.
    now: DbTime,
    limits: Limits,
    /// The effective instant of the edit in progress.
    effective_at: Option<DbTime>,
    /// Runs of backfills that a mutant creates after this transaction.
    pub deferred: Vec<Deferred>,
}

/// Executes a script at one instant. On an error, everything that it wrote is undone.
pub(super) fn execute<T>(
    db: &mut Db,
    doing: &'static str,
    at: DbTime,
    script: impl AsyncFnOnce(&mut SimTx<'_>) -> Result<T>,
) -> Result<T> {
    let backup = db.snapshot();
    let limits = db.limits;
    let now = if doing == EDIT && Mutant::EditInstantBeforeLock.is_on() { db.call.sent_at } else { at };
    let mut tx = SimTx { db, doing, at, now, limits, effective_at: None, deferred: Vec::new() };
    // The verbs never wait, so one poll completes the script.
    let done = match pin!(script(&mut tx)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => Err(StoreError::Failed { doing, source: "a verb waited".into() }),
    };
    if done.is_err() {
        db.restore(backup);
    }
    done
}

impl SimTx<'_> {
    pub(super) fn job_row(row: &db::JobRow) -> JobRow {
        JobRow { job: row.job.clone(), epoch: row.epoch, cursor: row.cursor }
    }

    /// Inserts a requested run of a job, which waits.
    fn insert_waiting(&mut self, id: RunId, run: RunRow, job: &Job, late: bool, force: bool) {
        let key = job.spec.key_of(run.payload.as_deref());
        let waiting = WaitingRow { late, force, key, ..WaitingRow::of(&run, job.spec.priority) };
        self.db.insert_waiting(id, run, waiting, None, self.at);
    }
}

/// The caller has exclusive access, so no verb locks.
impl SharedTx for SimTx<'_> {}

#[async_trait]
impl Tx for SimTx<'_> {
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
        Ok(self.now)
    }
    async fn audit(&mut self, tenant: TenantId, actor: &Actor, action: &str, rows: &[(String, String)]) -> Result<()> {
        for (subject, detail) in rows {
            self.db.note(tenant, actor, action, subject.clone(), detail.clone(), self.at);
        }
        Ok(())
    }

    async fn lock_lease(&mut self, lease: &Lease) -> Result<()> {
        self.db.check_lease(lease, self.at)
    }

    async fn find_request(&mut self, tenant: TenantId, key: &str, since: DbTime) -> Result<Option<StoredRequest>> {
        let found = self.db.requests.get(&(tenant, key.to_owned())).filter(|row| row.at >= since);
        Ok(found.map(|row| StoredRequest {
            fingerprint: row.fingerprint.to_vec(),
            kind: row.made.kind.word().to_owned(),
            id: row.made.id,
        }))
    }
    async fn insert_request(&mut self, tenant: TenantId, key: &IdempotencyKey, made: Made) -> Result<()> {
        let row = RequestRow { fingerprint: key.fingerprint, made, at: self.at };
        self.db.requests.insert((tenant, key.key.clone()), row);
        Ok(())
    }

    async fn find_job(&mut self, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
        self.db.find(tenant, job).map(Self::job_row)
    }
    async fn load_jobs(&mut self, jobs: &[JobId]) -> Result<Vec<JobRow>> {
        Ok(jobs.iter().filter_map(|job| self.db.jobs.get(job)).map(Self::job_row).collect())
    }
    async fn raise_epoch(&mut self, job: JobId) -> Result<Epoch> {
        if self.doing == TRIGGER && Mutant::RequestKeepsEpoch.is_on() {
            self.db.next_seq();
            return self.db.jobs.get(&job).map(|row| row.epoch).ok_or(StoreError::NotFound("job"));
        }
        self.db.raise_epoch(job, self.at).ok_or(StoreError::NotFound("job"))
    }
    async fn set_cursor(&mut self, job: JobId, cursor: Option<DbTime>) -> Result<()> {
        self.db.jobs.get_mut(&job).ok_or(StoreError::NotFound("job"))?.cursor = cursor;
        Ok(())
    }

    async fn lock_tenant(&mut self, tenant: TenantId) -> Result<TenantNow> {
        self.known_tenant(tenant).ok_or(StoreError::NotFound("tenant"))
    }
    async fn share_tenant(&mut self, tenant: TenantId) -> Result<Option<TenantNow>> {
        Ok(self.db.tenant_now(tenant))
    }
    async fn names_taken(&mut self, tenant: TenantId, names: &[String]) -> Result<HashSet<String>> {
        let live = self.db.live(tenant).map(|row| &row.job.spec.name);
        Ok(live.filter(|name| names.contains(name)).cloned().collect())
    }
    async fn lock_homes(&mut self, _: &[&str]) -> Result<Homes> {
        Ok(self.db.homes())
    }
    async fn claim_block(&mut self, claim: &BlockClaim) -> Result<()> {
        self.db.claim_block(claim);
        Ok(())
    }
    async fn calendars_named(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        Ok(self.db.calendars_named(tenant, names))
    }
    async fn secrets_named(&mut self, tenant: TenantId, names: &[String]) -> Result<Vec<NamedSecret>> {
        Ok(self.db.secrets_named(tenant, names))
    }
    async fn insert_jobs(&mut self, _: TenantId, _: &Actor, created: &[&Created]) -> Result<()> {
        for Created { job, cursor, .. } in created {
            let seq = if is_announced(*cursor, self.at) { self.db.next_seq() } else { 0 };
            let epoch = Epoch::from_raw(1);
            let row = db::JobRow { job: job.clone(), epoch, seq, cursor: *cursor, moved_from: None };
            self.db.jobs.insert(job.id, row);
            self.db.journal.push(Entry::Created { job: Box::new(job.clone()), effective_at: self.at });
        }
        Ok(())
    }
    async fn update_job(&mut self, was: &JobRow, job: &Job) -> Result<()> {
        let row = self.db.jobs.get_mut(&job.id).ok_or(StoreError::NotFound("job"))?;
        if job.partition != was.job.partition {
            row.moved_from = Some(was.job.partition);
        }
        row.job = job.clone();
        let effective_at = self.effective_at.unwrap_or(self.now);
        self.db.journal.push(Entry::Edited { job: Box::new(job.clone()), effective_at, at: self.now });
        Ok(())
    }
    async fn last_recorded(&mut self, job: JobId, from: DbTime) -> Result<Option<DbTime>> {
        Ok(if Mutant::EditInstantBeforeLock.is_on() { None } else { self.db.last_tick_row(job, from) })
    }
    async fn insert_edited(&mut self, was: &JobRow, edit: &Edit) -> Result<BTreeSet<RunId>> {
        self.effective_at = Some(edit.effective_at);
        let new: Vec<_> = edit.rows.iter().filter(|tick| !self.db.runs.contains_key(&tick.id)).collect();
        for tick in &new {
            self.db.insert_tick(was.job.id, tick, None, None, self.at);
        }
        // The mutant plans ticks that are already recorded, and reports them as inserted.
        let mutant = Mutant::EditInstantBeforeLock.is_on();
        Ok(if mutant { edit.rows.iter().collect() } else { new }.into_iter().map(|tick| tick.id).collect())
    }
    async fn insert_ranges(&mut self, job: JobId, _: TenantId, ranges: &[SkipRange]) -> Result<()> {
        for range in ranges {
            self.db.insert_range(job, *range, None, self.at);
        }
        Ok(())
    }
    async fn move_job(&mut self, _: &Job, job: &Job, _: bool) -> Result<()> {
        self.db.requeue(job.id, self.at)
    }

    async fn jobs_called(&mut self, tenant: TenantId, names: &[String], ids: &[JobId]) -> Result<Vec<(JobId, String)>> {
        let called = |row: &&db::JobRow| names.contains(&row.job.spec.name) || ids.contains(&row.job.id);
        Ok(self.db.live(tenant).filter(called).map(|row| (row.job.id, row.job.spec.name.clone())).collect())
    }
    async fn edges_near(&mut self, jobs: &[JobId]) -> Result<Edges> {
        let tenant = jobs.iter().find_map(|job| self.db.jobs.get(job)).map(|row| row.job.tenant);
        Ok(tenant.map_or_else(Edges::default, |tenant| self.db.edges(tenant)))
    }
    async fn children_of(&mut self, job: JobId) -> Result<Vec<String>> {
        Ok(self.db.children_of(job))
    }
    /// The edges are read from the definitions.
    async fn set_parents(&mut self, _: &Job, _: &[(JobId, When)]) -> Result<()> {
        Ok(())
    }

    async fn get_run(&mut self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        self.db.get_run(tenant, run)
    }
    async fn open_runs(&mut self, jobs: &[&Job]) -> Result<HashMap<JobId, Vec<OpenRun>>> {
        Ok(jobs.iter().map(|job| (job.id, self.db.open_runs(job.id))).collect())
    }
    async fn count_waiting(&mut self, job: JobId, max: u64) -> Result<u64> {
        Ok(max.min(self.db.waiting.values().filter(|row| row.job == job).count() as u64))
    }
    async fn insert_requested(&mut self, run: RequestedRun<'_>) -> Result<bool> {
        if self.db.runs.contains_key(&run.id) {
            return Ok(false);
        }
        let job = run.job;
        let new = RunRow::waiting((job.id, job.tenant), CauseKind::Request, self.at, self.at);
        let mut row = RunRow { payload: run.payload.cloned(), ..new };
        if run.state == State::Skipped {
            row.skip(SkipReason::Overlap, self.at);
            self.db.insert_run(run.id, row, None, self.at);
        } else {
            self.insert_waiting(run.id, row, job, false, run.force);
        }
        Ok(true)
    }
    async fn dequeue(&mut self, runs: &[RunId]) -> Result<()> {
        for run in runs {
            self.db.waiting.remove(run);
        }
        Ok(())
    }
    async fn dequeue_job(&mut self, job: JobId) -> Result<Vec<RunId>> {
        let waiting = self.db.waiting.extract_if(.., |_, row| row.job == job);
        Ok(waiting.map(|(run, _)| run).collect())
    }
    async fn cancel_runs(&mut self, runs: &[RunId]) -> Result<()> {
        for run in runs {
            if self.db.runs.get(run).is_some_and(|row| row.state.is_open()) {
                self.db.cancel(*run, None, self.at);
            }
        }
        Ok(())
    }
    async fn cancel_claimed(&mut self, job: JobId) -> Result<Vec<RunId>> {
        let open = self.db.open_of(job).filter(|(_, run)| run.state == State::Claimed);
        let claimed: Vec<_> = open.map(|(run, _)| run).collect();
        self.cancel_runs(&claimed).await?;
        Ok(claimed)
    }
    /// Cancelling a run ends its claims.
    async fn end_claims(&mut self, _: &[RunId]) -> Result<()> {
        Ok(())
    }
    async fn leave_steps(&mut self, runs: &[RunId]) -> Result<()> {
        for run in runs {
            self.db.leave_step(*run);
        }
        Ok(())
    }
    async fn failed_runs(&mut self, job: &Job, from: RunId, to: RunId, limit: usize) -> Result<Vec<RunRecord>> {
        let failed = |(id, run): &(RunId, &RunRow)| (from..to).contains(id) && run.state == State::Failed;
        let failed = self.db.runs_of(job.id).filter(failed).take(limit);
        failed.map(|(id, _)| self.db.get_run(job.tenant, id)).collect()
    }
    async fn run_states(&mut self, runs: &[RunId]) -> Result<HashMap<RunId, State>> {
        Ok(runs.iter().filter_map(|id| Some((*id, self.db.runs.get(id)?.state))).collect())
    }
    async fn insert_redriven(&mut self, job: &Job, runs: &[(RunId, RunId, Option<String>)]) -> Result<()> {
        for (failed, id, _) in runs {
            let Some(old) = self.db.runs.get(failed) else { continue };
            let due_at = self.at.max(old.scheduled_at);
            let new = RunRow::waiting((old.job, old.tenant), CauseKind::Request, old.scheduled_at, due_at);
            let run = RunRow { payload: old.payload.clone(), ..new };
            self.insert_waiting(*id, run, job, true, false);
        }
        Ok(())
    }
}
