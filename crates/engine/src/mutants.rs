//! Code of named mutants ([`Mutant`]). The simulator must detect each of them. Without the feature `mutants` of the domain none
//! is on, and nothing here is executed.

use std::sync::Arc;

use everytick_domain::{mutant::Mutant, target::Outcome, time::DbTime};
use everytick_store::JobTicks;

use crate::{
    dispatch::deliver::{self, Ended},
    memory::OwnClaim,
    shared::Shared,
};

/// `DispatchBeforeCommit`: sends runs before the commit that records and claims them.
pub(crate) fn send_early(shared: &Arc<Shared>, batch: &[JobTicks]) {
    if !Mutant::DispatchBeforeCommit.is_on() {
        return;
    }
    let now = shared.clock.now();
    let claimed: Vec<_> = {
        let mut memory = shared.memory();
        let rows = batch.iter().flat_map(|ticks| ticks.rows.iter().map(|row| (ticks.job, row)));
        rows.filter(|(_, row)| row.born_claimed)
            .filter_map(|(job, row)| memory.claim_tick(job, &row.tick, now))
            .collect()
    };
    for claimed in claimed {
        deliver::start(shared, claimed);
    }
}

/// `AcceptedStaysWithNode`: the claim of an accepted run stays with this node. Returns `None` once the receiver has reported
/// through the settle call; after the timeout the attempt has failed.
pub(crate) async fn wait_for_report(shared: &Shared, own: &OwnClaim, started_at: DbTime) -> Option<Outcome> {
    let (job, run, fence) = (own.job.id, own.claim.run, own.claim.fence);
    shared.memory().accepted(run, fence);
    shared.wake_claim.notify_one();
    let timeout = own.job.spec.timeout;
    tokio::select! {
        biased;
        () = own.cancel.cancelled() => {}
        () = tokio::time::sleep(timeout.into()) => return Some(Outcome::TimedOut { after: timeout, output: None }),
    }
    if shared.stopping() {
        let (own, ended_at) = (own.clone(), shared.clock.now());
        let _ = shared.outcomes.send(Ended { own, outcome: Outcome::Lost, started_at: Some(started_at), ended_at });
    } else {
        shared.memory().reported(job, run, fence);
        shared.wake_load.notify_one();
        shared.wake_claim.notify_one();
    }
    None
}
