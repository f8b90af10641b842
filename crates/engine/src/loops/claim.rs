//! Starts runs that wait: retries, late ones, those that people asked for, and those that found no free slot.

use std::{sync::Arc, time::Duration};

use everytick_domain::mutant::Mutant;

use super::{deliver, unsure};
use crate::{
    clock::MonoTime,
    engine::Shared,
    settings::{BLOCKED_LOOK_EVERY, CLAIMS_PER_BATCH_MAX, FAILURE_PAUSE, LATE_STARTS_PER_SECOND_MIN},
};

/// When to look again.
enum Next {
    Now,
    After(Duration),
    /// The store failed.
    Pause,
}

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut late = LateRate::new(MonoTime::now());
    let mut blocked_at = MonoTime::now();
    while !shared.stopping() {
        if MonoTime::now().since(blocked_at) >= BLOCKED_LOOK_EVERY {
            blocked_at = MonoTime::now();
            shared.memory().doubt_blocked();
            shared.wake_load.notify_one();
        }
        let wait = match pass(&shared, &mut late).await {
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

async fn pass(shared: &Arc<Shared>, late: &mut LateRate) -> Next {
    let slots = shared.parts.settings.slots;
    let look = shared.parts.settings.look;
    let partitions = shared.partitions();
    if partitions.is_empty() {
        return Next::After(look);
    }
    let statement = shared.statements.read().await;
    let (busy, free) = {
        let memory = shared.memory();
        (memory.busy(), memory.slots_free(slots))
    };
    let lease = shared.lease();
    let limit = free.clamp(1, CLAIMS_PER_BATCH_MAX);
    let sent = MonoTime::now();
    let asked = shared.parts.store.peek_waiting(&lease, &partitions, &busy, limit);
    let waiting = match shared.ask("look at what waits", asked).await {
        Ok(waiting) => waiting,
        Err(error) => {
            unsure::report(shared, &error);
            return Next::Pause;
        }
    };
    shared.clock.observe(sent, waiting.now);
    if free == 0 {
        shared.memory().no_slot(waiting.due.iter().any(|run| !run.late));
        return Next::After(look);
    }
    let chosen = shared.memory().choose(&waiting, slots, late.budget(MonoTime::now()));
    if shared.memory().has_wanted() {
        shared.wake_load.notify_one();
    }
    if chosen.is_empty() {
        let late_wait = if waiting.due.iter().any(|run| run.late) { late.wait() } else { look };
        let next = waiting.next_due.map_or(look, |at| shared.clock.until(at).max(Duration::from_millis(1)));
        return Next::After(next.min(late_wait));
    }
    late.spend(chosen.iter().filter(|run| run.late).count());
    let ids: Vec<_> = chosen.iter().map(|run| run.id).collect();
    match shared.ask("claim runs", shared.parts.store.claim(&lease, &ids)).await {
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

/// Late runs start at a bounded rate, so that a backlog does not fall upon its targets all at once (I14).
struct LateRate {
    tokens: f64,
    filled: MonoTime,
}

impl LateRate {
    fn new(now: MonoTime) -> Self {
        Self { tokens: LATE_STARTS_PER_SECOND_MIN, filled: now }
    }
    fn budget(&mut self, now: MonoTime) -> usize {
        let gained = now.since(self.filled).as_secs_f64() * LATE_STARTS_PER_SECOND_MIN;
        self.tokens = (self.tokens + gained).min(LATE_STARTS_PER_SECOND_MIN);
        self.filled = now;
        self.tokens as usize
    }
    fn spend(&mut self, count: usize) {
        self.tokens -= count as f64;
    }
    fn wait(&self) -> Duration {
        Duration::from_secs_f64(((1.0 - self.tokens).max(0.05)) / LATE_STARTS_PER_SECOND_MIN)
    }
}
