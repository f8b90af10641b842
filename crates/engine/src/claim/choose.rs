//! Starts waiting runs: retries, late runs, runs by request, and runs that found no free slot when they were recorded.

use std::{sync::Arc, time::Duration};

use everytick_domain::{mutant::Mutant, partition::PartitionSet};
use everytick_store::{Busy, Lease, StoreError, WaitingRun};
use tokio::sync::RwLockReadGuard;

use super::{
    delegate::{self, Search},
    pace::Pace,
    supersede,
};
use crate::{
    clock::MonoTime,
    cluster::unsure,
    dispatch::deliver,
    pulse,
    settings::{BLOCKED_RELOAD_EVERY, CLAIMS_PER_BATCH_MAX, FAILURE_PAUSE, PEEK_WITHOUT_SLOT_MAX},
    shared::Shared,
};

/// When to make the next pass.
pub(super) enum Next {
    Now,
    After(Duration),
    /// The store failed.
    Pause,
}

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut pace = Pace::new(MonoTime::now());
    let mut reloaded_at = MonoTime::now();
    let mut delegated_at = None;
    while !shared.stopping() {
        if MonoTime::now().since(reloaded_at) >= BLOCKED_RELOAD_EVERY {
            reloaded_at = MonoTime::now();
            shared.memory().mark_blocked_stale();
            shared.wake_load.notify_one();
        }
        let wait = match pass(&shared, &mut pace, &mut delegated_at).await {
            Next::Now => continue,
            Next::After(wait) => wait.min(shared.parts.settings.claim_poll),
            Next::Pause => FAILURE_PAUSE,
        };
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = shared.wake_claim.notified() => {}
            () = shared.parts.hints.on_run_waits() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// `delegated_at`: when this node last searched for runs that were delegated to it.
async fn pass(shared: &Arc<Shared>, pace: &mut Pace, delegated_at: &mut Option<MonoTime>) -> Next {
    let _pass = pulse::pass();
    if !search_delegated(shared, delegated_at).await {
        return Next::Pause;
    }
    let (slots, poll) = (shared.parts.settings.slots, shared.parts.settings.claim_poll);
    let partitions = shared.partitions();
    if partitions.is_empty() {
        return Next::After(poll);
    }
    let statement = pulse::untimed(shared.statements.read()).await;
    let (busy, free, late_after) = {
        let mut memory = shared.memory();
        let blocked = memory.blocked_jobs().into_iter().map(|job| Busy { job, full: false });
        let missing = memory.missing_jobs().map(|job| Busy { job, full: true }).collect::<Vec<_>>();
        let full = memory.jobs_at_slot_limit(slots).into_iter().map(|job| Busy { job, full: true });
        (blocked.chain(full).chain(missing).collect::<Vec<_>>(), memory.slots_free(slots), memory.late_after())
    };
    let lease = shared.lease();
    // Search even without a free slot, because a due run may supersede a run in progress.
    let limit = if free == 0 { PEEK_WITHOUT_SLOT_MAX } else { free.min(CLAIMS_PER_BATCH_MAX) };
    let sent = MonoTime::now();
    let call = shared.parts.store.peek_waiting(&lease, &partitions, &busy, late_after, limit);
    let waiting = match shared.read("find waiting runs", call).await {
        Ok(waiting) => waiting,
        Err(error) => {
            unsure::report(shared, &error);
            return Next::Pause;
        }
    };
    shared.clock.observe(sent, waiting.now);
    let older = shared.memory().choose_superseded(&waiting);
    if !older.is_empty() {
        return supersede::supersede(shared, statement, &older).await;
    }
    if free == 0 {
        shared.memory().no_slot(&waiting);
        return Next::After(poll);
    }
    let late = waiting.due.iter().any(|run| run.late);
    let budget = pace.budget(shared, late);
    let chosen = shared.memory().choose(&waiting, slots, budget);
    if shared.memory().has_wanted() {
        shared.wake_load.notify_one();
    }
    if chosen.is_empty() {
        // If budget is left, the late runs wait for a slot or for a run of their own job. The end of a run wakes this loop.
        let late_wait = if late && budget == 0 { pace.wait() } else { poll };
        let next = waiting.next_due.map_or(poll, |at| shared.clock.until(at).max(Duration::from_millis(1)));
        return Next::After(next.min(late_wait));
    }
    pace.spend(chosen.iter().filter(|run| run.late).count());
    let receivers = shared.memory().to_delegate(&chosen);
    if !receivers.is_empty() {
        return delegate::delegate(shared, statement, chosen, &receivers).await;
    }
    claim(shared, statement, &lease, &partitions, &chosen).await
}

/// Claims the runs that other nodes delegated to this one. Returns `false` if the store failed.
///
/// Such runs arrive while another live node can deliver less than this one. Without such a node, runs delegated earlier may
/// still wait here. So the search continues, but only once per poll interval, because it costs a transaction.
async fn search_delegated(shared: &Arc<Shared>, delegated_at: &mut Option<MonoTime>) -> bool {
    let poll = shared.parts.settings.claim_poll;
    let is_recent = delegated_at.is_some_and(|at| MonoTime::now().since(at) < poll);
    let expects_runs = {
        let memory = shared.memory();
        memory.may_receive_runs() || memory.delegated_wait()
    };
    let mut again = expects_runs || !is_recent;
    while again {
        let search = delegate::claim_delegated(shared).await;
        match search {
            Search::Done => *delegated_at = Some(MonoTime::now()),
            Search::NoSlot => shared.memory().no_slot_for_delegated(),
            Search::Hidden => {}
            Search::Failed => return false,
        }
        again = search == Search::Hidden;
    }
    true
}

/// Claims the chosen runs and starts their deliveries.
async fn claim(
    shared: &Arc<Shared>,
    statement: RwLockReadGuard<'_, ()>,
    lease: &Lease,
    partitions: &PartitionSet,
    chosen: &[WaitingRun],
) -> Next {
    let ids: Vec<_> = chosen.iter().map(|run| run.id).collect();
    match shared.call("claim runs", shared.parts.store.claim(lease, partitions, &ids)).await {
        Ok(claimed) => {
            let send = shared.memory().claimed(chosen, claimed);
            for claimed in send {
                deliver::start(shared, claimed);
            }
            Next::Now
        }
        Err(error) => claim_failed(shared, statement, chosen, &error).await,
    }
}

/// Handles a failed claim. The next search finds the chosen runs again; if the outcome is unknown, it is resolved
/// first.
pub(super) async fn claim_failed(
    shared: &Arc<Shared>,
    statement: RwLockReadGuard<'_, ()>,
    chosen: &[WaitingRun],
    error: &StoreError,
) -> Next {
    let unsure = unsure::is(error) && !Mutant::MemoryKeptAfterUnsure.is_on();
    shared.memory().not_claimed(chosen, unsure);
    unsure::report(shared, error);
    drop(statement);
    if unsure {
        unsure::resolve(shared).await;
    }
    Next::Pause
}
