//! Joins the cluster when the node starts.

use everytick_domain::ids::Incarnation;
use everytick_store::{Lease, NameOwner, NodeInfo, Result, StoreError, TakeOver};

use super::assign;
use crate::{
    Parts,
    clock::{DbClock, MonoTime},
    settings::{FAILURE_PAUSE, JOIN_RETRY_MAX, NAME_IN_USE_POLL},
};

/// Joins for the first time. Retries for 30 s while the database is busy or unreachable.
///
/// A live process with the same node name is not replaced. If that process ran on this host, the node checks whether it is
/// alive. Otherwise its lease decides: a live process renews it, a dead one lets it expire.
pub(crate) async fn join(parts: &Parts, incarnation: Incarnation, clock: &DbClock) -> Result<(Lease, MonoTime)> {
    let mut node = info(parts, true);
    let mut watched: Option<Box<NameOwner>> = None;
    let begun = MonoTime::now();
    loop {
        let sent = MonoTime::now();
        match parts.store.join(&node, incarnation, parts.settings.lease).await {
            Ok((lease, now)) => {
                clock.observe(sent, now);
                return Ok((lease, sent));
            }
            Err(StoreError::NodeNameTaken(owner)) => {
                let lives = owner.process.as_ref().and_then(parts.process_lives);
                if lives == Some(false) {
                    let pid = owner.process.as_ref().map(|process| process.pid);
                    tracing::info!(
                        node = owner.node,
                        pid,
                        "the previous process of this node has ended; taking over its lease"
                    );
                    node.takes_over = TakeOver::Only(owner.incarnation);
                    continue;
                }
                let renewed = watched.as_ref().is_some_and(|seen| seen.renewed_at != owner.renewed_at);
                if lives == Some(true) || renewed {
                    return Err(StoreError::NodeNameTaken(owner));
                }
                if watched.is_none() {
                    tracing::warn!("the node name is in use; waiting until its lease expires or is renewed: {owner}");
                }
                watched = Some(owner);
                tokio::time::sleep(NAME_IN_USE_POLL).await;
            }
            Err(error @ (StoreError::Failed { .. } | StoreError::Unsure { .. })) => {
                if MonoTime::now().since(begun) >= JOIN_RETRY_MAX {
                    return Err(error);
                }
                tracing::warn!(%error, "could not join the cluster yet; trying again");
                tokio::time::sleep(FAILURE_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// How a node describes itself when it joins.
pub(crate) fn info(parts: &Parts, may_own: bool) -> NodeInfo {
    let settings = &parts.settings;
    NodeInfo {
        can: Some(parts.target.capabilities().publish_with(&settings.roles)),
        listen: (!settings.listen.is_empty()).then(|| assign::listen_text(&settings.listen)),
        region: settings.region.clone(),
        may_own: settings.may_own && may_own,
        takes_over: if settings.replace_node { TakeOver::Any } else { TakeOver::Expired },
        process: settings.process.clone(),
        ..NodeInfo::named(&settings.node)
    }
}
