//! Sends a claimed run to its target and passes the outcome to the settle loop. It stores nothing.

use std::{
    net::IpAddr,
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::Ordering},
};

use everytick_domain::{
    access::RunClaim,
    mutant::Mutant,
    run::Claim,
    target::{Outcome, Retry},
    time::DbTime,
};
use everytick_store::ClaimedRun;
use everytick_targets::{Dispatch, LiveOutput, Needs, Secrets, Stream, needs};
use futures::FutureExt as _;

use super::{accept::Accepted, secrets, tenant};
use crate::{
    live::LiveLog,
    memory::{Claimed, OwnClaim},
    mutants,
    settings::UNSENT_PAUSE,
    shared::Shared,
};

/// A claim with the outcome of its work. The work has ended or never began.
#[derive(Debug)]
pub(crate) struct Ended {
    pub own: OwnClaim,
    pub outcome: Outcome,
    pub started_at: Option<DbTime>,
    pub ended_at: DbTime,
}

/// Starts the work on a claim. Releases the claim unspent if the node is stopping or may have lost its lease.
pub(crate) fn start(shared: &Arc<Shared>, claimed: Claimed) {
    let now = shared.clock.now();
    // If the process was paused since the commit, it may have lost its lease, and another node may be about to deliver this run.
    if shared.stopping() || !shared.trusts_lease() {
        let ended = Ended { own: claimed.own, outcome: Outcome::Unsent, started_at: None, ended_at: now };
        let _ = shared.outcomes.send(ended);
        return;
    }
    let lag = now.since(claimed.due_at);
    shared.lag_ms.fetch_max(lag.as_millis(), Ordering::Relaxed);
    shared.meters.lag.record(std::time::Duration::from(lag).as_secs_f64());
    let task = shared.deliveries.track_future(deliver(shared.clone(), claimed, now));
    shared.parts.spawn.spawn(Box::pin(task));
}

async fn deliver(shared: Arc<Shared>, claimed: Claimed, started_at: DbTime) {
    let Claimed { run, own, delegated, .. } = claimed;
    shared.meters.in_progress.increment(1);
    let outcome = {
        let live = Live(shared.parts.live.open(run.id));
        match attempt(&shared, &run, &live, &own, started_at).await {
            Outcome::Accepted if Mutant::AcceptedStaysWithNode.is_on() => {
                mutants::wait_for_report(&shared, &own, started_at).await
            }
            outcome => Some(outcome),
        }
    };
    shared.meters.in_progress.decrement(1);
    match outcome {
        Some(Outcome::Accepted) => accepted(&shared, own),
        Some(outcome) => ended(&shared, own, delegated, started_at, outcome).await,
        None => {}
    }
}

/// Passes a claim to the accept loop: the receiver has accepted the work and will report later.
fn accepted(shared: &Shared, own: OwnClaim) {
    let has_slots = {
        let mut memory = shared.memory();
        memory.accepted(own.claim.run, own.claim.fence);
        memory.has_slots_again(shared.parts.settings.slots)
    };
    if has_slots {
        shared.wake_tick.notify_one();
    }
    shared.wake_claim.notify_one();
    let _ = shared.acceptances.send(Accepted { own, at: shared.clock.now() });
}

