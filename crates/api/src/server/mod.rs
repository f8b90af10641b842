//! Serves a router over HTTP/1.1. Every connection is counted, and every wait for a client has a timeout:
//!
//! | state of the connection | it is closed after |
//! |---|---|
//! | has received nothing, or only a part of the TLS handshake or of a request's head | `header_timeout` |
//! | waits for its next request | `idle_timeout` |
//! | has an answer that the client does not read | `write_timeout` without progress |
//! | executes a request (also a long poll or an event stream) | no limit here; the router has its own |
//!
//! hyper's timeout for heads includes the idle time before the head, so `phase` and `timed` implement these timeouts instead.

mod connections;
mod listener;
mod phase;
mod timed;
mod tls;

use std::{convert::Infallible, io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{FromRequestParts, Request},
    http::request::Parts,
};
use futures::future::join_all;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use tokio::{net::TcpStream, time::sleep};
use tokio_util::{either::Either, sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use connections::{Connection, Connections, now};
use listener::{Accepted, Peer};
use phase::{Answer, Watched};
use timed::{Phased, Timed};
use tls::secure;

use crate::{error::ApiError, in_flight::Charged};
pub(crate) use connections::LongRequest;
pub use listener::Listener;
pub use tls::{ClientAuth, ClientCertificate, TLS_CHECK_EVERY, Tls, TlsFiles};

/// Maximum size of a request's head, including its headers.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long the acceptor waits for another connection to end when the process has no free file descriptor.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_secs(1);

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Time limit for the head of a request, from its first byte on, and for the first byte on a new connection.
    pub header_timeout: Duration,
    /// How long an idle connection stays open.
    pub idle_timeout: Duration,
    /// A client that reads nothing of its answer for this long is disconnected.
    pub write_timeout: Duration,
    /// Maximum number of headers of a request. A request with more gets 431.
    pub headers_max: usize,
    pub connections_max: usize,
    /// Maximum number of connections from one address. Loopback addresses have no such limit.
    pub connections_per_peer_max: usize,
    /// Networks of proxies, whose addresses have no such limit either: one proxy carries the connections of many clients.
    pub proxies: &'static [IpNet],
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            headers_max: 100,
            connections_max: 16_384,
            connections_per_peer_max: 256,
            proxies: &[],
        }
    }
}

/// Serves until `closing` is cancelled, then returns when the answers in progress have been sent. All listeners share the limits.
pub async fn serve(listeners: Vec<Listener>, router: Router, limits: ServerLimits, closing: CancellationToken) {
    let connections = Arc::new(Connections::new(limits));
    let tasks = TaskTracker::new();
    let accepting = listeners.iter().map(|listener| {
        accept(listener, &connections, |stream, peer, connection| {
            tasks.spawn(serve_one(stream, peer, connection, router.clone(), limits, closing.clone()));
        })
    });
    tokio::select! {
        () = closing.cancelled() => {}
        _ = join_all(accepting) => {}
    }
    drop(listeners);
    tasks.close();
    tasks.wait().await;
}

/// Accepts connections and passes each to `serve`.
async fn accept(listener: &Listener, connections: &Arc<Connections>, serve: impl Fn(Accepted, Peer, Arc<Connection>)) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(Some(accepted)) => accepted,
            Ok(None) => continue,
            Err(error) => {
                not_accepted(&error, connections).await;
                continue;
            }
        };
        // At the limit, the server closes the connection that has been idle longest, or else that of the claim that has waited
        // longest. If there is neither, the new connection waits until one ends.
        connections.wait_for_capacity().await;
        let admitted = match peer {
            Peer::Address(peer) => connections.admit(peer.ip()),
            Peer::User(_) => connections.admit_local(),
        };
        if let Some(connection) = admitted {
            serve(stream, peer, connection);
        }
    }
}

