//! The keeper for one machine: one SQLite file, opened by one process. Each transaction group has a file of its own here, and
//! its SQL beside it. One connection writes, a few read; what is due and which lease lives is judged by the given clock,
//! read once per transaction after the write lock was had.

mod backfill;
mod calendars;
mod cancel;
mod claim;
mod create;
mod cursors;
mod edit;
mod facts;
mod flows;
mod horizon;
mod lost;
pub(crate) mod moving;
mod node;
mod open;
mod probe;
mod prune;
mod queue;
mod range;
mod read;
mod record;
mod redrive;
mod repair;
mod request;
mod rows;
mod settle;

use std::{
    fs::File,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    explain::Facts,
    ids::{Fence, Incarnation, JobId, RunId, TenantId, Version},
    partition::PartitionSet,
    recovery::{Ledger, Window},
    time::{DbTime, Span},
};
use sqlx::{Sqlite, SqlitePool, Transaction};

use crate::{
    Actor, AttemptRecord, AuditRecord, Beat, CalendarPut, CalendarRecord, CancelledJob, CancelledRun, ChangeMark,
    ChangedJob, Changes, ClaimedRun, Cluster, Created, EditJob, Edited, GiveWay, IdempotencyKey, JobFilter, JobRecord,
    JobRef, JobTicks, KeptOutput, Lease, Limits, LoadedJob, NewJob, NewRun, NodeInfo, Page, Pruned, PutCalendar, Raise,
    RangeAnswer, RangePlan, Recorded, Redrive, Redriven, Result, RunFilter, RunRecord, Settle, SettleAnswer, Store,
    StoreError, Waiting, Walked, WallClock,
};

/// The text of a statement, from its file.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/sql/", $name, ".sql"))
    };
}
use sql;

/// A store in one SQLite file.
pub struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
    clock: Arc<dyn WallClock>,
    limits: Limits,
    /// Steps of flows were left, and nobody has been told yet.
    steps: Arc<AtomicBool>,
    /// Held for life: it keeps every other process out.
    _lock: File,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file, or makes it and the folders above it, and brings its schema up to date. A file that another process
    /// has open, or that a newer release wrote, is [`StoreError::Unusable`].
    pub async fn open(path: impl AsRef<Path>, clock: Arc<dyn WallClock>, limits: Limits) -> Result<Self> {
        open::open(path.as_ref(), clock, limits).await
    }

    /// Opens a file that is there, to look at it: nothing is written, and its schema stays as it is. Refuses as
    /// [`SqliteStore::open`] does.
    pub async fn open_read_only(path: impl AsRef<Path>, clock: Arc<dyn WallClock>) -> Result<Self> {
        open::open_read_only(path.as_ref(), clock).await
    }

    /// Waits for what is under way, and closes the file. A store that is only dropped loses nothing either.
    pub async fn close(self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Begins to write. There is one writer at a time, so nothing that is read in here changes before the commit.
    /// Dropped without a commit, also in the middle of a statement, it rolls back before the next one begins.
    async fn write(&self, doing: &'static str) -> Result<Write> {
        let tx = match self.writer.begin_with("begin immediate").await {
            Err(error) if !matches!(error, sqlx::Error::Database(_)) => {
                // After a full disk, for one, SQLite has rolled back by itself, and the connection takes itself to be inside
                // a transaction for ever. A new one does not.
                tracing::warn!(%error, doing, "the writing connection is broken; opening another");
                let mut broken = self.writer.acquire().await.failed(doing)?;
                broken.close_on_drop();
                drop(broken);
                self.writer.begin_with("begin immediate").await.failed(doing)?
            }
            begun => begun.failed(doing)?,
        };
        Ok(Write { tx, now: self.clock.now(), doing, left_steps: false, steps: self.steps.clone() })
    }

    /// Begins to read one snapshot. It is taken by the first statement; the clock is read by the caller after that.
    async fn read(&self, doing: &'static str) -> Result<Transaction<'static, Sqlite>> {
        self.readers.begin().await.failed(doing)
    }
}

/// A write transaction and its instant.
struct Write {
    tx: Transaction<'static, Sqlite>,
    now: DbTime,
    doing: &'static str,
    /// Whether it leaves steps of flows, and whom to tell.
    left_steps: bool,
    steps: Arc<AtomicBool>,
}

impl Write {
    async fn commit(self) -> Result<()> {
        let doing = self.doing;
        let committed = self.tx.commit().await;
        self.steps.fetch_or(self.left_steps, Ordering::AcqRel);
        committed.map_err(|source| StoreError::Unsure { doing, source: source.into() })
    }
}

trait Failed<T> {
    /// An error before the commit: the transaction rolls back, so it is known not to be done.
    fn failed(self, doing: &'static str) -> Result<T>;
    /// The same, but where the data itself was refused this says so: sending it again will not help.
    fn failed_or_refused(self, doing: &'static str) -> Result<T>;
}

impl<T> Failed<T> for std::result::Result<T, sqlx::Error> {
    fn failed(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| StoreError::Failed { doing, source: source.into() })
    }
    fn failed_or_refused(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| {
            if is_refusal(&source) {
                StoreError::Refused { doing, source: source.into() }
            } else {
                StoreError::Failed { doing, source: source.into() }
            }
        })
    }
}

/// SQLITE_TOOBIG, SQLITE_CONSTRAINT and SQLITE_MISMATCH, whatever their extended codes.
fn is_refusal(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code()).and_then(|code| code.parse::<u32>().ok());
    matches!(code.map(|code| code & 0xff), Some(18..=20))
}

