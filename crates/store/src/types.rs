//! What goes into the store's transactions and comes out of them.

use std::sync::Arc;

use everytick_domain::{
    edit::Change,
    ids::{Epoch, Fence, Incarnation, JobId, RunId, TenantId, Version},
    job::{Job, JobSpec},
    overlap::{Open, OpenRuns},
    plan::{SkipRange, TickRow},
    run::{CauseKind, SkipReason, State},
    time::{DbTime, Span},
};

/// A node's right to write: it lives until it expires on the database's clock or somebody raises its fence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub node: String,
    pub incarnation: Incarnation,
    pub fence: Fence,
}

/// What a node says of itself when it joins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeInfo {
    pub name: String,
    pub region: Option<String>,
    pub version: String,
    /// Whether partitions may be given to it.
    pub holds: bool,
    /// It has joined before and lost its lease. Another process may have taken its name since.
    pub again: bool,
}

impl NodeInfo {
    /// A node of this release, in no region, that holds partitions.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { name: name.to_owned(), region: None, version, holds: true, again: false }
    }
}

/// What a node tells with each renewal of its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat {
    /// The lowest id of a run that this incarnation may have claimed.
    pub open_from: RunId,
    /// The longest that a run which came due since the last renewal waited for its delivery.
    pub lag: Span,
    /// How far the node's own clock is behind the database's.
    pub clock_offset_ms: i64,
}

impl Beat {
    /// Of a node that is on time.
    #[must_use]
    pub const fn of(open_from: RunId) -> Self {
        Self { open_from, lag: Span::ZERO, clock_offset_ms: 0 }
    }
}

/// Who is there, and who holds which partition, read in one snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    pub now: DbTime,
    /// Nodes whose lease has neither ended nor been fenced, by name; one that has expired is here until it is fenced.
    pub nodes: Vec<NodeRecord>,
    /// Every partition, in order.
    pub partitions: Vec<PartitionRecord>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeRecord {
    pub name: String,
    pub region: Option<String>,
    pub version: String,
    pub incarnation: Incarnation,
    pub fence: Fence,
    /// It lives while this lies after `now`.
    pub until: DbTime,
    pub started_at: DbTime,
    pub renewed_at: DbTime,
    /// Whether partitions may be given to it; not when it is about to stop.
    pub holds: bool,
    pub lag: Span,
    pub clock_offset_ms: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionRecord {
    pub partition: u16,
    /// Who acquired it last and has not released it; its lease may have expired since.
    pub holder: Option<Incarnation>,
    pub fence: Fence,
    /// Since when it has been held, or free.
    pub since: DbTime,
    /// The region that its jobs call home, where one has claimed it.
    pub home_region: Option<String>,
}

/// A job with all that the scheduler needs to play it, read in one snapshot.
#[derive(Clone, Debug)]
pub struct LoadedJob {
    pub job: Arc<Job>,
    pub epoch: Epoch,
    /// Lower bound of the next unrecorded tick; `None` when the schedule has no more.
    pub cursor: Option<DbTime>,
    /// The last tick on the record, where that is not before the cursor: all before it are recorded too.
    pub last_tick: Option<DbTime>,
    pub open: Vec<OpenRun>,
}

/// A page of a walk over all jobs.
#[derive(Clone, Debug)]
pub struct Walked {
    /// Those that can be read.
    pub jobs: Vec<WalkedJob>,
    /// The last one looked at; `None` at the end of the walk.
    pub last: Option<JobId>,
}

#[derive(Clone, Debug)]
pub struct WalkedJob {
    pub job: Job,
    pub epoch: Epoch,
    pub cursor: Option<DbTime>,
}

impl LoadedJob {
    /// The first tick that is not on the record. The cursor is a lower bound: the schedule says which tick it stands for, and
    /// the ledger which of them are recorded.
    #[must_use]
    pub fn first_unrecorded(&self) -> Option<DbTime> {
        let schedule = self.job.ticking()?;
        let cursor = self.cursor?;
        match self.last_tick {
            Some(last) if last >= cursor => schedule.next_after(last),
            _ => schedule.first_from(cursor),
        }
    }
}

/// A run that is not over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenRun {
    pub id: RunId,
    pub state: State,
    /// 0 for a run that nobody has claimed yet.
    pub attempt: u32,
    pub fence: Fence,
}

impl From<OpenRun> for Open {
    fn from(run: OpenRun) -> Self {
        Self { claimed: run.state == State::Claimed, attempts: run.attempt }
    }
}

impl OpenRun {
    /// What is open of a job, counted.
    #[must_use]
    pub fn count(open: &[Self]) -> OpenRuns {
        open.iter().map(|run| Open::from(*run)).collect()
    }
}

/// Where a reader of changes stands. Opaque: each keeper counts in its own way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChangeMark(pub i64);

