//! Sends a claimed run to its target and passes the outcome on. Nothing is stored here.

use std::sync::{Arc, atomic::Ordering};

use everytick_domain::{run::Claim, target::Outcome, time::DbTime};
use everytick_store::ClaimedRun;
use everytick_targets::{Dispatch, LiveOutput, Stream};

use crate::{
    engine::Shared,
    live::LiveLog,
    memory::{Held, Planned},
};

/// A claim whose work has ended, or never began.
#[derive(Debug)]
pub(crate) struct Ended {
    pub held: Held,
    pub outcome: Outcome,
    pub started_at: Option<DbTime>,
    pub ended_at: DbTime,
}

/// Starts the work on a claim, or hands it back unspent when the node is stopping or its lease may be gone.
pub(crate) fn start(shared: &Arc<Shared>, planned: Planned) {
    let now = shared.clock.now();
    // A node that was stopped between the commit and here may have lost its lease: another may be about to deliver this.
    if shared.stopping() || !shared.trusts_lease() {
        let ended = Ended { held: planned.held, outcome: Outcome::Unsent, started_at: None, ended_at: now };
        let _ = shared.outcomes.send(ended);
        return;
    }
    let lag = now.since(planned.due_at);
    shared.lag_ms.fetch_max(lag.as_millis(), Ordering::Relaxed);
    shared.meters.lag.record(std::time::Duration::from(lag).as_secs_f64());
    let task = shared.deliveries.track_future(deliver(shared.clone(), planned, now));
    shared.parts.spawn.spawn(Box::pin(task));
}

async fn deliver(shared: Arc<Shared>, planned: Planned, started_at: DbTime) {
    let Planned { run, held, .. } = planned;
    shared.meters.in_progress.increment(1);
    let dispatch = dispatch(&shared, &run, &held, started_at);
    let outcome = {
        let live = Live(shared.parts.live.open(run.id));
        match shared.parts.target.deliver(&dispatch, &live, &held.cancel).await {
            Outcome::Accepted => {
                shared.memory().accepted(run.id);
                shared.wake_claim.notify_one();
                reported_later(&held).await
            }
            outcome => Some(outcome),
        }
    };
    shared.meters.in_progress.decrement(1);
    let Some(outcome) = outcome else {
        if shared.stopping() {
            let ended =
                Ended { held, outcome: Outcome::Lost, started_at: Some(started_at), ended_at: shared.clock.now() };
            let _ = shared.outcomes.send(ended);
        } else {
            shared.memory().reported(held.job.id, run.id, held.claim.fence);
            shared.wake_load.notify_one();
            shared.wake_claim.notify_one();
        }
        return;
    };
    // A node that stops does not cancel its runs: another attempt is due elsewhere.
    let outcome = match outcome {
        Outcome::Cancelled { .. } if shared.stopping() => Outcome::Lost,
        outcome => outcome,
    };
    let ended_at = shared.clock.now().max(started_at);
    shared.meters.attempt(&held.job.spec.target, &outcome, ended_at.since(started_at).into());
    let room = {
        let mut memory = shared.memory();
        memory.outcome_arrived(held.job.id, run.id);
        memory.has_room_again(shared.parts.settings.slots)
    };
    if room {
        shared.wake_tick.notify_one();
    }
    let _ = shared.outcomes.send(Ended { held, outcome, started_at: Some(started_at), ended_at });
}

/// The receiver reports through the settle call, which tells us to stop waiting: `None`. At the time-out the attempt has
/// failed.
async fn reported_later(held: &Held) -> Option<Outcome> {
    let timeout = held.job.spec.timeout;
    tokio::select! {
        biased;
        () = held.cancel.cancelled() => None,
        () = tokio::time::sleep(timeout.into()) => Some(Outcome::TimedOut { after: timeout, output: None }),
    }
}

fn dispatch(shared: &Shared, run: &ClaimedRun, held: &Held, now: DbTime) -> Dispatch {
    let Claim { fence, attempt, .. } = held.claim;
    let spec = &held.job.spec;
    Dispatch {
        run: run.id,
        job_id: held.job.id,
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
    }
}

struct Live(LiveLog);

impl LiveOutput for Live {
    fn push(&self, _: Stream, chunk: &[u8]) {
        self.0.push(chunk);
    }
}
