//! Removes what is older than the history that is kept, a little at a time.

use std::sync::Arc;

use everytick_store::Pruned;

use crate::{
    engine::Shared,
    settings::{PRUNE_BATCH, PRUNE_EVERY, PRUNE_FIRST},
};

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut wait = PRUNE_FIRST;
    loop {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        if shared.is_leader() {
            pass(&shared).await;
        }
        wait = PRUNE_EVERY;
    }
}

pub(crate) async fn pass(shared: &Arc<Shared>) {
    let before = shared.clock.now().minus(shared.parts.settings.history);
    loop {
        // Not asked within the time of a statement: days are dropped under limits of the store's own.
        match shared.parts.store.prune(before, PRUNE_BATCH).await {
            Ok(pruned) if pruned == Pruned::default() || shared.stopping() => return,
            Ok(_) => tokio::task::yield_now().await,
            // What it may have done makes no claims: nobody is in doubt.
            Err(error) => {
                tracing::warn!(%error, "pruning is tried again later");
                return;
            }
        }
    }
}
