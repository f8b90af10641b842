//! Processes backlogs that were too long for one transaction: waiting runs to cancel, or to move with their job. Each batch is
//! one commit and uses nothing from this node's memory. So after a failure or an unknown outcome the next pass simply continues.

use std::sync::Arc;

use everytick_store::Result;
use metrics::counter;

use crate::{
    cluster::unsure,
    pulse,
    settings::{BACKLOG_BATCHES_MAX, BACKLOG_EVERY},
    shared::Shared,
};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(BACKLOG_EVERY) => {}
        }
        let _pass = pulse::pass();
        if let Err(error) = pass(&shared).await {
            unsure::report(&shared, &error);
        }
    }
}

/// Processes batches until none is left. Returns how many runs were cancelled or moved.
pub(crate) async fn pass(shared: &Arc<Shared>) -> Result<usize> {
    let mut processed = 0;
    for _ in 0..BACKLOG_BATCHES_MAX {
        if shared.stopping() {
            break;
        }
        let step = shared.call("process a backlog", shared.parts.store.advance_backlog()).await?;
        let Some(job) = step.job else { break };
        processed += step.cancelled + step.moved;
        if step.cancelled > 0 {
            counter!("everytick_runs_total", "state" => "cancelled").increment(step.cancelled as u64);
            shared.notify_flows();
        }
        if step.moved > 0 {
            shared.parts.hints.run_waits();
        }
        tracing::debug!(%job, cancelled = step.cancelled, moved = step.moved, "processed a part of a backlog");
        // Another session has locked the rest.
        if step.cancelled + step.moved == 0 {
            break;
        }
    }
    Ok(processed)
}
