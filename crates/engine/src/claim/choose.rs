//! Starts waiting runs: retries, late runs, runs by request, and runs that found no free slot when they were recorded.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use everytick_domain::{
    ids::{Incarnation, RunId},
    mutant::Mutant,
    recovery::{LateStarts, Rate},
};
use everytick_store::{Busy, ClaimedRun, StoreError, Supersede, WaitingRun};
use metrics::counter;
use tokio::sync::RwLockReadGuard;

use crate::{
    clock::MonoTime,
    cluster::unsure,
    dispatch::deliver,
    engine::Shared,
    memory::{Chosen, DelegatedRun},
    pulse,
    settings::{BLOCKED_LOOK_EVERY, CLAIMS_PER_BATCH_MAX, FAILURE_PAUSE, LOOK_WITHOUT_SLOT_MAX, RATE_ESTIMATED_EVERY},
};

/// When to make the next pass.
enum Next {
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
        if MonoTime::now().since(blocked_at) >= BLOCKED_LOOK_EVERY {
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
        let found = take_over(shared).await;
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
    let limit = if free == 0 { LOOK_WITHOUT_SLOT_MAX } else { free.min(CLAIMS_PER_BATCH_MAX) };
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
        return supersede(shared, statement, &older).await;
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
        let late_wait = if late && budget == 0 { pace.starts.wait(pace.rate) } else { look };
        let next = waiting.next_due.map_or(look, |at| shared.clock.until(at).max(Duration::from_millis(1)));
        return Next::After(next.min(late_wait));
    }
    pace.starts.spend(chosen.iter().filter(|run| run.late).count());
    let away = shared.memory().to_delegate(&chosen);
    if !away.is_empty() {
        return delegate(shared, statement, chosen, &away).await;
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

/// Delegates runs to nodes that can deliver them. The next pass follows at once and claims the runs that this node delivers
/// itself.
async fn delegate(
    shared: &Arc<Shared>,
    statement: RwLockReadGuard<'_, ()>,
    chosen: Vec<WaitingRun>,
    away: &[(RunId, Incarnation)],
) -> Next {
    let (asked, stay): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|run| away.iter().any(|(handed, _)| *handed == run.id));
    shared.memory().unclaimed(&stay, false);
    let (lease, partitions) = (shared.lease(), shared.partitions());
    match shared.ask("delegate runs to other nodes", shared.parts.store.delegate(&lease, &partitions, away)).await {
        Ok(handed) => {
            counter!("everytick_runs_delegated_total").increment(handed.len() as u64);
            shared.memory().delegated(&asked, &handed);
            Next::Now
        }
        Err(error) => unclaimed(shared, statement, &asked, &error).await,
    }
}

/// How a search for delegated runs ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TakeOver {
    Searched,
    /// Runs of jobs at their slot limit may hide runs of other jobs. The next search skips those jobs.
    Hidden,
    /// No slot is free, so the search was not made.
    NoSlot,
    /// The store failed.
    Failed,
}

