//! A PostgreSQL server for tests: started from the installed binaries in its own folder, without syncing, and stopped when the
//! process ends, even by a kill.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::sync::OnceCell;

use crate::{Limits, PostgresOptions, PostgresStore, WallClock};

/// One server per process. A template database has the schema and the test clock; each test gets a copy of it.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    databases: AtomicU32,
    /// The day tables of the template, after it is made.
    template: OnceCell<Vec<String>>,
    /// Migrated databases that tests no longer use: emptying one is ten times faster than copying one.
    used: Mutex<Vec<String>>,
    drops: mpsc::Sender<String>,
}

/// The database of one test. Afterwards it is dropped, or emptied for another test.
#[derive(Debug)]
pub struct Database {
    pub url: String,
    name: String,
    again: bool,
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (Server::shared(), std::mem::take(&mut self.name));
        if self.again {
            server.used.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        } else {
            // The server may already be stopped; then the database is gone too.
            let _ = server.drops.send(name);
        }
    }
}

const TEMPLATE: &str = "everytick_template";

impl Server {
    /// The server of this process.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(Self::start)
    }

    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("everytick-postgres-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for PostgreSQL");
        // A shell keeps the server running until our end of the pipe closes. The kernel closes it even if we are killed.
        let script = r#"
            bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
            PATH="$PATH:$bin:/usr/sbin:/sbin"; export LC_ALL=C
            command -v initdb >/dev/null || { echo "no initdb: install PostgreSQL (Debian: postgresql)" >&2; exit 1; }
            as=""
            if [ "$(id -u)" = 0 ]; then
                user=postgres; id postgres >/dev/null 2>&1 || user=nobody
                chown "$user" "$1"; as="setpriv --reuid=$user --clear-groups"
            fi
            cd "$1"
            $as initdb -D "$1/data" -U postgres -A trust -E UTF8 --no-sync >"$1/initdb.log" 2>&1 || { cat "$1/initdb.log" >&2; exit 1; }
            $as postgres -D "$1/data" -k "$1" -c listen_addresses= -c fsync=off -c full_page_writes=off \
                -c max_connections=300 -c shared_buffers=256MB -c max_wal_size=4GB -c unix_socket_permissions=0777 \
                -c autovacuum_naptime=5s -c log_min_messages=fatal >"$1/log" 2>&1 &
            pid=$!
            if command -v pgbouncer >/dev/null; then
                printf '[databases]\n* = host=%s\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = %s\nlisten_port = 6432\nauth_type = any\npool_mode = transaction\nmax_client_conn = 1000\ndefault_pool_size = 4\nlogfile = %s/pooler.log\n' "$1" "$1" "$1" >"$1/pooler.ini"
                sed -i "s|^\\* = host=.*|* = host=$1 user=postgres|" "$1/pooler.ini"
                $as pgbouncer "$1/pooler.ini" >/dev/null 2>&1 &
                pooler=$!
            fi
            for i in $(seq 200); do [ -S "$1/.s.PGSQL.5432" ] && break; sleep 0.05; done
            for i in $(seq 200); do psql -h "$1" -U postgres -c 'select 1' postgres >/dev/null 2>&1 && break; sleep 0.05; done
            echo ready
            cat >/dev/null
            [ -n "$pooler" ] && kill -TERM $pooler; kill -QUIT $pid; wait; rm -rf "$1"
        "#;
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("sh");
        let mut ready = String::new();
        let stdout = child.stdout.take().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut ready).expect("a line from sh");
        assert_eq!(ready.trim(), "ready", "PostgreSQL did not start");
        let (drops, dropped) = mpsc::channel();
        let url = url(&folder, "postgres");
        std::thread::spawn(move || {
            // This thread owns the pipe to the child until the process ends.
            let _child = child;
            drop_databases(&url, &dropped);
        });
        Self { folder, databases: AtomicU32::new(0), template: OnceCell::new(), used: Mutex::default(), drops }
    }

    /// An empty database without a schema.
    pub async fn blank(&self) -> Database {
        self.create("template0", false).await
    }

    /// A database with the schema, whose clock is the one given to its store.
    pub async fn migrated(&self) -> Database {
        let template_days = self.template.get_or_init(|| self.make_template()).await;
        loop {
            let used = self.used.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(name) = used else { return self.create(TEMPLATE, true).await };
            let mut database = Database { url: url(&self.folder, &name), name, again: false };
            if empty(&database.url).await == *template_days {
                database.again = true;
                return database;
            }
        }
    }

    async fn create(&self, template: &str, again: bool) -> Database {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut admin = PgConnection::connect(&url(&self.folder, "postgres")).await.unwrap();
        let create = format!("create database {name} template {template}");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut admin).await.unwrap();
        admin.close().await.unwrap();
        Database { url: url(&self.folder, &name), name, again }
    }

    async fn make_template(&self) -> Vec<String> {
        let mut admin = PgConnection::connect(&url(&self.folder, "postgres")).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(format!("create database {TEMPLATE}"))).execute(&mut admin).await.unwrap();
        admin.close().await.unwrap();
        let url = url(&self.folder, TEMPLATE);
        PostgresStore::migrate(&url).await.unwrap();
        let mut template = PgConnection::connect(&url).await.unwrap();
        let clock = "create table test_clock (now bigint not null);
            insert into test_clock values (0);
            create or replace function everytick_now() returns bigint language sql volatile
                as $$ select now from test_clock $$;";
        sqlx::raw_sql(clock).execute(&mut template).await.unwrap();
        template.close().await.unwrap();
        // Makes the day tables around the suite's first instant, once for all copies.
        let clock: Arc<dyn WallClock> = Arc::new(crate::ManualClock::at(super::START));
        let store = PostgresStore::connect(&url, options(Some(clock)), super::LIMITS).await.unwrap();
        store.close().await;
        let mut template = PgConnection::connect(&url).await.unwrap();
        let days = days(&mut template).await;
        template.close().await.unwrap();
        days
    }

    /// A store in its own database with the given clock; through the pooler if `EVERYTICK_TEST_POOLER` is set.
    pub async fn store(&self, clock: Arc<dyn WallClock>, limits: Limits) -> (Arc<PostgresStore>, Database) {
        let database = self.migrated().await;
        let pooled = std::env::var_os("EVERYTICK_TEST_POOLER").is_some();
        let url = if pooled { self.pooled(&database).expect("pgbouncer is installed") } else { database.url.clone() };
        let options = PostgresOptions { transaction_pooler: pooled, ..options(Some(clock)) };
        let store = PostgresStore::connect(&url, options, limits).await.unwrap();
        (Arc::new(store), database)
    }

    /// The URL of the database through the transaction pooler; `None` if pgbouncer is not installed.
    #[must_use]
    pub fn pooled(&self, database: &Database) -> Option<String> {
        let socket = self.folder.join(".s.PGSQL.6432");
        socket.exists().then(|| database.url.replace("@localhost/", "@localhost:6432/"))
    }
}

