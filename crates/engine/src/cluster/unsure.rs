//! Resolves statements with an unknown outcome.
//!
//! The node first raises the fence of its own lease row. That waits for statements in progress, and makes the database
//! refuse statements that arrive later. Only then does the node reload. Sending the statement again is not enough: the
//! first statement may still take effect after the second.

use std::sync::{Arc, atomic::Ordering};

use everytick_domain::{mutant::Mutant, partition::PartitionSet};
use everytick_store::{Result, StoreError};
use metrics::counter;

use super::compare;
use crate::{clock::MonoTime, pulse, settings::FAILURE_PAUSE, shared::Shared};

/// Whether the statement may have been committed. `LeaseLost` is certain: nothing was written.
pub(crate) const fn is(error: &StoreError) -> bool {
    matches!(error, StoreError::Unsure { .. })
}

/// Logs an error of the store, and wakes the loop that renews a lost lease.
pub(crate) fn report(shared: &Shared, error: &StoreError) {
    // After any failure the database may have lost data, so the next comparison reads young claims too.
    shared.compare_all.store(true, Ordering::Relaxed);
    match error {
        // This flag must be set before the next renewal. A renewal must not raise the bound of open claims past a claim
        // that memory does not know.
        StoreError::Unsure { doing, source } => {
            shared.unsure.store(!Mutant::ReleaseForgotten.is_on(), Ordering::Relaxed);
            log(shared, &format!("outcome unknown, the database did not confirm this call: {doing}"), Some(source));
        }
        StoreError::LeaseLost => {
            counter!("everytick_lease_lost_total").increment(1);
            shared.wake_renew.notify_one();
        }
        // The node cannot continue; the operator has to act.
        StoreError::Unusable(reason) => {
            shared.break_down(reason.clone());
        }
        error => {
            let source = std::error::Error::source(error).map(ToString::to_string);
            log(shared, &format!("a call of the store failed: {error}"), source.as_ref());
        }
    }
}

/// Logs a warning at the start of an outage and every 10 s, otherwise a debug message.
pub(crate) fn log(shared: &Shared, what: &str, source: Option<&impl std::fmt::Display>) {
    let source = source.map(ToString::to_string);
    if shared.outage().failed(MonoTime::now()) {
        tracing::warn!(source, "{what}");
    } else {
        tracing::debug!(source, "{what}");
    }
}

/// Resolves statements that may still take effect: raises the fence, then compares claims. Retries until it succeeds.
pub(crate) async fn resolve(shared: &Arc<Shared>) {
    loop {
        match raise_and_compare(shared).await {
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

async fn raise_and_compare(shared: &Arc<Shared>) -> Result<()> {
    {
        let _quiet = pulse::untimed(shared.statements.write()).await;
        raise_fence(shared).await?;
    }
    compare::settle_unknown_claims(shared).await
}

/// Raises the fence, so that no earlier statement of this node takes effect later. Claims are compared afterwards. The caller
/// has locked `statements` for writing.
pub(crate) async fn raise_fence(shared: &Arc<Shared>) -> Result<()> {
    match shared.call("raise the fence", shared.parts.store.raise_fence(&shared.lease())).await {
        Ok(lease) => {
            shared.set_lease(lease);
            shared.memory().fence_raised();
            shared.unsure.store(false, Ordering::Relaxed);
        }
        Err(StoreError::LeaseLost) => rejoin(shared).await?,
        Err(error) => return Err(error),
    }
    shared.compare_all.store(true, Ordering::Relaxed);
    shared.wake_compare.notify_one();
    Ok(())
}

/// Joins again after the lease was lost. All jobs are loaded again. Claims stay with this node unless another node took them.
pub(crate) async fn rejoin(shared: &Arc<Shared>) -> Result<()> {
    let sent = MonoTime::now();
    let settings = &shared.parts.settings;
    let info = shared.info();
    let call = shared.parts.store.join(&info, shared.incarnation, settings.lease);
    let (lease, now) = shared.call("join", call).await?;
    shared.clock.observe(sent, now);
    shared.set_lease(lease);
    shared.renewed(sent);
    shared.unsure.store(false, Ordering::Relaxed);
    shared.memory().mark_claims_fenced();
    // Other nodes may have taken partitions of this node. It acquires again those it still owns.
    shared.memory().remove_partitions(&PartitionSet::all(u16::MAX));
    shared.wake_partitions.notify_one();
    tracing::warn!("the lease was lost; the node has joined again");
    shared.wake_load.notify_one();
    Ok(())
}
