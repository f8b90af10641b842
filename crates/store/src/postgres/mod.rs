//! The store for a cluster: one PostgreSQL database that any number of nodes share. Each group of transactions has its
//! own file here, and its SQL in `sql/`. Each call is its own transaction: READ COMMITTED for writes, one snapshot for
//! reads. No call depends on session state, so a transaction pooler may be used. The database clock
//! (`everytick_now()`), read after the locks are acquired, decides what is due and which lease is alive.

// Macros come first: the modules below use them without an import.

/// The text of a statement, from its file.
macro_rules! sql {
    ($name:literal) => {
        $crate::statement::statement(
            concat!("postgres/", $name),
            $crate::statement::text_of!(
                concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/sql/", $name, ".sql"),
                $crate::postgres::job_row::fragments
            ),
            $crate::postgres::job_row::fragments,
        )
    };
}

/// A statement on one day's table, by name, so that the planner considers only that table.
macro_rules! day_sql {
    ($name:literal, $table:expr) => {
        sqlx::AssertSqlSafe(
            $crate::statement::statement(
                concat!("postgres/", $name),
                $crate::statement::text_of!(
                    concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/sql/", $name, ".sql"),
                    $crate::postgres::job_row::fragments
                ),
                $crate::postgres::job_row::fragments,
            )
            .replace("runs_of_the_day", $table),
        )
    };
}

/// A statement on a batch. Its parameters are the values, then an array for each column of the rows.
macro_rules! batch {
    ($name:literal, [$($value:expr),*], $rows:expr, |$row:pat_param| ($($column:expr),+ $(,)?)) => {
        query!($name $(, $value)*)$(.bind(
            $rows.iter().map(|$row| super::column::Column::element($column)).collect::<Vec<_>>(),
        ))+
    };
}

/// Executes a statement that only locks.
macro_rules! lock {
    ($tx:expr, $name:literal $(, $value:expr)*) => {
        $tx.execute(query!($name $(, $value)*)).await
    };
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
mod compact;
mod cursors;
mod days;
mod define;
mod definitions;
mod drop_days;
mod flow_runs;
mod homes;
mod horizon;
mod lease;
mod ledgers;
mod limit;
mod locks;
pub(crate) mod moving;
mod mutants;
mod open;
mod page;
mod probe;
mod queue;
mod record;
mod roles;
mod rows;
mod settle;
mod verbs;

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, RwLock, atomic::AtomicBool},
    time::Duration,
};

use everytick_domain::{ids::TenantId, partition::PARTITIONS, time::DbTime};
use sqlx::{
    PgConnection, PgPool, Postgres, Transaction,
    postgres::{PgListener, PgNotification, PgRow},
};

#[cfg(feature = "conformance")]
use crate::WallClock;
use crate::{
    Limits, Result, StoreError,
    gate::{Admission, Gate},
    unreadable::Unreadable,
};

use db_tx::Failed;
pub use open::PostgresOptions;
pub use roles::RolesInstalled;
use roles::{Form, Login};

// The names under which the code in `both/` knows this database.
type Db = Postgres;
type DbStore = PostgresStore;
type DbRow = PgRow;

/// A store in one PostgreSQL database. The handles of one process (see [`PostgresStore::api_handle`]) share what the
/// process knows of the database; each has its own connections.
pub struct PostgresStore {
    pool: PgPool,
    gate: Gate,
    login: Login,
    begin: Arc<Begin>,
    limit: limit::CallLimit,
    /// The version of the zone data with which this node plans.
    zone_data: i64,
    row_lock_timeout: Duration,
    transaction_pooler: bool,
    limits: Limits,
    days: Arc<RwLock<days::Days>>,
    definitions: Arc<definitions::Definitions>,
    lines: Arc<queue::line::Lines>,
    looked: Arc<changes::Looked>,
    /// Whether flow steps were written since [`crate::FlowStore::take_steps_written`] was last called.
    steps: Arc<AtomicBool>,
    unreadable: Arc<Unreadable>,
    #[cfg(feature = "conformance")]
    clock: Option<Arc<TestClock>>,
}

/// Notifications of other nodes.
pub struct JobHints(PgListener);

/// What a notification announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announced {
    /// Jobs, runs or owners of partitions.
    Jobs,
    /// Tokens or settings.
    Access,
    /// A lost connection was opened again, so notifications may have been missed.
    Anything,
}

impl std::fmt::Debug for JobHints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobHints").finish_non_exhaustive()
    }
}

impl JobHints {
    /// Waits for the next hint. Reopens a lost connection, which counts as a hint: one may have been missed.
    pub async fn changed(&mut self) -> Result<Announced> {
        let notification = self.0.try_recv().await.failed("listen for changes")?;
        Ok(match notification.as_ref().map(PgNotification::payload) {
            None => Announced::Anything,
            Some("tokens") => Announced::Access,
            Some(_) => Announced::Jobs,
        })
    }
}

