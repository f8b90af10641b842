//! Which database to use: its URL in a flag, a variable, the settings file or a file of its own.

use std::{
    fmt, fs,
    io::Read as _,
    path::{Path, PathBuf},
    str::FromStr,
};

use everytick_domain::wrong_input::os_error;

use super::File;
use crate::failure::Failure;

const DATABASE_FILE: &str = "everytick.db";
const DATA_DIR_DEFAULT: &str = "./everytick-data";

/// A database URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum DatabaseUrl {
    Sqlite(PathBuf),
    /// The whole URL, which may contain a password.
    Postgres(String),
}

/// Shows no password.
impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DatabaseUrl").field(&self.shown()).finish()
    }
}

impl DatabaseUrl {
    /// Parses the value of the flag, variable or key `database_url`.
    pub(crate) fn read(text: &str) -> Result<Self, Failure> {
        Self::read_named(text, "--database-url")
    }

    fn read_named(text: &str, name: &str) -> Result<Self, Failure> {
        text.parse().map_err(|wrong| Failure::usage(format!("{name} {wrong}")))
    }

    /// The URL for messages: without password and parameters.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Sqlite(file) => file.display().to_string(),
            Self::Postgres(url) => {
                let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
                let rest = rest.split_once('?').map_or(rest, |(address, _)| address);
                let Some((user, host)) = rest.rsplit_once('@') else { return format!("postgres://{rest}") };
                format!("postgres://{}@{host}", user.split_once(':').map_or(user, |(name, _)| name))
            }
        }
    }
}

impl FromStr for DatabaseUrl {
    type Err = String;

    /// The message does not repeat the URL, which may contain a password.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        let file = text.strip_prefix("sqlite:").map(|rest| rest.strip_prefix("//").unwrap_or(rest));
        match file {
            Some(":memory:") => {
                Err("names an in-memory database, which would forget every tick; write sqlite:<file>".to_owned())
            }
            Some(file) if !file.is_empty() => Ok(Self::Sqlite(PathBuf::from(file))),
            _ => Err("is not a database URL; write it like \"sqlite:jobs.db\" or \"postgres://user@host/database\""
                .to_owned()),
        }
    }
}

/// The database as one source names it: flags and variables, or the settings file.
#[derive(Debug, Default)]
pub(crate) struct DatabaseSource {
    pub(crate) url: Option<String>,
    /// A file that contains the URL.
    pub(crate) url_file: Option<PathBuf>,
}

/// Limit for a URL that is read from a file.
const URL_BYTES_MAX: u64 = 16 * 1024;

impl DatabaseSource {
    /// `named` has the names of both settings for messages: a flag, or a file, a line and a key.
    fn read(self, named: [&str; 2]) -> Result<Option<DatabaseUrl>, Failure> {
        let [url, url_file] = named;
        match (self.url, self.url_file) {
            (None, None) => Ok(None),
            (Some(text), None) => DatabaseUrl::read_named(&text, url).map(Some),
            (None, Some(path)) => Self::read_file(&path, url_file).map(Some),
            (Some(_), Some(path)) => Err(Failure::usage(format!(
                "{url} and {url_file} {} both name the database; set only one of them",
                path.display()
            ))),
        }
    }

    /// No message repeats the content of the file: it may contain a password.
    fn read_file(path: &Path, named: &str) -> Result<DatabaseUrl, Failure> {
        let wrong = |what: &str| Failure::usage(format!("{named}: {} {what}", path.display()));
        let mut text = String::new();
        let read = fs::File::open(path).and_then(|file| file.take(URL_BYTES_MAX + 1).read_to_string(&mut text));
        match read {
            Err(error) => Err(wrong(&format!("could not be read: {}", os_error(&error)))),
            Ok(bytes) if bytes as u64 > URL_BYTES_MAX => Err(wrong(&format!("is longer than {URL_BYTES_MAX} bytes"))),
            Ok(_) => text.trim().parse().map_err(|message: String| wrong(&format!("contains a URL that {message}"))),
        }
    }
}

/// The database that flags and variables name, else the one in the settings file, else the file in the data directory.
pub(crate) fn database(flags: DatabaseSource, data_dir: Option<PathBuf>, file: &File) -> Result<DatabaseUrl, Failure> {
    let file_source = DatabaseSource { url: file.database_url.clone(), url_file: file.database_url_file.clone() };
    let key_lines = ["database_url", "database_url_file"].map(|key| file.key_lines.of(key));
    let url = match flags.read(["--database-url", "--database-url-file"])? {
        Some(url) => Some(url),
        None => file_source.read([&key_lines[0], &key_lines[1]])?,
    };
    Ok(url.unwrap_or_else(|| {
        let data_dir = data_dir.or_else(|| file.data_dir.clone()).unwrap_or_else(|| PathBuf::from(DATA_DIR_DEFAULT));
        DatabaseUrl::Sqlite(data_dir.join(DATABASE_FILE))
    }))
}