/// Few connections, because many tests run at once.
#[must_use]
pub fn options(clock: Option<Arc<dyn WallClock>>) -> PostgresOptions {
    PostgresOptions { connections_max: 5, clock, ..PostgresOptions::default() }
}

/// Deletes all rows that a test left and returns the day tables. If the test made or dropped days, the caller takes another
/// database.
async fn empty(url: &str) -> Vec<String> {
    let mut database = PgConnection::connect(url).await.unwrap();
    let days = days(&mut database).await;
    let mut text = "begin;".to_owned();
    for table in [
        "jobs",
        "epochs",
        "cursors",
        "runs",
        "last_runs",
        "skip_ranges",
        "waiting",
        "attempts",
        "leases",
        "calendars",
        "secrets",
        "secret_versions",
        "secret_jobs",
        "keys",
        "calendar_versions",
        "calendar_jobs",
        "backfills",
        "backfill_runs",
        "failures",
    ] {
        text.push_str(&format!("delete from {table};"));
    }
    for crate::migrations::Step { name, works_from, .. } in crate::migrations::POSTGRES {
        text.push_str(&format!("update schema_steps set works_from = {works_from} where name = '{name}';"));
    }
    text.push_str(
        "delete from job_parents; delete from flows; delete from flow_steps; delete from backlog_work; delete from unreadable; delete from gone_nodes; delete from queue_asks; delete from worker_claims; delete from open_claims; delete from queues; delete from requests; delete from tokens; delete from settings; delete from audit; delete from tenants where id <> 1; delete from tenant_jobs; update tenants set jobs = 0, state = 'active', work = null, quotas = '{}', own_quotas = '{}', egress = '{}', own_egress = '{}', shell = true, suspended_at = null;
         insert into settings (name, value) values ('auth_required', 'false');
         update counters set value = 0 where name = 'lease_fence';
         update partitions set holder = null, fence = 0, since = 0, home_region = null; commit;",
    );
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut database).await.unwrap();
    database.close().await.unwrap();
    days
}

async fn days(database: &mut PgConnection) -> Vec<String> {
    // Compare by name: a test that dropped as many days as it made leaves the same number.
    sqlx::query_scalar("select inhrelid::regclass::text from pg_inherits where inhparent = 'runs'::regclass order by 1")
        .fetch_all(database)
        .await
        .unwrap()
}

fn url(folder: &std::path::Path, database: &str) -> String {
    format!("postgres://postgres@localhost/{database}?host={}", folder.display())
}

fn drop_databases(url: &str, dropped: &mpsc::Receiver<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for name in dropped {
        runtime.block_on(async {
            let Ok(mut admin) = PgConnection::connect(url).await else { return };
            let drop = format!("drop database if exists {name} with (force)");
            let _ = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut admin).await;
            let _ = admin.close().await;
        });
    }
}
