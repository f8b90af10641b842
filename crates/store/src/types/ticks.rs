//! Jobs as the scheduler loads them, ticks as it records them, and cursors.

use std::sync::Arc;

use everytick_domain::{
    ids::{Epoch, Fence, JobId, RunId, TenantId},
    job::Job,
    overlap::{Open, OpenRuns},
    plan::{SkipRange, TickRow},
    run::State,
    time::DbTime,
};

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
    pub remaining: usize,
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

/// Maximum number of ranges of one job that a ledger reads, from the end of its window backwards. Each covers many ticks, so a
/// window has few.
pub const RANGES_PER_LEDGER_MAX: usize = 64;

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
