//! The parameters and results of the store's transactions.

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

/// A node's right to write. It ends when it expires on the database clock, or when its fence is raised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    pub node: String,
    pub incarnation: Incarnation,
    pub fence: Fence,
}

/// The process that has a node's lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeProcess {
    pub host: String,
    pub pid: u32,
    /// Distinguishes this process from a later one with the same pid. Compared only with a mark of the same form. Empty
    /// if the operating system provides none.
    pub mark: String,
}

/// Which live process a starting node may replace under its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TakeOver {
    /// None: the node may use the name only if no lease is alive under it.
    #[default]
    Expired,
    /// This incarnation, whose process is known to have ended.
    Only(Incarnation),
    /// Any process: the operator asked for it.
    Any,
}

impl TakeOver {
    #[must_use]
    pub fn includes(self, owner: Incarnation) -> bool {
        match self {
            Self::Expired => false,
            Self::Only(gone) => gone == owner,
            Self::Any => true,
        }
    }
}

/// A live lease under the name of a node that wants to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameOwner {
    pub node: String,
    pub incarnation: Incarnation,
    /// `None` if the node's release does not publish it.
    pub process: Option<NodeProcess>,
    pub renewed_at: DbTime,
    pub until: DbTime,
    pub now: DbTime,
}

impl std::fmt::Display for NameOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a node named {:?} is alive: ", self.node)?;
        match &self.process {
            Some(process) => write!(f, "process {} on host {}", process.pid, process.host)?,
            None => f.write_str("a process of an earlier release")?,
        }
        write!(f, " renewed its lease {} ago", self.now.since(self.renewed_at))
    }
}

/// What a node publishes about itself when it joins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeInfo {
    pub name: String,
    pub region: Option<String>,
    pub version: String,
    /// Whether it may own partitions.
    pub may_own: bool,
    /// It has joined before and lost its lease. Another process may have taken its name since.
    pub again: bool,
    /// Whose name it may take. Applies only to a shared store: a SQLite file is open in one process at a time.
    pub takes_over: TakeOver,
    pub process: Option<NodeProcess>,
    /// The targets that it can deliver, in the form in which nodes exchange it.
    pub can: Option<String>,
    /// The addresses and ports of its API, separated by commas.
    pub listen: Option<String>,
}

impl NodeInfo {
    /// A node of this release, without a region, that may own partitions.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { name: name.to_owned(), version, may_own: true, ..Self::default() }
    }
}

/// What a node reports with each renewal of its lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    /// The id up to which the lease's `open_from` may be raised: not past what [`crate::Store::list_old_claims`] has
    /// listed, and never lowered. `None` while the node may have claims that it does not know of.
    pub open_from: Option<RunId>,
    /// All claims below `open_from` that the node knows of. The renewal lists those that were made since the last
    /// listing.
    pub old_claims: Vec<OldClaim>,
    /// The longest wait for delivery among the runs that became due since the last renewal.
    pub lag: Span,
    /// How far the node's clock is behind the database clock.
    pub clock_offset_ms: i64,
}

impl Beat {
    /// The report of a node without lag.
    #[must_use]
    pub const fn of(open_from: RunId) -> Self {
        Self { open_from: Some(open_from), old_claims: Vec::new(), lag: Span::ZERO, clock_offset_ms: 0 }
    }
}

/// A listed claim: its run's id is older than [`OLD_CLAIM_AFTER`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldClaim {
    pub run: RunId,
    pub job: JobId,
    pub tenant: TenantId,
    pub fence: Fence,
}

impl OldClaim {
    /// From a committed claim.
    #[must_use]
    pub const fn of(run: &ClaimedRun) -> Self {
        Self { run: run.id, job: run.job, tenant: run.tenant, fence: run.fence }
    }

    /// The end of the page that begins at `from` on the way to `to`. Pages are short, but a long way has at most
    /// [`CLAIM_PAGES_PER_WAY`] of them.
    #[must_use]
    pub fn page_end(from: RunId, to: RunId) -> RunId {
        let way = to.time().since(from.time());
        let page = Span::millis(way.as_millis() / CLAIM_PAGES_PER_WAY).max(CLAIM_PAGE);
        RunId::floor(from.time().plus(page)).min(to)
    }

