//! A PostgreSQL server of the tests' own: started from the installed binaries in a folder of its own, without syncing, and
//! ended when the process ends, however it ends.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::sync::OnceCell;

use crate::{Limits, PostgresOptions, PostgresStore, WallClock};

/// One server a process, with a database that has the schema and the clock of tests, which each test gets a copy of.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    databases: AtomicU32,
    template: OnceCell<()>,
    drops: mpsc::Sender<String>,
}

/// A database of one test; dropped with it.
#[derive(Debug)]
pub struct Database {
    pub url: String,
    name: String,
}

impl Drop for Database {
    fn drop(&mut self) {
        // The server may be gone already; then so is the database.
        let _ = Server::shared().drops.send(std::mem::take(&mut self.name));
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
        // A shell keeps the server until our end of the pipe closes, which the kernel sees to also when we are killed.
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
            for i in $(seq 200); do [ -S "$1/.s.PGSQL.5432" ] && break; sleep 0.05; done
            for i in $(seq 200); do psql -h "$1" -U postgres -c 'select 1' postgres >/dev/null 2>&1 && break; sleep 0.05; done
            echo ready
            cat >/dev/null
            kill -QUIT $pid; wait $pid; rm -rf "$1"
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
            // The child's end of the pipe lives here, until the process ends.
            let _child = child;
            drop_databases(&url, &dropped);
        });
        Self { folder, databases: AtomicU32::new(0), template: OnceCell::new(), drops }
    }

    /// An empty database, with nothing in it.
    pub async fn blank(&self) -> Database {
        self.create("template0").await
    }

    /// A database with the schema, whose clock is the one that its store is given.
    pub async fn migrated(&self) -> Database {
        self.template.get_or_init(|| self.make_template()).await;
        self.create(TEMPLATE).await
    }

    async fn create(&self, template: &str) -> Database {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let mut admin = PgConnection::connect(&url(&self.folder, "postgres")).await.unwrap();
        let create = format!("create database {name} template {template}");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut admin).await.unwrap();
        admin.close().await.unwrap();
        Database { url: url(&self.folder, &name), name }
    }

    async fn make_template(&self) {
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
        // Makes the days about the suite's first instant, once for all copies.
        let clock: Arc<dyn WallClock> = Arc::new(crate::ManualClock::at(super::START));
        let store = PostgresStore::connect(&url, options(Some(clock)), super::LIMITS).await.unwrap();
        store.close().await;
    }

    /// A store in a database of its own, by the given clock.
    pub async fn store(&self, clock: Arc<dyn WallClock>, limits: Limits) -> (Arc<PostgresStore>, Database) {
        let database = self.migrated().await;
        let store = PostgresStore::connect(&database.url, options(Some(clock)), limits).await.unwrap();
        (Arc::new(store), database)
    }
}

/// Few connections, since many tests run at once.
#[must_use]
pub fn options(clock: Option<Arc<dyn WallClock>>) -> PostgresOptions {
    PostgresOptions { connections_max: 5, clock, ..PostgresOptions::default() }
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
