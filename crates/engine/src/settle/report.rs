//! The report of a receiver or worker on the result of its work. Converts a report to an outcome, and checks whether it
//! has already ended an attempt.

use everytick_domain::{
    ids::Fence,
    output::repeats,
    run::kept,
    target::{Outcome, Retry},
};
use everytick_store::AttemptRecord;

/// A reported result.
#[derive(Clone, Debug)]
pub struct Report {
    pub fence: Fence,
    pub succeeded: bool,
    /// Stored after the log of the worker.
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

    /// Whether this report ended the attempt. The stored output may begin with the log of the worker.
    pub(crate) fn has_ended(&self, attempt: &AttemptRecord) -> bool {
        let (_, error) = kept(None, self.error());
        attempt.fence == self.fence
            && attempt.outcome.as_deref() == Some(self.word())
            && attempt.error == error
            && self
                .output
                .as_deref()
                .is_none_or(|output| attempt.output.as_deref().is_some_and(|stored| repeats(stored, output)))
    }
}
