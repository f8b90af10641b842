//! Decides which node should own which partition: balanced first, then with the fewest moves. Safety does not depend on it.
//!
//! Partitions with the same home region form a kind; the same members may own them. Partitions are placed one by one, each
//! along the cheapest chain of moves. The costs are convex, so the result is a minimum-cost flow: no placement is cheaper.
//! Placing each partition on the least loaded member is not enough: a region's member may first have to give up a partition
//! without a home.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::Incarnation;

/// A live node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    pub incarnation: Incarnation,
    pub region: Option<String>,
}

/// One partition: its present owner (a live member, or none) and the home region of its jobs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    pub partition: u16,
    pub owner: Option<Incarnation>,
    pub home_region: Option<String>,
}

/// The owner of each partition. The result depends only on the arguments, not on their order, so every node computes the same
/// owners. Partitions with a home region go to its members while one of them is alive; any member may own the others.
#[must_use]
pub fn assign(members: &[Member], partitions: &[Partition]) -> BTreeMap<u16, Incarnation> {
    let members: BTreeMap<Incarnation, Option<&str>> =
        members.iter().map(|member| (member.incarnation, member.region.as_deref())).collect();
    if members.is_empty() {
        return BTreeMap::new();
    }
    let alive: BTreeSet<&str> = members.values().copied().flatten().collect();
    let mut kinds: BTreeMap<Option<&str>, BTreeMap<u16, Option<Incarnation>>> = BTreeMap::new();
    for Partition { partition, owner, home_region } in partitions {
        let home = home_region.as_deref().filter(|home| alive.contains(home));
        kinds.entry(home).or_default().insert(*partition, *owner);
    }
    let incarnations: Vec<Incarnation> = members.keys().copied().collect();
    let shares = Shares::balanced(
        kinds.iter().map(|(home, owners)| Kind::new(*home, owners, &members)).collect(),
        incarnations.len(),
    );

    let mut assigned = BTreeMap::new();
    for (owners, share) in kinds.values().zip(shares) {
        let mut free: BTreeMap<Incarnation, usize> = incarnations.iter().copied().zip(share).collect();
        let (mut kept, mut moving) = (BTreeMap::new(), Vec::new());
        for (partition, owner) in owners {
            match owner.and_then(|owner| Some((owner, free.get_mut(&owner)?))) {
                Some((owner, left)) if *left > 0 => {
                    *left -= 1;
                    kept.insert(*partition, owner);
                }
                _ => moving.push(*partition),
            }
        }
        let takers = free.into_iter().flat_map(|(member, left)| std::iter::repeat_n(member, left));
        assigned.extend(kept);
        assigned.extend(moving.into_iter().zip(takers));
    }
    assigned
}

/// The partitions with the same home region, which the same members may own.
struct Kind {
    count: usize,
    /// For each member: whether it may own partitions of this kind, and how many of them it owns now.
    eligible: Vec<bool>,
    owned: Vec<usize>,
}

impl Kind {
    fn new(
        home: Option<&str>,
        owners: &BTreeMap<u16, Option<Incarnation>>,
        members: &BTreeMap<Incarnation, Option<&str>>,
    ) -> Self {
        let owned = |member| owners.values().filter(|owner| **owner == Some(member)).count();
        Self {
            count: owners.len(),
            eligible: members.values().map(|region| home.is_none() || home == *region).collect(),
            owned: members.keys().map(|member| owned(*member)).collect(),
        }
    }
}

/// How many partitions of each kind each member gets, during placement.
struct Shares {
    kinds: Vec<Kind>,
    /// Indexed by kind, then by member.
    placed: Vec<Vec<usize>>,
    load: Vec<usize>,
    /// The weight of balance: larger than the cost of all moves together.
    balance: i64,
}

/// A way to give one more partition to a member: its cost, the kind of the partition, and the member that gives it up.
#[derive(Clone, Copy)]
struct Way {
    cost: i64,
    kind: usize,
    from: Option<usize>,
}

impl Shares {
    fn balanced(kinds: Vec<Kind>, members: usize) -> Vec<Vec<usize>> {
        let total: usize = kinds.iter().map(|kind| kind.count).sum();
        let placed = vec![vec![0; members]; kinds.len()];
        let mut shares = Self { kinds, placed, load: vec![0; members], balance: 2 * total as i64 + 1 };
        for kind in 0..shares.kinds.len() {
            for _ in 0..shares.kinds[kind].count {
                shares.place(kind);
            }
        }
        shares.placed
    }

    /// Places one partition of a kind along the cheapest chain of moves. The cost of imbalance is the sum of the squared loads.
    fn place(&mut self, kind: usize) {
        let ways = self.ways(kind);
        let cost = |member: usize| Some(ways[member]?.cost + self.balance * (2 * self.load[member] as i64 + 1));
        let cheapest = (0..ways.len()).filter_map(|member| Some((cost(member)?, member))).min();
        let Some((_, mut member)) = cheapest else { return };
        self.load[member] += 1;
        while let Some(way) = ways[member] {
            self.placed[way.kind][member] += 1;
            let Some(from) = way.from else { return };
            self.placed[way.kind][from] -= 1;
            member = from;
        }
    }

