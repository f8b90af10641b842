//! Binds the listeners of `everytick serve`.

use std::{
    fs,
    io::{self, ErrorKind},
    net::SocketAddr,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use everytick_api::{Listener, Tls};
use tokio::net::{TcpListener, UnixListener};

use crate::{config::Listen, failure::Failure};

/// Members of the socket's group may connect; the server then checks the user of each peer.
const SOCKET_MODE: u32 = 0o660;

/// The bound listeners of a node.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) listeners: Vec<Listener>,
    /// The TCP addresses, with the real ports.
    pub(crate) addresses: Vec<SocketAddr>,
    /// What `--server` needs to reach each listener, in the order of the flags.
    pub(crate) servers: Vec<String>,
    /// Removes the socket files when the node has stopped.
    _files: Vec<SocketFile>,
}

/// Binds all listeners. With `tls`, the TCP listeners serve HTTPS.
pub(crate) async fn bind(listen: &[Listen], tls: Option<&Tls>) -> anyhow::Result<Bound> {
    let mut bound = Bound { listeners: Vec::new(), addresses: Vec::new(), servers: Vec::new(), _files: Vec::new() };
    for one in listen {
        match one {
            Listen::Tcp(address) => {
                let listener = bind_tcp(*address).await?;
                let address = listener.local_addr()?;
                bound.addresses.push(address);
                let scheme = if tls.is_some() { "https" } else { "http" };
                bound.servers.push(format!("{scheme}://{address}"));
                bound.listeners.push(match tls {
                    Some(tls) => Listener::Tls(listener, tls.clone()),
                    None => listener.into(),
                });
            }
            Listen::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                bound.servers.push(one.to_string());
                bound.listeners.push(listener.into());
                bound._files.push(file);
            }
        }
    }
    Ok(bound)
}

async fn bind_tcp(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow::anyhow!(
                "{address} is in use; is everytick already running there? Choose another address with --listen"
            )
        }
        _ => anyhow::Error::new(error).context(format!("could not listen on {address}")),
    })
}

/// A process that was killed leaves its socket file. It is removed only if no process listens on it.
fn bind_unix(path: &Path) -> anyhow::Result<(UnixListener, SocketFile)> {
    let shown = path.display();
    let failed = |what: &str, error: io::Error| anyhow::Error::new(error).context(format!("could not {what} {shown}"));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed("read the socket", error)),
        Ok(found) if !found.file_type().is_socket() => {
            let message = format!("--listen: {shown} exists and is not a socket; choose another path");
            return Err(Failure::usage(message).into());
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(|error| failed("remove the stale socket", error))?;
            }
            Err(error) => return Err(failed("check the socket", error)),
            Ok(_) => anyhow::bail!(
                "{shown} is in use; is everytick already running there? Choose another path with --listen"
            ),
        },
    }
    let listener = UnixListener::bind(path).map_err(|error| failed("listen on", error))?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))
        .map_err(|error| failed("set the permissions of", error))?;
    let inode = fs::symlink_metadata(path).map_err(|error| failed("read the socket", error))?.ino();
    Ok((listener, SocketFile { path: path.to_owned(), inode }))
}

/// The file of a socket that this process bound. Dropping it removes the file, unless another process has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // A file that remains is removed at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_socket_in_use_or_another_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let listen = [Listen::Unix(path.clone())];
        // A socket file that no process listens on.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let bound = bind(&listen, None).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        assert_eq!(bound.servers, [format!("unix:{}", path.display())]);
        let in_use = bind(&listen, None).await.unwrap_err().to_string();
        assert!(in_use.contains("is in use"), "{in_use}");
        drop(bound);
        assert!(!path.exists(), "the socket file is removed when the node stops");

        fs::write(&path, "data").unwrap();
        let other = bind(&listen, None).await.unwrap_err().to_string();
        assert!(other.contains("is not a socket"), "{other}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    #[tokio::test]
    async fn a_replaced_socket_file_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let bound = bind(&[Listen::Unix(path.clone())], None).await.unwrap();
        fs::rename(&path, dir.path().join("old.sock")).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(bound);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn several_listeners_are_bound_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let listen = ["127.0.0.1:0", &format!("unix:{}/a.sock", dir.path().display()), "[::1]:0"];
        let bound = bind(&listen.map(|text| text.parse().unwrap()), None).await.unwrap();
        assert_eq!((bound.listeners.len(), bound.addresses.len()), (3, 2));
        assert_eq!(bound.servers[0], format!("http://{}", bound.addresses[0]));
        assert!(bound.servers[1].starts_with("unix:/") && bound.servers[2].starts_with("http://[::1]:"));
    }
}
