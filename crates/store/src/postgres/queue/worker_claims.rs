//! Claims of workers: heartbeat, log, expiry.

use std::collections::BTreeMap;

use everytick_domain::{
    ids::{Epoch, Fence, JobId, RunId, TenantId},
    output::{LogPart, append},
    run::State,
    time::Span,
};
use sqlx::{Row as _, postgres::PgRow};
use uuid::Uuid;

use super::super::{DbTx, Failed, PostgresStore, definitions, read, rows};
use crate::tx::Tx as _;
use crate::{ClaimBeat, ClaimedRun, LoadedClaim, OverdueClaim, Result};

pub(super) async fn beat_claim(
    store: &PostgresStore,
    tenant: TenantId,
    run: RunId,
    fence: Fence,
    lease: Span,
) -> Result<ClaimBeat> {
    const DOING: &str = "extend a worker's claim";
    let mut write = store.write(DOING).await?;
    let until = write.read_clock().await?.plus(lease);
    let extended = write
        .execute(query!("worker_claims/worker_beat", tenant.raw(), run.uuid(), fence.raw(), until.millis()))
        .await?;
    if extended > 0 {
        write.commit().await?;
        return Ok(ClaimBeat::Held { until });
    }
    let record = read::run_record(&mut write, tenant, run).await?;
    write.rollback().await;
    Ok(if record.state == State::Cancelled { ClaimBeat::Cancelled } else { ClaimBeat::Stale })
}

pub(super) async fn log_claim(
    store: &PostgresStore,
    tenant: TenantId,
    run: RunId,
    fence: Fence,
    part: LogPart<'_>,
) -> Result<bool> {
    const DOING: &str = "append to a worker's log";
    let mut write = store.write(DOING).await?;
    let log: Option<Option<String>> =
        write.optional_scalar(query!("worker_claims/worker_log_lock", tenant.raw(), run.uuid(), fence.raw())).await?;
    let Some(log) = log else {
        read::run_record(&mut write, tenant, run).await?;
        write.rollback().await;
        return Ok(false);
    };
    let text = rows::text(part.text);
    let log = append(log.as_deref(), LogPart { text: &text, ..part });
    write.execute_or_refuse(query!("worker_claims/worker_log", run.uuid(), log)).await?;
    write.commit().await?;
    Ok(true)
}

pub(super) async fn claim_log(store: &PostgresStore, tenant: TenantId, run: RunId) -> Result<Option<String>> {
    const DOING: &str = "read a worker's log";
    let mut read = store.read(DOING).await?;
    let log: Option<Option<String>> =
        read.optional_scalar(query!("worker_claims/worker_log_get", tenant.raw(), run.uuid())).await?;
    Ok(log.flatten())
}

pub(super) async fn load_overdue_claims(store: &PostgresStore, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
    const DOING: &str = "find expired worker claims";
    loop {
        let mut write = store.write(DOING).await?;
        let before = write.read_clock().await?.minus(grace);
        let found = write
            .fetch_all(query!(
                "worker_claims/worker_claims_overdue",
                before.millis(),
                rows::limit(limit),
                rows::run_ids(store.unreadable.runs_aside()),
                rows::job_ids(store.unreadable.jobs_aside())
            ))
            .await?;
        let is_claimed = |row: &PgRow| row.try_get::<Option<Uuid>, _>("id").map(|id| id.is_some());
        let (mut claimed, mut ended) = (Vec::new(), Vec::new());
        for row in found {
            if is_claimed(&row).failed(DOING)? {
                claimed.push(row);
            } else {
                // A node of an earlier release, which does not know worker claims, has ended the run.
                ended.push(row.try_get::<Uuid, _>("run").failed(DOING)?);
            }
        }
        let aside = store.unreadable.aside_count();
        let mut overdue = Vec::with_capacity(claimed.len());
        for (row, claim) in loaded(store, &mut write, &claimed).await? {
            let (worker, timed_out) = (row.try_get("worker").failed(DOING)?, row.try_get("timed_out").failed(DOING)?);
            overdue.push(OverdueClaim { claim, worker, timed_out });
        }
        if !ended.is_empty() {
            write.execute(query!("worker_claims/worker_claims_end", ended)).await?;
        }
        write.commit().await?;
        // Undecodable claims hide the others only until they are aside.
        if !overdue.is_empty() || store.unreadable.aside_count() == aside {
            return Ok(overdue);
        }
    }
}

pub(super) async fn load_claims(store: &PostgresStore, tenant: TenantId, runs: &[RunId]) -> Result<Vec<LoadedClaim>> {
    const DOING: &str = "read workers' claims";
    let mut read = store.read(DOING).await?;
    let found = read
        .fetch_all(query!("worker_claims/worker_claims_of", tenant.raw(), rows::run_ids(runs.iter().copied())))
        .await?;
    Ok(loaded(store, &mut read, &found).await?.into_iter().map(|(_, claim)| claim).collect())
}

/// The claims of these rows, with their jobs. Leaves out a claim whose job cannot be decoded.
async fn loaded<'r>(store: &PostgresStore, tx: &mut DbTx, found: &'r [PgRow]) -> Result<Vec<(&'r PgRow, LoadedClaim)>> {
    let claim = |row: &'r PgRow| store.unreadable.one("runs", row, rows::claimed).map(|run| (row, run));
    let runs: Vec<(&PgRow, ClaimedRun)> = found.iter().filter_map(claim).collect();
    let mut epochs: BTreeMap<JobId, Epoch> = BTreeMap::new();
    for (row, run) in &runs {
        let epoch: Option<i64> = row.try_get("epoch").failed(tx.doing)?;
        epochs.extend(epoch.map(|epoch| (run.job, Epoch::from_raw(epoch))));
    }
    let asked: Vec<(JobId, Epoch)> = epochs.into_iter().collect();
    let jobs = definitions::of(store, tx, &asked).await?;
    let mut claims = Vec::with_capacity(runs.len());
    for (row, run) in runs {
        let Some(job) = jobs.get(&run.job).cloned() else { continue };
        let (started_at, log) = (rows::time(row, "started_at").failed(tx.doing)?, row.try_get("log").failed(tx.doing)?);
        let accepted = row.try_get("accepted").failed(tx.doing)?;
        let now = rows::at(row, "now").failed(tx.doing)?;
        claims.push((row, LoadedClaim { run, job, started_at, log, accepted, now }));
    }
    Ok(claims)
}
