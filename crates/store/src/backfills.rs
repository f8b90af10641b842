//! The transactions about backfills: runs for past ticks, created a few at a time. The backfill's row stores its
//! position. The transaction that creates the runs also moves the position, so a crash neither loses nor repeats a
//! tick.

use async_trait::async_trait;
use everytick_domain::{
    backfill::{BACKFILL_TICKS_NAMED, BackfillState, Order, Origin, Stretch},
    ids::{BackfillId, JobId, RunId, TenantId},
    partition::PartitionSet,
    queue::Rate,
    run::State,
    time::{DbTime, Span},
};

use crate::{Actor, IdempotencyKey, JobRef, Lease, Page, Result};

/// A backfill to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewBackfill {
    pub id: BackfillId,
    pub job: JobRef,
    pub stretch: Stretch,
    pub rate: Option<Rate>,
    /// Delivered instead of the job's payload.
    pub payload: Option<String>,
    /// How long ended runs are kept. No tick may be older.
    pub kept: Span,
    pub idempotency: Option<IdempotencyKey>,
}

/// What a backfill would do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackfillPreview {
    pub job: JobId,
    pub job_name: String,
    pub total: usize,
    /// The first and the last ticks, in order. Together they are all ticks if there are few.
    pub first: Vec<DbTime>,
    pub last: Vec<DbTime>,
}

impl BackfillPreview {
    pub fn of((job, job_name): (JobId, String), ticks: &[DbTime]) -> Self {
        let first = ticks.len().min(BACKFILL_TICKS_NAMED);
        let last = ticks.len().saturating_sub(BACKFILL_TICKS_NAMED).max(first);
        let (first, last) = (ticks[..first].to_vec(), ticks[last..].to_vec());
        Self { job, job_name, total: ticks.len(), first, last }
    }
}

/// A backfill as the API returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackfillRecord {
    pub id: BackfillId,
    pub tenant: TenantId,
    pub job: JobId,
    pub job_name: String,
    pub stretch: Stretch,
    pub rate: Option<Rate>,
    pub payload: Option<String>,
    pub state: BackfillState,
    /// The number of its ticks.
    pub total: u32,
    /// How many of them have a run.
    pub made: u32,
    pub ended: EndedRuns,
    pub created_at: DbTime,
    pub created_by: String,
    /// When all its runs had ended, or when it was cancelled.
    pub finished_at: Option<DbTime>,
    /// Why it was cancelled.
    pub note: Option<String>,
}

impl BackfillRecord {
    /// The id of its run for a tick, whether it exists yet or not.
    #[must_use]
    pub fn run_of(&self, tick: DbTime) -> RunId {
        Origin { backfill: self.id, created_at: self.created_at, stretch: self.stretch }.run(self.job, tick)
    }
}

/// How the ended runs of a backfill ended. A run without a row any more counts as cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndedRuns {
    pub succeeded: u32,
    pub failed: u32,
    pub cancelled: u32,
}

impl EndedRuns {
    #[must_use]
    pub const fn all(self) -> u32 {
        self.succeeded + self.failed + self.cancelled
    }
}

/// A cancelled backfill, which creates no more runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelledBackfill {
    pub backfill: BackfillRecord,
    /// Its runs that have not ended, oldest first. They continue.
    pub open: Vec<RunId>,
}

/// The result of one step of a backfill.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackfillAdvanced {
    pub state: BackfillState,
    /// How many runs were created.
    pub made: usize,
}

/// The part of a [`crate::Store`] that backfills use.
#[async_trait]
pub trait BackfillStore: Send + Sync + 'static {
    /// Reports what a backfill would do; writes nothing.
    async fn preview_backfill(&self, tenant: TenantId, ask: &NewBackfill) -> Result<BackfillPreview>;
    /// Creates a backfill of the ticks that the job's schedule has now, without its runs. A job may have at most
    /// [`BACKFILLS_RUNNING_MAX`](everytick_domain::backfill::BACKFILLS_RUNNING_MAX) running backfills.
    async fn create_backfill(&self, tenant: TenantId, actor: &Actor, ask: NewBackfill) -> Result<BackfillRecord>;
    async fn get_backfill(&self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord>;
    /// Backfills of a job, newest first, before the given one.
    async fn list_backfills(
        &self,
        tenant: TenantId,
        job: JobId,
        before: Option<BackfillId>,
        limit: usize,
    ) -> Result<Page<BackfillRecord, BackfillId>>;
    /// Cancels a running backfill: it creates no more runs. An ended backfill does not change.
    async fn cancel_backfill(&self, tenant: TenantId, actor: &Actor, id: BackfillId) -> Result<CancelledBackfill>;
    /// Active backfills of jobs in the partitions, by id, after the given one.
    async fn load_backfills(
        &self,
        partitions: &PartitionSet,
        after: Option<BackfillId>,
        limit: usize,
    ) -> Result<Vec<BackfillId>>;
    /// Counts the ended runs of a backfill, and creates as many of its next runs as its
    /// [step](everytick_domain::backfill::Progress::step) allows. They wait as late runs, and the position moves in the
    /// same commit. Under `queue` the job's epoch rises, so that its owner plans again with these runs. Ends a backfill
    /// that has run too long, or for as long as runs are `kept`.
    async fn advance_backfill(&self, lease: &Lease, id: BackfillId, kept: Span) -> Result<BackfillAdvanced>;
}

