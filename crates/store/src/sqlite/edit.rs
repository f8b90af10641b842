//! Edits, pauses, resumes and deletes a job in one transaction (I11): reads the job's state, asks the domain, and
//! writes the result.

use everytick_domain::{
    edit::{self, Change, LockedJob},
    ids::{JobId, RunId, TenantId},
    overlap::OpenRuns,
    time::DbTime,
};
use sqlx::SqliteConnection;
use uuid::Uuid;

use super::{
    Failed, SqliteStore, Write, calendars, create, flows, horizon, queue, range, record, rows, rows::JobRow, settle,
    sql,
};
use crate::crons::CRONS;
use crate::unreadable::Unreadable;
use crate::{Actor, CancelledRuns, EditJob, Edited, JobRef, JobTicks, OpenRun, RecordRow, Result, StoreError, facts};

const DOING: &str = "edit the job";

pub(super) async fn edit_job(store: &SqliteStore, tenant: TenantId, actor: &Actor, mut ask: EditJob) -> Result<Edited> {
    let mut write = store.write(DOING).await?;
    let row = find(&mut write.tx, &write.unreadable, tenant, &ask.job, DOING).await?;
    let has = row.job.version;
    if let Some(wanted) = ask.if_match.filter(|wanted| *wanted != has) {
        return Err(StoreError::VersionMismatch { has, wanted });
    }
    if let Change::Replace(spec) = &ask.change
        && spec.name != row.job.spec.name
        && is_taken(&mut write, tenant, &spec.name).await?
    {
        return Err(StoreError::NameTaken(spec.name.clone()));
    }
    let parents = flows::edited(&mut write, &row, &mut ask.change).await?;
    let mut standing = standing(&mut write, &row).await?;
    if let Change::Replace(spec) = &ask.change {
        let known = calendars::of_tenant(&mut write.tx, &write.unreadable, tenant, spec.exclude(), DOING).await?;
        standing.calendars = known.into_values().collect();
    }
    let action = ask.change.word();
    let ends = matches!(ask.change, Change::Pause { .. } | Change::Delete);
    let change = edit::edit(&standing, ask.change, &CRONS).map_err(StoreError::Invalid)?;
    let mut edited = match change {
        None => Edited { job: row.job, cursor: row.cursor, effective_at: None, cancelled: Vec::new(), backlog: false },
        Some(edit) => {
            write_edit(&mut write, tenant, actor, action, &row, &edit).await?;
            if let Some(parents) = parents {
                flows::parents_now(&mut write, &edit.job, &parents).await?;
            }
            Edited {
                job: edit.job,
                cursor: edit.cursor,
                effective_at: Some(edit.effective_at),
                cancelled: Vec::new(),
                backlog: false,
            }
        }
    };
    if ask.cancel && ends {
        edited.cancelled = cancel_open(&mut write, tenant, actor, edited.job.id).await?.claimed;
    }
    write.commit().await?;
    Ok(edited)
}

/// A live job by name or id.
pub(super) async fn find(
    connection: &mut SqliteConnection,
    unreadable: &Unreadable,
    tenant: TenantId,
    job: &JobRef,
    doing: &'static str,
) -> Result<JobRow> {
    let query = match job {
        JobRef::Id(id) => sqlx::query(sql!("job_by_id")).bind(tenant.raw()).bind(id.uuid()),
        JobRef::Name(name) => sqlx::query(sql!("job_by_name")).bind(tenant.raw()).bind(name),
    };
    let found = query.fetch_optional(&mut *connection).await.failed(doing)?;
    let mut row = rows::job(&found.ok_or(StoreError::NotFound("job"))?).failed(doing)?;
    calendars::give(connection, unreadable, std::slice::from_mut(&mut row), doing).await?;
    Ok(row)
}

async fn is_taken(write: &mut Write, tenant: TenantId, name: &str) -> Result<bool> {
    let taken: Option<String> = sqlx::query_scalar(sql!("names_taken"))
        .bind(tenant.raw())
        .bind(rows::json(&[name]).failed(DOING)?)
        .fetch_optional(&mut *write.tx)
        .await
        .failed(DOING)?;
    Ok(taken.is_some())
}

