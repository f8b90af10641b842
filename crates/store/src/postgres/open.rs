//! Connects to PostgreSQL: opens the pool, sets the timeouts, migrates the schema, and replans after an update of the
//! zone data.

use std::{net::IpAddr, str::FromStr as _, time::Duration};

use everytick_domain::{
    schedule::{Timing, zone_data_number},
    wrong_input::os_error,
};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _, SqlSafeStr as _, SqlStr,
    postgres::{PgConnectOptions, PgPoolOptions, PgRow, PgSslMode},
};
use uuid::Uuid;

use super::{
    Begin, Failed, Gate, PostgresStore, compact, days, is_locked,
    limit::{self, CallLimit},
    moving, rows,
};
use crate::tx::{SharedTx as _, Tx as _};
use crate::{Limits, Result, StoreError, migrations::POSTGRES};

const DOING: &str = "connect to PostgreSQL";
/// The advisory lock that serializes nodes that start at once: "everytick" in ASCII, cut to eight bytes.
pub(super) const MIGRATION_LOCK: i64 = 0x6576_6572_7974_6963;

/// How a node uses the database.
#[derive(Clone)]
pub struct PostgresOptions {
    pub connections_max: u32,
    /// A transaction pooler is in use and may give each transaction another connection. Statements are then prepared
    /// each time, after prepared statements of other clients were deallocated. LISTEN is not used.
    pub transaction_pooler: bool,
    pub statement_timeout: Duration,
    pub lock_timeout: Duration,
    /// A batch waits this long for a row that another session has locked. Then it continues without that row.
    pub row_lock_timeout: Duration,
    /// A node that is stopped inside a transaction keeps its locks no longer than this.
    pub idle_in_transaction_timeout: Duration,
    /// The version of this release's zone data. Tests simulate a release with other data.
    pub zone_data: i64,
    /// A test's clock; the database's `everytick_now()` reads the table `test_clock`.
    #[cfg(feature = "conformance")]
    pub clock: Option<std::sync::Arc<dyn crate::WallClock>>,
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("connections_max", &self.connections_max)
            .field("transaction_pooler", &self.transaction_pooler)
            .field("statement_timeout", &self.statement_timeout)
            .field("lock_timeout", &self.lock_timeout)
            .field("row_lock_timeout", &self.row_lock_timeout)
            .field("idle_in_transaction_timeout", &self.idle_in_transaction_timeout)
            .finish_non_exhaustive()
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections_max: 10,
            transaction_pooler: false,
            statement_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(3),
            row_lock_timeout: Duration::from_millis(250),
            idle_in_transaction_timeout: Duration::from_millis(1_500),
            zone_data: zone_data_number(),
            #[cfg(feature = "conformance")]
            clock: None,
        }
    }
}

/// Timeouts of the role up to this value are kept.
const ROLE_TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// Jobs whose schedules are read and replanned in one transaction.
const REPLANNED_AT_ONCE: usize = 500;
const SLOW_TIMEOUT: Duration = Duration::from_mins(5);

pub(super) async fn connect(url: &str, options: PostgresOptions, limits: Limits) -> Result<PostgresStore> {
    let store = connect_unfinished(url, options, limits).await?;
    moving::check_finished(&store).await?;
    Ok(store)
}

/// Connects also while a move into the database is unfinished.
pub(super) async fn connect_unfinished(url: &str, options: PostgresOptions, limits: Limits) -> Result<PostgresStore> {
    let mut connect = parse(url)?;
    if options.transaction_pooler {
        connect = connect.statement_cache_capacity(0);
    }
    migrate(&mut first(&connect).await?).await?;
    // Shorter than the time after which a caller that waits for a connection gives up.
    let (limit, silent_after) = (CallLimit::of(&options), options.statement_timeout / 2);
    let pool = PgPoolOptions::new()
        .max_connections(options.connections_max)
        .test_before_acquire(false)
        .acquire_timeout(options.statement_timeout)
        .after_release(move |connection, _| Box::pin(limit::is_sound(connection, silent_after)))
        .connect_with(connect)
        .await
        .failed(DOING)?;
    let begin = begin(&pool, &options).await?;
    let store = PostgresStore {
        pool,
        gate: Gate::open(),
        begin: begin.into(),
        limit,
        zone_data: options.zone_data,
        row_lock_timeout: options.row_lock_timeout,
        transaction_pooler: options.transaction_pooler,
        limits,
        days: Default::default(),
        definitions: Default::default(),
        lines: Default::default(),
        looked: Default::default(),
        steps: Default::default(),
        unreadable: Default::default(),
        #[cfg(feature = "conformance")]
        clock: options.clock.map(|clock| super::TestClock { clock, written: Default::default() }.into()),
    };
    days::make(&store).await?;
    refuse_earlier(&store).await?;
    replan(&store).await?;
    Ok(store)
}

