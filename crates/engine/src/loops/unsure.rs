//! After an answer that never came: first the fence of our own lease is raised, which waits for what is executing and refuses
//! what has not begun; only then is anything read again. Re-sending is not enough.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use everytick_domain::{ids::RunId, mutant::Mutant, partition::PartitionSet, target::Outcome};
use everytick_store::{ClaimedRun, Result, StoreError};
use metrics::counter;

use super::deliver::Ended;
use crate::{clock::MonoTime, engine::Shared, memory::Held, settings::FAILURE_PAUSE};

/// Whether the statement may have been done. A lost lease is sure: nothing was written.
pub(crate) const fn is(error: &StoreError) -> bool {
    matches!(error, StoreError::Unsure { .. })
}

/// Says once what went wrong, and wakes the loop that mends a lost lease.
pub(crate) fn report(shared: &Shared, error: &StoreError) {
    match error {
        // Before anybody renews: the bound of our claims must not pass one that we do not know of.
        StoreError::Unsure { doing, source } => {
            shared.doubt.store(!Mutant::ReleaseForgotten.is_on(), Ordering::Relaxed);
            say(shared, &format!("could not learn whether it was done: {doing}"), Some(source));
        }
        StoreError::LeaseLost => {
            counter!("everytick_lease_lost_total").increment(1);
            shared.wake_renew.notify_one();
        }
        // There is no way on; the operator has to act.
        StoreError::Unusable(reason) => {
            tracing::error!(reason, "the node cannot go on");
            shared.broken.cancel();
        }
        error => {
            let source = std::error::Error::source(error).map(ToString::to_string);
            say(shared, &format!("the store did not answer as it should: {error}"), source.as_ref());
        }
    }
}

/// Aloud at the beginning of an outage and now and then, else only to those who listen closely.
pub(crate) fn say(shared: &Shared, what: &str, source: Option<&impl std::fmt::Display>) {
    let source = source.map(ToString::to_string);
    if shared.outage().failed(MonoTime::now()) {
        tracing::warn!(source, "{what}");
    } else {
        tracing::debug!(source, "{what}");
    }
}

/// Ends the doubt about statements that may still land: fence raised, then compared. Tries until it is done.
pub(crate) async fn resolve(shared: &Arc<Shared>) {
    loop {
        let done = {
            let _quiet = shared.statements.write().await;
            mend(shared).await
        };
        match done {
            Ok(()) => break,
            Err(error) => report(shared, &error),
        }
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = tokio::time::sleep(FAILURE_PAUSE) => {}
        }
    }
    shared.wake_load.notify_one();
    shared.wake_claim.notify_one();
}

/// The caller holds the statements still.
pub(crate) async fn mend(shared: &Arc<Shared>) -> Result<()> {
    match shared.ask("raise the fence", shared.parts.store.raise_fence(&shared.lease())).await {
        Ok(lease) => {
            shared.set_lease(lease);
            shared.memory().sure();
            shared.doubt.store(false, Ordering::Relaxed);
        }
        Err(StoreError::LeaseLost) => rejoin(shared).await?,
        Err(error) => return Err(error),
    }
    compare(shared).await
}

/// The lease is gone: take it anew. All that we believed is read again; our claims stay ours where nobody took them.
pub(crate) async fn rejoin(shared: &Arc<Shared>) -> Result<()> {
    let sent = MonoTime::now();
    let settings = &shared.parts.settings;
    let info = shared.info();
    let asked = shared.parts.store.join(&info, shared.incarnation, settings.lease);
    let (lease, now) = shared.ask("join", asked).await?;
    shared.clock.observe(sent, now);
    shared.set_lease(lease);
    shared.renewed(sent);
    shared.doubt.store(false, Ordering::Relaxed);
    // Others may have taken our partitions: what is still ours is taken up again.
    shared.memory().lay_down(&PartitionSet::all(u16::MAX));
    shared.wake_hold.notify_one();
    tracing::warn!("the lease was lost and has been taken anew");
    shared.wake_load.notify_one();
    Ok(())
}

/// Stops the work on those of the runs that we hold and no longer own. Only an unsure answer leaves claims behind that we never
/// knew.
pub(crate) async fn compare_held(shared: &Arc<Shared>, held: BTreeMap<RunId, Held>) -> Result<()> {
    let ids: Vec<_> = held.keys().copied().collect();
    if ids.is_empty() {
        return Ok(());
    }
    let ours = shared.ask("compare claims", shared.parts.store.still_claimed(&shared.lease(), &ids)).await?;
    let ours: BTreeSet<_> = ours.into_iter().collect();
    for held in held.values().filter(|held| !ours.contains(&(held.claim.run, held.claim.fence))) {
        held.cancel.cancel();
    }
    Ok(())
}

/// Compares the runs that the database says we claimed with those in our hands. The caller holds the statements still. One
/// that we never knew was never sent, and is handed back unspent; one that we hold and no longer own is stopped.
pub(crate) async fn compare(shared: &Arc<Shared>) -> Result<()> {
    let claimed = shared.ask("compare claims", shared.parts.store.load_claimed(&shared.lease())).await?;
    let held = shared.memory().held().clone();
    let ours: BTreeSet<_> = claimed.iter().map(|run| (run.id, run.fence)).collect();
    for held in held.values().filter(|held| !ours.contains(&(held.claim.run, held.claim.fence))) {
        held.cancel.cancel();
    }
    let known = |run: &ClaimedRun| held.get(&run.id).is_some_and(|held| held.claim.fence == run.fence);
    let unknown: Vec<_> = claimed.into_iter().filter(|run| !known(run)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let mut ids: Vec<_> = unknown.iter().map(|run| run.job).collect();
    ids.sort_unstable();
    ids.dedup();
    let jobs = shared.ask("load jobs", shared.parts.store.load_jobs(&ids)).await?;
    let now = shared.clock.now();
    for run in unknown {
        // Noted also where its job cannot be read: the bound of our claims stays below it.
        let new = shared.memory().returning(run.id, run.fence);
        let Some(loaded) = jobs.iter().find(|loaded| loaded.job.id == run.job).filter(|_| new) else { continue };
        let claim =
            everytick_domain::run::Claim { run: run.id, fence: run.fence, attempt: run.attempt, lost: run.lost };
        let held = Held {
            claim,
            job: loaded.job.clone(),
            tenant: run.tenant,
            cancel: tokio_util::sync::CancellationToken::new(),
            accepted: false,
            ended: false,
            since: MonoTime::now(),
        };
        let _ = shared.outcomes.send(Ended { held, outcome: Outcome::Unsent, started_at: None, ended_at: now });
    }
    Ok(())
}
