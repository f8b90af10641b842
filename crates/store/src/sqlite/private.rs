//! Refuses a data directory, database file or lock file that another user could replace or change: a symlink, a file of
//! another user, or one that group or others may write. These files contain payloads and secrets. A symlink in a
//! directory that others can write would let them choose which file of the server's user is overwritten.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use everytick_domain::wrong_input::os_error;
use rustix::{fs::OFlags, process::geteuid};

use super::open::DOING;
use crate::{Result, StoreError};

/// Write permission of group and others.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Creates the directory of a database if it is missing, for its owner alone. Refuses a directory that is not private.
pub(super) fn folder(folder: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| not_created(folder, &error))?;
    check(folder, true)
}

/// Opens or creates a file for its owner alone; never follows a symlink.
pub(super) fn open(path: &Path) -> Result<File> {
    check(path, true)?;
    open_unfollowed(path)
}

/// The same for the lock file. Earlier releases left its mode to the umask, so a wrong mode is corrected, not refused.
pub(super) fn open_lock(path: &Path) -> Result<File> {
    check(path, false)?;
    let file = open_unfollowed(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(|error| failed(path, error))?;
    Ok(file)
}

fn open_unfollowed(path: &Path) -> Result<File> {
    let nofollow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(nofollow);
    options.open(path).map_err(|error| failed(path, error))
}

fn check(path: &Path, mode_too: bool) -> Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(|error| failed(path, error))?,
    };
    let facts = Facts {
        symlink: found.is_symlink(),
        owner: found.uid(),
        mode: if mode_too { found.mode() & 0o7777 } else { 0 },
    };
    match facts.wrong(path, geteuid().as_raw()) {
        None => Ok(()),
        Some(wrong) => Err(StoreError::Unusable(wrong)),
    }
}

fn failed(path: &Path, error: io::Error) -> StoreError {
    StoreError::Failed { doing: DOING, source: format!("{}: {error}", path.display()).into() }
}

fn not_created(folder: &Path, error: &io::Error) -> StoreError {
    let folder = folder.display();
    StoreError::Unusable(match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            format!("{folder} is not a directory, so it cannot contain the database; write another one with --data-dir")
        }
        _ => format!("{folder} could not be created: {}; write another directory with --data-dir", os_error(error)),
    })
}

/// The properties of a file or directory that are checked.
struct Facts {
    symlink: bool,
    owner: u32,
    mode: u32,
}

impl Facts {
    /// Why it is refused, and how to correct it.
    fn wrong(&self, path: &Path, me: u32) -> Option<String> {
        let (file, owner, mode) = (path.display(), self.owner, self.mode);
        if self.symlink {
            return Some(format!(
                "{file} is a symlink, which another user may have created; use the path that it points to"
            ));
        }
        if owner != me {
            return Some(format!(
                "{file} belongs to user {owner}, and this process runs as user {me}; run it as user {owner}, or change the owner"
            ));
        }
        (mode & WRITABLE_BY_OTHERS != 0)
            .then(|| format!("{file} has mode {mode:04o}, so other users may write to it; run: chmod go-w {file}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_we_own_and_no_other_user_can_write_is_accepted() {
        for (symlink, owner, mode, expected) in [
            (false, 7, 0o700, None),
            (false, 7, 0o755, None),
            (false, 7, 0o600, None),
            (true, 7, 0o777, Some("is a symlink")),
            (false, 0, 0o700, Some("belongs to user 0, and this process runs as user 7")),
            (false, 7, 0o770, Some("has mode 0770")),
            (false, 7, 0o702, Some("chmod go-w data")),
            (false, 7, 0o1777, Some("has mode 1777")),
        ] {
            let wrong = Facts { symlink, owner, mode }.wrong(Path::new("data"), 7);
            match (&wrong, expected) {
                (None, None) => {}
                (Some(wrong), Some(expected)) if wrong.contains(expected) => {}
                _ => panic!("{symlink} {owner} {mode:o}: {wrong:?}"),
            }
        }
    }
}
