//! How webhooks connect: to checked addresses, directly or through a tunnel of the operator's proxy; or by name, if the proxy
//! resolves the names. TLS always checks the name of the URL.

use std::{
    error::Error,
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Uri,
    header::HeaderValue,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        Client as PooledClient,
        connect::{Connected, Connection, HttpConnector, proxy::Tunnel},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use rustls_platform_verifier::Verifier;
use tokio::{net::TcpStream, time::timeout};
use tower_service::Service;

use super::{
    deliver::{causes, is_out_of_descriptors},
    dns::CheckedResolver,
    own::OwnAddresses,
};
use crate::{AddressPolicy, EgressProxy, TargetSettings};

/// For the name, the connection, the proxy and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections kept per host: as many as a node has slots by default. With fewer, every further delivery would reconnect.
const IDLE_PER_HOST_MAX: usize = 1_000;
/// Shorter than the idle timeout of most servers, so that usually this side closes an idle connection. A server may
/// close it just when a request is being sent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Without pings, every request to a host on a dead HTTP/2 connection would hang until the system closes it.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Finds dead HTTP/1.1 connections.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;
/// A connection whose receiver acknowledges nothing for this long is closed. Keepalive probes do not find it, because none is sent
/// while data is unacknowledged.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);
/// How many addresses of a name are tried through the proxy.
const TUNNELS_MAX: usize = 3;

type BoxError = Box<dyn Error + Send + Sync>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// The HTTP client of webhooks. It sends a request again only if nothing of it was written, because the connection of the pool was
/// closed already.
pub(super) type Client = PooledClient<TimedConnector, Full<Bytes>>;

/// How the client connects.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// To addresses that the resolver has checked.
    Direct(CheckedResolver),
    /// Through tunnels of the operator's proxy to addresses that the resolver has checked.
    Tunnel(Arc<Proxy>, CheckedResolver),
    /// Through the operator's proxy, which resolves the names.
    Forward(Arc<Proxy>),
}

impl Route {
    pub(super) fn new(settings: &TargetSettings, policy: &Arc<AddressPolicy>) -> Self {
        let resolver = CheckedResolver::new(Arc::clone(policy), settings.dns_servers.clone());
        match &settings.proxy {
            Some(proxy) if proxy.resolves => Self::Forward(Arc::new(Proxy::of(proxy))),
            Some(proxy) => Self::Tunnel(Arc::new(Proxy::of(proxy)), resolver),
            None => Self::Direct(resolver),
        }
    }

    /// The same route, but it refuses names that resolve to these addresses.
    pub(super) fn refusing(&self, own: Option<&OwnAddresses>) -> Self {
        match self {
            Self::Direct(resolver) => Self::Direct(resolver.refusing(own)),
            Self::Tunnel(proxy, resolver) => Self::Tunnel(Arc::clone(proxy), resolver.refusing(own)),
            Self::Forward(proxy) => Self::Forward(Arc::clone(proxy)),
        }
    }

    /// The header for a proxy that gets the request itself: only without TLS, which needs a tunnel.
    pub(super) fn proxy_authorization(&self, is_https: bool) -> Option<HeaderValue> {
        match self {
            Self::Forward(proxy) if !is_https => proxy.authorization.clone(),
            _ => None,
        }
    }
}

/// The operator's proxy.
pub(super) struct Proxy {
    uri: Uri,
    /// Its host and port, for messages.
    authority: String,
    authorization: Option<HeaderValue>,
}

impl Proxy {
    fn of(proxy: &EgressProxy) -> Self {
        let url = proxy.url();
        let authority =
            format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        let authorization = (!url.username().is_empty()).then(|| {
            let decoded = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
            let credentials = format!("{}:{}", decoded(url.username()), decoded(url.password().unwrap_or_default()));
            HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(credentials))).ok()
        });
        let mut authorization = authorization.flatten();
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let uri = format!("http://{authority}").parse().unwrap_or_default();
        Self { uri, authority, authorization }
    }
}

/// Shows no password.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&self.authority).finish()
    }
}

/// The proxy made no tunnel.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy} did not connect to {to}: {why}")]
struct NoTunnel {
    proxy: String,
    to: String,
    why: String,
}

/// The certificate that a client shows, and its key.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// The client for a route. Without the system's CA certificates, http still works and https fails with its own message.
pub(super) fn client(route: Route, identity: Option<Identity>) -> Result<Client, rustls::Error> {
    let provider = Arc::new(default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let config = match Verifier::new(provider) {
        Ok(verifier) => config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)),
        Err(error) => {
            tracing::warn!(%error, "https webhooks will fail: no CA certificates could be loaded");
            config.with_root_certificates(RootCertStore::empty())
        }
    };
    let config = match identity {
        Some(Identity { chain, key }) => config.with_client_auth_cert(chain, key)?,
        None => config.with_no_client_auth(),
    };
    let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().enable_http2();
    let mut builder = PooledClient::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
        .http2_keep_alive_timeout(HTTP2_PING_TIMEOUT);
    Ok(builder.build(TimedConnector(connector.wrap_connector(Connector::new(route)))))
}

