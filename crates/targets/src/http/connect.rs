//! How the HTTP client connects: to checked addresses, or through the operator's proxy; its timeouts and its pool.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, ClientBuilder, redirect};

use super::{dns::CheckedResolver, own::OwnAddresses};
use crate::{AddressPolicy, TargetError, TargetSettings};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections kept per host: as many as a node has slots by default. With fewer, every further delivery would reconnect.
const IDLE_PER_HOST_MAX: usize = 1_000;
/// Shorter than the idle timeout of most servers, so that usually this side closes an idle connection. A server may
/// close it just when a request is being sent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Without pings, every request to a host on a dead HTTP/2 connection would hang until the system closes it.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("everytick/", env!("CARGO_PKG_VERSION"));

/// How the client connects.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// To addresses that the resolver has checked. A proxy of the environment would connect without this check.
    Direct(CheckedResolver),
    /// Through the operator's proxy, which resolves the names.
    Proxy(Box<reqwest::Proxy>),
}

impl Route {
    pub(super) fn new(settings: &TargetSettings, policy: &Arc<AddressPolicy>) -> Result<Self, TargetError> {
        match &settings.proxy {
            Some(proxy) => {
                let proxy = reqwest::Proxy::all(proxy.url().clone());
                proxy.map(|proxy| Self::Proxy(Box::new(proxy))).map_err(|source| TargetError::Client { source })
            }
            None => Ok(Self::Direct(CheckedResolver::new(Arc::clone(policy), settings.dns_servers.clone()))),
        }
    }

    /// The same route, but it refuses names that resolve to these addresses.
    pub(super) fn refusing(&self, own: Option<&OwnAddresses>) -> Self {
        match self {
            Self::Direct(resolver) => Self::Direct(resolver.refusing(own)),
            Self::Proxy(proxy) => Self::Proxy(proxy.clone()),
        }
    }
}

pub(super) fn builder(route: Route) -> ClientBuilder {
    let builder = match route {
        Route::Direct(resolver) => Client::builder().dns_resolver(resolver).no_proxy(),
        Route::Proxy(proxy) => Client::builder().proxy(*proxy),
    };
    builder
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never()) // one attempt is one request; retries are rows
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
        .http2_keep_alive_timeout(HTTP2_PING_TIMEOUT)
        .user_agent(USER_AGENT)
}
