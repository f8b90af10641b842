//! The simulated tables as maps, leases and partitions, and the journal of every change.
//! Each method is one transaction, or a part of one; the caller has exclusive access to the database.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use everytick_domain::{
    calendar::Calendar,
    explain::Asked,
    home::{BlockClaim, Homes},
    ids::{BackfillId, Epoch, Fence, Incarnation, JobId, RunId, TenantId},
    job::{Job, JobSpec, LATE_AFTER_MAX},
    mutant::Mutant,
    partition::PartitionSet,
    plan::SkipRange,
    queue::lead,
    run::{CauseKind, SkipReason, State, Verdict},
    time::{DbTime, Span},
};

use super::backfills::BackfillRow;
use super::calendars::CalendarRow;
use super::faults::{Faults, NoFaults, Row};
use super::queue::{QueueRow, WorkerClaimRow};
use everytick_store::{
    AttemptRecord, AuditRecord, Beat, Cluster, Lease, Limits, NameOwner, NodeInfo, NodeRecord, OLD_CLAIM_AFTER,
    PartitionRecord, Result, StoreError,
};
use everytick_store::{shared::flows::FlowRow, tx::requests::Made};

/// The content of the simulated database.
#[derive(Clone, Debug)]
pub struct Db {
    /// Which rows the current transaction cannot decode.
    pub(super) damage: Damage,
    /// Waiting runs that a search skipped as unreadable. Each is written to the journal only once.
    pub(super) unreadable: BTreeSet<RunId>,
    pub(super) limits: Limits,
    /// Whether several nodes share the database. If so, a node that joins does not end the leases of other nodes.
    pub(super) shared: bool,
    pub(super) partitions: Vec<PartitionRecord>,
    pub(super) jobs: BTreeMap<JobId, JobRow>,
    /// Jobs that cannot be loaded: a load that includes one of them fails.
    pub(super) unloadable: BTreeSet<JobId>,
    pub(super) calendars: BTreeMap<(TenantId, String), CalendarRow>,
    pub(super) runs: BTreeMap<RunId, RunRow>,
    pub(super) history: BTreeSet<(JobId, RunId)>,
    /// The entries of `history` whose run is open: waiting or claimed.
    pub(super) open: BTreeSet<(JobId, RunId)>,
    pub(super) ranges: BTreeMap<RunId, RangeRow>,
    pub(super) waiting: BTreeMap<RunId, WaitingRow>,
    /// Waiting runs that partition owners delegated to other nodes.
    pub(super) delegated: BTreeMap<RunId, Incarnation>,
    pub(super) worker_claims: BTreeMap<RunId, WorkerClaimRow>,
    /// Claims on runs below the `open_from` of their node's lease. Ended runs are not removed.
    pub(super) listed: BTreeMap<RunId, Incarnation>,
    pub(super) flows: BTreeMap<RunId, FlowRow>,
    /// Whether flow steps were added since the last call of `FlowStore::left_steps`.
    pub(super) left_steps: bool,
    /// Ended runs that their flow has not applied yet: run to flow.
    pub(super) steps: BTreeMap<RunId, RunId>,
    /// Flows that cannot be advanced.
    pub(super) broken_flows: BTreeSet<RunId>,
    pub(super) queues: BTreeMap<(TenantId, String), QueueRow>,
    /// When a worker last asked for runs of a queue.
    pub(super) asked: BTreeMap<(TenantId, String), Asked>,
    pub(super) backfills: BTreeMap<BackfillId, BackfillRow>,
    pub(super) attempts: BTreeMap<(RunId, u32), AttemptRecord>,
    pub(super) leases: BTreeMap<String, LeaseRow>,
    /// The highest lease fence ever issued. The next one is higher, also for a new lease row (I9).
    pub(super) lease_fence: Fence,
    pub(super) requests: BTreeMap<(TenantId, String), RequestRow>,
    pub(super) audit: Vec<(TenantId, AuditRecord)>,
    pub(super) seq: i64,
    pub(super) journal: Vec<Entry>,
}

/// Which rows a transaction cannot decode: decided by the faults of its connection and the time of its execution.
#[derive(Clone)]
pub(super) struct Damage {
    pub faults: Arc<dyn Faults>,
    pub now: DbTime,
}

impl Default for Damage {
    fn default() -> Self {
        Self { faults: Arc::new(NoFaults), now: DbTime::EPOCH }
    }
}

