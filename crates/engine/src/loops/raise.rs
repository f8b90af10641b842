//! Raises cursors behind the ticks that are known to be recorded: in the background, in batches, never before.

use std::sync::Arc;

use everytick_store::Raise;

use super::unsure;
use crate::{
    clock::MonoTime,
    engine::Shared,
    pulse,
    settings::{HORIZON, RAISE_LOOK_EVERY, RAISES_PER_LOOK_MAX, TICKS_PER_BATCH_MAX},
};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = tokio::time::sleep(RAISE_LOOK_EVERY) => {}
        }
        let _pass = pulse::pass();
        pass(&shared, false).await;
    }
}

/// Raises cursors of jobs that are no longer remembered.
pub(crate) async fn send(shared: &Arc<Shared>, raises: &[Raise]) {
    for part in raises.chunks(TICKS_PER_BATCH_MAX) {
        if let Err(error) = shared.ask("raise cursors", shared.parts.store.raise_cursors(part)).await {
            unsure::report(shared, &error);
            return;
        }
    }
}

/// Raises what has lagged long enough, or `all`. A failure costs nothing: a cursor that is too low is harmless.
pub(crate) async fn pass(shared: &Arc<Shared>, all: bool) {
    loop {
        // For many batches at once: whoever looks goes by all that lag and are not due yet, and holds the memory meanwhile.
        let (raises, turn) = {
            let memory = shared.memory();
            (memory.raises(MonoTime::now(), all, RAISES_PER_LOOK_MAX), memory.turn())
        };
        for part in raises.chunks(TICKS_PER_BATCH_MAX) {
            // Whoever has the partitions by then raises them too.
            if shared.stopped.is_cancelled() || shared.memory().turn() != turn {
                return;
            }
            match shared.ask("raise cursors", shared.parts.store.raise_cursors(part)).await {
                Ok(done) => {
                    let mut memory = shared.memory();
                    // What was taken up meanwhile was read meanwhile, and may be further on.
                    if memory.turn() == turn {
                        memory.raised(part, &done, shared.clock.now().plus(HORIZON));
                    }
                }
                Err(error) => {
                    unsure::report(shared, &error);
                    return;
                }
            }
            shared.wake_load.notify_one();
        }
        if raises.len() < RAISES_PER_LOOK_MAX {
            return;
        }
    }
}
