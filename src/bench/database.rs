//! The schema or directory that a benchmark creates on the given database and removes at the end.

use std::{ffi::OsString, fs, path::PathBuf, sync::Arc};

use anyhow::Context;
use everytick_store::{BENCH_PLACE, Limits, PostgresOptions, PostgresStore, Probe, SqliteStore, Store, SystemClock};

use crate::config::DatabaseUrl;

/// The database file, in its own directory. An interrupted benchmark removes the directory. So a connection that is
/// still being opened cannot create the file again afterwards.
const FILE: &str = "bench.db";
/// The connections of an API, as in a node.
const API_CONNECTIONS: u32 = 4;
/// Removing is repeated, because another task may create a file in the directory at the same time.
const REMOVE_TRIES: usize = 10;

#[derive(Clone, Debug)]
pub(super) enum BenchDatabase {
    Sqlite { folder: PathBuf },
    Postgres { url: String, schema: String, schema_url: String },
}

impl BenchDatabase {
    /// Creates the directory beside the given file, so that it is on the same disk, or else in the current directory.
    pub(super) async fn create(database: Option<DatabaseUrl>) -> anyhow::Result<Self> {
        let mut random = [0; 6];
        getrandom::fill(&mut random).context("the operating system returned no random bytes")?;
        let suffix: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(match database {
            None => Self::create_directory("everytick".into(), &suffix)?,
            Some(DatabaseUrl::Sqlite(named)) => Self::create_directory(named.into_os_string(), &suffix)?,
            Some(DatabaseUrl::Postgres(url)) => {
                let schema = format!("{BENCH_PLACE}_{suffix}");
                let schema_url = PostgresStore::make_schema(&url, &schema).await?;
                Self::Postgres { url, schema, schema_url }
            }
        })
    }

    fn create_directory(mut name: OsString, suffix: &str) -> anyhow::Result<Self> {
        name.push(format!(".bench-{suffix}"));
        let folder = PathBuf::from(name);
        fs::create_dir(&folder).with_context(|| {
            format!("could not create the directory {}; set another location with --database-url", folder.display())
        })?;
        Ok(Self::Sqlite { folder })
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "sqlite",
            Self::Postgres { .. } => "postgres",
        }
    }

    /// The URL of the schema or file, for a server in another process.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Sqlite { folder } => format!("sqlite:{}", folder.join(FILE).display()),
            Self::Postgres { schema_url, .. } => schema_url.clone(),
        }
    }

    pub(super) async fn open(&self) -> anyhow::Result<Open> {
        let limits = Limits { jobs_per_tenant_max: u64::MAX >> 1, ..Limits::default() };
        Ok(match self {
            Self::Sqlite { folder } => {
                let store = Arc::new(SqliteStore::open(&folder.join(FILE), Arc::new(SystemClock), limits).await?);
                Open { api: Arc::new(store.api_handle()), store: store.clone(), probe: store }
            }
            Self::Postgres { schema_url, .. } => {
                let store = Arc::new(PostgresStore::connect(schema_url, PostgresOptions::default(), limits).await?);
                Open { api: Arc::new(store.api_handle(API_CONNECTIONS)), store: store.clone(), probe: store }
            }
        })
    }

    pub(super) async fn remove(&self) -> anyhow::Result<()> {
        match self {
            Self::Postgres { url, schema, .. } => PostgresStore::drop_schema(url, schema)
                .await
                .with_context(|| format!("could not drop schema {schema}; drop it by hand")),
            Self::Sqlite { folder } => {
                let mut removed = fs::remove_dir_all(folder);
                for _ in 1..REMOVE_TRIES {
                    if removed.is_ok() {
                        break;
                    }
                    removed = fs::remove_dir_all(folder);
                }
                removed.with_context(|| format!("could not remove {}; remove it by hand", folder.display()))
            }
        }
    }
}

/// The opened database: the store of a node, and the extra calls that only benchmarks use.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) store: Arc<dyn Store>,
    /// The store of an API, with its own connections as in a node.
    pub(super) api: Arc<dyn Store>,
    pub(super) probe: Arc<dyn Probe>,
}
