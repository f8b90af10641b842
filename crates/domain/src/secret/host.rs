//! The hosts to which a secret may be sent: `api.example.org`, `*.example.org:8443`, `10.0.0.5`, `[::1]:8080`.
//!
//! - Without a port, a pattern matches every port of the host.
//! - `*.` matches every name below the domain, at any depth, but not the domain itself.
//! - Names are compared as the HTTP client parses them: in lower case, in ASCII form, without a final dot.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use url::Url;

const PATTERN_BYTES_MAX: usize = 260;

/// The host and the port to which a request goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    name: url::Host,
    port: u16,
}

impl Host {
    /// `None` if the URL has no host.
    #[must_use]
    pub fn of(url: &Url) -> Option<Self> {
        let port = url.port_or_known_default()?;
        Some(Self { name: normal(url.host()?.to_owned()), port })
    }

    #[must_use]
    pub fn of_url(text: &str) -> Option<Self> {
        Self::of(&Url::parse(text).ok()?)
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The pattern that matches only this host and port.
    #[must_use]
    pub fn pattern(&self) -> HostPattern {
        HostPattern { below: false, name: self.name.clone(), port: Some(self.port) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// The form in which hosts are compared.
fn normal(host: url::Host) -> url::Host {
    match host {
        url::Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase();
            url::Host::Domain(name)
        }
        url::Host::Ipv6(address) => match address.to_ipv4_mapped() {
            Some(v4) => url::Host::Ipv4(v4),
            None => url::Host::Ipv6(address),
        },
        v4 @ url::Host::Ipv4(_) => v4,
    }
}

/// A pattern of hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    /// The names below `name`, instead of `name` itself.
    below: bool,
    name: url::Host,
    port: Option<u16>,
}

impl HostPattern {
    #[must_use]
    pub fn matches(&self, host: &Host) -> bool {
        if self.port.is_some_and(|port| port != host.port) {
            return false;
        }
        match (&self.name, &host.name) {
            (url::Host::Domain(domain), url::Host::Domain(name)) if self.below => {
                name.strip_suffix(domain.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (own, other) => !self.below && own == other,
        }
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown: String = text.chars().take(PATTERN_BYTES_MAX).collect();
        let wrong = |why: &str| {
            format!("{shown:?} {why}; write a host such as \"api.example.org\", \"*.example.org\" or \"10.0.0.5:8080\"")
        };
        if text.len() > PATTERN_BYTES_MAX {
            return Err(wrong(&format!("has more than {PATTERN_BYTES_MAX} bytes")));
        }
        if text.contains(['/', '?', '#', '@']) {
            return Err(wrong("is not a host alone"));
        }
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest.contains('*') {
            return Err(wrong("has a * that is not the whole first label"));
        }
        let (name, port) = split_port(rest).map_err(|why| wrong(&why))?;
        let name = url::Host::parse(name).map(normal).map_err(|_| wrong("is not a host"))?;
        match &name {
            url::Host::Domain(domain) if domain.is_empty() => Err(wrong("is not a host")),
            url::Host::Domain(domain) if below && !domain.contains('.') => {
                Err(wrong("covers a whole top-level domain"))
            }
            url::Host::Ipv4(_) | url::Host::Ipv6(_) if below => Err(wrong("is an address with *")),
            _ => Ok(Self { below, name, port }),
        }
    }
}

/// Host and port. The colons of an IPv6 address are inside brackets.
fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let after_host = text.rfind(']').map_or(0, |bracket| bracket + 1);
    let Some(colon) = text[after_host..].find(':').map(|at| after_host + at) else { return Ok((text, None)) };
    let port = text[colon + 1..].parse::<u16>().ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| "has a port that is not a number from 1 to 65535".to_owned())?;
    Ok((&text[..colon], Some(port)))
}

impl TryFrom<String> for HostPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.below { "*." } else { "" }, self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_pattern_matches_its_host_in_every_spelling() {
        for (text, url) in [
            ("api.example.org", "https://api.example.org/x?y"),
            ("API.Example.ORG.", "http://api.example.org:8080/"),
            ("api.example.org", "https://API.EXAMPLE.ORG./"),
            ("api.example.org:443", "https://api.example.org/"),
            ("api.example.org:80", "http://api.example.org/"),
            ("*.example.org", "https://a.example.org/"),
            ("*.example.org", "https://a.b.example.org/"),
            ("*.example.org:8443", "https://a.example.org:8443/"),
            ("127.0.0.1", "http://127.1:9000/"),
            ("127.0.0.1", "http://0x7f.1/"),
            ("127.0.0.1", "http://[::ffff:127.0.0.1]/"),
            ("[::1]:8080", "http://[::1]:8080/"),
            ("[0:0::1]", "http://[::1]:8080/"),
            ("münchen.example", "https://xn--mnchen-3ya.example/"),
            ("localhost", "http://localhost:3000/"),
        ] {
            assert!(pattern(text).matches(&Host::of_url(url).unwrap()), "{text} {url}");
        }
    }

    #[test]
    fn a_pattern_does_not_match_other_hosts() {
        for (text, url) in [
            ("api.example.org", "https://example.org/"),
            ("api.example.org", "https://xapi.example.org/"),
            ("api.example.org", "https://api.example.org.evil.example/"),
            ("api.example.org", "https://api.example.org@evil.example/"),
            ("api.example.org", "https://a.api.example.org/"),
            ("api.example.org:443", "https://api.example.org:8443/"),
            ("api.example.org:443", "http://api.example.org/"),
            ("*.example.org", "https://example.org/"),
            ("*.example.org", "https://evilexample.org/"),
            ("*.example.org", "https://a.example.org.evil.example/"),
            ("*.example.org:8443", "https://a.example.org/"),
            ("127.0.0.1", "http://127.0.0.2/"),
            ("[::1]", "http://127.0.0.1/"),
        ] {
            assert!(!pattern(text).matches(&Host::of_url(url).unwrap()), "{text} {url}");
        }
    }

    #[test]
    fn a_pattern_reads_back_from_its_text_in_normal_form() {
        for (text, normal) in [
            ("API.example.org.", "api.example.org"),
            ("*.Example.org:8443", "*.example.org:8443"),
            ("127.1", "127.0.0.1"),
            ("[0::1]:80", "[::1]:80"),
            ("münchen.example", "xn--mnchen-3ya.example"),
        ] {
            assert_eq!(pattern(text).to_string(), normal);
            assert_eq!(pattern(normal), pattern(text));
            let stored = serde_json::to_string(&pattern(text)).unwrap();
            assert_eq!(serde_json::from_str::<HostPattern>(&stored).unwrap(), pattern(text));
        }
    }

    #[test]
    fn texts_that_are_no_hosts_are_refused_with_an_example() {
        for text in [
            "",
            "*",
            "*.",
            "*.org",
            "*.127.0.0.1",
            "a.*.org",
            "**.example.org",
            "https://a.example",
            "a.example/x",
            "u@a.example",
            "a.example:",
            "a.example:0",
            "a.example:65536",
            "a.example:http",
            "::1",
            "a b",
            &"x".repeat(PATTERN_BYTES_MAX + 1),
        ] {
            let error = text.parse::<HostPattern>().unwrap_err();
            assert!(error.contains("write a host such as"), "{text}: {error}");
        }
    }

    #[test]
    fn the_pattern_of_a_host_matches_only_it() {
        let host = Host::of_url("http://api.example.org:8080/").unwrap();
        assert_eq!(host.to_string(), "api.example.org:8080");
        assert!(host.pattern().matches(&host));
        assert!(!host.pattern().matches(&Host::of_url("http://api.example.org/").unwrap()));
    }
}
