//! Advances each backfill by one step in a pass: counts the runs that have ended, and creates as many new runs as its limits
//! allow. A step is one commit and uses nothing from this node's memory. So after a failure or an unknown outcome the next pass
//! simply continues.

use std::sync::Arc;

use everytick_domain::backfill::BACKFILL_EVERY;
use everytick_store::{Result, StoreError};

use crate::{cluster::unsure, pulse, settings::BACKFILLS_PER_READ_MAX, shared::Shared};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(BACKFILL_EVERY.into()) => {}
        }
        let _pass = pulse::pass();
        if let Err(error) = pass(&shared).await {
            unsure::report(&shared, &error);
        }
    }
}

/// Advances each backfill whose job this node owns by one step. Returns how many runs were created.
pub(crate) async fn pass(shared: &Arc<Shared>) -> Result<usize> {
    let (mut after, mut made) = (None, 0);
    let history = shared.parts.settings.history;
    loop {
        let partitions = shared.partitions();
        if partitions.is_empty() {
            return Ok(made);
        }
        let call = shared.parts.store.load_backfills(&partitions, after, BACKFILLS_PER_READ_MAX);
        let found = shared.read("find backfills", call).await?;
        if found.is_empty() {
            return Ok(made);
        }
        for id in found {
            if shared.stopping() {
                return Ok(made);
            }
            after = Some(id);
            let lease = shared.lease();
            let step = shared.parts.store.advance_backfill(&lease, id, history);
            match shared.call("create runs of a backfill", step).await {
                Ok(advanced) if advanced.made > 0 => {
                    made += advanced.made;
                    shared.parts.hints.run_waits();
                }
                Ok(_) | Err(StoreError::NotFound(_)) => {}
                Err(error @ StoreError::LeaseLost) => return Err(error),
                // A backfill that fails does not stop the others.
                Err(error) => unsure::report(shared, &error),
            }
        }
    }
}
