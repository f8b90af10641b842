//! The target of a job as its definition names it, and the outcome of one attempt. The targets crate does the delivery.

mod destination;
mod http;
mod outcome;
mod queue;
mod shell;

use serde::{Deserialize, Serialize};

pub use self::{
    destination::Destination,
    http::{HTTP_TIMEOUT_MAX, HttpMethod, HttpTarget},
    outcome::{Outcome, Retry},
    queue::QueueTarget,
    shell::{Command, ShellTarget},
};
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
