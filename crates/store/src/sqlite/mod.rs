//! The store for one machine: one SQLite file, opened by one process. Each group of transactions has its own file here,
//! and its SQL in `sql/`. One connection writes, a few read. The given clock, read once per write transaction after the
//! write lock is acquired, decides what is due and which lease is alive.

// Macros come first: the modules below use them without an import.

/// The text of a statement, from its file.
macro_rules! sql {
    ($name:literal) => {
        $crate::statement::statement(
            concat!("sqlite/", $name),
            $crate::statement::text_of!(
                concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/sql/", $name, ".sql"),
                $crate::sqlite::job_row::fragments
            ),
            $crate::sqlite::job_row::fragments,
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
// The modules that both databases have.
include!("../both/mod.rs");

mod accept;
mod backlog;
mod changes;
mod claim;
mod cursors;
mod define;
mod drop_days;
mod flow_runs;
mod horizon;
mod lease;
mod ledgers;
pub(crate) mod moving;
mod open;
mod page;
mod private;
mod probe;
mod queue;
mod record;
mod rows;
mod settle;
mod verbs;

use std::{
    fs::File,
    ops::{Deref, DerefMut},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use everytick_domain::{ids::TenantId, time::DbTime};
use sqlx::{Sqlite, SqliteConnection, SqlitePool, Transaction, sqlite::SqliteRow};

use crate::{
    Limits, Result, StoreError, WallClock,
    gate::{Admission, Gate},
    unreadable::Unreadable,
};
use db_tx::Failed;

// The names under which the code in `both/` knows this database.
type Db = Sqlite;
type DbStore = SqliteStore;
type DbRow = SqliteRow;
/// A file has one partition.
const PARTITIONS: u16 = 1;

/// A store in one SQLite file. The handles of one process (see [`SqliteStore::api_handle`]) share the one connection
/// that writes; each has its own connections for reads.
pub struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
    gates: Gates,
    clock: Arc<dyn WallClock>,
    limits: Limits,
    /// Whether flow steps were written since [`crate::FlowStore::take_steps_written`] was last called.
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

    /// The same: in a file, no statement waits for a lock of another one, and none takes long.
    async fn write_brief(&self, doing: &'static str) -> Result<DbTx> {
        self.write(doing).await
    }
    async fn write_slow(&self, doing: &'static str) -> Result<DbTx> {
        self.write(doing).await
    }

    /// A file has none: one process uses it alone.
    #[expect(clippy::unused_self, reason = "the other database knows it from its store")]
    const fn has_row_level_security(&self) -> bool {
        false
    }

    /// For calls of a tenant. A file has no row-level security.
    fn of(&self, _: impl Into<Option<TenantId>>) -> &Self {
        self
    }

    /// No call has a time limit: a file always answers.
    async fn reads<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        call.await
    }
    async fn writes<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        call.await
    }
    async fn slow<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        call.await
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
