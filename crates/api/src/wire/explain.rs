//! The answer of `explain`: why a job ran or did not run at an instant, or why a run is in its state.

use everytick_domain::{
    explain::{Backfilled, Explanation as Domain, Kind as DomainKind, QueueFacts, Reason as DomainReason, RunRow},
    ids::{BackfillId, RunId},
    run::State,
    time::DbTime,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::run::Skip;

/// The kind of explanation.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Run,
    Skipped,
    NotATick,
    NoSchedule,
    Paused,
    Disabled,
    NotYetMade,
    Deleted,
    OutOfBounds,
    DefinitionChanged,
    NotYetDue,
    WillBeSkipped,
    NotYetRecorded,
    OutOfHistory,
    Missing,
}

/// Why a run waits, how it ended, or why there is none.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Why {
    Run(#[schema(inline)] Reason),
    Skip(#[schema(inline)] Skip),
}

/// Why a run waits, or how it ended.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    DueLater,
    RetryLater,
    JobBusy,
    KeyBusy,
    QueueLimit,
    QueueRate,
    NoWorker,
    WorkersBusy,
    BehindOthers,
    NextClaim,
    NoNode,
    WaitsForSlot,
    BeingCancelled,
    InProgress,
    NoHeartbeat,
    Succeeded,
    Failed,
    AttemptsUsed,
    NotRetried,
    Lost,
    Cancelled,
    Superseded,
}

same_words! {
    Kind = DomainKind {
        Run, Skipped, NotATick, NoSchedule, Paused, Disabled, NotYetMade, Deleted, OutOfBounds, DefinitionChanged, NotYetDue,
        WillBeSkipped, NotYetRecorded, OutOfHistory, Missing
    }
    Reason = DomainReason {
        DueLater, RetryLater, JobBusy, KeyBusy, QueueLimit, QueueRate, NoWorker, WorkersBusy, BehindOthers, NextClaim, NoNode,
        WaitsForSlot, BeingCancelled, InProgress, NoHeartbeat, Succeeded, Failed, AttemptsUsed, NotRetried, Lost, Cancelled,
        Superseded
    }
}

/// Why a job ran or did not run at an instant, or why a run is in its state, as text and as fields.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Explanation {
    #[schema(example = "nightly-report")]
    job: String,
    #[schema(value_type = String, format = DateTime)]
    at: DbTime,
    /// The same instant in the job's zone.
    #[schema(format = DateTime, example = "2026-12-25T03:00:00+01:00")]
    local: String,
    /// The job's zone; UTC for a job without a cron expression.
    #[schema(example = "Europe/Paris")]
    timezone: String,
    /// The zone of the job's cron expression; `null` for a job without one.
    #[schema(required, example = "Europe/Paris")]
    schedule_timezone: Option<String>,
    #[schema(inline)]
    kind: Kind,
    /// Why the run waits, how it ended, or the `skip_reason`; `null` if there is neither a run nor a skip.
    #[schema(inline)]
    reason: Option<Why>,
    /// The explanation as text, in the job's zone, else in `zone`, with UTC beside it; with `utc=true` in UTC.
    #[schema(
        example = "2026-12-25T03:00:00+01:00 (2026-12-25T02:00:00Z): skipped: calendar holidays-de excludes the date"
    )]
    message: String,
    /// Further sentences: the origin of the run, further facts, and what happens next.
    details: Vec<String>,
    /// Commands that show more, or that change the situation.
    commands: Vec<String>,
    /// The run or skip.
    #[schema(value_type = Option<String>, format = Uuid)]
    run: Option<RunId>,
    #[schema(example = "succeeded")]
    state: Option<&'static str>,
    #[schema(example = "calendar")]
    skip_reason: Option<&'static str>,
    /// The runs that block it: it waits for them, or it was skipped because of them. At most 5.
    in_the_way: Vec<OtherRun>,
    /// The queue in which the run waits.
    queue: Option<WaitedQueue>,
    /// The range of ticks that were skipped together with this one.
    range: Option<SkippedRange>,
    /// The calendar that excludes the instant.
    calendar: Option<String>,
    /// Who paused, deleted, created or changed the job, or cancelled the run.
    by: Option<String>,
    /// The instant from which the explained situation applies, such as the start of a pause.
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<DbTime>,
    /// The nearest ticks of the definition that applied then, if the instant is not a tick.
    #[schema(value_type = Option<String>, format = DateTime)]
    tick_before: Option<DbTime>,
    #[schema(value_type = Option<String>, format = DateTime)]
    tick_after: Option<DbTime>,
    /// The next tick of the job that no calendar excludes.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_tick: Option<DbTime>,
    /// Backfills over the instant, in addition to the tick's own record. At most 10.
    backfilled: Vec<BackfilledRun>,
}

