//! Compares the claims that the database has for this node with those in memory, in both directions. It runs after each renewal
//! in its own loop, so a slow comparison neither delays nor fails a renewal.
//!
//! - Work on a run that this node no longer claims is stopped.
//! - A claim that memory does not know is settled. If it comes from a statement with an unknown outcome, it was never sent and
//!   is released unspent. Any other unknown claim was sent and settled, and the database has lost the settlement (a standby
//!   that lagged was promoted): the run is lost and gets the next attempt.
//!
//! The database keeps a list of old claims, and every comparison reads it. Young claims are not listed: to find them, a
//! comparison must read the runs themselves. It does so only after a failure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use everytick_domain::{ids::RunId, target::Outcome, time::DbTime};
use everytick_store::{ClaimedRun, LISTED_PER_PAGE_MAX, OLD_CLAIM_AFTER, OldClaim, Result, StoreError};
use metrics::counter;
use tokio_util::sync::CancellationToken;

use super::unsure;
use crate::{
    clock::MonoTime,
    dispatch::deliver::Ended,
    memory::{OwnClaim, SlotUser},
    pulse,
    settings::CLAIMS_PER_COMPARISON_MAX,
    settle::conclude::claim_of,
    shared::Shared,
};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = shared.wake_compare.notified() => {}
        }
        let _pass = pulse::pass();
        if let Err(error) = pass(&shared).await {
            // The next renewal wakes this loop again.
            unsure::report(&shared, &error);
        }
    }
}

pub(crate) async fn pass(shared: &Arc<Shared>) -> Result<()> {
    let own = shared.memory().claims().clone();
    check_own_claims(shared, own).await?;
    settle_unknown_claims(shared).await
}

/// Stops the work on runs that this node no longer claims.
pub(crate) async fn check_own_claims(shared: &Arc<Shared>, own: BTreeMap<RunId, OwnClaim>) -> Result<()> {
    let own: Vec<OwnClaim> = own.into_values().collect();
    for page in own.chunks(CLAIMS_PER_COMPARISON_MAX) {
        let ids: Vec<_> = page.iter().map(|own| own.claim.run).collect();
        let ours = shared.read("compare claims", shared.parts.store.still_claimed(&shared.lease(), &ids)).await?;
        let ours: BTreeSet<_> = ours.into_iter().collect();
        for own in page.iter().filter(|own| !ours.contains(&(own.claim.run, own.claim.fence))) {
            own.cancel.cancel();
        }
    }
    Ok(())
}

/// Settles the claims of this node that memory does not know. It reads the listed claims, and after a failure all others too.
pub(crate) async fn settle_unknown_claims(shared: &Arc<Shared>) -> Result<()> {
    let resolved = shared.memory().resolvable();
    let all = shared.compare_all.swap(false, Ordering::Relaxed) || shared.memory().has_unsure_claims();
    let compared = compare_listed_and_young(shared, all).await;
    match &compared {
        Ok(()) if all => shared.memory().resolve(&resolved),
        Ok(()) => {}
        Err(_) => shared.compare_all.store(true, Ordering::Relaxed),
    }
    compared
}

async fn compare_listed_and_young(shared: &Arc<Shared>, young: bool) -> Result<()> {
    match compare_listed(shared).await? {
        Some(open_from) if young => compare_young(shared, open_from).await,
        // The lease row is missing: the renewal creates it again.
        _ => Ok(()),
    }
}

async fn compare_listed(shared: &Arc<Shared>) -> Result<Option<RunId>> {
    list_old(shared).await?;
    let mut after = None;
    loop {
        let lease = shared.lease();
        let call = shared.parts.store.listed_claims(&lease, after, LISTED_PER_PAGE_MAX);
        let page = shared.read("compare old claims", call).await?;
        settle_unknown(shared, page.claims).await?;
        after = page.next;
        if after.is_none() {
            return Ok(page.open_from);
        }
    }
}

/// Makes the database list this node's claims on runs that are old by now. The next renewal may then raise the bound of open
/// claims past them.
async fn list_old(shared: &Arc<Shared>) -> Result<()> {
    let to = RunId::floor(shared.clock.now().minus(OLD_CLAIM_AFTER));
    shared.memory().listing_to(to);
    loop {
        // Running this statement twice or late does no harm, so a lost answer is a plain failure.
        let reached =
            match shared.read("list old claims", shared.parts.store.list_old_claims(&shared.lease(), to)).await {
                // The renewal gets a new lease.
                Err(StoreError::LeaseLost) => return Ok(()),
                reached => reached?,
            };
        if reached >= to {
            return Ok(());
        }
    }
}

async fn compare_young(shared: &Arc<Shared>, mut from: RunId) -> Result<()> {
    let now = RunId::floor(shared.clock.now());
    let end = RunId::floor(DbTime::MAX);
    while from < end {
        // The last page has no upper bound: our estimate is a little behind the database clock.
        let to = if from < now { OldClaim::page_end(from, now) } else { end };
        let lease = shared.lease();
        let call = shared.parts.store.claims_between(&lease, from, to);
        let claims = shared.read("compare claims", call).await?;
        settle_unknown(shared, claims).await?;
        from = to;
    }
    Ok(())
}

/// Settles the claims of this node that memory does not know.
async fn settle_unknown(shared: &Arc<Shared>, claims: Vec<ClaimedRun>) -> Result<()> {
    let unknown = shared.memory().unknown(claims);
    if unknown.is_empty() {
        return Ok(());
    }
    // Under this lock every claim statement has its answer. So memory knows each claim that was just made, and
    // `still_claimed` leaves out each claim that was just settled.
    let _quiet = pulse::untimed(shared.statements.write()).await;
    let unknown = shared.memory().unknown(unknown);
    let ids: Vec<_> = unknown.iter().map(|run| run.id).collect();
    let ours = shared.read("compare claims", shared.parts.store.still_claimed(&shared.lease(), &ids)).await?;
    let unknown: Vec<_> = unknown.into_iter().filter(|run| ours.contains(&(run.id, run.fence))).collect();
    let mut jobs: Vec<_> = unknown.iter().map(|run| run.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let jobs = shared.read("load jobs", shared.parts.store.load_jobs(&jobs)).await?;
    for run in unknown {
        // If a job cannot be loaded, its claim is compared again after the next renewal.
        let Some(loaded) = jobs.iter().find(|loaded| loaded.job.id == run.job) else { continue };
        let unsent = shared.memory().settle_unknown(&run);
        if !unsent {
            counter!("everytick_runs_lost_total").increment(1);
            tracing::warn!(job = loaded.job.spec.name, run = %run.id, "the database has lost a settlement; the run is lost");
        }
        let own = OwnClaim {
            claim: claim_of(&run),
            user: SlotUser::of(&loaded.job),
            job: loaded.job.clone(),
            tenant: run.tenant,
            cancel: CancellationToken::new(),
            accepted: false,
            ended: false,
            since: MonoTime::now(),
        };
        let outcome = if unsent { Outcome::Unsent } else { Outcome::Lost };
        let ended_at = shared.clock.now();
        let _ = shared.outcomes.send(Ended { own, outcome, started_at: None, ended_at });
    }
    Ok(())
}