/// The runs of a backfill that are not yet counted as ended.
#[derive(Debug, Default)]
pub struct Listed {
    pub open: Vec<RunId>,
    /// They have ended since the last count.
    pub over: Vec<RunId>,
    pub ended: EndedRuns,
}

impl FromIterator<(RunId, Option<State>)> for Listed {
    fn from_iter<T: IntoIterator<Item = (RunId, Option<State>)>>(runs: T) -> Self {
        let mut listed = Self::default();
        for (run, state) in runs {
            match state {
                // A node of a later release may still work on a run in an unknown state.
                Some(State::Waiting | State::Claimed | State::Unknown(_)) => {
                    listed.open.push(run);
                    continue;
                }
                Some(State::Succeeded) => listed.ended.succeeded += 1,
                Some(State::Failed) => listed.ended.failed += 1,
                Some(State::Cancelled | State::Skipped) | None => listed.ended.cancelled += 1,
            }
            listed.over.push(run);
        }
        listed
    }
}

/// The size of one stored tick in bytes.
pub const TICK_BYTES: usize = size_of::<i64>();

/// The stored form of the ticks, in the order in which they run. The list is fixed at creation: later edits of the job
/// do not change it.
pub fn ticks_to_bytes(ticks: &[DbTime]) -> Vec<u8> {
    ticks.iter().flat_map(|tick| tick.millis().to_be_bytes()).collect()
}

pub fn ticks_from_bytes(bytes: &[u8]) -> Vec<DbTime> {
    let (ticks, _) = bytes.as_chunks::<TICK_BYTES>();
    ticks.iter().map(|tick| DbTime::from_millis(i64::from_be_bytes(*tick))).collect()
}

/// The audit detail of a created backfill.
pub fn made_detail(job_name: &str, ask: &NewBackfill, total: usize) -> String {
    let Stretch { from, to, order } = ask.stretch;
    let rate = ask.rate.map(|rate| rate.to_string());
    serde_json::json!({
        "job": job_name, "from": from, "to": to, "order": order.word(), "rate": rate, "total": total,
        "payload": ask.payload.is_some(),
    })
    .to_string()
}

/// The note of a backfill that a user cancelled.
pub fn cancelled_by(actor: &Actor) -> String {
    format!("cancelled by {}", actor.name)
}

/// The audit detail of a cancelled backfill.
pub fn cancelled_detail(record: &BackfillRecord) -> String {
    serde_json::json!({ "job": record.job_name, "made": record.made, "total": record.total }).to_string()
}

/// The error if too many backfills of the job are running.
pub fn too_many(running: usize) -> crate::StoreError {
    let max = everytick_domain::backfill::BACKFILLS_RUNNING_MAX;
    let message = format!("{running} backfills of the job are already running; at most {max} may run");
    crate::StoreError::Invalid(vec![everytick_domain::invalid::Invalid::new("job", message)])
}

/// Decodes a rate from two columns.
pub fn rate_of(count: Option<i64>, per_ms: Option<i64>) -> Option<Rate> {
    Some(Rate { count: u32::try_from(count?).ok()?, per: Span::millis(u64::try_from(per_ms?).ok()?) })
}

pub const fn order_of(newest_first: bool) -> Order {
    if newest_first { Order::Newest } else { Order::Oldest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_ticks_decode_to_the_same_ticks() {
        let ticks = [0, 1, 1_794_787_200_000, i64::MAX].map(DbTime::from_millis);
        assert_eq!(ticks_from_bytes(&ticks_to_bytes(&ticks)), ticks);
    }

    #[test]
    fn a_preview_shows_the_first_and_last_ticks_and_no_tick_twice() {
        let job = (JobId::from_uuid(uuid::Uuid::nil()), String::new());
        let named = |n: i64| {
            let preview = BackfillPreview::of(job.clone(), &(0..n).map(DbTime::from_millis).collect::<Vec<_>>());
            (
                preview.total,
                [preview.first, preview.last].map(|ticks| ticks.iter().map(|at| at.millis()).collect::<Vec<_>>()),
            )
        };
        assert_eq!(named(3), (3, [vec![0, 1, 2], vec![]]));
        assert_eq!(named(7), (7, [vec![0, 1, 2, 3, 4], vec![5, 6]]));
        assert_eq!(named(100), (100, [vec![0, 1, 2, 3, 4], vec![95, 96, 97, 98, 99]]));
    }
}
