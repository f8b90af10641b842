//! Rows of jobs: finds them, and writes their definitions.

use everytick_domain::{ids::TenantId, job::Job, time::DbTime};
use sqlx::SqliteConnection;

use super::{Failed, Write, calendars, range, rows, rows::Hex, sql};
use crate::{Actor, Created, JobRef, Result, StoreError, tx::JobRow, unreadable::Unreadable};

/// A live job by name or id.
pub(super) async fn find(
    connection: &mut SqliteConnection,
    unreadable: &Unreadable,
    tenant: TenantId,
    job: &JobRef,
    doing: &'static str,
) -> Result<JobRow> {
    let query = match job {
        JobRef::Id(id) => sqlx::query(sql!("jobs/job_by_id")).bind(tenant.raw()).bind(id.uuid()),
        JobRef::Name(name) => sqlx::query(sql!("jobs/job_by_name")).bind(tenant.raw()).bind(name),
    };
    let found = query.fetch_optional(&mut *connection).await.failed(doing)?;
    let mut row = rows::job(&found.ok_or(StoreError::NotFound("job"))?).failed(doing)?;
    calendars::give(connection, unreadable, std::slice::from_mut(&mut row), doing).await?;
    Ok(row)
}

pub(super) async fn insert(write: &mut Write, tenant: TenantId, actor: &Actor, created: &[&Created]) -> Result<()> {
    let (doing, count) = (write.doing, rows::limit(created.len()));
    let change_before = range::next_change(write, created.len()).await? - count;
    let (mut jobs, mut epochs, mut cursors) = (Vec::new(), Vec::new(), Vec::new());
    for (change, Created { job, cursor, .. }) in (change_before + 1..).zip(created) {
        let id = Hex(job.id.uuid());
        jobs.push((id, job.spec.name.as_str(), definition(job, doing)?));
        epochs.push((id, change, job.spec.target.queue()));
        cursors.push((id, cursor.map(DbTime::millis)));
    }
    sqlx::query(sql!("jobs/create_jobs"))
        .bind(rows::json(&jobs).failed(doing)?)
        .bind(tenant.raw())
        .bind(&actor.0)
        .bind(write.now.millis())
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(doing)?;
    for (statement, batch) in [
        (sql!("epochs/create_epochs"), rows::json(&epochs).failed(doing)?),
        (sql!("cursors/create_cursors"), rows::json(&cursors).failed(doing)?),
    ] {
        sqlx::query(statement).bind(batch).bind(tenant.raw()).execute(&mut *write.tx).await.failed_or_refused(doing)?;
    }
    calendars::used(write, tenant, created.iter().map(|created| (created.job.id, &*created.job.spec))).await?;
    sqlx::query(sql!("tenants/add_tenant")).bind(tenant.raw()).execute(&mut *write.tx).await.failed(doing)?;
    add_to_count(write, tenant, count).await
}

fn definition(job: &Job, doing: &'static str) -> Result<String> {
    serde_json::to_string(&*job.spec).map_err(|error| StoreError::Refused { doing, source: error.into() })
}

/// Adds to the number of live jobs of the tenant.
async fn add_to_count(write: &mut Write, tenant: TenantId, more: i64) -> Result<()> {
    let add = sqlx::query(sql!("tenants/add_jobs_count")).bind(tenant.raw()).bind(more);
    add.execute(&mut *write.tx).await.failed(write.doing)?;
    Ok(())
}

pub(super) async fn update(write: &mut Write, was: &JobRow, job: &Job) -> Result<()> {
    sqlx::query(sql!("jobs/edit_job"))
        .bind(job.id.uuid())
        .bind(&job.spec.name)
        .bind(job.version.raw())
        .bind(definition(job, write.doing)?)
        .bind(job.updated_at.millis())
        .bind(job.paused.as_ref().map(|paused| paused.at.millis()))
        .bind(job.paused.as_ref().and_then(|paused| paused.note.as_deref()))
        .bind(job.deleted_at.map(DbTime::millis))
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(write.doing)?;
    if job.deleted_at.is_some() {
        add_to_count(write, job.tenant, -1).await?;
    }
    calendars::used_now(write, was, job).await
}
