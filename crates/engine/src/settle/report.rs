//! A report of a receiver or worker on the result of its work: the outcome that it means, and whether it has already ended an
//! attempt.

use everytick_domain::{
    ids::Fence,
    run::kept,
    target::{Outcome, Retry},
};
use everytick_store::AttemptRecord;

/// A reported result.
#[derive(Clone, Debug)]
pub struct Report {
    pub fence: Fence,
    pub succeeded: bool,
    /// If absent, the log of the worker is stored.
    pub output: Option<String>,
    pub error: Option<String>,
    pub retry: bool,
}

impl Report {
    fn error(&self) -> Option<String> {
        let error = || self.error.clone().unwrap_or_else(|| "reported as failed".to_owned());
        (!self.succeeded).then(error)
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let output = self.output.clone();
        match self.error() {
            None => Outcome::Succeeded { output },
            Some(error) => {
                let retry = if self.retry { Retry::Allowed } else { Retry::Never };
                Outcome::Failed { error, output, retry }
            }
        }
    }

    /// The word for the outcome in attempts and metrics.
    pub(crate) fn word(&self) -> &'static str {
        if self.succeeded { "succeeded" } else { "failed" }
    }

    /// Whether this report ended the attempt. For a report without output, the log may have been stored as output.
    pub(crate) fn has_ended(&self, attempt: &AttemptRecord) -> bool {
        let (output, error) = kept(self.output.clone(), self.error());
        attempt.fence == self.fence
            && attempt.outcome.as_deref() == Some(self.word())
            && attempt.error == error
            && (output.is_none() || attempt.output == output)
    }
}
