//! The store for one machine: one SQLite file, opened by one process. Each group of transactions has its own file here,
//! and its SQL in `sql/`. One connection writes, a few read. The given clock, read once per write transaction after the
//! write lock is acquired, decides what is due and which lease is alive.

// Macros come first: the modules below use them without an import.

/// The text of a statement, from its file.
macro_rules! sql {
    ($name:literal) => {
        $crate::statement::statement(
            concat!("sqlite/", $name),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/sql/", $name, ".sql")),
        )
    };
}

/// A statement on a batch. Its parameters are the values, then one JSON array of the rows, each an array of columns.
macro_rules! batch {
    ($name:literal, [$($value:expr),*], $rows:expr, |$row:pat_param| ($($column:expr),+ $(,)?)) => {
        query!($name $(, $value)*).bind(super::rows::json(
            &$rows.iter().map(|$row| ($(super::column::Column::element($column),)+)).collect::<Vec<_>>(),
        ))
    };
}

/// Does nothing: one connection writes, so there is nothing to lock.
macro_rules! lock {
    ($tx:expr, $name:literal $(, $value:expr)*) => {{
        let _ = (&$tx, $(&$value),*);
        $crate::Result::Ok(0)
    }};
}

#[macro_use]
#[path = "../both/db_tx.rs"]
mod db_tx;

mod accept;
mod backfill;
mod calendars;
mod cancel;
mod claim;
#[path = "../both/column.rs"]
mod column;
mod cursors;
mod define;
#[path = "../both/explain.rs"]
mod explain;
mod flows;
mod horizon;
#[path = "../both/jobs.rs"]
mod jobs;
mod lease;
mod ledgers;
#[path = "../both/lost.rs"]
mod lost;
pub(crate) mod moving;
#[path = "../both/node.rs"]
mod node;
mod open;
mod private;
mod probe;
mod prune;
mod queue;
#[path = "../both/range.rs"]
mod range;
mod read;
mod record;
#[path = "../both/repair.rs"]
mod repair;
mod rows;
mod settle;
mod tx;
#[path = "../both/unreadable.rs"]
mod unreadable;

use std::{
    fs::File,
    ops::{Deref, DerefMut},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
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
use sqlx::{Sqlite, SqliteConnection, SqlitePool, Transaction, sqlite::SqliteRow};

use crate::tx::{calendar, cancel as cancels, create, edit, explain as explains, in_read, in_tx, redrive, trigger};
use crate::{
    AcceptedRun, Actor, AttemptRecord, AuditRecord, Beat, Busy, CalendarPut, CalendarRecord, CancelledJob,
    CancelledRun, ChangeMark, ChangedJob, Changes, ClaimedRun, Cluster, Created, EditJob, Edited, IdempotencyKey,
    JobFilter, JobRecord, JobRef, JobTicks, KeptOutput, Lease, Limits, ListedClaims, LoadedJob, NewJob, NewRun,
    NodeInfo, Page, Pruned, PutCalendar, Raise, RangeAnswer, RangePlan, Recorded, Redrive, Redriven, Result, RunFilter,
    RunRecord, Settle, SettleAnswer, Store, StoreError, Supersede, Waiting, WaitingRun, Walked, WallClock,
    gate::{Admission, Gate},
    unreadable::Unreadable,
};
use db_tx::Failed;

// The names under which the code in `both/` knows this database.
type Db = Sqlite;
type DbStore = SqliteStore;
type DbRow = SqliteRow;

/// A store in one SQLite file. The handles of one process (see [`SqliteStore::api_handle`]) share the one connection
/// that writes; each has its own connections for reads.
pub struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
    gates: Gates,
    clock: Arc<dyn WallClock>,
    limits: Limits,
    /// Whether flow steps were written since [`crate::FlowStore::left_steps`] was last called.
    steps: Arc<AtomicBool>,
    unreadable: Arc<Unreadable>,
    /// Locked until the last handle is dropped: it excludes every other process.
    _lock: Arc<File>,
}

/// The limits of concurrent transactions of a handle.
struct Gates {
    write: Gate,
    read: Gate,
}

