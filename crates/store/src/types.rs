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

/// The process behind a node's lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeProcess {
    pub host: String,
    pub pid: u32,
    /// What tells this process from another with the same number: compared only by a process that wrote it in the same form.
    /// Empty where the system offers nothing.
    pub mark: String,
}

/// Which living process a node that starts may replace under its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TakeOver {
    /// None: the name is free when no lease lives under it.
    #[default]
    Expired,
    /// This incarnation, whose process is known to be gone.
    Only(Incarnation),
    /// Any: the operator said so.
    Any,
}

impl TakeOver {
    #[must_use]
    pub fn includes(self, holder: Incarnation) -> bool {
        match self {
            Self::Expired => false,
            Self::Only(gone) => gone == holder,
            Self::Any => true,
        }
    }
}

/// A lease that lives under the name of a node that wants to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameHolder {
    pub node: String,
    pub incarnation: Incarnation,
    /// `None` for a node of a release that does not publish it.
    pub process: Option<NodeProcess>,
    pub renewed_at: DbTime,
    pub until: DbTime,
    pub now: DbTime,
}

impl std::fmt::Display for NameHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a node named {:?} is alive: ", self.node)?;
        match &self.process {
            Some(process) => write!(f, "process {} on host {}", process.pid, process.host)?,
            None => f.write_str("a process of an earlier release")?,
        }
        write!(f, " renewed its lease {} ago", self.now.since(self.renewed_at))
    }
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
    /// Whose name it may take. Only where nodes share the store: a file is opened by one process at a time.
    pub takes_over: TakeOver,
    pub process: Option<NodeProcess>,
    /// What it can deliver, in the form that nodes read of each other.
    pub can: Option<String>,
    /// Where it answers its API: addresses with ports, with commas between.
    pub listen: Option<String>,
}

impl NodeInfo {
    /// A node of this release, in no region, that holds partitions.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { name: name.to_owned(), version, holds: true, ..Self::default() }
    }
}

/// What a node tells with each renewal of its lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    /// Up to which id the lease's `open_from` may be raised: not past what [`crate::Store::list_old_claims`] has listed, and never
    /// lowered. `None` while the node may have claims that it does not know of.
    pub open_from: Option<RunId>,
    /// All claims that the node knows of below `open_from`: those made since it was listed are listed with the renewal.
    pub old_claims: Vec<OldClaim>,
    /// The longest that a run which came due since the last renewal waited for its delivery.
    pub lag: Span,
    /// How far the node's own clock is behind the database's.
    pub clock_offset_ms: i64,
}

impl Beat {
    /// Of a node that is on time.
    #[must_use]
    pub const fn of(open_from: RunId) -> Self {
        Self { open_from: Some(open_from), old_claims: Vec::new(), lag: Span::ZERO, clock_offset_ms: 0 }
    }
}

/// A claim on a run whose id is older than [`OLD_CLAIM_AFTER`], as it is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldClaim {
    pub run: RunId,
    pub job: JobId,
    pub tenant: TenantId,
    pub fence: Fence,
}

impl OldClaim {
    /// A claim that was committed.
    #[must_use]
    pub const fn of(run: &ClaimedRun) -> Self {
        Self { run: run.id, job: run.job, tenant: run.tenant, fence: run.fence }
    }

    /// Where the page ends that begins at `from`, on the way to `to`: pages are short, and a long way has few of them.
    #[must_use]
    pub fn page_end(from: RunId, to: RunId) -> RunId {
        let way = to.time().since(from.time());
        let page = Span::millis(way.as_millis() / CLAIM_PAGES_PER_WAY).max(CLAIM_PAGE);
        RunId::floor(from.time().plus(page)).min(to)
    }

    /// Whether the claim on a run that ended at this instant may have been listed.
    #[must_use]
    pub fn may_be_listed(run: RunId, ended_at: DbTime) -> bool {
        run.time() < ended_at.minus(OLD_CLAIM_AFTER)
    }
}

/// A page of the claims of an incarnation that are listed, and the bound from which on its claims are not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedClaims {
    /// `None` where the incarnation has no lease.
    pub open_from: Option<RunId>,
    /// Those whose runs it has claimed still, by id; without payloads.
    pub claims: Vec<ClaimedRun>,
    /// The place to go on from.
    pub next: Option<RunId>,
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
    /// `None` for a node of a release that does not publish it.
    pub process: Option<NodeProcess>,
    /// `None` for a node of a release that does not publish it, and takes nothing over from others.
    pub can: Option<String>,
    /// `None` for a node of a release that does not publish it.
    pub listen: Option<String>,
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
    /// Its runs in progress, and as many waiting runs as decide what happens to a further one (`overlap::waiting_needed`).
    pub open: Vec<OpenRun>,
    pub unread: Unread,
    /// How many more of its runs may wait before ticks are skipped with the reason `quota`.
    pub room: usize,
}

/// Which of a job's waiting runs were left unread because there are many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unread {
    /// More wait than were read.
    pub waiting: bool,
    /// More wait between two attempts than were read.
    pub tried: bool,
}

/// The waiting runs of a job, read up to what its policy needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    pub runs: Vec<OpenRun>,
    pub unread: Unread,
}

