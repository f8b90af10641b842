//! Stops the work on runs that somebody else has ended: at once where that was asked of this process, else at the next look.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use everytick_domain::ids::RunId;

use super::compare;
use crate::{
    clock::MonoTime,
    engine::Shared,
    memory::Held,
    pulse,
    settings::{CANCEL_LOOK_EVERY, CANCEL_LOOK_MAX},
};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let ended = tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            ended = shared.parts.hints.on_runs_ended() => ended,
        };
        let _pass = pulse::pass();
        for (job, run) in ended {
            shared.memory().ended_elsewhere(job, run);
        }
        shared.wake_load.notify_one();
    }
}

/// Looks by itself too: whoever cancelled may have come to another node, or never heard that it was done.
pub(crate) async fn run_looks(shared: Arc<Shared>) {
    let mut after = None;
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = tokio::time::sleep(CANCEL_LOOK_EVERY) => {}
        }
        let _pass = pulse::pass();
        // It only reads, so nobody is in doubt; whoever renews looks too, and reports what is wrong.
        let held = lasting(&shared, after);
        after = held.keys().next_back().copied().filter(|_| held.len() == CANCEL_LOOK_MAX);
        if let Err(error) = compare::compare_held(&shared, held).await {
            tracing::debug!(%error, "could not look whether runs were cancelled");
        }
    }
}

/// The runs in our hands that have lasted for a while, after the given one. Most are over before this is asked of them.
fn lasting(shared: &Shared, after: Option<RunId>) -> BTreeMap<RunId, Held> {
    let now = MonoTime::now();
    let lasts = |held: &Held| now.since(held.since) >= CANCEL_LOOK_EVERY && !held.cancel.is_cancelled();
    let memory = shared.memory();
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let lasting = memory.held().range((from, Bound::Unbounded)).filter(|(_, held)| lasts(held));
    lasting.take(CANCEL_LOOK_MAX).map(|(run, held)| (*run, held.clone())).collect()
}
