//! Where workers wait for work. All of them share one look at their queues, at every hint and poll; whoever finds something due
//! calls one worker, and one that got all it asked for calls the next. So a thousand idle workers cost as much as one, and
//! the workers of one tenant do not keep another's from their turn.

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
    settings::{QUEUE_POLL, WAITING_CLAIMS_MAX},
};

/// A queue of a tenant.
pub(crate) type QueueKey = (TenantId, String);

#[derive(Clone, Debug, Default)]
pub(crate) struct Room(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waiting: Mutex<Waiting>,
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct Waiting {
    queues: BTreeMap<QueueKey, VecDeque<(u64, oneshot::Sender<()>)>>,
    count: usize,
    last: u64,
    /// Somebody looks for all who wait.
    watched: bool,
}

/// A place in the room; leaving it gives the place up.
#[derive(Debug)]
pub(crate) struct Place {
    room: Room,
    key: QueueKey,
    number: u64,
    called: oneshot::Receiver<()>,
}

impl Room {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, behind those who wait for the same queue. `None` when the room is full.
    pub(crate) fn enter(&self, key: &QueueKey) -> Option<Place> {
        let mut waiting = self.waiting();
        if waiting.count >= WAITING_CLAIMS_MAX {
            return None;
        }
        waiting.count += 1;
        waiting.last += 1;
        let number = waiting.last;
        let (call, called) = oneshot::channel();
        waiting.queues.entry(key.clone()).or_default().push_back((number, call));
        Some(Place { room: self.clone(), key: key.clone(), number, called })
    }

    /// Calls whoever has waited longest for the queue.
    pub(crate) fn call(&self, key: &QueueKey) {
        let mut waiting = self.waiting();
        while let Some((_, call)) = waiting.queues.get_mut(key).and_then(VecDeque::pop_front) {
            waiting.count -= 1;
            if call.send(()).is_ok() {
                break;
            }
        }
        if waiting.queues.get(key).is_some_and(VecDeque::is_empty) {
            waiting.queues.remove(key);
        }
    }

    /// Nobody waits here any longer.
    pub(crate) fn close(&self) {
        self.0.closed.cancel();
    }

    pub(crate) async fn closed(&self) {
        self.0.closed.cancelled().await;
    }

    /// Sees to it that somebody looks, for as long as anybody waits.
    pub(crate) fn watch(&self, store: &Arc<dyn Store>, hints: &Hints) {
        if std::mem::replace(&mut self.waiting().watched, true) {
            return;
        }
        let (room, store, hints) = (self.clone(), store.clone(), hints.clone());
        tokio::spawn(async move { room.look(store.as_ref(), &hints).await });
    }

    async fn look(&self, store: &dyn Store, hints: &Hints) {
        loop {
            let queues: Vec<QueueKey> = {
                let mut waiting = self.waiting();
                if waiting.queues.is_empty() {
                    waiting.watched = false;
                    return;
                }
                waiting.queues.keys().cloned().collect()
            };
            let pause = match store.look_at_queues(&queues).await {
                Ok(look) => {
                    for key in &look.due {
                        self.call(key);
                    }
                    look.next_due.map_or(QUEUE_POLL, |due| Duration::from(due.since(look.now)).min(QUEUE_POLL))
                }
                Err(error) => {
                    tracing::warn!(%error, "could not look for work in queues");
                    QUEUE_POLL
                }
            };
            tokio::select! {
                biased;
                () = self.closed() => {
                    self.waiting().watched = false;
                    return;
                }
                () = hints.on_queue_waits() => {}
                () = tokio::time::sleep(pause.max(Duration::from_millis(1))) => {}
            }
        }
    }
}

impl Place {
    /// Something may be there now.
    pub(crate) async fn called(&mut self) {
        // A room that is gone calls nobody, and closes first.
        let _ = (&mut self.called).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.room.waiting();
        let Some(places) = waiting.queues.get_mut(&self.key) else { return };
        let before = places.len();
        places.retain(|(number, _)| *number != self.number);
        let (left, empty) = (before - places.len(), places.is_empty());
        waiting.count -= left;
        if empty {
            waiting.queues.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> QueueKey {
        (TenantId::DEFAULT, "q".to_owned())
    }

    #[tokio::test]
    async fn a_call_reaches_one_and_the_first_who_still_waits() {
        let room = Room::default();
        let (gone, mut first, second) =
            (room.enter(&key()).unwrap(), room.enter(&key()).unwrap(), room.enter(&key()).unwrap());
        drop(gone);
        room.call(&key());
        first.called().await;
        assert_eq!(room.waiting().count, 1);
        drop(first);
        drop(second);
        assert_eq!(room.waiting().count, 0);
        assert!(room.waiting().queues.is_empty());
        room.call(&key());
    }

    #[test]
    fn a_full_room_takes_nobody_until_somebody_leaves() {
        let room = Room::default();
        let mut places: Vec<_> = (0..WAITING_CLAIMS_MAX).map(|_| room.enter(&key()).unwrap()).collect();
        assert!(room.enter(&key()).is_none());
        places.pop();
        assert!(room.enter(&key()).is_some());
    }
}
