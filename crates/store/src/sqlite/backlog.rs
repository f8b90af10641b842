//! Backlogs: SQLite processes a backlog of any length in the transaction that cancels it or moves its job.

use everytick_domain::{
    ids::{JobId, TenantId},
    time::DbTime,
};

use super::{DbTx, SqliteStore};
use crate::tx::{cancel, edit, in_tx};
use crate::{Actor, BacklogStep, BacklogWork, CancelledJob, EditJob, Edited, JobRef, Result};

pub(super) async fn edit_job(store: &SqliteStore, tenant: TenantId, actor: &Actor, edit: EditJob) -> Result<Edited> {
    in_tx!(store, "edit the job", tx => edit::edit_job(tx, tenant, actor, edit))
}

pub(super) async fn cancel_job(
    store: &SqliteStore,
    tenant: TenantId,
    actor: &Actor,
    job: &JobRef,
) -> Result<CancelledJob> {
    in_tx!(store, "cancel the runs of a job", tx => cancel::cancel_job(tx, tenant, actor, job))
}

pub(super) async fn advance(_: &SqliteStore) -> Result<BacklogStep> {
    Ok(BacklogStep::default())
}

pub(super) async fn work_of(_: &mut DbTx, _: JobId, _: usize) -> Result<Option<BacklogWork>> {
    Ok(None)
}

pub(super) async fn cancelled_by(_: &mut DbTx, _: TenantId, _: JobId, _: Option<DbTime>) -> Result<Option<String>> {
    Ok(None)
}
