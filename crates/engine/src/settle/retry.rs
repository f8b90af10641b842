//! Settlements that could not be stored, each with the time of its next retry. A settlement that can never be stored delays no
//! other: it is retried alone, with growing delays, while new settlements continue. Nothing here waits or does I/O.
//!
//! The length of the queue is bounded by the number of claims of the node, because each claim is in the queue at most
//! once.

use std::{cmp::Reverse, time::Duration};

use crate::{
    clock::MonoTime,
    settings::{SETTLE_BYTES_MAX, SETTLE_RETRY_FIRST, SETTLE_RETRY_MAX, SETTLES_PER_BATCH_MAX},
};

/// A settlement that waits for its next retry.
#[derive(Debug)]
pub(crate) struct Unsettled<T> {
    pub item: T,
    /// When it was first sent.
    pub since: MonoTime,
    /// When it is sent next.
    at: MonoTime,
    /// How often it was postponed.
    postponed: u32,
    /// It failed when it was sent alone.
    alone: bool,
}

impl<T> Unsettled<T> {
    pub(crate) const fn new(item: T, now: MonoTime) -> Self {
        Self { item, since: now, at: now, postponed: 0, alone: false }
    }

    /// Delays the next retry, each time for longer.
    pub(crate) fn postpone(&mut self, now: MonoTime) {
        let pause = SETTLE_RETRY_FIRST.saturating_mul(1 << self.postponed.min(16)).min(SETTLE_RETRY_MAX);
        self.postponed = self.postponed.saturating_add(1);
        self.at = now.plus(pause);
    }

    /// Notes that it failed when it was sent alone, and postpones it.
    pub(crate) fn failed_alone(&mut self, now: MonoTime) {
        self.alone = true;
        self.postpone(now);
    }
}

/// The queue of these settlements.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    waiting: Vec<Unsettled<T>>,
    /// How many are sent together: half as many after a failure, twice as many after a success.
    size: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: Vec::new(), size: SETTLES_PER_BATCH_MAX }
    }
}

impl<T> Queue<T> {
    pub(crate) fn extend(&mut self, unsettled: impl IntoIterator<Item = Unsettled<T>>) {
        self.waiting.extend(unsettled);
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The settlement that has waited longest.
    pub(crate) fn oldest(&self) -> Option<&Unsettled<T>> {
        self.waiting.iter().min_by_key(|unsettled| unsettled.since)
    }

    /// How long until the next retry.
    pub(crate) fn wait(&self, now: MonoTime) -> Option<Duration> {
        self.waiting.iter().map(|unsettled| unsettled.at).min().map(|at| at.since(now))
    }

    /// Takes the batch to send now. A settlement that failed alone is sent alone, because it would make the others fail.
    pub(crate) fn take(&mut self, now: MonoTime, bytes: impl Fn(&T) -> usize) -> Vec<Unsettled<T>> {
        self.waiting.sort_by_key(|unsettled| Reverse(unsettled.at));
        let mut taken: Vec<Unsettled<T>> = Vec::new();
        let mut left = SETTLE_BYTES_MAX;
        while let Some(next) = self.waiting.last().filter(|next| next.at <= now) {
            let alone = next.alone || taken.last().is_some_and(|last| last.alone);
            if !taken.is_empty() && (alone || taken.len() >= self.size || left == 0) {
                break;
            }
            left = left.saturating_sub(bytes(&next.item));
            taken.extend(self.waiting.pop());
        }
        taken
    }

    /// A batch was stored: the next may be twice as large.
    pub(crate) fn succeeded(&mut self) {
        self.size = (self.size * 2).min(SETTLES_PER_BATCH_MAX);
    }

    /// A batch of this size failed: it is retried in halves until the failing settlement is found.
    pub(crate) fn failed(&mut self, size: usize) {
        self.size = (size / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(items: std::ops::Range<usize>, now: MonoTime) -> Queue<usize> {
        let mut queue = Queue::default();
        queue.extend(items.map(|item| Unsettled::new(item, now)));
        queue
    }

    /// Stores all but the bad ones. Returns the stored ones in order, and how many batches it took.
    fn drain(queue: &mut Queue<usize>, bad: &[usize], now: MonoTime) -> (Vec<usize>, usize) {
        let (mut stored, mut batches) = (Vec::new(), 0);
        loop {
            let mut taken = queue.take(now, |_| 1);
            if taken.is_empty() {
                return (stored, batches);
            }
            batches += 1;
            if !taken.iter().any(|unsettled| bad.contains(&unsettled.item)) {
                queue.succeeded();
                stored.extend(taken.into_iter().map(|unsettled| unsettled.item));
                continue;
            }
            queue.failed(taken.len());
            if let [alone] = &mut taken[..] {
                alone.failed_alone(now);
            }
            queue.extend(taken);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_settlement_that_cannot_be_stored_is_found_and_delays_no_other() {
        let now = MonoTime::now();
        let mut queue = queue(0..1_000, now);
        let (mut stored, batches) = drain(&mut queue, &[400], now);
        stored.sort_unstable();
        assert_eq!(stored, (0..1_000).filter(|item| *item != 400).collect::<Vec<_>>());
        assert!(batches < 60, "{batches} batches");
        assert_eq!((queue.len(), queue.oldest().map(|unsettled| unsettled.item)), (1, Some(400)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_settlement_that_failed_alone_is_retried_alone_with_growing_delays() {
        let now = MonoTime::now();
        let mut queue = queue(0..1, now);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            drain(&mut queue, &[0], MonoTime::now());
            let pause = queue.wait(MonoTime::now()).unwrap();
            pauses.push(pause);
            tokio::time::advance(pause).await;
        }
        assert_eq!(pauses[..3], [SETTLE_RETRY_FIRST, SETTLE_RETRY_FIRST * 2, SETTLE_RETRY_FIRST * 4]);
        assert_eq!(pauses.last(), Some(&SETTLE_RETRY_MAX));
        queue.extend((1..5).map(|item| Unsettled::new(item, now)));
        (0..3).for_each(|_| queue.succeeded());
        let groups = [queue.take(MonoTime::now(), |_| 1).len(), queue.take(MonoTime::now(), |_| 1).len()];
        assert_eq!(groups, [4, 1], "the failing settlement is sent alone");
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_outage_batches_grow_again() {
        let now = MonoTime::now();
        let mut queue = queue(0..1_000, now);
        queue.failed(2);
        assert_eq!(drain(&mut queue, &[], now), ((0..1_000).rev().collect(), 10), "1, 2, 4, ... at a time");
    }
}