/// The API's connections for reads.
const API_READERS_MAX: u32 = 2;
/// Writes of the API that may be open or wait for the write connection, which serves in order of arrival. So a write of
/// the engine waits for at most this many writes of the API.
const API_WRITES_MAX: u32 = 1;

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file, or creates it and its parent directories, and migrates its schema. Returns
    /// [`StoreError::Unusable`] for a file that another process has open, or that a newer release wrote.
    pub async fn open(path: impl AsRef<Path>, clock: Arc<dyn WallClock>, limits: Limits) -> Result<Self> {
        open::open(path.as_ref(), clock, limits).await
    }

    /// Opens an existing file for reading only: writes nothing and does not migrate. Refuses a file as
    /// [`SqliteStore::open`] does.
    pub async fn open_read_only(path: impl AsRef<Path>, clock: Arc<dyn WallClock>) -> Result<Self> {
        open::open_read_only(path.as_ref(), clock).await
    }

    /// A second handle, for the API. A call that waits longer than [`crate::API_WAIT_MAX`] for a connection gets
    /// [`StoreError::Busy`].
    #[must_use]
    pub fn api_handle(&self) -> Self {
        let readers = self.readers.options().clone().max_connections(API_READERS_MAX);
        Self {
            writer: self.writer.clone(),
            readers: readers.connect_lazy_with(self.readers.connect_options().as_ref().clone()),
            gates: Gates { write: Gate::of(API_WRITES_MAX), read: Gate::of(API_READERS_MAX) },
            clock: self.clock.clone(),
            limits: self.limits,
            steps: self.steps.clone(),
            unreadable: self.unreadable.clone(),
            _lock: self._lock.clone(),
        }
    }

    /// Waits for running calls and closes the file. Dropping a store without this loses no data either.
    pub async fn close(self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    /// Begins a write transaction. There is one writer at a time, so nothing that is read here changes before the
    /// commit. Dropped without a commit, even during a statement, it rolls back before the next transaction begins.
    async fn write(&self, doing: &'static str) -> Result<DbTx> {
        let admission = self.gates.write.enter(doing).await?;
        let tx = match self.writer.begin_with("begin immediate").await {
            Err(error) if !matches!(error, sqlx::Error::Database(_)) => {
                // After some errors, such as a full disk, SQLite rolls back by itself, but the connection still
                // believes that a transaction is open. So it is replaced by a new one.
                tracing::warn!(%error, doing, "the write connection is broken; opening another");
                let mut broken = self.writer.acquire().await.failed(doing)?;
                broken.close_on_drop();
                drop(broken);
                self.writer.begin_with("begin immediate").await.failed(doing)?
            }
            begun => begun.failed(doing)?,
        };
        Ok(self.begun(tx, self.clock.now(), None, doing, admission))
    }

    /// Begins a read of one snapshot. The first statement takes the snapshot; the caller reads the clock after that.
    async fn read(&self, doing: &'static str) -> Result<DbTx> {
        let admission = self.gates.read.enter(doing).await?;
        let tx = self.readers.begin().await.failed(doing)?;
        Ok(self.begun(tx, DbTime::EPOCH, Some(self.clock.clone()), doing, admission))
    }

    /// The same: no statement takes long here.
    async fn write_slow(&self, doing: &'static str) -> Result<DbTx> {
        self.write(doing).await
    }

    fn begun(
        &self,
        tx: Transaction<'static, Sqlite>,
        now: DbTime,
        clock: Option<Arc<dyn WallClock>>,
        doing: &'static str,
        admission: Admission,
    ) -> DbTx {
        let (steps, unreadable, limits) = (self.steps.clone(), self.unreadable.clone(), self.limits);
        DbTx { tx, now, doing, left_steps: false, steps, unreadable, limits, clock, _admission: admission }
    }
}

/// A transaction and its time.
struct DbTx {
    tx: Transaction<'static, Sqlite>,
    now: DbTime,
    doing: &'static str,
    /// Whether it writes flow steps. If so, `steps` is set after the commit.
    left_steps: bool,
    steps: Arc<AtomicBool>,
    unreadable: Arc<Unreadable>,
    limits: Limits,
    /// The clock of a transaction that only reads. A write reads the clock once, when it has the write lock.
    clock: Option<Arc<dyn WallClock>>,
    _admission: Admission,
}

impl Deref for DbTx {
    type Target = SqliteConnection;
    fn deref(&self) -> &SqliteConnection {
        &self.tx
    }
}

impl DerefMut for DbTx {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.tx
    }
}

fn commit_error(error: sqlx::Error, doing: &'static str) -> StoreError {
    StoreError::Unsure { doing, source: error.into() }
}

