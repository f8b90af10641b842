//! Transfers claims to receivers that accepted the work and report later (202, `everytick-async: true`), in groups like
//! settlements. After the commit the claims no longer depend on this node. If the node is killed before the commit, the runs
//! are lost and delivered again.

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
    let (retry, to_retry) = mpsc::unbounded_channel();
    tokio::join!(send_new(&shared, accepted, retry), send_again(&shared, to_retry));
}

/// Sends each group once. Claims that were not transferred go to `retry`. They are retried concurrently with the groups
/// that follow.
async fn send_new(
    shared: &Arc<Shared>,
    mut accepted: mpsc::UnboundedReceiver<Accepted>,
    retry: mpsc::UnboundedSender<Remainder>,
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
            let _ = retry.send(rest);
        }
    }
}

/// Retries claims that were not transferred: a locked run after a growing delay, a failed group in halves until the
/// failing run is found.
async fn send_again(shared: &Arc<Shared>, mut to_retry: mpsc::UnboundedReceiver<Remainder>) {
    let mut queue = Queue::default();
    loop {
        let wait = queue.wait(MonoTime::now());
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            rest = to_retry.recv() => match rest {
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
struct Remainder {
    unsent: Vec<Unsettled<Accepted>>,
    /// The store failed on a group of this size.
    failed: Option<usize>,
}

fn requeue(queue: &mut Queue<Accepted>, rest: Remainder) {
    match rest.failed {
        Some(size) => queue.failed(size),
        None => queue.succeeded(),
    }
    queue.extend(rest.unsent);
}

/// Sends one group. Returns the claims that must be sent again: after an error the whole group, otherwise the runs that
/// another session has locked. If a transfer was committed but its answer was lost, the second transfer is answered as
/// stale. A transferred claim and a stale one no longer belong to this node.
async fn pass(shared: &Arc<Shared>, mut group: Vec<Unsettled<Accepted>>) -> Remainder {
    let runs: Vec<_> = group.iter().map(|one| one.item.run()).collect();
    let lease = shared.lease();
    let call = shared.parts.store.accept(&lease, &runs);
    let answers = match shared.call("transfer claims to receivers", call).await {
        Ok(answers) => answers,
        Err(error) => {
            unsure::report(shared, &error);
            let failed = Some(group.len());
            if let [alone] = &mut group[..] {
                alone.failed_alone(MonoTime::now());
            }
            return Remainder { unsent: group, failed };
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
    Remainder { unsent, failed: None }
}
