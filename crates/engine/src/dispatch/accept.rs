//! Transfers claims to receivers that accepted the work and report later (202, `everytick-async: true`), in groups like
//! settlements. After the commit the claims no longer depend on this node. If the node is killed before it, they are lost and
//! delivered again.

use std::sync::Arc;

use everytick_domain::{job::Overlap, time::DbTime};
use everytick_store::{AcceptedRun, SettleAnswer};
use tokio::sync::mpsc;

use crate::{
    clock::MonoTime,
    cluster::unsure,
    memory::OwnClaim,
    pulse,
    settings::{FAILURE_PAUSE, SETTLE_GROUP, SETTLES_PER_BATCH_MAX},
    settle::retry::{Queue, Unsettled},
    shared::Shared,
};

/// A claim whose receiver has accepted the work.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub own: OwnClaim,
    pub at: DbTime,
}

impl Accepted {
    fn run(&self) -> AcceptedRun {
        let spec = &self.own.job.spec;
        AcceptedRun {
            run: self.own.claim.run,
            fence: self.own.claim.fence,
            worker: spec.target.kind().to_owned(),
            timeout_at: self.at.plus(spec.timeout),
            previous: spec.overlap == Overlap::CancelPrevious,
        }
    }
}

pub(crate) async fn run(shared: Arc<Shared>, accepted: mpsc::UnboundedReceiver<Accepted>) {
    let (left, again) = mpsc::unbounded_channel();
    tokio::join!(send_new(&shared, accepted, left), send_again(&shared, again));
}

/// Sends each group once. What fails is retried concurrently with the groups that follow.
async fn send_new(
    shared: &Arc<Shared>,
    mut accepted: mpsc::UnboundedReceiver<Accepted>,
    left: mpsc::UnboundedSender<Left>,
) {
    loop {
        let first = tokio::select! {
            biased;
            first = accepted.recv() => first,
            () = shared.stopped.cancelled() => None,
        };
        let Some(first) = first else { return };
        let _pass = pulse::pass();
        tokio::time::sleep(SETTLE_GROUP).await;
        let mut group = vec![first];
        while group.len() < SETTLES_PER_BATCH_MAX
            && let Ok(next) = accepted.try_recv()
        {
            group.push(next);
        }
        let now = MonoTime::now();
        let rest = pass(shared, group.into_iter().map(|one| Unsettled::new(one, now)).collect()).await;
        if !rest.unsent.is_empty() {
            let _ = left.send(rest);
        }
    }
}

/// Retries the rest: a locked run after a growing delay, a failed group in halves until the failing run is found.
async fn send_again(shared: &Arc<Shared>, mut left: mpsc::UnboundedReceiver<Left>) {
    let mut queue = Queue::default();
    loop {
        let wait = queue.wait(MonoTime::now());
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            rest = left.recv() => match rest {
                Some(rest) => requeue(&mut queue, rest),
                None => return,
            },
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
        let group = queue.take(MonoTime::now(), |_| 0);
        if !group.is_empty() {
            let rest = pass(shared, group).await;
            let failed = rest.failed.is_some();
            requeue(&mut queue, rest);
            if failed {
                tokio::time::sleep(FAILURE_PAUSE).await;
            }
        }
    }
}

/// The part of a group that was not transferred.
struct Left {
    unsent: Vec<Unsettled<Accepted>>,
    /// The store failed on a group of this size.
    failed: Option<usize>,
}

fn requeue(queue: &mut Queue<Accepted>, rest: Left) {
    match rest.failed {
        Some(size) => queue.failed(size),
        None => queue.succeeded(),
    }
    queue.extend(rest.unsent);
}

/// Sends one group. Returns what has to be sent again: after an error the whole group, otherwise the runs that another session
/// has locked. A transfer that was committed without an answer is stale the second time; either way it is no longer a claim of
/// this node.
async fn pass(shared: &Arc<Shared>, mut group: Vec<Unsettled<Accepted>>) -> Left {
    let runs: Vec<_> = group.iter().map(|one| one.item.run()).collect();
    let lease = shared.lease();
    let asked = shared.parts.store.accept(&lease, &runs);
    let answers = match shared.ask("transfer claims to receivers", asked).await {
        Ok(answers) => answers,
        Err(error) => {
            unsure::report(shared, &error);
            let failed = Some(group.len());
            if let [alone] = &mut group[..] {
                alone.failed_alone(MonoTime::now());
            }
            return Left { unsent: group, failed };
        }
    };
    let mut unsent = Vec::new();
    let mut memory = shared.memory();
    for (mut one, answer) in group.into_iter().zip(answers) {
        if answer == SettleAnswer::Locked {
            one.postpone(MonoTime::now());
            unsent.push(one);
            continue;
        }
        let own = &one.item.own;
        memory.reported(own.job.id, own.claim.run, own.claim.fence);
    }
    drop(memory);
    shared.wake_load.notify_one();
    shared.wake_claim.notify_one();
    Left { unsent, failed: None }
}
