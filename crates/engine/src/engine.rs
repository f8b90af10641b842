//! One node: what its loops share, how it starts, and how it stops.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use everytick_domain::{ids::Incarnation, partition::PartitionSet, time::DbTime};
use everytick_store::{ChangeMark, Lease, NodeInfo, Result, Store, StoreError};
use everytick_targets::Target;
use futures::FutureExt as _;
use tokio::sync::{Notify, RwLock, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Hints, Settings, Spawn,
    clock::{DbClock, MonoTime},
    commands::Entropy,
    live::LiveLogs,
    loops::{self, deliver::Ended},
    memory::Memory,
};

/// What an engine is made of.
#[derive(Clone)]
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub target: Arc<dyn Target>,
    pub hints: Hints,
    pub live: LiveLogs,
    pub entropy: Arc<dyn Entropy>,
    pub spawn: Arc<dyn Spawn>,
    pub settings: Settings,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What the loops of one node share.
pub(crate) struct Shared {
    pub parts: Parts,
    pub clock: DbClock,
    pub incarnation: Incarnation,
    lease: Mutex<Lease>,
    memory: Mutex<Memory>,
    /// Held for reading by a statement that may make claims, from before it is sent until its answer is taken in; held for
    /// writing by whoever compares what we hold with what the database says we hold.
    pub statements: RwLock<()>,
    pub outcomes: mpsc::UnboundedSender<Ended>,
    pub wake_tick: Notify,
    pub wake_load: Notify,
    pub wake_claim: Notify,
    pub wake_renew: Notify,
    /// No more ticks, no more claims.
    pub stopping: CancellationToken,
    /// The loops end.
    pub stopped: CancellationToken,
    pub deliveries: TaskTracker,
    pub loops: TaskTracker,
    /// The horizon has been loaded once.
    pub loaded: CancellationToken,
    /// When the lease was renewed last.
    pub renewed: Mutex<MonoTime>,
    /// A loop has ended that should not have.
    pub broken: CancellationToken,
}

impl Shared {
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lease(&self) -> Lease {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_lease(&self, lease: Lease) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = lease;
    }

