//! Starts and stops one node, and reports whether it works.

use std::{future::Future, sync::Arc, time::Duration};

use everytick_domain::{ids::Incarnation, partition::PartitionSet, time::DbTime};
use everytick_store::{ChangeMark, NodeProcess, Result, Store, WallClock};
use everytick_targets::Target;
use futures::FutureExt as _;

use crate::{
    Hints, Settings, Spawn, claim,
    clock::{DbClock, MonoTime},
    cluster::{compare, join, lease, partitions, unsure},
    commands::Entropy,
    dispatch::{accept, cancel},
    live::LiveLogs,
    pulse,
    schedule::{load, raise, tick},
    settings::RECORDERS,
    settle,
    shared::Shared,
    upkeep::{backfill, backlog, detect, flows, prune, tenants},
};

/// The parts that an engine is built from.
#[derive(Clone)]
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub target: Arc<dyn Target>,
    pub hints: Hints,
    pub live: LiveLogs,
    pub entropy: Arc<dyn Entropy>,
    pub spawn: Arc<dyn Spawn>,
    /// The node's own clock. It is only compared with the database clock, to report the difference.
    pub wall: Arc<dyn WallClock>,
    /// Whether the process that a lease names still runs. `None` if this host cannot check it.
    pub process_lives: fn(&NodeProcess) -> Option<bool>,
    pub settings: Settings,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A running node.
pub struct Engine {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("incarnation", &self.shared.incarnation).finish_non_exhaustive()
    }
}

impl Engine {
    /// Joins and starts the loops. Claims of earlier incarnations of this node are settled as lost before jobs are loaded.
    pub async fn start(parts: Parts, incarnation: Incarnation) -> Result<Self> {
        let clock = DbClock::default();
        let (lease, sent) = join::join(&parts, incarnation, &clock).await?;
        let mark = parts.store.changes(&PartitionSet::none(), ChangeMark::default(), 0).await?.mark;
        let (shared, ended, accepted) = Shared::new(parts, clock, incarnation, lease, sent);
        let shared = Arc::new(shared);
        let engine = Self { shared };
        engine.spawn("pulse", pulse::run(engine.shared.clone()));
        if !engine.shared.parts.settings.may_own {
            engine.shared.loaded.cancel();
            engine.spawn("renew", lease::run(engine.shared.clone()));
            engine.spawn("compare", compare::run(engine.shared.clone()));
            return Ok(engine);
        }
        // Settle these claims before jobs are loaded: no job may be loaded with the run of an old claim in progress.
        if let Err(error) = settle::lost::reap(&engine.shared).await {
            unsure::report(&engine.shared, &error);
        }
        engine.spawn(pulse::SETTLE, settle::batch::run(engine.shared.clone(), ended));
        engine.spawn("accept", accept::run(engine.shared.clone(), accepted));
        engine.spawn("renew", lease::run(engine.shared.clone()));
        engine.spawn("compare", compare::run(engine.shared.clone()));
        engine.spawn("reap", settle::lost::run(engine.shared.clone()));
        engine.spawn("partitions", partitions::run(engine.shared.clone()));
        engine.spawn(pulse::LOAD, load::run(engine.shared.clone(), mark));
        for _ in 0..RECORDERS {
            engine.spawn(pulse::TICK, tick::run(engine.shared.clone()));
        }
        engine.spawn(pulse::CLAIM, claim::choose::run(engine.shared.clone()));
        engine.spawn("cancel", cancel::run(engine.shared.clone()));
        engine.spawn("cancel-poll", cancel::run_poll(engine.shared.clone()));
        engine.spawn("raise", raise::run(engine.shared.clone()));
        engine.spawn("prune", prune::run(engine.shared.clone()));
        engine.spawn("detect", detect::run(engine.shared.clone()));
        engine.spawn("watchdog", settle::overdue::run(engine.shared.clone()));
        engine.spawn("backfill", backfill::run(engine.shared.clone()));
        engine.spawn("flows", flows::run(engine.shared.clone()));
        engine.spawn("backlog", backlog::run(engine.shared.clone()));
        engine.spawn("tenants", tenants::run(engine.shared.clone()));
        Ok(engine)
    }

