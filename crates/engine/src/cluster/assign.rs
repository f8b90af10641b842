//! Decides which partitions a node acquires and which it releases, from one reading of the cluster. Safety does not depend on
//! this decision: the ledger stays correct whichever node records.

use std::{collections::BTreeMap, net::SocketAddr};

use everytick_domain::{
    assignment::{Member, Partition, assign},
    ids::Incarnation,
    partition::PartitionSet,
};
use everytick_store::{Cluster, NodeRecord};
use everytick_targets::Capabilities;

/// The changes of partition ownership to make now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Steps {
    /// This node runs these, but the database no longer names it as their owner: stop running them at once.
    pub lost: PartitionSet,
    /// This node owns these, but they are assigned to another node.
    pub release: PartitionSet,
    /// To acquire: these have no live owner, or this node owns them and does not run them yet.
    pub acquire: PartitionSet,
    /// The part of `acquire` that is assigned to another node. That node has not acquired it in time, so this node does.
    pub fallback: PartitionSet,
    /// Partitions without a live owner.
    pub free: PartitionSet,
}

/// `running`: partitions that this node runs. `abandoned`: partitions without an owner for so long that any node may acquire
/// them. `balance`: whether to release partitions to nodes that have fewer.
pub(crate) fn decide(
    cluster: &Cluster,
    me: Incarnation,
    running: &PartitionSet,
    abandoned: &PartitionSet,
    balance: bool,
) -> Steps {
    let alive = |incarnation: Incarnation| {
        cluster.nodes.iter().any(|node| node.incarnation == incarnation && node.until > cluster.now)
    };
    let members: Vec<_> = cluster
        .nodes
        .iter()
        .filter(|node| node.until > cluster.now && node.may_own)
        .map(|node| Member { incarnation: node.incarnation, region: node.region.clone() })
        .collect();
    let partitions: Vec<_> = cluster
        .partitions
        .iter()
        .map(|row| Partition {
            partition: row.partition,
            owner: row.owner.filter(|owner| alive(*owner)),
            home_region: row.home_region.clone(),
        })
        .collect();
    let assigned: BTreeMap<u16, Incarnation> = assign(&members, &partitions);
    let member = members.iter().any(|member| member.incarnation == me);
    let mut steps = Steps::default();
    for row in &partitions {
        let (partition, owned, free) = (row.partition, row.owner == Some(me), row.owner.is_none());
        let is_assigned = assigned.get(&partition) == Some(&me);
        if free {
            steps.free.insert(partition);
        }
        if !owned && running.contains(partition) {
            steps.lost.insert(partition);
        }
        if !member {
            continue;
        }
        let fallback = free && !is_assigned && abandoned.contains(partition);
        if owned && !is_assigned && balance {
            steps.release.insert(partition);
        } else if fallback || (free && is_assigned) || (owned && !running.contains(partition)) {
            steps.acquire.insert(partition);
        }
        if fallback {
            steps.fallback.insert(partition);
        }
    }
    steps
}

