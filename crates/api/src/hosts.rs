//! The names under which clients reach this server, for the checks of `Host` and `Origin`: loopback names, the public URL, and
//! names that the operator allows. A page of a foreign site that points its own name here (DNS rebinding) uses none of them.

use std::{net::IpAddr, str::FromStr};

use axum::http::{Uri, uri::Scheme};
use serde::Deserialize;

/// The names that `Host` may have.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// The ports of the listeners, each with its real number (not 0).
    pub ports: Vec<u16>,
    /// The URL under which clients reach this server, for example through a proxy.
    pub public: Option<PublicUrl>,
    pub allowed: Vec<AllowedHost>,
}

impl Hosts {
    /// Whether `host` is a name of this server: a loopback name or address with the port of a listener or without a port, the
    /// public URL's, or an allowed one.
    pub(crate) fn has(&self, host: &str) -> bool {
        let Some(host) = HostPort::read(host) else { return false };
        self.is_loopback(host) || self.is_public(host) || self.is_allowed(host)
    }

    /// Whether a page of `origin` belongs to this server. `host` is the request's `Host`, which is a name of this server.
    pub(crate) fn has_origin(&self, origin: &str, host: &str, tls: bool) -> bool {
        if self.public.as_ref().is_some_and(|public| public.origin.eq_ignore_ascii_case(origin)) {
            return true;
        }
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        if !authority.eq_ignore_ascii_case(host) {
            return false;
        }
        // A proxy may add TLS, so both schemes are right for a name that the operator allows.
        let through_proxy = HostPort::read(host).is_some_and(|host| self.is_allowed(host));
        scheme == if tls { "https" } else { "http" } || (through_proxy && matches!(scheme, "http" | "https"))
    }

    /// Whether `host` is that of a public URL with https.
    pub(crate) fn is_https(&self, host: &str) -> bool {
        self.public.as_ref().is_some_and(PublicUrl::is_https)
            && HostPort::read(host).is_some_and(|host| self.is_public(host))
    }

    fn is_loopback(&self, host: HostPort<'_>) -> bool {
        let loopback = match host.name.strip_prefix('[') {
            Some(name) => name.strip_suffix(']').and_then(|name| name.parse().ok()).is_some_and(is_loopback_v6),
            None => {
                host.name.eq_ignore_ascii_case("localhost")
                    || host.name.parse().is_ok_and(|address: IpAddr| address.is_ipv4() && address.is_loopback())
            }
        };
        loopback && host.port.is_none_or(|port| self.ports.iter().any(|own| own.to_string() == port))
    }

    fn is_public(&self, host: HostPort<'_>) -> bool {
        let is = |public: &PublicUrl| {
            let port = host.port.map_or(Some(public.default_port()), |port| port.parse().ok());
            public.name.eq_ignore_ascii_case(host.name) && port == Some(public.port)
        };
        self.public.as_ref().is_some_and(is)
    }

    fn is_allowed(&self, host: HostPort<'_>) -> bool {
        self.allowed.iter().any(|allowed| {
            allowed.name.eq_ignore_ascii_case(host.name)
                && allowed.port.is_none_or(|port| host.port == Some(port.to_string().as_str()))
        })
    }
}

fn is_loopback_v6(address: IpAddr) -> bool {
    address.is_ipv6() && address.is_loopback()
}

/// `Host` in its two parts.
#[derive(Clone, Copy)]
struct HostPort<'a> {
    name: &'a str,
    port: Option<&'a str>,
}

impl<'a> HostPort<'a> {
    fn read(host: &'a str) -> Option<Self> {
        let (name, port) = match host.rfind(':') {
            Some(at) if !host.ends_with(']') => (&host[..at], Some(&host[at + 1..])),
            _ => (host, None),
        };
        (!name.is_empty()).then_some(Self { name, port })
    }
}

/// The origin of this server as browsers and clients see it: `https://jobs.example.org`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct PublicUrl {
    /// Scheme, host, and the port unless it is the scheme's default.
    origin: String,
    https: bool,
    name: String,
    port: u16,
}

impl PublicUrl {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.origin
    }

    #[must_use]
    pub const fn is_https(&self) -> bool {
        self.https
    }

    const fn default_port(&self) -> u16 {
        if self.https { 443 } else { 80 }
    }
}

impl FromStr for PublicUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a public URL; write scheme and host like \"https://jobs.example.org\"");
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let https = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || text.contains('#') {
            return Err(format!("{text:?} has a path; the API has none, so write only scheme and host"));
        }
        let name = authority.host().to_ascii_lowercase();
        let default = if https { 443 } else { 80 };
        let port = match authority.as_str()[authority.host().len()..].strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None => default,
        };
        if name.is_empty() {
            return Err(wrong());
        }
        let scheme = if https { "https" } else { "http" };
        let shown = if port == default { String::new() } else { format!(":{port}") };
        Ok(Self { origin: format!("{scheme}://{name}{shown}"), https, name, port })
    }
}

/// A name that `Host` may have, with any port if it has none.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct AllowedHost {
    name: String,
    port: Option<u16>,
}

impl FromStr for AllowedHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a host name; write it like \"jobs.example.org\" or \"jobs.example.org:8443\", without a scheme"
            )
        };
        let host = HostPort::read(text).ok_or_else(wrong)?;
        let port = match host.port {
            Some(port) => Some(port.parse().map_err(|_| wrong())?),
            None => None,
        };
        let sound = match host.name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some(address) => address.parse().is_ok_and(|address: IpAddr| address.is_ipv6()),
            None => host.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')),
        };
        if sound { Ok(Self { name: host.name.to_ascii_lowercase(), port }) } else { Err(wrong()) }
    }
}

