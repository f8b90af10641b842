//! Where a benchmark works: a schema or a file of its own, on the database that was named, removed at the end.

use std::{fs, io, path::PathBuf, sync::Arc};

use anyhow::Context;
use everytick_store::{BENCH_PLACE, Limits, PostgresOptions, PostgresStore, Probe, SqliteStore, Store, SystemClock};

use crate::config::DatabaseUrl;

/// What SQLite and our lock put beside a file.
const BESIDE: [&str; 4] = ["", "-wal", "-shm", ".lock"];

#[derive(Clone, Debug)]
pub(super) enum Place {
    Sqlite { file: PathBuf },
    Postgres { url: String, schema: String, inside: String },
}

impl Place {
    /// Beside the file that was named, so that it lies on the same disk; without one, in the present folder.
    pub(super) async fn make(database: Option<DatabaseUrl>) -> anyhow::Result<Self> {
        let mut random = [0; 6];
        getrandom::fill(&mut random).context("the operating system gives no random bytes")?;
        let mark: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(match database {
            None => Self::Sqlite { file: PathBuf::from(format!("everytick-bench-{mark}.db")) },
            Some(DatabaseUrl::Sqlite(named)) => {
                let mut file = named.into_os_string();
                file.push(format!(".bench-{mark}"));
                Self::Sqlite { file: file.into() }
            }
            Some(DatabaseUrl::Postgres(url)) => {
                let schema = format!("{BENCH_PLACE}_{mark}");
                let inside = PostgresStore::make_schema(&url, &schema).await?;
                Self::Postgres { url, schema, inside }
            }
        })
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "sqlite",
            Self::Postgres { .. } => "postgres",
        }
    }

    /// The address of the place itself, for a server in another process.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Sqlite { file } => format!("sqlite:{}", file.display()),
            Self::Postgres { inside, .. } => inside.clone(),
        }
    }

    pub(super) async fn open(&self) -> anyhow::Result<Open> {
        let limits = Limits { jobs_per_tenant_max: u64::MAX >> 1, ..Limits::default() };
        Ok(match self {
            Self::Sqlite { file } => {
                let store = Arc::new(SqliteStore::open(file, Arc::new(SystemClock), limits).await?);
                Open { store: store.clone(), probe: store }
            }
            Self::Postgres { inside, .. } => {
                let store = Arc::new(PostgresStore::connect(inside, PostgresOptions::default(), limits).await?);
                Open { store: store.clone(), probe: store }
            }
        })
    }

    pub(super) async fn remove(&self) -> anyhow::Result<()> {
        match self {
            Self::Postgres { url, schema, .. } => {
                PostgresStore::drop_schema(url, schema).await.with_context(|| format!("drop schema {schema} by hand"))
            }
            Self::Sqlite { file } => {
                for beside in BESIDE {
                    let mut name = file.clone().into_os_string();
                    name.push(beside);
                    match fs::remove_file(&name) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => {
                            return Err(error).with_context(|| format!("remove {} by hand", file.display()));
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
        }
    }
}

/// The place, opened: what a node works with, and what only a benchmark asks.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) store: Arc<dyn Store>,
    pub(super) probe: Arc<dyn Probe>,
}
