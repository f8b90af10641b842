//! The clock of a store without a database server.

use std::sync::atomic::{AtomicI64, Ordering};

use everytick_domain::time::DbTime;

/// The clock of a store in this process. It is read inside each transaction, after the lock was acquired.
pub trait WallClock: Send + Sync + 'static {
    fn now(&self) -> DbTime;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl WallClock for SystemClock {
    fn now(&self) -> DbTime {
        #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        DbTime::from_millis(since_epoch.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// A clock that tests set, also backwards.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    #[must_use]
    pub const fn at(now: DbTime) -> Self {
        Self(AtomicI64::new(now.millis()))
    }
    pub fn set(&self, now: DbTime) {
        self.0.store(now.millis(), Ordering::SeqCst);
    }
}

impl WallClock for ManualClock {
    fn now(&self) -> DbTime {
        DbTime::from_millis(self.0.load(Ordering::SeqCst))
    }
}
