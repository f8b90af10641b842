//! The claims of an incarnation: of this node, and of dead nodes. A claim on a young run has an id at or above the
//! `open_from` of its lease. A claim on an older run has a row in `open_claims`. That row alone proves nothing, so the
//! run is always read too.

use std::collections::HashSet;

use everytick_domain::ids::{Fence, Incarnation, JobId, RunId};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbRow, DbStore, DbTx, Failed, lease, node, rows};
use crate::{ClaimedRun, Lease, ListedClaims, OldClaim, Result, StoreError};

pub(super) async fn listed_claims(
    store: &DbStore,
    lease: &Lease,
    after: Option<RunId>,
    limit: usize,
) -> Result<ListedClaims> {
    const DOING: &str = "read this node's listed claims";
    let mut tx = store.read(DOING).await?;
    let open_from: Option<Uuid> = tx.optional_scalar(query!("open_claims/open_from", lease.incarnation.uuid())).await?;
    let page = listed(&mut tx, lease.incarnation, after, limit).await?;
    drop(tx);
    if !page.stale.is_empty() {
        let mut tx = store.write(DOING).await?;
        unlist_stale(&mut tx, &page.stale).await?;
        tx.commit().await?;
    }
    Ok(ListedClaims { open_from: open_from.map(RunId::from_uuid), claims: page.claims, next: page.next })
}

pub(super) async fn list_old_claims(store: &DbStore, lease: &Lease, to: RunId) -> Result<RunId> {
    let mut tx = store.write("list this node's old claims").await?;
    let listed: Option<Uuid> =
        tx.optional_scalar(query!("open_claims/lease_compared_to", lease.incarnation.uuid())).await?;
    let from = listed.map(RunId::from_uuid).ok_or(StoreError::LeaseLost)?;
    if from >= to {
        return Ok(from);
    }
    let to = OldClaim::page_end(from, to);
    list_between(&mut tx, lease.incarnation, from, to).await?;
    // Locked only now, so that recording and claiming do not wait while the runs are read.
    lease::lock_lease_alone(&mut tx, lease).await?;
    tx.execute(query!("open_claims/lease_compared", lease.incarnation.uuid(), to.uuid())).await?;
    tx.commit().await?;
    Ok(to)
}

/// Lists the claims of an incarnation on runs from `from` up to but not including `to`, as the database has them.
async fn list_between(tx: &mut DbTx, incarnation: Incarnation, from: RunId, to: RunId) -> Result<()> {
    tx.execute(query!("open_claims/claims_note", incarnation.uuid(), from.uuid(), to.uuid())).await?;
    Ok(())
}

pub(super) async fn claims_between(store: &DbStore, lease: &Lease, from: RunId, to: RunId) -> Result<Vec<ClaimedRun>> {
    let mut tx = store.read("read this node's claims").await?;
    let found =
        tx.fetch_all(query!("open_claims/claims_between", lease.incarnation.uuid(), from.uuid(), to.uuid())).await?;
    Ok(tx.unreadable.each("runs", &found, rows::claimed))
}

pub(super) async fn still_claimed(store: &DbStore, lease: &Lease, runs: &[RunId]) -> Result<Vec<(RunId, Fence)>> {
    let mut tx = store.read("read this node's claims").await?;
    let runs = rows::run_ids(runs.iter().copied());
    let found = tx.fetch_all(query!("open_claims/still_claimed", lease.incarnation.uuid(), runs)).await?;
    tx.decode_all(&found, |row| Ok((rows::run_id(row, "id")?, Fence::from_raw(row.try_get("fence")?))))
}

pub(super) async fn load_lost(store: &DbStore, lease: &Lease, limit: usize) -> Result<Vec<ClaimedRun>> {
    const DOING: &str = "load lost claims";
    let mut tx = store.write(DOING).await?;
    lease::lock_lease(&mut tx, lease).await?;
    // Fences before it reads their claims. Commits first, so that no other transaction waits for the reads, which may
    // take long.
    node::fence_expired(&mut tx, lease.incarnation).await?;
    tx.commit().await?;
    lease::undelegate(store).await?;
    let mut tx = store.write_slow(DOING).await?;
    let mut lost = Vec::new();
    for incarnation in dead(&mut tx, lease.incarnation).await? {
        if lost.len() >= limit {
            break;
        }
        let (found, skipped) = listed_until(&mut tx, incarnation, limit - lost.len()).await?;
        if found.is_empty() && !skipped {
            node::note_gone(&mut tx, incarnation).await?;
            tx.execute(query!("open_claims/forget_lease", incarnation.uuid())).await?;
        }
        lost.extend(found);
    }
    tx.commit().await?;
    Ok(lost)
}