    /// Starts a loop. A loop that panics, or ends before the node stops, makes the process end.
    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let shared = self.shared.clone();
        let task = pulse::watched(shared.pulse.watch(name), task);
        let task = self.shared.loops.track_future(async move {
            let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
            if ended.is_err() {
                shared.break_down(format!("the loop {name:?} panicked"));
            } else if !shared.stopping() {
                shared.break_down(format!("the loop {name:?} ended unexpectedly"));
            }
        });
        self.shared.parts.spawn.spawn(Box::pin(task));
    }

    /// Whether the node records ticks: the jobs that come due are loaded, the lease is renewed, no loop hangs, and the calls of
    /// the loops succeed.
    ///
    /// # Errors
    /// The reasons why the node is not ready, as text for users.
    pub fn ready(&self) -> std::result::Result<(), String> {
        let (shared, settings) = (&self.shared, &self.shared.parts.settings);
        if shared.broken.is_cancelled() {
            return Err(self.broken_by());
        }
        let mut reasons = shared.pulse.reasons(MonoTime::now(), settings.statement_timeout(), settings.slots);
        let also = [
            (shared.stopping(), "the node is stopping"),
            (!shared.loaded.is_cancelled(), "the jobs that come due are not loaded yet"),
            (!shared.trusts_lease(), "the lease could not be renewed in time"),
        ];
        reasons.extend(also.into_iter().filter(|(is_true, _)| *is_true).map(|(_, reason)| reason.to_owned()));
        if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) }
    }

    /// Why the node cannot continue. Empty while it can.
    #[must_use]
    pub fn broken_by(&self) -> String {
        self.shared.broken_by.get().cloned().unwrap_or_default()
    }

    /// How many times the loops were checked: once a second until the node has stopped. If the number stops rising, the runtime
    /// no longer runs its tasks.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.shared.pulse.checks()
    }

    /// The names of the loops that this node runs.
    #[must_use]
    pub fn loops(&self) -> Vec<&'static str> {
        self.shared.pulse.names()
    }

    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.stopping()
    }

    /// Waits until the horizon is loaded for the first time.
    pub async fn loaded(&self) {
        self.shared.loaded.cancelled().await;
    }

    /// Waits until a loop has failed for good. This node cannot continue; a new process can.
    pub async fn broken(&self) {
        self.shared.broken.cancelled().await;
    }

    /// The next ticks of the jobs in memory.
    #[must_use]
    pub fn next_ticks(&self, count: usize) -> Vec<(DbTime, String)> {
        self.shared.memory().next_ticks(count)
    }

    /// Checks all jobs for dead schedules once. The loop does the same page by page. Returns how many it repaired.
    pub async fn detect(&self) -> Result<usize> {
        detect::walk(&self.shared).await
    }

    /// Advances the backfills of this node's jobs by one step. The loop does the same. Returns how many runs it created.
    pub async fn backfill(&self) -> Result<usize> {
        backfill::pass(&self.shared).await
    }

    /// Processes the backlogs that were too long for one transaction. The loop does the same. Returns how many runs it changed.
    pub async fn work_backlogs(&self) -> Result<usize> {
        backlog::pass(&self.shared).await
    }

    /// Carries out suspensions, resumptions and deletions of tenants. The loop does the same. Returns how many jobs it changed.
    pub async fn work_tenants(&self) -> Result<usize> {
        tenants::pass(&self.shared).await
    }

    /// Advances every flow that has steps. The loop does the same. Returns how many runs began to wait.
    pub async fn advance(&self) -> Result<usize> {
        flows::pass(&self.shared).await
    }

    /// Stops the node:
    ///
    /// 1. It records no more ticks, makes no more claims, and releases its partitions at once, so that other nodes continue.
    /// 2. Runs in progress may end within `drain`. Then they are stopped and settled as lost.
    /// 3. Claims that were never sent are released unspent.
    /// 4. It ends its lease.
    pub async fn stop(&self, drain: Duration) {
        let shared = &self.shared;
        shared.stopping.cancel();
        // Concurrently: a database that does not answer must not delay the end of runs, and runs must not delay the release.
        tokio::join!(partitions::retire(shared), self.drain(drain));
        shared.loops.close();
        let _ = tokio::time::timeout(shared.parts.settings.statement_timeout() * 2, shared.loops.wait()).await;
        if let Err(error) = shared.call("leave", shared.parts.store.leave(&shared.lease())).await {
            tracing::warn!(%error, "could not end the lease; it will expire by itself");
        }
    }

    /// Lets runs in progress end, then ends the loops when all runs are settled.
    async fn drain(&self, drain: Duration) {
        let shared = &self.shared;
        shared.deliveries.close();
        if tokio::time::timeout(drain, shared.deliveries.wait()).await.is_err() {
            let own: Vec<_> = shared.memory().claims().values().cloned().collect();
            for own in own {
                tracing::warn!(job = own.job.spec.name, run = %own.claim.run, "a run did not end in time; it will be delivered again");
                own.cancel.cancel();
            }
            // Targets end soon after the cancel. A shell command has a grace period between TERM and KILL.
            let _ = tokio::time::timeout(Duration::from_secs(10), shared.deliveries.wait()).await;
        }
        let settled = async {
            while shared.memory().has_claims() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(shared.parts.settings.statement_timeout(), settled).await;
        shared.stopped.cancel();
    }
}