impl Backlog {
    /// Of what was read with one run more than needed of each kind: those between two attempts, and those never claimed.
    #[must_use]
    pub fn of(found: Vec<OpenRun>, needed: usize) -> Self {
        let (mut tried, mut new): (Vec<_>, Vec<_>) = found.into_iter().partition(|run| run.attempt > 0);
        let unread = Unread { waiting: tried.len() > needed || new.len() > needed, tried: tried.len() > needed };
        tried.truncate(needed);
        new.truncate(needed);
        tried.extend(new);
        Self { runs: tried, unread }
    }
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
    /// Of a claimed run. 0 for one that waits.
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

/// A job whose waiting runs are not asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy {
    pub job: JobId,
    /// Not even those that are forced or in progress already: it uses all the slots that it may.
    pub full: bool,
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

impl Settle {
    /// Those of the runs whose claims may be listed, which is to be undone.
    pub(crate) fn listed<'a>(settles: impl IntoIterator<Item = &'a Self>) -> Vec<RunId> {
        let runs = settles.into_iter().map(|settle| (settle.settlement.run, settle.ended_at));
        runs.filter(|(run, at)| OldClaim::may_be_listed(*run, *at)).map(|(run, _)| run).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleAnswer {
    Settled,
    /// A newer claim, or the end of the run, has passed this one: nothing was written (I7).
    Stale,
    /// Another session has locked the run: nothing was written. Send it again later.
    Locked,
}

impl SettleAnswer {
    pub(crate) const fn of(done: bool) -> Self {
        if done { Self::Settled } else { Self::Stale }
    }
}

/// A claim whose receiver has taken the work and reports later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptedRun {
    pub run: RunId,
    pub fence: Fence,
    /// Who has taken it: the kind of the target, and its connection where it has one.
    pub worker: String,
    /// Without a report it has timed out then.
    pub timeout_at: DbTime,
    /// Whether it gives way to a newer run of its job.
    pub previous: bool,
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
    /// More runs wait than one transaction works off: they are cancelled, or moved, in the background.
    pub backlog: bool,
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
    /// Not in lists.
    pub backlog: Option<BacklogWork>,
}

/// How far the work at a backlog has come that was too long for one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BacklogWork {
    pub action: BacklogAction,
    pub done: u64,
    /// Counted up to [`Limits::waiting_per_job_max`].
    pub remaining: u64,
}

/// What becomes of the runs of a backlog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BacklogAction {
    /// They are cancelled.
    Cancel,
    /// They wait where the job stands now: in another queue, or in the partition of another home.
    Move,
}

impl BacklogAction {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Move => "move",
        }
    }

    /// As the table has it.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Cancel => 1,
            Self::Move => 2,
        }
    }

    #[must_use]
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            1 => Some(Self::Cancel),
            2 => Some(Self::Move),
            _ => None,
        }
    }
}

/// One batch of the work at backlogs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BacklogStep {
    /// Whose backlog it was; none where no job has one, or where it is locked.
    pub job: Option<JobId>,
    pub cancelled: usize,
    pub moved: usize,
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

/// A list reads no more than this of definitions and texts into a page, and one item beyond it. Pages of runs need no such
/// limit: 1,000 runs without their outputs are smaller.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A page, newest first for runs and by name for jobs. `next` is the place to go on from. A page that ends because it has
/// read as much as it may has fewer items than were asked for, perhaps none, and a `next`.
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
    /// Waiting runs of one job; beyond it a tick is recorded as a skip with the reason `quota`.
    pub waiting_per_job_max: usize,
    pub calendars_per_tenant_max: u64,
    /// Runs that one page of a list reads in search of those that its filter wants.
    pub runs_searched_max: usize,
    /// Waiting runs of one job that one transaction cancels or moves; more are worked off in batches of so many.
    pub backlog_batch_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            jobs_per_tenant_max: 100_000,
            open_requests_per_job_max: 1_000,
            waiting_per_job_max: 100_000,
            calendars_per_tenant_max: 1_000,
            runs_searched_max: 50_000,
            backlog_batch_max: 2_000,
        }
    }
}

/// A claim on a run whose id is older than this is listed; claims on younger runs are found by reading the runs themselves.
pub const OLD_CLAIM_AFTER: Span = Span::minutes(1);

/// Runs of so long a time are read at once in search of claims...
pub const CLAIM_PAGE: Span = Span::seconds(30);
/// ...or of more, so that no search has more pages than this: of a node that was stopped for hours.
pub const CLAIM_PAGES_PER_WAY: u64 = 64;

/// How many listed claims are read in one statement.
pub const LISTED_PER_PAGE_MAX: usize = 1_000;

/// How long an Idempotency-Key is remembered.
pub const IDEMPOTENCY_KEPT: Span = Span::days(1);

/// How many late runs of one tenant are looked at together: they are started at a bounded rate, and then looked at again.
pub const LATE_PER_TENANT_MAX: usize = 100;

/// How many ranges of one job are looked at behind a window's end: each is many ticks long, and a window has few.
pub const RANGES_PER_LEDGER_MAX: usize = 64;
