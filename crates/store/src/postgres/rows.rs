//! Decodes rows, and turns batches into the arrays that their statements take.

use std::{borrow::Cow, sync::Arc};

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
use sqlx::{Row as _, postgres::PgRow};
use uuid::Uuid;

use super::compact;
use crate::{
    AttemptRecord, BackfillRecord, CalendarRecord, ClaimedRun, EndedRuns, NodeRun, OpenRun, RunRecord, WaitingRun,
    backfills::{order_of, rate_of, ticks_from_bytes},
    calendars::VersionRow,
    crons::CRONS,
    decode::decoders,
    flows::FlowRow,
    tx::{JobRow, backfill::StoredProgress, flow::Root},
};

decoders!(PgRow);

fn spec(row: &PgRow) -> Decoded<JobSpec> {
    compact::read(row.try_get("name")?, row.try_get("spec")?).map_err(|error| wrong("spec", error))
}
pub(super) fn partition_of(row: &PgRow) -> Decoded<u16> {
    Ok(row.try_get::<i16, _>("partition")?.unsigned_abs())
}
fn count(row: &PgRow, column: &str) -> Decoded<u32> {
    u32::try_from(row.try_get::<i32, _>(column)?).map_err(|error| wrong(column, error))
}
fn rate_count(row: &PgRow) -> Decoded<Option<i64>> {
    Ok(row.try_get::<Option<i32>, _>("rate_count")?.map(i64::from))
}
fn small(row: &PgRow, column: &str) -> Decoded<u8> {
    u8::try_from(row.try_get::<i16, _>(column)?).map_err(|error| wrong(column, error))
}

/// Text as it is stored: PostgreSQL text cannot contain NUL, so NUL becomes U+FFFD.
pub(super) type Text<'a> = Cow<'a, str>;
pub(super) fn text(text: &str) -> Text<'_> {
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

pub(super) type Id = Uuid;
pub(super) const fn id(id: Uuid) -> Id {
    id
}

/// A list of ids, as a parameter.
pub(super) type Ids = Vec<Uuid>;
pub(super) fn ids(ids: impl IntoIterator<Item = Uuid>) -> Ids {
    ids.into_iter().collect()
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
