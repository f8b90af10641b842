//! Decodes rows, and turns batches into the one JSON parameter that their statements take.

use std::{fmt, sync::Arc};

use everytick_domain::{
    backfill::{BackfillState, Origin, Stretch},
    ids::{BackfillId, Epoch, Fence, JobId, RunId, TenantId, Version},
    job::{Job, JobSpec, Paused},
    partition::PartitionSet,
    plan::SkipRange,
    run::{CauseKind, SkipReason, State},
    schedule::Schedule,
    time::DbTime,
};
use serde::{Serialize, Serializer};
use sqlx::{
    Encode, Row as _, Sqlite, Type,
    encode::IsNull,
    error::BoxDynError,
    sqlite::{SqliteArgumentsBuffer, SqliteRow, SqliteTypeInfo},
};
use uuid::Uuid;

use crate::{
    AttemptRecord, BackfillRecord, CalendarRecord, ClaimedRun, EndedRuns, NodeRun, OpenRun, RunRecord, WaitingRun,
    backfills::{order_of, rate_of, ticks_from_bytes},
    calendars::VersionRow,
    crons::CRONS,
    decode::decoders,
    flows::FlowRow,
    tx::{JobRow, backfill::StoredProgress, flow::Root},
};

decoders!(SqliteRow);

fn spec(row: &SqliteRow) -> Decoded<JobSpec> {
    serde_json::from_str(row.try_get("spec")?).map_err(|error| wrong("spec", error))
}
/// A file has one partition.
pub(super) const fn partition_of(_: &SqliteRow) -> Decoded<u16> {
    Ok(0)
}
fn count(row: &SqliteRow, column: &str) -> Decoded<u32> {
    row.try_get(column)
}
fn rate_count(row: &SqliteRow) -> Decoded<Option<i64>> {
    row.try_get("rate_count")
}
fn small(row: &SqliteRow, column: &str) -> Decoded<u8> {
    row.try_get(column)
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

/// The one parameter of a batch, as JSON. An error of the encoding becomes the error of the statement.
pub(super) fn json<T: Serialize>(rows: &T) -> Json {
    Json(serde_json::to_string(rows).map_err(Into::into))
}

pub(super) struct Json(Result<String, BoxDynError>);

impl Type<Sqlite> for Json {
    fn type_info() -> SqliteTypeInfo {
        <String as Type<Sqlite>>::type_info()
    }
}

impl Encode<'_, Sqlite> for Json {
    fn encode(self, buffer: &mut SqliteArgumentsBuffer) -> Result<IsNull, BoxDynError> {
        <String as Encode<Sqlite>>::encode(self.0?, buffer)
    }
    fn encode_by_ref(&self, buffer: &mut SqliteArgumentsBuffer) -> Result<IsNull, BoxDynError> {
        let text = self.0.as_ref().map_err(|error| error.to_string())?;
        <&str as Encode<Sqlite>>::encode(text, buffer)
    }
}

pub(super) type Id = Hex;
pub(super) const fn id(id: Uuid) -> Id {
    Hex(id)
}
pub(super) const fn text(text: &str) -> Text<'_> {
    Text(text)
}

/// A list of ids, as a parameter.
pub(super) type Ids = Json;
pub(super) fn ids(ids: impl IntoIterator<Item = Uuid>) -> Ids {
    json(&ids.into_iter().map(Hex).collect::<Vec<_>>())
}
pub(super) fn partitions(set: &PartitionSet) -> Json {
    json(&set.iter().collect::<Vec<_>>())
}
/// A list of codes, as a parameter.
pub(super) type Codes = Json;
pub(super) fn codes(codes: Vec<i16>) -> Json {
    json(&codes)
}
/// A list of texts without NUL, as a parameter.
pub(super) fn strings(texts: Vec<String>) -> Json {
    json(&texts)
}
pub(super) fn run_ids(runs: impl IntoIterator<Item = RunId>) -> Json {
    json(&runs.into_iter().map(|run| Hex(run.uuid())).collect::<Vec<_>>())
}
pub(super) const fn partition(partition: u16) -> u16 {
    partition
}
pub(super) fn job_ids(jobs: impl IntoIterator<Item = JobId>) -> Json {
    json(&jobs.into_iter().map(|job| Hex(job.uuid())).collect::<Vec<_>>())
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}