    /// Whether the claim on a run that ended at this instant may be in the list.
    #[must_use]
    pub fn may_be_listed(run: RunId, ended_at: DbTime) -> bool {
        run.time() < ended_at.minus(OLD_CLAIM_AFTER)
    }
}

/// A page of an incarnation's listed claims, and the id from which on its claims are not listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedClaims {
    /// `None` if the incarnation has no lease.
    pub open_from: Option<RunId>,
    /// The listed claims that still exist, by run id, without payloads.
    pub claims: Vec<ClaimedRun>,
    /// The position of the next page.
    pub next: Option<RunId>,
}

/// The live nodes and the owner of each partition, read in one snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    pub now: DbTime,
    /// Nodes whose lease has neither ended nor been fenced, by name. An expired lease stays here until it is fenced.
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
    /// The node is alive while this is after `now`.
    pub until: DbTime,
    pub started_at: DbTime,
    pub renewed_at: DbTime,
    /// Whether it may own partitions; false when it is about to stop.
    pub may_own: bool,
    pub lag: Span,
    pub clock_offset_ms: i64,
    /// `None` if the node's release does not publish it.
    pub process: Option<NodeProcess>,
    /// `None` if the node's release does not publish it. Other nodes then delegate no runs to it.
    pub can: Option<String>,
    /// `None` if the node's release does not publish it.
    pub listen: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionRecord {
    pub partition: u16,
    /// The incarnation that acquired it last and has not released it. Its lease may have expired since.
    pub owner: Option<Incarnation>,
    pub fence: Fence,
    /// When it was acquired or became free.
    pub since: DbTime,
    /// The home region that has claimed this partition, if any.
    pub home_region: Option<String>,
}

/// A job with everything that the scheduler needs, read in one snapshot.
#[derive(Clone, Debug)]
pub struct LoadedJob {
    pub job: Arc<Job>,
    pub epoch: Epoch,
    /// Lower bound of the next unrecorded tick; `None` if the schedule has no more ticks.
    pub cursor: Option<DbTime>,
    /// The last recorded tick, if it is not before the cursor. All ticks before it are recorded too.
    pub last_tick: Option<DbTime>,
    /// Its runs in progress, and as many of its waiting runs as the overlap policy needs for its decision
    /// (`overlap::waiting_needed`).
    pub open: Vec<OpenRun>,
    pub unread: Unread,
    /// How many more of its runs may wait before ticks are skipped with the reason `quota`.
    pub room: usize,
}

/// Which of a job's waiting runs were not read because there are too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unread {
    /// More runs wait than were read.
    pub waiting: bool,
    /// More runs wait between two attempts than were read.
    pub tried: bool,
}

/// The waiting runs of a job, read up to the number that its overlap policy needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    pub runs: Vec<OpenRun>,
    pub unread: Unread,
}

impl Backlog {
    /// From `found`, which was read with one run more than `needed` of each kind: runs between two attempts, and runs
    /// never claimed.
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
    /// The jobs that can be decoded.
    pub jobs: Vec<WalkedJob>,
    /// The last job that was read; `None` at the end of the walk.
    pub last: Option<JobId>,
}

#[derive(Clone, Debug)]
pub struct WalkedJob {
    pub job: Job,
    pub epoch: Epoch,
    pub cursor: Option<DbTime>,
}

impl LoadedJob {
    /// The first tick without a row. The cursor is only a lower bound: the schedule gives the tick at or after it, and
    /// `last_tick` gives the ticks already recorded.
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

/// A run that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenRun {
    pub id: RunId,
    pub state: State,
    /// 0 for a run that was never claimed.
    pub attempt: u32,
    /// The fence of a claimed run; 0 for a waiting one.
    pub fence: Fence,
}

impl From<OpenRun> for Open {
    fn from(run: OpenRun) -> Self {
        Self { claimed: run.state == State::Claimed, attempts: run.attempt }
    }
}

impl OpenRun {
    /// Counts the open runs of a job.
    #[must_use]
    pub fn count(open: &[Self]) -> OpenRuns {
        open.iter().map(|run| Open::from(*run)).collect()
    }
}

