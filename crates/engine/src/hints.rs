//! Signals from commands to loops of the same process. A loop woken early does what its timer would have made it do, and no
//! more; a lost hint costs time, never a tick.

use std::sync::{Arc, Mutex, PoisonError};

use everytick_domain::ids::{JobId, RunId};
use tokio::sync::Notify;

/// Cheap to clone; all clones share the same signals.
#[derive(Clone, Debug, Default)]
pub struct Hints(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    jobs: Notify,
    waiting: Notify,
    stops: Notify,
    holders: Notify,
    queues: Notify,
    flows: Notify,
    ended: Mutex<Vec<(JobId, RunId)>>,
}

impl Hints {
    /// Jobs were made or changed.
    pub fn jobs_changed(&self) {
        self.0.jobs.notify_one();
    }
    /// A run began to wait, for a node or in a queue.
    pub fn run_waits(&self) {
        self.0.waiting.notify_one();
        self.0.queues.notify_one();
    }
    /// Runs were ended by somebody else: whoever works on them should stop.
    pub fn runs_ended(&self, job: JobId, runs: impl IntoIterator<Item = RunId>) {
        let runs = runs.into_iter().map(|run| (job, run));
        self.0.ended.lock().unwrap_or_else(PoisonError::into_inner).extend(runs);
        self.0.stops.notify_one();
    }

    /// Partitions were given back, or a node has come or gone.
    pub fn holders_changed(&self) {
        self.0.holders.notify_one();
    }

    pub async fn on_holders_changed(&self) {
        self.0.holders.notified().await;
    }
    pub async fn on_jobs_changed(&self) {
        self.0.jobs.notified().await;
    }
    /// A run began to wait in a queue.
    pub fn queue_waits(&self) {
        self.0.queues.notify_one();
    }
    pub async fn on_queue_waits(&self) {
        self.0.queues.notified().await;
    }
    /// A run has ended that a flow may follow.
    pub fn flow_steps(&self) {
        self.0.flows.notify_one();
    }
    pub async fn on_flow_steps(&self) {
        self.0.flows.notified().await;
    }
    pub async fn on_run_waits(&self) {
        self.0.waiting.notified().await;
    }
    pub async fn on_runs_ended(&self) -> Vec<(JobId, RunId)> {
        self.0.stops.notified().await;
        std::mem::take(&mut *self.0.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
