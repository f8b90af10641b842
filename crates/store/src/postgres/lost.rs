//! The claims of an incarnation: of this node, and of dead nodes. A claim on a young run has an id at or above the
//! `open_from` of its lease. A claim on an older run has a row in `open_claims`. That row alone proves nothing, so the
//! run is always read too.

use std::collections::HashSet;

use everytick_domain::ids::{Fence, Incarnation, JobId, RunId};
use sqlx::{Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, node, rows};
use crate::{ClaimedRun, Lease, ListedClaims, OldClaim, Result, StoreError};

/// Incarnations without a lease whose claims one call reads.
const ORPHANS_MAX: usize = 100;

pub(super) async fn listed_claims(
    store: &PostgresStore,
    lease: &Lease,
    after: Option<RunId>,
    limit: usize,
) -> Result<ListedClaims> {
    const DOING: &str = "read this node's listed claims";
    let mut read = store.read(DOING).await?;
    let open_from: Option<Uuid> =
        read.optional_scalar(query!("open_claims/open_from", lease.incarnation.uuid())).await?;
    let page = listed(&mut read, lease.incarnation, after, limit).await?;
    drop(read);
    if !page.stale.is_empty() {
        let mut write = store.write(DOING).await?;
        unlist_stale(&mut write, &page.stale).await?;
        write.commit().await?;
    }
    Ok(ListedClaims { open_from: open_from.map(RunId::from_uuid), claims: page.claims, next: page.next })
}

pub(super) async fn list_old_claims(store: &PostgresStore, lease: &Lease, to: RunId) -> Result<RunId> {
    const DOING: &str = "list this node's old claims";
    let mut write = store.write(DOING).await?;
    let listed: Option<Uuid> =
        write.optional_scalar(query!("open_claims/lease_compared_to", lease.incarnation.uuid())).await?;
    let from = listed.map(RunId::from_uuid).ok_or(StoreError::LeaseLost)?;
    if from >= to {
        return Ok(from);
    }
    let to = OldClaim::page_end(from, to);
    note(&mut write, lease.incarnation, from, to).await?;
    // Locked only now, so that recording and claiming do not wait while the runs are read.
    node::lock_lease_alone(&mut write, lease).await?;
    write.execute(query!("open_claims/lease_compared", lease.incarnation.uuid(), to.uuid())).await?;
    write.commit().await?;
    Ok(to)
}

/// Lists the claims of an incarnation on runs from `from` up to but not including `to`, as the database has them.
async fn note(write: &mut DbTx, incarnation: Incarnation, from: RunId, to: RunId) -> Result<()> {
    write.execute(query!("open_claims/claims_note", incarnation.uuid(), from.uuid(), to.uuid())).await?;
    Ok(())
}

pub(super) async fn claims_between(
    store: &PostgresStore,
    lease: &Lease,
    from: RunId,
    to: RunId,
) -> Result<Vec<ClaimedRun>> {
    const DOING: &str = "read this node's claims";
    let mut read = store.read(DOING).await?;
    let found =
        read.fetch_all(query!("open_claims/claims_between", lease.incarnation.uuid(), from.uuid(), to.uuid())).await?;
    Ok(store.unreadable.each("runs", &found, rows::claimed))
}

pub(super) async fn still_claimed(store: &PostgresStore, lease: &Lease, runs: &[RunId]) -> Result<Vec<(RunId, Fence)>> {
    const DOING: &str = "read this node's claims";
    let mut read = store.read(DOING).await?;
    let found = read
        .fetch_all(query!("open_claims/still_claimed", lease.incarnation.uuid(), rows::run_ids(runs.iter().copied())))
        .await?;
    let claim = |row: &PgRow| Ok((rows::run_id(row, "id")?, Fence::from_raw(row.try_get("fence")?)));
    found.iter().map(claim).collect::<std::result::Result<_, sqlx::Error>>().failed(DOING)
}

pub(super) async fn load_lost(store: &PostgresStore, lease: &Lease, limit: usize) -> Result<Vec<ClaimedRun>> {
    const DOING: &str = "load lost claims";
    let mut write = store.write(DOING).await?;
    node::lock_lease(&mut write, lease).await?;
    // Fences before it reads their claims. Commits first, so that no other transaction waits for the reads, which may
    // take long.
    node::fence_expired(&mut write, lease.incarnation).await?;
    write.commit().await?;
    undelegate(store).await?;
    let mut write = store.write_slow(DOING).await?;
    let mut lost = Vec::new();
    for incarnation in dead(&mut write, lease.incarnation).await? {
        if lost.len() >= limit {
            break;
        }
        let (found, skipped) = listed_until(&mut write, incarnation, limit - lost.len()).await?;
        if found.is_empty() && !skipped {
            write.execute(query!("open_claims/forget_lease", incarnation.uuid())).await?;
        }
        lost.extend(found);
    }
    write.commit().await?;
    Ok(lost)
}

/// In a transaction of its own, after the commit that ended the leases.
pub(super) async fn undelegate(store: &PostgresStore) -> Result<()> {
    const DOING: &str = "take back delegated runs of dead nodes";
    let mut write = store.write(DOING).await?;
    write.execute(query!("open_claims/undelegate")).await?;
    write.commit().await
}