/// The statements that begin transactions. They set the timeouts that the role does not have, and become the role that a
/// transaction needs; see `roles`.
struct Begin {
    write: Form,
    /// For claims from a queue.
    claim: Form,
    /// The same, with a short lock timeout for rows.
    claim_brief: Form,
    /// For batches of ticks, settlements and claims.
    hot: Form,
    /// For batches whose rows another session may have locked: with a short lock timeout for rows.
    brief: Form,
    read: Form,
    /// For reading thousands of jobs.
    load: Form,
    /// For long background work: moving last runs before a day's table is dropped.
    slow: Form,
}

/// A clock that a test sets. It is written to the table `test_clock`, which `everytick_now()` of the test database
/// reads.
#[cfg(feature = "conformance")]
struct TestClock {
    clock: Arc<dyn WallClock>,
    written: tokio::sync::Mutex<Option<DbTime>>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

/// A connection that the server has closed is noticed only when it is used. One call skips at most this many.
const STALE_CONNECTIONS_MAX: u32 = 20;

impl PostgresStore {
    /// Connects, migrates the schema, and creates the tables of the days. Returns [`StoreError::Unusable`] if this
    /// release cannot work with the schema.
    pub async fn connect(url: &str, options: PostgresOptions, limits: Limits) -> Result<Self> {
        open::connect(url, options, limits).await
    }

    /// Connects for reading only: writes nothing and does not migrate. Returns [`StoreError::Unusable`] for a database
    /// without an everytick schema, or with one that this release cannot work with.
    pub async fn connect_read_only(url: &str) -> Result<Self> {
        open::connect_read_only(url).await
    }

    /// A second handle, for the API. It has `connections_max` connections of its own, opened when needed. A call that
    /// waits longer than [`crate::API_WAIT_MAX`] for one gets [`StoreError::Busy`].
    #[must_use]
    pub fn api_handle(&self, connections_max: u32) -> Self {
        let options = self.pool.options().clone().max_connections(connections_max);
        Self {
            pool: options.connect_lazy_with(self.pool.connect_options().as_ref().clone()),
            gate: Gate::of(connections_max),
            login: self.login,
            begin: self.begin.clone(),
            limit: self.limit,
            transaction_pooler: self.transaction_pooler,
            zone_data: self.zone_data,
            row_lock_timeout: self.row_lock_timeout,
            limits: self.limits,
            days: self.days.clone(),
            definitions: self.definitions.clone(),
            lines: self.lines.clone(),
            looked: self.looked.clone(),
            steps: self.steps.clone(),
            unreadable: self.unreadable.clone(),
            #[cfg(feature = "conformance")]
            clock: self.clock.clone(),
        }
    }

    /// The host in the URL, if it is not this machine and `sslmode` is not `verify-full`.
    pub fn unverified_host(url: &str) -> Result<Option<String>> {
        open::unverified_host(url)
    }

    /// Only migrates the schema. The URL is the owner's.
    pub async fn migrate(url: &str) -> Result<()> {
        open::migrate_only(url, None).await.map(drop)
    }

    /// Migrates the schema, and prepares the role `app` for nodes that do not own the tables: row-level security then separates
    /// tenants. The URL is the owner's, without a transaction pooler.
    pub async fn install_roles(url: &str, app: &str) -> Result<RolesInstalled> {
        open::migrate_only(url, Some(app)).await.map(Option::unwrap_or_default)
    }

    /// Listens for changes of jobs on a connection of its own. Only a hint. `None` behind a transaction pooler, where
    /// notifications could arrive in any client's transaction.
    pub async fn listen(&self) -> Result<Option<JobHints>> {
        const DOING: &str = "listen for changes";
        if self.transaction_pooler {
            return Ok(None);
        }
        let mut listener = PgListener::connect_with(&self.pool).await.failed(DOING)?;
        listener.listen("everytick_jobs").await.failed(DOING)?;
        Ok(Some(JobHints(listener)))
    }

    /// Waits for running calls and closes the connections. Dropping a store without this loses no data either.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// The connection pool, for tests and probes.
    #[cfg(feature = "conformance")]
    #[must_use]
    pub const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Begins a write transaction. Dropped without a commit, even during a statement, it rolls back.
    async fn write(&self, doing: &'static str) -> Result<DbTx> {
        self.begin(&self.begin.write, None, doing).await
    }

    /// Begins a write transaction for a batch. Its statements are planned once per connection.
    async fn write_batch(&self, doing: &'static str) -> Result<DbTx> {
        self.begin(&self.begin.hot, None, doing).await
    }

