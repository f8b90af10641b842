//! One node: what its loops share, how it starts, and how it stops.

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
    ChangeMark, Lease, NameHolder, NodeInfo, NodeProcess, Result, Store, StoreError, TakeOver, WallClock,
};
use everytick_targets::Target;
use futures::FutureExt as _;
use tokio::sync::{Notify, RwLock, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Hints, Settings, Spawn,
    clock::{DbClock, MonoTime},
    commands::Entropy,
    holding,
    live::LiveLogs,
    loops::{self, accept::Accepted, deliver::Ended, flows::Round},
    memory::{Memory, Routes},
    meters::Meters,
    outage::Outage,
    pulse::{self, Pulse},
    settings::{FAILURE_PAUSE, JOIN_PATIENCE, NAME_HELD_LOOK, RECORDERS},
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
    /// The node's own clock, only compared with the database's.
    pub wall: Arc<dyn WallClock>,
    /// Whether a process that published itself in a lease still runs; `None` where this cannot be known from here.
    pub process_lives: fn(&NodeProcess) -> Option<bool>,
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
    pub meters: Meters,
    pub incarnation: Incarnation,
    lease: Mutex<Lease>,
    memory: Mutex<Memory>,
    /// Held for reading by a statement that may make claims, from before it is sent until its answer is taken in; held for
    /// writing by whoever compares what we hold with what the database says we hold.
    pub statements: RwLock<()>,
    pub outcomes: mpsc::UnboundedSender<Ended>,
    pub acceptances: mpsc::UnboundedSender<Accepted>,
    pub wake_tick: Notify,
    pub wake_load: Notify,
    pub wake_claim: Notify,
    pub wake_renew: Notify,
    pub wake_compare: Notify,
    pub wake_hold: Notify,
    /// No more ticks, no more claims.
    pub stopping: CancellationToken,
    /// The loops end.
    pub stopped: CancellationToken,
    pub deliveries: TaskTracker,
    pub loops: TaskTracker,
    /// The cluster was looked at once.
    pub looked: CancellationToken,
    /// And what fell to this node has been loaded.
    pub loaded: CancellationToken,
    /// When the request was sent that renewed the lease last.
    renewed: Mutex<MonoTime>,
    /// A statement of ours may still land: set before anybody else may renew, taken back when the fence was raised.
    pub doubt: AtomicBool,
    /// The next comparison reads young claims too.
    pub compare_all: AtomicBool,
    /// The longest that a run waited for its delivery since the last renewal, in milliseconds.
    pub lag_ms: AtomicU64,
    outage: Mutex<Outage>,
    flows: Mutex<Round>,
    pub pulse: Pulse,
    /// The node cannot go on, and why.
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

    /// Asks the store for something that it only reads. Whatever goes wrong, nothing was done: no answer is a failure, never an
    /// unsure one, and nobody has to raise the fence.
    pub(crate) async fn read<T>(&self, doing: &'static str, asked: impl Future<Output = Result<T>>) -> Result<T> {
        match self.ask(doing, asked).await {
            Err(StoreError::Unsure { doing, source }) => Err(StoreError::Failed { doing, source }),
            answer => answer,
        }
    }

    /// Asks the store, and waits for its answer no longer than a statement may take. No answer is an unsure one.
    pub(crate) async fn ask<T>(&self, doing: &'static str, asked: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.parts.settings.statement_timeout();
        let answer = tokio::time::timeout(limit, asked).await;
        match &answer {
            // What failed may not have been done; any other error is an answer of the store.
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

    /// What the loop over flows remembers.
    pub(crate) fn flows(&self) -> MutexGuard<'_, Round> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partitions whose jobs this node plays.
    pub(crate) fn partitions(&self) -> PartitionSet {
        self.memory().partitions()
    }

    /// The leader does what must be done once: it is whoever holds the first partition.
    pub(crate) fn is_leader(&self) -> bool {
        self.partitions().contains(0)
    }

    /// What this node says of itself when it has lost its lease.
    pub(crate) fn info(&self) -> NodeInfo {
        NodeInfo { again: true, ..info(&self.parts, !self.stopping()) }
    }

    /// The lease was renewed by a request that was sent then.
    pub(crate) fn renewed(&self, sent: MonoTime) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }

    /// Whether the lease surely lives, by this process's own measure of time.
    pub(crate) fn trusts_lease(&self) -> bool {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        MonoTime::now().since(renewed) < self.parts.settings.trust()
    }

    /// Runs have ended: where a flow may follow, its loop need not wait for its poll.
    pub(crate) fn tell_steps(&self) {
        if self.parts.store.left_steps() {
            self.parts.hints.flow_steps();
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// The node cannot go on: not ready from now on, and the process ends. Said last, because saying it may fail.
    pub(crate) fn break_down(&self, reason: String) {
        let first = self.broken_by.set(reason.clone()).is_ok();
        self.broken.cancel();
        if first {
            tracing::error!(reason, "the node cannot go on");
        }
    }
}

fn info(parts: &Parts, holds: bool) -> NodeInfo {
    let settings = &parts.settings;
    NodeInfo {
        can: Some(parts.target.capabilities().publish()),
        listen: (!settings.listen.is_empty()).then(|| holding::listen_text(&settings.listen)),
        region: settings.region.clone(),
        holds: settings.holds && holds,
        takes_over: if settings.replace_node { TakeOver::Any } else { TakeOver::Expired },
        process: settings.process.clone(),
        ..NodeInfo::named(&settings.node)
    }
}

/// Joins for the first time. A database that is busy or away for a moment is put up with.
///
/// A process that lives under the node's name is not replaced. Whether it lives is known at once where it ran on this host;
/// elsewhere its lease tells: one that is renewed again belongs to a living process, one that is not expires.
async fn join(parts: &Parts, incarnation: Incarnation, clock: &DbClock) -> Result<(Lease, MonoTime)> {
    let mut node = info(parts, true);
    let mut watched: Option<Box<NameHolder>> = None;
    let begun = MonoTime::now();
    loop {
        let sent = MonoTime::now();
        match parts.store.join(&node, incarnation, parts.settings.lease).await {
            Ok((lease, now)) => {
                clock.observe(sent, now);
                return Ok((lease, sent));
            }
            Err(StoreError::NameHeld(holder)) => {
                let lives = holder.process.as_ref().and_then(parts.process_lives);
                if lives == Some(false) {
                    let pid = holder.process.as_ref().map(|process| process.pid);
                    tracing::info!(
                        node = holder.node,
                        pid,
                        "the last process of this node has ended; its lease is taken over"
                    );
                    node.takes_over = TakeOver::Only(holder.incarnation);
                    continue;
                }
                let renewed = watched.as_ref().is_some_and(|seen| seen.renewed_at != holder.renewed_at);
                if lives == Some(true) || renewed {
                    return Err(StoreError::NameHeld(holder));
                }
                if watched.is_none() {
                    tracing::warn!("waiting until that lease expires or is renewed: {holder}");
                }
                watched = Some(holder);
                tokio::time::sleep(NAME_HELD_LOOK).await;
            }
            Err(error @ (StoreError::Failed { .. } | StoreError::Unsure { .. })) => {
                if MonoTime::now().since(begun) >= JOIN_PATIENCE {
                    return Err(error);
                }
                tracing::warn!(%error, "could not join yet");
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
    /// Joins, and starts the loops. What an earlier incarnation had claimed is settled as lost before jobs are read.
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
            wake_hold: Notify::new(),
            stopping: CancellationToken::new(),
            stopped: CancellationToken::new(),
            deliveries: TaskTracker::new(),
            loops: TaskTracker::new(),
            looked: CancellationToken::new(),
            loaded: CancellationToken::new(),
            renewed: Mutex::new(sent),
            doubt: AtomicBool::new(false),
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
        if !engine.shared.parts.settings.holds {
            engine.shared.loaded.cancel();
            engine.spawn("renew", loops::renew::run(engine.shared.clone()));
            engine.spawn("compare", loops::compare::run(engine.shared.clone()));
            return Ok(engine);
        }
        // What earlier incarnations had claimed is put back before jobs are read, so that no job is read with it.
        if let Err(error) = loops::renew::reap(&engine.shared).await {
            loops::unsure::report(&engine.shared, &error);
        }
        engine.spawn(pulse::SETTLE, loops::settle::run(engine.shared.clone(), ended));
        engine.spawn("accept", loops::accept::run(engine.shared.clone(), accepted));
        engine.spawn("renew", loops::renew::run(engine.shared.clone()));
        engine.spawn("compare", loops::compare::run(engine.shared.clone()));
        engine.spawn("reap", loops::renew::run_reaper(engine.shared.clone()));
        engine.spawn("hold", loops::hold::run(engine.shared.clone()));
        engine.spawn(pulse::LOAD, loops::load::run(engine.shared.clone(), mark));
        for _ in 0..RECORDERS {
            engine.spawn(pulse::TICK, loops::tick::run(engine.shared.clone()));
        }
        engine.spawn(pulse::CLAIM, loops::claim::run(engine.shared.clone()));
        engine.spawn("cancel", loops::cancel::run(engine.shared.clone()));
        engine.spawn("cancel-look", loops::cancel::run_looks(engine.shared.clone()));
        engine.spawn("raise", loops::raise::run(engine.shared.clone()));
        engine.spawn("prune", loops::prune::run(engine.shared.clone()));
        engine.spawn("detect", loops::detect::run(engine.shared.clone()));
        engine.spawn("watchdog", loops::watchdog::run(engine.shared.clone()));
        engine.spawn("backfill", loops::backfill::run(engine.shared.clone()));
        engine.spawn("flows", loops::flows::run(engine.shared.clone()));
        engine.spawn("backlog", loops::backlog::run(engine.shared.clone()));
        Ok(engine)
    }

    /// Starts a loop. One that panics, or ends before the node stops, breaks the node down.
    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let shared = self.shared.clone();
        let task = pulse::watched(shared.pulse.watch(name), task);
        let task = self.shared.loops.track_future(async move {
            let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
            if ended.is_err() {
                shared.break_down(format!("the loop {name:?} panicked"));
            } else if !shared.stopping() {
                shared.break_down(format!("the loop {name:?} ended by itself"));
            }
        });
        self.shared.parts.spawn.spawn(Box::pin(task));
    }

    /// Whether ticks are being recorded: the jobs that come due are loaded, the lease is renewed, every loop works, and what
    /// the loops do does not fail.
    ///
    /// # Errors
    /// The reasons why not, as a text for people.
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
        reasons.extend(also.into_iter().filter(|(holds, _)| *holds).map(|(_, reason)| reason.to_owned()));
        if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) }
    }

    /// Why the node cannot go on. Empty while it can.
    #[must_use]
    pub fn broken_by(&self) -> String {
        self.shared.broken_by.get().cloned().unwrap_or_default()
    }

    /// How many times the loops were checked: once a second, until the node has stopped. Where the number no longer rises,
    /// the runtime does not run its tasks.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.shared.pulse.checks()
    }

    /// The loops that this node runs, by name.
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

    /// Moves the backfills of the jobs that this node holds one step on, by hand. Gives how many runs were made.
    pub async fn backfill(&self) -> Result<usize> {
        loops::backfill::pass(&self.shared).await
    }

    /// Works off the backlogs that were too long for one transaction, by hand; the loop does so too. Gives how many runs that were.
    pub async fn work_backlogs(&self) -> Result<usize> {
        loops::backlog::pass(&self.shared).await
    }

    /// Advances every flow that has something to do, by hand; the loop does so too. Gives how many runs wait now.
    pub async fn advance(&self) -> Result<usize> {
        loops::flows::pass(&self.shared).await
    }

    /// Stops: no more ticks and claims; the partitions are given back at once, so that others go on; what runs may end
    /// within `drain`, then it is stopped and handed back as lost; what was claimed and never sent is handed back unspent.
    /// Then the lease is ended.
    pub async fn stop(&self, drain: Duration) {
        let shared = &self.shared;
        shared.stopping.cancel();
        // Beside each other: a database that does not answer must not keep runs from ending, nor the other way round.
        tokio::join!(loops::hold::retire(shared), self.drain(drain));
        shared.loops.close();
        let _ = tokio::time::timeout(shared.parts.settings.statement_timeout() * 2, shared.loops.wait()).await;
        if let Err(error) = shared.ask("leave", shared.parts.store.leave(&shared.lease())).await {
            tracing::warn!(%error, "the lease could not be ended; it will expire");
        }
    }

    /// Lets what runs end, and the loops when all of it is settled.
    async fn drain(&self, drain: Duration) {
        let shared = &self.shared;
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
            while shared.memory().has_claims() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(shared.parts.settings.statement_timeout(), settled).await;
        shared.stopped.cancel();
    }
}
