//! Binds the listeners of `everytick serve`.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    net::SocketAddr,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use everytick_api::{Listener, Tls};
use tokio::net::{TcpListener, UnixListener};

use crate::{config::Listen, failure::Failure};

/// The lock file of a socket is for the server's user alone.
const LOCK_MODE: u32 = 0o600;
/// If the path of the lock file were a symlink, the server could write to another file.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
/// Members of the socket's group may connect; the server then checks the user of each peer.
const SOCKET_MODE: u32 = 0o660;

/// The bound listeners of a node.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    pub(crate) listeners: Vec<Listener>,
    /// The listener that serves only metrics, and its address.
    pub(crate) metrics: Option<(Listener, String)>,
    /// All TCP addresses, with the real ports.
    pub(crate) addresses: Vec<SocketAddr>,
    /// What `--server` needs to reach each listener of the API, in the order of the flags.
    pub(crate) servers: Vec<String>,
    /// Removes the socket files when the node has stopped.
    _files: Vec<SocketFile>,
}

/// Binds all listeners. With `tls`, the TCP listeners of the API serve HTTPS.
pub(crate) async fn bind(listen: &[Listen], metrics: Option<&Listen>, tls: Option<&Tls>) -> anyhow::Result<Bound> {
    let mut bound = Bound::default();
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
    match metrics {
        None => {}
        Some(Listen::Tcp(address)) => {
            let listener = bind_tcp(*address).await?;
            let address = listener.local_addr()?;
            bound.addresses.push(address);
            bound.metrics = Some((listener.into(), format!("http://{address}")));
        }
        Some(one @ Listen::Unix(path)) => {
            let (listener, file) = bind_unix(path)?;
            bound.metrics = Some((listener.into(), one.to_string()));
            bound._files.push(file);
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

/// Binds a socket. Removes the socket file of a killed process, but only if no process listens on it. A lock serializes servers
/// that start at the same time. Otherwise one server could remove the socket that the other has just bound.
fn bind_unix(path: &Path) -> anyhow::Result<(UnixListener, SocketFile)> {
    let shown = path.display();
    let lock = SocketLock::acquire(path)?;
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
    Ok((listener, SocketFile { path: path.to_owned(), inode, _lock: lock }))
}

/// The file of a socket that this process bound. Dropping it removes the file, unless another process has replaced it.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
    /// Dropped last.
    _lock: SocketLock,
}

/// The lock of a socket's path: a locked file beside it. Only its owner may bind the path.
#[derive(Debug)]
struct SocketLock {
    path: PathBuf,
    _file: File,
}

impl SocketLock {
    fn acquire(socket: &Path) -> anyhow::Result<Self> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let failed = |error: io::Error| anyhow::Error::new(error).context(format!("could not lock {}", path.display()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(LOCK_MODE).custom_flags(NO_FOLLOW);
        loop {
            let file = options.open(&path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => anyhow::bail!(
                    "{} is in use; is everytick already running there? Choose another path with --listen",
                    socket.display()
                ),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The previous owner may have removed the file after this process opened it. Then another process can create and
            // lock a new file. So check that the path still names the locked file.
            let locked = file.metadata().map_err(failed)?.ino();
            if fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == locked) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for SocketLock {
    fn drop(&mut self) {
        // A file that remains is used again.
        let _ = fs::remove_file(&self.path);
    }
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
        let bound = bind(&listen, None, None).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        assert_eq!(bound.servers, [format!("unix:{}", path.display())]);
        let in_use = bind(&listen, None, None).await.unwrap_err().to_string();
        assert!(in_use.contains("is in use"), "{in_use}");
        drop(bound);
        assert!(!path.exists(), "the socket file is removed when the node stops");

        fs::write(&path, "data").unwrap();
        let other = bind(&listen, None, None).await.unwrap_err().to_string();
        assert!(other.contains("is not a socket"), "{other}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    #[tokio::test]
    async fn a_replaced_socket_file_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let bound = bind(&[Listen::Unix(path.clone())], None, None).await.unwrap();
        fs::rename(&path, dir.path().join("old.sock")).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(bound);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn several_listeners_are_bound_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let listen = ["127.0.0.1:0", &format!("unix:{}/a.sock", dir.path().display()), "[::1]:0"];
        let bound = bind(&listen.map(|text| text.parse().unwrap()), None, None).await.unwrap();
        assert_eq!((bound.listeners.len(), bound.addresses.len()), (3, 2));
        assert_eq!(bound.servers[0], format!("http://{}", bound.addresses[0]));
        assert!(bound.servers[1].starts_with("unix:/") && bound.servers[2].starts_with("http://[::1]:"));
    }

    /// Another server is about to replace the stale socket. Without the lock, this one could remove the socket that it binds.
    #[tokio::test]
    async fn a_stale_socket_is_replaced_by_one_server_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let other = SocketLock::acquire(&path).unwrap();
        let refused = bind_unix(&path).unwrap_err().to_string();
        assert!(refused.contains("is in use") && path.exists(), "{refused}");
        drop(other);
        drop(bind_unix(&path).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the lock file is removed too");
    }

    #[tokio::test]
    async fn the_metrics_have_a_listener_of_their_own() {
        let listen: Vec<Listen> = vec!["127.0.0.1:0".parse().unwrap()];
        let bound = bind(&listen, Some(&listen[0]), None).await.unwrap();
        assert_eq!((bound.listeners.len(), bound.servers.len(), bound.addresses.len()), (1, 1, 2));
        assert_eq!(bound.metrics.unwrap().1, format!("http://{}", bound.addresses[1]));
    }
}