#[derive(Clone, Debug)]
pub struct Changes {
    pub jobs: Vec<ChangedJob>,
    pub mark: ChangeMark,
    /// Whether there is more to read at once.
    pub more: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangedJob {
    pub id: JobId,
    pub epoch: Epoch,
    pub cursor: Option<DbTime>,
}

/// The ticks of one job that are to be recorded under one epoch, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobTicks {
    pub job: JobId,
    pub tenant: TenantId,
    /// As the node believes; what waits stands where the job does.
    pub partition: u16,
    pub epoch: Epoch,
    pub priority: u8,
    /// The value of the job's concurrency key, where it has one.
    pub key: Option<String>,
    pub rows: Vec<RecordRow>,
}

impl JobTicks {
    /// Whether all of them lie before the cursor and not after the clock.
    pub fn passed_by(&self, cursor: Option<DbTime>, now: DbTime) -> bool {
        let passed = |tick: DbTime| tick <= now && cursor.is_none_or(|cursor| tick < cursor);
        self.rows.iter().all(|row| passed(row.tick.tick))
    }

    /// What the audit trail says of a repair.
    pub fn repair_detail(&self) -> String {
        let ticks: Vec<_> = self.rows.iter().map(|row| row.tick.tick).collect();
        serde_json::json!({ "ticks": ticks }).to_string()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordRow {
    pub tick: TickRow,
    /// Inserted already claimed by the lease's incarnation, as attempt 1. Else a run waits, and a skip is over.
    pub born_claimed: bool,
}

#[derive(Clone, Debug)]
pub struct Recorded {
    /// The database's clock inside the statement. A row born claimed has the fence `Fence::default().raised(now)`.
    pub now: DbTime,
    /// In the order of the batch, for each job in the order of its rows.
    pub jobs: Vec<Vec<RowAnswer>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowAnswer {
    Inserted,
    /// The row was there: somebody recorded this tick before. The job is to be read again.
    Existed,
    /// The tick lies after the database's clock; nothing was written.
    Early,
    /// The job's epoch is another, or its cursor has passed: nothing was written, the job is to be read again.
    Stale,
}

/// A range of skips and the cursor that passes it, written together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangePlan {
    pub job: JobId,
    pub tenant: TenantId,
    pub epoch: Epoch,
    /// What the cursor must still be: the range is not written otherwise.
    pub cursor_was: DbTime,
    pub range: SkipRange,
    pub cursor: Option<DbTime>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeAnswer {
    /// Written; the job's epoch is now this one.
    Recorded { epoch: Epoch },
    /// Not written: the epoch or the cursor is another, a tick of the range has a row, or its end lies after the clock.
    Stale,
}

/// Raises a cursor over ticks whose rows are known to be committed. Never lowers one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raise {
    pub job: JobId,
    pub epoch: Epoch,
    pub cursor: Option<DbTime>,
}

/// A run that waits for a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitingRun {
    pub id: RunId,
    pub job: JobId,
    pub tenant: TenantId,
    pub priority: u8,
    pub due_at: DbTime,
    /// Chosen by catch-up: starts after what is on time.
    pub late: bool,
    /// Asked for with `force`: starts also where the job is busy.
    pub force: bool,
    /// How many attempts it has had; more than none means it is in progress already.
    pub attempts: u32,
}

#[derive(Clone, Debug)]
pub struct Waiting {
    pub now: DbTime,
    /// Due now: on-time runs by priority, then the oldest; after them late ones, tenants in turn, each tenant's own likewise.
    pub due: Vec<WaitingRun>,
    /// When the next one is due that is not due yet.
    pub next_due: Option<DbTime>,
}

/// A claim that was committed for us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimedRun {
    pub id: RunId,
    pub job: JobId,
    pub tenant: TenantId,
    pub cause: CauseKind,
    pub scheduled_at: DbTime,
    pub fence: Fence,
    pub attempt: u32,
    pub lost: u32,
    /// The payload of this run alone, where it has one; else the job's is delivered.
    pub payload: Option<String>,
}

/// A settlement with what the store needs to file it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settle {
    pub settlement: everytick_domain::run::Settlement,
    pub job: JobId,
    pub tenant: TenantId,
    /// As the node believes; what waits again stands where the job does, which may have moved.
    pub partition: u16,
    pub priority: u8,
    /// When the target was called; `None` for a claim never sent.
    pub started_at: Option<DbTime>,
    /// When it answered.
    pub ended_at: DbTime,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleAnswer {
    Settled,
    /// A newer claim, or the end of the run, has passed this one: nothing was written (I7).
    Stale,
}

/// Who did it, for the audit trail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor(pub String);

/// A job to be made.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub id: JobId,
    pub spec: JobSpec,
}

