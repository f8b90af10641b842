//! Delivers runs: a [`Dispatch`] goes in, an [`Outcome`] comes out. Targets know no store; the engine decides on retries.

mod address;
mod capabilities;
mod http;
mod queue;
mod shell;
mod tail;
mod validate;

use std::{fmt::Display, net::SocketAddr};

use async_trait::async_trait;
use everytick_domain::{
    ids::{Fence, JobId, RunId},
    target::{Outcome, Retry, TargetSpec},
    time::{DbTime, Span},
};
use tokio_util::sync::CancellationToken;

pub use address::{AddressPolicy, Refused};
pub use capabilities::{Capabilities, Needs, needs};
pub use http::{OwnAddresses, OwnApi, RESPONSE_BYTES_MAX, RETRY_AFTER_MAX, Webhook};
pub use shell::{Shell, TERM_GRACE, end_orphans};
pub use tail::OUTPUT_TAIL_BYTES_MAX;
pub use validate::validate;

/// One attempt at one run, as a target receives it.
#[derive(Clone, Debug)]
pub struct Dispatch {
    pub run: RunId,
    pub job_id: JobId,
    pub job: String,
    /// `tick`, `request`, `backfill` or `parent`.
    pub cause: &'static str,
    pub scheduled_at: DbTime,
    pub attempt: u32,
    pub fence: Fence,
    pub node: String,
    /// The database clock when the attempt starts; the timestamp of the signature.
    pub now: DbTime,
    /// JSON text, or `None`.
    pub payload: Option<String>,
    pub timeout: Span,
    pub target: TargetSpec,
}

/// One fact about the run that the receiver gets, as a header or as an environment variable.
struct Fact<'a> {
    header: &'static str,
    variable: &'static str,
    value: &'a dyn Display,
}

impl Dispatch {
    fn facts(&self) -> [Fact<'_>; 7] {
        fn fact<'a>(header: &'static str, variable: &'static str, value: &'a dyn Display) -> Fact<'a> {
            Fact { header, variable, value }
        }
        [
            fact("everytick-job", "EVERYTICK_JOB", &self.job),
            fact("everytick-run", "EVERYTICK_RUN", &self.run),
            fact("everytick-scheduled-at", "EVERYTICK_SCHEDULED_AT", &self.scheduled_at),
            fact("everytick-attempt", "EVERYTICK_ATTEMPT", &self.attempt),
            fact("everytick-fence", "EVERYTICK_FENCE", &self.fence),
            fact("everytick-cause", "EVERYTICK_CAUSE", &self.cause),
            fact("everytick-node", "EVERYTICK_NODE", &self.node),
        ]
    }
}

/// A way to execute runs.
#[async_trait]
pub trait Target: Send + Sync {
    /// Delivers once. Never panics. Returns at the dispatch's timeout at the latest, or soon after `cancel`; a command may use its
    /// grace period between TERM and KILL in addition.
    async fn deliver(&self, dispatch: &Dispatch, live: &dyn LiveOutput, cancel: &CancellationToken) -> Outcome;

    /// What the node's settings allow it to deliver. A delivery that they do not allow ends as [`Outcome::NotHere`].
    fn capabilities(&self) -> Capabilities {
        Capabilities::all()
    }

    /// Sets the API addresses of the cluster's nodes. No webhook is sent there from now on.
    fn forbid(&self, _: Vec<SocketAddr>) {}
}

/// Receives a command's output while it runs. The delivery itself calls it, so it must not block.
pub trait LiveOutput: Send + Sync {
    fn push(&self, stream: Stream, chunk: &[u8]);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Ignores the output.
#[derive(Clone, Copy, Debug)]
pub struct Discard;

impl LiveOutput for Discard {
    fn push(&self, _: Stream, _: &[u8]) {}
}

/// All targets of a node. Chooses by the kind of the dispatch's target.
#[derive(Debug)]
pub struct Targets {
    webhook: Webhook,
    shell: Option<Shell>,
}

impl Targets {
    /// `shell` is `None` unless the operator enabled it.
    #[must_use]
    pub fn new(webhook: Webhook, shell: Option<Shell>) -> Self {
        Self { webhook, shell }
    }
}

#[async_trait]
impl Target for Targets {
    async fn deliver(&self, dispatch: &Dispatch, live: &dyn LiveOutput, cancel: &CancellationToken) -> Outcome {
        match (&dispatch.target, &self.shell) {
            (TargetSpec::Http(to), _) => self.webhook.deliver(dispatch, to, cancel).await,
            (TargetSpec::Shell(what), Some(shell)) => shell.deliver(dispatch, what, live, cancel).await,
            // Does not happen: no node claims runs of a queue.
            (TargetSpec::Queue(_), _) => Outcome::Unsent,
            (TargetSpec::Shell(_), None) => Outcome::NotHere {
                error: "shell targets are not enabled on this node; start it with --enable-shell".to_owned(),
                address: None,
            },
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { shell: self.shell.is_some(), addresses: self.webhook.policy() }
    }

    fn forbid(&self, addresses: Vec<SocketAddr>) {
        self.webhook.forbid(addresses);
    }
}

/// A failure that a retry would only repeat.
fn hopeless(error: impl Into<String>) -> Outcome {
    Outcome::Failed { error: error.into(), output: None, retry: Retry::Never }
}

#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("could not set up the webhook client")]
    Client { source: reqwest::Error },
}
