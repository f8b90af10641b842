//! What a handler gets, and how it reports a failure.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// Maximum size of log text not sent yet: the same as the server stores. Of a longer text only the end is kept.
pub(crate) const LOG_BYTES_MAX: usize = 64 * 1024;

/// A claimed run.
#[derive(Clone, Debug, Deserialize)]
pub struct Run {
    /// The same for every attempt.
    pub id: String,
    /// The job's name.
    pub job: String,
    pub job_id: String,
    /// `tick`, `request`, `backfill` or `parent`.
    pub cause: String,
    /// The tick, as RFC 3339.
    pub scheduled_at: String,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// Number of the claim.
    pub fence: i64,
    payload: Option<Box<RawValue>>,
    /// The attempt fails at this instant, even with heartbeats.
    pub timeout_at: String,
}

/// Why a run did not succeed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    message: String,
    output: Option<String>,
    retry: bool,
}

impl Failure {
    /// A failure that is retried if the job allows it.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), output: None, retry: true }
    }

    /// A failure that is not retried.
    #[must_use]
    pub fn for_good(message: impl Into<String>) -> Self {
        Self { retry: false, ..Self::new(message) }
    }

    /// Adds the output printed before the failure.
    #[must_use]
    pub fn with_output(mut self, output: impl Into<String>) -> Self {
        self.output = Some(output.into());
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }
    pub(crate) fn output(&self) -> Option<&str> {
        self.output.as_deref()
    }
    pub(crate) const fn may_retry(&self) -> bool {
        self.retry
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// Log text that has not been sent.
#[derive(Default, Debug)]
pub(crate) struct Unsent {
    /// Bytes before `text` that were dropped.
    pub(crate) missing: u64,
    pub(crate) text: String,
}

impl Unsent {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > LOG_BYTES_MAX {
            let from = self.text.ceil_char_boundary(self.text.len() - LOG_BYTES_MAX);
            self.text.drain(..from);
            self.missing += from as u64;
        }
    }

    /// Puts earlier text before this one.
    fn prepend(&mut self, mut earlier: Self) {
        if self.missing > 0 {
            self.missing += earlier.missing + earlier.text.len() as u64;
            return;
        }
        earlier.push(&self.text);
        *self = earlier;
    }
}

/// One attempt at a run, as the handler sees it.
#[derive(Clone, Debug)]
pub struct Context {
    run: Arc<Run>,
    log: Arc<Mutex<Unsent>>,
    cancelled: CancellationToken,
    stopping: CancellationToken,
}

impl Context {
    pub(crate) fn new(run: Arc<Run>, stopping: CancellationToken) -> Self {
        Self { run, log: Arc::default(), cancelled: CancellationToken::new(), stopping }
    }

    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The payload as JSON text; `null` when there is none.
    #[must_use]
    pub fn payload_text(&self) -> &str {
        self.run.payload.as_ref().map_or("null", |payload| payload.get())
    }

    /// The parsed payload. A payload that cannot be parsed fails the run without a retry.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(self.payload_text())
            .map_err(|error| Failure::for_good(format!("the payload cannot be parsed: {error}")))
    }

    /// Appends to the run's log, which users can read while the run is in progress. Returns at once; the text is sent within a
    /// second.
    pub fn log(&self, text: &str) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(&text.replace('\0', "\u{fffd}"));
    }

    /// Puts text that could not be sent before the text that was logged since.
    pub(crate) fn put_back_log(&self, earlier: Unsent) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).prepend(earlier);
    }

    /// Cancelled when the run was cancelled or the claim was lost. A result has no effect then.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Cancelled when the worker ends the runs in progress; see [`Worker::stop_now`](crate::Worker::stop_now). A result that the
    /// handler returns within the worker's `stop_grace` is reported.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    pub(crate) fn take_log(&self) -> Option<Unsent> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        (!log.text.is_empty()).then(|| std::mem::take(&mut *log))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_could_not_be_sent_comes_first_and_dropped_bytes_are_counted() {
        let mut log = Unsent::default();
        log.push("new");
        log.prepend(Unsent { missing: 1, text: "old ".to_owned() });
        assert_eq!((log.missing, log.text.as_str()), (1, "old new"));
        log.push(&"é".repeat(LOG_BYTES_MAX / 2));
        assert_eq!((log.missing, log.text.len()), (8, LOG_BYTES_MAX));
        log.prepend(Unsent { missing: 2, text: "gone".to_owned() });
        assert_eq!((log.missing, log.text.len()), (14, LOG_BYTES_MAX));
    }
}
