//! Claims of workers: heartbeat, log, expiry.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    job::Job,
    output::{LogPart, append},
    run::State,
    time::Span,
};
use sqlx::{Row as _, sqlite::SqliteRow};

use super::super::{DbTx, Failed, SqliteStore, read, rows};
use crate::{ClaimBeat, ClaimedRun, LoadedClaim, OverdueClaim, Result, Success, queues::settle_successes};

pub(super) async fn beat_claim(
    store: &SqliteStore,
    tenant: TenantId,
    run: RunId,
    fence: Fence,
    lease: Span,
) -> Result<ClaimBeat> {
    const DOING: &str = "extend a worker's claim";
    let mut write = store.write(DOING).await?;
    let until = write.now.plus(lease);
    let extended = write
        .execute(query!("worker_claims/worker_beat", tenant.raw(), run.uuid(), fence.raw(), until.millis()))
        .await?;
    if extended > 0 {
        write.commit().await?;
        return Ok(ClaimBeat::Held { until });
    }
    let record = read::run_record(&mut write, tenant, run).await?;
    Ok(if record.state == State::Cancelled { ClaimBeat::Cancelled } else { ClaimBeat::Stale })
}

pub(super) async fn log_claim(
    store: &SqliteStore,
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
        return Ok(false);
    };
    let text = part.text.replace('\0', "\u{fffd}");
    let log = append(log.as_deref(), LogPart { text: &text, ..part });
    write.execute_or_refuse(query!("worker_claims/worker_log", run.uuid(), log)).await?;
    write.commit().await?;
    Ok(true)
}

pub(super) async fn load_overdue_claims(store: &SqliteStore, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
    const DOING: &str = "find expired worker claims";
    loop {
        let mut read = store.read(DOING).await?;
        let found = read
            .fetch_all(query!(
                "worker_claims/worker_claims_overdue",
                store.clock.now().minus(grace).millis(),
                rows::limit(limit),
                rows::run_ids(store.unreadable.runs_aside()),
                rows::job_ids(store.unreadable.jobs_aside())
            ))
            .await?;
        let aside = store.unreadable.aside_count();
        let mut overdue = Vec::with_capacity(found.len());
        for (row, claim) in loaded(store, &mut read, &found).await? {
            let (worker, timed_out) = (row.try_get("worker").failed(DOING)?, row.try_get("timed_out").failed(DOING)?);
            overdue.push(OverdueClaim { claim, worker, timed_out });
        }
        // Undecodable claims hide the others only until they are aside.
        if !overdue.is_empty() || store.unreadable.aside_count() == aside {
            return Ok(overdue);
        }
    }
}

pub(super) async fn load_claims(store: &SqliteStore, tenant: TenantId, runs: &[RunId]) -> Result<Vec<LoadedClaim>> {
    const DOING: &str = "read workers' claims";
    let mut read = store.read(DOING).await?;
    let found = read
        .fetch_all(query!("worker_claims/worker_claims_of", tenant.raw(), rows::run_ids(runs.iter().copied())))
        .await?;
    Ok(loaded(store, &mut read, &found).await?.into_iter().map(|(_, claim)| claim).collect())
}

pub(super) async fn succeed(store: &SqliteStore, tenant: TenantId, done: &[Success]) -> Result<Vec<Option<JobId>>> {
    let settled = settle_successes(store, tenant, &done.iter().collect::<Vec<_>>()).await?;
    Ok(done.iter().map(|done| settled.get(&done.run).copied()).collect())
}

/// The claims of these rows, with their jobs. Leaves out a claim whose job cannot be decoded.
async fn loaded<'r>(
    store: &SqliteStore,
    tx: &mut DbTx,
    found: &'r [SqliteRow],
) -> Result<Vec<(&'r SqliteRow, LoadedClaim)>> {
    let claim = |row: &'r SqliteRow| store.unreadable.one("runs", row, rows::claimed).map(|run| (row, run));
    let runs: Vec<(&SqliteRow, ClaimedRun)> = found.iter().filter_map(claim).collect();
    let ids: BTreeSet<JobId> = runs.iter().map(|(_, run)| run.job).collect();
    let asked = rows::job_ids(ids);
    let jobs = tx.fetch_all(query!("jobs/load_jobs", asked)).await?;
    let jobs: HashMap<JobId, Arc<Job>> = store
        .unreadable
        .each("jobs", &jobs, rows::job)
        .into_iter()
        .map(|row| (row.job.id, Arc::new(row.job)))
        .collect();
    let mut claims = Vec::with_capacity(runs.len());
    for (row, run) in runs {
        let Some(job) = jobs.get(&run.job).cloned() else { continue };
        let (started_at, log) = (rows::time(row, "started_at").failed(tx.doing)?, row.try_get("log").failed(tx.doing)?);
        let accepted = row.try_get("accepted").failed(tx.doing)?;
        claims.push((row, LoadedClaim { run, job, started_at, log, accepted, now: store.clock.now() }));
    }
    Ok(claims)
}
