//! Reads the key files of the operator.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use everytick_domain::{secret::OperatorKey, wrong_input::os_error};
use serde::Deserialize;

use crate::failure::Failure;

/// A key file has one short line.
const KEY_FILE_BYTES_MAX: u64 = 1_024;
/// The permissions of the group and of others.
const OTHERS: u32 = 0o077;
const ROOT: u32 = 0;

/// Whether jobs may contain new credentials that are not references to secrets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InlineSecrets {
    #[default]
    Allow,
    Refuse,
}

/// The keys in these files, in order. No message contains a key.
pub(crate) fn read_keys(files: &[PathBuf]) -> Result<Vec<OperatorKey>, Failure> {
    files.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<OperatorKey, Failure> {
    let shown = path.display();
    let wrong = |why: String| Failure::usage(format!("--secret-key-files: {shown} {why}"));
    let failed = |error: std::io::Error| wrong(format!("could not be read: {}", os_error(&error)));
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let (mode, own) = (about.mode() & 0o777, rustix::process::geteuid().as_raw());
    if mode & OTHERS != 0 {
        return Err(wrong(format!("may be accessed by other users (mode {mode:04o}); run: chmod 600 {shown}")));
    }
    if ![own, ROOT].contains(&about.uid()) {
        let owner = about.uid();
        return Err(wrong(format!(
            "belongs to the user with the id {owner}; it must belong to the user of the server ({own}) or to root"
        )));
    }
    let mut text = zeroize::Zeroizing::new(String::new());
    file.take(KEY_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > KEY_FILE_BYTES_MAX {
        return Err(wrong(format!("is larger than {KEY_FILE_BYTES_MAX} bytes; it is not a key file")));
    }
    OperatorKey::parse(&text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_key_file_belongs_to_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read_keys(std::slice::from_ref(&path)).map(|keys| keys[0].id()).map_err(|failure| failure.to_string())
        };
        let key = OperatorKey::from_random([7; 32]);
        assert_eq!(read(&key.text(), 0o600), Ok(key.id()));
        assert_eq!(read(&key.text(), 0o400), Ok(key.id()));
        for (text, mode, expected) in [
            (key.text().as_str(), 0o640, "chmod 600"),
            (key.text().as_str(), 0o604, "chmod 600"),
            ("hunter2", 0o600, "is not a key"),
            ("", 0o600, "is not a key"),
            (&"x".repeat(2_000), 0o600, "larger than 1024 bytes"),
        ] {
            let message = read(text, mode).unwrap_err();
            assert!(message.contains(expected) && !message.contains("hunter2"), "{message}");
            assert!(message.starts_with("--secret-key-files: ") && message.contains("/key "), "{message}");
        }
        let missing = read_keys(&[dir.path().join("none")]).unwrap_err().to_string();
        assert!(missing.contains("could not be read"), "{missing}");
    }
}
