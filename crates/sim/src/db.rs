//! The simulated tables as maps, and their rows. Each method is one transaction, or a part of one; the caller has
//! exclusive access to the database.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use everytick_domain::{
    explain::Asked,
    ids::{BackfillId, Epoch, Fence, Incarnation, JobId, RunId, TenantId, TokenId},
    job::{Job, JobSpec, LATE_AFTER_MAX},
    mutant::Mutant,
    plan::SkipRange,
    queue::lead,
    run::{CauseKind, SkipReason, State},
    time::DbTime,
};
use everytick_store::{
    AttemptRecord, AuditRecord, GoneNode, Limits, PartitionRecord, TokenRecord, shared::flows::FlowRow,
    tx::requests::Made,
};

use super::{
    backfills::BackfillRow,
    calendars::CalendarRow,
    faults::{Faults, NoFaults, Row},
    journal::Entry,
    nodes::LeaseRow,
    queue::{QueueRow, WorkerClaimRow},
    secrets::Secrets,
    tenants::Tenants,
};

/// The content of the simulated database.
#[derive(Clone, Default, Debug)]
pub struct Db {
    pub(super) call: CallContext,
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
    /// Whether flow steps were added since the last call of `FlowStore::take_steps_written`.
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
    /// Nodes whose lease was removed.
    pub(super) gone: Vec<GoneNode>,
    /// The highest lease fence ever issued. The next one is higher, also for a new lease row (I9).
    pub(super) lease_fence: Fence,
    pub(super) requests: BTreeMap<(TenantId, String), RequestRow>,
    pub(super) audit: Vec<(TenantId, AuditRecord)>,
    pub(super) tokens: BTreeMap<TokenId, TokenRecord>,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) secrets: Secrets,
    pub(super) tenants: Tenants,
    pub(super) seq: i64,
    pub(super) journal: Vec<Entry>,
}

/// The call whose transaction executes: the faults of its connection, and its times.
#[derive(Clone)]
pub(super) struct CallContext {
    pub faults: Arc<dyn Faults>,
    /// The clock when the node sent the call. Only mutants use it.
    pub sent_at: DbTime,
    pub now: DbTime,
}

impl Default for CallContext {
    fn default() -> Self {
        Self { faults: Arc::new(NoFaults), sent_at: DbTime::EPOCH, now: DbTime::EPOCH }
    }
}

impl std::fmt::Debug for CallContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext").finish_non_exhaustive()
    }
}

impl CallContext {
    pub fn readable_job(&self, job: JobId) -> bool {
        !self.faults.damages(Row::Job(job), self.now)
    }
    pub fn readable_run(&self, run: RunId) -> bool {
        !self.faults.damages(Row::Run(run), self.now)
    }
    /// Whether another session has locked the row of this run.
    pub fn is_locked(&self, run: RunId) -> bool {
        self.faults.locks(run, self.now)
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

impl RunRow {
    /// A run that waits and was never claimed.
    pub(super) fn waiting(
        (job, tenant): (JobId, TenantId),
        cause: CauseKind,
        scheduled_at: DbTime,
        due_at: DbTime,
    ) -> Self {
        Self {
            job,
            tenant,
            cause,
            scheduled_at,
            due_at,
            state: State::Waiting,
            attempt: 0,
            lost: 0,
            fence: Fence::default(),
            node: None,
            worker: None,
            incarnation: None,
            started_at: None,
            finished_at: None,
            error: None,
            output: None,
            skip_reason: None,
            payload: None,
            flow: None,
        }
    }

    pub(super) fn skip(&mut self, reason: SkipReason, now: DbTime) {
        self.state = State::Skipped;
        self.skip_reason = Some(reason);
        self.finished_at = Some(now);
    }

    /// Claims the run for a node or a worker. The mutant keeps the fence of an earlier attempt.
    pub(super) fn claim(&mut self, by: Incarnation, keeps_fence: Mutant, now: DbTime) {
        self.state = State::Claimed;
        if self.attempt == 0 || !keeps_fence.is_on() {
            self.fence = self.fence.raised(now);
        }
        self.attempt += 1;
        self.incarnation = Some(by);
        self.started_at = Some(now);
    }

    /// The journal's entry for a claim on this run.
    pub(super) fn claimed_entry(&self, run: RunId, late: bool, delegated: bool) -> Option<Entry> {
        let (job, attempt, fence, by) = (self.job, self.attempt, self.fence, self.incarnation?);
        Some(Entry::Claimed { run, job, attempt, fence, late, by, delegated })
    }
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
    /// The row of a run that waits until it is due.
    pub(super) fn of(run: &RunRow, priority: u8) -> Self {
        Self {
            job: run.job,
            tenant: run.tenant,
            priority,
            due_at: run.due_at,
            late: false,
            force: false,
            attempts: run.attempt,
            queue: None,
            rank: 0,
            key: None,
        }
    }

    /// Sets the queue and rank from the job's target.
    pub(super) fn place(&mut self, spec: &JobSpec, now: DbTime) {
        let since = if self.late { now } else { self.due_at };
        self.queue = spec.target.queue().map(str::to_owned);
        self.rank = since.millis() - lead(self.priority, self.late && self.attempts == 0);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RequestRow {
    pub fingerprint: [u8; 32],
    pub made: Made,
    pub at: DbTime,
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
        Self { limits, shared, partitions: (0..partitions).map(free).collect(), ..Self::default() }
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

    pub(super) fn next_seq(&mut self) -> i64 {
        self.seq += 1;
        self.seq
    }

    /// Inserts a run that waits.
    pub(super) fn insert_waiting(
        &mut self,
        id: RunId,
        run: RunRow,
        waiting: WaitingRow,
        by: Option<Incarnation>,
        at: DbTime,
    ) {
        self.enqueue(id, waiting, at);
        self.insert_run(id, run, by, at);
    }

    /// Lets a run wait, in the queue of its job's target.
    pub(super) fn enqueue(&mut self, id: RunId, mut row: WaitingRow, now: DbTime) {
        if let Some(job) = self.jobs.get(&row.job) {
            row.place(&job.job.spec, now);
        }
        self.waiting.insert(id, row);
    }

    pub(super) fn insert_run(&mut self, id: RunId, row: RunRow, by: Option<Incarnation>, at: DbTime) {
        debug_assert!(
            row.due_at >= at.minus(LATE_AFTER_MAX) || row.state != State::Claimed,
            "a run born claimed is older than LATE_AFTER_MAX"
        );
        let (late, force) = self.waiting.get(&id).map_or((false, false), |row| (row.late, row.force));
        self.journal.push(Entry::Recorded { run: id, job: row.job, state: row.state, at, by, late, force });
        if let (State::Claimed, Some(by)) = (row.state, row.incarnation) {
            self.journal.extend(row.claimed_entry(id, false, false));
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