#[async_trait]
impl Store for SqliteStore {
    fn partitions(&self) -> u16 {
        1
    }
    async fn now(&self) -> Result<DbTime> {
        Ok(self.clock.now())
    }
    async fn join(&self, node: &NodeInfo, incarnation: Incarnation, ttl: Span) -> Result<(Lease, DbTime)> {
        node::join(self, node, incarnation, ttl).await
    }
    async fn renew(&self, lease: &Lease, ttl: Span, beat: &Beat) -> Result<DbTime> {
        node::renew(self, lease, ttl, beat).await
    }
    async fn raise_fence(&self, lease: &Lease) -> Result<Lease> {
        node::raise_fence(self, lease).await
    }
    async fn retire(&self, lease: &Lease) -> Result<()> {
        node::retire(self, lease).await
    }
    async fn leave(&self, lease: &Lease) -> Result<()> {
        node::leave(self, lease).await
    }
    async fn cluster(&self) -> Result<Cluster> {
        node::cluster(self).await
    }
    async fn acquire(&self, lease: &Lease, partitions: &PartitionSet) -> Result<PartitionSet> {
        node::acquire(self, lease, partitions).await
    }
    async fn release(&self, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
        node::release(self, lease, partitions).await
    }

    async fn load_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>> {
        horizon::load_horizon(self, lease, partitions, until, after, limit).await
    }
    async fn look_at_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<ChangedJob>> {
        horizon::look_at_horizon(self, lease, partitions, until, after, limit).await
    }
    async fn load_jobs(&self, ids: &[JobId]) -> Result<Vec<LoadedJob>> {
        horizon::load_jobs(self, ids).await
    }
    async fn changes(&self, partitions: &PartitionSet, since: ChangeMark, limit: usize) -> Result<Changes> {
        horizon::changes(self, partitions, since, limit).await
    }
    async fn record(&self, lease: &Lease, batch: &[JobTicks]) -> Result<Recorded> {
        record::record(self, lease, batch).await
    }
    async fn record_range(&self, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
        range::record_range(self, lease, plan).await
    }
    async fn raise_cursors(&self, raises: &[Raise]) -> Result<Vec<JobId>> {
        cursors::raise_cursors(self, raises).await
    }

