//! The outcome of one attempt, as a target reports it.

use std::net::IpAddr;

use crate::time::Span;

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
    /// The receiver answered 202 and did not report within the timeout.
    Unreported {
        after: Span,
    },
    /// Stopped because the run was cancelled.
    Cancelled {
        output: Option<String>,
    },
    /// The node or worker that claimed the run vanished.
    Lost,
    /// Claimed but never sent: released without using an attempt.
    Unsent,
    /// A worker returned its claim before it began the work. No attempt is used.
    Returned,
    /// This node's settings forbid the delivery; another node's may allow it. Nothing was sent. `address` is the forbidden
    /// address; `None` means that the node does not deliver this kind of target.
    NotHere {
        error: String,
        address: Option<IpAddr>,
    },
}

impl Outcome {
    /// Removes the output.
    pub fn take_output(&mut self) -> Option<String> {
        match self {
            Self::Succeeded { output }
            | Self::Failed { output, .. }
            | Self::Gone { output, .. }
            | Self::TimedOut { output, .. }
            | Self::Cancelled { output } => output.take(),
            Self::Accepted
            | Self::Unreported { .. }
            | Self::Lost
            | Self::Unsent
            | Self::Returned
            | Self::NotHere { .. } => None,
        }
    }
}

/// Whether and when a failed attempt may be retried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    Allowed,
    /// The receiver named a delay (`Retry-After`).
    After(Span),
    Never,
}