/// A client that disconnected before it was accepted is no error. When the process has no free file descriptor, closes one
/// connection, because new connections need its descriptor.
async fn not_accepted(error: &io::Error, connections: &Connections) {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    if !matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) {
        tracing::debug!(%error, "a connection ended before it was accepted");
        return;
    }
    let closed = connections.close_one(now());
    tracing::warn!(%error, other_connection_closed = closed, "could not accept a connection; raise the limit of open files");
    let _ = tokio::time::timeout(NO_DESCRIPTOR_PAUSE, connections.wait_for_change()).await;
}

/// The other end of a request's connection. A Unix socket counts as loopback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RemoteAddress {
    pub(crate) ip: IpAddr,
    /// Whether the connection came through a Unix socket.
    pub(crate) unix: bool,
}

/// The connection that carries a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carrier {
    /// `None` in tests that call the router without a server.
    connection: Option<Arc<Connection>>,
    tls: bool,
}

impl Carrier {
    /// Whether the client's connection to this server uses TLS.
    pub(crate) const fn is_tls(&self) -> bool {
        self.tls
    }

    /// Counts a request that may last long. Refused when only the connections reserved for short requests are left.
    /// With `waits`, the server may end the request early to free its connection.
    pub(crate) fn begin_long(&self, waits: bool) -> Result<LongRequest, ApiError> {
        match &self.connection {
            None => Ok(LongRequest::default()),
            Some(connection) => connection.begin_long(waits, now()).ok_or_else(|| {
                ApiError::Busy("this node has too many open long requests; retry, or use another node".to_owned())
            }),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Carrier {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

async fn serve_one(
    accepted: Accepted,
    peer: Peer,
    connection: Arc<Connection>,
    router: Router,
    limits: ServerLimits,
    closing: CancellationToken,
) {
    let mut timer = Box::pin(sleep(limits.header_timeout));
    let (mut is_tls, mut certificate) = (false, None);
    let stream = match accepted {
        Accepted::Tcp(stream) => {
            set_nodelay(&stream);
            Either::Left(Timed::new(stream, limits.write_timeout))
        }
        Accepted::Unix(stream) => Either::Right(Either::Left(Timed::new(stream, limits.write_timeout))),
        Accepted::Tls(stream, tls) => {
            set_nodelay(&stream);
            let secured = tokio::select! {
                secured = secure(stream, &tls, &limits) => secured,
                () = &mut timer => return,
                () = connection.evicted() => return,
                () = closing.cancelled() => return,
            };
            match secured {
                Ok(Some(secured)) => {
                    (is_tls, certificate) = (true, secured.certificate);
                    Either::Right(Either::Right(secured.stream))
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(?peer, %error, "a TLS handshake failed");
                    return;
                }
            }
        }
    };
    let io = TokioIo::new(Phased::new(stream, connection.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        let in_progress = connection.begin_request();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Carrier { connection: Some(connection.clone()), tls: is_tls });
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert::<ClientCertificate>(certificate.clone());
        }
        request.extensions_mut().insert(peer.remote());
        let answering = router.clone().oneshot(request);
        let connection = connection.clone();
        async move {
            let mut response = answering.await?;
            response.extensions_mut().remove().into_iter().for_each(|charge: Charged| connection.keep(charge));
            Ok::<_, Infallible>(response.map(|body| Answer::new(body, in_progress)))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(limits.headers_max)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(io, service);
    let served = pin!(served);
    let mut watched = Watched::new(served, connection.clone(), limits, timer);
    let wants_answer = tokio::select! {
        ended = watched.run() => return ended_early(peer, ended),
        // A request that arrived just before the eviction is still answered.
        () = connection.evicted() => connection.is_busy(),
        () = closing.cancelled() => !connection.is_idle(),
    };
    if wants_answer {
        watched.connection().graceful_shutdown();
        ended_early(peer, watched.run().await);
    }
}

/// An answer is written as a whole: Nagle's algorithm would only delay its last packet.
fn set_nodelay(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
}

fn ended_early(peer: Peer, ended: Option<hyper::Result<()>>) {
    if let Some(Err(error)) = ended {
        tracing::debug!(?peer, %error, "a connection ended early");
    }
}
