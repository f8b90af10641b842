//! Writes the definitions of jobs.

use everytick_domain::{
    ids::TenantId,
    job::{Job, JobSpec},
    time::DbTime,
};

use super::{
    DbTx, Failed, calendars,
    db_tx::{Query, refused},
    rows,
    rows::Hex,
    secrets,
};
use crate::{Actor, Created, Result, StoreError};

pub(super) async fn insert(write: &mut DbTx, tenant: TenantId, actor: &Actor, created: &[&Created]) -> Result<()> {
    let (doing, count) = (write.doing, rows::limit(created.len()));
    let change_before = next_change(write, created.len()).await? - count;
    let (mut jobs, mut epochs, mut cursors) = (Vec::new(), Vec::new(), Vec::new());
    for (change, Created { job, cursor, .. }) in (change_before + 1..).zip(created) {
        let id = Hex(job.id.uuid());
        jobs.push((id, job.spec.name.as_str(), definition(&job.spec)?));
        epochs.push((id, change, job.spec.target.queue()));
        cursors.push((id, cursor.map(DbTime::millis)));
    }
    write
        .execute_or_refuse(query!("jobs/create_jobs", rows::json(&jobs), tenant.raw(), &actor.name, write.now.millis()))
        .await?;
    for (statement, batch) in
        [(sql!("epochs/create_epochs"), rows::json(&epochs)), (sql!("cursors/create_cursors"), rows::json(&cursors))]
    {
        sqlx::query(statement).bind(batch).bind(tenant.raw()).execute(&mut *write.tx).await.failed_or_refused(doing)?;
    }
    calendars::used(write, tenant, created.iter().map(|created| (created.job.id, &*created.job.spec))).await?;
    secrets::used(write, tenant, created.iter().map(|created| (created.job.id, &*created.job.spec))).await?;
    self::count(write, tenant, count).await
}

pub(super) fn definition(spec: &JobSpec) -> Result<String> {
    serde_json::to_string(spec)
        .map_err(|error| StoreError::Refused { doing: "write the definition", source: error.into() })
}

/// Reserves this many change numbers and returns the last of them.
pub(super) async fn next_change(tx: &mut DbTx, count: usize) -> Result<i64> {
    tx.scalar(query!("epochs/next_change", rows::limit(count))).await
}

/// Adds to the number of live jobs of the tenant.
pub(super) async fn count(write: &mut DbTx, tenant: TenantId, more: i64) -> Result<()> {
    write.execute(query!("tenants/add_jobs_count", tenant.raw(), more)).await?;
    Ok(())
}

/// The number of the parameter with which the edited columns begin: after the id.
pub(super) const EDITED_FROM: u8 = 2;
pub(super) const PARAMETER: char = '?';

/// Lists read the definition itself, so there is nothing to bind.
pub(super) const fn edited<'q>(edit: Query<'q>, _: &JobSpec) -> Query<'q> {
    edit
}

pub(super) fn edit_error(error: sqlx::Error, _: &Job, doing: &'static str) -> StoreError {
    refused(error, doing)
}