/// Limits the time of the whole connection.
#[derive(Clone)]
pub(super) struct TimedConnector(HttpsConnector<Connector>);

impl Service<Uri> for TimedConnector {
    type Response = <HttpsConnector<Connector> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.0.call(to);
        Box::pin(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {CONNECT_TIMEOUT:?}"));
            timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| late())?
        })
    }
}

/// Makes the TCP connection of a request.
#[derive(Clone)]
pub(super) enum Connector {
    Direct(HttpConnector<CheckedResolver>),
    Proxied(Route, HttpConnector),
}

impl Connector {
    fn new(route: Route) -> Self {
        fn set<R>(connector: &mut HttpConnector<R>) {
            connector.enforce_http(false);
            connector.set_nodelay(true);
            connector.set_keepalive(Some(KEEPALIVE));
            connector.set_keepalive_interval(Some(KEEPALIVE));
            connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
            connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX));
        }
        match route {
            Route::Direct(resolver) => {
                let mut connector = HttpConnector::new_with_resolver(resolver);
                set(&mut connector);
                Self::Direct(connector)
            }
            proxied => {
                let mut connector = HttpConnector::new();
                set(&mut connector);
                Self::Proxied(proxied, connector)
            }
        }
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Connecting<Stream>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(())) // HTTP connectors are always ready
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match self {
            Self::Direct(connector) => {
                let connecting = connector.call(to);
                Box::pin(async move { Ok(Stream { io: connecting.await?, is_forwarded: false }) })
            }
            Self::Proxied(Route::Tunnel(proxy, resolver), connector) => {
                let (proxy, resolver, connector) = (Arc::clone(proxy), resolver.clone(), connector.clone());
                Box::pin(async move {
                    let mut last = None;
                    for address in checked(&resolver, &to).await?.into_iter().take(TUNNELS_MAX) {
                        match tunnel(&proxy, connector.clone(), &address.to_string()).await {
                            Ok(stream) => return Ok(stream),
                            Err(error) => last = Some(error),
                        }
                    }
                    Err(last.unwrap_or_else(|| io::Error::other("the name has no address").into()))
                })
            }
            Self::Proxied(Route::Forward(proxy), connector) => {
                let (proxy, mut connector) = (Arc::clone(proxy), connector.clone());
                Box::pin(async move {
                    if to.scheme_str() == Some("https") {
                        let named = format!("{}:{}", to.host().unwrap_or_default(), port(&to));
                        return tunnel(&proxy, connector, &named).await;
                    }
                    Ok(Stream { io: connector.call(proxy.uri.clone()).await?, is_forwarded: true })
                })
            }
            Self::Proxied(Route::Direct(_), _) => {
                Box::pin(async { Err(io::Error::other("a direct route has no proxy").into()) })
            }
        }
    }
}

fn port(to: &Uri) -> u16 {
    to.port_u16().unwrap_or(if to.scheme_str() == Some("https") { 443 } else { 80 })
}

/// The addresses that a tunnel may lead to. A literal address was checked before.
async fn checked(resolver: &CheckedResolver, to: &Uri) -> Result<Vec<SocketAddr>, BoxError> {
    let host = to.host().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let mut addresses = match literal {
        Ok(address) => vec![SocketAddr::new(address, 0)],
        Err(_) => resolver.addresses(host).await?,
    };
    addresses.iter_mut().for_each(|address| address.set_port(port(to)));
    Ok(addresses)
}

async fn tunnel(proxy: &Proxy, connector: HttpConnector, to: &str) -> Result<Stream, BoxError> {
    let mut tunnel = Tunnel::new(proxy.uri.clone(), connector);
    if let Some(authorization) = &proxy.authorization {
        tunnel = tunnel.with_auth(authorization.clone());
    }
    let uri = Uri::builder().scheme("http").authority(to).path_and_query("/").build()?;
    match tunnel.call(uri).await {
        Ok(io) => Ok(Stream { io, is_forwarded: false }),
        Err(error) if causes(&error).any(is_out_of_descriptors) => Err(error.into()),
        Err(error) => {
            let why = causes(&error).last().map_or_else(String::new, ToString::to_string);
            Err(NoTunnel { proxy: proxy.authority.clone(), to: to.to_owned(), why }.into())
        }
    }
}

/// A TCP connection to a receiver or to the proxy.
pub(super) struct Stream {
    io: TokioIo<TcpStream>,
    /// The proxy gets the request itself, with the whole URL.
    is_forwarded: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_forwarded)
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, from)
    }
}
