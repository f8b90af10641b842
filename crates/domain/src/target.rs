//! The target of a job as its definition names it, and the outcome of one attempt. The targets crate does the delivery.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv4Addr},
};

use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::time::Span;

/// Where a job's runs are delivered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetSpec {
    Http(HttpTarget),
    Shell(ShellTarget),
    /// Workers claim the runs; no node delivers them.
    Queue(QueueTarget),
}

/// Upper limit of an HTTP job's `timeout`: a request occupies a slot and a connection for as long as it lasts.
pub const HTTP_TIMEOUT_MAX: Span = Span::hours(1);

/// A fingerprint of a URL's host and port, as the HTTP client parses them. Spelling does not matter: `HOST`, `host.` and
/// `host:080` are one destination, and so are `127.1` and `127.0.0.1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Destination(u64);

impl Destination {
    fn of(url: &str) -> Self {
        plain_host_and_port(url).map_or_else(|| Self::parsed(url), |(host, port)| Self::new(host, port))
    }

    /// A URL that cannot be parsed is never delivered, so its text is used as the host.
    fn parsed(text: &str) -> Self {
        let Ok(url) = Url::parse(text) else { return Self::new(text, 0) };
        let port = url.port_or_known_default().unwrap_or_default();
        match url.host() {
            Some(Host::Domain(name)) => Self::new(name.strip_suffix('.').unwrap_or(name), port),
            Some(Host::Ipv4(address)) => Self::new(&address.to_string(), port),
            Some(Host::Ipv6(address)) => Self::new(&address.to_canonical().to_string(), port),
            None => Self::new(text, 0),
        }
    }

    fn new(host: &str, port: u16) -> Self {
        use std::hash::Hasher as _;
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(host.as_bytes());
        hasher.write_u16(port);
        Self(hasher.finish())
    }
}

/// Host and port of a URL in plain form: a dotted IPv4 address, or a lower-case name whose last label starts with a letter.
/// Parsing would not change these. Full parsing costs several times as much, and every claim needs the destination.
fn plain_host_and_port(url: &str) -> Option<(&str, u16)> {
    let (rest, default) = match url.strip_prefix("https://") {
        Some(rest) => (rest, 443),
        None => (url.strip_prefix("http://")?, 80),
    };
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, default),
    };
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let last_label = host.rsplit('.').next()?;
    let is_name = last_label.starts_with(|first: char| first.is_ascii_lowercase()) && host.bytes().all(is_plain);
    (is_name || host.parse::<Ipv4Addr>().is_ok()).then_some((host, port))
}

impl TargetSpec {
    /// The name of this kind in the API, the CLI and the metrics.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Shell(_) => "shell",
            Self::Queue(_) => "queue",
        }
    }

    /// The longest `timeout` that a new definition may have; `None`: only the limit for all jobs applies.
    #[must_use]
    pub const fn timeout_max(&self) -> Option<Span> {
        match self {
            Self::Http(_) => Some(HTTP_TIMEOUT_MAX),
            Self::Shell(_) | Self::Queue(_) => None,
        }
    }

    /// The `timeout` of a job that does not set one.
    #[must_use]
    pub const fn timeout_default(&self) -> Span {
        match self {
            Self::Http(_) => Span::seconds(30),
            Self::Shell(_) | Self::Queue(_) => Span::hours(1),
        }
    }

    /// The `max_retries` of a job that does not set it. For `http` and `queue`, enough for a receiver that is down for 20
    /// minutes. A command may have done half its work, so it is not repeated by default.
    #[must_use]
    pub const fn max_retries_default(&self) -> u32 {
        match self {
            Self::Http(_) | Self::Queue(_) => 10,
            Self::Shell(_) => 0,
        }
    }

    /// The host and port that a node connects to; `None` if the node opens no connection to deliver.
    #[must_use]
    pub fn destination(&self) -> Option<Destination> {
        match self {
            Self::Http(http) => Some(Destination::of(&http.url)),
            Self::Shell(_) | Self::Queue(_) => None,
        }
    }

    /// The queue in which the runs wait for workers; `None` if a node delivers them.
    #[must_use]
    pub fn queue(&self) -> Option<&str> {
        match self {
            Self::Http(_) | Self::Shell(_) => None,
            Self::Queue(queue) => Some(&queue.name),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueTarget {
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpTarget {
    pub url: String,
    pub method: HttpMethod,
    pub headers: BTreeMap<String, String>,
    /// The Standard Webhooks secret (`whsec_...`); `None`: requests are not signed.
    pub secret: Option<String>,
}

/// Prints header names and whether a secret is set, but no values: they may be credentials, and this text reaches logs.
impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (headers, signed) = (self.headers.keys(), self.secret.is_some());
        write!(f, "HttpTarget {{ method: {:?}, headers: {headers:?}, signed: {signed} }}", self.method)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellTarget {
    /// The program and its arguments, or one line for `sh -c`.
    pub command: Command,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
}

/// Prints variable names but no values: they may be credentials.
impl fmt::Debug for ShellTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (command, env, workdir) = (&self.command, self.env.keys(), &self.workdir);
        write!(f, "ShellTarget {{ command: {command:?}, env: {env:?}, workdir: {workdir:?} }}")
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Argv(Vec<String>),
    Script(String),
}

/// The outcome of one attempt. A failed delivery is an outcome, not an error of everytick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Succeeded {
        output: Option<String>,
    },
    /// The receiver accepted the work and will report through the settle call. The claim stays until then or until its timeout.
    Accepted,
    Failed {
        error: String,
        output: Option<String>,
        retry: Retry,
    },
    /// The receiver is gone permanently (HTTP 410): the run fails and the job is paused with this note.
    Gone {
        note: String,
        output: Option<String>,
    },
    TimedOut {
        after: Span,
        output: Option<String>,
    },
    /// Stopped because the run was cancelled.
    Cancelled {
        output: Option<String>,
    },
    /// The node or worker that claimed the run vanished.
    Lost,
    /// Claimed but never sent: released without using an attempt.
    Unsent,
    /// This node's settings forbid the delivery; another node's may allow it. Nothing was sent. `address` is the forbidden
    /// address; `None` means that the node may not run commands.
    NotHere {
        error: String,
        address: Option<IpAddr>,
    },
}

