//! What a handler gets, and how it reports a failure.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

/// Maximum size of log text not sent yet: the same as the server stores. Of a longer text only the end is kept.
const LOG_BYTES_MAX: usize = 64 * 1024;

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

fn keep_end(log: &mut String) {
    if log.len() > LOG_BYTES_MAX {
        let from = log.len() - LOG_BYTES_MAX;
        let from = (from..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(log.len());
        log.drain(..from);
    }
}

/// One attempt at a run, as the handler sees it.
#[derive(Clone, Debug)]
pub struct Context {
    run: Arc<Run>,
    log: Arc<Mutex<String>>,
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
        log.push_str(&text.replace('\0', "\u{fffd}"));
        keep_end(&mut log);
    }

    /// Puts text that could not be sent before the text that was logged since.
    pub(crate) fn put_back_log(&self, text: String) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let since = std::mem::replace(&mut *log, text);
        log.push_str(&since);
        keep_end(&mut log);
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

    pub(crate) fn take_log(&self) -> Option<String> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        (!log.is_empty()).then(|| std::mem::take(&mut *log))
    }
}