/// Addresses in the form that a lease stores.
pub(crate) fn listen_text(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The addresses on which live nodes serve their API.
pub(crate) fn listening(cluster: &Cluster) -> Vec<SocketAddr> {
    let living = cluster.nodes.iter().filter(|node| node.until > cluster.now);
    let texts = living.filter_map(|node| node.listen.as_deref()).flat_map(|text| text.split(','));
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// The capabilities of each live node that delivers runs, as text, if they differ; otherwise `None`. Leaves out nodes
/// of the previous release, which do not publish their capabilities.
#[must_use]
pub fn differences(cluster: &Cluster) -> Option<String> {
    let working = cluster.nodes.iter().filter(|node| node.until > cluster.now && node.may_own);
    let can = |node: &NodeRecord| Some((node.name.clone(), Capabilities::read(node.can.as_deref()?)?));
    let nodes: Vec<_> = working.filter_map(can).collect();
    let (_, first) = nodes.first()?;
    if nodes.iter().all(|(_, can)| can == first) {
        return None;
    }
    let words: Vec<_> = nodes.iter().map(|(name, can)| format!("{name}: {can}")).collect();
    Some(words.join("; "))
}

#[cfg(test)]
mod tests {
    use everytick_domain::{
        ids::Fence,
        time::{DbTime, Span},
    };
    use everytick_store::PartitionRecord;
    use uuid::Uuid;

    use super::*;

    fn id(n: u128) -> Incarnation {
        Incarnation::from_uuid(Uuid::from_u128(n))
    }

    const NOW: DbTime = DbTime::from_millis(100_000);

    fn node(n: u128, until_ms: i64, may_own: bool) -> NodeRecord {
        NodeRecord {
            name: format!("n{n}"),
            region: None,
            version: String::new(),
            incarnation: id(n),
            fence: Fence::default(),
            until: DbTime::from_millis(until_ms),
            started_at: NOW,
            renewed_at: NOW,
            may_own,
            lag: Span::ZERO,
            clock_offset_ms: 0,
            process: None,
            can: None,
            listen: None,
        }
    }

    /// A cluster of four partitions with these owners.
    fn cluster(nodes: Vec<NodeRecord>, owners: [Option<u128>; 4]) -> Cluster {
        let row = |(partition, owner): (u16, Option<u128>)| PartitionRecord {
            partition,
            owner: owner.map(id),
            fence: Fence::default(),
            since: NOW,
            home_region: None,
        };
        Cluster { now: NOW, nodes, partitions: (0..).zip(owners).map(row).collect(), row_level_security: false }
    }

    fn set(partitions: &[u16]) -> PartitionSet {
        partitions.iter().copied().collect()
    }

    fn steps(cluster: &Cluster, running: &[u16]) -> Steps {
        decide(cluster, id(1), &set(running), &PartitionSet::none(), true)
    }

    #[test]
    fn a_single_node_acquires_all_partitions_and_then_does_nothing() {
        let alone = |owners| cluster(vec![node(1, 110_000, true)], owners);
        assert_eq!(steps(&alone([None; 4]), &[]).acquire, set(&[0, 1, 2, 3]));
        let unchanged = Steps::default();
        assert_eq!(steps(&alone([Some(1); 4]), &[0, 1, 2, 3]), unchanged);
        // The node came back after it lost its lease: it acquires again what it owns and does not run.
        assert_eq!(steps(&alone([Some(1); 4]), &[0]).acquire, set(&[1, 2, 3]));
    }

    #[test]
    fn a_joining_node_acquires_its_share_after_the_owner_has_released_it() {
        let two = vec![node(1, 110_000, true), node(2, 110_000, true)];
        let full = cluster(two.clone(), [Some(1); 4]);
        let released = steps(&full, &[0, 1, 2, 3]).release;
        assert_eq!(released.len(), 2);
        let two_sees = decide(&full, id(2), &PartitionSet::none(), &PartitionSet::none(), true);
        assert_eq!(two_sees, Steps::default(), "a live node keeps its partitions until it releases them");
        assert!(decide(&full, id(1), &set(&[0, 1, 2, 3]), &PartitionSet::none(), false).release.is_empty());
        let freed = cluster(two, [Some(1), Some(1), None, None]);
        assert!(steps(&freed, &[0, 1]).acquire.is_empty());
        assert_eq!(decide(&freed, id(2), &PartitionSet::none(), &PartitionSet::none(), true).acquire, set(&[2, 3]));
    }

    #[test]
    fn expired_and_stopping_nodes_get_no_partitions_and_lose_theirs() {
        let dead = cluster(vec![node(1, 110_000, true), node(2, 100_000, true)], [Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!(steps(&dead, &[0, 1]).acquire, set(&[2, 3]));
        let stops = cluster(vec![node(1, 110_000, true), node(2, 110_000, false)], [Some(1), Some(1), None, None]);
        assert_eq!(steps(&stops, &[0, 1]).acquire, set(&[2, 3]));
        let we_stop = cluster(vec![node(1, 110_000, false)], [Some(1), None, None, None]);
        assert_eq!(steps(&we_stop, &[0]), Steps { free: set(&[1, 2, 3]), ..Steps::default() });
    }

    #[test]
    fn a_partition_that_another_node_has_acquired_is_dropped_at_once() {
        let taken = cluster(vec![node(1, 110_000, true), node(2, 110_000, true)], [Some(1), Some(2), Some(1), Some(2)]);
        assert_eq!(steps(&taken, &[0, 1, 2]).lost, set(&[1]));
    }

    #[test]
    fn any_node_acquires_a_partition_that_its_assigned_node_does_not_acquire() {
        let unowned = cluster(vec![node(1, 110_000, true), node(2, 110_000, true)], [Some(1), Some(1), None, None]);
        let steps = decide(&unowned, id(1), &set(&[0, 1]), &set(&[2, 3]), true);
        assert_eq!((steps.acquire, steps.fallback), (set(&[2, 3]), set(&[2, 3])));
    }
}
