//! Decodes rows, and turns batches into the one JSON parameter that their statements take.

use std::{fmt, sync::Arc};

use everytick_domain::{
    ids::{Epoch, Fence, JobId, RunId, TenantId, Version},
    job::{Job, JobSpec, Paused},
    plan::SkipRange,
    run::{CauseKind, SkipReason, State},
    schedule::Schedule,
    time::DbTime,
};
use serde::{Serialize, Serializer};
use sqlx::{Row as _, sqlite::SqliteRow};
use uuid::Uuid;

use crate::{AttemptRecord, ClaimedRun, OpenRun, RunRecord, WaitingRun, crons::CRONS, tx::JobRow};

type Decoded<T> = std::result::Result<T, sqlx::Error>;

pub(super) fn job(row: &SqliteRow) -> Decoded<JobRow> {
    let spec: JobSpec = serde_json::from_str(row.try_get("spec")?).map_err(|error| wrong("spec", error))?;
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
        partition: 0,
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

pub(super) fn open_run(row: &SqliteRow) -> Decoded<(JobId, OpenRun)> {
    let open =
        OpenRun { id: run_id(row, "id")?, state: state(row)?, attempt: row.try_get("attempt")?, fence: fence(row)? };
    Ok((job_id(row, "job")?, open))
}

pub(super) fn waiting(row: &SqliteRow) -> Decoded<WaitingRun> {
    Ok(WaitingRun {
        id: run_id(row, "run")?,
        job: job_id(row, "job")?,
        tenant: tenant(row)?,
        priority: row.try_get("priority")?,
        due_at: at(row, "due_at")?,
        late: row.try_get("late")?,
        force: row.try_get("force")?,
        attempts: row.try_get("attempts")?,
    })
}

pub(super) fn claimed(row: &SqliteRow) -> Decoded<ClaimedRun> {
    Ok(ClaimedRun {
        id: run_id(row, "id")?,
        job: job_id(row, "job")?,
        tenant: tenant(row)?,
        cause: cause(row)?,
        scheduled_at: at(row, "scheduled_at")?,
        fence: fence(row)?,
        attempt: row.try_get("attempt")?,
        lost: row.try_get("lost")?,
        payload: row.try_get("payload")?,
    })
}

pub(super) fn run(row: &SqliteRow) -> Decoded<RunRecord> {
    Ok(RunRecord {
        id: run_id(row, "id")?,
        job: job_id(row, "job")?,
        job_name: row.try_get::<Option<String>, _>("job_name")?.unwrap_or_default(),
        tenant: tenant(row)?,
        cause: cause(row)?,
        scheduled_at: at(row, "scheduled_at")?,
        due_at: at(row, "due_at")?,
        state: state(row)?,
        attempt: row.try_get("attempt")?,
        lost: row.try_get("lost")?,
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
pub(super) fn range(row: &SqliteRow) -> Decoded<RunRecord> {
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

pub(super) fn attempt(run: RunId, row: &SqliteRow) -> Decoded<AttemptRecord> {
    Ok(AttemptRecord {
        run,
        attempt: row.try_get("attempt")?,
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

pub(super) fn run_id(row: &SqliteRow, column: &str) -> Decoded<RunId> {
    row.try_get(column).map(RunId::from_uuid)
}
pub(super) fn job_id(row: &SqliteRow, column: &str) -> Decoded<JobId> {
    row.try_get(column).map(JobId::from_uuid)
}
pub(super) fn at(row: &SqliteRow, column: &str) -> Decoded<DbTime> {
    row.try_get(column).map(DbTime::from_millis)
}
pub(super) fn time(row: &SqliteRow, column: &str) -> Decoded<Option<DbTime>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(DbTime::from_millis))
}
pub(super) fn tenant(row: &SqliteRow) -> Decoded<TenantId> {
    row.try_get("tenant").map(TenantId::from_raw)
}
fn fence(row: &SqliteRow) -> Decoded<Fence> {
    row.try_get("fence").map(Fence::from_raw)
}
pub(super) fn state(row: &SqliteRow) -> Decoded<State> {
    row.try_get("state").map(State::from_code)
}
fn cause(row: &SqliteRow) -> Decoded<CauseKind> {
    row.try_get("cause").map(CauseKind::from_code)
}

fn wrong(column: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_owned(), source: source.into() }
}

/// An id in JSON: 32 hex digits, which `unhex` turns into a blob.
#[derive(Clone, Copy)]
pub(super) struct Hex(pub Uuid);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.as_simple().encode_lower(&mut Uuid::encode_buffer()))
    }
}

/// Text in JSON. SQLite ends a JSON string at NUL, and PostgreSQL text cannot contain NUL, so NUL becomes U+FFFD.
pub(super) struct Text<'a>(pub &'a str);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0.contains('\0') {
            to.serialize_str(&self.0.replace('\0', "\u{fffd}"))
        } else {
            to.serialize_str(self.0)
        }
    }
}

/// Encodes the one parameter of a batch.
pub(super) fn json<T: Serialize>(rows: &T) -> Decoded<String> {
    serde_json::to_string(rows).map_err(|error| sqlx::Error::Encode(error.into()))
}

pub(super) fn run_ids(runs: impl IntoIterator<Item = RunId>) -> Decoded<String> {
    json(&runs.into_iter().map(|run| Hex(run.uuid())).collect::<Vec<_>>())
}
pub(super) fn job_ids(jobs: impl IntoIterator<Item = JobId>) -> Decoded<String> {
    json(&jobs.into_iter().map(|job| Hex(job.uuid())).collect::<Vec<_>>())
}

/// A `limit` for SQL.
pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}
