//! Claims the runs that a claim from a queue has chosen.

use std::collections::{HashMap, HashSet};

use everytick_domain::{ids::RunId, job::Overlap};
use uuid::Uuid;

use super::{
    super::{DbTx, Failed, PostgresStore, claim, rows},
    claim::LockedJobs,
    claims::{begin_one, claims, end_one},
};
use crate::{ClaimQueue, ClaimedRun, Result, WorkerClaim};

/// Locks and returns those of the chosen runs that no other session has locked.
pub(super) async fn free_runs(store: &PostgresStore, write: &mut DbTx, mut chosen: Vec<RunId>) -> Result<Vec<RunId>> {
    let mut free = HashSet::new();
    for (table, ids) in store.by_table(chosen.clone(), |id| *id) {
        free.extend(claim::free(write, &table, ids).await?);
    }
    chosen.retain(|run| free.contains(run));
    Ok(chosen)
}

/// Claims the chosen runs one by one. A run that cannot be claimed is noted, and later claims leave it out.
pub(super) async fn take_one_by_one(
    store: &PostgresStore,
    write: &mut DbTx,
    ask: &ClaimQueue,
    chosen: &[RunId],
    locked: &LockedJobs,
) -> Result<Vec<WorkerClaim>> {
    let mut claims = Vec::new();
    for run in chosen {
        begin_one(write).await?;
        let taken = take(store, write, ask, &[*run], locked).await;
        end_one(write, *run, taken, &mut claims).await?;
    }
    Ok(claims)
}

/// Dequeues the chosen runs and claims them. Leaves out runs that another claim is taking.
pub(super) async fn take(
    store: &PostgresStore,
    write: &mut DbTx,
    ask: &ClaimQueue,
    chosen: &[RunId],
    locked: &LockedJobs,
) -> Result<Vec<WorkerClaim>> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let dequeue = query!("queue/queue_dequeue", rows::run_ids(chosen), ask.tenant.raw(), &ask.queue);
    let taken: Vec<(Uuid, Option<String>)> = write.fetch_all_as(dequeue).await?;
    let keys: HashMap<RunId, Option<String>> =
        taken.into_iter().map(|(run, key)| (RunId::from_uuid(run), key)).collect();
    let now = write.now;
    let mut claimed: Vec<ClaimedRun> = Vec::with_capacity(keys.len());
    for (table, ids) in store.by_table(keys.keys().copied().collect(), |id| *id) {
        let found = sqlx::query(day_sql!("queue/queue_claim", &table))
            .bind(rows::run_ids(ids))
            .bind(now.millis())
            .bind(&*rows::text(&ask.worker))
            .fetch_all(&mut *write.tx)
            .await
            .failed_or_refused(write.doing)?;
        for row in &found {
            claimed.push(rows::claimed(row).failed(write.doing)?);
        }
    }
    let claims = claims(write, ask, chosen, claimed, &locked.jobs);
    write
        .execute_or_refuse(query!(
            "worker_claims/worker_claims_insert",
            claims.iter().map(|claim| claim.run.id.uuid()).collect::<Vec<_>>(),
            claims.iter().map(|claim| claim.run.job.uuid()).collect::<Vec<_>>(),
            claims.iter().map(|claim| claim.run.fence.raw()).collect::<Vec<_>>(),
            claims.iter().map(|claim| claim.timeout_at.millis()).collect::<Vec<_>>(),
            claims.iter().map(|claim| keys.get(&claim.run.id).cloned().flatten()).collect::<Vec<_>>(),
            claims.iter().map(|claim| claim.job.spec.overlap == Overlap::CancelPrevious).collect::<Vec<_>>(),
            ask.tenant.raw(),
            &ask.queue,
            &*rows::text(&ask.worker),
            now.plus(ask.lease).millis()
        ))
        .await?;
    Ok(claims)
}