/// The position of a reader of changes. Opaque: each store numbers changes in its own way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChangeMark(pub i64);

#[derive(Clone, Debug)]
pub struct Changes {
    pub jobs: Vec<ChangedJob>,
    pub mark: ChangeMark,
    /// Whether more changes can be read now.
    pub more: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangedJob {
    pub id: JobId,
    pub epoch: Epoch,
    pub cursor: Option<DbTime>,
}

/// The ticks of one job to be recorded under one epoch, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobTicks {
    pub job: JobId,
    pub tenant: TenantId,
    /// As the node knows it. A waiting run gets the partition that the job has in the database.
    pub partition: u16,
    pub epoch: Epoch,
    pub priority: u8,
    /// The value of the job's concurrency key, if it has one.
    pub key: Option<String>,
    pub rows: Vec<RecordRow>,
}

impl JobTicks {
    /// Whether all ticks are before the cursor and not after the clock.
    pub fn passed_by(&self, cursor: Option<DbTime>, now: DbTime) -> bool {
        let passed = |tick: DbTime| tick <= now && cursor.is_none_or(|cursor| tick < cursor);
        self.rows.iter().all(|row| passed(row.tick.at))
    }

    /// The audit detail of a repair.
    pub fn repair_detail(&self) -> String {
        let ticks: Vec<_> = self.rows.iter().map(|row| row.tick.at).collect();
        serde_json::json!({ "ticks": ticks }).to_string()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordRow {
    pub tick: TickRow,
    /// Insert it as claimed by the lease's incarnation, attempt 1. Otherwise a run is inserted waiting, and a skip as
    /// ended.
    pub born_claimed: bool,
}

#[derive(Clone, Debug)]
pub struct Recorded {
    /// The database clock in the statement. A row born claimed has the fence `Fence::default().raised(now)`.
    pub now: DbTime,
    /// In the order of the batch; within a job, in the order of its rows.
    pub jobs: Vec<Vec<RowAnswer>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowAnswer {
    Inserted,
    /// The row existed: the tick was recorded before. Reload the job.
    Existed,
    /// The tick is after the database clock; nothing was written.
    Early,
    /// The job's epoch has changed, or its cursor has passed the tick. Nothing was written; reload the job.
    Stale,
}

/// A range of skips and the cursor that passes it, written together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangePlan {
    pub job: JobId,
    pub tenant: TenantId,
    pub epoch: Epoch,
    /// The expected cursor. If it has changed, the range is not written.
    pub cursor_was: DbTime,
    pub range: SkipRange,
    pub cursor: Option<DbTime>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeAnswer {
    /// Written; `epoch` is the job's new epoch.
    Recorded { epoch: Epoch },
    /// Not written: the epoch or the cursor has changed, a tick of the range has a row, or the range ends after the
    /// clock.
    Stale,
}

/// Raises a cursor over ticks whose rows are known to be committed. Never lowers it.
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
    /// Chosen by catch-up: starts after runs that are on time.
    pub late: bool,
    /// Triggered with `force`: starts even if the job is busy.
    pub force: bool,
    /// The number of its attempts. A run with more than 0 counts as in progress.
    pub attempts: u32,
}

#[derive(Clone, Debug)]
pub struct Waiting {
    pub now: DbTime,
    /// Runs that are due: on-time runs by priority, then oldest first; after them late runs, with tenants in rotation,
    /// each tenant's in the same order.
    pub due: Vec<WaitingRun>,
    /// When the next run becomes due.
    pub next_due: Option<DbTime>,
}

/// A committed claim.
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
    /// The run's own payload, if it has one; otherwise the job's payload is delivered.
    pub payload: Option<String>,
}

/// A job that may start no further waiting runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy {
    pub job: JobId,
    /// Exclude also forced runs and runs in progress: the job uses all the slots that it may.
    pub full: bool,
}

/// A settlement and the data that the store needs to write it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settle {
    pub settlement: everytick_domain::run::Settlement,
    pub job: JobId,
    pub tenant: TenantId,
    /// As the node knows it. A run that waits again gets the partition that the job has in the database; the job may
    /// have moved.
    pub partition: u16,
    pub priority: u8,
    /// When the target was called; `None` for a claim never sent.
    pub started_at: Option<DbTime>,
    /// When the target answered.
    pub ended_at: DbTime,
}

