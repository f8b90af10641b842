//! Decodes rows, and turns batches into the arrays that their statements take.

use std::{borrow::Cow, sync::Arc};

use everytick_domain::{
    ids::{Epoch, Fence, JobId, RunId, TenantId, Version},
    job::{Job, Paused},
    partition::PartitionSet,
    plan::SkipRange,
    run::{CauseKind, SkipReason, State},
    schedule::Schedule,
    time::DbTime,
};
use sqlx::{Row as _, postgres::PgRow};
use uuid::Uuid;

use super::short;
use crate::{AttemptRecord, ClaimedRun, OpenRun, RunRecord, WaitingRun, crons::CRONS, tx::JobRow};

type Decoded<T> = std::result::Result<T, sqlx::Error>;

pub(super) fn job(row: &PgRow) -> Decoded<JobRow> {
    let spec = short::read(row.try_get("name")?, row.try_get("spec")?).map_err(|error| wrong("spec", error))?;
    let schedule = match &spec.schedule {
        None => None,
        Some(schedule) => {
            let compiled = Schedule::compile_with(schedule, &CRONS);
            let first = |found: Vec<_>| found.first().map_or_else(String::new, ToString::to_string);
            Some(compiled.map_err(|found| wrong("spec", format!("its schedule is wrong: {}", first(found))))?)
        }
    };
    let paused = match time(row, "paused_at")? {
        None => None,
        Some(at) => Some(Paused { at, note: row.try_get("pause_note")? }),
    };
    let job = Job {
        id: job_id(row, "id")?,
        tenant: tenant(row)?,
        partition: row.try_get::<i16, _>("partition")?.unsigned_abs(),
        version: Version::from_raw(row.try_get("version")?),
        spec: Arc::new(spec),
        schedule,
        created_at: at(row, "created_at")?,
        created_by: row.try_get("created_by")?,
        updated_at: at(row, "updated_at")?,
        paused,
        deleted_at: time(row, "deleted_at")?,
    };
    Ok(JobRow { job, epoch: Epoch::from_raw(row.try_get("epoch")?), cursor: time(row, "next_tick")? })
}

pub(super) fn open_run(row: &PgRow) -> Decoded<(JobId, OpenRun)> {
    let open =
        OpenRun { id: run_id(row, "id")?, state: state(row)?, attempt: count(row, "attempt")?, fence: fence(row)? };
    Ok((job_id(row, "job")?, open))
}

pub(super) fn waiting(row: &PgRow) -> Decoded<WaitingRun> {
    Ok(WaitingRun {
        id: run_id(row, "run")?,
        job: job_id(row, "job")?,
        tenant: tenant(row)?,
        priority: u8::try_from(row.try_get::<i16, _>("priority")?).map_err(|error| wrong("priority", error))?,
        due_at: at(row, "due_at")?,
        late: row.try_get("late")?,
        force: row.try_get("force")?,
        attempts: count(row, "attempts")?,
    })
}

pub(super) fn claimed(row: &PgRow) -> Decoded<ClaimedRun> {
    Ok(ClaimedRun {
        id: run_id(row, "id")?,
        job: job_id(row, "job")?,
        tenant: tenant(row)?,
        cause: cause(row)?,
        scheduled_at: at(row, "scheduled_at")?,
        fence: fence(row)?,
        attempt: count(row, "attempt")?,
        lost: count(row, "lost")?,
        payload: row.try_get("payload")?,
    })
}

pub(super) fn run(row: &PgRow) -> Decoded<RunRecord> {
    Ok(RunRecord {
        id: run_id(row, "id")?,
        job: job_id(row, "job")?,
        job_name: row.try_get::<Option<String>, _>("job_name")?.unwrap_or_default(),
        tenant: tenant(row)?,
        cause: cause(row)?,
        scheduled_at: at(row, "scheduled_at")?,
        due_at: at(row, "due_at")?,
        state: state(row)?,
        attempt: count(row, "attempt")?,
        lost: count(row, "lost")?,
        fence: fence(row)?,
        node: row.try_get("node")?,
        worker: row.try_get("worker")?,
        started_at: time(row, "started_at")?,
        finished_at: time(row, "finished_at")?,
        error: row.try_get("error")?,
        output: row.try_get("output")?,
        skip_reason: row.try_get::<Option<i16>, _>("skip_reason")?.map(SkipReason::from_code),
        payload: row.try_get("payload")?,
        flow: row.try_get::<Option<Uuid>, _>("flow")?.map(RunId::from_uuid),
        range: None,
    })
}

