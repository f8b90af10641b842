//! The files of a TLS listener.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use everytick_domain::wrong_input::os_error;

/// Largest file that is read. A chain of certificates has a few KiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The permissions of users who are neither the owner nor in the group of a file.
const OTHERS: u32 = 0o007;

/// Whether clients show a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientAuth {
    #[default]
    None,
    /// A client may show a certificate; a wrong one is refused.
    Optional,
    Required,
}

/// Paths of PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate of the server, followed by the intermediate certificates.
    pub cert: PathBuf,
    /// Its private key. Other users may not read it.
    pub key: PathBuf,
    /// The authorities that issue the certificates of clients.
    pub client_ca: Option<PathBuf>,
    pub client_auth: ClientAuth,
}

/// The contents of the files.
pub(super) struct Pems {
    pub(super) cert: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) client_ca: Option<Vec<u8>>,
}

impl Pems {
    pub(super) fn read(files: &TlsFiles) -> Result<Self, String> {
        let client_ca = files.client_ca.as_deref().map(|path| read("--tls-client-ca", path, false)).transpose()?;
        Ok(Self { cert: read("--tls-cert", &files.cert, false)?, key: read("--tls-key", &files.key, true)?, client_ca })
    }

    /// A hash of the files' contents, to find out whether a file has changed.
    pub(super) fn fingerprint(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for part in [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten() {
            hasher.update(blake3::hash(part).as_bytes());
        }
        hasher.finalize()
    }
}

fn read(flag: &str, path: &Path, is_private: bool) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("{flag}: could not read {shown}: {}", os_error(&error));
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if is_private && mode & OTHERS != 0 {
        return Err(format!("{flag}: other users may access {shown} (mode {mode:04o}); run: chmod 600 {shown}"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{flag}: {shown} is larger than {FILE_BYTES_MAX} bytes; write the path of a PEM file"));
    }
    Ok(bytes)
}