    /// The cheapest way to each member, by Bellman-Ford: undoing a move has a negative cost.
    fn ways(&self, kind: usize) -> Vec<Option<Way>> {
        let mut ways: Vec<Option<Way>> = vec![None; self.load.len()];
        self.reach(&mut ways, kind, 0, None);
        // No cheapest way has more steps than there are members.
        for _ in 0..ways.len() {
            let mut better = false;
            for kind in 0..self.kinds.len() {
                let passed_on = |member: usize| Some((ways[member]?.cost + self.removing(kind, member)?, member));
                if let Some((cost, from)) = (0..ways.len()).filter_map(passed_on).min() {
                    better |= self.reach(&mut ways, kind, cost, Some(from));
                }
            }
            if !better {
                break;
            }
        }
        ways
    }

    fn reach(&self, ways: &mut [Option<Way>], kind: usize, cost: i64, from: Option<usize>) -> bool {
        let mut better = false;
        for (member, way) in ways.iter_mut().enumerate() {
            let Some(added) = self.adding(kind, member) else { continue };
            let cost = cost + added;
            if way.is_none_or(|way| cost < way.cost) {
                *way = Some(Way { cost, kind, from });
                better = true;
            }
        }
        better
    }

    /// The cost of one more partition of a kind on a member: 0 up to the number that the member owns now, else 1 (a move).
    fn adding(&self, kind: usize, member: usize) -> Option<i64> {
        let Kind { eligible, owned, .. } = &self.kinds[kind];
        eligible[member].then(|| i64::from(self.placed[kind][member] >= owned[member]))
    }

