//! The commands of operators: key files, and changes of all secrets in the database itself.

use std::{
    fs::OpenOptions,
    io::{ErrorKind, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use everytick_domain::{
    secret::{OPERATOR_KEY_BYTES, OperatorKey},
    wrong_input::os_error,
};
use everytick_engine::{
    commands::Entropy as _,
    secrets::{Vault, import_inline, rekey},
};
use everytick_store::{Actor, Limits, PostgresOptions, PostgresStore, SqliteStore, Store, SystemClock};
use serde_json::json;
use zeroize::Zeroizing;

use super::refused;
use crate::{
    config::{DatabaseSource, DatabaseUrl, File, database, read_keys},
    failure::Failure,
    node::{self, OsEntropy},
    output::{self, Output},
};

pub(super) const KEYGEN_HELP: &str = "\
Examples:
  everytick secret keygen --file secret.key
  everytick serve --secret-key-files secret.key

Creates a file that only its owner can read. Keep a copy in a safe place: without the key, the secrets are lost. Without --file, the
key is printed.";

pub(super) const REKEY_HELP: &str = "\
Examples:
  everytick secret rekey --secret-key-files new.key,old.key --data-dir everytick-data
  everytick secret rekey --secret-key-files new.key,old.key --database-url-file /run/secrets/database

The first key encrypts, all decrypt. Afterwards no secret needs the other keys, and their files can be removed from
--secret-key-files of every node. Before, every node needs the new key. The command can be repeated. A SQLite file must not be open
in a server; nodes that share a PostgreSQL database keep running.";

pub(super) const IMPORT_HELP: &str = "\
Examples:
  everytick secret import-inline --dry-run --secret-key-files secret.key --data-dir everytick-data
  everytick secret import-inline --secret-key-files secret.key --data-dir everytick-data

Moves signing secrets, and headers and variables whose names say that they carry credentials, into secrets named
job.<name>.<field>. A secret of an http job is bound to the host of the job's URL. The jobs get a new version that refers to the
secrets. The command can be repeated. A SQLite file must not be open in a server; nodes that share a PostgreSQL database keep
running.";

const KEY_FILE_MODE: u32 = 0o600;

#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// Write the key to this new file
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Keygen {
    pub(super) fn run(self, out: Output) -> anyhow::Result<()> {
        let mut random = Zeroizing::new([0; OPERATOR_KEY_BYTES]);
        OsEntropy.fill(random.as_mut_slice());
        let key = OperatorKey::from_random(*random);
        let Some(path) = self.file else {
            return match out.is_json() {
                true => Ok(out.json(&json!({ "id": key.id(), "key": key.text().as_str() }))?),
                false => Ok(out.line(&key.text())?),
            };
        };
        write(&path, &key).map_err(|error| {
            let why = match error.kind() {
                _ if path.is_dir() => "it is a directory; name a new file".to_owned(),
                ErrorKind::AlreadyExists => {
                    "the file exists, and a key in it would be lost; name a new file".to_owned()
                }
                _ => os_error(&error),
            };
            Failure::usage(format!("--file: could not write {}: {why}", path.display()))
        })?;
        if out.is_json() {
            return Ok(out.json(&json!({ "id": key.id(), "file": path }))?);
        }
        output::note_line(&format!(
            "{} has the new key {}; keep a copy of it in a safe place",
            path.display(),
            key.id()
        ));
        Ok(())
    }
}

/// Never replaces a file: it could be the only copy of a key.
fn write(path: &Path, key: &OperatorKey) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(KEY_FILE_MODE).open(path)?;
    writeln!(file, "{}", key.text().as_str())?;
    file.sync_all()
}

/// The database and the keys.
#[derive(Debug, Args)]
pub(crate) struct OnDatabase {
    /// Read the keys from these files: the first encrypts, all decrypt
    #[arg(long, env = "EVERYTICK_SECRET_KEY_FILES", value_name = "FILES", value_delimiter = ',', num_args = 1)]
    secret_key_files: Option<Vec<PathBuf>>,
    /// Use the SQLite database in this directory [default: ./everytick-data]
    #[arg(long, env = "EVERYTICK_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Use this database: sqlite:<file> or postgres://...
    #[arg(long, env = "EVERYTICK_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Read the database URL from this file
    #[arg(long, env = "EVERYTICK_DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
}

impl OnDatabase {
    /// The opened database, with its schema migrated, and the keys.
    async fn open(self, file: &File) -> anyhow::Result<(Box<dyn Store>, Vault)> {
        let files = self.secret_key_files.or_else(|| file.secret_key_files.clone()).unwrap_or_default();
        let keys = read_keys(&files)?;
        if keys.is_empty() {
            return Err(
                Failure::usage("--secret-key-files is missing; `everytick secret keygen` creates a key file").into()
            );
        }
        let source = DatabaseSource { url: self.database_url, url_file: self.database_url_file };
        let store: Box<dyn Store> = match database(source, self.data_dir, file)? {
            DatabaseUrl::Sqlite(file) => {
                Box::new(SqliteStore::open(file, Arc::new(SystemClock), Limits::default()).await?)
            }
            DatabaseUrl::Postgres(url) => {
                let options = PostgresOptions { connections_max: 1, transaction_pooler: true, ..Default::default() };
                Box::new(PostgresStore::connect(&url, options, Limits::default()).await?)
            }
        };
        let vault = node::vault(store.as_ref(), keys).await?;
        let vault = vault.ok_or_else(|| Failure::usage("--secret-key-files is empty"))?;
        Ok((store, vault))
    }
}

fn operator() -> Actor {
    Actor::local("local")
}

#[derive(Debug, Args)]
pub(crate) struct Rekey {
    #[command(flatten)]
    on: OnDatabase,
}

impl Rekey {
    pub(super) async fn run(self, file: &File, out: Output) -> anyhow::Result<()> {
        let (store, vault) = self.on.open(file).await?;
        let done = rekey(store.as_ref(), &operator(), &vault, &OsEntropy).await?;
        if out.is_json() {
            let failed = done.failed.iter().map(|(place, why)| json!({ "secret": place.name, "error": why }));
            out.json(&json!({
                "key": done.key,
                "versions": done.versions,
                "removed_keys": done.forgotten,
                "failed": failed.collect::<Vec<_>>(),
            }))?;
        } else {
            out.line(&format!("{} versions are now encrypted with the key {}", done.versions, done.key))?;
            if !done.forgotten.is_empty() {
                out.line(&format!("no secret needs these keys any more: {}", done.forgotten.join(", ")))?;
            }
        }
        match done.failed.first() {
            None => Ok(()),
            Some((place, why)) => Err(refused(format!(
                "{} versions could not be decrypted; the first is {} version {}: {why}",
                done.failed.len(),
                place.name,
                place.version
            ))),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ImportInline {
    /// List the credentials, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    on: OnDatabase,
}

impl ImportInline {
    pub(super) async fn run(self, file: &File, out: Output) -> anyhow::Result<()> {
        let (store, vault) = self.on.open(file).await?;
        let found = import_inline(store.as_ref(), &operator(), &vault, &OsEntropy, self.dry_run).await?;
        if out.is_json() {
            let items = found
                .iter()
                .map(|one| json!({ "job": one.job, "field": one.field, "secret": one.secret, "left": one.left }));
            return Ok(out.json(&json!({ "dry_run": self.dry_run, "items": items.collect::<Vec<_>>() }))?);
        }
        for one in &found {
            match &one.left {
                None => out.line(&format!("{} {} -> {}", one.job, one.field, one.secret))?,
                Some(why) => output::note_line(&format!("{} {} stays in the job: {why}", one.job, one.field)),
            }
        }
        let moved = found.iter().filter(|one| one.left.is_none()).count();
        let verb = if self.dry_run { "would be moved; nothing was changed" } else { "were moved into secrets" };
        output::note_line(&format!("{moved} credentials {verb}"));
        Ok(())
    }
}
