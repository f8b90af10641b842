//! Reads waiting runs and claims them. The commit that dequeues a run also raises its fence and attempt.

use std::collections::HashSet;

use everytick_domain::{
    ids::{Incarnation, JobId, RunId, TenantId},
    partition::PartitionSet,
    recovery::in_turn,
    time::DbTime,
};

use super::{DbTx, Failed, SqliteStore, lease, lost, rows, rows::Json};
use crate::{Busy, ClaimedRun, LATE_PER_TENANT_MAX, Lease, OldClaim, Result, Waiting, WaitingRun, unreadable::Parts};

const DOING: &str = "read waiting runs";

pub(super) async fn peek_waiting(
    store: &SqliteStore,
    lease: &Lease,
    partitions: &PartitionSet,
    busy: &[Busy],
    late_after: Option<TenantId>,
    limit: usize,
) -> Result<Waiting> {
    let mut read = store.read(DOING).await?;
    let now = lease::check(&mut read, lease).await?;
    if !partitions.contains(0) {
        return Ok(Waiting { now, due: Vec::new(), next_due: None });
    }
    let aside: HashSet<RunId> = store.unreadable.runs_aside().into_iter().collect();
    let full = busy.iter().filter(|busy| busy.full).map(|busy| busy.job).chain(store.unreadable.jobs_aside());
    let full = rows::job_ids(full);
    let busy = rows::job_ids(busy.iter().map(|busy| busy.job));
    let found = read
        .fetch_all(query!("claim/peek_waiting", now.millis(), &busy, rows::limit(limit + aside.len()), &full))
        .await?;
    let mut due: Vec<WaitingRun> = store.unreadable.each("waiting", &found, rows::waiting);
    due.retain(|run| !aside.contains(&run.id));
    if due.len() < limit {
        let late = peek_late(store, &mut read, now, (&busy, &full), &aside, limit).await?;
        due.extend(in_turn(late, |run| run.tenant, late_after));
    }
    due.truncate(limit);
    let next_due: Option<i64> = read.scalar(query!("claim/next_due", now.millis())).await?;
    Ok(Waiting { now, due, next_due: next_due.map(DbTime::from_millis) })
}

/// An equal share of the late runs of each tenant, in order.
async fn peek_late(
    store: &SqliteStore,
    read: &mut DbTx,
    now: DbTime,
    (busy, full): (&Json, &Json),
    aside: &HashSet<RunId>,
    limit: usize,
) -> Result<Vec<WaitingRun>> {
    let tenants: Vec<i64> = read.scalars(query!("claim/late_tenants")).await?;
    let mut late = Vec::new();
    for tenant in &tenants {
        let found = read
            .fetch_all(query!(
                "claim/peek_late",
                now.millis(),
                busy,
                rows::limit(limit.div_ceil(tenants.len()).clamp(1, LATE_PER_TENANT_MAX) + aside.len()),
                tenant,
                full
            ))
            .await?;
        let found = store.unreadable.each("waiting", &found, rows::waiting);
        late.extend(found.into_iter().filter(|run| !aside.contains(&run.id)));
    }
    Ok(late)
}

/// Claims runs. A file has one node and one partition, so no runs are delegated, and every run is in the partition.
pub(super) async fn claim(
    store: &SqliteStore,
    lease: &Lease,
    _: &PartitionSet,
    runs: &[RunId],
    delegated: bool,
) -> Result<Vec<ClaimedRun>> {
    if delegated {
        return Ok(Vec::new());
    }
    let mut parts = Parts::of(runs);
    while let Some(part) = parts.next() {
        let claimed = claim_all(store, lease, part).await;
        parts.done(&store.unreadable, part, claimed)?;
    }
    Ok(parts.claimed())
}

async fn claim_all(store: &SqliteStore, lease: &Lease, runs: &[RunId]) -> Result<Vec<ClaimedRun>> {
    const DOING: &str = "claim runs";
    let mut write = store.write(DOING).await?;
    let open_from = lease::lock_lease(&mut write, lease).await?;
    let found = query!(
        "claim/claim",
        rows::run_ids(runs.iter().copied()),
        write.now.millis(),
        &lease.node,
        lease.incarnation.uuid()
    )
    .fetch_all(&mut *write.tx)
    .await
    .failed_or_refused(DOING)?;
    let mut claimed: Vec<ClaimedRun> =
        found.iter().map(rows::claimed).collect::<std::result::Result<_, _>>().failed(DOING)?;
    if claimed.is_empty() {
        return Ok(claimed);
    }
    write.execute(query!("waiting/dequeue_runs", rows::run_ids(claimed.iter().map(|run| run.id)))).await?;
    let old: Vec<OldClaim> = claimed.iter().filter(|run| run.id < open_from).map(OldClaim::of).collect();
    lost::list(&mut write, lease, &old).await?;
    write.commit().await?;
    ClaimedRun::sort_as(&mut claimed, runs);
    Ok(claimed)
}

pub(super) async fn delegate(
    _: &SqliteStore,
    _: &Lease,
    _: &PartitionSet,
    _: &[(RunId, Incarnation)],
) -> Result<Vec<RunId>> {
    Ok(Vec::new())
}

pub(super) async fn peek_delegated(_: &SqliteStore, _: &Lease, _: &[JobId], _: usize) -> Result<Vec<WaitingRun>> {
    Ok(Vec::new())
}
