//! Writes the definitions of jobs.

use everytick_domain::{ids::TenantId, job::Job, time::DbTime};

use super::{DbTx, Failed, calendars, rows, rows::Hex};
use crate::{Actor, Created, Result, StoreError, tx::JobRow};

pub(super) async fn insert(write: &mut DbTx, tenant: TenantId, actor: &Actor, created: &[&Created]) -> Result<()> {
    let (doing, count) = (write.doing, rows::limit(created.len()));
    let change_before = next_change(write, created.len()).await? - count;
    let (mut jobs, mut epochs, mut cursors) = (Vec::new(), Vec::new(), Vec::new());
    for (change, Created { job, cursor, .. }) in (change_before + 1..).zip(created) {
        let id = Hex(job.id.uuid());
        jobs.push((id, job.spec.name.as_str(), definition(job, doing)?));
        epochs.push((id, change, job.spec.target.queue()));
        cursors.push((id, cursor.map(DbTime::millis)));
    }
    write
        .execute_or_refuse(query!("jobs/create_jobs", rows::json(&jobs), tenant.raw(), &actor.0, write.now.millis()))
        .await?;
    for (statement, batch) in
        [(sql!("epochs/create_epochs"), rows::json(&epochs)), (sql!("cursors/create_cursors"), rows::json(&cursors))]
    {
        sqlx::query(statement).bind(batch).bind(tenant.raw()).execute(&mut *write.tx).await.failed_or_refused(doing)?;
    }
    calendars::used(write, tenant, created.iter().map(|created| (created.job.id, &*created.job.spec))).await?;
    write.execute(query!("tenants/add_tenant", tenant.raw())).await?;
    add_to_count(write, tenant, count).await
}

fn definition(job: &Job, doing: &'static str) -> Result<String> {
    serde_json::to_string(&*job.spec).map_err(|error| StoreError::Refused { doing, source: error.into() })
}

/// Reserves this many change numbers and returns the last of them.
pub(super) async fn next_change(tx: &mut DbTx, count: usize) -> Result<i64> {
    tx.scalar(query!("epochs/next_change", rows::limit(count))).await
}

/// Adds to the number of live jobs of the tenant.
async fn add_to_count(write: &mut DbTx, tenant: TenantId, more: i64) -> Result<()> {
    write.execute(query!("tenants/add_jobs_count", tenant.raw(), more)).await?;
    Ok(())
}

pub(super) async fn update(write: &mut DbTx, was: &JobRow, job: &Job) -> Result<()> {
    write
        .execute_or_refuse(query!(
            "jobs/edit_job",
            job.id.uuid(),
            &job.spec.name,
            job.version.raw(),
            definition(job, write.doing)?,
            job.updated_at.millis(),
            job.paused.as_ref().map(|paused| paused.at.millis()),
            job.paused.as_ref().and_then(|paused| paused.note.as_deref()),
            job.deleted_at.map(DbTime::millis)
        ))
        .await?;
    if job.deleted_at.is_some() {
        add_to_count(write, job.tenant, -1).await?;
    }
    calendars::used_now(write, was, job).await
}
