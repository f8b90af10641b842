//! The values of PostgreSQL's columns: how rows are decoded, and batches turned into the arrays that statements take.

#[path = "../both/decode.rs"]
mod decode;

use std::borrow::Borrow;

use everytick_domain::{
    ids::{JobId, RunId},
    job::JobSpec,
    partition::PartitionSet,
    time::DbTime,
};
use sqlx::{Row as _, postgres::PgRow};
use uuid::Uuid;

use super::compact;

pub(super) use super::job_row::job;
pub(super) use decode::*;

pub(super) fn spec(row: &PgRow) -> Decoded<JobSpec> {
    compact::read(row.try_get("name")?, row.try_get("spec")?).map_err(|error| wrong("spec", error))
}
pub(super) fn partition_of(row: &PgRow) -> Decoded<u16> {
    Ok(row.try_get::<i16, _>("partition")?.unsigned_abs())
}
pub(super) fn count(row: &PgRow, column: &str) -> Decoded<u32> {
    u32::try_from(row.try_get::<i32, _>(column)?).map_err(|error| wrong(column, error))
}
pub(super) fn optional_int(row: &PgRow, column: &str) -> Decoded<Option<i64>> {
    Ok(row.try_get::<Option<i32>, _>(column)?.map(i64::from))
}
pub(super) fn small(row: &PgRow, column: &str) -> Decoded<u8> {
    u8::try_from(row.try_get::<i16, _>(column)?).map_err(|error| wrong(column, error))
}

/// Optional text as it is stored, for an array.
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

pub(super) type Id = Uuid;
pub(super) const fn id(id: Uuid) -> Id {
    id
}

/// A list of ids, as a parameter.
pub(super) type Ids = Vec<Uuid>;
pub(super) fn ids(ids: impl IntoIterator<Item = Uuid>) -> Ids {
    ids.into_iter().collect()
}
/// A list of hashes, as a parameter.
pub(super) fn hashes<'a>(hashes: &[&'a [u8; 32]]) -> Vec<&'a [u8]> {
    hashes.iter().map(|hash| hash.as_slice()).collect()
}
/// A list of codes, as a parameter.
pub(super) type Codes = Vec<i16>;
pub(super) const fn codes(codes: Vec<i16>) -> Vec<i16> {
    codes
}
/// A list of texts without NUL, as a parameter.
pub(super) const fn strings(texts: Vec<String>) -> Vec<String> {
    texts
}
pub(super) fn run_ids(runs: impl IntoIterator<Item: Borrow<RunId>>) -> Vec<Uuid> {
    runs.into_iter().map(|run| run.borrow().uuid()).collect()
}
pub(super) fn job_ids(jobs: impl IntoIterator<Item: Borrow<JobId>>) -> Vec<Uuid> {
    jobs.into_iter().map(|job| job.borrow().uuid()).collect()
}
/// For statements that search the array by halves.
pub(super) fn sorted_job_ids(jobs: impl IntoIterator<Item: Borrow<JobId>>) -> Vec<Uuid> {
    let mut ids = job_ids(jobs);
    ids.sort_unstable();
    ids
}
pub(super) const fn names(names: &[String]) -> &[String] {
    names
}
/// A number for a column of type `integer`.
pub(super) fn int(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
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
pub(super) fn partition_filter(set: &PartitionSet) -> Vec<u8> {
    set.to_bytes().to_vec()
}
