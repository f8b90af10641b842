//! Overlap `cancel_previous`: cancels the runs that a newer run supersedes. The newer run starts in a later pass.

use std::sync::Arc;

use everytick_domain::mutant::Mutant;
use everytick_store::{Result, Supersede};
use metrics::counter;
use tokio::sync::RwLockReadGuard;

use super::choose::Next;
use crate::{cluster::unsure, settings::SUPERSEDE_JOBS_MAX, shared::Shared};

pub(super) async fn supersede(shared: &Arc<Shared>, statement: RwLockReadGuard<'_, ()>, older: &[Supersede]) -> Next {
    let lease = shared.lease();
    match shared.call("cancel superseded runs", shared.parts.store.supersede(&lease, older)).await {
        Ok(cancelled) => {
            counter!("everytick_runs_total", "state" => "cancelled").increment(cancelled.len() as u64);
            shared.memory().superseded(older, &cancelled);
            shared.notify_flows();
            shared.wake_load.notify_one();
            Next::Now
        }
        Err(error) => {
            let unsure = unsure::is(&error) && !Mutant::MemoryKeptAfterUnsure.is_on();
            shared.memory().supersede_failed(older, unsure);
            unsure::report(shared, &error);
            drop(statement);
            if unsure {
                unsure::resolve(shared).await;
            }
            Next::Pause
        }
    }
}

/// Supersedes older runs in queues. Normally a claim of the newer run does this, but no claim comes while all workers are busy.
pub(crate) async fn in_queues(shared: &Arc<Shared>) -> Result<()> {
    let call = shared.parts.store.supersede_in_queues(SUPERSEDE_JOBS_MAX);
    let cancelled = shared.call("cancel superseded runs in queues", call).await?;
    if !cancelled.is_empty() {
        counter!("everytick_runs_total", "state" => "cancelled").increment(cancelled.len() as u64);
        shared.parts.hints.run_waits();
        shared.notify_flows();
    }
    Ok(())
}
