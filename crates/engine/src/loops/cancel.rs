//! Stops the work on runs that somebody else has ended.

use std::sync::Arc;

use crate::engine::Shared;

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let ended = tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            ended = shared.parts.hints.on_runs_ended() => ended,
        };
        for (job, run) in ended {
            shared.memory().ended_elsewhere(job, run);
        }
        shared.wake_load.notify_one();
    }
}
