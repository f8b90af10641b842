//! Edits, pauses, resumes and deletes a job in one transaction (I11). Locks the job's epoch, which waits for ticks
//! being recorded. Then reads the job's state and the clock, asks the domain, and writes the result.

use everytick_domain::{
    edit::{self, Change, LockedJob},
    ids::{JobId, RunId, TenantId},
    overlap::OpenRuns,
    plan::TickRow,
    time::DbTime,
};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Failed, PostgresStore, Write, backlog, calendars, create,
    create::Listed,
    days::{Day, Days},
    flows, homes, horizon, range, record, rows,
    rows::JobRow,
    settle, short,
    short::Form,
    sql,
};
use crate::crons::CRONS;
use crate::unreadable::Unreadable;
use crate::{
    Actor, BacklogAction, CancelledRuns, EditJob, Edited, JobRef, JobTicks, OpenRun, RecordRow, Result, StoreError,
    facts,
};

const DOING: &str = "edit the job";

pub(super) async fn edit_job(store: &PostgresStore, tenant: TenantId, actor: &Actor, ask: EditJob) -> Result<Edited> {
    let mut write = store.write(DOING).await?;
    let cancel = ask.cancel;
    let done = edit(&mut write, &store.known_days(), tenant, actor, ask).await;
    let mut edited = write.finish(done).await?;
    if edited.backlog && cancel {
        edited.cancelled.extend(backlog::cancel_late_claims(store, tenant, actor, edited.job.id).await?);
    }
    Ok(edited)
}

async fn edit(write: &mut Write, days: &Days, tenant: TenantId, actor: &Actor, mut ask: EditJob) -> Result<Edited> {
    let home = match &ask.change {
        Change::Replace(spec) => spec.home_region.clone(),
        Change::Pause { .. } | Change::Quarantine { .. } | Change::Resume | Change::Delete => None,
    };
    let homes = homes::load(write, home.as_deref().as_slice()).await?;
    let known = match &ask.change {
        Change::Replace(spec) => calendars::hold(write, tenant, spec.exclude()).await?,
        Change::Pause { .. } | Change::Quarantine { .. } | Change::Resume | Change::Delete => Default::default(),
    };
    let row = hold(write, sql!("epoch_held"), tenant, &ask.job).await?;
    let has = row.job.version;
    if let Some(wanted) = ask.if_match.filter(|wanted| *wanted != has) {
        return Err(StoreError::VersionMismatch { has, wanted });
    }
    if let Change::Replace(spec) = &ask.change
        && spec.name != row.job.spec.name
        && is_taken(write, tenant, &spec.name).await?
    {
        return Err(StoreError::NameTaken(spec.name.clone()));
    }
    let parents = flows::edited(write, &row, &mut ask.change).await?;
    let mut standing = standing(write, &row).await?;
    standing.calendars = known.into_values().collect();
    let action = ask.change.word();
    let ends = matches!(ask.change, Change::Pause { .. } | Change::Delete);
    let change = edit::edit(&standing, ask.change, &CRONS).map_err(StoreError::Invalid)?;
    let mut edited = match change {
        None => Edited { job: row.job, cursor: row.cursor, effective_at: None, cancelled: Vec::new(), backlog: false },
        Some(mut edit) => {
            if edit.job.spec.home_region != row.job.spec.home_region {
                let place = homes.place(edit.job.id, edit.job.spec.home_region.as_deref());
                let place = place.map_err(|invalid| StoreError::Invalid(vec![invalid]))?;
                edit.job.partition = place.partition;
                if let Some(claim) = &place.claim {
                    homes::claim(write, claim).await?;
                }
            }
            let backlog = write_edit(write, days, tenant, actor, action, &row, &edit).await?;
            if let Some(parents) = parents {
                flows::parents_now(write, &edit.job, &parents).await?;
            }
            Edited {
                job: edit.job,
                cursor: edit.cursor,
                effective_at: Some(edit.effective_at),
                cancelled: Vec::new(),
                backlog,
            }
        }
    };
    if ask.cancel && ends {
        let cancelled = cancel_open(write, tenant, actor, edited.job.id).await?;
        edited.cancelled = cancelled.claimed;
        edited.backlog |= cancelled.backlog;
    }
    Ok(edited)
}