    /// Begins a write transaction for a batch that waits for a locked row no longer than `row_lock_timeout`. The caller
    /// then repeats the batch without the locked rows; see [`is_locked`].
    async fn write_brief(&self, doing: &'static str) -> Result<DbTx> {
        self.begin(&self.begin.brief, None, doing).await
    }

    /// Begins a write transaction for long background work.
    async fn write_slow(&self, doing: &'static str) -> Result<DbTx> {
        self.begin(&self.begin.slow, None, doing).await
    }

    /// Begins a read of one snapshot.
    async fn read(&self, doing: &'static str) -> Result<DbTx> {
        self.begin(&self.begin.read, None, doing).await
    }

    /// Begins a read of many jobs in one snapshot.
    async fn read_many(&self, doing: &'static str) -> Result<DbTx> {
        self.begin(&self.begin.load, None, doing).await
    }

    /// Begins a transaction of a tenant, or of the installation.
    async fn begin(&self, form: &Form, tenant: Option<TenantId>, doing: &'static str) -> Result<DbTx> {
        let text = form.text(tenant);
        let admission = self.gate.enter(doing).await?;
        self.write_clock(doing).await?;
        let mut stale = 0;
        let tx = loop {
            match self.pool.begin_with(text.clone()).await {
                Err(error) if is_closed(&error) && stale < STALE_CONNECTIONS_MAX => stale += 1,
                begun => break begun.failed(doing)?,
            }
        };
        Ok(DbTx {
            tx,
            now: DbTime::EPOCH,
            doing,
            left_steps: false,
            steps: self.steps.clone(),
            unreadable: self.unreadable.clone(),
            oldest_day: self.oldest_day(),
            limits: self.limits,
            _admission: admission,
        })
    }

    #[cfg(not(feature = "conformance"))]
    #[expect(clippy::unused_async, reason = "async only in tests")]
    async fn write_clock(&self, _: &'static str) -> Result<()> {
        Ok(())
    }

    #[cfg(feature = "conformance")]
    async fn write_clock(&self, doing: &'static str) -> Result<()> {
        let Some(test) = &self.clock else { return Ok(()) };
        let mut written = test.written.lock().await;
        let now = test.clock.now();
        if *written != Some(now) {
            let write = format!("update test_clock set now = {}", now.millis());
            sqlx::raw_sql(sqlx::AssertSqlSafe(write)).execute(&self.pool).await.failed(doing)?;
            *written = Some(now);
        }
        Ok(())
    }
}

/// A transaction and its time, read after the locks are acquired.
struct DbTx {
    tx: Transaction<'static, Postgres>,
    now: DbTime,
    doing: &'static str,
    /// Whether it writes flow steps. If so, `steps` is set after the commit.
    left_steps: bool,
    steps: Arc<AtomicBool>,
    unreadable: Arc<Unreadable>,
    /// The oldest day that has a table.
    oldest_day: Option<days::Day>,
    limits: Limits,
    _admission: Admission,
}

impl Deref for DbTx {
    type Target = PgConnection;
    fn deref(&self) -> &PgConnection {
        &self.tx
    }
}

impl DerefMut for DbTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.tx
    }
}

/// The error of a commit: failed if the server reports it, otherwise unsure.
fn commit_error(error: sqlx::Error, doing: &'static str) -> StoreError {
    match &error {
        sqlx::Error::Database(answer) if !is_closed(&error) && answer.code().is_some() => {
            StoreError::Failed { doing, source: error.into() }
        }
        _ => StoreError::Unsure { doing, source: error.into() },
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(Into::into)
}

/// Class 22 (data exception), 23 (integrity constraint violation) and 54 (program limit exceeded).
fn is_refusal(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| ["22", "23", "54"].contains(&&code[..2]))
}

/// Whether the connection is lost: class 08, a server that shuts down or starts, or a terminated session.
fn is_closed(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::BeginFailed => true,
        error => code(error).is_some_and(|code| {
            code.starts_with("08") || ["57P01", "57P02", "25P03", "57P05"].contains(&code.as_str())
        }),
    }
}

/// A lock was not granted within its timeout: nothing was written.
fn is_locked(error: &StoreError) -> bool {
    let StoreError::Failed { source, .. } = error else { return false };
    source.downcast_ref::<sqlx::Error>().and_then(code).as_deref() == Some("55P03")
}

/// A unique index refused a row.
fn is_taken(error: &sqlx::Error, constraint: &str) -> bool {
    let answer = error.as_database_error();
    answer.is_some_and(|answer| {
        answer.is_unique_violation() && answer.constraint().is_some_and(|name| name.starts_with(constraint))
    })
}
