//! Stops the work on runs that a user, a worker or another node ended: at once if this process got the request,
//! otherwise at the next comparison.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use everytick_domain::ids::RunId;

use crate::{
    clock::MonoTime,
    cluster::compare,
    memory::OwnClaim,
    pulse,
    settings::{CANCEL_POLL_EVERY, CANCEL_POLL_MAX},
    shared::Shared,
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

/// Compares claims on a timer: the cancel may have gone to another node, or its commit may have had no answer.
pub(crate) async fn run_poll(shared: Arc<Shared>) {
    let mut after = None;
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = tokio::time::sleep(CANCEL_POLL_EVERY) => {}
        }
        let _pass = pulse::pass();
        // This check only reads, so no outcome is unknown. The comparison after each renewal makes the same check and
        // reports errors.
        let own = lasting(&shared, after);
        after = own.keys().next_back().copied().filter(|_| own.len() == CANCEL_POLL_MAX);
        if let Err(error) = compare::check_own_claims(&shared, own).await {
            tracing::debug!(%error, "could not check whether runs were cancelled");
        }
    }
}

/// The claims after `after` that have lasted for a while. Most runs end before they are checked.
fn lasting(shared: &Shared, after: Option<RunId>) -> BTreeMap<RunId, OwnClaim> {
    let now = MonoTime::now();
    let lasts = |own: &OwnClaim| now.since(own.since) >= CANCEL_POLL_EVERY && !own.cancel.is_cancelled();
    let memory = shared.memory();
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let lasting = memory.claims().range((from, Bound::Unbounded)).filter(|(_, own)| lasts(own));
    lasting.take(CANCEL_POLL_MAX).map(|(run, own)| (*run, own.clone())).collect()
}
