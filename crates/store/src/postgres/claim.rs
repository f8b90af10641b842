//! Reads waiting runs and claims them. The commit that dequeues a run also raises its fence and attempt.

use std::collections::HashSet;

use everytick_domain::{
    ids::{Incarnation, JobId, RunId, TenantId},
    partition::PartitionSet,
    recovery::in_turn,
    time::DbTime,
};
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, is_locked, lease, lost, rows};
use crate::tx::SharedTx as _;
use crate::{Busy, ClaimedRun, LATE_PER_TENANT_MAX, Lease, OldClaim, Result, Waiting, WaitingRun, unreadable::Parts};

pub(super) async fn peek_waiting(
    store: &PostgresStore,
    lease: &Lease,
    partitions: &PartitionSet,
    busy: &[Busy],
    late_after: Option<TenantId>,
    limit: usize,
) -> Result<Waiting> {
    const DOING: &str = "read waiting runs";
    let partitions = rows::partition_filter(partitions);
    let aside: HashSet<RunId> = store.unreadable.runs_aside().into_iter().collect();
    let jobs_aside = store.unreadable.jobs_aside();
    let mut read = store.read_many(DOING).await?;
    let now = lease::check(&mut read, lease).await?;
    let found = read
        .fetch_all(query!(
            "claim/peek_waiting",
            now.millis(),
            &partitions,
            rows::sorted_job_ids(busy.iter().map(|busy| busy.job)),
            rows::limit(limit + aside.len()),
            rows::limit(LATE_PER_TENANT_MAX + aside.len()),
            rows::sorted_job_ids(busy.iter().filter(|busy| busy.full).map(|busy| busy.job).chain(jobs_aside))
        ))
        .await?;
    let mut due: Vec<WaitingRun> = store.unreadable.each("waiting", &found, rows::waiting);
    due.retain(|run| !aside.contains(&run.id));
    let late = due.split_off(due.partition_point(|run| !run.late));
    due.extend(in_turn(late, |run| run.tenant, late_after));
    due.truncate(limit);
    let next_due: Option<i64> = read.optional_scalar(query!("claim/next_due", now.millis(), &partitions)).await?;
    Ok(Waiting { now, due, next_due: next_due.map(DbTime::from_millis) })
}

const CLAIMING: &str = "claim runs";

/// `delegated`: claims only runs assigned to this node, in any partition; otherwise only runs assigned to no node.
pub(super) async fn claim(
    store: &PostgresStore,
    lease: &Lease,
    partitions: &PartitionSet,
    runs: &[RunId],
    delegated: bool,
) -> Result<Vec<ClaimedRun>> {
    let mut parts = Parts::of(runs);
    while let Some(part) = parts.next() {
        let claimed = match claim_all(store, lease, partitions, part, delegated, false).await {
            Err(error) if is_locked(&error) => claim_all(store, lease, partitions, part, delegated, true).await,
            claimed => claimed,
        };
        parts.done(&store.unreadable, part, claimed)?;
    }
    Ok(parts.claimed())
}

/// Claims the runs; with `skip_locked`, only those that no other session has locked.
async fn claim_all(
    store: &PostgresStore,
    lease: &Lease,
    partitions: &PartitionSet,
    runs: &[RunId],
    delegated: bool,
    skip_locked: bool,
) -> Result<Vec<ClaimedRun>> {
    let Some(lowest) = runs.iter().min().copied() else { return Ok(Vec::new()) };
    let mut write = store.write_batch(CLAIMING).await?;
    let mut open_from = lease::lock_lease(&mut write, lease).await?;
    let lowers = lowest < open_from && lease::old_release_lives(&mut write).await?;
    if lowers {
        // Restarts with an exclusive lock: two transactions that share-lock the lease and then both change it would
        // deadlock.
        write.rollback().await;
        write = store.write_batch(CLAIMING).await?;
        open_from = lease::lock_lease_alone(&mut write, lease).await?;
    }
    let done =
        claim_in(store, &mut write, lease, partitions, runs, Claiming { open_from, lowers, delegated, skip_locked })
            .await;
    // Rolled back before a repeat on another connection, which skips locked rows.
    let mut claimed = write.finish(done).await?;
    ClaimedRun::sort_as(&mut claimed, runs);
    Ok(claimed)
}

