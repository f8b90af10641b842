//! What a server listens on, and how a connection arrived.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::{RemoteAddress, tls::Tls};

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// Every connection begins with a TLS handshake.
    Tls(TcpListener, Tls),
    /// Accepts only peers with this process's user id, or root.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

/// The client's end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Address(SocketAddr),
    /// A process on this machine with this user id, through a Unix socket.
    User(u32),
}

impl Peer {
    /// A process that comes through a Unix socket counts as loopback.
    pub(super) fn remote(self) -> RemoteAddress {
        match self {
            Self::Address(address) => RemoteAddress { ip: address.ip(), unix: false },
            Self::User(_) => RemoteAddress { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), unix: true },
        }
    }
}

/// A new connection, before anything was read from it.
pub(super) enum Accepted {
    Tcp(TcpStream),
    Tls(TcpStream, Tls),
    Unix(UnixStream),
}

impl Listener {
    /// Accepts one connection. `None` if it was refused because it is another user's.
    pub(super) async fn accept(&self) -> io::Result<Option<(Accepted, Peer)>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Some((Accepted::Tcp(stream), Peer::Address(peer))))
            }
            Self::Tls(listener, tls) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Some((Accepted::Tls(stream, tls.clone()), Peer::Address(peer))))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred()?.uid();
                if may_connect(user, rustix::process::geteuid().as_raw()) {
                    return Ok(Some((Accepted::Unix(stream), Peer::User(user))));
                }
                tracing::warn!(user, "refused a connection of another user on the Unix socket");
                Ok(None)
            }
        }
    }
}

const ROOT: u32 = 0;

const fn may_connect(user: u32, own: u32) -> bool {
    user == own || user == ROOT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_socket_accepts_only_the_own_user_and_root() {
        for (user, own, expected) in
            [(1000, 1000, true), (0, 1000, true), (1001, 1000, false), (1000, 0, false), (0, 0, true)]
        {
            assert_eq!(may_connect(user, own), expected, "{user} {own}");
        }
    }
}
