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
//! Worker::new("http://127.0.0.1:8640", "emails")?.concurrency(8).run(send, stop).await
//! # }
//! ```
//!
//! A run is delivered at least once, always under the same id: do the work of one id only once.
//!
//! The worker logs what it does with `tracing`. [`Worker::on_event`] replaces this log.

mod claim;
mod client;
mod context;
mod event;
mod server;
mod stop;
mod work;

use std::{future::Future, sync::Arc, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use client::Client;
pub use context::{Context, Failure, Run};
pub use event::Event;
use event::Observer;
pub use server::{Certificates, Server};
use stop::Stop;

/// Delay after a failed request. It doubles with each failure in a row.
const RETRY_MIN: Duration = Duration::from_millis(200);
/// Maximum of that delay. It is well below the lease of a claim, so that a report arrives soon after the server is back.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// How long a handler may continue after its run was cancelled or its claim was lost.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Maximum length of a name in bytes, as the server checks it.
const NAME_BYTES_MAX: usize = 128;

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("{0:?} is not the URL of a server; write one such as \"http://127.0.0.1:8640\"")]
    Address(String),
    /// A file of [`Certificates`] cannot be used.
    #[error("{0}")]
    Certificate(String),
    #[error("could not set up the HTTP client")]
    Client(#[source] reqwest::Error),
    /// The first request was refused, so a repeat would be refused too.
    #[error("{0}")]
    Refused(String),
}

/// A worker of one queue.
#[derive(Clone, Debug)]
pub struct Worker {
    client: Client,
    queue: String,
    name: String,
    concurrency: usize,
    stop_grace: Duration,
    stop_now: CancellationToken,
}

/// The name of this host and the process id.
fn default_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let process = std::process::id().to_string();
    let host: String = host.chars().filter(|c| c.is_ascii_graphic()).take(NAME_BYTES_MAX - 1 - process.len()).collect();
    if host.is_empty() { format!("worker-{process}") } else { format!("{host}-{process}") }
}

impl Worker {
    /// A worker named after this host and process, with one run at a time.
    pub fn new(server: &str, queue: &str) -> Result<Self, WorkerError> {
        Self::of(Server::new(server, Certificates::default())?, queue)
    }

    /// As [`Worker::new`], for a server that needs certificates.
    pub fn of(server: Server, queue: &str) -> Result<Self, WorkerError> {
        Ok(Self {
            client: Client::new(server)?,
            queue: queue.to_owned(),
            name: default_name(),
            concurrency: 1,
            stop_grace: STOP_GRACE,
            stop_now: CancellationToken::new(),
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

    /// Sends this API token with each request.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.client = self.client.with_token(token);
        self
    }

    /// Sets how many runs it works on at a time.
    #[must_use]
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs.max(1);
        self
    }

    /// Sets how long a handler may continue after its run was cancelled, its claim was lost, or the worker ends it, before it is
    /// dropped.
    #[must_use]
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Sets the token that ends the runs in progress: [`Context::stopping`] is cancelled, and the worker waits only a few seconds
    /// more for the server. Without it, a worker that stops waits for its runs without limit.
    #[must_use]
    pub fn stop_now(mut self, token: CancellationToken) -> Self {
        self.stop_now = token;
        self
    }

    /// Calls the function with each event, instead of logging it. The function must not block.
    #[must_use]
    pub fn on_event(mut self, observe: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.client = self.client.observed_by(Observer::new(observe));
        self
    }

    /// Works until `stop` is cancelled. Then it claims no more runs, completes those in progress, and returns. A claim that is
    /// answered after that is returned to the queue. If the server cannot be reached, it retries forever. An error means that
    /// the server refused the first request: the worker's settings are wrong, or the server is not everytick.
    pub async fn run<H, F>(&self, handler: H, stop: CancellationToken) -> Result<(), WorkerError>
    where
        H: Fn(Context) -> F + Send + Sync + 'static,
        F: Future<Output = Result<String, Failure>> + Send + 'static,
    {
        let (observer, runs) = (self.client.observer(), TaskTracker::new());
        observer.tell(Event::Started {
            worker: &self.name,
            queue: &self.queue,
            server: self.client.server(),
            concurrency: self.concurrency,
        });
        let stop = Stop { soon: stop, now: self.stop_now.clone(), grace: self.stop_grace };
        let working = async {
            let claimed = self.claim_until(&Arc::new(handler), &stop, &runs).await;
            runs.close();
            runs.wait().await;
            claimed
        };
        let announcing = async {
            tokio::select! {
                () = stop.soon.cancelled() => observer.tell(Event::Stopping { runs: runs.len() }),
                () = stop.now.cancelled() => stop.soon.cancel(),
            }
            stop.now.cancelled().await;
            observer.tell(Event::StoppingNow { runs: runs.len() });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = announcing => {}
            worked = working => worked?,
        }
        observer.tell(Event::Stopped);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_name_is_that_of_the_host_and_the_process() {
        let host = std::process::Command::new("uname").arg("-n").output().unwrap().stdout;
        let host = String::from_utf8(host).unwrap();
        assert_eq!(default_name(), format!("{}-{}", host.trim(), std::process::id()));
        assert_eq!(Worker::new("http://127.0.0.1:1", "q").unwrap().name(), default_name());
    }
}
