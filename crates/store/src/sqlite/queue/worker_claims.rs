//! Claims of workers that have expired, and the jobs of claims.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use everytick_domain::{
    ids::{JobId, TenantId},
    job::Job,
    time::{DbTime, Span},
};

use super::{
    super::{DbRow, DbTx, SqliteStore, db_tx::Query, rows},
    open_claims,
};
use crate::{
    ClaimedRun, OverdueClaim, Result,
    tx::{Tx as _, in_read},
};

pub(super) async fn load_overdue(store: &SqliteStore, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
    loop {
        let found = in_read!(store, "find expired worker claims", tx => overdue(store, tx, grace, limit))?;
        // Claims that cannot be decoded hide the others only until they are put aside.
        if let Some(overdue) = found {
            return Ok(overdue);
        }
    }
}

/// `None` if all claims that were found cannot be decoded. They were put aside, so another search finds others.
async fn overdue(store: &SqliteStore, tx: &mut DbTx, grace: Span, limit: usize) -> Result<Option<Vec<OverdueClaim>>> {
    let before = tx.read_clock().await?.minus(grace);
    let (runs, jobs) = (store.unreadable.runs_aside(), store.unreadable.jobs_aside());
    let (runs, jobs) = (rows::run_ids(runs), rows::job_ids(jobs));
    let overdue = query!("worker_claims/worker_claims_overdue", before.millis(), rows::limit(limit), runs, jobs);
    let found = tx.fetch_all(overdue).await?;
    open_claims::overdue_claims(store, tx, &found).await
}

pub(super) async fn jobs_of(
    store: &SqliteStore,
    tx: &mut DbTx,
    runs: &[(&DbRow, ClaimedRun)],
) -> Result<HashMap<JobId, Arc<Job>>> {
    let ids: BTreeSet<JobId> = runs.iter().map(|(_, run)| run.job).collect();
    let found = tx.fetch_all(query!("jobs/load_jobs", rows::job_ids(ids))).await?;
    let jobs = store.unreadable.each("jobs", &found, rows::job);
    Ok(jobs.into_iter().map(|row| (row.job.id, Arc::new(row.job))).collect())
}

/// The clock when the claim was read.
pub(super) fn now(tx: &DbTx, _: &DbRow) -> Result<DbTime> {
    Ok(tx.clock.as_ref().map_or(tx.now, |clock| clock.now()))
}

pub(super) fn look<'q>(queues: &[(TenantId, String)], now: DbTime) -> Query<'q> {
    let asked: Vec<_> = queues.iter().map(|(tenant, name)| (tenant.raw(), name)).collect();
    query!("queue/queues_look", rows::json(&asked), now.millis())
}