/// How people name a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobRef {
    Id(JobId),
    Name(String),
}

/// An Idempotency-Key and a hash of what was asked under it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyKey {
    pub key: String,
    pub fingerprint: [u8; 32],
}

#[derive(Clone, Debug)]
pub struct Created {
    pub job: Job,
    pub cursor: Option<DbTime>,
    /// The key had been used for the same request: this is the job that was made then.
    pub replayed: bool,
}

#[derive(Clone, Debug)]
pub struct EditJob {
    pub job: JobRef,
    pub change: Change,
    pub if_match: Option<Version>,
    /// With a pause or delete: what waits is cancelled in the same transaction, what runs is named in the answer.
    pub cancel: bool,
}

#[derive(Clone, Debug)]
pub struct Edited {
    pub job: Job,
    pub cursor: Option<DbTime>,
    /// Before this instant the old definition holds, after it the new one. `None` when nothing changed.
    pub x: Option<DbTime>,
    /// Runs that were cancelled while being worked on: the work is to be stopped.
    pub cancelled: Vec<RunId>,
}

/// A run that somebody asked for.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub job: JobRef,
    /// A fresh id made of the request's key or of random bytes, and the instant of the request.
    pub key: Vec<u8>,
    pub payload: Option<String>,
    /// Starts also where runs of the job are open.
    pub force: bool,
    pub idempotency: Option<IdempotencyKey>,
}

#[derive(Clone, Debug)]
pub struct CancelledRun {
    pub run: RunRecord,
    /// It was being worked on: the work is to be stopped.
    pub was_claimed: bool,
}

/// A run, or a range of skips, as people read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunRecord {
    pub id: RunId,
    pub job: JobId,
    pub job_name: String,
    pub tenant: TenantId,
    pub cause: CauseKind,
    pub scheduled_at: DbTime,
    pub due_at: DbTime,
    pub state: State,
    pub attempt: u32,
    pub lost: u32,
    pub fence: Fence,
    pub node: Option<String>,
    /// Who claimed it from a queue.
    pub worker: Option<String>,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    pub error: Option<String>,
    pub output: Option<String>,
    pub skip_reason: Option<SkipReason>,
    /// What this run delivers instead of its job's payload. Left out of lists, as the output is.
    pub payload: Option<String>,
    /// The flow that it belongs to, or opens.
    pub flow: Option<RunId>,
    /// Set for a range of skips.
    pub range: Option<SkipRange>,
}

/// One try at a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptRecord {
    pub run: RunId,
    pub attempt: u32,
    pub fence: Fence,
    pub node: Option<String>,
    /// Who claimed it from a queue.
    pub worker: Option<String>,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    /// `succeeded`, `failed`, `lost`, `cancelled`; `None` while it lasts.
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub output: Option<String>,
}

#[derive(Clone, Debug)]
pub struct JobRecord {
    pub job: Job,
    pub cursor: Option<DbTime>,
    pub last_run: Option<RunRecord>,
    /// The database's clock at the reading, from which the next tick is counted.
    pub now: DbTime,
}

#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub enabled: Option<bool>,
    pub paused: Option<bool>,
    /// `http`, `shell` or `queue`.
    pub target: Option<String>,
    /// Each `key` or `key=value` must hold.
    pub labels: Vec<(String, Option<String>)>,
    /// Part of the name or the description, in any case.
    pub q: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    pub job: Option<JobId>,
    pub from: Option<DbTime>,
    pub to: Option<DbTime>,
    pub states: Vec<State>,
}

/// A page, newest first for runs and by name for jobs. `next` is the place to go on from.
#[derive(Clone, Debug)]
pub struct Page<T, K> {
    pub items: Vec<T>,
    pub next: Option<K>,
}

#[derive(Clone, Debug)]
pub struct AuditRecord {
    pub id: i64,
    pub at: DbTime,
    pub actor: String,
    pub action: String,
    pub subject: String,
    pub detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pruned {
    pub runs: u64,
    pub jobs: u64,
    pub requests: u64,
}

/// What a store keeps, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub jobs_per_tenant_max: u64,
    /// Open runs of one job that people asked for; beyond it a request is refused.
    pub open_requests_per_job_max: u64,
    pub calendars_per_tenant_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { jobs_per_tenant_max: 100_000, open_requests_per_job_max: 1_000, calendars_per_tenant_max: 1_000 }
    }
}

/// How long an Idempotency-Key is remembered.
pub const IDEMPOTENCY_KEPT: Span = Span::days(1);

/// How many late runs of one tenant are looked at together: they are started at a bounded rate, and then looked at again.
pub const LATE_PER_TENANT_MAX: usize = 100;

/// How many ranges of one job are looked at behind a window's end: each is many ticks long, and a window has few.
pub const RANGES_PER_LEDGER_MAX: usize = 64;