/// How one transaction claims.
struct Claiming {
    open_from: RunId,
    /// A node of the previous release is alive and searches claims from `open_from` on, so `open_from` is lowered to
    /// the oldest claim.
    lowers: bool,
    delegated: bool,
    skip_locked: bool,
}

async fn claim_in(
    store: &PostgresStore,
    write: &mut DbTx,
    lease: &Lease,
    partitions: &PartitionSet,
    runs: &[RunId],
    how: Claiming,
) -> Result<Vec<ClaimedRun>> {
    let now = write.now;
    let partitions = rows::partition_filter(partitions);
    let mut claimed: Vec<ClaimedRun> = Vec::with_capacity(runs.len());
    for (table, mut ids) in store.by_table(runs.to_vec(), |id| *id) {
        if how.skip_locked {
            ids = free(write, &table, ids).await?;
        }
        let found = sqlx::query(day_sql!("claim/claim", &table))
            .bind(rows::run_ids(ids))
            .bind(now.millis())
            .bind(&lease.node)
            .bind(lease.incarnation.uuid())
            .bind(&partitions)
            .bind(how.delegated)
            .bind(store.row_lock_timeout.as_millis().to_string())
            .fetch_all(&mut *write.tx)
            .await
            .failed_or_refused(CLAIMING)?;
        for row in &found {
            claimed.push(rows::claimed(row).failed(CLAIMING)?);
        }
    }
    let old: Vec<OldClaim> = claimed.iter().filter(|run| run.id < how.open_from).map(OldClaim::of).collect();
    lost::list(write, lease, &old).await?;
    if let Some(lowest) = old.iter().map(|claim| claim.run).min().filter(|_| how.lowers) {
        lease::lower_open_from(write, lease, lowest).await?;
    }
    Ok(claimed)
}

pub(super) async fn delegate(
    store: &PostgresStore,
    lease: &Lease,
    partitions: &PartitionSet,
    runs: &[(RunId, Incarnation)],
) -> Result<Vec<RunId>> {
    const DOING: &str = "delegate runs to other nodes";
    let mut write = store.write_batch(DOING).await?;
    lease::lock_lease(&mut write, lease).await?;
    let (ids, nodes): (Vec<Uuid>, Vec<Uuid>) = runs.iter().map(|(run, node)| (run.uuid(), node.uuid())).unzip();
    let delegated: Vec<Uuid> = write
        .scalars(query!("claim/delegate", ids, nodes, rows::partition_filter(partitions), write.now.millis()))
        .await?;
    write.notify_owners().await?;
    write.commit().await?;
    Ok(delegated.into_iter().map(RunId::from_uuid).collect())
}

pub(super) async fn peek_delegated(
    store: &PostgresStore,
    lease: &Lease,
    full: &[JobId],
    limit: usize,
) -> Result<Vec<WaitingRun>> {
    const DOING: &str = "read delegated runs";
    let aside: HashSet<RunId> = store.unreadable.runs_aside().into_iter().collect();
    let mut read = store.read_many(DOING).await?;
    let now = lease::check(&mut read, lease).await?;
    let found = read
        .fetch_all(query!(
            "claim/peek_delegated",
            lease.incarnation.uuid(),
            now.millis(),
            rows::limit(limit + aside.len()),
            rows::sorted_job_ids(full.iter().copied())
        ))
        .await?;
    let mut found = store.unreadable.each("waiting", &found, rows::waiting);
    found.retain(|run| !aside.contains(&run.id));
    Ok(found)
}

/// Locks those of the runs that no other session has locked, and returns them.
pub(super) async fn free(write: &mut DbTx, table: &str, runs: Vec<RunId>) -> Result<Vec<RunId>> {
    let doing = write.doing;
    let statement = sqlx::query_scalar(day_sql!("claim/runs_free", table));
    let found: Vec<Uuid> = statement.bind(rows::run_ids(runs)).fetch_all(&mut *write.tx).await.failed(doing)?;
    Ok(found.into_iter().map(RunId::from_uuid).collect())
}
