//! What a target receives, and where a command's output goes while it runs.

use std::{borrow::Cow, fmt::Display};

use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    target::TargetSpec,
    time::{DbTime, Span},
};

use crate::Secrets;

/// One attempt at one run, as a target receives it.
#[derive(Clone, Debug)]
pub struct Dispatch {
    pub run: RunId,
    pub job_id: JobId,
    pub tenant: TenantId,
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
    /// The credential with which the receiver may extend, log and settle this claim over the API. It is a secret.
    pub run_token: Option<String>,
    /// The values of the secrets to which the target and the payload refer. The texts have the references; a delivery fills
    /// them in where it uses them, so that no other part of the process sees a value.
    pub secrets: Secrets,
}

/// One fact about the run, which the receiver gets as a header or as an environment variable.
pub(crate) struct Fact<'a> {
    pub(crate) header: &'static str,
    pub(crate) variable: &'static str,
    pub(crate) value: &'a dyn Display,
}

impl Dispatch {
    /// The payload with the values of its references.
    pub(crate) fn body(&self) -> Result<Option<Cow<'_, [u8]>>, String> {
        self.payload.as_deref().map(|payload| self.secrets.fill_payload(payload)).transpose()
    }

    pub(crate) fn facts(&self) -> [Fact<'_>; 7] {
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

/// Receives a command's output while it runs. The delivery calls `push` itself, so `push` must not block.
pub trait LiveOutput: Send + Sync {
    fn push(&self, stream: Stream, chunk: &[u8]);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }
}

/// Ignores the output.
#[derive(Clone, Copy, Debug)]
pub struct Discard;

impl LiveOutput for Discard {
    fn push(&self, _: Stream, _: &[u8]) {}
}
