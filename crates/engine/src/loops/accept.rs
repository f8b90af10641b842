//! Hands claims over to the receivers that have taken the work and report later (202, `everytick-async: true`), in groups as settlements
//! are filed. From the commit on they live without this node. Until then a node that is killed loses them: they are delivered again.

use std::sync::Arc;

use everytick_domain::{job::Overlap, time::DbTime};
use everytick_store::{AcceptedRun, Result};
use tokio::sync::mpsc;

use super::unsure;
use crate::{
    engine::Shared,
    memory::Held,
    pulse,
    settings::{FAILURE_PAUSE, SETTLE_GROUP, SETTLES_PER_BATCH_MAX},
};

/// A claim whose receiver has taken the work.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub held: Held,
    pub at: DbTime,
}

impl Accepted {
    fn run(&self) -> AcceptedRun {
        let spec = &self.held.job.spec;
        AcceptedRun {
            run: self.held.claim.run,
            fence: self.held.claim.fence,
            worker: spec.target.kind().to_owned(),
            timeout_at: self.at.plus(spec.timeout),
            previous: spec.overlap == Overlap::CancelPrevious,
        }
    }
}

pub(crate) async fn run(shared: Arc<Shared>, mut accepted: mpsc::UnboundedReceiver<Accepted>) {
    // What could not be handed over yet, one by one.
    let mut left: Vec<Accepted> = Vec::new();
    loop {
        let first = tokio::select! {
            biased;
            first = accepted.recv() => first,
            () = shared.stopped.cancelled() => None,
            () = tokio::time::sleep(FAILURE_PAUSE), if !left.is_empty() => {
                left = send_each(&shared, std::mem::take(&mut left)).await;
                continue;
            }
        };
        let Some(first) = first else { return };
        tokio::time::sleep(SETTLE_GROUP).await;
        let mut group = vec![first];
        while group.len() < SETTLES_PER_BATCH_MAX
            && let Ok(next) = accepted.try_recv()
        {
            group.push(next);
        }
        if pass(&shared, &group).await.is_err() {
            left.extend(send_each(&shared, group).await);
        }
    }
}

/// One that cannot be handed over holds up no other. Gives those that were not.
async fn send_each(shared: &Arc<Shared>, group: Vec<Accepted>) -> Vec<Accepted> {
    let mut left = Vec::new();
    for one in group {
        if shared.stopped.is_cancelled() || pass(shared, std::slice::from_ref(&one)).await.is_err() {
            left.push(one);
        }
    }
    left
}

/// Sends one group. What was committed without an answer is stale the second time, and out of our hands all the same.
async fn pass(shared: &Arc<Shared>, group: &[Accepted]) -> Result<()> {
    let _pass = pulse::pass();
    let runs: Vec<_> = group.iter().map(Accepted::run).collect();
    let lease = shared.lease();
    if let Err(error) = shared.ask("hand claims over to receivers", shared.parts.store.accept(&lease, &runs)).await {
        unsure::report(shared, &error);
        return Err(error);
    }
    let mut memory = shared.memory();
    for Accepted { held, .. } in group {
        memory.reported(held.job.id, held.claim.run, held.claim.fence);
    }
    drop(memory);
    shared.wake_load.notify_one();
    shared.wake_claim.notify_one();
    Ok(())
}
