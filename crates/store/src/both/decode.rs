//! Decodes rows, and encodes the values that both databases store alike. The columns have the same names and meanings in
//! both; `super` has the functions for columns whose types differ.

use std::borrow::Cow;

use everytick_domain::{
    backfill::{BackfillState, Origin, Stretch},
    ids::{BackfillId, Fence, JobId, RunId, TenantId, TokenId, Version},
    plan::SkipRange,
    run::{CauseKind, SkipReason, State},
    time::DbTime,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{
    super::{DbRow, db_tx::Query},
    count, optional_int, small,
};
use crate::{
    Actor, AttemptRecord, AuditResult, BackfillRecord, CalendarRecord, ClaimedRun, EndedRuns, NodeRun, OpenRun,
    RunRecord, WaitingRun,
    backfills::{order_of, rate_of, ticks_from_bytes},
    calendars::VersionRow,
    flows::FlowRow,
    tx::{backfill::StoredProgress, flow::Root},
};

pub type Decoded<T> = std::result::Result<T, sqlx::Error>;

pub fn open_run(row: &DbRow) -> Decoded<(JobId, OpenRun)> {
    let (id, state) = (run_id(row, "id")?, state(row)?);
    let open = OpenRun { id, state, attempt: count(row, "attempt")?, fence: fence(row)? };
    Ok((job_id(row, "job")?, open))
}

pub fn waiting(row: &DbRow) -> Decoded<WaitingRun> {
    Ok(WaitingRun {
        id: run_id(row, "run")?,
        job: job_id(row, "job")?,
        tenant: tenant(row)?,
        priority: small(row, "priority")?,
        due_at: at(row, "due_at")?,
        late: row.try_get("late")?,
        force: row.try_get("force")?,
        attempts: count(row, "attempts")?,
    })
}

pub fn claimed(row: &DbRow) -> Decoded<ClaimedRun> {
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

pub fn run(row: &DbRow) -> Decoded<RunRecord> {
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
        skip_reason: skip_reason(row)?,
        payload: row.try_get("payload")?,
        flow: row.try_get::<Option<Uuid>, _>("flow")?.map(RunId::from_uuid),
        cancelled_by: None,
        range: None,
    })
}

/// A range of skips, in the form of a run as the API returns it.
pub fn range(row: &DbRow) -> Decoded<RunRecord> {
    let range = SkipRange {
        from: at(row, "from_tick")?,
        to: at(row, "to_tick")?,
        count: u64::try_from(row.try_get::<i64, _>("count")?).map_err(|error| wrong("count", error))?,
        reason: SkipReason::from_code(row.try_get("reason")?),
    };
    let (id, job, recorded_at) = (run_id(row, "id")?, job_id(row, "job")?, at(row, "recorded_at")?);
    let job_name = row.try_get::<Option<String>, _>("job_name")?.unwrap_or_default();
    Ok(RunRecord::of_range(id, (job, job_name), tenant(row)?, range, recorded_at))
}

