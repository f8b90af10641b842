//! The state that the loops of one node share, and their calls to the store.

use std::{
    future::Future,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64},
    },
};

use everytick_domain::{ids::Incarnation, partition::PartitionSet};
use everytick_store::{Lease, NodeInfo, Result, StoreError};
use tokio::sync::{Notify, RwLock, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Parts, Tenants,
    clock::{DbClock, MonoTime},
    cluster::join,
    dispatch::{accept::Accepted, deliver::Ended},
    memory::{Memory, Routes},
    meters::Meters,
    outage::Outage,
    pulse::{self, Pulse},
    upkeep::flows::Progress,
};

/// The state that the loops of one node share.
pub(crate) struct Shared {
    pub parts: Parts,
    pub clock: DbClock,
    pub tenants: Tenants,
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
    /// A statement of this node has an unknown outcome and may still take effect. Set before the next renewal can run, and
    /// cleared when the fence has been raised.
    pub unsure: AtomicBool,
    /// The next comparison of claims also reads young claims.
    pub compare_all: AtomicBool,
    /// The longest delay between due time and delivery since the last renewal, in milliseconds.
    pub lag_ms: AtomicU64,
    outage: Mutex<Outage>,
    flows: Mutex<Progress>,
    pub pulse: Pulse,
    /// The node cannot continue. `broken_by` has the reason.
    pub broken: CancellationToken,
    pub broken_by: OnceLock<String>,
}

impl Shared {
    /// The state of a node that has joined. `renewed`: when its join request was sent. Also returns the receivers of the outcomes
    /// and of the acceptances.
    pub(crate) fn new(
        parts: Parts,
        clock: DbClock,
        incarnation: Incarnation,
        lease: Lease,
        renewed: MonoTime,
    ) -> (Self, mpsc::UnboundedReceiver<Ended>, mpsc::UnboundedReceiver<Accepted>) {
        let (outcomes, ended) = mpsc::unbounded_channel();
        let (acceptances, accepted) = mpsc::unbounded_channel();
        let can = parts.target.capabilities();
        let tenants = Tenants::new(parts.store.clone(), parts.hints.clone());
        let shared = Self {
            parts,
            clock,
            tenants,
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
            renewed: Mutex::new(renewed),
            unsure: AtomicBool::new(false),
            compare_all: AtomicBool::new(false),
            lag_ms: AtomicU64::new(0),
            outage: Mutex::default(),
            flows: Mutex::default(),
            pulse: Pulse::default(),
            broken: CancellationToken::new(),
            broken_by: OnceLock::new(),
        };
        shared.memory().set_job_share(shared.parts.settings.max_job_share);
        (shared, ended, accepted)
    }

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
    pub(crate) async fn read<T>(&self, doing: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        match self.call(doing, call).await {
            Err(StoreError::Unsure { doing, source }) => Err(StoreError::Failed { doing, source }),
            answer => answer,
        }
    }

    /// Sends a request to the store and waits for the answer at most one statement timeout. A missing answer is `Unsure`.
    pub(crate) async fn call<T>(&self, doing: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.parts.settings.statement_timeout();
        let answer = tokio::time::timeout(limit, call).await;
        match &answer {
            // Any other error is an answer of the store, so the database works.
            Err(_) | Ok(Err(StoreError::Failed { .. } | StoreError::Unsure { .. })) => pulse::failed(limit),
            Ok(_) => pulse::answered(),
        }
        match answer {
            Ok(Ok(answer)) => {
                let outage = self.outage().answered(MonoTime::now());
                if let Some(outage) = outage {
                    tracing::info!(?outage, "the database answers again");
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

    /// The progress of the flows loop.
    pub(crate) fn flows(&self) -> MutexGuard<'_, Progress> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partitions that this node owns and runs.
    pub(crate) fn partitions(&self) -> PartitionSet {
        self.memory().partitions()
    }

    /// Whether this node is the leader: the owner of partition 0. The leader does the work that the cluster needs only
    /// once.
    pub(crate) fn is_leader(&self) -> bool {
        self.partitions().contains(0)
    }

    /// How this node describes itself when it joins again after it lost its lease.
    pub(crate) fn info(&self) -> NodeInfo {
        NodeInfo { again: true, ..join::info(&self.parts, !self.stopping()) }
    }

    /// Notes that a request sent at `sent` has renewed the lease.
    pub(crate) fn renewed(&self, sent: MonoTime) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }

    /// Whether the lease is certainly alive, judged by monotonic time.
    pub(crate) fn trusts_lease(&self) -> bool {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        MonoTime::now().since(renewed) < self.parts.settings.trust()
    }

    /// Called after runs have ended. Wakes the flows loop if the store has recorded flow steps, so that the loop does
    /// not wait for its poll.
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
