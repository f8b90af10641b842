//! Removes what is older than the history that is kept, a little at a time.

use std::sync::Arc;

use super::unsure;
use crate::{
    engine::Shared,
    settings::{PRUNE_BATCH, PRUNE_EVERY},
};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = tokio::time::sleep(PRUNE_EVERY) => {}
        }
        pass(&shared).await;
    }
}

pub(crate) async fn pass(shared: &Arc<Shared>) {
    let before = shared.clock.now().minus(shared.parts.settings.history);
    loop {
        match shared.ask("prune", shared.parts.store.prune(before, PRUNE_BATCH)).await {
            Ok(pruned) if pruned.runs < PRUNE_BATCH as u64 => return,
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => {
                unsure::report(shared, &error);
                return;
            }
        }
    }
}
