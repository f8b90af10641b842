//! The values of SQLite's columns: how rows are decoded, and batches turned into the one JSON parameter that statements take.

#[path = "../both/decode.rs"]
mod decode;

use std::{borrow::Borrow, fmt};

use everytick_domain::{
    ids::{JobId, RunId},
    job::JobSpec,
    partition::PartitionSet,
};
use serde::{Serialize, Serializer};
use sqlx::{
    Encode, Row as _, Sqlite, Type,
    encode::IsNull,
    error::BoxDynError,
    sqlite::{SqliteArgumentsBuffer, SqliteRow, SqliteTypeInfo},
};
use uuid::Uuid;

pub(super) use super::job_row::job;
pub(super) use decode::*;

pub(super) fn spec(row: &SqliteRow) -> Decoded<JobSpec> {
    serde_json::from_str(row.try_get("spec")?).map_err(|error| wrong("spec", error))
}
/// A file has one partition.
pub(super) const fn partition_of(_: &SqliteRow) -> Decoded<u16> {
    Ok(0)
}
pub(super) fn count(row: &SqliteRow, column: &str) -> Decoded<u32> {
    row.try_get(column)
}
pub(super) fn optional_int(row: &SqliteRow, column: &str) -> Decoded<Option<i64>> {
    row.try_get(column)
}
pub(super) fn small(row: &SqliteRow, column: &str) -> Decoded<u8> {
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

/// A list of ids, as a parameter.
pub(super) type Ids = Json;
pub(super) fn ids(ids: impl IntoIterator<Item = Uuid>) -> Ids {
    json(&ids.into_iter().map(Hex).collect::<Vec<_>>())
}
pub(super) fn partitions(set: &PartitionSet) -> Json {
    json(&set.iter().collect::<Vec<_>>())
}
/// A list of hashes, as a parameter: hexadecimal texts, which `unhex` turns into blobs.
pub(super) fn hashes(hashes: &[&[u8; 32]]) -> Json {
    let hex = |hash: &&[u8; 32]| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    json(&hashes.iter().map(hex).collect::<Vec<_>>())
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
pub(super) const fn partition(partition: u16) -> u16 {
    partition
}
pub(super) fn run_ids(runs: impl IntoIterator<Item: Borrow<RunId>>) -> Json {
    json(&runs.into_iter().map(|run| Hex(run.borrow().uuid())).collect::<Vec<_>>())
}
pub(super) fn job_ids(jobs: impl IntoIterator<Item: Borrow<JobId>>) -> Json {
    json(&jobs.into_iter().map(|job| Hex(job.borrow().uuid())).collect::<Vec<_>>())
}
pub(super) fn names(names: &[String]) -> Json {
    json(&names)
}
/// A number for a column of type `integer`.
pub(super) fn int(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Whether the one partition of a file is in the set, for filters.
pub(super) fn partition_filter(set: &PartitionSet) -> bool {
    set.contains(0)
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}
