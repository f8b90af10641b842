//! One node: the state that its loops share, how it starts, and how it stops.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use everytick_domain::{ids::Incarnation, partition::PartitionSet, time::DbTime};
use everytick_store::{
    ChangeMark, Lease, NameOwner, NodeInfo, NodeProcess, Result, Store, StoreError, TakeOver, WallClock,
};
use everytick_targets::Target;
use futures::FutureExt as _;
use tokio::sync::{Notify, RwLock, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Hints, Settings, Spawn, claim,
    clock::{DbClock, MonoTime},
    cluster::{assign, compare, lease, partitions, unsure},
    commands::Entropy,
    dispatch::{
        accept::{self, Accepted},
        cancel,
        deliver::Ended,
    },
    live::LiveLogs,
    memory::{Memory, Routes},
    meters::Meters,
    outage::Outage,
    pulse::{self, Pulse},
    schedule::{load, raise, tick},
    settings::{FAILURE_PAUSE, JOIN_PATIENCE, NAME_IN_USE_POLL, RECORDERS},
    settle,
    upkeep::{
        backfill, backlog, detect,
        flows::{self, Round},
        prune,
    },
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
    /// Whether the process that a lease names still runs; `None` when this host cannot tell.
    pub process_lives: fn(&NodeProcess) -> Option<bool>,
    pub settings: Settings,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The state that the loops of one node share.
pub(crate) struct Shared {
    pub parts: Parts,
    pub clock: DbClock,
    pub meters: Meters,
    pub incarnation: Incarnation,
    lease: Mutex<Lease>,
    memory: Mutex<Memory>,
    /// Statements that may create claims take this lock for reading, from before they are sent until their answer is applied to
    /// memory. Code that renews the lease, raises the fence or compares claims with the database takes it for writing.
    pub statements: RwLock<()>,
    pub outcomes: mpsc::UnboundedSender<Ended>,
    pub acceptances: mpsc::UnboundedSender<Accepted>,
    pub wake_tick: Notify,
    pub wake_load: Notify,
    pub wake_claim: Notify,
    pub wake_renew: Notify,
    pub wake_compare: Notify,
    pub wake_partitions: Notify,
    /// Set: record no more ticks and make no more claims.
    pub stopping: CancellationToken,
    /// Set: the loops end.
    pub stopped: CancellationToken,
    pub deliveries: TaskTracker,
    pub loops: TaskTracker,
    /// Set once the cluster has been read for the first time.
    pub cluster_read: CancellationToken,
    /// Set once the jobs of the partitions that this node owns are loaded.
    pub loaded: CancellationToken,
    /// When the request that last renewed the lease was sent.
    renewed: Mutex<MonoTime>,
    /// A statement of this node has an unknown outcome and may still take effect. Set before the next renewal can run; cleared
    /// when the fence has been raised.
    pub unsure: AtomicBool,
    /// The next comparison of claims also reads young claims.
    pub compare_all: AtomicBool,
    /// The longest delay between due time and delivery since the last renewal, in milliseconds.
    pub lag_ms: AtomicU64,
    outage: Mutex<Outage>,
    flows: Mutex<Round>,
    pub pulse: Pulse,
    /// The node cannot continue. `broken_by` has the reason.
    broken: CancellationToken,
    broken_by: OnceLock<String>,
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

    /// Sends a read-only request to the store. It changes nothing, so a missing answer is `Failed`, never `Unsure`, and the
    /// fence need not be raised.
    pub(crate) async fn read<T>(&self, doing: &'static str, asked: impl Future<Output = Result<T>>) -> Result<T> {
        match self.ask(doing, asked).await {
            Err(StoreError::Unsure { doing, source }) => Err(StoreError::Failed { doing, source }),
            answer => answer,
        }
    }

    /// Sends a request to the store and waits for the answer at most one statement timeout. A missing answer is `Unsure`.
    pub(crate) async fn ask<T>(&self, doing: &'static str, asked: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.parts.settings.statement_timeout();
        let answer = tokio::time::timeout(limit, asked).await;
        match &answer {
            // Any other error is an answer of the store, so the database works.
            Err(_) | Ok(Err(StoreError::Failed { .. } | StoreError::Unsure { .. })) => pulse::failed(limit),
            Ok(_) => pulse::answered(),
        }
        match answer {
            Ok(Ok(answer)) => {
                let away = self.outage().answered(MonoTime::now());
                if let Some(away) = away {
                    tracing::info!(?away, "the database answers again");
                }
                Ok(answer)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Unsure { doing, source: "no answer in time".into() }),
        }
    }

    pub(crate) fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of the flows loop.
    pub(crate) fn flows(&self) -> MutexGuard<'_, Round> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partitions that this node owns and runs.
    pub(crate) fn partitions(&self) -> PartitionSet {
        self.memory().partitions()
    }

    /// The leader does what must be done once. It is the node that owns partition 0.
    pub(crate) fn is_leader(&self) -> bool {
        self.partitions().contains(0)
    }

    /// How this node describes itself when it joins again after it lost its lease.
    pub(crate) fn info(&self) -> NodeInfo {
        NodeInfo { again: true, ..info(&self.parts, !self.stopping()) }
    }

    /// The lease was renewed by a request sent at `sent`.
    pub(crate) fn renewed(&self, sent: MonoTime) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }

    /// Whether the lease is certainly alive, judged by monotonic time.
    pub(crate) fn trusts_lease(&self) -> bool {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        MonoTime::now().since(renewed) < self.parts.settings.trust()
    }

    /// Runs have ended: wakes the flows loop if the store has recorded flow steps, so that it need not wait for its poll.
    pub(crate) fn notify_flows(&self) {
        if self.parts.store.take_steps_written() {
            self.parts.hints.flow_steps();
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Marks the node as not ready and makes the process end. The log message comes last, because logging may fail.
    pub(crate) fn break_down(&self, reason: String) {
        let first = self.broken_by.set(reason.clone()).is_ok();
        self.broken.cancel();
        if first {
            tracing::error!(reason, "the node cannot continue; the process ends");
        }
    }
}

fn info(parts: &Parts, may_own: bool) -> NodeInfo {
    let settings = &parts.settings;
    NodeInfo {
        can: Some(parts.target.capabilities().publish()),
        listen: (!settings.listen.is_empty()).then(|| assign::listen_text(&settings.listen)),
        region: settings.region.clone(),
        may_own: settings.may_own && may_own,
        takes_over: if settings.replace_node { TakeOver::Any } else { TakeOver::Expired },
        process: settings.process.clone(),
        ..NodeInfo::named(&settings.node)
    }
}

/// Joins for the first time. Retries for 30 s while the database is busy or unreachable.
///
/// A live process with the same node name is not replaced. If that process ran on this host, it is known at once whether it
/// lives. Otherwise its lease decides: a live process renews it, a dead one lets it expire.
async fn join(parts: &Parts, incarnation: Incarnation, clock: &DbClock) -> Result<(Lease, MonoTime)> {
    let mut node = info(parts, true);
    let mut watched: Option<Box<NameOwner>> = None;
    let begun = MonoTime::now();
    loop {
        let sent = MonoTime::now();
        match parts.store.join(&node, incarnation, parts.settings.lease).await {
            Ok((lease, now)) => {
                clock.observe(sent, now);
                return Ok((lease, sent));
            }
            Err(StoreError::NameHeld(owner)) => {
                let lives = owner.process.as_ref().and_then(parts.process_lives);
                if lives == Some(false) {
                    let pid = owner.process.as_ref().map(|process| process.pid);
                    tracing::info!(
                        node = owner.node,
                        pid,
                        "the previous process of this node has ended; taking over its lease"
                    );
                    node.takes_over = TakeOver::Only(owner.incarnation);
                    continue;
                }
                let renewed = watched.as_ref().is_some_and(|seen| seen.renewed_at != owner.renewed_at);
                if lives == Some(true) || renewed {
                    return Err(StoreError::NameHeld(owner));
                }
                if watched.is_none() {
                    tracing::warn!("the node name is in use; waiting until its lease expires or is renewed: {owner}");
                }
                watched = Some(owner);
                tokio::time::sleep(NAME_IN_USE_POLL).await;
            }
            Err(error @ (StoreError::Failed { .. } | StoreError::Unsure { .. })) => {
                if MonoTime::now().since(begun) >= JOIN_PATIENCE {
                    return Err(error);
                }
                tracing::warn!(%error, "could not join the cluster yet; trying again");
                tokio::time::sleep(FAILURE_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
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
        let (lease, sent) = join(&parts, incarnation, &clock).await?;
        let mark = parts.store.changes(&PartitionSet::none(), ChangeMark::default(), 0).await?.mark;
        let (outcomes, ended) = mpsc::unbounded_channel();
        let (acceptances, accepted) = mpsc::unbounded_channel();
        let can = parts.target.capabilities();
        let shared = Arc::new(Shared {
            parts,
            clock,
            meters: Meters::new(),
            incarnation,
            lease: Mutex::new(lease),
            memory: Mutex::new(Memory::with_routes(Routes::new(can))),
            statements: RwLock::new(()),
            outcomes,
            acceptances,
            wake_tick: Notify::new(),
            wake_load: Notify::new(),
            wake_claim: Notify::new(),
            wake_renew: Notify::new(),
            wake_compare: Notify::new(),
            wake_partitions: Notify::new(),
            stopping: CancellationToken::new(),
            stopped: CancellationToken::new(),
            deliveries: TaskTracker::new(),
            loops: TaskTracker::new(),
            cluster_read: CancellationToken::new(),
            loaded: CancellationToken::new(),
            renewed: Mutex::new(sent),
            unsure: AtomicBool::new(false),
            compare_all: AtomicBool::new(false),
            lag_ms: AtomicU64::new(0),
            outage: Mutex::default(),
            flows: Mutex::default(),
            pulse: Pulse::default(),
            broken: CancellationToken::new(),
            broken_by: OnceLock::new(),
        });
        shared.memory().set_job_share(shared.parts.settings.max_job_share);
        let engine = Self { shared };
        engine.spawn("pulse", pulse::run(engine.shared.clone()));
        if !engine.shared.parts.settings.may_own {
            engine.shared.loaded.cancel();
            engine.spawn("renew", lease::run(engine.shared.clone()));
            engine.spawn("compare", compare::run(engine.shared.clone()));
            return Ok(engine);
        }
        // Settle the claims of earlier incarnations before jobs are loaded, so that no job is loaded with such a claim as
        // active.
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
        engine.spawn("cancel-look", cancel::run_looks(engine.shared.clone()));
        engine.spawn("raise", raise::run(engine.shared.clone()));
        engine.spawn("prune", prune::run(engine.shared.clone()));
        engine.spawn("detect", detect::run(engine.shared.clone()));
        engine.spawn("watchdog", settle::overdue::run(engine.shared.clone()));
        engine.spawn("backfill", backfill::run(engine.shared.clone()));
        engine.spawn("flows", flows::run(engine.shared.clone()));
        engine.spawn("backlog", backlog::run(engine.shared.clone()));
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
    pub fn coming(&self, count: usize) -> Vec<(DbTime, String)> {
        self.shared.memory().coming(count)
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
        if let Err(error) = shared.ask("leave", shared.parts.store.leave(&shared.lease())).await {
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
