//! Raises cursors up to the last tick that is known to be recorded, in the background and in batches. A cursor is never raised
//! before the commit of its ticks is confirmed.

use std::sync::Arc;

use everytick_store::Raise;

use crate::{
    clock::MonoTime,
    cluster::unsure,
    pulse,
    settings::{HORIZON, RAISE_POLL_EVERY, RAISES_PER_PASS_MAX, TICKS_PER_BATCH_MAX},
    shared::Shared,
};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = tokio::time::sleep(RAISE_POLL_EVERY) => {}
        }
        let _pass = pulse::pass();
        pass(&shared).await;
    }
}

/// Raises cursors of jobs that are no longer in memory.
pub(crate) async fn send(shared: &Arc<Shared>, raises: &[Raise]) {
    for part in raises.chunks(TICKS_PER_BATCH_MAX) {
        if let Err(error) = shared.call("raise cursors", shared.parts.store.raise_cursors(part)).await {
            unsure::report(shared, &error);
            return;
        }
    }
}

/// Raises the cursors that have lagged long enough. A failure does no harm, because a cursor that is too low is safe.
async fn pass(shared: &Arc<Shared>) {
    loop {
        // Select cursors for many batches at once: the selection reads all lagging jobs, with memory locked.
        let (raises, partition_generation) = {
            let memory = shared.memory();
            (memory.raises(MonoTime::now(), RAISES_PER_PASS_MAX), memory.partition_generation())
        };
        for part in raises.chunks(TICKS_PER_BATCH_MAX) {
            // The partitions have changed. Their new owner raises these cursors too.
            if shared.stopped.is_cancelled() || shared.memory().partition_generation() != partition_generation {
                return;
            }
            match shared.call("raise cursors", shared.parts.store.raise_cursors(part)).await {
                Ok(done) => {
                    let mut memory = shared.memory();
                    // If the partitions have changed, the jobs were loaded again, perhaps with a higher cursor.
                    if memory.partition_generation() == partition_generation {
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
        if raises.len() < RAISES_PER_PASS_MAX {
            return;
        }
    }
}
