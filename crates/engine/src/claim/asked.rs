//! Notes when a worker last asked for runs of a queue, for `explain`. Workers ask many times a second, so a node writes each queue
//! at most once in [`ASKED_NOTED_EVERY`]. The row survives restarts and is shared by all nodes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use everytick_domain::queue::ASKED_NOTED_EVERY;
use everytick_store::Store;

use super::waiters::QueueKey;
use crate::{
    clock::MonoTime,
    settings::{ASKED_NOTE_TIMEOUT, ASKED_QUEUES_MAX},
};

#[derive(Clone, Debug, Default)]
pub(crate) struct AskedQueues(Arc<Mutex<HashMap<QueueKey, MonoTime>>>);

impl AskedQueues {
    /// Stores that a worker asked for runs of the queue, unless this node has stored it within [`ASKED_NOTED_EVERY`]. A
    /// failure is only logged: the claim does not depend on it.
    pub(crate) async fn note(&self, store: &dyn Store, key: &QueueKey, worker: &str) {
        if !self.is_due(key, MonoTime::now()) {
            return;
        }
        let (tenant, queue) = key;
        match tokio::time::timeout(ASKED_NOTE_TIMEOUT, store.note_asked(*tenant, queue, worker)).await {
            Ok(Ok(true)) => {}
            // No job uses the queue yet. The first such job may be created at any moment.
            Ok(Ok(false)) => self.forget(key),
            Ok(Err(error)) => tracing::debug!(%error, queue, "could not store that a worker asked for runs"),
            Err(_) => tracing::debug!(queue, "could not store in time that a worker asked for runs"),
        }
    }

    /// Makes the queue due again.
    fn forget(&self, key: &QueueKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Whether the queue is to be written now. If so, it is due again one interval later.
    fn is_due(&self, key: &QueueKey, now: MonoTime) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(key).is_some_and(|at| now.since(*at) < Duration::from(ASKED_NOTED_EVERY)) {
            return false;
        }
        // Workers choose the names of queues, so their number has no other limit.
        if noted.len() >= ASKED_QUEUES_MAX {
            noted.clear();
        }
        noted.insert(key.clone(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use everytick_domain::ids::TenantId;
    use everytick_sim::SimStore;
    use everytick_store::{Limits, SystemClock};

    use super::*;

    #[tokio::test]
    async fn each_queue_is_written_once_per_interval() {
        let (asked, now) = (AskedQueues::default(), MonoTime::now());
        let key = |queue: &str| (TenantId::DEFAULT, queue.to_owned());
        assert!(asked.is_due(&key("a"), now));
        assert!(!asked.is_due(&key("a"), now), "a moment ago");
        assert!(asked.is_due(&key("b"), now), "another queue");
        assert!(asked.is_due(&key("a"), now.plus(ASKED_NOTED_EVERY.into())));
    }

    #[tokio::test]
    async fn a_queue_that_no_job_uses_yet_is_written_at_the_next_request() {
        let store = SimStore::new(Arc::new(SystemClock), Limits::default());
        let (asked, key) = (AskedQueues::default(), (TenantId::DEFAULT, "q".to_owned()));
        asked.note(&store, &key, "w").await;
        assert!(asked.is_due(&key, MonoTime::now()), "nothing was written");
    }

    #[tokio::test]
    async fn the_number_of_remembered_queues_is_bounded() {
        let (asked, now) = (AskedQueues::default(), MonoTime::now());
        for n in 0..=ASKED_QUEUES_MAX {
            assert!(asked.is_due(&(TenantId::DEFAULT, n.to_string()), now));
        }
        assert_eq!(asked.0.lock().unwrap().len(), 1);
    }
}