pub(super) async fn connect_read_only(url: &str) -> Result<PostgresStore> {
    // A pooler may be in use. Settings that are safe behind one are safe without one.
    let options = PostgresOptions { connections_max: 1, transaction_pooler: true, ..PostgresOptions::default() };
    let connect = parse(url)?.statement_cache_capacity(0);
    let mut connection = first(&connect).await?;
    match sqlx::raw_sql(sql!("setup/migrated")).fetch_all(&mut connection).await {
        Ok(found) => steps_made(&found)?,
        Err(sqlx::Error::Database(answer)) if answer.code().as_deref() == Some("42P01") => {
            return Err(StoreError::Unusable("the database contains no everytick data".to_owned()));
        }
        Err(error) => return Err(error).failed(DOING),
    };
    connection.close().await.failed(DOING)?;
    let pool = PgPoolOptions::new()
        .max_connections(options.connections_max)
        .test_before_acquire(false)
        .acquire_timeout(options.statement_timeout)
        .connect_with(connect)
        .await
        .failed(DOING)?;
    let read = begin(&pool, &options).await?.read;
    let [write, claim, claim_brief, hot, brief, slow, load] = [(); 7].map(|()| read.clone());
    let begin = Begin { write, claim, claim_brief, hot, brief, slow, load, read };
    Ok(PostgresStore {
        pool,
        gate: Gate::open(),
        begin: begin.into(),
        limit: CallLimit::of(&options),
        zone_data: options.zone_data,
        row_lock_timeout: options.row_lock_timeout,
        transaction_pooler: options.transaction_pooler,
        limits: Limits::default(),
        days: Default::default(),
        definitions: Default::default(),
        lines: Default::default(),
        looked: Default::default(),
        steps: Default::default(),
        unreadable: Default::default(),
        #[cfg(feature = "conformance")]
        clock: None,
    })
}

/// A move from SQLite may have brought the tokens, secrets and tenants, so the first of them was not created here.
async fn refuse_earlier(store: &PostgresStore) -> Result<()> {
    let mut write = store.write("check the settings").await?;
    write.refuse_unchecking_nodes().await?;
    write.refuse_unfilling_nodes().await?;
    write.refuse_unaware_nodes().await?;
    write.commit().await
}

/// Newer zone data may move future ticks, also to before their cursor. A cursor is a lower bound, so it is lowered to
/// now: recorded ticks stay recorded, and the next tick is found with the new data. A node with older data cannot undo
/// this: the epoch is raised and marked with the zone-data version, and such a node does not raise that cursor. Only
/// jobs with a time zone are affected. If a start is interrupted here, the next start repeats it.
async fn replan(store: &PostgresStore) -> Result<()> {
    const DOING: &str = "replan with this release's zone data";
    let mut read = store.read(DOING).await?;
    let planned: i64 = read.scalar(query!("setup/zone_data")).await?;
    drop(read);
    if planned >= store.zone_data {
        return Ok(());
    }
    let mut after = Uuid::nil();
    loop {
        let mut read = store.read(DOING).await?;
        let page = read.fetch_all(query!("setup/replan_jobs", after, rows::limit(REPLANNED_AT_ONCE))).await?;
        drop(read);
        let Some(last) = page.last() else { break };
        after = last.try_get("id").failed(DOING)?;
        let zoned: Vec<Uuid> = page.iter().filter_map(zoned_job).collect();
        if !zoned.is_empty() {
            replan_jobs(store, &zoned).await?;
        }
    }
    let mut write = store.write(DOING).await?;
    write.execute(query!("setup/set_zone_data", store.zone_data)).await?;
    write.commit().await
}

/// Locks the jobs' epochs before it changes their cursors, as every writer of cursors does. A concurrent raise of
/// cursors skips the locked jobs, so the two never deadlock. The raised epoch makes the owner reload the job.
async fn replan_jobs(store: &PostgresStore, jobs: &[Uuid]) -> Result<()> {
    const DOING: &str = "replan with this release's zone data";
    let mut write = store.write(DOING).await?;
    write.execute(query!("epochs/lock_epochs", jobs)).await?;
    let now = write.read_clock().await?.millis();
    write.execute(query!("setup/replan", jobs, now)).await?;
    write.execute(query!("setup/replan_epochs", jobs, store.zone_data)).await?;
    write.execute(query!("epochs/raise_epochs", jobs, now)).await?;
    write.notify_owners().await?;
    write.commit().await
}

