//! The simulated store: the transactions of the real stores on maps in memory, for tests only.
//!
//! Faults delay or fail each call on its way to the database and back. A journal of every change is kept for the simulator's
//! checker. Each named mutant disables one rule here, and the checker must notice.

mod backfills;
mod calendars;
mod call;
mod cancels;
mod db;
mod explain;
mod faults;
mod flows;
mod journal;
mod nodes;
mod prune;
mod queue;
mod reads;
mod repair;
mod runs;
mod secrets;
mod store;
mod tenants;
mod ticks;
mod tokens;
mod tx;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everytick_domain::ids::{Incarnation, JobId, RunId};
use everytick_store::{Limits, WallClock};

pub use backfills::BackfillRow;
pub use db::{Db, RangeRow, RunRow};
pub use faults::{Call, Fate, Faults, NoFaults, Point, Row};
pub use journal::Entry;

/// One node's connection to the simulated database. [`SimStore::connect`] opens another connection to the same database.
pub struct SimStore {
    db: Arc<Mutex<Db>>,
    clock: Arc<dyn WallClock>,
    faults: Arc<dyn Faults>,
    partitions: u16,
    /// Set for a connection with false answers, by which its node owns every partition. Contains the incarnation that joined
    /// through the connection.
    lied_to: Option<Arc<Mutex<Option<Incarnation>>>>,
}

impl std::fmt::Debug for SimStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimStore").finish_non_exhaustive()
    }
}

impl SimStore {
    /// A store for one process, with one partition, as SQLite is.
    #[must_use]
    pub fn new(clock: Arc<dyn WallClock>, limits: Limits) -> Self {
        Self::with(clock, limits, 1, false)
    }

    /// A store that several nodes share, with this number of partitions, as PostgreSQL is.
    #[must_use]
    pub fn shared(clock: Arc<dyn WallClock>, limits: Limits, partitions: u16) -> Self {
        Self::with(clock, limits, partitions, true)
    }

    fn with(clock: Arc<dyn WallClock>, limits: Limits, partitions: u16, shared: bool) -> Self {
        let db = Arc::new(Mutex::new(Db::new(limits, partitions, shared)));
        Self { db, clock, faults: Arc::new(NoFaults), partitions, lied_to: None }
    }

    /// Another connection to the same database, with faults of its own.
    #[must_use]
    pub fn connect(&self, faults: Arc<dyn Faults>) -> Self {
        let (db, clock) = (self.db.clone(), self.clock.clone());
        Self { db, clock, faults, partitions: self.partitions, lied_to: None }
    }

    /// Another connection to the same database, with false answers: no other node exists, and its node owns every partition.
    #[must_use]
    pub fn connect_lying(&self, faults: Arc<dyn Faults>) -> Self {
        Self { lied_to: Some(Arc::default()), ..self.connect(faults) }
    }

    fn lock(&self) -> MutexGuard<'_, Db> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every load that includes the job fail, until called with `fails = false`.
    pub fn fail_loads_of(&self, job: JobId, fails: bool) {
        let unloadable = &mut self.lock().unloadable;
        if fails {
            unloadable.insert(job)
        } else {
            unloadable.remove(&job)
        };
    }

    /// Reads the database directly, without faults, for checkers.
    pub fn inspect<T>(&self, look: impl FnOnce(&Db) -> T) -> T {
        look(&self.lock())
    }

    /// Simulates the promotion of a standby that lacks the settlement of this run: the run is claimed again.
    /// Returns whether the run had ended.
    pub fn lose_settlement(&self, run: RunId) -> bool {
        self.lock().lose_settlement(run)
    }

    /// Makes every advance of this flow fail from now on.
    pub fn break_flow(&self, flow: RunId) {
        self.lock().broken_flows.insert(flow);
    }
}
