//! Claims of workers that have expired, and the jobs of claims.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use everytick_domain::{
    ids::{Epoch, JobId, TenantId},
    job::Job,
    time::{DbTime, Span},
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{
    super::{DbRow, DbTx, Failed, PostgresStore, db_tx::Query, definitions, rows},
    open_claims,
};
use crate::{
    ClaimedRun, OverdueClaim, Result,
    tx::{Tx as _, in_tx},
};

pub(super) async fn load_overdue(store: &PostgresStore, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
    loop {
        let found = in_tx!(store, "find expired worker claims", tx => overdue(store, tx, grace, limit))?;
        // Claims that cannot be decoded hide the others only until they are put aside.
        if let Some(overdue) = found {
            return Ok(overdue);
        }
    }
}

/// `None` if all claims that were found cannot be decoded. They were put aside, so another search finds others.
async fn overdue(store: &PostgresStore, tx: &mut DbTx, grace: Span, limit: usize) -> Result<Option<Vec<OverdueClaim>>> {
    let before = tx.read_clock().await?.minus(grace);
    let (runs, jobs) = (store.unreadable.runs_aside(), store.unreadable.jobs_aside());
    let (runs, jobs) = (rows::run_ids(runs), rows::job_ids(jobs));
    let overdue = query!("worker_claims/worker_claims_overdue", before.millis(), rows::limit(limit), runs, jobs);
    let found = tx.fetch_all(overdue).await?;
    let is_claimed = |row: &DbRow| row.try_get::<Option<Uuid>, _>("id").map(|id| id.is_some());
    let (mut claimed, mut ended) = (Vec::new(), Vec::new());
    for row in found {
        if is_claimed(&row).failed(tx.doing)? {
            claimed.push(row);
        } else {
            // A node of an earlier release, which does not know worker claims, has ended the run.
            ended.push(row.try_get::<Uuid, _>("run").failed(tx.doing)?);
        }
    }
    let overdue = open_claims::overdue_claims(store, tx, &claimed).await?;
    if !ended.is_empty() {
        tx.execute(query!("worker_claims/worker_claims_end", ended)).await?;
    }
    Ok(overdue)
}

/// The jobs of claims, from the definitions that the process knows.
pub(super) async fn jobs_of(
    store: &PostgresStore,
    tx: &mut DbTx,
    runs: &[(&DbRow, ClaimedRun)],
) -> Result<HashMap<JobId, Arc<Job>>> {
    let mut epochs: BTreeMap<JobId, Epoch> = BTreeMap::new();
    for (row, run) in runs {
        let epoch: Option<i64> = row.try_get("epoch").failed(tx.doing)?;
        epochs.extend(epoch.map(|epoch| (run.job, Epoch::from_raw(epoch))));
    }
    definitions::of(store, tx, &epochs.into_iter().collect::<Vec<_>>()).await
}

/// The database clock when the claim was read.
pub(super) fn now(tx: &DbTx, row: &DbRow) -> Result<DbTime> {
    rows::at(row, "now").failed(tx.doing)
}

pub(super) fn look<'q>(queues: &[(TenantId, String)], now: DbTime) -> Query<'q> {
    let (tenants, names): (Vec<_>, Vec<_>) = queues.iter().map(|(tenant, name)| (tenant.raw(), name.clone())).unzip();
    query!("queue/queues_look", tenants, names, now.millis())
}
