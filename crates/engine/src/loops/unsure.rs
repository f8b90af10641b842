//! After an answer that never came: first the fence of our own lease is raised, which waits for what is executing and refuses
//! what has not begun; only then is anything read again. Re-sending is not enough.

use std::sync::{Arc, atomic::Ordering};

use everytick_domain::{mutant::Mutant, partition::PartitionSet};
use everytick_store::{Result, StoreError};
use metrics::counter;

use super::compare;
use crate::{clock::MonoTime, engine::Shared, pulse, settings::FAILURE_PAUSE};

/// Whether the statement may have been done. A lost lease is sure: nothing was written.
pub(crate) const fn is(error: &StoreError) -> bool {
    matches!(error, StoreError::Unsure { .. })
}

/// Says once what went wrong, and wakes the loop that mends a lost lease.
pub(crate) fn report(shared: &Shared, error: &StoreError) {
    // Whatever was wrong with the database, it may have lost something: claims are compared, the young ones too.
    shared.compare_all.store(true, Ordering::Relaxed);
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
            shared.break_down(reason.clone());
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
        match mend_and_compare(shared).await {
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

async fn mend_and_compare(shared: &Arc<Shared>) -> Result<()> {
    {
        let _quiet = pulse::excused(shared.statements.write()).await;
        mend(shared).await?;
    }
    compare::compare_known(shared).await
}

/// Raises the fence: nothing of ours lands later. What has landed is compared afterwards. The caller holds the statements still.
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
    shared.compare_all.store(true, Ordering::Relaxed);
    shared.wake_compare.notify_one();
    Ok(())
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
    shared.memory().sure_of_claims();
    // Others may have taken our partitions: what is still ours is taken up again.
    shared.memory().lay_down(&PartitionSet::all(u16::MAX));
    shared.wake_hold.notify_one();
    tracing::warn!("the lease was lost and has been taken anew");
    shared.wake_load.notify_one();
    Ok(())
}
