//! Which partitions to take and which to give back, decided from one look at the cluster. Nothing here carries safety: the
//! ledger does, whoever plays.

use std::{collections::BTreeMap, net::SocketAddr};

use everytick_domain::{
    assignment::{Member, Standing, assign},
    ids::Incarnation,
    partition::PartitionSet,
};
use everytick_store::{Cluster, NodeRecord};
use everytick_targets::Capabilities;

/// What to do about the partitions now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Steps {
    /// We played these, and another has them: let go at once.
    pub lost: PartitionSet,
    /// Ours on the record, and somebody else should have them.
    pub release: PartitionSet,
    /// To be ours: nobody alive holds them, or we do and do not play them yet.
    pub acquire: PartitionSet,
    /// Those of `acquire` that were meant for another, who does not come.
    pub hurried: PartitionSet,
    /// Those that nobody alive holds.
    pub free: PartitionSet,
}

/// `played` is what this node plays; `left` is what nobody has taken for so long that anybody may; `balance` is whether
/// partitions may be given up to others who have fewer.
pub(crate) fn decide(
    cluster: &Cluster,
    me: Incarnation,
    played: &PartitionSet,
    left: &PartitionSet,
    balance: bool,
) -> Steps {
    let alive = |incarnation: Incarnation| {
        cluster.nodes.iter().any(|node| node.incarnation == incarnation && node.until > cluster.now)
    };
    let members: Vec<_> = cluster
        .nodes
        .iter()
        .filter(|node| node.until > cluster.now && node.holds)
        .map(|node| Member { incarnation: node.incarnation, region: node.region.clone() })
        .collect();
    let standing: Vec<_> = cluster
        .partitions
        .iter()
        .map(|row| Standing {
            partition: row.partition,
            holder: row.holder.filter(|holder| alive(*holder)),
            home_region: row.home_region.clone(),
        })
        .collect();
    let assigned: BTreeMap<u16, Incarnation> = assign(&members, &standing);
    let member = members.iter().any(|member| member.incarnation == me);
    let mut steps = Steps::default();
    for row in &standing {
        let (partition, ours, free) = (row.partition, row.holder == Some(me), row.holder.is_none());
        let meant_for_us = assigned.get(&partition) == Some(&me);
        if free {
            steps.free.insert(partition);
        }
        if !ours && played.contains(partition) {
            steps.lost.insert(partition);
        }
        if !member {
            continue;
        }
        let hurried = free && !meant_for_us && left.contains(partition);
        if ours && !meant_for_us && balance {
            steps.release.insert(partition);
        } else if hurried || (free && meant_for_us) || (ours && !played.contains(partition)) {
            steps.acquire.insert(partition);
        }
        if hurried {
            steps.hurried.insert(partition);
        }
    }
    steps
}