/// Locks a live job by name or id. Then reads it and the clock in later statements, which see what was committed
/// meanwhile.
pub(super) async fn hold(write: &mut Write, statement: &'static str, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
    loop {
        let id = find(&mut write.tx, &write.unreadable, tenant, job, write.doing).await?.job.id;
        sqlx::query(statement).bind(id.uuid()).execute(&mut *write.tx).await.failed(write.doing)?;
        let row = find(&mut write.tx, &write.unreadable, tenant, job, write.doing).await?;
        // The name may belong to another job by now.
        if row.job.id == id {
            write.read_clock().await?;
            return Ok(row);
        }
    }
}

/// A live job by name or id.
pub(super) async fn find(
    connection: &mut PgConnection,
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
    let mut row = rows::job(&found.ok_or(StoreError::NotFound("job"))?).failed_or_refused(doing)?;
    calendars::give(connection, unreadable, std::slice::from_mut(&mut row), doing).await?;
    Ok(row)
}

async fn is_taken(write: &mut Write, tenant: TenantId, name: &str) -> Result<bool> {
    let taken: Option<String> = sqlx::query_scalar(sql!("names_taken"))
        .bind(tenant.raw())
        .bind(vec![name.to_owned()])
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
    let open = horizon::open_runs(&mut write.tx, counted, now, DOING)
        .await?
        .remove(&id)
        .map_or(OpenRuns::NONE, |open| OpenRun::count(&open));
    Ok(LockedJob { job: row.job.clone(), cursor: row.cursor, now, last_recorded, open, calendars: Vec::new() })
}

/// Writes the edit. Returns whether more runs wait than it moves; those are moved in the background.
async fn write_edit(
    write: &mut Write,
    days: &Days,
    tenant: TenantId,
    actor: &Actor,
    action: &'static str,
    was: &JobRow,
    edit: &edit::Edit,
) -> Result<bool> {
    let job = &edit.job;
    // Ticks before the oldest day have no table: they are recorded as skips.
    let is_old = |tick: &TickRow| days.oldest().is_some_and(|oldest| Day::of(tick.at) < oldest);
    let (old, kept): (Vec<&TickRow>, Vec<&TickRow>) = edit.rows.iter().partition(|tick| is_old(tick));
    let due = JobTicks {
        job: job.id,
        tenant,
        partition: job.partition,
        epoch: was.epoch,
        priority: was.job.spec.priority,
        key: was.job.spec.key_of(None),
        rows: kept.into_iter().map(|tick| RecordRow { tick: tick.clone(), born_claimed: false }).collect(),
    };
    let mut recorded = record::insert_edited(write, &due, was.job.spec.target.queue()).await?;
    recorded.extend(old.iter().map(|tick| tick.id));
    facts::check_inserted(edit, &recorded, DOING)?;
    range::insert_ranges(write, job.id, tenant, &edit.ranges).await?;
    range::insert_ranges(write, job.id, tenant, &record::ranges_of(old.into_iter())).await?;
    let listed = Listed::of(&job.spec, Form::Whole);
    sqlx::query(sql!("edit_job"))
        .bind(job.id.uuid())
        .bind(&job.spec.name)
        .bind(job.version.raw())
        .bind(short::text(&job.spec, Form::Whole)?)
        .bind(job.updated_at.millis())
        .bind(job.paused.as_ref().map(|paused| paused.at.millis()))
        .bind(job.paused.as_ref().and_then(|paused| rows::texts(paused.note.as_ref())))
        .bind(job.deleted_at.map(DbTime::millis))
        .bind(listed.enabled)
        .bind(listed.target)
        .bind(listed.labels)
        .bind(listed.search)
        .execute(&mut *write.tx)
        .await
        .or_else(|error| match super::is_taken(&error, "jobs_name") {
            true => Err(StoreError::NameTaken(job.spec.name.clone())),
            false => Err(error).failed_or_refused(DOING),
        })?;
    if job.deleted_at.is_some() {
        sqlx::query(sql!("add_jobs_count"))
            .bind(tenant.raw())
            .bind(-1_i64)
            .execute(&mut *write.tx)
            .await
            .failed(DOING)?;
    }
    calendars::used_now(write, was, job).await?;
    let requeued = job.spec.target.queue() != was.job.spec.target.queue();
    let moved = job.partition != was.job.partition;
    let long = (requeued || moved) && backlog::is_long(write, job.id).await?;
    if long {
        backlog::mark(write, tenant, actor, job.id, BacklogAction::Move).await?;
    }
    if moved {
        homes::move_job(write, job, long).await?;
    }
    if requeued || job.spec.is_guarded() != was.job.spec.is_guarded() {
        homes::requeue(write, job, requeued && !long).await?;
    }
    range::move_on(write, job.id, edit.cursor).await?;
    range::notify(write).await?;
    let detail = facts::edit_detail(action, &was.job, edit);
    create::note(write, tenant, actor, action, &[(job.id.to_string(), detail)]).await?;
    Ok(long)
}