/// Passes the outcome of an attempt to the settle loop.
async fn ended(shared: &Shared, own: OwnClaim, delegated: bool, started_at: DbTime, outcome: Outcome) {
    // The node lacks file descriptors to send the run. The run keeps its slot for a moment; otherwise it would be claimed again
    // at once and fail again.
    if outcome == Outcome::Unsent {
        tokio::select! {
            () = shared.stopping.cancelled() => {}
            () = tokio::time::sleep(UNSENT_PAUSE) => {}
        }
    }
    let outcome = match outcome {
        // A stopping node does not cancel its runs: another node makes the next attempt.
        Outcome::Cancelled { .. } if shared.stopping() => Outcome::Lost,
        Outcome::NotHere { address, .. } if should_release(shared, &own, delegated, address) => Outcome::Unsent,
        outcome => outcome,
    };
    let started_at = (outcome != Outcome::Unsent).then_some(started_at);
    let now = shared.clock.now();
    let (begun, ended_at) = (started_at.unwrap_or(now), now.max(started_at.unwrap_or(now)));
    shared.meters.attempt(&own.job.spec.target, &outcome, ended_at.since(begun).into());
    let has_slots = {
        let mut memory = shared.memory();
        memory.outcome_arrived(own.job.id, own.claim.run, own.claim.fence);
        memory.has_slots_again(shared.parts.settings.slots)
    };
    if has_slots {
        shared.wake_tick.notify_one();
    }
    let _ = shared.outcomes.send(Ended { own, outcome, started_at, ended_at });
}

/// One attempt, with the secrets to which it refers, if the rules of the tenant permit it.
async fn attempt(shared: &Shared, run: &ClaimedRun, live: &Live, own: &OwnClaim, now: DbTime) -> Outcome {
    if let Err(outcome) = tenant::check(shared, &own.job).await {
        return outcome;
    }
    match secrets::resolve(shared, &own.job).await {
        Ok(resolved) => {
            let dispatch = dispatch(shared, run, own, now, resolved);
            secrets::scrubbed(&dispatch.secrets, send(shared, &dispatch, live, own).await)
        }
        Err(outcome) => outcome,
    }
}

/// Calls the target. A panic in a target fails the attempt like any other error. Without an outcome, the run would stay claimed and
/// use its slot until the process ends.
async fn send(shared: &Shared, dispatch: &Dispatch, live: &Live, own: &OwnClaim) -> Outcome {
    let delivered = shared.parts.target.deliver(dispatch, live, &own.cancel);
    AssertUnwindSafe(delivered).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(job = dispatch.job, run = %dispatch.run, "a delivery panicked");
        let error = "internal error: a panic in the delivery; see the log of the node".to_owned();
        Outcome::Failed { error, output: None, retry: Retry::Allowed }
    })
}

/// Whether to release a run unspent because the settings of this node forbid its delivery and another node can deliver
/// it.
///
/// - A node that is stopping, or has lost the partition since it claimed the run, does not know which nodes can deliver
///   the run. It releases the run, and the new owner decides.
/// - A run that was delegated to this node is not released: its owner would delegate it again.
fn should_release(shared: &Shared, own: &OwnClaim, delegated: bool, address: Option<IpAddr>) -> bool {
    if shared.stopping() {
        return true;
    }
    let needs = address.map(Needs::Address).or_else(|| needs(&own.job.spec.target));
    let owns = shared.partitions().contains(own.job.partition);
    let another_can = || needs.is_some_and(|needs| shared.memory().learn_needs(own.job.id, needs));
    !delegated && (!owns || another_can())
}

fn dispatch(shared: &Shared, run: &ClaimedRun, own: &OwnClaim, now: DbTime, secrets: Secrets) -> Dispatch {
    let Claim { fence, attempt, .. } = own.claim;
    let spec = &own.job.spec;
    // Only receivers of http deliveries can settle their runs over the API.
    let key = shared.parts.settings.run_key.as_ref().filter(|_| spec.target.kind() == "http");
    Dispatch {
        run: run.id,
        job_id: own.job.id,
        tenant: run.tenant,
        job: spec.name.clone(),
        cause: run.cause.word(),
        scheduled_at: run.scheduled_at,
        attempt,
        fence,
        node: shared.parts.settings.node.clone(),
        now,
        payload: run.payload.clone().or_else(|| spec.payload.clone()),
        timeout: spec.timeout,
        target: spec.target.clone(),
        run_token: key.map(|key| key.token(RunClaim { tenant: run.tenant, run: run.id, fence })),
        secrets,
    }
}

struct Live(LiveLog);

impl LiveOutput for Live {
    fn push(&self, _: Stream, chunk: &[u8]) {
        self.0.push(chunk);
    }
}
