//! Signals from commands to loops of the same process. A hint only wakes a loop earlier than its timer. A lost hint costs time,
//! never a tick.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

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
    owners: Notify,
    queues: Notify,
    flows: Notify,
    /// How often tokens or settings have changed.
    access: AtomicU64,
    ended: Mutex<Vec<(JobId, RunId)>>,
}

/// Ended runs that wait for the cancel loop. A node without that loop (`--roles api`) never reads them, so further runs
/// are dropped. A node that works on a dropped run stops the work when it next compares its claims.
const ENDED_MAX: usize = 10_000;

impl Hints {
    /// Jobs were created or changed.
    pub fn jobs_changed(&self) {
        self.0.jobs.notify_one();
    }
    /// A run began to wait, for a node or in a queue.
    pub fn run_waits(&self) {
        self.0.waiting.notify_one();
        self.0.queues.notify_one();
    }
    /// A user, a worker or another node ended these runs: stop working on them.
    pub fn runs_ended(&self, job: JobId, runs: impl IntoIterator<Item = RunId>) {
        let mut ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let free = ENDED_MAX.saturating_sub(ended.len());
        ended.extend(runs.into_iter().take(free).map(|run| (job, run)));
        drop(ended);
        self.0.stops.notify_one();
    }

    /// Partitions were released, or a node joined or left.
    pub fn owners_changed(&self) {
        self.0.owners.notify_one();
    }

    /// Tokens or settings were changed, perhaps by another node: cached ones may be outdated.
    pub fn access_changed(&self) {
        self.0.access.fetch_add(1, Ordering::AcqRel);
    }
    /// A number that changes with every [`Hints::access_changed`].
    #[must_use]
    pub fn access_version(&self) -> u64 {
        self.0.access.load(Ordering::Acquire)
    }

    pub async fn on_owners_changed(&self) {
        self.0.owners.notified().await;
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
    /// A run ended, and a flow may continue.
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

#[cfg(test)]
mod tests {
    use everytick_domain::{ids::Cause, time::DbTime};

    use super::*;

    #[tokio::test]
    async fn ended_runs_that_no_loop_reads_are_kept_up_to_a_limit() {
        let hints = Hints::default();
        let job = JobId::from_uuid(uuid::Uuid::from_u128(1));
        let run = |n: usize| RunId::of(job, Cause::Tick(DbTime::from_millis(i64::try_from(n).unwrap())));
        for n in 0..ENDED_MAX * 2 {
            hints.runs_ended(job, [run(n)]);
        }
        assert_eq!(hints.on_runs_ended().await.len(), ENDED_MAX);
        hints.runs_ended(job, [run(0)]);
        assert_eq!(hints.on_runs_ended().await, [(job, run(0))], "reading them empties the list");
    }
}
