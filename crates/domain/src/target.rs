//! Where a run goes, as a job defines it, and what the target said of it. How to get there is the targets crate's matter.

use std::{collections::BTreeMap, fmt};

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

    /// How long a run may take when its job does not say.
    #[must_use]
    pub const fn timeout_default(&self) -> Span {
        match self {
            Self::Http(_) => Span::seconds(30),
            Self::Shell(_) | Self::Queue(_) => Span::hours(1),
        }
    }

    /// Retries when the job does not say. A command may have done half its work, so it is not repeated unasked.
    #[must_use]
    pub const fn max_retries_default(&self) -> u32 {
        match self {
            Self::Http(_) | Self::Queue(_) => 3,
            Self::Shell(_) => 0,
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
}

/// Whether a failure is worth another try, and when at the earliest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    Allowed,
    /// The receiver named a delay (`Retry-After`).
    After(Span),
    Never,
}