/// The id of a job whose ticks depend on zone data. A job that cannot be decoded has no ticks.
fn zoned_job(row: &PgRow) -> Option<Uuid> {
    let spec = compact::read(row.try_get("name").ok()?, row.try_get("spec").ok()?).ok()?;
    match &spec.schedule.as_ref()?.timing {
        Timing::Cron { timezone, .. } if timezone != "UTC" => row.try_get("id").ok(),
        _ => None,
    }
}

pub(super) async fn migrate_only(url: &str) -> Result<()> {
    let mut connection = first(&parse(url)?).await?;
    migrate(&mut connection).await?;
    connection.close().await.failed(DOING)
}

pub(super) fn parse(url: &str) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url).map_err(|error| {
        StoreError::Unusable(format!("the database URL is invalid ({error}); write postgres://user@host/database"))
    })?;
    // Poolers refuse settings that they do not know.
    Ok(options.extra_float_digits(None).application_name("everytick").disable_statement_logging())
}

/// The host, if it is not this machine and the connection does not verify the server's certificate and name.
pub(super) fn unverified_host(url: &str) -> Result<Option<String>> {
    let options = parse(url)?;
    let host = options.get_host();
    // A path is the directory of a Unix socket.
    let local = options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    let verified = matches!(options.get_ssl_mode(), PgSslMode::VerifyFull);
    Ok((!local && !verified).then(|| host.to_owned()))
}

pub(super) async fn first(options: &PgConnectOptions) -> Result<PgConnection> {
    options.connect().await.map_err(|error| match error {
        sqlx::Error::Database(answer) => {
            StoreError::Unusable(format!("the database refused the connection: {}", answer.message()))
        }
        error => {
            let why = match &error {
                sqlx::Error::Io(io) => os_error(io),
                error => error.to_string(),
            };
            let source = format!("{} port {}: {why}", options.get_host(), options.get_port());
            StoreError::Failed { doing: DOING, source: source.into() }
        }
    })
}

/// A transaction pooler loses session settings, so the timeouts come from the role or are set in each transaction. A
/// day's new table has no statistics: without `enable_seqscan = off` the planner would scan it.
async fn begin(pool: &sqlx::PgPool, options: &PostgresOptions) -> Result<Begin> {
    // As a simple query: outside a transaction, a pooler might send the parts of a prepared statement to different
    // connections.
    let row = sqlx::raw_sql(sql!("setup/timeouts")).fetch_one(pool).await.failed(DOING)?;
    let mut settings = String::new();
    for (name, wanted) in [
        ("statement_timeout", options.statement_timeout),
        ("lock_timeout", options.lock_timeout),
        ("idle_in_transaction_session_timeout", options.idle_in_transaction_timeout),
    ] {
        let millis: i64 = row.try_get(name).failed(DOING)?;
        let role = Duration::from_millis(millis.unsigned_abs());
        if role.is_zero() || role > ROLE_TIMEOUT_MAX.min(wanted * 4) {
            settings.push_str(&format!("; set local {name} = {}", wanted.as_millis()));
        }
    }
    // An acknowledged write must survive a crash of the database server (I16). A stricter setting stays as it is.
    if row.try_get::<bool, _>("commits_unsynced").failed(DOING)? {
        settings.push_str("; set local synchronous_commit = on");
        tracing::warn!(
            "PostgreSQL has synchronous_commit = off for this role: a crash of the server could lose acknowledged writes; \
             everytick sets it to on for its own transactions"
        );
    }
    if row.try_get::<bool, _>("never_syncs").failed(DOING)? {
        tracing::warn!("PostgreSQL has fsync = off: a crash of its machine can lose or corrupt acknowledged writes");
    }
    // A sequential scan that is disabled but the only way (the small table `leases` has no index) gets a very high
    // cost, so the server would JIT-compile each such statement: 36 ms for one row, at every load and every take-over.
    settings.push_str("; set local enable_seqscan = off; set local jit = off");
    if options.transaction_pooler {
        settings.push_str("; deallocate all");
    }
    let begin =
        |how: &str, more: &str| -> SqlStr { AssertSqlSafe(format!("begin {how}{settings}{more}")).into_sql_str() };
    let slow = SLOW_TIMEOUT.as_millis();
    let patience = |limit: Duration| format!("; set local lock_timeout = {}", limit.as_millis().max(1));
    let (brief, in_line) = (patience(options.row_lock_timeout), patience(options.row_lock_timeout * 4));
    // With thousands of ids in an array, a custom plan costs more than a fifth of the statement, and it scans all jobs
    // instead of looking up each one.
    let generic = "; set local plan_cache_mode = force_generic_plan";
    // A queue is usually empty when statistics are collected. The planner would then sort all waiting runs instead of
    // reading the requested number in index order.
    let ordered = "; set local enable_sort = off; set local enable_bitmapscan = off";
    Ok(Begin {
        write: begin("isolation level read committed read write", ""),
        claim: begin("isolation level read committed read write", ordered),
        // Claims of one job wait for each other, so this timeout is longer than the one for a row that no session
        // should have locked.
        claim_brief: begin("isolation level read committed read write", &format!("{ordered}{in_line}")),
        hot: begin("isolation level read committed read write", generic),
        brief: begin("isolation level read committed read write", &format!("{generic}{brief}")),
        read: begin("isolation level repeatable read read only", ""),
        load: begin("isolation level repeatable read read only", generic),
        slow: begin(
            "isolation level read committed read write",
            &format!("; set local statement_timeout = {slow}; set local enable_seqscan = on"),
        ),
    })
}