/// Whether and when a failed attempt may be retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    Allowed,
    /// The receiver named a delay (`Retry-After`).
    After(Span),
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_host_and_a_port() {
        let of = Destination::of;
        let same = of("https://example.org/a");
        for url in ["https://EXAMPLE.org", "HTTPS://user:pw@example.org:443/b?c#d", "https://example.org?x=http://a"] {
            assert_eq!(of(url), same, "{url}");
        }
        for url in ["http://example.org/", "https://example.org:444/", "https://www.example.org/", "https://[::1]/"] {
            assert_ne!(of(url), same, "{url}");
        }
        assert_eq!(of("http://[::1]/"), of("http://[::1]:80"));
    }

    #[test]
    fn a_destination_does_not_depend_on_how_the_url_is_written() {
        let of = Destination::of;
        for (url, other) in [
            ("http://example.org/", "http://example.org./"),
            ("http://example.org/", "http://example.org:080/"),
            ("http://example.org/", "http:/example.org/"),
            ("http://example.org/", "http:example.org"),
            ("http://example.org/", "http:\\\\example.org\\a"),
            ("http://example.org/", "http://ex%61mple.org/"),
            ("http://example.org/", "http://exa\tmple.org/"),
            ("http://example.org:8080/", "http://EXAMPLE.ORG:08080/"),
            ("http://127.0.0.1/", "http://127.1/"),
            ("http://127.0.0.1/", "http://0x7f.1/"),
            ("http://127.0.0.1/", "http://2130706433:80/"),
            ("http://127.0.0.1/", "http://[::ffff:127.0.0.1]/"),
            ("http://[::1]/", "http://[0:0:0:0:0:0:0:1]/"),
        ] {
            assert_eq!(of(url), of(other), "{url} {other}");
        }
        assert_ne!(of("http:/one.example/"), of("http:/other.example/"));
    }

    #[test]
    fn a_url_in_its_usual_form_has_the_destination_that_parsing_gives() {
        for url in [
            "https://a.example",
            "http://a.example:8080/b",
            "https://a-1.b2.example?c",
            "http://localhost:65535#d",
            "http://127.0.0.1:8080/",
            "https://255.255.255.255",
        ] {
            assert!(plain_host_and_port(url).is_some(), "{url}");
            assert_eq!(Destination::of(url), Destination::parsed(url), "{url}");
        }
        for url in [
            "http://a.example.",
            "http://1.2.3.04/",
            "http://1.2.3/",
            "http://1.2.3.4./",
            "http://a.0x7f/",
            "http://A.example",
            "http://u@a.example",
        ] {
            assert!(plain_host_and_port(url).is_none(), "{url}");
        }
    }
}
