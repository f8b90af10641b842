//! Reads rows of jobs, with the calendars that they use.

use everytick_domain::ids::{JobId, TenantId};

use super::{DbTx, Failed, calendars, rows};
use crate::{JobRef, Result, StoreError, tx::JobRow};

/// A live job by name or id.
pub(super) async fn find(tx: &mut DbTx, tenant: TenantId, job: &JobRef) -> Result<JobRow> {
    let query = match job {
        JobRef::Id(id) => query!("jobs/job_by_id", tenant.raw(), id.uuid()),
        JobRef::Name(name) => query!("jobs/job_by_name", tenant.raw(), name),
    };
    let found = tx.fetch_optional(query).await?;
    let mut row = rows::job(&found.ok_or(StoreError::NotFound("job"))?).failed(tx.doing)?;
    calendars::attach_all(tx, std::slice::from_mut(&mut row)).await?;
    Ok(row)
}

/// The rows of these jobs, deleted ones included, in this order, for transactions that act on each of them: all must be
/// decodable.
pub(super) async fn load(tx: &mut DbTx, ids: &[JobId]) -> Result<Vec<JobRow>> {
    let found = tx.fetch_all(query!("jobs/load_jobs", rows::job_ids(ids.iter().copied()))).await?;
    let mut jobs = tx.decode_all(&found, rows::job)?;
    calendars::attach_all(tx, &mut jobs).await?;
    Ok(jobs)
}

/// The same, but notes and leaves out a row that cannot be decoded.
pub(super) async fn readable(tx: &mut DbTx, ids: &[JobId]) -> Result<Vec<JobRow>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let found = tx.fetch_all(query!("jobs/load_jobs", rows::job_ids(ids.iter().copied()))).await?;
    let mut jobs = tx.unreadable.each("jobs", &found, rows::job);
    calendars::attach_all(tx, &mut jobs).await?;
    Ok(jobs)
}