/// A statement that changes a table waits this long for its lock. Meanwhile all other statements on the table queue
/// behind it.
const STEP_LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before the next attempt, in which the queued statements proceed.
const STEP_PAUSE: Duration = Duration::from_secs(1);
/// The start fails after this many attempts. A session such as `pg_dump` may keep its locks for long.
const STEP_TRIES: u32 = 60;

/// Migrates the schema. If another session has locked a table, it releases its locks and tries again: the statements of
/// live nodes must not queue behind it.
async fn migrate(connection: &mut PgConnection) -> Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        match migrate_once(connection).await {
            Err(error) if is_locked(&error) && tries < STEP_TRIES => {
                tracing::info!(%error, tries, "a table is locked; retrying the schema migration");
                tokio::time::sleep(STEP_PAUSE).await;
            }
            done => return done,
        }
    }
}

/// Migrates in one transaction, under an advisory lock that ends with it. Steps of a newer release are accepted if they
/// declare that this release works with them: nodes of two releases run side by side.
async fn migrate_once(connection: &mut PgConnection) -> Result<()> {
    const DOING: &str = "migrate the schema";
    let begin = "begin; set local lock_timeout = 60000; set local statement_timeout = 0; deallocate all";
    let mut tx = connection.begin_with(begin).await.failed(DOING)?;
    let done = migrate_in(&mut tx).await;
    match done {
        Ok(()) => tx.commit().await.failed(DOING),
        Err(error) => {
            tx.rollback().await.failed(DOING)?;
            Err(error)
        }
    }
}

async fn migrate_in(tx: &mut PgConnection) -> Result<()> {
    const DOING: &str = "migrate the schema";
    query!("setup/migration_lock", MIGRATION_LOCK).persistent(false).execute(&mut *tx).await.failed(DOING)?;
    let patience = format!("set local lock_timeout = {}", STEP_LOCK_TIMEOUT.as_millis());
    sqlx::raw_sql(AssertSqlSafe(patience)).execute(&mut *tx).await.failed(DOING)?;
    sqlx::raw_sql(sql!("setup/migration_table")).execute(&mut *tx).await.failed(DOING)?;
    let found = query!("setup/migrated").persistent(false).fetch_all(&mut *tx).await.failed(DOING)?;
    let has = steps_made(&found)?;
    for (number, step) in (1..).zip(&POSTGRES).filter(|(number, _)| *number > has) {
        sqlx::raw_sql(step.text).execute(&mut *tx).await.failed(DOING)?;
        query!("setup/migrated_step", number, step.name, step.works_from)
            .persistent(false)
            .execute(&mut *tx)
            .await
            .failed(DOING)?;
    }
    Ok(())
}

/// The last step of the schema, if this release works with all of them.
fn steps_made(found: &[PgRow]) -> Result<i32> {
    const DOING: &str = "read the schema version";
    let mut has = 0;
    for row in found {
        let (step, works_from): (i32, i32) =
            (row.try_get("step").failed(DOING)?, row.try_get("works_from").failed(DOING)?);
        let ours = POSTGRES.len() as i32;
        if step > ours && works_from > ours {
            return Err(StoreError::Unusable(format!(
                "the database was written by a newer everytick (its schema is at step {step}, which needs a release that \
                 knows step {works_from}; this one knows {ours}); use that release"
            )));
        }
        has = has.max(step);
    }
    Ok(has)
}
