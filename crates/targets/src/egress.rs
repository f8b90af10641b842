//! The URLs that webhooks may call: hosts, ports and scheme. `address` has the rules for IP addresses. Pure.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use everytick_domain::secret::{Host, HostPattern};
use serde::{Deserialize, Serialize, Serializer};
use url::Url;

pub(crate) const HTTPS: &str = "https";

/// The operator's rules for the URLs of webhooks. The default allows every host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EgressPolicy {
    /// The only hosts that webhooks may call. Empty: every host.
    pub hosts: Vec<HostPattern>,
    pub ports: Vec<Ports>,
    pub https_only: bool,
}

impl Default for EgressPolicy {
    fn default() -> Self {
        Self { hosts: Vec::new(), ports: Ports::DEFAULT.to_vec(), https_only: false }
    }
}

/// A port, or a range of ports: `443`, `1024-65535`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub struct Ports(RangeInclusive<u16>);

impl Ports {
    /// The ports of the web, and those that need no privileges. Other ports below 1024 belong to services such as mail, which could
    /// read a webhook as commands of their own protocol.
    const DEFAULT: [Self; 3] = [Self(80..=80), Self(443..=443), Self(1_024..=u16::MAX)];
}

/// The proxy of the operator, through which all webhooks go. It resolves their names.
#[derive(Clone, PartialEq, Eq)]
pub struct EgressProxy(Url);

impl EgressProxy {
    pub fn url(&self) -> &Url {
        &self.0
    }
}

impl FromStr for EgressProxy {
    type Err = String;

    /// The message does not repeat the URL, which may contain a password.
    fn from_str(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).ok().filter(|url| url.scheme() == "http" && url.has_host());
        url.map(Self)
            .ok_or_else(|| "is not the URL of a proxy; write it like \"http://proxy.example.org:3128\"".to_owned())
    }
}

/// Shows no password.
impl fmt::Debug for EgressProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EgressProxy").field(&self.0.host_str().unwrap_or_default()).finish()
    }
}

/// The form in a settings file: a number or a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u16),
    Text(String),
}

impl TryFrom<Written> for Ports {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Number(port) => port.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

impl Ports {
    pub(crate) fn contains(&self, port: u16) -> bool {
        self.0.contains(&port)
    }
}

impl Serialize for Ports {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        match (port(from), port(to)) {
            (Some(from), Some(to)) if from <= to => Ok(Self(from..=to)),
            _ => Err(format!("{text:?} is not a port or a range of ports; write it like 443 or \"1024-65535\"")),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (from, to) if from == to => write!(f, "{from}"),
            (from, to) => write!(f, "{from}-{to}"),
        }
    }
}

impl EgressPolicy {
    /// Why no webhook may be sent to this URL. The message contains only its host and port.
    pub fn check(&self, url: &Url) -> Result<(), String> {
        let Some(host) = Host::of(url) else { return Err("has no host".to_owned()) };
        if self.https_only && url.scheme() != HTTPS {
            return Err(format!(
                "the URL of {host} does not use https, and the operator allows only https (https_only)"
            ));
        }
        if !self.ports.iter().any(|ports| ports.contains(host.port())) {
            let allowed = listed(&self.ports);
            return Err(format!("{host} has a port that the operator does not allow; the ports are {allowed}"));
        }
        if !self.hosts.is_empty() && !self.hosts.iter().any(|pattern| pattern.matches(&host)) {
            let allowed = listed(&self.hosts);
            return Err(format!("{host} is not a host that the operator allows; the hosts are {allowed}"));
        }
        Ok(())
    }
}

pub(crate) fn listed<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(policy: &EgressPolicy, url: &str) -> String {
        policy.check(&url.parse().unwrap()).err().unwrap_or_default()
    }

    #[test]
    fn without_rules_only_low_ports_are_refused() {
        let policy = EgressPolicy::default();
        for url in ["http://a.example/", "https://a.example/", "https://a.example:8443/", "http://10.0.0.1:65535/"] {
            assert_eq!(check(&policy, url), "", "{url}");
        }
        for url in ["http://a.example:25/", "http://a.example:81/", "https://[::1]:1023/", "http://a.example:22/"] {
            assert!(check(&policy, url).contains("the ports are 80, 443, 1024-65535"), "{url}");
        }
    }

    #[test]
    fn hosts_ports_and_scheme_are_checked_as_the_client_reads_them() {
        let policy = EgressPolicy {
            hosts: ["*.example.org", "10.0.0.5:8080"].map(|host| host.parse().unwrap()).into(),
            ports: vec!["443".parse().unwrap(), "8080-8090".parse().unwrap()],
            https_only: false,
        };
        for url in ["https://api.example.org/?x", "https://API.Example.ORG./", "http://10.0.0.5:8080/"] {
            assert_eq!(check(&policy, url), "", "{url}");
        }
        for (url, expected) in [
            ("https://example.org/", "not a host that the operator allows"),
            ("https://example.org@evil.example/", "evil.example:443 is not a host"),
            ("http://10.0.0.5:8081/", "not a host"),
            ("http://api.example.org/", "a port that the operator does not allow"),
        ] {
            assert!(check(&policy, url).contains(expected), "{url}");
        }
        let https = EgressPolicy { https_only: true, ..policy };
        assert!(check(&https, "http://10.0.0.5:8080/?token=1").contains("only https"));
        assert!(!check(&https, "http://10.0.0.5:8080/?token=1").contains("token"));
    }

    #[test]
    fn ports_are_numbers_or_ranges() {
        for (text, shown) in [("443", "443"), ("1-2", "1-2"), ("7-7", "7"), ("1024 - 65535", "1024-65535")] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), shown);
        }
        for text in ["", "0", "-1", "2-1", "65536", "a", "1-2-3"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
    }
}