/// SQLITE_TOOBIG, SQLITE_CONSTRAINT and SQLITE_MISMATCH, with any extended code.
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
        ledgers::load_ledgers(self, asked).await
    }
    async fn repair(&self, lease: &Lease, ticks: &JobTicks) -> Result<bool> {
        repair::repair(self, lease, ticks).await
    }

    async fn peek_waiting(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        busy: &[Busy],
        late_after: Option<TenantId>,
        limit: usize,
    ) -> Result<Waiting> {
        claim::peek_waiting(self, lease, partitions, busy, late_after, limit).await
    }
    async fn claim(&self, lease: &Lease, _: &PartitionSet, runs: &[RunId]) -> Result<Vec<ClaimedRun>> {
        claim::claim(self, lease, runs).await
    }
    /// A SQLite file has one node, so there is no node to delegate to.
    async fn delegate(&self, _: &Lease, _: &PartitionSet, _: &[(RunId, Incarnation)]) -> Result<Vec<RunId>> {
        Ok(Vec::new())
    }
    async fn peek_delegated(&self, _: &Lease, _: &[JobId], _: usize) -> Result<Vec<WaitingRun>> {
        Ok(Vec::new())
    }
    async fn claim_delegated(&self, _: &Lease, _: &[RunId]) -> Result<Vec<ClaimedRun>> {
        Ok(Vec::new())
    }
    async fn settle(&self, settles: &[Settle]) -> Result<Vec<SettleAnswer>> {
        settle::settle(self, settles).await
    }
    async fn accept(&self, lease: &Lease, runs: &[AcceptedRun]) -> Result<Vec<SettleAnswer>> {
        accept::accept(self, lease, runs).await
    }
    async fn supersede(&self, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>> {
        cancel::supersede(self, lease, runs).await
    }
    async fn keep_outputs(&self, outputs: &[KeptOutput]) -> Result<()> {
        cancel::keep_outputs(self, outputs).await
    }
    async fn listed_claims(&self, lease: &Lease, after: Option<RunId>, limit: usize) -> Result<ListedClaims> {
        lost::listed_claims(self, lease, after, limit).await
    }
    async fn list_old_claims(&self, lease: &Lease, to: RunId) -> Result<RunId> {
        lost::list_old_claims(self, lease, to).await
    }
    async fn claims_between(&self, lease: &Lease, from: RunId, to: RunId) -> Result<Vec<ClaimedRun>> {
        lost::claims_between(self, lease, from, to).await
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
        in_tx!(self, "create jobs", tx => create::create_jobs(tx, tenant, actor, jobs, idempotency))
    }
    async fn edit_job(&self, tenant: TenantId, actor: &Actor, edit: EditJob) -> Result<Edited> {
        in_tx!(self, "edit the job", tx => edit::edit_job(tx, tenant, actor, edit))
    }
    async fn trigger(&self, tenant: TenantId, actor: &Actor, run: NewRun) -> Result<RunRecord> {
        in_tx!(self, "create a run", tx => trigger::trigger(tx, tenant, actor, run))
    }
    async fn cancel_run(&self, tenant: TenantId, actor: &Actor, run: RunId) -> Result<CancelledRun> {
        in_tx!(self, "cancel a run", tx => cancels::cancel_run(tx, tenant, actor, run))
    }
    async fn cancel_job(&self, tenant: TenantId, actor: &Actor, job: &JobRef) -> Result<CancelledJob> {
        in_tx!(self, "cancel the runs of a job", tx => cancels::cancel_job(tx, tenant, actor, job))
    }
    async fn redrive(&self, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven> {
        in_tx!(self, "redrive failed runs", tx => redrive::redrive(tx, tenant, actor, ask))
    }

    async fn put_calendar(&self, tenant: TenantId, actor: &Actor, put: PutCalendar) -> Result<CalendarPut> {
        in_tx!(self, "write the calendar", tx => calendar::put_calendar(tx, tenant, actor, put))
    }
    async fn delete_calendar(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
    ) -> Result<CalendarRecord> {
        in_tx!(self, "delete the calendar", tx => calendar::delete_calendar(tx, tenant, actor, name, if_match))
    }
    async fn get_calendar(&self, tenant: TenantId, name: &str) -> Result<CalendarRecord> {
        in_read!(self, "read the calendar", tx => calendar::get_calendar(tx, tenant, name))
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
        in_read!(self, "read the facts about a tick", tx => explains::load_facts(tx, tenant, job, at, kept))
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
    async fn prune_audit(&self, before: DbTime, limit: usize) -> Result<u64> {
        prune::prune_audit(self, before, limit).await
    }
    async fn save_unreadable(&self) -> Result<u64> {
        unreadable::save(self).await
    }
    async fn list_unreadable(&self, limit: usize) -> Result<crate::UnreadableRows> {
        unreadable::list(self, limit).await
    }
}
