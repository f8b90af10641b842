//! Deletes runs and audit rows that are older than the operator's settings, tokens that ended long ago, and sessions that have ended, in small
//! batches.

use std::sync::Arc;

use everytick_domain::time::DbTime;
use everytick_store::{ENDED_TOKENS_KEPT, Pruned};

use crate::{
    pulse,
    settings::{PRUNE_BATCH, PRUNE_EVERY, PRUNE_FIRST},
    shared::Shared,
};

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut wait = PRUNE_FIRST;
    loop {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let _pass = pulse::pass();
        if shared.is_leader() {
            pass(&shared).await;
        }
        wait = PRUNE_EVERY;
    }
}

pub(crate) async fn pass(shared: &Arc<Shared>) {
    let settings = &shared.parts.settings;
    let now = shared.clock.now();
    prune_runs(shared, now.minus(settings.history)).await;
    prune_audit(shared, now.minus(settings.audit_retention)).await;
    prune_tokens(shared, now.minus(ENDED_TOKENS_KEPT)).await;
    prune_sessions(shared).await;
}

async fn prune_runs(shared: &Shared, before: DbTime) {
    loop {
        // Without the statement timeout: the store drops whole days under its own limits.
        match pulse::untimed(shared.parts.store.prune(before, PRUNE_BATCH)).await {
            Ok(pruned) if pruned == Pruned::default() || shared.stopping() => return,
            Ok(_) => tokio::task::yield_now().await,
            // Pruning makes no claims, so a lost answer leaves nothing to resolve.
            Err(error) => {
                tracing::warn!(%error, "could not prune old runs; trying again later");
                return;
            }
        }
    }
}

async fn prune_audit(shared: &Shared, before: DbTime) {
    loop {
        match shared.call("prune the audit trail", shared.parts.store.prune_audit(before, PRUNE_BATCH)).await {
            Ok(0) => return,
            Ok(_) if shared.stopping() => return,
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => {
                tracing::warn!(%error, "could not prune the audit trail; trying again later");
                return;
            }
        }
    }
}

async fn prune_tokens(shared: &Shared, ended_before: DbTime) {
    loop {
        match shared.call("prune tokens", shared.parts.store.prune_tokens(ended_before, PRUNE_BATCH)).await {
            Ok(0) => return,
            Ok(_) if shared.stopping() => return,
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => {
                tracing::warn!(%error, "could not prune tokens; trying again later");
                return;
            }
        }
    }
}

async fn prune_sessions(shared: &Shared) {
    loop {
        match shared.call("prune sessions", shared.parts.store.prune_sessions(PRUNE_BATCH)).await {
            Ok(0) => return,
            Ok(_) if shared.stopping() => return,
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => {
                tracing::warn!(%error, "could not prune sessions; trying again later");
                return;
            }
        }
    }
}