/// The incarnations that have ended, or that have claims and no lease. All their claims are then listed: the runs from
/// the lease's `open_from` on are read once. While a node of a release that does not read `open_claims` is alive, they
/// are read in each call and `open_from` stays, because that node searches claims from the lowest `open_from` on.
async fn dead(write: &mut DbTx, but: Incarnation) -> Result<Vec<Incarnation>> {
    let old_release = old_release_lives(write).await?;
    let ended = write.fetch_all(query!("open_claims/lost_leases", but.uuid())).await?;
    let mut dead = Vec::with_capacity(ended.len());
    let lease = |row: &PgRow| Ok((row.try_get("incarnation")?, rows::run_id(row, "open_from")?));
    for (incarnation, open_from) in write.unreadable.clone().each("leases", &ended, lease) {
        dead.push(Incarnation::from_uuid(incarnation));
        if open_from.uuid() == Uuid::max() {
            continue;
        }
        note(write, Incarnation::from_uuid(incarnation), open_from, RunId::from_uuid(Uuid::max())).await?;
        if !old_release {
            write.execute(query!("open_claims/lease_listed", incarnation, Uuid::max())).await?;
        }
    }
    let orphaned: Vec<Uuid> = write.scalars(query!("open_claims/claims_orphaned", rows::limit(ORPHANS_MAX))).await?;
    dead.extend(orphaned.into_iter().map(Incarnation::from_uuid));
    Ok(dead)
}

/// Up to `limit` claims of an incarnation whose claims are all listed, and whether some were skipped because they or
/// their jobs cannot be decoded. Removes stale rows.
async fn listed_until(write: &mut DbTx, incarnation: Incarnation, limit: usize) -> Result<(Vec<ClaimedRun>, bool)> {
    let unreadable_jobs: HashSet<JobId> = write.unreadable.jobs_aside().into_iter().collect();
    let (mut found, mut skipped, mut after) = (Vec::new(), false, None);
    loop {
        let page = listed(write, incarnation, after, limit).await?;
        unlist_stale(write, &page.stale).await?;
        let (before, claims) = (found.len(), page.claims.len());
        found.extend(page.claims.into_iter().filter(|run| !unreadable_jobs.contains(&run.job)));
        skipped |= page.skipped || found.len() - before < claims;
        found.truncate(limit);
        after = page.next;
        if after.is_none() || found.len() >= limit {
            return Ok((found, skipped));
        }
    }
}

/// A page of the listed claims of one incarnation.
struct Listed {
    claims: Vec<ClaimedRun>,
    /// Rows, with their fences, whose run this incarnation no longer has claimed.
    stale: Vec<(Uuid, i64)>,
    /// Some rows cannot be decoded.
    skipped: bool,
    next: Option<RunId>,
}

async fn listed(tx: &mut DbTx, incarnation: Incarnation, after: Option<RunId>, limit: usize) -> Result<Listed> {
    let found = query!(
        "open_claims/claims_listed",
        incarnation.uuid(),
        after.map_or(Uuid::nil(), RunId::uuid),
        rows::limit(limit)
    )
    .fetch_all(&mut *tx.tx)
    .await
    .failed(tx.doing)?;
    let last = found.last().map(|row| rows::run_id(row, "run")).transpose().failed(tx.doing)?;
    let next = last.filter(|_| found.len() >= limit);
    let mut page = Listed { claims: Vec::with_capacity(found.len()), stale: Vec::new(), skipped: false, next };
    for row in &found {
        if row.try_get::<Option<Uuid>, _>("id").failed(tx.doing)?.is_some() {
            let claim = tx.unreadable.one("runs", row, rows::claimed);
            page.skipped |= claim.is_none();
            page.claims.extend(claim);
        } else {
            page.stale.push((row.try_get("run").failed(tx.doing)?, row.try_get("listed_fence").failed(tx.doing)?));
        }
    }
    Ok(page)
}

async fn unlist_stale(write: &mut DbTx, stale: &[(Uuid, i64)]) -> Result<()> {
    if stale.is_empty() {
        return Ok(());
    }
    let (runs, fences): (Vec<Uuid>, Vec<i64>) = stale.iter().copied().unzip();
    write.execute(query!("open_claims/claims_unlist_stale", runs, fences)).await?;
    Ok(())
}

/// Lists claims of the lease's incarnation that are below its `open_from`, or that `open_from` is about to pass.
pub(super) async fn list(write: &mut DbTx, lease: &Lease, claims: &[OldClaim]) -> Result<()> {
    if claims.is_empty() {
        return Ok(());
    }
    write
        .execute(query!(
            "open_claims/claims_list",
            lease.incarnation.uuid(),
            rows::run_ids(claims.iter().map(|claim| claim.run)),
            rows::job_ids(claims.iter().map(|claim| claim.job)),
            claims.iter().map(|claim| claim.tenant.raw()).collect::<Vec<_>>(),
            claims.iter().map(|claim| claim.fence.raw()).collect::<Vec<_>>()
        ))
        .await?;
    Ok(())
}

/// Whether a node of a release that does not read `open_claims` is alive. Then `open_from` must not pass a claim.
pub(super) async fn old_release_lives(write: &mut DbTx) -> Result<bool> {
    write.scalar(query!("open_claims/leases_before_lists")).await
}

/// Removes runs from `open_claims`. The caller has them locked, and no node has them claimed any more.
pub(super) async fn unlist(write: &mut DbTx, runs: Vec<RunId>) -> Result<()> {
    if !runs.is_empty() {
        write.execute(query!("open_claims/claims_unlist", rows::run_ids(runs))).await?;
    }
    Ok(())
}