impl std::fmt::Debug for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Damage").finish_non_exhaustive()
    }
}

impl Damage {
    pub fn readable_job(&self, job: JobId) -> bool {
        !self.faults.damages(Row::Job(job), self.now)
    }
    pub fn readable_run(&self, run: RunId) -> bool {
        !self.faults.damages(Row::Run(run), self.now)
    }
}

#[derive(Clone, Debug)]
pub(super) struct JobRow {
    pub job: Job,
    pub epoch: Epoch,
    pub seq: i64,
    pub cursor: Option<DbTime>,
    /// Its partition before its home region changed.
    pub moved_from: Option<u16>,
}

#[derive(Clone, Debug)]
pub struct RunRow {
    pub job: JobId,
    pub tenant: TenantId,
    pub cause: CauseKind,
    pub scheduled_at: DbTime,
    pub due_at: DbTime,
    pub state: State,
    pub attempt: u32,
    pub lost: u32,
    pub fence: Fence,
    pub node: Option<String>,
    pub worker: Option<String>,
    pub incarnation: Option<Incarnation>,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    pub error: Option<String>,
    pub output: Option<String>,
    pub skip_reason: Option<SkipReason>,
    pub payload: Option<String>,
    /// The flow that the run belongs to; `None` for the root of a flow.
    pub flow: Option<RunId>,
}

#[derive(Clone, Debug)]
pub struct RangeRow {
    pub job: JobId,
    pub tenant: TenantId,
    pub range: SkipRange,
    pub recorded_at: DbTime,
}

#[derive(Clone, Debug)]
pub(super) struct WaitingRow {
    pub job: JobId,
    pub tenant: TenantId,
    pub priority: u8,
    pub due_at: DbTime,
    pub late: bool,
    pub force: bool,
    pub attempts: u32,
    /// The pull queue in which it waits, in order of `rank`; `None` for a push target.
    pub queue: Option<String>,
    pub rank: i64,
    pub key: Option<String>,
}

impl WaitingRow {
    /// Sets the queue and rank of a run that waits since `since`, from the job's target.
    pub(super) fn place(&mut self, spec: &JobSpec, since: DbTime) {
        self.queue = spec.target.queue().map(str::to_owned);
        self.rank = since.millis() - lead(self.priority, self.late && self.attempts == 0);
    }
}

#[derive(Clone, Debug)]
pub(super) struct LeaseRow {
    pub incarnation: Incarnation,
    pub fence: Fence,
    pub until: DbTime,
    pub ttl: Span,
    pub info: NodeInfo,
    pub started_at: DbTime,
    pub renewed_at: DbTime,
    pub beat: Beat,
    /// Claims below this id are found only if they are listed in `Db::listed`.
    pub open_from: RunId,
    /// Claims below this id are listed, or were made after the listing and are known to their node.
    pub compared_to: RunId,
    /// The node left, was fenced as dead, or a newer incarnation replaced it.
    pub ended: bool,
}