impl Settle {
    /// The runs whose claims may be listed. The settlement removes them from the list.
    pub(crate) fn listed<'a>(settles: impl IntoIterator<Item = &'a Self>) -> Vec<RunId> {
        let runs = settles.into_iter().map(|settle| (settle.settlement.run, settle.ended_at));
        runs.filter(|(run, at)| OldClaim::may_be_listed(*run, *at)).map(|(run, _)| run).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettleAnswer {
    Settled,
    /// The run has a newer claim or has ended: nothing was written (I7).
    Stale,
    /// Another session has locked the run: nothing was written. Send it again later.
    Locked,
}

impl SettleAnswer {
    pub(crate) const fn of(done: bool) -> Self {
        if done { Self::Settled } else { Self::Stale }
    }
}

/// A claim whose receiver has accepted the work and reports later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcceptedRun {
    pub run: RunId,
    pub fence: Fence,
    /// The receiver: the target kind, and its connection if it has one.
    pub worker: String,
    /// Without a report, it times out at this instant.
    pub timeout_at: DbTime,
    /// Whether a newer run of its job supersedes it.
    pub previous: bool,
}

/// The author of a change, for the audit trail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor(pub String);

/// A job to create.
#[derive(Clone, Debug)]
pub struct NewJob {
    pub id: JobId,
    pub spec: JobSpec,
}

/// A user's reference to a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobRef {
    Id(JobId),
    Name(String),
}

/// An Idempotency-Key and a hash of the request that used it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyKey {
    pub key: String,
    pub fingerprint: [u8; 32],
}

#[derive(Clone, Debug)]
pub struct Created {
    pub job: Job,
    pub cursor: Option<DbTime>,
    /// The key was used before for the same request: this is the job created then.
    pub replayed: bool,
}

#[derive(Clone, Debug)]
pub struct EditJob {
    pub job: JobRef,
    pub change: Change,
    pub if_match: Option<Version>,
    /// With a pause or delete: cancels the open runs in the same transaction, and returns those that were claimed.
    pub cancel: bool,
}

#[derive(Clone, Debug)]
pub struct Edited {
    pub job: Job,
    pub cursor: Option<DbTime>,
    /// The old definition applies up to this instant, the new one after it. `None` if nothing changed.
    pub effective_at: Option<DbTime>,
    /// Runs that were cancelled while claimed: the caller must stop the work.
    pub cancelled: Vec<RunId>,
    /// More runs wait than one transaction processes. The others are cancelled or moved in the background.
    pub backlog: bool,
}

/// A requested run.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub job: JobRef,
    /// Part of the run's id, with the instant of the request: derived from the Idempotency-Key, or random bytes.
    pub key: Vec<u8>,
    pub payload: Option<String>,
    /// Starts even if runs of the job are open.
    pub force: bool,
    pub idempotency: Option<IdempotencyKey>,
}

#[derive(Clone, Debug)]
pub struct CancelledRun {
    pub run: RunRecord,
    /// It was claimed: the caller must stop the work.
    pub was_claimed: bool,
}

/// A run, or a range of skips, as the API returns it.
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
    /// The worker that claimed it from a queue.
    pub worker: Option<String>,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    pub error: Option<String>,
    pub output: Option<String>,
    pub skip_reason: Option<SkipReason>,
    /// Delivered instead of the job's payload. Left out of lists, like the output.
    pub payload: Option<String>,
    /// The flow that it belongs to, or opens.
    pub flow: Option<RunId>,
    /// Set for a range of skips.
    pub range: Option<SkipRange>,
}

impl RunRecord {
    /// A range of skips, in the form of a run as the API returns it.
    #[must_use]
    pub fn of_range(
        id: RunId,
        (job, job_name): (JobId, String),
        tenant: TenantId,
        range: SkipRange,
        recorded_at: DbTime,
    ) -> Self {
        Self {
            id,
            job,
            job_name,
            tenant,
            cause: CauseKind::Tick,
            scheduled_at: range.from,
            due_at: range.from,
            state: State::Skipped,
            attempt: 0,
            lost: 0,
            fence: Fence::default(),
            node: None,
            worker: None,
            started_at: None,
            finished_at: Some(recorded_at),
            error: None,
            output: None,
            skip_reason: Some(range.reason),
            payload: None,
            flow: None,
            range: Some(range),
        }
    }
}

