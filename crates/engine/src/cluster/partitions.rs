//! Acquires the partitions that are assigned to this node and releases those assigned to other nodes. Before a release is
//! written, the node stops planning the partition and its statements about it have ended.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use everytick_domain::{ids::Incarnation, mutant::Mutant, partition::PartitionSet};
use everytick_store::{Cluster, NodeRecord, Result};
use everytick_targets::Capabilities;
use metrics::{counter, gauge};

use super::{
    assign::{self, differences},
    compare, unsure,
};
use crate::{
    clock::MonoTime,
    pulse,
    schedule::raise,
    settings::{FAILURE_PAUSE, UNOWNED_MAX},
    shared::Shared,
};

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut seen = Seen::default();
    while !shared.stopping() {
        let wait = match pass(&shared, &mut seen).await {
            Ok(()) => shared.parts.settings.poll,
            Err(error) => {
                unsure::report(&shared, &error);
                FAILURE_PAUSE
            }
        };
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = shared.wake_partitions.notified() => {}
            () = shared.parts.hints.on_owners_changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// The findings of earlier passes.
#[derive(Default)]
struct Seen {
    /// Partitions without a live owner, and since when.
    free: BTreeMap<u16, MonoTime>,
    /// When this node last acquired partitions that are assigned to another node. For one lease after that it releases
    /// no partition for balance: the other node may be paused, and the partitions would again have no owner.
    fallback_at: Option<MonoTime>,
    /// The last reading of the cluster that required no change. Most readings are the same.
    unchanged: Option<Reading>,
    /// The last logged text about live nodes that differ in what they can deliver.
    differences: Option<String>,
    /// The addresses on which live nodes serve their API.
    listening: Vec<SocketAddr>,
}

#[derive(PartialEq, Eq)]
struct Reading {
    members: Vec<(Incarnation, Option<String>, bool)>,
    owners: Vec<(Option<Incarnation>, Option<String>)>,
    running: PartitionSet,
}

impl Reading {
    fn of(cluster: &Cluster, running: PartitionSet) -> Self {
        let living = cluster.nodes.iter().filter(|node| node.until > cluster.now);
        Self {
            members: living.map(|node| (node.incarnation, node.region.clone(), node.may_own)).collect(),
            owners: cluster.partitions.iter().map(|row| (row.owner, row.home_region.clone())).collect(),
            running,
        }
    }
}

async fn pass(shared: &Arc<Shared>, seen: &mut Seen) -> Result<()> {
    let _pass = pulse::pass();
    let sent = MonoTime::now();
    let cluster = shared.read("read the cluster", shared.parts.store.cluster()).await?;
    shared.clock.observe(sent, cluster.now);
    let (now, running) = (MonoTime::now(), shared.partitions());
    note_nodes(shared, &cluster, seen);
    let reading = Reading::of(&cluster, running);
    if seen.unchanged.as_ref() == Some(&reading) {
        return Ok(());
    }
    let abandoned = seen.free.iter().filter(|(_, since)| now.since(**since) >= UNOWNED_MAX);
    let abandoned = abandoned.map(|(partition, _)| *partition).collect();
    let lease = Duration::from(shared.parts.settings.lease);
    let balance = seen.fallback_at.is_none_or(|at| now.since(at) >= lease);
    let steps = assign::decide(&cluster, shared.incarnation, &running, &abandoned, balance);
    seen.free.retain(|partition, _| steps.free.contains(*partition));
    for partition in steps.free.iter() {
        seen.free.entry(partition).or_insert(now);
    }
    let is_unchanged = steps == assign::Steps::default() && balance;
    seen.unchanged = is_unchanged.then_some(reading);
    if !steps.lost.is_empty() {
        counter!("everytick_partitions_lost_total").increment(steps.lost.len() as u64);
        drop_partitions(shared, &steps.lost).await?;
    }
    if !steps.release.is_empty() {
        release(shared, &steps.release).await?;
    }
    if !steps.acquire.is_empty() {
        acquire(shared, &steps.acquire).await?;
        if !steps.fallback.is_empty() {
            seen.fallback_at = Some(now);
        }
    }
    gauge!("everytick_partitions_held").set(shared.partitions().len() as f64);
    shared.cluster_read.cancel();
    shared.wake_load.notify_one();
    Ok(())
}

/// Notes what the other nodes can deliver, and logs a warning if the nodes differ.
fn note_nodes(shared: &Shared, cluster: &Cluster, seen: &mut Seen) {
    let working = cluster.nodes.iter().filter(|node| node.until > cluster.now && node.may_own);
    let can = |node: &NodeRecord| Some((node.incarnation, Capabilities::read(node.can.as_deref()?)?));
    let others = working.filter(|node| node.incarnation != shared.incarnation).filter_map(can).collect();
    let alive: Vec<_> =
        cluster.nodes.iter().filter(|node| node.until > cluster.now).map(|node| node.incarnation).collect();
    // A node that is not back within two leases does not count as restarting.
    let restart_max = Duration::from(shared.parts.settings.lease) * 2;
    shared.memory().set_others(others, &alive, restart_max);
    let listening = assign::listening(cluster);
    if seen.listening != listening {
        shared.parts.target.forbid(listening.clone());
        seen.listening = listening;
    }
    let differences = differences(cluster);
    if differences != seen.differences {
        if let Some(text) = &differences {
            tracing::warn!(
                "the nodes differ in what they can deliver ({text}); give all of them the same --enable-shell and \
                 --allow-webhook-range"
            );
        }
        seen.differences = differences;
    }
}

async fn acquire(shared: &Arc<Shared>, wanted: &PartitionSet) -> Result<()> {
    let lease = shared.lease();
    // Checked after the lease was read: once `retire` has raised the fence, a statement under this lease is refused.
    if shared.stopping() {
        return Ok(());
    }
    let answer = shared.call("acquire partitions", shared.parts.store.acquire(&lease, wanted)).await;
    let acquired = resolve_if_unsure(shared, answer).await?;
    // If the lease was lost meanwhile, this node no longer owns these partitions.
    if shared.lease() == lease && !shared.stopping() {
        counter!("everytick_partitions_acquired_total").increment(acquired.len() as u64);
        tracing::info!(partitions = acquired.len(), "acquired partitions");
        shared.memory().add_partitions(&acquired);
    }
    Ok(())
}

async fn release(shared: &Arc<Shared>, partitions: &PartitionSet) -> Result<()> {
    let raises = drop_partitions(shared, partitions).await?;
    let lease = shared.lease();
    let answer = shared.call("release partitions", shared.parts.store.release(&lease, partitions)).await;
    resolve_if_unsure(shared, answer).await?;
    counter!("everytick_partitions_released_total").increment(partitions.len() as u64);
    tracing::info!(partitions = partitions.len(), "released partitions");
    raise::send(shared, &raises).await;
    Ok(())
}

/// A release with an unknown outcome may still take effect after this node has acquired the partition again. An
/// acquisition may take effect after a release. So the fence is raised before the next pass.
async fn resolve_if_unsure<T>(shared: &Arc<Shared>, answer: Result<T>) -> Result<T> {
    if let Err(error) = &answer
        && unsure::is(error)
        && !Mutant::ReleaseForgotten.is_on()
    {
        unsure::resolve(shared).await;
    }
    answer
}

/// Releases all partitions of a node that is about to stop; it acquires no more.
///
/// Retries until it succeeds or the node has stopped: while the node renews its lease, no other node takes its partitions.
pub(crate) async fn retire(shared: &Arc<Shared>) {
    let mut lagging = Vec::new();
    while !shared.stopped.is_cancelled() {
        match release_all(shared, &mut lagging).await {
            Ok(()) => return raise::send(shared, &lagging).await,
            Err(error) => tracing::warn!(%error, "could not release the partitions yet; trying again"),
        }
        tokio::select! {
            biased;
            () = shared.stopped.cancelled() => return,
            () = tokio::time::sleep(FAILURE_PAUSE) => {}
        }
    }
}

async fn release_all(shared: &Arc<Shared>, lagging: &mut Vec<everytick_store::Raise>) -> Result<()> {
    {
        let _quiet = pulse::untimed(shared.statements.write()).await;
        lagging.extend(shared.memory().remove_partitions(&PartitionSet::all(u16::MAX)));
        // The other loops may have sent statements that take effect later, such as an acquisition.
        if !Mutant::RetiredWhileUnsure.is_on() {
            unsure::raise_fence(shared).await?;
        }
    }
    compare::settle_unknown_claims(shared).await?;
    shared.call("release all partitions", shared.parts.store.retire(&shared.lease())).await
}

/// Removes the jobs of these partitions from memory, once no statement about them is in progress or may still take effect.
/// Returns the cursors that lag.
async fn drop_partitions(shared: &Arc<Shared>, partitions: &PartitionSet) -> Result<Vec<everytick_store::Raise>> {
    if Mutant::ReleasedDuringStatement.is_on() {
        return Ok(shared.memory().remove_partitions(partitions));
    }
    let _quiet = pulse::untimed(shared.statements.write()).await;
    // Another loop may have a statement with an unknown outcome and wait for this lock to resolve it. Resolve it here instead.
    if shared.unsure.load(Ordering::Relaxed) && !Mutant::ReleasedWhileUnsure.is_on() {
        unsure::raise_fence(shared).await?;
    }
    Ok(shared.memory().remove_partitions(partitions))
}