/// A range of skips, in the form of a run as the API returns it.
pub(super) fn range(row: &PgRow) -> Decoded<RunRecord> {
    let range = SkipRange {
        from: at(row, "from_tick")?,
        to: at(row, "to_tick")?,
        count: u64::try_from(row.try_get::<i64, _>("count")?).map_err(|error| wrong("count", error))?,
        reason: SkipReason::from_code(row.try_get("reason")?),
    };
    Ok(RunRecord {
        id: run_id(row, "id")?,
        job: job_id(row, "job")?,
        job_name: row.try_get::<Option<String>, _>("job_name")?.unwrap_or_default(),
        tenant: tenant(row)?,
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
        finished_at: Some(at(row, "recorded_at")?),
        error: None,
        output: None,
        skip_reason: Some(range.reason),
        payload: None,
        flow: None,
        range: Some(range),
    })
}

pub(super) fn attempt(run: RunId, row: &PgRow) -> Decoded<AttemptRecord> {
    Ok(AttemptRecord {
        run,
        attempt: count(row, "attempt")?,
        fence: fence(row)?,
        node: row.try_get("node")?,
        worker: row.try_get("worker")?,
        started_at: time(row, "started_at")?,
        finished_at: time(row, "finished_at")?,
        outcome: Some(row.try_get("outcome")?),
        error: row.try_get("error")?,
        output: row.try_get("output")?,
    })
}

pub(super) fn run_id(row: &PgRow, column: &str) -> Decoded<RunId> {
    row.try_get(column).map(RunId::from_uuid)
}
pub(super) fn job_id(row: &PgRow, column: &str) -> Decoded<JobId> {
    row.try_get(column).map(JobId::from_uuid)
}
pub(super) fn at(row: &PgRow, column: &str) -> Decoded<DbTime> {
    row.try_get(column).map(DbTime::from_millis)
}
pub(super) fn time(row: &PgRow, column: &str) -> Decoded<Option<DbTime>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(DbTime::from_millis))
}
pub(super) fn tenant(row: &PgRow) -> Decoded<TenantId> {
    row.try_get("tenant").map(TenantId::from_raw)
}
fn fence(row: &PgRow) -> Decoded<Fence> {
    row.try_get("fence").map(Fence::from_raw)
}
fn count(row: &PgRow, column: &str) -> Decoded<u32> {
    u32::try_from(row.try_get::<i32, _>(column)?).map_err(|error| wrong(column, error))
}
pub(super) fn state(row: &PgRow) -> Decoded<State> {
    row.try_get("state").map(State::from_code)
}
fn cause(row: &PgRow) -> Decoded<CauseKind> {
    row.try_get("cause").map(CauseKind::from_code)
}

fn wrong(column: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_owned(), source: source.into() }
}

/// Text as it is stored: PostgreSQL text cannot contain NUL, so NUL becomes U+FFFD.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// The same for optional text.
pub(super) fn text_of(kept: Option<&String>) -> Option<Cow<'_, str>> {
    kept.map(|kept| text(kept))
}

/// The same as owned text.
pub(super) fn texts(text_of: Option<&String>) -> Option<String> {
    text_of.map(|kept| text(kept).into_owned())
}

/// An instant for an array that is accessed by index. An array with a NULL would be read from its start at each access.
pub(super) fn or_none(at: Option<DbTime>) -> i64 {
    at.map_or(-1, DbTime::millis)
}

/// A column as an array, or an empty array if every value equals `nothing`.
pub(super) fn unless_all<T: PartialEq>(values: impl Iterator<Item = T>, nothing: &T) -> Vec<T> {
    let values: Vec<T> = values.collect();
    if values.iter().all(|value| value == nothing) { Vec::new() } else { values }
}

pub(super) fn run_ids(runs: impl IntoIterator<Item = RunId>) -> Vec<Uuid> {
    runs.into_iter().map(RunId::uuid).collect()
}
pub(super) fn job_ids(jobs: impl IntoIterator<Item = JobId>) -> Vec<Uuid> {
    jobs.into_iter().map(JobId::uuid).collect()
}

/// A partition as stored in columns.
pub(super) fn partition(partition: u16) -> i16 {
    i16::try_from(partition).unwrap_or_default()
}
pub(super) fn partitions(set: &PartitionSet) -> Vec<i16> {
    set.iter().filter_map(|partition| i16::try_from(partition).ok()).collect()
}

/// The same as bits, for filters on rows that are read anyway: `get_bit` tests one bit, where `any` would scan the
/// list.
pub(super) fn partition_bits(set: &PartitionSet) -> Vec<u8> {
    set.to_bytes().to_vec()
}

/// A `limit` for SQL.
pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