pub fn attempt(run: RunId, row: &DbRow) -> Decoded<AttemptRecord> {
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

pub fn flow(row: &DbRow) -> Decoded<FlowRow> {
    let graph = serde_json::from_str(row.try_get("graph")?).map_err(|error| wrong("graph", error))?;
    Ok(FlowRow {
        id: run_id(row, "id")?,
        tenant: tenant(row)?,
        opened_at: at(row, "opened_at")?,
        scheduled_at: at(row, "scheduled_at")?,
        rerun_of: row.try_get::<Option<Uuid>, _>("rerun_of")?.map(RunId::from_uuid),
        cancelled_at: time(row, "cancelled_at")?,
        graph,
    })
}

pub fn node_run(row: &DbRow) -> Decoded<(RunId, NodeRun)> {
    let id = run_id(row, "id")?;
    let run = NodeRun {
        id,
        state: state(row)?,
        skip_reason: skip_reason(row)?,
        started_at: time(row, "started_at")?,
        finished_at: time(row, "finished_at")?,
        error: row.try_get("error")?,
    };
    Ok((id, run))
}

/// The root of a flow that has no row yet.
pub fn root(row: &DbRow) -> Decoded<Root> {
    Ok(Root {
        job: job_id(row, "job")?,
        tenant: tenant(row)?,
        scheduled_at: at(row, "scheduled_at")?,
        opens: state(row)?.is_open() || row.try_get("stepped")?,
    })
}

pub fn calendar(row: &DbRow) -> Decoded<CalendarRecord> {
    let spec = serde_json::from_str(row.try_get("spec")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(CalendarRecord {
        name: row.try_get("name")?,
        version: Version::from_raw(row.try_get("version")?),
        created_at: at(row, "created_at")?,
        created_by: row.try_get("created_by")?,
        updated_at: at(row, "updated_at")?,
        spec,
        jobs: row.try_get::<i64, _>("jobs")?.unsigned_abs(),
    })
}

pub fn calendar_version(row: &DbRow) -> Decoded<VersionRow> {
    Ok(VersionRow {
        tenant: tenant(row)?,
        name: row.try_get("name")?,
        version: Version::from_raw(row.try_get("version")?),
        valid_from: at(row, "valid_from")?,
        spec: row.try_get("spec")?,
    })
}

pub fn backfill(row: &DbRow) -> Decoded<BackfillRecord> {
    let ended = EndedRuns {
        succeeded: count(row, "succeeded")?,
        failed: count(row, "failed")?,
        cancelled: count(row, "cancelled")?,
    };
    Ok(BackfillRecord {
        id: BackfillId::from_uuid(row.try_get("id")?),
        tenant: tenant(row)?,
        job: job_id(row, "job")?,
        job_name: row.try_get::<Option<String>, _>("job_name")?.unwrap_or_default(),
        stretch: stretch(row)?,
        rate: rate_of(optional_int(row, "rate_count")?, row.try_get("rate_ms")?),
        payload: row.try_get("payload")?,
        state: row.try_get("state").map(BackfillState::from_code)?,
        total: count(row, "total")?,
        made: count(row, "position")?,
        ended,
        created_at: at(row, "created_at")?,
        created_by: row.try_get("created_by")?,
        finished_at: time(row, "finished_at")?,
        note: row.try_get("note")?,
    })
}

pub fn progress(id: BackfillId, row: &DbRow) -> Decoded<StoredProgress> {
    Ok(StoredProgress {
        origin: origin(id, row)?,
        tenant: tenant(row)?,
        job: job_id(row, "job")?,
        state: row.try_get("state").map(BackfillState::from_code)?,
        left: count(row, "total")?.saturating_sub(count(row, "position")?) as usize,
        rate: rate_of(optional_int(row, "rate_count")?, row.try_get("rate_ms")?),
        spent_until: row.try_get("spent_until")?,
        payload: row.try_get("payload")?,
        next: ticks_from_bytes(&row.try_get::<Vec<u8>, _>("next")?),
    })
}

/// The data from which the ids of a backfill's runs are derived.
pub fn origin(backfill: BackfillId, row: &DbRow) -> Decoded<Origin> {
    Ok(Origin { backfill, created_at: at(row, "created_at")?, stretch: stretch(row)? })
}

fn stretch(row: &DbRow) -> Decoded<Stretch> {
    let order = order_of(row.try_get("newest_first")?);
    Ok(Stretch { from: at(row, "from_at")?, to: at(row, "to_at")?, order })
}

/// A run of a backfill, and its state if it still exists.
pub fn listed_run(row: &DbRow) -> Decoded<(RunId, Option<State>)> {
    let state: Option<i16> = row.try_get("state")?;
    Ok((run_id(row, "run")?, state.map(State::from_code)))
}

/// A job and its name.
pub fn named_job(row: &DbRow) -> Decoded<(JobId, String)> {
    Ok((job_id(row, "job")?, row.try_get("name")?))
}

/// The state of a run: id, state.
pub fn run_state(row: &DbRow) -> Decoded<(RunId, State)> {
    Ok((run_id(row, "id")?, state(row)?))
}

pub fn run_id(row: &DbRow, column: &str) -> Decoded<RunId> {
    row.try_get(column).map(RunId::from_uuid)
}
pub fn job_id(row: &DbRow, column: &str) -> Decoded<JobId> {
    row.try_get(column).map(JobId::from_uuid)
}
pub fn at(row: &DbRow, column: &str) -> Decoded<DbTime> {
    row.try_get(column).map(DbTime::from_millis)
}
pub fn time(row: &DbRow, column: &str) -> Decoded<Option<DbTime>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(DbTime::from_millis))
}
pub fn tenant(row: &DbRow) -> Decoded<TenantId> {
    row.try_get("tenant").map(TenantId::from_raw)
}
fn fence(row: &DbRow) -> Decoded<Fence> {
    row.try_get("fence").map(Fence::from_raw)
}
pub fn state(row: &DbRow) -> Decoded<State> {
    row.try_get("state").map(State::from_code)
}
fn cause(row: &DbRow) -> Decoded<CauseKind> {
    row.try_get("cause").map(CauseKind::from_code)
}
fn skip_reason(row: &DbRow) -> Decoded<Option<SkipReason>> {
    Ok(row.try_get::<Option<i16>, _>("skip_reason")?.map(SkipReason::from_code))
}

pub fn wrong(column: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_owned(), source: source.into() }
}

/// Binds how an actor was authenticated, and the result, to the statement of an audit row.
pub fn bind_origin<'q>(insert: Query<'q>, actor: &Actor, result: AuditResult) -> Query<'q> {
    let ip = actor.ip.map(|ip| ip.to_canonical().to_string());
    insert
        .bind(actor.kind.word())
        .bind(actor.token.map(TokenId::uuid))
        .bind(ip)
        .bind(actor.request.clone())
        .bind(result.word())
}

/// A `limit` for SQL.
pub fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Text as it is stored: PostgreSQL text cannot contain NUL, and SQLite ends a JSON string there. NUL becomes U+FFFD.
pub type Text<'a> = Cow<'a, str>;
pub fn text(text: &str) -> Text<'_> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// The same for optional text.
pub fn text_of(text: Option<&String>) -> Option<Text<'_>> {
    text.map(|text| self::text(text))
}