/// Claims runs that other nodes have delegated to this one, within the same slot limits as its own runs.
async fn take_over(shared: &Arc<Shared>) -> TakeOver {
    let statement = pulse::excused(shared.statements.read()).await;
    let slots = shared.parts.settings.slots;
    let (free, full) = {
        let mut memory = shared.memory();
        (memory.slots_free(slots).min(CLAIMS_PER_BATCH_MAX), memory.full_delegated(slots))
    };
    if free == 0 {
        return TakeOver::NoSlot;
    }
    let (lease, store) = (shared.lease(), &shared.parts.store);
    let asked = store.peek_delegated(&lease, &full, free);
    let found = match shared.read("find delegated runs", asked).await {
        Ok(found) if found.is_empty() => return TakeOver::Searched,
        Ok(found) => found,
        Err(error) => {
            unsure::report(shared, &error);
            return TakeOver::Failed;
        }
    };
    let mut ids: Vec<_> = found.iter().map(|run| run.job).collect();
    ids.sort_unstable();
    ids.dedup();
    let jobs = match shared.read("load jobs", store.load_jobs(&ids)).await {
        Ok(jobs) => jobs,
        Err(error) => {
            unsure::report(shared, &error);
            return TakeOver::Failed;
        }
    };
    let jobs: BTreeMap<_, _> = jobs.into_iter().map(|loaded| (loaded.job.id, loaded.job)).collect();
    let more = found.len() >= free;
    let Chosen { runs: chosen, more_full } = shared.memory().choose_delegated(found, &jobs, slots);
    let ended = if more && more_full { TakeOver::Hidden } else { TakeOver::Searched };
    if chosen.is_empty() {
        return ended;
    }
    let ids: Vec<_> = chosen.iter().map(|run| run.id).collect();
    match shared.ask("claim runs", store.claim_delegated(&lease, &ids)).await {
        Ok(claimed) => {
            let taken = |run: ClaimedRun| {
                let due_at = chosen.iter().find(|asked| asked.id == run.id)?.due_at;
                Some(DelegatedRun { job: jobs.get(&run.job)?.clone(), due_at, run })
            };
            let taken = claimed.into_iter().filter_map(taken).collect();
            let send = shared.memory().delegated_claimed(&chosen, taken);
            for claimed in send {
                deliver::start(shared, claimed);
            }
            ended
        }
        Err(error) => {
            let unsure = unsure::is(&error) && !Mutant::MemoryKeptAfterUnsure.is_on();
            shared.memory().delegated_unclaimed(&chosen, unsure);
            unsure::report(shared, &error);
            drop(statement);
            if unsure {
                unsure::resolve(shared).await;
            }
            TakeOver::Failed
        }
    }
}

/// A statement about the chosen runs has failed or has an unknown outcome.
async fn unclaimed(
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

/// Cancels the runs that newer ones supersede. The newer runs start in a later pass.
async fn supersede(shared: &Arc<Shared>, statement: RwLockReadGuard<'_, ()>, older: &[Supersede]) -> Next {
    let lease = shared.lease();
    match shared.ask("cancel superseded runs", shared.parts.store.supersede(&lease, older)).await {
        Ok(cancelled) => {
            counter!("everytick_runs_total", "state" => "cancelled").increment(cancelled.len() as u64);
            shared.memory().superseded(older, &cancelled);
            shared.notify_flows();
            shared.wake_load.notify_one();
            Next::Now
        }
        Err(error) => {
            let unsure = unsure::is(&error) && !Mutant::MemoryKeptAfterUnsure.is_on();
            shared.memory().supersede_failed(older, unsure);
            unsure::report(shared, &error);
            drop(statement);
            if unsure {
                unsure::resolve(shared).await;
            }
            Next::Pause
        }
    }
}

/// How fast late runs start: no faster than the jobs in memory tick in normal times (I14).
struct Pace {
    starts: LateStarts,
    rate: Rate,
    earned: MonoTime,
    /// When the rate was last estimated.
    estimated: Option<MonoTime>,
}

impl Pace {
    fn new(now: MonoTime) -> Self {
        Self { starts: LateStarts::default(), rate: Rate::of_ticks(0), earned: now, estimated: None }
    }

    /// How many late runs may start now. The rate is estimated only if late runs wait.
    fn budget(&mut self, shared: &Shared, late: bool) -> usize {
        if Mutant::LateRateUnbounded.is_on() {
            return usize::MAX;
        }
        let now = MonoTime::now();
        if late && self.estimated.is_none_or(|at| now.since(at) >= RATE_ESTIMATED_EVERY) {
            let jobs = shared.memory().jobs();
            self.rate = Rate::normal(jobs.iter().map(AsRef::as_ref), shared.clock.now());
            self.estimated = Some(now);
        }
        self.starts.earn(now.since(self.earned), self.rate);
        self.earned = now;
        self.starts.budget()
    }
}
