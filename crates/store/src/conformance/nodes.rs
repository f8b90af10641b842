//! The lease of a node: joining, renewing, fencing and leaving.

use everytick_domain::{ids::RunId, run::Verdict, time::Span};

use super::{Bench, START, TTL, incarnation, overlapping, pause, s, spec};
use crate::{Beat, Lease, NodeInfo, NodeProcess, StoreError, TakeOver};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_nodes {
    ($open:path) => {
        $crate::conformance_group! { $open, nodes:
            the_store_uses_the_given_clock,
            a_renewal_records_the_status_of_the_node,
            a_lease_is_valid_until_it_expires,
            a_renewal_extends_the_lease,
            an_expired_lease_cannot_be_renewed,
            a_new_incarnation_has_a_higher_fence_and_ends_the_old_one,
            after_raising_the_fence_the_old_fence_is_rejected,
            the_fence_of_a_lost_lease_cannot_be_raised,
            only_the_node_and_incarnation_of_a_lease_can_raise_its_fence,
            a_node_that_left_has_no_lease,
            lease_fences_increase_even_when_the_clock_goes_back,
            the_cluster_lists_nodes_with_their_join_and_renewal_data,
            a_node_that_left_or_was_replaced_is_not_listed,
            a_node_is_listed_as_gone_for_a_day_unless_it_returns,
            nodes_that_are_gone_for_a_day_are_removed,
            a_gone_node_has_its_last_start_although_an_older_lease_is_removed_later,
            the_jobs_of_each_partition_are_counted,
        }
    };
}

pub(super) async fn lives(bench: &Bench, lease: &Lease) -> bool {
    match bench.store.peek_waiting(lease, &bench.all(), &[], None, 1).await {
        Ok(_) => true,
        Err(StoreError::LeaseLost) => false,
        Err(error) => panic!("{error}"),
    }
}

/// A node that may replace a live process of the same name.
pub(super) fn replacing(name: &str) -> NodeInfo {
    NodeInfo { takes_over: TakeOver::Any, ..NodeInfo::named(name) }
}

pub async fn the_store_uses_the_given_clock(bench: &Bench) {
    assert_eq!(bench.store.now().await.unwrap(), START);
    bench.go(5);
    assert_eq!(bench.store.now().await.unwrap(), s(5));
    assert_eq!(bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap().1, s(5));
}

pub async fn a_lease_is_valid_until_it_expires(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    bench.go(14);
    assert!(lives(bench, &lease).await);
    bench.go(15);
    assert!(!lives(bench, &lease).await);
}

pub async fn a_renewal_extends_the_lease(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    bench.go(10);
    assert_eq!(bench.store.renew(&lease, TTL, &Beat::of(RunId::floor(START))).await.unwrap(), s(10));
    bench.go(24);
    assert!(lives(bench, &lease).await);
    bench.go(25);
    assert!(!lives(bench, &lease).await);
}

pub async fn an_expired_lease_cannot_be_renewed(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    bench.go(15);
    let renewed = bench.store.renew(&lease, TTL, &Beat::of(RunId::floor(START))).await;
    assert!(matches!(renewed, Err(StoreError::LeaseLost)), "{renewed:?}");
    assert!(!lives(bench, &lease).await);
}

pub async fn a_new_incarnation_has_a_higher_fence_and_ends_the_old_one(bench: &Bench) {
    let old = bench.join("a", 1).await;
    let new = bench.join("a", 2).await;
    assert!(new.fence > old.fence);
    assert!(!lives(bench, &old).await);
    assert!(lives(bench, &new).await);
    let mixed = Lease { incarnation: old.incarnation, ..new };
    assert!(!lives(bench, &mixed).await);
}

pub async fn after_raising_the_fence_the_old_fence_is_rejected(bench: &Bench) {
    let old = bench.join("a", 1).await;
    let new = bench.store.raise_fence(&old).await.unwrap();
    assert!(new.fence > old.fence);
    assert_eq!((&new.node, new.incarnation), (&old.node, old.incarnation));
    assert!(!lives(bench, &old).await);
    assert!(lives(bench, &new).await);
    // The old fence cannot be raised again: the caller does not know the present state of the lease.
    assert!(matches!(bench.store.raise_fence(&old).await, Err(StoreError::LeaseLost)));
    assert!(lives(bench, &new).await);
}