    /// Asks the store, and waits for its answer no longer than a statement may take. No answer is an unsure one.
    pub(crate) async fn ask<T>(&self, doing: &'static str, asked: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.parts.settings.statement_timeout();
        match tokio::time::timeout(limit, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::Unsure { doing, source: "no answer in time".into() }),
        }
    }

    /// The partitions whose jobs this node plays.
    pub(crate) fn partitions(&self) -> PartitionSet {
        PartitionSet::all(self.parts.store.partitions())
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Whether this node does what must be done once.
    #[expect(clippy::unused_self, reason = "one node leads itself")]
    pub(crate) fn is_leader(&self) -> bool {
        true
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
    /// Joins, and starts the loops. What an earlier incarnation had claimed is settled as lost, and the horizon is loaded,
    /// before this returns: the node is then ready.
    pub async fn start(parts: Parts, incarnation: Incarnation) -> Result<Self> {
        let clock = DbClock::default();
        let sent = MonoTime::now();
        let node = NodeInfo::named(&parts.settings.node);
        let (lease, now) = parts.store.join(&node, incarnation, parts.settings.lease).await?;
        clock.observe(sent, now);
        let mark =
            parts.store.changes(&PartitionSet::all(parts.store.partitions()), ChangeMark::default(), 0).await?.mark;
        let (outcomes, ended) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            parts,
            clock,
            incarnation,
            lease: Mutex::new(lease),
            memory: Mutex::new(Memory::default()),
            statements: RwLock::new(()),
            outcomes,
            wake_tick: Notify::new(),
            wake_load: Notify::new(),
            wake_claim: Notify::new(),
            wake_renew: Notify::new(),
            stopping: CancellationToken::new(),
            stopped: CancellationToken::new(),
            deliveries: TaskTracker::new(),
            loops: TaskTracker::new(),
            loaded: CancellationToken::new(),
            renewed: Mutex::new(MonoTime::now()),
            broken: CancellationToken::new(),
        });
        let engine = Self { shared };
        // What earlier incarnations had claimed is put back before jobs are read, so that no job is read with it.
        if let Err(error) = loops::renew::reap(&engine.shared).await {
            loops::unsure::report(&engine.shared, &error);
        }
        engine.spawn(loops::settle::run(engine.shared.clone(), ended));
        engine.spawn(loops::renew::run(engine.shared.clone()));
        engine.spawn(loops::load::run(engine.shared.clone(), mark));
        engine.spawn(loops::tick::run(engine.shared.clone()));
        engine.spawn(loops::claim::run(engine.shared.clone()));
        engine.spawn(loops::cancel::run(engine.shared.clone()));
        engine.spawn(loops::raise::run(engine.shared.clone()));
        engine.spawn(loops::prune::run(engine.shared.clone()));
        engine.spawn(loops::detect::run(engine.shared.clone()));
        Ok(engine)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let shared = self.shared.clone();
        let task = self.shared.loops.track_future(async move {
            let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
            if ended.is_err() || !shared.stopping() {
                tracing::error!("a loop of the engine broke down");
                shared.broken.cancel();
            }
        });
        self.shared.parts.spawn.spawn(Box::pin(task));
    }

    /// Whether ticks are being played: the horizon is loaded, the store takes writes, and every loop lives.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let renewed = *self.shared.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = MonoTime::now().since(renewed) < Duration::from(self.shared.parts.settings.lease);
        self.shared.loaded.is_cancelled() && alive && !self.shared.stopping() && !self.shared.broken.is_cancelled()
    }

    /// Waits until the horizon is loaded for the first time.
    pub async fn loaded(&self) {
        self.shared.loaded.cancelled().await;
    }

    /// Waits until a loop has broken down. The node cannot go on then; a new process can.
    pub async fn broken(&self) {
        self.shared.broken.cancelled().await;
    }

    /// The ticks that come next, of those that are near.
    #[must_use]
    pub fn coming(&self, count: usize) -> Vec<(DbTime, String)> {
        self.shared.memory().coming(count)
    }

    /// Walks once over all jobs in search of dead schedules, by hand; the loop does so page by page. Gives how many it repaired.
    pub async fn detect(&self) -> Result<usize> {
        loops::detect::walk(&self.shared).await
    }

    /// Stops: no more ticks and claims; what runs may end within `drain`, then it is stopped and handed back as lost; what
    /// was claimed and never sent is handed back unspent. Then the cursors are raised and the lease is ended.
    pub async fn stop(&self, drain: Duration) {
        let shared = &self.shared;
        shared.stopping.cancel();
        shared.deliveries.close();
        if tokio::time::timeout(drain, shared.deliveries.wait()).await.is_err() {
            let held: Vec<_> = shared.memory().held().values().cloned().collect();
            for held in held {
                tracing::warn!(job = held.job.spec.name, run = %held.claim.run, "did not end in time: stopped, and delivered again later");
                held.cancel.cancel();
            }
            // Targets end soon after they are told to; a command has its grace between TERM and KILL.
            let _ = tokio::time::timeout(Duration::from_secs(10), shared.deliveries.wait()).await;
        }
        let settled = async {
            while !shared.memory().held().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(shared.parts.settings.statement_timeout(), settled).await;
        shared.stopped.cancel();
        shared.loops.close();
        let _ = tokio::time::timeout(shared.parts.settings.statement_timeout() * 2, shared.loops.wait()).await;
        loops::raise::pass(shared, true).await;
        if let Err(error) = shared.ask("leave", shared.parts.store.leave(&shared.lease())).await {
            tracing::warn!(%error, "the lease could not be ended; it will expire");
        }
    }
}
