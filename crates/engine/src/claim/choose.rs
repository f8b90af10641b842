//! Starts waiting runs: retries, late runs, runs by request, and runs that found no free slot when they were recorded.

use std::{sync::Arc, time::Duration};

use everytick_domain::mutant::Mutant;
use everytick_store::{Busy, StoreError, WaitingRun};
use tokio::sync::RwLockReadGuard;

use super::{
    delegate::{self, TakeOver},
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
    let mut blocked_at = MonoTime::now();
    let mut delegated_at = None;
    while !shared.stopping() {
        if MonoTime::now().since(blocked_at) >= BLOCKED_RELOAD_EVERY {
            blocked_at = MonoTime::now();
            shared.memory().mark_blocked_stale();
            shared.wake_load.notify_one();
        }
        let wait = match pass(&shared, &mut pace, &mut delegated_at).await {
            Next::Now => continue,
            Next::After(wait) => wait.min(shared.parts.settings.look),
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
    let slots = shared.parts.settings.slots;
    let look = shared.parts.settings.look;
    // Another node delegates runs while it can deliver less than this one. What it delegated stays here after it has restarted
    // with the same settings, so the search continues then, but not in every pass: it costs a transaction.
    let searched = delegated_at.is_some_and(|at| MonoTime::now().since(at) < look);
    let waits = {
        let memory = shared.memory();
        memory.may_receive_runs() || memory.delegated_wait()
    };
    let mut search = waits || !searched;
    while search {
        let found = delegate::take_over(shared).await;
        match found {
            TakeOver::Searched => *delegated_at = Some(MonoTime::now()),
            TakeOver::NoSlot => shared.memory().no_slot_for_delegated(),
            TakeOver::Hidden => {}
            TakeOver::Failed => return Next::Pause,
        }
        search = found == TakeOver::Hidden;
    }
    let partitions = shared.partitions();
    if partitions.is_empty() {
        return Next::After(look);
    }
    let statement = pulse::excused(shared.statements.read()).await;
    let (busy, free, late_after) = {
        let mut memory = shared.memory();
        let blocked = memory.busy().into_iter().map(|job| Busy { job, full: false });
        let missing = memory.missing().map(|job| Busy { job, full: true }).collect::<Vec<_>>();
        let full = memory.full(slots).into_iter().map(|job| Busy { job, full: true });
        (blocked.chain(full).chain(missing).collect::<Vec<_>>(), memory.slots_free(slots), memory.late_after())
    };
    let lease = shared.lease();
    // Search even without a free slot, because a due run may supersede a run in progress.
    let limit = if free == 0 { PEEK_WITHOUT_SLOT_MAX } else { free.min(CLAIMS_PER_BATCH_MAX) };
    let sent = MonoTime::now();
    let asked = shared.parts.store.peek_waiting(&lease, &partitions, &busy, late_after, limit);
    let waiting = match shared.read("find waiting runs", asked).await {
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
        return Next::After(look);
    }
    let late = waiting.due.iter().any(|run| run.late);
    let budget = pace.budget(shared, late);
    let chosen = shared.memory().choose(&waiting, slots, budget);
    if shared.memory().has_wanted() {
        shared.wake_load.notify_one();
    }
    if chosen.is_empty() {
        // With budget left, late runs wait for a slot or for a run of their own job, whose end wakes this loop.
        let late_wait = if late && budget == 0 { pace.wait() } else { look };
        let next = waiting.next_due.map_or(look, |at| shared.clock.until(at).max(Duration::from_millis(1)));
        return Next::After(next.min(late_wait));
    }
    pace.spend(chosen.iter().filter(|run| run.late).count());
    let away = shared.memory().to_delegate(&chosen);
    if !away.is_empty() {
        return delegate::delegate(shared, statement, chosen, &away).await;
    }
    let ids: Vec<_> = chosen.iter().map(|run| run.id).collect();
    match shared.ask("claim runs", shared.parts.store.claim(&lease, &partitions, &ids)).await {
        Ok(claimed) => {
            let send = shared.memory().claimed(&chosen, claimed);
            for claimed in send {
                deliver::start(shared, claimed);
            }
            Next::Now
        }
        Err(error) => unclaimed(shared, statement, &chosen, &error).await,
    }
}

/// A statement about the chosen runs has failed or has an unknown outcome.
pub(super) async fn unclaimed(
    shared: &Arc<Shared>,
    statement: RwLockReadGuard<'_, ()>,
    chosen: &[WaitingRun],
    error: &StoreError,
) -> Next {
    let unsure = unsure::is(error) && !Mutant::MemoryKeptAfterUnsure.is_on();
    shared.memory().unclaimed(chosen, unsure);
    unsure::report(shared, error);
    drop(statement);
    if unsure {
        unsure::resolve(shared).await;
    }
    Next::Pause
}