pub async fn the_fence_of_a_lost_lease_cannot_be_raised(bench: &Bench) {
    let old = bench.join("a", 1).await;
    bench.join("a", 2).await;
    let raised = bench.store.raise_fence(&old).await;
    assert!(matches!(raised, Err(StoreError::LeaseLost)), "{raised:?}");
    let (expired, _) = bench.store.join(&replacing("a"), incarnation(3), TTL).await.unwrap();
    bench.go(15);
    let raised = bench.store.raise_fence(&expired).await;
    assert!(matches!(raised, Err(StoreError::LeaseLost)), "{raised:?}");
}

pub async fn only_the_node_and_incarnation_of_a_lease_can_raise_its_fence(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let other = Lease { incarnation: incarnation(9), ..lease.clone() };
    assert!(matches!(bench.store.raise_fence(&other).await, Err(StoreError::LeaseLost)));
    let other = Lease { node: "b".into(), ..lease.clone() };
    assert!(matches!(bench.store.raise_fence(&other).await, Err(StoreError::LeaseLost)));
    assert!(lives(bench, &lease).await);
}

pub async fn a_node_that_left_has_no_lease(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.store.leave(&lease).await.unwrap();
    assert!(!lives(bench, &lease).await);
}

pub async fn lease_fences_increase_even_when_the_clock_goes_back(bench: &Bench) {
    let first = bench.join("a", 1).await;
    bench.go(-3_600);
    let raised = bench.store.raise_fence(&first).await.unwrap();
    let second = bench.join("a", 2).await;
    assert!(first.fence < raised.fence && raised.fence < second.fence);
}

pub async fn the_cluster_lists_nodes_with_their_join_and_renewal_data(bench: &Bench) {
    let process = NodeProcess { host: "h1".into(), pid: 42, mark: "boot 7".into() };
    let info = NodeInfo {
        region: Some("north".into()),
        version: "1.2.3".into(),
        process: Some(process.clone()),
        can: Some("{}".into()),
        ..NodeInfo::named("a")
    };
    let (lease, _) = bench.store.join(&info, incarnation(1), TTL).await.unwrap();
    bench.go(5);
    bench.store.renew(&lease, TTL, &Beat::of(RunId::floor(START))).await.unwrap();
    bench.go(6);
    let cluster = bench.store.cluster().await.unwrap();
    assert_eq!((cluster.now, cluster.partitions.len()), (s(6), usize::from(bench.store.partitions())));
    let [node] = &cluster.nodes[..] else { panic!("{cluster:?}") };
    assert_eq!((node.name.as_str(), node.region.as_deref(), node.version.as_str()), ("a", Some("north"), "1.2.3"));
    assert_eq!((node.incarnation, node.fence), (lease.incarnation, lease.fence));
    assert_eq!((node.started_at, node.renewed_at, node.until), (START, s(5), s(20)));
    assert_eq!((&node.process, node.can.as_deref()), (&Some(process), Some("{}")));
}

pub async fn a_node_that_left_or_was_replaced_is_not_listed(bench: &Bench) {
    let shown =
        async || bench.store.cluster().await.unwrap().nodes.iter().map(|node| node.incarnation).collect::<Vec<_>>();
    bench.join("a", 1).await;
    let new = bench.join("a", 2).await;
    assert_eq!(shown().await, [incarnation(2)]);
    bench.store.leave(&new).await.unwrap();
    assert_eq!(shown().await, []);
}

pub async fn a_renewal_records_the_status_of_the_node(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let beat = Beat { lag: Span::millis(250), clock_offset_ms: -9_000, ..Beat::of(RunId::floor(START)) };
    bench.store.renew(&lease, TTL, &beat).await.unwrap();
    let node = bench.store.cluster().await.unwrap().nodes.remove(0);
    assert_eq!((node.lag, node.clock_offset_ms, node.may_own), (Span::millis(250), -9_000, true));
    assert!(matches!(
        bench.store.retire(&Lease { fence: Default::default(), ..lease }).await,
        Err(StoreError::LeaseLost)
    ));
}

