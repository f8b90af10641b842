//! Starts runs that wait: retries, late ones, those that people asked for, and those that found no free slot.

use std::{sync::Arc, time::Duration};

use everytick_domain::{
    mutant::Mutant,
    recovery::{LateStarts, Rate},
};
use everytick_store::GiveWay;
use metrics::counter;
use tokio::sync::RwLockReadGuard;

use super::{deliver, unsure};
use crate::{
    clock::MonoTime,
    engine::Shared,
    settings::{BLOCKED_LOOK_EVERY, CLAIMS_PER_BATCH_MAX, FAILURE_PAUSE, LOOK_WITHOUT_SLOT_MAX, RATE_ESTIMATED_EVERY},
};

/// When to look again.
enum Next {
    Now,
    After(Duration),
    /// The store failed.
    Pause,
}

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut pace = Pace::new(MonoTime::now());
    let mut blocked_at = MonoTime::now();
    while !shared.stopping() {
        if MonoTime::now().since(blocked_at) >= BLOCKED_LOOK_EVERY {
            blocked_at = MonoTime::now();
            shared.memory().doubt_blocked();
            shared.wake_load.notify_one();
        }
        let wait = match pass(&shared, &mut pace).await {
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

async fn pass(shared: &Arc<Shared>, pace: &mut Pace) -> Next {
    let slots = shared.parts.settings.slots;
    let look = shared.parts.settings.look;
    let partitions = shared.partitions();
    if partitions.is_empty() {
        return Next::After(look);
    }
    let statement = shared.statements.read().await;
    let (busy, free, late_after) = {
        let mut memory = shared.memory();
        (memory.busy(), memory.slots_free(slots), memory.late_turn())
    };
    let lease = shared.lease();
    // Without a slot we still look: somebody may have to give way.
    let limit = if free == 0 { LOOK_WITHOUT_SLOT_MAX } else { free.min(CLAIMS_PER_BATCH_MAX) };
    let sent = MonoTime::now();
    let asked = shared.parts.store.peek_waiting(&lease, &partitions, &busy, late_after, limit);
    let waiting = match shared.ask("look at what waits", asked).await {
        Ok(waiting) => waiting,
        Err(error) => {
            unsure::report(shared, &error);
            return Next::Pause;
        }
    };
    shared.clock.observe(sent, waiting.now);
    let given = shared.memory().giving_way(&waiting);
    if !given.is_empty() {
        return give_way(shared, statement, &given).await;
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
        // With a budget it is a slot or the job itself that late ones wait for: its end wakes us.
        let late_wait = if late && budget == 0 { pace.starts.wait(pace.rate) } else { look };
        let next = waiting.next_due.map_or(look, |at| shared.clock.until(at).max(Duration::from_millis(1)));
        return Next::After(next.min(late_wait));
    }
    pace.starts.spend(chosen.iter().filter(|run| run.late).count());
    let ids: Vec<_> = chosen.iter().map(|run| run.id).collect();
    match shared.ask("claim runs", shared.parts.store.claim(&lease, &partitions, &ids)).await {
        Ok(claimed) => {
            let send = shared.memory().claimed(&chosen, claimed);
            for planned in send {
                deliver::start(shared, planned);
            }
            Next::Now
        }
        Err(error) => {
            let unsure = unsure::is(&error) && !Mutant::MemoryKeptAfterUnsure.is_on();
            shared.memory().unclaimed(&chosen, unsure);
            unsure::report(shared, &error);
            drop(statement);
            if unsure {
                unsure::resolve(shared).await;
            }
            Next::Pause
        }
    }
}

/// Cancels the runs that give way to newer ones; those start at a later look.
async fn give_way(shared: &Arc<Shared>, statement: RwLockReadGuard<'_, ()>, given: &[GiveWay]) -> Next {
    let lease = shared.lease();
    match shared.ask("cancel runs that give way", shared.parts.store.give_way(&lease, given)).await {
        Ok(cancelled) => {
            counter!("everytick_runs_total", "state" => "cancelled").increment(cancelled.len() as u64);
            shared.memory().gave_way(given, &cancelled);
            shared.tell_steps();
            shared.wake_load.notify_one();
            Next::Now
        }
        Err(error) => {
            let unsure = unsure::is(&error) && !Mutant::MemoryKeptAfterUnsure.is_on();
            shared.memory().gave_no_way(given, unsure);
            unsure::report(shared, &error);
            drop(statement);
            if unsure {
                unsure::resolve(shared).await;
            }
            Next::Pause
        }
    }
}

/// How fast late runs are started: no faster than the jobs in memory tick in normal times (I14).
struct Pace {
    starts: LateStarts,
    rate: Rate,
    earned: MonoTime,
    /// When the rate was estimated last.
    estimated: Option<MonoTime>,
}

impl Pace {
    fn new(now: MonoTime) -> Self {
        Self { starts: LateStarts::default(), rate: Rate::of_ticks(0), earned: now, estimated: None }
    }

    /// How many late runs may start now. The jobs are only looked at where there is something to start.
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
