//! What people and nodes ask of a store about backfills: runs for past ticks, made a few at a time. A row of its own says how
//! far one has come; it moves on in the transaction that makes the runs, so a crash leaves nothing undone and nothing done twice.

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

/// A backfill to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewBackfill {
    pub id: BackfillId,
    pub job: JobRef,
    pub stretch: Stretch,
    pub rate: Option<Rate>,
    /// What its runs deliver instead of the job's payload.
    pub payload: Option<String>,
    /// How long ended runs are kept: no tick may lie further back.
    pub kept: Span,
    pub idempotency: Option<IdempotencyKey>,
}

/// What a backfill would do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackfillPreview {
    pub job: JobId,
    pub job_name: String,
    pub total: usize,
    /// The ticks that come first and last, in their order; together all of them where they are few.
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

/// A backfill as people read it.
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
    /// How many ticks it covers.
    pub total: u32,
    /// How many of them have their runs.
    pub made: u32,
    pub ended: EndedRuns,
    pub created_at: DbTime,
    pub created_by: String,
    /// When all was made and over, or when it was cancelled.
    pub finished_at: Option<DbTime>,
    /// Why it was cancelled.
    pub note: Option<String>,
}

impl BackfillRecord {
    /// The run that it makes, or has made, of a tick.
    #[must_use]
    pub fn run_of(&self, tick: DbTime) -> RunId {
        Origin { backfill: self.id, created_at: self.created_at, stretch: self.stretch }.run(self.job, tick)
    }
}

/// How the runs of a backfill that are over have ended. One that is not on the record any more counts as cancelled.
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

/// A backfill that makes no more runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelledBackfill {
    pub backfill: BackfillRecord,
    /// Its runs that are not over, the oldest first. They go on.
    pub open: Vec<RunId>,
}

/// What became of a backfill in one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackfillAdvanced {
    pub state: BackfillState,
    /// How many runs were made.
    pub made: usize,
}

/// The part of a [`crate::Store`] that backfills use.
#[async_trait]
pub trait BackfillStore: Send + Sync + 'static {
    /// What a backfill would do; nothing is written.
    async fn preview_backfill(&self, tenant: TenantId, ask: &NewBackfill) -> Result<BackfillPreview>;
    /// Makes a backfill of the ticks that the job's schedule has now, and none of its runs. No more than
    /// [`BACKFILLS_RUNNING_MAX`](everytick_domain::backfill::BACKFILLS_RUNNING_MAX) of a job are under way together.
    async fn create_backfill(&self, tenant: TenantId, actor: &Actor, ask: NewBackfill) -> Result<BackfillRecord>;
    async fn get_backfill(&self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord>;
    /// Backfills of a job, the newest first, before the given one.
    async fn list_backfills(
        &self,
        tenant: TenantId,
        job: JobId,
        before: Option<BackfillId>,
        limit: usize,
    ) -> Result<Page<BackfillRecord, BackfillId>>;
    /// Ends a backfill that is under way: it makes no more runs. One that is over stays as it is.
    async fn cancel_backfill(&self, tenant: TenantId, actor: &Actor, id: BackfillId) -> Result<CancelledBackfill>;
    /// Backfills of jobs in the partitions that somebody has to look after, by id, after the given one.
    async fn load_backfills(
        &self,
        partitions: &PartitionSet,
        after: Option<BackfillId>,
        limit: usize,
    ) -> Result<Vec<BackfillId>>;
    /// Counts what is over of a backfill, and makes as many of its next runs as there is
    /// [room](everytick_domain::backfill::Standing::step) for: they wait as late ones, and the position moves on in the same
    /// commit. Under `queue` the job's epoch rises, so that what its holder had planned without them is planned anew.
    /// One that has lasted too long, or for as long as runs are `kept`, is ended.
    async fn advance_backfill(&self, lease: &Lease, id: BackfillId, kept: Span) -> Result<BackfillAdvanced>;
}

/// The runs of a backfill that are not counted as over.
#[derive(Debug, Default)]
pub struct Listed {
    pub open: Vec<RunId>,
    /// They have ended since they were counted last.
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

/// Bytes of one tick, as a row keeps them.
pub const TICK_BYTES: usize = size_of::<i64>();

/// Ticks as a row keeps them, in the order of their turns: which those are does not change, whatever becomes of the job.
pub fn ticks_to_bytes(ticks: &[DbTime]) -> Vec<u8> {
    ticks.iter().flat_map(|tick| tick.millis().to_be_bytes()).collect()
}

pub fn ticks_from_bytes(bytes: &[u8]) -> Vec<DbTime> {
    let (ticks, _) = bytes.as_chunks::<TICK_BYTES>();
    ticks.iter().map(|tick| DbTime::from_millis(i64::from_be_bytes(*tick))).collect()
}

/// What the audit trail says of a backfill that was made.
pub fn made_detail(job_name: &str, ask: &NewBackfill, total: usize) -> String {
    let Stretch { from, to, order } = ask.stretch;
    let rate = ask.rate.map(|rate| rate.to_string());
    serde_json::json!({
        "job": job_name, "from": from, "to": to, "order": order.word(), "rate": rate, "total": total,
        "payload": ask.payload.is_some(),
    })
    .to_string()
}

/// Why somebody's request ended it.
pub fn cancelled_by(actor: &Actor) -> String {
    format!("cancelled by {}", actor.0)
}

/// And of one that was cancelled.
pub fn cancelled_detail(record: &BackfillRecord) -> String {
    serde_json::json!({ "job": record.job_name, "made": record.made, "total": record.total }).to_string()
}

/// What is wrong when so many are under way already.
pub fn too_many(running: usize) -> crate::StoreError {
    let max = everytick_domain::backfill::BACKFILLS_RUNNING_MAX;
    let message = format!("{running} of its backfills are under way already; at most {max} may be");
    crate::StoreError::Invalid(vec![everytick_domain::invalid::Invalid::new("job", message)])
}

/// From a row's numbers.
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
    fn ticks_are_kept_as_they_are() {
        let ticks = [0, 1, 1_794_787_200_000, i64::MAX].map(DbTime::from_millis);
        assert_eq!(ticks_from_bytes(&ticks_to_bytes(&ticks)), ticks);
    }

    #[test]
    fn a_preview_names_the_ends_and_no_tick_twice() {
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
