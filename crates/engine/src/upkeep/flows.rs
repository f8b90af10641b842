//! Advances flows. A run that ends leaves a step in its own transaction; this loop creates the next runs from the steps. The
//! node that left the step does so at once, any other node at its next poll. Each flow is advanced in one transaction, guarded
//! by the flow's row, so two nodes that advance the same flow do no harm.
//!
//! One flow never stops the others. Each is advanced by its own call, with its own timeout. A flow that failed is
//! [retried](Progress) with backoff, at most two such flows a pass. After too many failures its next jobs are recorded as
//! skipped with the reason `error`. A pass continues where the last one ended.

mod progress;

use std::sync::Arc;

use everytick_domain::{ids::RunId, run::SkipReason};
use everytick_store::{Advanced, Result, StoreError};
use metrics::counter;

pub(crate) use progress::Progress;
use progress::{Failure, Next};

use crate::{
    clock::MonoTime,
    cluster::unsure,
    pulse,
    settings::{FLOW_STEPS_PER_PASS_MAX, FLOWS_PER_BATCH_MAX, FLOWS_POLL_EVERY},
    shared::Shared,
};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = shared.parts.hints.on_flow_steps() => {}
            () = tokio::time::sleep(shared.parts.settings.poll.max(FLOWS_POLL_EVERY)) => {}
        }
        let _pass = pulse::pass();
        match pass(&shared).await {
            Ok(_) => {}
            // The steps stay, so the next pass reads them. No job becomes stale: the new runs only wait.
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                unsure::log(&shared, &format!("could not advance flows: {error}"), source.as_ref());
            }
        }
    }
}

/// Advances every flow that has steps once, starting after the last flow of the previous pass. Returns how many runs began to
/// wait.
pub(crate) async fn pass(shared: &Arc<Shared>) -> Result<usize> {
    let (begin, mut started) = (shared.flows().begin(), 0);
    started += advance_between(shared, begin, None).await?;
    if begin.is_some() {
        started += advance_between(shared, None, begin).await?;
    }
    // A skipped child leaves a step of its own, so there may be new steps.
    while shared.parts.store.take_steps_written() && !shared.stopped.is_cancelled() {
        started += advance_between(shared, None, None).await?;
    }
    Ok(started)
}

/// Advances the flows after `after`, up to and including `until`.
async fn advance_between(shared: &Arc<Shared>, mut after: Option<RunId>, until: Option<RunId>) -> Result<usize> {
    let mut started = 0;
    loop {
        let call = shared.parts.store.flows_with_steps(after, FLOWS_PER_BATCH_MAX);
        let page = shared.call("find flows to advance", call).await?;
        let full = page.len() >= FLOWS_PER_BATCH_MAX;
        for flow in page {
            if shared.stopped.is_cancelled() || until.is_some_and(|until| flow > until) {
                return Ok(started);
            }
            started += advance(shared, flow).await;
            after = Some(flow);
            shared.flows().passed(after);
        }
        if !full {
            shared.flows().passed(None);
            return Ok(started);
        }
    }
}

/// Advances one flow until it has no more steps or reaches its limit for one pass. Returns how many of its runs began to wait.
async fn advance(shared: &Arc<Shared>, flow: RunId) -> usize {
    let mut started = 0;
    for _ in 0..FLOW_STEPS_PER_PASS_MAX {
        let next = shared.flows().next(flow, MonoTime::now());
        let store = &shared.parts.store;
        let answer = match &next {
            Next::Wait => return started,
            Next::Advance => shared.call("advance a flow", store.advance_flow(flow)).await,
            Next::GiveUp(why) => shared.call("give up a flow", store.give_up_flow(flow, why)).await,
        };
        match answer {
            Ok(advanced) => {
                started += advanced.started;
                apply(shared, flow, &advanced);
                if !advanced.more {
                    shared.flows().done(flow);
                    return started;
                }
            }
            Err(error) => {
                failed(shared, flow, &error);
                return started;
            }
        }
    }
    started
}

fn apply(shared: &Shared, flow: RunId, advanced: &Advanced) {
    if advanced.started > 0 {
        counter!("everytick_flow_runs_total").increment(advanced.started as u64);
        shared.parts.hints.run_waits();
    }
    for skipped in &advanced.skipped {
        counter!("everytick_ticks_skipped_total", "reason" => skipped.reason.word()).increment(1);
        if skipped.reason == SkipReason::Error {
            let (job, run, error) = (&skipped.job_name, skipped.run, &skipped.error);
            tracing::warn!(%flow, job, %run, error, "a job of a flow could not be started, and the flow fails");
        }
    }
}

fn failed(shared: &Shared, flow: RunId, error: &StoreError) {
    let source = std::error::Error::source(error).map(ToString::to_string);
    let failure = Failure {
        refused: matches!(error, StoreError::Refused { .. }),
        why: source.as_ref().map_or_else(|| error.to_string(), |source| format!("{error}: {source}")),
    };
    let failures = shared.flows().failed(flow, failure, MonoTime::now());
    tracing::warn!(%flow, %error, source, failures, "a flow could not be advanced; it is retried with backoff");
}