    async fn load_overdue(
        &self,
        before: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>> {
        horizon::load_overdue(self, before, after, limit).await
    }
    async fn walk_jobs(&self, after: Option<JobId>, limit: usize) -> Result<Walked> {
        repair::walk_jobs(self, after, limit).await
    }
    async fn load_ledgers(&self, asked: &[(JobId, Window)]) -> Result<Vec<Ledger>> {
        repair::load_ledgers(self, asked).await
    }
    async fn repair(&self, lease: &Lease, ticks: &JobTicks) -> Result<bool> {
        repair::repair(self, lease, ticks).await
    }

    async fn peek_waiting(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        busy: &[JobId],
        late_after: Option<TenantId>,
        limit: usize,
    ) -> Result<Waiting> {
        claim::peek_waiting(self, lease, partitions, busy, late_after, limit).await
    }
    async fn claim(&self, lease: &Lease, _: &PartitionSet, runs: &[RunId]) -> Result<Vec<ClaimedRun>> {
        claim::claim(self, lease, runs).await
    }
    async fn settle(&self, settles: &[Settle]) -> Result<Vec<SettleAnswer>> {
        settle::settle(self, settles).await
    }
    async fn give_way(&self, lease: &Lease, runs: &[GiveWay]) -> Result<Vec<RunId>> {
        cancel::give_way(self, lease, runs).await
    }
    async fn keep_outputs(&self, outputs: &[KeptOutput]) -> Result<()> {
        cancel::keep_outputs(self, outputs).await
    }
    async fn load_claimed(&self, lease: &Lease) -> Result<Vec<ClaimedRun>> {
        lost::load_claimed(self, lease).await
    }
    async fn still_claimed(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<(RunId, Fence)>> {
        lost::still_claimed(self, lease, runs).await
    }
    async fn load_lost(&self, lease: &Lease, limit: usize) -> Result<Vec<ClaimedRun>> {
        lost::load_lost(self, lease, limit).await
    }

    async fn create_jobs(
        &self,
        tenant: TenantId,
        actor: &Actor,
        jobs: Vec<NewJob>,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Vec<Result<Created>>> {
        create::create_jobs(self, tenant, actor, jobs, idempotency).await
    }
    async fn edit_job(&self, tenant: TenantId, actor: &Actor, edit: EditJob) -> Result<Edited> {
        edit::edit_job(self, tenant, actor, edit).await
    }
    async fn create_run(&self, tenant: TenantId, actor: &Actor, run: NewRun) -> Result<RunRecord> {
        request::create_run(self, tenant, actor, run).await
    }
    async fn cancel_run(&self, tenant: TenantId, actor: &Actor, run: RunId) -> Result<CancelledRun> {
        request::cancel_run(self, tenant, actor, run).await
    }
    async fn cancel_job(&self, tenant: TenantId, actor: &Actor, job: &JobRef) -> Result<CancelledJob> {
        cancel::cancel_job(self, tenant, actor, job).await
    }
    async fn redrive(&self, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven> {
        redrive::redrive(self, tenant, actor, ask).await
    }

    async fn put_calendar(&self, tenant: TenantId, actor: &Actor, put: PutCalendar) -> Result<CalendarPut> {
        calendars::put_calendar(self, tenant, actor, put).await
    }
    async fn delete_calendar(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
    ) -> Result<CalendarRecord> {
        calendars::delete_calendar(self, tenant, actor, name, if_match).await
    }
    async fn get_calendar(&self, tenant: TenantId, name: &str) -> Result<CalendarRecord> {
        calendars::get_calendar(self, tenant, name).await
    }
    async fn list_calendars(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<CalendarRecord, String>> {
        calendars::list_calendars(self, tenant, after, limit).await
    }
    async fn load_calendars(&self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        calendars::load_calendars(self, tenant, names).await
    }

    async fn get_job(&self, tenant: TenantId, job: &JobRef) -> Result<JobRecord> {
        read::get_job(self, tenant, job).await
    }
    async fn list_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobRecord, String>> {
        read::list_jobs(self, tenant, filter, after, limit).await
    }
    async fn load_facts(
        &self,
        tenant: TenantId,
        job: &JobRef,
        at: Option<DbTime>,
        kept: Span,
    ) -> Result<(Facts, DbTime)> {
        facts::load_facts(self, tenant, job, at, kept).await
    }
    async fn get_run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        read::get_run(self, tenant, run).await
    }
    async fn list_runs(
        &self,
        tenant: TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunRecord, RunId>> {
        read::list_runs(self, tenant, filter, before, limit).await
    }
    async fn list_attempts(&self, tenant: TenantId, run: RunId) -> Result<Vec<AttemptRecord>> {
        read::list_attempts(self, tenant, run).await
    }
    async fn list_audit(&self, tenant: TenantId, before: Option<i64>, limit: usize) -> Result<Page<AuditRecord, i64>> {
        read::list_audit(self, tenant, before, limit).await
    }

    async fn prune(&self, before: DbTime, limit: usize) -> Result<Pruned> {
        prune::prune(self, before, limit).await
    }
}