/// One attempt of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptRecord {
    pub run: RunId,
    pub attempt: u32,
    pub fence: Fence,
    pub node: Option<String>,
    /// The worker that claimed it from a queue.
    pub worker: Option<String>,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    /// `succeeded`, `failed`, `lost`, `cancelled`; `None` while it is in progress.
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub output: Option<String>,
}

#[derive(Clone, Debug)]
pub struct JobRecord {
    pub job: Job,
    pub cursor: Option<DbTime>,
    pub last_run: Option<RunRecord>,
    /// The database clock when the job was read. The next tick is computed from it.
    pub now: DbTime,
    /// Not in lists.
    pub backlog: Option<BacklogWork>,
}

/// The progress of a backlog that was too long for one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BacklogWork {
    pub action: BacklogAction,
    pub done: u64,
    /// Counted up to [`Limits::waiting_per_job_max`].
    pub remaining: u64,
}

/// What happens to the runs of a backlog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BacklogAction {
    /// They are cancelled.
    Cancel,
    /// They move to the job's new queue, or to the partition of its new home.
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

    /// The code in the table.
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

/// One processed batch of a backlog.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BacklogStep {
    /// The job of the backlog; `None` if no job has one, or if it is locked.
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
    /// Every `key` or `key=value` must match.
    pub labels: Vec<(String, Option<String>)>,
    /// A part of the name or the description, in any case.
    pub q: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    pub job: Option<JobId>,
    pub from: Option<DbTime>,
    pub to: Option<DbTime>,
    pub states: Vec<State>,
}

/// A page of a list reads definitions and texts up to this size, and at most one item beyond it. Pages of runs need no
/// such limit: 1,000 runs without their outputs are smaller.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A page: runs newest first, jobs by name. `next` is the position of the next page. A page that reached a read limit
/// has fewer items than requested, perhaps none, and a `next`.
#[derive(Clone, Debug)]
pub struct Page<T, K> {
    pub items: Vec<T>,
    pub next: Option<K>,
}

impl<T, C> Page<T, C> {
    /// The first `limit` items, and the position after the last of them if there are more.
    pub fn cut(mut items: Vec<T>, limit: usize, position: impl Fn(&T) -> C) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(position);
        Self { items, next }
    }
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

/// The quotas and read limits of a store.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub jobs_per_tenant_max: u64,
    /// Open requested runs of one job; further requests are refused.
    pub open_requests_per_job_max: u64,
    /// Waiting runs of one job; further ticks are recorded as skips with the reason `quota`.
    pub waiting_per_job_max: usize,
    pub calendars_per_tenant_max: u64,
    /// Runs that one page of a list reads to find matches for its filter.
    pub runs_searched_max: usize,
    /// Waiting runs of one job that one transaction cancels or moves. A longer backlog is processed in batches of this
    /// size.
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

/// A claim on a run whose id is older than this is listed. Claims on younger runs are found by reading the runs.
pub const OLD_CLAIM_AFTER: Span = Span::minutes(1);

/// A search for claims reads the runs of this span at once, or...
pub const CLAIM_PAGE: Span = Span::seconds(30);
/// ...of a longer span, so that no search has more pages than this, even for a node that was stopped for hours.
pub const CLAIM_PAGES_PER_WAY: u64 = 64;

/// Listed claims that one statement reads.
pub const LISTED_PER_PAGE_MAX: usize = 1_000;

/// How long an Idempotency-Key is remembered.
pub const IDEMPOTENCY_KEPT: Span = Span::days(1);

/// Late runs of one tenant that one peek returns. They start at a bounded rate, and the next peek reads again.
pub const LATE_PER_TENANT_MAX: usize = 100;

/// Ranges of one job that are read behind a window's end. Each covers many ticks, and a window has few.
pub const RANGES_PER_LEDGER_MAX: usize = 64;
