//! The claims of workers with their jobs.

use everytick_domain::ids::{RunId, TenantId};
use sqlx::Row as _;

use super::{
    super::{DbRow, DbStore, DbTx, Failed, rows},
    worker_claims,
};
use crate::{ClaimedRun, LoadedClaim, OverdueClaim, Result};

pub(super) async fn load_claims(
    store: &DbStore,
    tx: &mut DbTx,
    tenant: TenantId,
    runs: &[RunId],
) -> Result<Vec<LoadedClaim>> {
    let found = tx.fetch_all(query!("worker_claims/worker_claims_of", tenant.raw(), rows::run_ids(runs))).await?;
    Ok(decode(store, tx, &found).await?.into_iter().map(|(_, claim)| claim).collect())
}

/// `None` if none of the claims can be decoded and at least one was put aside by this call.
pub(super) async fn overdue_claims(
    store: &DbStore,
    tx: &mut DbTx,
    found: &[DbRow],
) -> Result<Option<Vec<OverdueClaim>>> {
    let aside = store.unreadable.aside_count();
    let mut overdue = Vec::with_capacity(found.len());
    for (row, claim) in decode(store, tx, found).await? {
        let (worker, timed_out) = (row.try_get("worker"), row.try_get("timed_out"));
        overdue.push(OverdueClaim { claim, worker: worker.failed(tx.doing)?, timed_out: timed_out.failed(tx.doing)? });
    }
    Ok(Some(overdue).filter(|overdue| !overdue.is_empty() || store.unreadable.aside_count() == aside))
}

/// The claims of these rows, with their jobs. Leaves out a claim whose job cannot be decoded.
async fn decode<'r>(store: &DbStore, tx: &mut DbTx, found: &'r [DbRow]) -> Result<Vec<(&'r DbRow, LoadedClaim)>> {
    let claim = |row: &'r DbRow| store.unreadable.one("runs", row, rows::claimed).map(|run| (row, run));
    let runs: Vec<(&DbRow, ClaimedRun)> = found.iter().filter_map(claim).collect();
    let jobs = worker_claims::jobs_of(store, tx, &runs).await?;
    let mut claims = Vec::with_capacity(runs.len());
    for (row, run) in runs {
        let Some(job) = jobs.get(&run.job).cloned() else { continue };
        let (started_at, log) = (rows::time(row, "started_at").failed(tx.doing)?, row.try_get("log").failed(tx.doing)?);
        let (accepted, now) = (row.try_get("accepted").failed(tx.doing)?, worker_claims::now(tx, row)?);
        claims.push((row, LoadedClaim { run, job, started_at, log, accepted, now }));
    }
    Ok(claims)
}
