//! Where a run goes, as a job defines it, and what the target said of it. How to get there is the targets crate's matter.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

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

/// A request occupies a slot and a connection for as long as it lasts.
pub const HTTP_TIMEOUT_MAX: Span = Span::hours(1);

/// A fingerprint of the host and port of a URL: equal for equal ones, whatever the path is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Destination(u64);

impl Destination {
    fn of(url: &str) -> Self {
        use std::hash::Hasher as _;
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let named_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
        let mut hasher = std::hash::DefaultHasher::new();
        for byte in host.bytes().chain(port.bytes().filter(|_| !named_port)) {
            hasher.write_u8(byte.to_ascii_lowercase());
        }
        Self(hasher.finish())
    }
}

impl TargetSpec {
    /// The word by which the API, the CLI and the metrics call this kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Shell(_) => "shell",
            Self::Queue(_) => "queue",
        }
    }

    /// The longest `timeout` that a new definition may have.
    #[must_use]
    pub const fn timeout_max(&self) -> Option<Span> {
        match self {
            Self::Http(_) => Some(HTTP_TIMEOUT_MAX),
            Self::Shell(_) | Self::Queue(_) => None,
        }
    }

    /// How long a run may take when its job does not say.
    #[must_use]
    pub const fn timeout_default(&self) -> Span {
        match self {
            Self::Http(_) => Span::seconds(30),
            Self::Shell(_) | Self::Queue(_) => Span::hours(1),
        }
    }

    /// Retries when the job does not say: enough for a receiver that is away for 20 minutes. A command may have done half its work, so it is not repeated unasked.
    #[must_use]
    pub const fn max_retries_default(&self) -> u32 {
        match self {
            Self::Http(_) | Self::Queue(_) => 10,
            Self::Shell(_) => 0,
        }
    }

    /// Where a delivery goes, by host and port; none for what does not go over the network from here.
    #[must_use]
    pub fn destination(&self) -> Option<Destination> {
        match self {
            Self::Http(http) => Some(Destination::of(&http.url)),
            Self::Shell(_) | Self::Queue(_) => None,
        }
    }

    /// The queue in which the runs wait for workers; none where a node delivers them.
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
    /// The Standard Webhooks secret (`whsec_...`); unsigned when there is none.
    pub secret: Option<String>,
}

/// Says which headers and whether a secret, but no value: they may be credentials, and this ends up in logs.
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
    /// The program and its arguments; or, with `shell`, one line for `sh -c`.
    pub command: Command,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
}

/// Says which variables, but no value, as above.
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

/// What a target said of one attempt. A failed target is an outcome, not an error of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Succeeded {
        output: Option<String>,
    },
    /// The receiver took the work and will report through the settle call; the claim stays until then or its time-out.
    Accepted,
    Failed {
        error: String,
        output: Option<String>,
        retry: Retry,
    },
    /// The receiver is gone for good (410): the run fails and the job is paused with this note.
    Gone {
        note: String,
        output: Option<String>,
    },
    TimedOut {
        after: Span,
        output: Option<String>,
    },
    /// Stopped because somebody cancelled the run.
    Cancelled {
        output: Option<String>,
    },
    /// The node or worker that held the claim vanished.
    Lost,
    /// Claimed and never sent: handed back without spending an attempt.
    Unsent,
    /// The settings of this node forbid the delivery; those of another may allow it. Nothing was sent. `address` is the one that
    /// may not be reached; without it, commands may not be run.
    NotHere {
        error: String,
        address: Option<IpAddr>,
    },
}

/// Whether a failure is worth another try, and when at the earliest.
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
}
