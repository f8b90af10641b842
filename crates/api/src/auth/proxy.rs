//! Users whom a proxy has authenticated. The proxy names the user and its groups in headers, and the headers count only
//! if the connection comes from a trusted address.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName};
use everytick_domain::access::{GrantRule, grants_of};
use ipnet::IpNet;

use super::caller::{Caller, Person};
use crate::{
    error::{ApiError, Result},
    server::RemoteAddress,
};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const NAME_CHARS_MAX: usize = 200;
/// Maximum number of groups of a user. Further groups are an error: one of them could be the one that a rule names.
const GROUPS_MAX: usize = 1_000;

/// The connections that are trusted to name the address and the user of a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trusted {
    pub networks: Vec<IpNet>,
    /// The Unix sockets, which only the server's user and root can connect to.
    pub unix: bool,
}

impl Trusted {
    pub(crate) fn has(&self, peer: RemoteAddress) -> bool {
        if peer.unix { self.unix } else { self.has_ip(peer.ip) }
    }

    pub(crate) fn has_ip(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.networks.iter().any(|network| network.contains(&ip))
    }
}

/// The settings of a proxy that authenticates users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyAuth {
    pub trusted: Trusted,
    pub user_header: HeaderName,
    pub groups_header: HeaderName,
    pub grants: Vec<GrantRule>,
}

impl ProxyAuth {
    /// The address of the client: the first untrusted one from the right, where each trusted proxy has appended the address
    /// from which it got the request. What is left of it was written by the client.
    pub(crate) fn client_ip(&self, peer: RemoteAddress, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.ip;
        if !self.trusted.has(peer) {
            return client;
        }
        let values: Vec<&str> =
            headers.get_all(&FORWARDED_FOR).iter().map(|value| value.to_str().unwrap_or("")).collect();
        for text in values.iter().flat_map(|value| value.split(',')).rev() {
            let Some(address) = address(text.trim()) else { break };
            client = address;
            if !self.trusted.has_ip(address) {
                break;
            }
        }
        client
    }

    /// Whether the request names a user.
    pub(super) fn names_user(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(&self.user_header)
    }

    /// The caller that the headers name. `ip` is the address of the client.
    pub(super) fn caller(&self, peer: RemoteAddress, headers: &HeaderMap, ip: IpAddr, id: &str) -> Result<Caller> {
        if !self.trusted.has(peer) {
            metrics::counter!("everytick_untrusted_proxy_headers_total").increment(1);
            return Err(ApiError::Unauthenticated);
        }
        let user = single(headers, &self.user_header)?.unwrap_or_default();
        if user.is_empty() || user.chars().count() > NAME_CHARS_MAX {
            let message = format!("the proxy must write a name of 1 to {NAME_CHARS_MAX} visible ASCII characters");
            return Err(ApiError::malformed(self.user_header.as_str(), message));
        }
        let groups = single(headers, &self.groups_header)?.unwrap_or_default();
        let groups: Vec<String> =
            groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect();
        if groups.len() > GROUPS_MAX {
            let message = format!("the proxy names {} groups; at most {GROUPS_MAX}", groups.len());
            return Err(ApiError::malformed(self.groups_header.as_str(), message));
        }
        let caller = Caller::person(Person::Proxy, user, &grants_of(&self.grants, &groups), ip, id.to_owned());
        caller.ok_or_else(|| ApiError::Forbidden(format!("no grant of [proxy_auth] is for a group of {user:?}")))
    }
}

/// An address as proxies write it: with or without a port, IPv6 in brackets or not.
fn address(text: &str) -> Option<IpAddr> {
    let with_port = || text.parse().ok().map(|address: std::net::SocketAddr| address.ip());
    let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let found: Option<IpAddr> = text.parse().ok();
    found.or_else(with_port).or_else(in_brackets).map(|ip| ip.to_canonical())
}

/// The value of a header. Two values are an error: the proxy could have checked one, and this server would use the other.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match (value.to_str(), values.next()) {
        (Ok(text), None) => Ok(Some(text.trim())),
        _ => Err(ApiError::malformed(name.as_str(), "the header must occur once, in visible ASCII characters")),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn auth(trusted: &[&str], unix: bool) -> ProxyAuth {
        ProxyAuth {
            trusted: Trusted { networks: trusted.iter().map(|text| text.parse().unwrap()).collect(), unix },
            user_header: HeaderName::from_static("remote-user"),
            groups_header: HeaderName::from_static("remote-groups"),
            grants: Vec::new(),
        }
    }

    fn tcp(ip: &str) -> RemoteAddress {
        RemoteAddress { ip: ip.parse().unwrap(), unix: false }
    }

    fn forwarded(values: &[&str]) -> HeaderMap {
        values.iter().map(|text| (FORWARDED_FOR, HeaderValue::from_str(text).unwrap())).collect()
    }

    #[test]
    fn the_client_is_the_first_untrusted_address_from_the_right() {
        let auth = auth(&["10.0.0.0/24", "127.0.0.1/32", "fd00::/64"], false);
        for (peer, values, expected) in [
            ("10.0.0.5", &[][..], "10.0.0.5"),
            ("10.0.0.5", &["203.0.113.7"], "203.0.113.7"),
            // The client wrote the first address itself.
            ("10.0.0.5", &["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
            ("10.0.0.5", &["198.51.100.1", "203.0.113.7"], "203.0.113.7"),
            ("10.0.0.5", &["203.0.113.7, 10.0.0.9"], "203.0.113.7"),
            ("10.0.0.5", &["10.0.0.8, 10.0.0.9"], "10.0.0.8"),
            ("10.0.0.5", &["127.0.0.1"], "127.0.0.1"),
            ("10.0.0.5", &["203.0.113.7:1234"], "203.0.113.7"),
            ("10.0.0.5", &["[2001:db8::1]:1234"], "2001:db8::1"),
            ("10.0.0.5", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.5", &["2001:db8::1, fd00::5"], "2001:db8::1"),
            ("10.0.0.5", &["::ffff:203.0.113.7"], "203.0.113.7"),
            ("::ffff:10.0.0.5", &["203.0.113.7"], "203.0.113.7"),
            // What is left of a text that is no address is not trusted either.
            ("10.0.0.5", &["203.0.113.7, unknown"], "10.0.0.5"),
            ("10.0.0.5", &["203.0.113.7, unknown, 10.0.0.9"], "10.0.0.9"),
            // An untrusted peer cannot choose its address.
            ("192.0.2.1", &["127.0.0.1"], "192.0.2.1"),
            ("192.0.2.1", &["127.0.0.1, 10.0.0.5"], "192.0.2.1"),
        ] {
            let client = auth.client_ip(tcp(peer), &forwarded(values));
            assert_eq!(client, expected.parse::<IpAddr>().unwrap(), "{peer} {values:?}");
        }
    }

    #[test]
    fn a_unix_socket_is_trusted_only_by_name() {
        let peer = RemoteAddress { ip: [127, 0, 0, 1].into(), unix: true };
        assert!(!auth(&["127.0.0.0/8"], false).trusted.has(peer) && auth(&[], true).trusted.has(peer));
        assert!(!auth(&[], true).trusted.has(tcp("127.0.0.1")));
    }
}
