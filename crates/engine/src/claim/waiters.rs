//! Workers that wait for work. One task polls the queues for all of them, at every hint and poll interval. For each queue with
//! due work it wakes one worker; a worker that got its full limit wakes the next. So 1,000 idle workers cost as much as one,
//! and the workers of one tenant do not delay those of another.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use everytick_domain::ids::TenantId;
use everytick_store::Store;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    Hints,
    settings::{QUEUE_POLL, TENANT_WAITING_CLAIMS_MAX, WAITING_CLAIMS_MAX},
};

/// A queue of a tenant.
pub(crate) type QueueKey = (TenantId, String);

#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimWaiters(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waiting: Mutex<Waiting>,
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct Waiting {
    queues: BTreeMap<QueueKey, VecDeque<Entry>>,
    count: usize,
    by_tenant: BTreeMap<TenantId, usize>,
    last: u64,
    /// Whether the task that polls the queues is running.
    is_polled: bool,
}

/// The entry of a waiting worker in the list of its queue.
#[derive(Debug)]
struct Entry {
    number: u64,
    worker: String,
    wake: oneshot::Sender<()>,
}

/// A worker that waits for a queue. Dropping it removes the worker from the list.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: ClaimWaiters,
    key: QueueKey,
    number: u64,
    woken: oneshot::Receiver<()>,
}

impl ClaimWaiters {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a worker behind those that wait for the same queue. `None` if too many workers wait, of all tenants or of this one.
    pub(crate) fn join(&self, key: &QueueKey, worker: &str) -> Option<Waiter> {
        let mut waiting = self.waiting();
        let own = waiting.by_tenant.get(&key.0).copied().unwrap_or_default();
        if waiting.count >= WAITING_CLAIMS_MAX || own >= TENANT_WAITING_CLAIMS_MAX {
            return None;
        }
        waiting.count += 1;
        *waiting.by_tenant.entry(key.0).or_default() += 1;
        waiting.last += 1;
        let number = waiting.last;
        let (wake, woken) = oneshot::channel();
        waiting.queues.entry(key.clone()).or_default().push_back(Entry { number, worker: worker.to_owned(), wake });
        Some(Waiter { waiters: self.clone(), key: key.clone(), number, woken })
    }

    /// Wakes the worker that has waited longest for the queue.
    pub(crate) fn wake(&self, key: &QueueKey) {
        let mut waiting = self.waiting();
        while let Some(Entry { wake, .. }) = waiting.queues.get_mut(key).and_then(VecDeque::pop_front) {
            waiting.ended(key.0, 1);
            if wake.send(()).is_ok() {
                break;
            }
        }
        if waiting.queues.get(key).is_some_and(VecDeque::is_empty) {
            waiting.queues.remove(key);
        }
    }

    /// Ends the waits of one worker for the queue. Returns how many there were.
    pub(crate) fn leave(&self, key: &QueueKey, worker: &str) -> usize {
        self.waiting().remove(key, |entry| entry.worker == worker)
    }

    /// Ends all waits, now and later.
    pub(crate) fn close(&self) {
        self.0.closed.cancel();
    }

    pub(crate) async fn closed(&self) {
        self.0.closed.cancelled().await;
    }

    /// Starts the polling task if it is not running. It runs as long as a worker waits.
    pub(crate) fn watch(&self, store: &Arc<dyn Store>, hints: &Hints) {
        if std::mem::replace(&mut self.waiting().is_polled, true) {
            return;
        }
        let (waiters, store, hints) = (self.clone(), store.clone(), hints.clone());
        tokio::spawn(async move { waiters.poll(store.as_ref(), &hints).await });
    }

    async fn poll(&self, store: &dyn Store, hints: &Hints) {
        loop {
            let queues: Vec<QueueKey> = {
                let mut waiting = self.waiting();
                if waiting.queues.is_empty() {
                    waiting.is_polled = false;
                    return;
                }
                waiting.queues.keys().cloned().collect()
            };
            let pause = match store.look_at_queues(&queues).await {
                Ok(poll) => {
                    for key in &poll.due {
                        self.wake(key);
                    }
                    poll.next_due.map_or(QUEUE_POLL, |due| Duration::from(due.since(poll.now)).min(QUEUE_POLL))
                }
                Err(error) => {
                    tracing::warn!(%error, "could not poll the queues for waiting workers");
                    QUEUE_POLL
                }
            };
            tokio::select! {
                biased;
                () = self.closed() => {
                    self.waiting().is_polled = false;
                    return;
                }
                () = hints.on_queue_waits() => {}
                () = tokio::time::sleep(pause.max(Duration::from_millis(1))) => {}
            }
        }
    }
}