    /// The cost of removing one partition: minus the cost of the partition that was added last.
    fn removing(&self, kind: usize, member: usize) -> Option<i64> {
        let placed = self.placed[kind][member];
        (placed > 0).then(|| -i64::from(placed > self.kinds[kind].owned[member]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const REGIONS: [Option<&str>; 4] = [None, Some("eu"), Some("us"), Some("ap")];

    fn node(n: usize) -> Incarnation {
        Incarnation::from_uuid(Uuid::from_u128(n as u128))
    }

    fn members(regions: &[usize]) -> Vec<Member> {
        let member =
            |(n, region): (usize, &usize)| Member { incarnation: node(n), region: REGIONS[*region].map(str::to_owned) };
        regions.iter().enumerate().map(member).collect()
    }

    /// Partitions by owner and home region. An owner is the number of a node. Without a member of that number, the
    /// owner is dead. From 90 on, the partition has no owner.
    fn partitions(owned: &[(usize, usize)]) -> Vec<Partition> {
        let one = |(partition, (owner, home)): (usize, &(usize, usize))| Partition {
            partition: partition as u16,
            owner: (*owner < 90).then(|| node(*owner)),
            home_region: REGIONS[*home].map(str::to_owned),
        };
        owned.iter().enumerate().map(one).collect()
    }

    fn may_own(members: &[Member], member: &Member, partition: &Partition) -> bool {
        let home = &partition.home_region;
        home.is_none() || member.region == *home || members.iter().all(|member| member.region != *home)
    }

    fn moves(members: &[Member], partitions: &[Partition], assigned: &BTreeMap<u16, Incarnation>) -> usize {
        let live = |owner: &Incarnation| members.iter().any(|member| member.incarnation == *owner);
        let moved = |partition: &&Partition| {
            partition.owner.filter(live).is_some_and(|owner| assigned[&partition.partition] != owner)
        };
        partitions.iter().filter(moved).count()
    }

    fn loads(members: &[Member], assigned: &BTreeMap<u16, Incarnation>) -> Vec<usize> {
        members.iter().map(|member| assigned.values().filter(|owner| **owner == member.incarnation).count()).collect()
    }

    /// The lowest cost over all allowed assignments: the sum of the squared loads, then the moves.
    fn least(members: &[Member], partitions: &[Partition]) -> (usize, usize) {
        let mut all = vec![BTreeMap::new()];
        for partition in partitions {
            let one_more = |assigned: &BTreeMap<u16, Incarnation>| {
                let takers = members.iter().filter(|member| may_own(members, member, partition));
                let with = |member: &Member| {
                    let mut assigned = assigned.clone();
                    assigned.insert(partition.partition, member.incarnation);
                    assigned
                };
                takers.map(with).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(one_more).collect();
        }
        all.iter().map(|assigned| cost(members, partitions, assigned)).min().unwrap()
    }

    fn cost(members: &[Member], partitions: &[Partition], assigned: &BTreeMap<u16, Incarnation>) -> (usize, usize) {
        (loads(members, assigned).iter().map(|load| load * load).sum(), moves(members, partitions, assigned))
    }

    proptest! {
        #[test]
        fn the_assignment_has_the_best_balance_and_then_the_fewest_moves(
            regions in prop::collection::vec(0..3_usize, 1..4),
            owned in prop::collection::vec((0..5_usize, 0..3_usize), 0..7),
        ) {
            let (members, partitions) = (members(&regions), partitions(&owned));
            let assigned = assign(&members, &partitions);
            prop_assert_eq!(cost(&members, &partitions, &assigned), least(&members, &partitions));
        }

        #[test]
        fn partitions_go_to_live_members_of_their_home_and_assigning_again_moves_nothing(
            regions in prop::collection::vec(0..4_usize, 1..12),
            owned in prop::collection::vec((0..14_usize, 0..4_usize), 0..100),
        ) {
            let (members, partitions) = (members(&regions), partitions(&owned));
            let assigned = assign(&members, &partitions);
            prop_assert!(assigned.keys().copied().eq(partitions.iter().map(|row| row.partition)));
            for partition in &partitions {
                let owner = members.iter().find(|member| member.incarnation == assigned[&partition.partition]);
                prop_assert!(may_own(&members, owner.unwrap(), partition));
            }
            let again: Vec<_> = partitions
                .iter()
                .map(|partition| Partition { owner: Some(assigned[&partition.partition]), ..partition.clone() })
                .collect();
            prop_assert_eq!(&assign(&members, &again), &assigned);
        }

        #[test]
        fn without_homes_loads_differ_by_at_most_one_and_moves_are_minimal(
            count in 1..20_usize,
            owned in prop::collection::vec(0..25_usize, 256),
        ) {
            let owned: Vec<_> = owned.into_iter().map(|owner| (owner, 0)).collect();
            let (members, partitions) = (members(&vec![0; count]), partitions(&owned));
            let assigned = assign(&members, &partitions);
            let loads = loads(&members, &assigned);
            prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);

            let mut before: Vec<_> =
                (0..count).map(|member| owned.iter().filter(|(owner, _)| *owner == member).count()).collect();
            before.sort_unstable_by(|a, b| b.cmp(a));
            let quota = |member: usize| 256 / count + usize::from(member < 256 % count);
            let least: usize =
                before.iter().enumerate().map(|(member, owned)| owned.saturating_sub(quota(member))).sum();
            prop_assert_eq!(moves(&members, &partitions, &assigned), least);
        }

        #[test]
        fn the_order_of_the_arguments_does_not_matter(
            (regions, shuffled) in prop::collection::vec(0..4_usize, 1..8)
                .prop_flat_map(|regions| (Just(regions.clone()), Just(members(&regions)).prop_shuffle())),
            (owned, mixed) in prop::collection::vec((0..9_usize, 0..4_usize), 0..60)
                .prop_flat_map(|owned| (Just(owned.clone()), Just(partitions(&owned)).prop_shuffle())),
        ) {
            prop_assert_eq!(assign(&members(&regions), &partitions(&owned)), assign(&shuffled, &mixed));
        }
    }

    #[test]
    fn without_live_members_nothing_is_assigned() {
        assert!(assign(&[], &partitions(&[(0, 0), (99, 1)])).is_empty());
    }

    #[test]
    fn a_region_releases_partitions_without_a_home_to_keep_its_own() {
        let (eu, us) = (1, 2);
        // Node 0 owns three partitions with home eu; node 1 owns two without a home, node 2 one.
        let owned = [(0, eu), (0, eu), (0, eu), (1, 0), (1, 0), (2, 0)];
        let members = members(&[eu, eu, us]);
        let assigned = assign(&members, &partitions(&owned));
        assert_eq!(loads(&members, &assigned), [2, 2, 2]);
        assert_eq!(moves(&members, &partitions(&owned), &assigned), 2);
    }

    #[test]
    fn a_joining_node_gets_its_share_and_nothing_else_moves() {
        let owned: Vec<_> = (0..256).map(|partition| (partition % 2, 0)).collect();
        let members = members(&[0, 0, 0]);
        let assigned = assign(&members, &partitions(&owned));
        assert_eq!(loads(&members, &assigned), [86, 85, 85]);
        assert_eq!(moves(&members, &partitions(&owned), &assigned), 85);
    }

    #[test]
    fn other_nodes_own_a_regions_partitions_while_none_of_its_nodes_is_alive() {
        let owned = [(99, 1), (99, 1), (0, 2), (0, 2)];
        let away = assign(&members(&[2]), &partitions(&owned));
        assert!(away.values().all(|owner| *owner == node(0)));
        let back = assign(&members(&[2, 1]), &partitions(&[(0, 1), (0, 1), (0, 2), (0, 2)]));
        assert_eq!(back.values().copied().collect::<Vec<_>>(), [node(1), node(1), node(0), node(0)]);
    }
}