/// Addresses, as a lease has them.
pub(crate) fn listen_text(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Where the living nodes answer their API.
pub(crate) fn listening(cluster: &Cluster) -> Vec<SocketAddr> {
    let living = cluster.nodes.iter().filter(|node| node.until > cluster.now);
    let texts = living.filter_map(|node| node.listen.as_deref()).flat_map(|text| text.split(','));
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// How the living nodes that deliver runs differ in what they can deliver; `None` when they do not. Nodes of the release before
/// do not say.
#[must_use]
pub fn differences(cluster: &Cluster) -> Option<String> {
    let working = cluster.nodes.iter().filter(|node| node.until > cluster.now && node.holds);
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

    fn node(n: u128, until_ms: i64, holds: bool) -> NodeRecord {
        NodeRecord {
            name: format!("n{n}"),
            region: None,
            version: String::new(),
            incarnation: id(n),
            fence: Fence::default(),
            until: DbTime::from_millis(until_ms),
            started_at: NOW,
            renewed_at: NOW,
            holds,
            lag: Span::ZERO,
            clock_offset_ms: 0,
            process: None,
            can: None,
            listen: None,
        }
    }

    /// Four partitions, by their holders.
    fn cluster(nodes: Vec<NodeRecord>, holders: [Option<u128>; 4]) -> Cluster {
        let row = |(partition, holder): (u16, Option<u128>)| PartitionRecord {
            partition,
            holder: holder.map(id),
            fence: Fence::default(),
            since: NOW,
            home_region: None,
        };
        Cluster { now: NOW, nodes, partitions: (0..).zip(holders).map(row).collect() }
    }

    fn set(partitions: &[u16]) -> PartitionSet {
        partitions.iter().copied().collect()
    }

    fn steps(cluster: &Cluster, played: &[u16]) -> Steps {
        decide(cluster, id(1), &set(played), &PartitionSet::none(), true)
    }

    #[test]
    fn a_node_alone_takes_all_and_then_rests() {
        let alone = |holders| cluster(vec![node(1, 110_000, true)], holders);
        assert_eq!(steps(&alone([None; 4]), &[]).acquire, set(&[0, 1, 2, 3]));
        let rests = Steps::default();
        assert_eq!(steps(&alone([Some(1); 4]), &[0, 1, 2, 3]), rests);
        // What is ours on the record and not played is taken up: we came back after our lease was lost.
        assert_eq!(steps(&alone([Some(1); 4]), &[0]).acquire, set(&[1, 2, 3]));
    }

    #[test]
    fn one_that_joins_is_given_its_share_and_takes_it_when_it_is_free() {
        let two = vec![node(1, 110_000, true), node(2, 110_000, true)];
        let full = cluster(two.clone(), [Some(1); 4]);
        let given = steps(&full, &[0, 1, 2, 3]).release;
        assert_eq!(given.len(), 2);
        let two_sees = decide(&full, id(2), &PartitionSet::none(), &PartitionSet::none(), true);
        assert_eq!(two_sees, Steps::default(), "nothing is taken from the living");
        assert!(decide(&full, id(1), &set(&[0, 1, 2, 3]), &PartitionSet::none(), false).release.is_empty());
        let freed = cluster(two, [Some(1), Some(1), None, None]);
        assert!(steps(&freed, &[0, 1]).acquire.is_empty());
        assert_eq!(decide(&freed, id(2), &PartitionSet::none(), &PartitionSet::none(), true).acquire, set(&[2, 3]));
    }

    #[test]
    fn the_dead_and_those_about_to_stop_get_nothing_and_lose_what_they_held() {
        let dead = cluster(vec![node(1, 110_000, true), node(2, 100_000, true)], [Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!(steps(&dead, &[0, 1]).acquire, set(&[2, 3]));
        let stops = cluster(vec![node(1, 110_000, true), node(2, 110_000, false)], [Some(1), Some(1), None, None]);
        assert_eq!(steps(&stops, &[0, 1]).acquire, set(&[2, 3]));
        let we_stop = cluster(vec![node(1, 110_000, false)], [Some(1), None, None, None]);
        assert_eq!(steps(&we_stop, &[0]), Steps { free: set(&[1, 2, 3]), ..Steps::default() });
    }

    #[test]
    fn what_another_has_taken_is_let_go_at_once() {
        let taken = cluster(vec![node(1, 110_000, true), node(2, 110_000, true)], [Some(1), Some(2), Some(1), Some(2)]);
        assert_eq!(steps(&taken, &[0, 1, 2]).lost, set(&[1]));
    }

    #[test]
    fn what_its_next_holder_leaves_lying_is_taken_by_anybody() {
        let lies = cluster(vec![node(1, 110_000, true), node(2, 110_000, true)], [Some(1), Some(1), None, None]);
        let taken = decide(&lies, id(1), &set(&[0, 1]), &set(&[2, 3]), true);
        assert_eq!((taken.acquire, taken.hurried), (set(&[2, 3]), set(&[2, 3])));
    }
}