pub async fn a_node_is_listed_as_gone_for_a_day_unless_it_returns(bench: &Bench) {
    let gone = async || {
        let gone = bench.store.load_gone_nodes().await.unwrap();
        gone.into_iter().map(|node| (node.name, node.gone_since)).collect::<Vec<_>>()
    };
    let info = NodeInfo { region: Some("north".into()), can: Some("{}".into()), ..NodeInfo::named("a") };
    let (lease, _) = bench.store.join(&info, incarnation(1), TTL).await.unwrap();
    bench.go(5);
    bench.store.renew(&lease, TTL, &Beat::of(RunId::floor(START))).await.unwrap();
    assert_eq!(gone().await, []);
    bench.go(60);
    // The lease expired, and the next node fences it and removes it.
    let other = bench.join("b", 2).await;
    let expected = [("a".to_owned(), s(5))];
    for _ in 0..2 {
        bench.store.load_lost(&other, 10).await.unwrap();
        assert_eq!(gone().await, expected);
    }
    let node = bench.store.load_gone_nodes().await.unwrap().remove(0);
    assert_eq!((node.region.as_deref(), node.can.as_deref(), node.started_at), (Some("north"), Some("{}"), START));
    bench.go(61);
    let back = bench.join("a", 3).await;
    let seen: Vec<_> = gone().await.into_iter().map(|(name, _)| name).collect();
    assert!(!seen.contains(&"a".to_owned()), "{seen:?}");
    bench.store.leave(&back).await.unwrap();
    bench.go(62);
    let last = bench.join("c", 4).await;
    bench.store.load_lost(&last, 10).await.unwrap();
    assert!(gone().await.contains(&("a".to_owned(), s(61))), "the last start counts: {:?}", gone().await);
    bench.go(24 * 3_600 + 61);
    assert!(gone().await.contains(&("a".to_owned(), s(61))));
    bench.go(24 * 3_600 + 62);
    assert!(!gone().await.iter().any(|(name, _)| name == "a"), "after a day: {:?}", gone().await);
}

pub async fn nodes_that_are_gone_for_a_day_are_removed(bench: &Bench) {
    for (name, n, at) in [("a", 1, 0), ("b", 2, 60), ("c", 3, 2 * 24 * 3_600)] {
        bench.go(at);
        let lease = bench.join(name, n).await;
        bench.store.renew(&lease, TTL, &Beat::of(RunId::floor(s(at)))).await.unwrap();
        for _ in 0..2 {
            bench.store.load_lost(&lease, 10).await.unwrap();
        }
    }
    // Back in time, a row that was not removed would be listed again.
    bench.go(100);
    let gone: Vec<_> = bench.store.load_gone_nodes().await.unwrap().into_iter().map(|node| node.name).collect();
    assert!(!gone.contains(&"a".to_owned()), "{gone:?}");
}

pub async fn a_gone_node_has_its_last_start_although_an_older_lease_is_removed_later(bench: &Bench) {
    let (first, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(20);
    let claim = bench.claimed(&first, &job, 10).await;
    bench.go(60);
    let second = bench.join("a", 2).await;
    bench.store.leave(&second).await.unwrap();
    bench.go(70);
    let other = bench.join("b", 3).await;
    // The open claim keeps the first lease until it is settled. The second lease is removed at once.
    for _ in 0..2 {
        assert_eq!(bench.store.load_lost(&other, 10).await.unwrap().len(), 1);
    }
    bench.settle(&claim, Verdict::Failed).await;
    for _ in 0..2 {
        assert_eq!(bench.store.load_lost(&other, 10).await.unwrap(), []);
    }
    let gone = bench.store.load_gone_nodes().await.unwrap();
    let gone: Vec<_> = gone.into_iter().map(|node| (node.name, node.started_at, node.gone_since)).collect();
    assert_eq!(gone, [("a".to_owned(), s(60), s(60))]);
}

pub async fn the_jobs_of_each_partition_are_counted(bench: &Bench) {
    let mut expected = std::collections::BTreeMap::<u16, u64>::new();
    for name in ["a", "b", "c"] {
        *expected.entry(bench.create(spec(name)).await.partition).or_default() += 1;
    }
    let paused = bench.create(spec("paused")).await;
    bench.edit("paused", pause()).await;
    let counted = bench.store.count_jobs().await.unwrap();
    assert_eq!(counted.len(), usize::from(bench.store.partitions()));
    assert!(counted.contains_key(&paused.partition));
    let counted: std::collections::BTreeMap<u16, u64> = counted.into_iter().filter(|(_, jobs)| *jobs > 0).collect();
    assert_eq!(counted, expected, "a paused job has no next tick");
}