/// Cancels all open runs of the job. If too many wait for one transaction, it only marks the waiting ones.
pub(super) async fn cancel_open(
    write: &mut Write,
    tenant: TenantId,
    actor: &Actor,
    job: JobId,
) -> Result<CancelledRuns> {
    let now = write.now;
    let backlog = backlog::is_long(write, job).await?;
    let mut waiting: Vec<Uuid> = Vec::new();
    if backlog {
        backlog::mark(write, tenant, actor, job, BacklogAction::Cancel).await?;
    } else {
        // Dequeues first, in the lock order of claims, to avoid deadlocks. Dequeues again after the claimed runs are
        // locked: a settlement may have put one back meanwhile.
        let dequeue = || sqlx::query_scalar::<_, Uuid>(sql!("dequeue_job")).bind(job.uuid());
        waiting.extend(dequeue().fetch_all(&mut *write.tx).await.failed(DOING)?);
        homes::hold_claimed(write, job.uuid()).await?;
        waiting.extend(dequeue().fetch_all(&mut *write.tx).await.failed(DOING)?);
        sqlx::query(sql!("cancel_runs"))
            .bind(&waiting)
            .bind(now.millis())
            .execute(&mut *write.tx)
            .await
            .failed(DOING)?;
        flows::leave_steps(write, &waiting).await?;
    }
    let claimed = cancel_claimed(write, job).await?;
    let all: Vec<Uuid> = waiting.iter().chain(&claimed).copied().collect();
    note_cancelled(write, tenant, actor, &all).await?;
    let ids = |found: Vec<Uuid>| found.into_iter().map(RunId::from_uuid).collect();
    Ok(CancelledRuns { waited: ids(waiting), claimed: ids(claimed), backlog })
}

/// Cancels the claimed runs of a job. The caller has the job locked.
pub(super) async fn cancel_claimed(write: &mut Write, job: JobId) -> Result<Vec<Uuid>> {
    let now = write.now;
    let lowest = horizon::lowest_open_from(&mut write.tx, now, DOING).await?;
    let claimed: Vec<Uuid> = sqlx::query_scalar(sql!("cancel_claimed"))
        .bind(job.uuid())
        .bind(now.millis())
        .bind(lowest.uuid())
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    let listed: Vec<Uuid> = sqlx::query_scalar(sql!("claimed_listed_held"))
        .bind(job.uuid())
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    sqlx::query(sql!("cancel_runs")).bind(&listed).bind(now.millis()).execute(&mut *write.tx).await.failed(DOING)?;
    let claimed: Vec<Uuid> = claimed.into_iter().chain(listed).collect();
    settle::end_cancelled(write, claimed.clone()).await?;
    sqlx::query(sql!("worker_claims_end_job")).bind(job.uuid()).execute(&mut *write.tx).await.failed(DOING)?;
    flows::leave_steps(write, &claimed).await?;
    Ok(claimed)
}

pub(super) async fn note_cancelled(write: &mut Write, tenant: TenantId, actor: &Actor, runs: &[Uuid]) -> Result<()> {
    let notes: Vec<_> = runs.iter().map(|run| (run.to_string(), "{}".to_owned())).collect();
    if notes.is_empty() {
        return Ok(());
    }
    create::note(write, tenant, actor, "cancel", &notes).await
}