/// A run of the same job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OtherRun {
    #[schema(value_type = String, format = Uuid)]
    run: RunId,
    #[schema(example = "claimed")]
    state: &'static str,
    /// When its attempt started, or since when it waits.
    #[schema(value_type = String, format = DateTime)]
    since: DbTime,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<DbTime>,
    node: Option<String>,
    worker: Option<String>,
}

impl From<RunRow> for OtherRun {
    fn from(row: RunRow) -> Self {
        let (since, state) = (row.since(), row.state.word());
        Self { run: row.run, state, since, finished_at: row.finished_at, node: row.node, worker: row.worker }
    }
}

/// The queue in which a run waits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WaitedQueue {
    #[schema(example = "emails")]
    name: String,
    /// When a worker last asked for runs of the queue, to about 5 seconds; `null` if none has.
    #[schema(value_type = Option<String>, format = DateTime)]
    asked_at: Option<DbTime>,
    /// The worker that asked.
    asked_by: Option<String>,
    /// Runs that workers have claimed.
    claimed: u64,
    /// Due runs that are claimed before this one. Counted up to 1,000.
    ahead: u64,
}

impl From<QueueFacts> for WaitedQueue {
    fn from(queue: QueueFacts) -> Self {
        let QueueFacts { name, claimed, ahead, asked, .. } = queue;
        let (asked_at, asked_by) = asked.map(|asked| (asked.at, asked.worker)).unzip();
        Self { name, asked_at, asked_by, claimed, ahead }
    }
}

/// A backfill over an instant, and its run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BackfilledRun {
    #[schema(value_type = String, format = Uuid)]
    backfill: BackfillId,
    /// Who created the backfill.
    by: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: DbTime,
    #[schema(value_type = String, format = Uuid)]
    run: RunId,
    /// `null` if the backfill has not created the run yet.
    #[schema(example = "succeeded")]
    state: Option<&'static str>,
}

impl From<Backfilled> for BackfilledRun {
    fn from(of: Backfilled) -> Self {
        let Backfilled { backfill, by, created_at, run, state, .. } = of;
        Self { backfill, by, created_at, run, state: state.map(State::word) }
    }
}

/// Ticks that were skipped together; both ends are included.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkippedRange {
    #[schema(value_type = String, format = DateTime)]
    from: DbTime,
    #[schema(value_type = String, format = DateTime)]
    to: DbTime,
    count: u64,
}

impl Explanation {
    pub(crate) fn new(job: &str, explained: Domain) -> Self {
        let record = explained.record.as_ref();
        let why = explained.reason.map(|reason| Why::Run(reason.into()));
        let why = why.or(explained.skip_reason.map(|reason| Why::Skip(reason.into())));
        let state = record.map(|record| record.state).or(explained.range.map(|_| State::Skipped));
        Self {
            job: job.to_owned(),
            at: explained.at,
            local: explained.local,
            timezone: explained.zone.clone().unwrap_or_else(|| "UTC".to_owned()),
            schedule_timezone: explained.zone,
            kind: explained.kind.into(),
            reason: why,
            message: explained.words,
            details: explained.details,
            commands: explained.commands,
            run: record.map(|record| record.run),
            state: state.map(State::word),
            skip_reason: explained.skip_reason.map(|reason| reason.word()),
            in_the_way: explained.in_the_way.into_iter().map(Into::into).collect(),
            queue: explained.queue.map(Into::into),
            range: explained.range.map(|range| SkippedRange { from: range.from, to: range.to, count: range.count }),
            calendar: explained.calendar,
            by: explained.by,
            since: explained.since,
            tick_before: explained.before,
            tick_after: explained.after,
            next_tick: explained.next_tick,
            backfilled: explained.backfilled.into_iter().map(Into::into).collect(),
        }
    }
}
