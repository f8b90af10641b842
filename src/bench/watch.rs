//! Observes the deliveries of a node: counts them per second, or by their lag after the tick.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use everytick_domain::{target::Outcome, time::DbTime};
use everytick_engine::Spawn;
use everytick_store::{SystemClock, WallClock as _};
use everytick_targets::{Dispatch, LiveOutput, Target};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{database::Open, rig::clock};

/// Counts per second, and the time of the last count within each second. A node that has processed all due ticks waits for
/// the next second, and this waiting is not work.
#[derive(Debug)]
pub(super) struct Seconds {
    from: Instant,
    seconds: Mutex<Vec<(u64, Duration)>>,
}

impl Seconds {
    /// Counts from `from` on, and ignores earlier deliveries.
    fn new(from: Instant) -> Self {
        Self { from, seconds: Mutex::default() }
    }

    fn count(&self) {
        let Some(since) = clock().checked_duration_since(self.from) else { return };
        let second = since.as_secs() as usize;
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        if seconds.len() <= second {
            seconds.resize(second + 1, (0, Duration::ZERO));
        }
        seconds[second].0 += 1;
        seconds[second].1 = since - Duration::from_secs(second as u64);
    }

    /// Returns the count in these seconds and the working time. `behind` marks the seconds that ended with due ticks left;
    /// these count as work to their end.
    pub(super) fn between(&self, seconds: Range<usize>, behind: &[bool]) -> (u64, Duration) {
        let seen = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        seconds.fold((0, Duration::ZERO), |(count, work), second| {
            let (more, until) = seen.get(second).copied().unwrap_or_default();
            let whole = behind.get(second).copied().unwrap_or(false);
            (count + more, work + if whole { Duration::from_secs(1) } else { until })
        })
    }
}

/// Runs the loops of a node, but counts its deliveries and drops them. The measurement ends when the tick is recorded and
/// its run is claimed.
#[derive(Debug)]
pub(super) struct CountingSpawn {
    started: AtomicBool,
    pub(super) seen: Seconds,
}

impl CountingSpawn {
    pub(super) fn from(from: Instant) -> Arc<Self> {
        Arc::new(Self { started: AtomicBool::new(false), seen: Seconds::new(from) })
    }

    /// Call this when the loops have started. Every later task is a delivery.
    pub(super) fn started(&self) {
        self.started.store(true, Ordering::Release);
    }
}

impl Spawn for CountingSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if self.started.load(Ordering::Acquire) {
            self.seen.count();
        } else {
            tokio::spawn(task);
        }
    }
}

/// A target that returns success at once.
#[derive(Debug, Default)]
pub(super) struct NoopTarget;

#[async_trait]
impl Target for NoopTarget {
    async fn deliver(&self, _: &Dispatch, _: &dyn LiveOutput, _: &CancellationToken) -> Outcome {
        succeeded()
    }
}

fn succeeded() -> Outcome {
    Outcome::Succeeded { output: None }
}

/// A target that returns success at once, and records the lag of each delivery after its tick, on the database clock.
#[derive(Debug)]
pub(super) struct Lags {
    /// Database clock minus local clock, in milliseconds.
    ahead: i64,
    /// Earlier ticks are not counted.
    from: DbTime,
    millis: Mutex<Vec<u64>>,
}

/// A longer lag is counted as this one.
const LAG_MAX_MS: usize = 120_000;

impl Lags {
    pub(super) async fn new(open: &Open, from: DbTime) -> anyhow::Result<Arc<Self>> {
        let mut ahead = i64::MAX;
        // The database reads its clock after `before`, so each difference is too large. The smallest is the most exact.
        for _ in 0..10 {
            let before = SystemClock.now();
            ahead = ahead.min(open.store.now().await?.millis() - before.millis());
        }
        Ok(Arc::new(Self { ahead, from, millis: Mutex::default() }))
    }

    fn counted(&self) -> MutexGuard<'_, Vec<u64>> {
        self.millis.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> u64 {
        self.counted().iter().sum()
    }

    /// The lag that `part` of the deliveries did not exceed.
    pub(super) fn quantile(&self, part: f64) -> f64 {
        let millis = self.counted();
        let wanted = (millis.iter().sum::<u64>() as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = millis.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.unwrap_or(0) as f64
    }

    pub(super) fn max(&self) -> f64 {
        self.counted().len().saturating_sub(1) as f64
    }
}

#[async_trait]
impl Target for Lags {
    async fn deliver(&self, dispatch: &Dispatch, _: &dyn LiveOutput, _: &CancellationToken) -> Outcome {
        let now = SystemClock.now().millis() + self.ahead;
        if dispatch.scheduled_at >= self.from {
            let lag = ((now - dispatch.scheduled_at.millis()).max(0) as usize).min(LAG_MAX_MS);
            let mut millis = self.counted();
            if millis.len() <= lag {
                millis.resize(lag + 1, 0);
            }
            millis[lag] += 1;
        }
        succeeded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_that_ends_with_due_ticks_left_counts_as_work_to_its_end() {
        let seconds = Seconds::new(clock());
        *seconds.seconds.lock().unwrap() =
            vec![(9, Duration::ZERO), (10, Duration::from_millis(250)), (20, Duration::from_millis(100))];
        assert_eq!(seconds.between(1..4, &[false; 4]), (30, Duration::from_millis(350)));
        assert_eq!(seconds.between(1..4, &[false, false, true, true]), (30, Duration::from_millis(2_250)));
    }
}
