//! Advances flows: whatever ended a run has left a step, and the next runs are made of it. Every node that plays looks, at once where it
//! left the step itself, else at its next poll. One transaction a flow, guarded by the flow's row: two that look do no harm.

use std::sync::Arc;

use everytick_store::Result;
use metrics::counter;

use super::unsure;
use crate::{
    engine::Shared,
    settings::{FLOWS_LOOK_EVERY, FLOWS_PER_BATCH_MAX},
};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = shared.parts.hints.on_flow_steps() => {}
            () = tokio::time::sleep(shared.parts.settings.poll.max(FLOWS_LOOK_EVERY)) => {}
        }
        match pass(&shared).await {
            Ok(_) => {}
            // What was not done stays: the next pass takes it up. Nobody's memory is in doubt, for children only wait.
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                unsure::say(&shared, &format!("flows were not advanced: {error}"), source.as_ref());
            }
        }
    }
}

/// Advances all that has steps, a batch at a time. Gives how many runs wait now.
pub(crate) async fn pass(shared: &Arc<Shared>) -> Result<usize> {
    let (mut after, mut started) = (None, 0);
    loop {
        let asked = shared.parts.store.advance_flows(after, FLOWS_PER_BATCH_MAX);
        let advanced = shared.ask("advance flows", asked).await?;
        if advanced.started > 0 {
            counter!("everytick_flow_runs_total").increment(advanced.started as u64);
            shared.parts.hints.run_waits();
        }
        started += advanced.started;
        after = advanced.last;
        // A child that was skipped when its turn came has left a step itself.
        if after.is_none() && !shared.parts.store.left_steps() {
            return Ok(started);
        }
    }
}