async fn standing(write: &mut Write, row: &JobRow) -> Result<LockedJob> {
    let (id, now) = (row.job.id, write.now);
    let from = row.cursor.map_or(now, |cursor| cursor.min(now));
    let tick: Option<i64> = sqlx::query_scalar(sql!("last_tick"))
        .bind(id.uuid())
        .bind(RunId::floor(from).uuid())
        .fetch_optional(&mut *write.tx)
        .await
        .failed(DOING)?;
    let range: Option<i64> =
        sqlx::query_scalar(sql!("last_range")).bind(id.uuid()).fetch_optional(&mut *write.tx).await.failed(DOING)?;
    let last_recorded = tick.max(range).map(DbTime::from_millis).filter(|last| *last >= from);
    // Only if it matters: a queue may have a long backlog.
    let counted = row.job.spec.in_progress_max().map(|_| &row.job);
    let open = horizon::open_runs(&mut write.tx, counted, DOING)
        .await?
        .remove(&id)
        .map_or(OpenRuns::NONE, |open| OpenRun::count(&open));
    Ok(LockedJob { job: row.job.clone(), cursor: row.cursor, now, last_recorded, open, calendars: Vec::new() })
}

async fn write_edit(
    write: &mut Write,
    tenant: TenantId,
    actor: &Actor,
    action: &'static str,
    was: &JobRow,
    edit: &edit::Edit,
) -> Result<()> {
    let job = &edit.job;
    let due = JobTicks {
        job: job.id,
        tenant,
        partition: 0,
        epoch: was.epoch,
        priority: was.job.spec.priority,
        key: was.job.spec.key_of(None),
        rows: edit.rows.iter().map(|tick| RecordRow { tick: tick.clone(), born_claimed: false }).collect(),
    };
    let inserted = record::insert_edited(write, &due).await?;
    facts::check_inserted(edit, &inserted, DOING)?;
    range::insert_ranges(write, job.id, tenant, &edit.ranges).await?;
    let spec = serde_json::to_string(&*job.spec)
        .map_err(|error| StoreError::Refused { doing: DOING, source: error.into() })?;
    sqlx::query(sql!("edit_job"))
        .bind(job.id.uuid())
        .bind(&job.spec.name)
        .bind(job.version.raw())
        .bind(spec)
        .bind(job.updated_at.millis())
        .bind(job.paused.as_ref().map(|paused| paused.at.millis()))
        .bind(job.paused.as_ref().and_then(|paused| paused.note.as_deref()))
        .bind(job.deleted_at.map(DbTime::millis))
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    if job.deleted_at.is_some() {
        sqlx::query(sql!("add_jobs_count")).bind(tenant.raw()).bind(-1).execute(&mut *write.tx).await.failed(DOING)?;
    }
    calendars::used_now(write, was, job).await?;
    if job.spec.target.queue() != was.job.spec.target.queue() {
        queue::requeue(write, job).await?;
    }
    range::move_on(write, job.id, edit.cursor).await?;
    let detail = facts::edit_detail(action, &was.job, edit);
    create::note(write, tenant, actor, action, &[(job.id.to_string(), detail)]).await
}

/// Cancels all open runs of the job.
pub(super) async fn cancel_open(
    write: &mut Write,
    tenant: TenantId,
    actor: &Actor,
    job: JobId,
) -> Result<CancelledRuns> {
    let now = write.now.millis();
    let waited: Vec<Uuid> = sqlx::query_scalar(sql!("cancel_waiting"))
        .bind(job.uuid())
        .bind(now)
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    sqlx::query(sql!("dequeue_job")).bind(job.uuid()).execute(&mut *write.tx).await.failed(DOING)?;
    let claimed: Vec<Uuid> = sqlx::query_scalar(sql!("cancel_claimed"))
        .bind(job.uuid())
        .bind(now)
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    let listed: Vec<Uuid> = sqlx::query_scalar(sql!("cancel_listed"))
        .bind(job.uuid())
        .bind(now)
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    let claimed: Vec<Uuid> = claimed.into_iter().chain(listed).collect();
    settle::end_cancelled(write, claimed.iter().copied().map(RunId::from_uuid)).await?;
    let all: Vec<Uuid> = waited.iter().chain(&claimed).copied().collect();
    flows::leave_steps(write, all.iter().copied().map(RunId::from_uuid)).await?;
    let notes: Vec<_> = all.iter().map(|run| (run.to_string(), "{}".to_owned())).collect();
    if !notes.is_empty() {
        create::note(write, tenant, actor, "cancel", &notes).await?;
    }
    let ids = |found: Vec<Uuid>| found.into_iter().map(RunId::from_uuid).collect();
    Ok(CancelledRuns { waited: ids(waited), claimed: ids(claimed), backlog: false })
}