impl Waiting {
    /// Removes the entries of a queue that match. Returns how many there were.
    fn remove(&mut self, key: &QueueKey, matches: impl Fn(&Entry) -> bool) -> usize {
        let Some(entries) = self.queues.get_mut(key) else { return 0 };
        let before = entries.len();
        entries.retain(|entry| !matches(entry));
        let (removed, is_empty) = (before - entries.len(), entries.is_empty());
        self.ended(key.0, removed);
        if is_empty {
            self.queues.remove(key);
        }
        removed
    }

    /// Counts waits of a tenant that have ended.
    fn ended(&mut self, tenant: TenantId, count: usize) {
        self.count -= count;
        if let Some(own) = self.by_tenant.get_mut(&tenant) {
            *own = own.saturating_sub(count);
            if *own == 0 {
                self.by_tenant.remove(&tenant);
            }
        }
    }
}

impl Waiter {
    /// Waits until the queue may have work. `false` if the worker has left the queue.
    pub(crate) async fn woken(&mut self) -> bool {
        (&mut self.woken).await.is_ok()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.waiting().remove(&self.key, |entry| entry.number == self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> QueueKey {
        (TenantId::DEFAULT, "q".to_owned())
    }

    #[tokio::test]
    async fn a_wake_reaches_only_the_first_worker_that_still_waits() {
        let waiters = ClaimWaiters::default();
        let (gone, mut first, second) = (
            waiters.join(&key(), "w").unwrap(),
            waiters.join(&key(), "w").unwrap(),
            waiters.join(&key(), "w").unwrap(),
        );
        drop(gone);
        waiters.wake(&key());
        assert!(first.woken().await);
        assert_eq!(waiters.waiting().count, 1);
        drop(first);
        drop(second);
        assert_eq!(waiters.waiting().count, 0);
        assert!(waiters.waiting().queues.is_empty());
        waiters.wake(&key());
    }

    #[tokio::test]
    async fn a_worker_that_leaves_ends_its_own_waits_only() {
        let waiters = ClaimWaiters::default();
        let [mut first, mut second] = [(); 2].map(|()| waiters.join(&key(), "leaves").unwrap());
        let mut other = waiters.join(&key(), "stays").unwrap();
        assert_eq!(waiters.leave(&key(), "leaves"), 2);
        assert!(!first.woken().await && !second.woken().await);
        assert_eq!(waiters.leave(&key(), "leaves"), 0);
        drop((first, second));
        assert_eq!(waiters.waiting().count, 1);
        waiters.wake(&key());
        assert!(other.woken().await);
    }

    #[test]
    fn a_full_list_accepts_no_worker_until_one_leaves() {
        let waiters = ClaimWaiters::default();
        let of = |n: usize| (TenantId::from_raw(i32::try_from(n % 20).unwrap()), "q".to_owned());
        let mut all: Vec<_> = (0..WAITING_CLAIMS_MAX).map(|n| waiters.join(&of(n), "w").unwrap()).collect();
        assert!(waiters.join(&of(20), "w").is_none());
        all.pop();
        assert!(waiters.join(&of(20), "w").is_some());
    }

    #[test]
    fn the_waiting_workers_of_one_tenant_leave_places_to_others() {
        let waiters = ClaimWaiters::default();
        let mut own: Vec<_> = (0..TENANT_WAITING_CLAIMS_MAX).map(|_| waiters.join(&key(), "w").unwrap()).collect();
        assert!(waiters.join(&key(), "w").is_none());
        assert!(waiters.join(&(TenantId::from_raw(2), "q".to_owned()), "w").is_some());
        own.pop();
        assert!(waiters.join(&key(), "w").is_some());
        drop(own);
        assert!(waiters.waiting().by_tenant.is_empty());
    }
}
