//! The columns of `jobs` that both databases have: their list, what an edit writes, and how a row becomes a job.

use std::sync::Arc;

use everytick_domain::{
    ids::{Epoch, Version},
    job::{Job, Paused},
    schedule::Schedule,
    time::DbTime,
};
use sqlx::Row as _;

use super::{
    DbRow, DbTx, calendars, define,
    rows::{self, Decoded},
    secrets,
};
use crate::{
    Result,
    crons::CRONS,
    moving::Kind::{self, Id, Long, Text, Word},
    tx::JobRow,
};

/// A move copies them, and every statement with `{{job}}` reads them.
pub(crate) const COLUMNS: &[(&str, Kind)] = &[
    ("id", Id),
    ("tenant", Word),
    ("name", Text),
    ("version", Long),
    ("created_at", Long),
    ("created_by", Text),
    ("updated_at", Long),
    ("paused_at", Long),
    ("pause_note", Text),
    ("deleted_at", Long),
    ("spec", Text),
];

/// [`update`] binds their values in this order.
const EDITED: [&str; 7] = ["name", "version", "spec", "updated_at", "paused_at", "pause_note", "deleted_at"];

/// What the markers in statements stand for.
pub(crate) fn fragments() -> Vec<(&'static str, String)> {
    let selected: Vec<String> = COLUMNS.iter().map(|(name, _)| format!("j.{name}")).collect();
    let edited =
        (define::EDITED_FROM..).zip(EDITED).map(|(number, name)| format!("{name} = {}{number}", define::PARAMETER));
    vec![("{{job}}", selected.join(", ")), ("{{job_edited}}", edited.collect::<Vec<_>>().join(", "))]
}

pub(super) async fn update(write: &mut DbTx, was: &JobRow, job: &Job) -> Result<()> {
    let spec = define::definition(&job.spec)?;
    let query = define::edited(query!("jobs/edit_job", job.id.uuid()), &job.spec)
        .bind(&job.spec.name)
        .bind(job.version.raw())
        .bind(spec)
        .bind(job.updated_at.millis())
        .bind(job.paused.as_ref().map(|paused| paused.at.millis()))
        .bind(job.paused.as_ref().and_then(|paused| rows::text_of(paused.note.as_ref())))
        .bind(job.deleted_at.map(DbTime::millis));
    query.execute(&mut *write.tx).await.map_err(|error| define::edit_error(error, job, write.doing))?;
    if job.deleted_at.is_some() {
        define::count(write, job.tenant, -1).await?;
    }
    calendars::used_now(write, was, job).await?;
    secrets::used_now(write, was, job).await
}

pub(super) fn job(row: &DbRow) -> Decoded<JobRow> {
    let spec = rows::spec(row)?;
    let schedule = match &spec.schedule {
        None => None,
        Some(schedule) => {
            let compiled = Schedule::compile_with(schedule, &CRONS);
            let first = |found: Vec<_>| found.first().map_or_else(String::new, ToString::to_string);
            Some(compiled.map_err(|found| rows::wrong("spec", format!("its schedule is wrong: {}", first(found))))?)
        }
    };
    let paused = match rows::time(row, "paused_at")? {
        None => None,
        Some(at) => Some(Paused { at, note: row.try_get("pause_note")? }),
    };
    let job = Job {
        id: rows::job_id(row, "id")?,
        tenant: rows::tenant(row)?,
        partition: rows::partition_of(row)?,
        version: Version::from_raw(row.try_get("version")?),
        spec: Arc::new(spec),
        schedule,
        created_at: rows::at(row, "created_at")?,
        created_by: row.try_get("created_by")?,
        updated_at: rows::at(row, "updated_at")?,
        paused,
        deleted_at: rows::time(row, "deleted_at")?,
    };
    Ok(JobRow { job, epoch: Epoch::from_raw(row.try_get("epoch")?), cursor: rows::time(row, "next_tick")? })
}
