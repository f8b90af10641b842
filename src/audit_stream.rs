//! The receivers of the audit trail: a file, stderr, or an HTTPS server. The engine decides what is sent and when.

use std::{
    fs::OpenOptions,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use everytick_api::audit_lines;
use everytick_domain::wrong_input::os_error;
use everytick_engine::AuditSink;
use everytick_store::AuditRecord;
use everytick_targets::Targets;
use reqwest::Url;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::config::AuditStream;

const NDJSON: &str = "application/x-ndjson";
/// The trail names users and addresses, so only the server's user reads the file.
const FILE_MODE: u32 = 0o600;

/// Where one stream goes.
enum Sink {
    File { path: PathBuf, writing: Arc<Mutex<()>> },
    Stderr { writing: Arc<Mutex<()>> },
    Https { url: Url, targets: Arc<Targets> },
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

/// The receiver that the operator has set. A URL is called under the rules of webhooks.
pub(crate) fn sink(stream: &AuditStream, targets: &Arc<Targets>) -> Arc<dyn AuditSink> {
    Arc::new(match stream {
        AuditStream::File(path) => Sink::File { path: path.clone(), writing: Arc::default() },
        AuditStream::Stderr => Sink::Stderr { writing: Arc::default() },
        AuditStream::Https(url) => Sink::Https { url: url.clone(), targets: targets.clone() },
    })
}

#[async_trait]
impl AuditSink for Sink {
    async fn send(&self, rows: Vec<AuditRecord>) -> Result<(), String> {
        let text = audit_lines(rows);
        match self {
            Self::Https { url, targets } => targets.post(url, NDJSON, text).await,
            Self::File { path, writing } => {
                let path = path.clone();
                write(writing, move || append(&path, &text).map_err(|error| at(&path, &error))).await
            }
            Self::Stderr { writing } => {
                let print =
                    move || io::stderr().lock().write_all(&text).map_err(|error| at(Path::new("stderr"), &error));
                write(writing, print).await
            }
        }
    }
}

fn at(path: &Path, error: &io::Error) -> String {
    format!("could not write to {}: {}", path.display(), os_error(error))
}

/// Writes in a thread of its own. A write that hangs, such as to a pipe that is not read, makes the next ones fail; it does not
/// occupy a further thread.
async fn write(
    writing: &Arc<Mutex<()>>,
    write: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let Ok(one) = writing.clone().try_lock_owned() else {
        return Err("the last write has not ended".to_owned());
    };
    let done = tokio::task::spawn_blocking(move || {
        let _one: OwnedMutexGuard<()> = one;
        write()
    });
    done.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// Appends whole lines, and waits until the disk has them. Opens the file each time, so that it can be moved away. After a line
/// that an earlier write could not complete, the text begins on a new line.
fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(FILE_MODE);
    // Without NONBLOCK, a FIFO without a reader would hang. A symlink could lead elsewhere.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let mut file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() || kind.is_socket() || kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let has_text = file.seek(SeekFrom::End(0))? > 0;
    if has_text {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    file.write_all(text)?;
    file.sync_data()?;
    if has_text {
        return Ok(());
    }
    // The name of a new file must survive a power cut too.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn lines_are_appended_to_a_file_of_the_servers_user_and_a_torn_line_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit");
        append(&path, b"1\n2\n").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, FILE_MODE);
        std::fs::write(&path, "1\n2\n3").unwrap();
        append(&path, b"3\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n3\n3\n");
        // A file that was moved away is created again.
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        append(&path, b"4\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "4\n");
    }

    #[test]
    fn only_a_regular_file_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink(dir.path().join("elsewhere"), &link).unwrap();
        assert!(append(&link, b"1\n").is_err() && append(dir.path(), b"1\n").is_err());
        assert!(!dir.path().join("elsewhere").exists());
    }
}
