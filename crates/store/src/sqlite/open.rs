//! Opens the SQLite file: the lock that excludes other processes, the connections, and the schema.

use std::{
    fs::{File, TryLockError},
    io::{Read, Write as _},
    path::Path,
    sync::Arc,
    time::Duration,
};

use sqlx::{
    ConnectOptions, SqlSafeStr, SqlitePool,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use everytick_domain::{schedule::zone_data_number, time::DbTime};

use super::{Failed, Gates, SqliteStore, moving, private};
use crate::{Limits, Result, StoreError, WallClock, gate::Gate, migrations::SQLITE};

/// In addition to those of the API's handle.
const READERS_MAX: u32 = 3;
/// Backups and the sqlite3 shell may lock the file for a moment.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Of 1, 2, 4 and 8 KiB, 8 KiB recorded fastest, 10 % faster than 4 KiB.
const PAGE_BYTES: u32 = 8_192;
/// 64 MiB of WAL between checkpoints: a page that many batches change is then copied into the file once, not once per
/// batch.
const CHECKPOINT_PAGES: &str = "8192";
pub(super) const DOING: &str = "open the SQLite file";
/// The first handle is the engine's, which has no limit.
const OPEN: Gates = Gates { write: Gate::open(), read: Gate::open() };

/// Refuses a file whose installation was moved: both copies would fire every job.
pub(super) async fn open(path: &Path, clock: Arc<dyn WallClock>, limits: Limits) -> Result<SqliteStore> {
    let store = open_marked(path, clock, limits).await?;
    match moving::mark(&store).await? {
        None => Ok(store),
        Some(mark) => {
            store.close().await;
            Err(mark.refusal(path))
        }
    }
}

pub(super) async fn open_marked(path: &Path, clock: Arc<dyn WallClock>, limits: Limits) -> Result<SqliteStore> {
    let lock = lock(path)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(false)
        .busy_timeout(BUSY_TIMEOUT)
        .page_size(PAGE_BYTES)
        .pragma("temp_store", "memory")
        .pragma("cache_size", "-65536")
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", "134217728")
        .statement_cache_capacity(200)
        .disable_statement_logging();
    // The pools never close idle connections: closing the last one would checkpoint and delete the WAL.
    let pool = || SqlitePoolOptions::new().test_before_acquire(false).idle_timeout(None).max_lifetime(None);
    let writer =
        pool().max_connections(1).connect_with(options.clone()).await.map_err(|error| unopened(path, error))?;
    migrate(path, &writer).await?;
    replan(&writer, clock.now()).await?;
    let reading = options.pragma("query_only", "on").pragma("cache_size", "-16384");
    let readers = pool().max_connections(READERS_MAX).connect_with(reading).await.failed(DOING)?;
    Ok(SqliteStore {
        writer,
        readers,
        gates: OPEN,
        clock,
        limits,
        steps: Default::default(),
        unreadable: Default::default(),
        _lock: lock.into(),
    })
}

pub(super) async fn open_read_only(path: &Path, clock: Arc<dyn WallClock>) -> Result<SqliteStore> {
    let file = path.display();
    if !path.is_file() {
        return Err(StoreError::Unusable(format!("there is no file {file}")));
    }
    let lock = lock(path)?;
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("query_only", "on")
        .disable_statement_logging();
    let pool = || SqlitePoolOptions::new().max_connections(1).test_before_acquire(false);
    let readers = pool().connect_with(options.clone()).await.map_err(|error| unopened(path, error))?;
    let found: i64 = match sqlx::query_scalar(sql!("setup/schema_step")).fetch_one(&readers).await {
        Err(error) if error.as_database_error().is_some_and(|answer| answer.message().contains("no such table")) => {
            return Err(StoreError::Unusable(format!("{file} contains no everytick data")));
        }
        found => found.map_err(|error| unopened(path, error))?,
    };
    if migrator().iter().all(|step| step.version < found) {
        return Err(newer(path, found));
    }
    let writer = pool().connect_lazy_with(options);
    let (limits, steps) = (Limits::default(), Default::default());
    Ok(SqliteStore {
        writer,
        readers,
        gates: OPEN,
        clock,
        limits,
        steps,
        unreadable: Default::default(),
        _lock: lock.into(),
    })
}

fn newer(path: &Path, version: i64) -> StoreError {
    StoreError::Unusable(format!(
        "{} was written by a newer everytick (its schema is at {version}); use that release, or an older copy of the file",
        path.display()
    ))
}

/// SQLite itself admits several processes, and two schedulers on one file would each assume that they are alone.
fn lock(path: &Path) -> Result<File> {
    let failed = |source: std::io::Error| StoreError::Failed { doing: DOING, source: source.into() };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    private::folder(folder.unwrap_or(Path::new(".")))?;
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    // The file contains payloads and secrets, so only its owner may read it. SQLite creates the WAL with the same mode.
    private::open(path)?;
    let mut file = private::open_lock(Path::new(&name))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // The pid is only a help: the refusal does not depend on it.
            let _ = file.read_to_string(&mut pid);
            let pid = if pid.is_empty() { "unknown" } else { pid.trim() };
            return Err(StoreError::Unusable(format!(
                "{} is open in another everytick process (pid {pid}); stop it first, or use another file",
                path.display()
            )));
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
}

fn unopened(path: &Path, error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|error| error.code());
    if code.as_deref() == Some("26") {
        return StoreError::Unusable(format!("{} is not a SQLite file", path.display()));
    }
    StoreError::Failed { doing: DOING, source: error.into() }
}

/// Different zone data may move future ticks, also to before their cursor. A cursor is a lower bound, so it is lowered
/// to now: recorded ticks stay recorded, and the next tick is found with the new data.
async fn replan(writer: &SqlitePool, now: DbTime) -> Result<()> {
    let doing = "replan with this release's zone data";
    let mut transaction = writer.begin().await.failed(doing)?;
    let planned: i64 = sqlx::query_scalar(sql!("setup/zone_data")).fetch_one(&mut *transaction).await.failed(doing)?;
    if planned != zone_data_number() {
        query!("setup/replan", now.millis()).execute(&mut *transaction).await.failed(doing)?;
        query!("setup/set_zone_data", zone_data_number()).execute(&mut *transaction).await.failed(doing)?;
    }
    transaction.commit().await.failed(doing)
}

fn migrator() -> Migrator {
    let step = |(version, name, text): (i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, text.into_sql_str(), false)
    };
    Migrator::with_migrations(SQLITE.map(step).into())
}

async fn migrate(path: &Path, writer: &SqlitePool) -> Result<()> {
    let file = path.display();
    migrator().run(writer).await.map_err(|error| match error {
        MigrateError::VersionMissing(version) => newer(path, version),
        MigrateError::VersionMismatch(version) => StoreError::Unusable(format!(
            "{file} was written by a different everytick: step {version} of its schema differs from this release's"
        )),
        MigrateError::Execute(error) => unopened(path, error),
        error => StoreError::Failed { doing: "migrate the schema of the SQLite file", source: error.into() },
    })
}