macro_rules! read_from_text {
    ($($kind:ident)*) => {$(
        impl TryFrom<String> for $kind {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    )*};
}
read_from_text! { PublicUrl AllowedHost }

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(public: Option<&str>, allowed: &[&str]) -> Hosts {
        Hosts {
            ports: vec![8640, 9000],
            public: public.map(|url| url.parse().unwrap()),
            allowed: allowed.iter().map(|name| name.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn only_loopback_hosts_with_the_port_of_a_listener_or_without_a_port_are_accepted() {
        let hosts = hosts(None, &[]);
        for host in [
            "localhost",
            "LOCALHOST:8640",
            "127.0.0.1",
            "127.0.0.1:8640",
            "127.0.0.1:9000",
            "127.9.9.9",
            "[::1]",
            "[::1]:8640",
        ] {
            assert!(hosts.has(host), "{host}");
        }
        for host in [
            "",
            ":8640",
            "localhost:",
            "localhost:80",
            "localhost.",
            "evil.example",
            "localhost.evil.example:8640",
            "10.0.0.1:8640",
            "::1",
            "[::1",
            "[127.0.0.1]",
            "[::ffff:127.0.0.1]",
            "127.0.0.1:08640",
            "0.0.0.0",
            "user@localhost",
            "127.1",
        ] {
            assert!(!hosts.has(host), "{host}");
        }
    }

    #[test]
    fn the_host_of_the_public_url_is_accepted_with_its_port() {
        let on_default_port = hosts(Some("https://Jobs.example.org"), &[]);
        for (host, expected) in [
            ("jobs.example.org", true),
            ("JOBS.example.org:443", true),
            ("jobs.example.org:80", false),
            ("jobs.example.org:8443", false),
            ("jobs.example.org:", false),
            ("example.org", false),
            ("evil.jobs.example.org", false),
        ] {
            assert_eq!(on_default_port.has(host), expected, "{host}");
        }
        let on_other_port = hosts(Some("http://jobs.example.org:8080/"), &[]);
        assert!(on_other_port.has("jobs.example.org:8080"));
        assert!(!on_other_port.has("jobs.example.org"), "a client adds the port to Host");
    }

    #[test]
    fn an_allowed_host_is_accepted_with_any_port_unless_it_names_one() {
        let hosts = hosts(None, &["node1.internal", "localhost:9999", "[fd00::5]"]);
        for host in ["node1.internal", "NODE1.internal:1234", "localhost:9999", "[fd00::5]:8640", "localhost:8640"] {
            assert!(hosts.has(host), "{host}");
        }
        for host in ["node2.internal", "localhost:9998", "x.node1.internal", "[fd00::6]"] {
            assert!(!hosts.has(host), "{host}");
        }
    }

    #[test]
    fn only_the_exact_origin_of_this_server_is_accepted() {
        let local = hosts(None, &[]);
        assert!(local.has_origin("http://localhost:8640", "localhost:8640", false));
        assert!(local.has_origin("https://localhost:8640", "localhost:8640", true));
        assert!(!local.has_origin("http://localhost:8640", "localhost:8640", true));
        for origin in
            ["null", "", "https://localhost:8640", "http://localhost", "http://localhost:3000", "http://evil.example"]
        {
            assert!(!local.has_origin(origin, "localhost:8640", false), "{origin}");
        }
    }

    #[test]
    fn behind_a_proxy_the_origin_is_the_public_url_or_an_allowed_name_with_either_scheme() {
        let hosts = hosts(Some("https://jobs.example.org"), &["jobs.internal"]);
        for (origin, host) in [
            ("https://jobs.example.org", "jobs.example.org"),
            ("https://jobs.example.org", "127.0.0.1:8640"), // the proxy replaced Host
            ("https://jobs.internal", "jobs.internal"),
            ("http://jobs.internal:81", "jobs.internal:81"),
        ] {
            assert!(hosts.has_origin(origin, host, false), "{origin} {host}");
        }
        for (origin, host) in [
            ("http://other.example.org", "jobs.example.org"),
            ("https://jobs.example.org:444", "jobs.example.org"),
            ("https://jobs.internal", "jobs.internal:81"),
            ("ftp://jobs.internal", "jobs.internal"),
            ("https://localhost:8640", "localhost:8640"),
        ] {
            assert!(!hosts.has_origin(origin, host, false), "{origin} {host}");
        }
    }

    #[test]
    fn a_wrong_public_url_or_host_is_refused_with_an_example() {
        for text in ["", "jobs.example.org", "ftp://h", "https://", "https://u:p@h", "https://h:99999", "https:///x"] {
            let message = text.parse::<PublicUrl>().unwrap_err();
            assert!(message.contains("https://jobs.example.org"), "{text}: {message}");
        }
        for text in ["https://h/everytick", "https://h/?a=b", "https://h/#x"] {
            assert!(text.parse::<PublicUrl>().unwrap_err().contains("only scheme and host"), "{text}");
        }
        assert_eq!("HTTPS://H.example:443/".parse::<PublicUrl>().unwrap().as_str(), "https://h.example");
        for text in ["", "https://h", "h:x", "h:99999", "a b", "*", "*.example.org", "[10.0.0.1]", "h/x", ":80"] {
            assert!(text.parse::<AllowedHost>().unwrap_err().contains("without a scheme"), "{text}");
        }
    }
}