impl LeaseRow {
    fn name_owner(&self, now: DbTime) -> NameOwner {
        NameOwner {
            node: self.info.name.clone(),
            incarnation: self.incarnation,
            process: self.info.process.clone(),
            renewed_at: self.renewed_at,
            until: self.until,
            now,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RequestRow {
    pub fingerprint: [u8; 32],
    pub made: Made,
    pub at: DbTime,
}

/// One change in the journal, which the simulator's checker reads.
#[derive(Clone, Debug)]
pub enum Entry {
    Created {
        job: Box<Job>,
        x: DbTime,
    },
    /// Written at the commit, even if the reply to the caller is lost.
    Edited {
        job: Box<Job>,
        x: DbTime,
        /// The clock at the commit; `x` may be later.
        at: DbTime,
    },
    /// `by` is the node that recorded the tick; `None` if an edit recorded it or the run was requested.
    Recorded {
        run: RunId,
        job: JobId,
        state: State,
        at: DbTime,
        by: Option<Incarnation>,
        /// It waits, and catch-up chose it.
        late: bool,
        /// It was triggered with `force`: it may run beside other runs of the job.
        force: bool,
    },
    RangeRecorded {
        job: JobId,
        from: DbTime,
        to: DbTime,
        reason: SkipReason,
        by: Option<Incarnation>,
    },
    Claimed {
        run: RunId,
        job: JobId,
        attempt: u32,
        fence: Fence,
        /// Catch-up chose it.
        late: bool,
        by: Incarnation,
        /// The owner of its partition had delegated it to this node.
        delegated: bool,
    },
    /// The owner delegated a waiting run to another node. From then on the run counts as in progress.
    Delegated {
        run: RunId,
        job: JobId,
    },
    /// A search skipped this waiting run, because its row or its job's could not be decoded.
    Unreadable {
        run: RunId,
        job: JobId,
    },
    /// The node to which the run was delegated died or stopped before it claimed the run.
    Undelegated {
        run: RunId,
        job: JobId,
    },
    /// The new state of a calendar, with all its versions.
    CalendarPut {
        tenant: TenantId,
        calendar: Arc<Calendar>,
    },
    /// A lease was created, or its fence was raised.
    Leased {
        node: String,
        incarnation: Incarnation,
        fence: Fence,
    },
    Acquired {
        partition: u16,
        by: Incarnation,
        fence: Fence,
    },
    Released {
        partition: u16,
        by: Incarnation,
    },
    /// The node takes no more partitions.
    Retired {
        by: Incarnation,
    },
    /// `fence` is the fence that the settlement named, `held` the fence of the run.
    Settled {
        run: RunId,
        job: JobId,
        fence: Fence,
        held: Fence,
        was: State,
        verdict: Verdict,
        at: DbTime,
    },
    /// `fence` is the run's new fence; `to` is the newer run that superseded it.
    Cancelled {
        run: RunId,
        job: JobId,
        was: State,
        fence: Fence,
        to: Option<RunId>,
    },
}

/// The content of the database before a transaction. The journal is only extended, so its length is enough.
pub(super) struct Snapshot {
    db: Db,
    journal: usize,
}

impl Db {
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let journal = std::mem::take(&mut self.journal);
        let snapshot = Snapshot { db: self.clone(), journal: journal.len() };
        self.journal = journal;
        snapshot
    }

    pub(super) fn restore(&mut self, snapshot: Snapshot) {
        let mut journal = std::mem::take(&mut self.journal);
        journal.truncate(snapshot.journal);
        *self = Self { journal, ..snapshot.db };
    }

    pub(super) fn new(limits: Limits, partitions: u16, shared: bool) -> Self {
        let free = |partition| {
            let (fence, since) = (Fence::default(), DbTime::EPOCH);
            PartitionRecord { partition, owner: None, fence, since, home_region: None }
        };
        Self {
            damage: Damage::default(),
            unreadable: BTreeSet::new(),
            limits,
            shared,
            partitions: (0..partitions).map(free).collect(),
            jobs: BTreeMap::new(),
            unloadable: BTreeSet::new(),
            calendars: BTreeMap::new(),
            runs: BTreeMap::new(),
            history: BTreeSet::new(),
            open: BTreeSet::new(),
            ranges: BTreeMap::new(),
            waiting: BTreeMap::new(),
            delegated: BTreeMap::new(),
            worker_claims: BTreeMap::new(),
            listed: BTreeMap::new(),
            flows: BTreeMap::new(),
            left_steps: false,
            steps: BTreeMap::new(),
            broken_flows: BTreeSet::new(),
            queues: BTreeMap::new(),
            asked: BTreeMap::new(),
            backfills: BTreeMap::new(),
            attempts: BTreeMap::new(),
            leases: BTreeMap::new(),
            lease_fence: Fence::default(),
            requests: BTreeMap::new(),
            audit: Vec::new(),
            seq: 0,
            journal: Vec::new(),
        }
    }

    #[must_use]
    pub fn journal(&self) -> &[Entry] {
        &self.journal
    }
    pub fn all_runs(&self) -> impl Iterator<Item = (RunId, &RunRow)> {
        self.runs.iter().map(|(id, row)| (*id, row))
    }
    /// When a waiting run is due; for a retry, later than its tick.
    #[must_use]
    pub fn waits_until(&self, run: RunId) -> Option<DbTime> {
        self.waiting.get(&run).map(|row| row.due_at)
    }
    /// When a worker's claim on a run expires without another heartbeat.
    #[must_use]
    pub fn worker_claims_until(&self, run: RunId) -> Option<DbTime> {
        self.worker_claims.get(&run).map(|claim| claim.until)
    }
    /// The living leases by node name, and the partitions with their owners.
    #[must_use]
    pub fn standing(&self, now: DbTime) -> Cluster {
        self.cluster(now)
    }
    pub fn all_backfills(&self) -> impl Iterator<Item = (BackfillId, &BackfillRow)> {
        self.backfills.iter().map(|(id, row)| (*id, row))
    }
    /// All flows, each with its graph and whether it was cancelled.
    pub fn all_flows(&self) -> impl Iterator<Item = (RunId, &everytick_domain::flow::Graph, bool)> {
        self.flows.values().map(|row| (row.id, &row.graph, row.cancelled_at.is_some()))
    }
    /// Ended runs that their flow has not applied yet.
    pub fn all_steps(&self) -> impl Iterator<Item = RunId> {
        self.steps.keys().copied()
    }
    pub fn all_ranges(&self) -> impl Iterator<Item = &RangeRow> {
        self.ranges.values()
    }

    pub(super) fn homes(&self) -> Homes {
        let claimed = |row: &PartitionRecord| Some((row.partition, row.home_region.clone()?));
        Homes::new(u16::try_from(self.partitions.len()).unwrap_or(u16::MAX), self.partitions.iter().filter_map(claimed))
    }

    pub(super) fn claim_block(&mut self, claim: &BlockClaim) {
        for partition in claim.partitions() {
            if let Some(row) = self.partitions.get_mut(usize::from(partition)) {
                row.home_region = Some(claim.region.clone());
            }
        }
    }

    pub(super) fn join(&mut self, node: &NodeInfo, incarnation: Incarnation, ttl: Span, now: DbTime) -> Result<Lease> {
        self.cap_leases(now);
        let other = self.leases.get(&node.name).filter(|row| row.incarnation != incarnation && !row.ended);
        if let Some(other) = other.filter(|other| other.until > now) {
            if node.again {
                return Err(StoreError::replaced(&node.name));
            }
            // In a store for one process, an older process is gone: only one can open it.
            if self.shared && !node.takes_over.includes(other.incarnation) {
                return Err(StoreError::NodeNameTaken(Box::new(other.name_owner(now))));
            }
        }
        // An ended row of this incarnation under another name: the new row replaces it.
        self.leases.retain(|name, row| row.incarnation != incarnation || *name == node.name);
        let old = self.leases.get(&node.name);
        let same = old.filter(|row| row.incarnation == incarnation);
        let started_at = same.map_or(now, |row| row.started_at);
        let open_from = RunId::floor(now.minus(OLD_CLAIM_AFTER));
        let open_from = same.map_or(open_from, |row| row.open_from.min(open_from));
        // In a store for one process, the owner of any other lease is dead.
        let alone = !self.shared;
        let ends = self.next_lease_fence(now);
        for (name, row) in self.leases.iter_mut().filter(|(_, row)| row.incarnation != incarnation) {
            if alone || *name == node.name {
                row.until = DbTime::EPOCH;
                row.ended = true;
                row.fence = ends;
            }
        }
        let fence = self.next_lease_fence(now);
        // The row of an older incarnation of the node is moved to a name that no node has.
        if let Some(row) = self.leases.remove(&node.name).filter(|row| row.incarnation != incarnation) {
            self.leases.insert(format!("{}#{}", node.name, row.incarnation), row);
        }
        let (until, info) = (now.plus(ttl), node.clone());
        let row = LeaseRow {
            incarnation,
            fence,
            until,
            ttl,
            info,
            started_at,
            renewed_at: now,
            ended: false,
            beat: Beat::of(open_from),
            open_from,
            compared_to: open_from,
        };
        self.leases.insert(node.name.clone(), row);
        self.journal.push(Entry::Leased { node: node.name.clone(), incarnation, fence });
        Ok(Lease { node: node.name.clone(), incarnation, fence })
    }

    pub(super) fn renew(&mut self, lease: &Lease, ttl: Span, beat: &Beat, now: DbTime) -> Result<DbTime> {
        self.check_lease(lease, now)?;
        self.cap_leases(now);
        if let Some(row) = self.leases.get_mut(&lease.node) {
            let raised = beat.open_from.map_or(row.open_from, |to| to.min(row.compared_to));
            row.open_from = row.open_from.max(raised);
            row.ttl = ttl;
            row.until = now.plus(ttl);
            row.renewed_at = now;
            row.beat = beat.clone();
        }
        // A claim with an older fence does not replace the listed newer claim on the same run.
        for claim in &beat.old_claims {
            if self.runs.get(&claim.run).is_some_and(|run| run.fence <= claim.fence) {
                self.listed.insert(claim.run, lease.incarnation);
            }
        }
        Ok(now)
    }

    /// Shortens leases that end more than 1 s later than their TTL allows: the clock was ahead when they were renewed.
    fn cap_leases(&mut self, now: DbTime) {
        for row in self.leases.values_mut().filter(|row| row.until > now.plus(row.ttl).plus(Span::seconds(1))) {
            row.until = now.plus(row.ttl);
        }
    }

    pub(super) fn raise_fence(&mut self, lease: &Lease, now: DbTime) -> Result<Lease> {
        self.check_lease(lease, now)?;
        let fence = self.next_lease_fence(now);
        let row = self.leases.get_mut(&lease.node).ok_or(StoreError::LeaseLost)?;
        row.fence = fence;
        self.journal.push(Entry::Leased { node: lease.node.clone(), incarnation: lease.incarnation, fence });
        Ok(Lease { fence, ..lease.clone() })
    }

    pub(super) fn retire(&mut self, lease: &Lease, now: DbTime) -> Result<()> {
        self.check_lease(lease, now)?;
        self.free(lease, &PartitionSet::all(u16::MAX), now);
        if let Some(row) = self.leases.get_mut(&lease.node) {
            row.info.may_own = false;
        }
        self.undelegate();
        self.journal.push(Entry::Retired { by: lease.incarnation });
        Ok(())
    }

    pub(super) fn leave(&mut self, lease: &Lease, now: DbTime) -> Result<()> {
        self.check_lease(lease, now)?;
        self.free(lease, &PartitionSet::all(u16::MAX), now);
        let fence = self.next_lease_fence(now);
        if let Some(row) = self.leases.get_mut(&lease.node) {
            row.until = DbTime::EPOCH;
            row.ended = true;
            row.fence = fence;
        }
        Ok(())
    }

    fn next_lease_fence(&mut self, now: DbTime) -> Fence {
        self.lease_fence = self.lease_fence.raised(now);
        self.lease_fence
    }

    pub(super) fn cluster(&self, now: DbTime) -> Cluster {
        let node = |row: &LeaseRow| NodeRecord {
            name: row.info.name.clone(),
            region: row.info.region.clone(),
            version: row.info.version.clone(),
            incarnation: row.incarnation,
            fence: row.fence,
            until: row.until,
            started_at: row.started_at,
            renewed_at: row.renewed_at,
            may_own: row.info.may_own,
            lag: row.beat.lag,
            clock_offset_ms: row.beat.clock_offset_ms,
            process: row.info.process.clone(),
            can: row.info.can.clone(),
            listen: row.info.listen.clone(),
        };
        let nodes = self.leases.values().filter(|row| !row.ended).map(node).collect();
        Cluster { now, nodes, partitions: self.partitions.clone() }
    }

    pub(super) fn acquire(&mut self, lease: &Lease, asked: &PartitionSet, now: DbTime) -> Result<PartitionSet> {
        self.check_lease(lease, now)?;
        let unfenced = Mutant::TakeOverUnfenced.is_on();
        if !unfenced {
            self.fence_expired(lease.incarnation, now);
        }
        let lives = |row: &&LeaseRow| !row.ended && (row.until > now || !unfenced);
        let living: BTreeSet<_> = self.leases.values().filter(lives).map(|row| row.incarnation).collect();
        let mut ours = PartitionSet::none();
        for row in self.partitions.iter_mut().filter(|row| asked.contains(row.partition)) {
            if row.owner.is_none_or(|owner| !living.contains(&owner)) {
                row.owner = Some(lease.incarnation);
                row.fence = row.fence.raised(now);
                row.since = now;
                let (partition, fence) = (row.partition, row.fence);
                self.journal.push(Entry::Acquired { partition, by: lease.incarnation, fence });
            }
            if row.owner == Some(lease.incarnation) {
                ours.insert(row.partition);
            }
        }
        Ok(ours)
    }

    pub(super) fn release(&mut self, lease: &Lease, partitions: &PartitionSet, now: DbTime) -> Result<()> {
        self.check_lease(lease, now)?;
        self.free(lease, partitions, now);
        Ok(())
    }

    fn free(&mut self, lease: &Lease, partitions: &PartitionSet, now: DbTime) {
        let ours =
            |row: &&mut PartitionRecord| partitions.contains(row.partition) && row.owner == Some(lease.incarnation);
        for row in self.partitions.iter_mut().filter(ours) {
            row.owner = None;
            row.since = now;
            self.journal.push(Entry::Released { partition: row.partition, by: lease.incarnation });
        }
    }

    /// Ends the expired leases of other incarnations under a new fence.
    pub(super) fn fence_expired(&mut self, but: Incarnation, now: DbTime) {
        let expired = |row: &&mut LeaseRow| row.incarnation != but && !row.ended && row.until <= now;
        for row in self.leases.values_mut().filter(expired) {
            self.lease_fence = self.lease_fence.raised(now);
            row.fence = self.lease_fence;
            row.ended = true;
        }
    }

    /// Claims of this incarnation on runs below this id are listed; claims from it on need not be.
    pub(super) fn open_from(&self, incarnation: Incarnation) -> Option<RunId> {
        self.leases.values().find(|row| row.incarnation == incarnation).map(|row| row.open_from)
    }

    /// Whether this incarnation's claim on the run is listed. An entry of another incarnation does not count.
    pub(super) fn is_listed(&self, run: RunId, by: Incarnation) -> bool {
        self.listed.get(&run) == Some(&by)
    }

    /// Lists the claim of a node on this run if the run is below the `open_from` of the node's lease.
    pub(super) fn list_claim(&mut self, run: RunId, by: Incarnation) {
        if self.open_from(by).is_some_and(|open_from| run < open_from) {
            self.listed.insert(run, by);
        }
    }

    /// The guard of every write of a node: its lease must be alive and carry the fence that the call names.
    pub(super) fn check_lease(&self, lease: &Lease, now: DbTime) -> Result<()> {
        match self.leases.get(&lease.node) {
            Some(row)
                if row.incarnation == lease.incarnation
                    && row.fence == lease.fence
                    && row.until > now
                    && !row.ended =>
            {
                Ok(())
            }
            _ => Err(StoreError::LeaseLost),
        }
    }

    pub(super) fn next_seq(&mut self) -> i64 {
        self.seq += 1;
        self.seq
    }

    pub(super) fn insert_run(&mut self, id: RunId, row: RunRow, by: Option<Incarnation>, at: DbTime) {
        debug_assert!(
            row.due_at >= at.minus(LATE_AFTER_MAX) || row.state != State::Claimed,
            "a run born claimed is older than LATE_AFTER_MAX"
        );
        let (late, force) = self.waiting.get(&id).map_or((false, false), |row| (row.late, row.force));
        self.journal.push(Entry::Recorded { run: id, job: row.job, state: row.state, at, by, late, force });
        if let (State::Claimed, Some(by)) = (row.state, row.incarnation) {
            let (job, attempt, fence) = (row.job, row.attempt, row.fence);
            self.journal.push(Entry::Claimed { run: id, job, attempt, fence, late: false, by, delegated: false });
            self.list_claim(id, by);
        }
        self.history.insert((row.job, id));
        if row.state.is_open() {
            self.open.insert((row.job, id));
        }
        self.runs.insert(id, row);
    }

    pub(super) fn runs_of(&self, job: JobId) -> impl DoubleEndedIterator<Item = (RunId, &RunRow)> {
        self.history.range(all_of(job)).filter_map(|(_, id)| self.runs.get(id).map(|row| (*id, row)))
    }

    /// All open runs, in order of id.
    pub(super) fn all_open(&self) -> impl Iterator<Item = (RunId, &RunRow)> {
        let ids: BTreeSet<_> = self.open.iter().map(|(_, id)| *id).collect();
        ids.into_iter().filter_map(|id| self.runs.get(&id).map(|row| (id, row)))
    }

    pub(super) fn open_of(&self, job: JobId) -> impl Iterator<Item = (RunId, &RunRow)> {
        self.open.range(all_of(job)).filter_map(|(_, id)| self.runs.get(id).map(|row| (*id, row)))
    }
}

fn all_of(job: JobId) -> std::ops::RangeInclusive<(JobId, RunId)> {
    (job, RunId::from_uuid(uuid::Uuid::nil()))..=(job, RunId::from_uuid(uuid::Uuid::max()))
}