/// The incarnations that have ended, or that have claims and no lease. All their claims are then listed: the runs from
/// the lease's `open_from` on are read once. While a node of a release that does not read `open_claims` is alive, they
/// are read in each call and `open_from` stays, because that node searches claims from the lowest `open_from` on.
async fn dead(tx: &mut DbTx, but: Incarnation) -> Result<Vec<Incarnation>> {
    let old_release = lease::old_release_lives(tx).await?;
    let ended = tx.fetch_all(query!("open_claims/lost_leases", but.uuid())).await?;
    let mut dead = Vec::with_capacity(ended.len());
    let lease = |row: &DbRow| Ok((row.try_get("incarnation")?, rows::run_id(row, "open_from")?));
    for (incarnation, open_from) in tx.unreadable.clone().each("leases", &ended, lease) {
        dead.push(Incarnation::from_uuid(incarnation));
        if open_from.uuid() == Uuid::max() {
            continue;
        }
        list_between(tx, Incarnation::from_uuid(incarnation), open_from, RunId::from_uuid(Uuid::max())).await?;
        if !old_release {
            tx.execute(query!("open_claims/lease_listed", incarnation, Uuid::max())).await?;
        }
    }
    dead.extend(lease::orphans(tx).await?);
    Ok(dead)
}

/// Up to `limit` claims of an incarnation whose claims are all listed, and whether some were skipped because they or
/// their jobs cannot be decoded. Removes stale rows.
async fn listed_until(tx: &mut DbTx, incarnation: Incarnation, limit: usize) -> Result<(Vec<ClaimedRun>, bool)> {
    let unreadable_jobs: HashSet<JobId> = tx.unreadable.jobs_aside().into_iter().collect();
    let (mut found, mut skipped, mut after) = (Vec::new(), false, None);
    loop {
        let page = listed(tx, incarnation, after, limit).await?;
        unlist_stale(tx, &page.stale).await?;
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
    stale: Vec<(RunId, i64)>,
    /// Some rows cannot be decoded.
    skipped: bool,
    next: Option<RunId>,
}

async fn listed(tx: &mut DbTx, incarnation: Incarnation, after: Option<RunId>, limit: usize) -> Result<Listed> {
    let after = after.map_or(Uuid::nil(), RunId::uuid);
    let found =
        tx.fetch_all(query!("open_claims/claims_listed", incarnation.uuid(), after, rows::limit(limit))).await?;
    let last = found.last().map(|row| rows::run_id(row, "run")).transpose().failed(tx.doing)?;
    let next = last.filter(|_| found.len() >= limit);
    let mut page = Listed { claims: Vec::with_capacity(found.len()), stale: Vec::new(), skipped: false, next };
    for row in &found {
        if row.try_get::<Option<Uuid>, _>("id").failed(tx.doing)?.is_some() {
            let claim = tx.unreadable.one("runs", row, rows::claimed);
            page.skipped |= claim.is_none();
            page.claims.extend(claim);
        } else {
            let fence = row.try_get("listed_fence").failed(tx.doing)?;
            page.stale.push((rows::run_id(row, "run").failed(tx.doing)?, fence));
        }
    }
    Ok(page)
}

async fn unlist_stale(tx: &mut DbTx, stale: &[(RunId, i64)]) -> Result<()> {
    if !stale.is_empty() {
        tx.execute(batch!("open_claims/claims_unlist_stale", [], stale, |row| (row.0, row.1))).await?;
    }
    Ok(())
}

/// Lists claims of the lease's incarnation that are below its `open_from`, or that `open_from` is about to pass.
pub(super) async fn list(tx: &mut DbTx, lease: &Lease, claims: &[OldClaim]) -> Result<()> {
    if claims.is_empty() {
        return Ok(());
    }
    let list = batch!("open_claims/claims_list", [lease.incarnation.uuid()], claims, |claim| (
        claim.run,
        claim.job,
        claim.tenant.raw(),
        claim.fence.raw(),
    ));
    tx.execute(list).await?;
    Ok(())
}

/// Removes runs from `open_claims`. The caller has them locked, and no node has them claimed any more.
pub(super) async fn unlist(tx: &mut DbTx, runs: Vec<RunId>) -> Result<()> {
    if !runs.is_empty() {
        tx.execute(query!("open_claims/claims_unlist", rows::run_ids(runs))).await?;
    }
    Ok(())
}
