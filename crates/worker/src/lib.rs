//! A worker for the queue of an everytick server. A handler is an async function with one argument, a [`Context`]: the run, its
//! payload, a log, and a token that is cancelled when the handler must stop. The worker does the rest: it claims as many runs
//! as it has free slots, extends claims by heartbeats, and reports results until the server answers. When the
//! program stops the worker, the worker completes the runs in progress.
//!
//! ```no_run
//! use everytick_worker::{Context, Failure, Worker};
//! use tokio_util::sync::CancellationToken;
//!
//! async fn send(context: Context) -> Result<String, Failure> {
//!     let to: String = context.payload()?;
//!     context.log(&format!("attempt {} for {to}\n", context.run().attempt));
//!     Ok("sent".to_owned())
//! }
//!
//! # async fn run() -> Result<(), everytick_worker::WorkerError> {
//! let stop = CancellationToken::new();
//! Worker::new("http://127.0.0.1:8640", "emails")?.concurrency(8).run(send, stop).await;
//! # Ok(())
//! # }
//! ```
//!
//! A run is delivered at least once, always under the same id: do the work of one id only once.

mod client;
mod context;
mod work;

use std::{future::Future, sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use client::Client;
pub use context::{Context, Failure, Run};

/// How long a claim waits at the server. A stopping worker waits for the answer too, because it may contain runs.
const CLAIM_WAIT: Duration = Duration::from_secs(10);
/// The server's limit for one claim.
const CLAIM_RUNS_MAX: usize = 100;
/// Delay after a failed request. It doubles with each failure in a row.
const RETRY_MIN: Duration = Duration::from_millis(200);
/// Maximum of that delay.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long a handler may continue after its run was cancelled or its claim was lost.
const STOP_GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("{0:?} is not the URL of a server; write one such as \"http://127.0.0.1:8640\"")]
    Address(String),
    #[error("could not set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// A worker of one queue.
#[derive(Clone, Debug)]
pub struct Worker {
    client: Client,
    queue: String,
    name: String,
    concurrency: usize,
    stop_grace: Duration,
}

impl Worker {
    /// A worker named after this host and process, with one run at a time.
    pub fn new(server: &str, queue: &str) -> Result<Self, WorkerError> {
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "worker".to_owned());
        Ok(Self {
            client: Client::new(server)?,
            queue: queue.to_owned(),
            name: format!("{host}-{}", std::process::id()),
            concurrency: 1,
            stop_grace: STOP_GRACE,
        })
    }

    /// Sets the name that runs and attempts show.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets how many runs it works on at a time.
    #[must_use]
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs.max(1);
        self
    }

    /// Sets how long a handler may continue after its run was cancelled or its claim was lost, before it is dropped.
    #[must_use]
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Works until `stop` is cancelled. Then it claims no more runs, completes those in progress, and returns. If the server
    /// cannot be reached, it retries forever.
    pub async fn run<H, F>(&self, handler: H, stop: CancellationToken)
    where
        H: Fn(Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<String, Failure>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let (slots, runs) = (Arc::new(Semaphore::new(self.concurrency)), TaskTracker::new());
        let mut pause = RETRY_MIN;
        while !stop.is_cancelled() {
            // Acquire a slot first: the lease of a claimed run starts at once, so the run must start at once.
            let free = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                permit = slots.clone().acquire_owned() => permit,
            };
            let Ok(first) = free else { break };
            let limit = (1 + slots.available_permits()).min(CLAIM_RUNS_MAX);
            let claimed = match self.client.claim(&self.queue, &self.name, limit, CLAIM_WAIT).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    tracing::warn!(%error, queue = self.queue, "could not claim runs");
                    sleep_or(&stop, pause).await;
                    pause = (pause * 2).min(RETRY_MAX);
                    continue;
                }
            };
            if claimed.is_empty() {
                // A stopping server answers at once, without runs. Pause, so as not to claim in a busy loop.
                sleep_or(&stop, RETRY_MIN).await;
            }
            pause = RETRY_MIN;
            let mut first = Some(first);
            for run in claimed {
                let slot = match first.take() {
                    Some(slot) => Some(slot),
                    None => slots.clone().acquire_owned().await.ok(),
                };
                let (client, handler, grace) = (self.client.clone(), handler.clone(), self.stop_grace);
                runs.spawn(async move {
                    work::work(client, run, handler, grace).await;
                    drop(slot);
                });
            }
        }
        runs.close();
        runs.wait().await;
    }
}

async fn sleep_or(stop: &CancellationToken, time: Duration) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(time) => {}
    }
}
