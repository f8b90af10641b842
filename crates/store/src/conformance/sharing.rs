//! What is only true of a store that nodes share.

use everytick_domain::{ids::RunId, partition::PartitionSet, run::Verdict};

use super::{
    Bench, START, TTL, born, incarnation,
    nodes::lives,
    partitions::{only, record},
    s, spec, ticks,
};
use crate::{Beat, Lease, NodeInfo, RowAnswer, StoreError};

async fn two(bench: &Bench) -> (Lease, Lease) {
    (bench.join("a", 1).await, bench.join("b", 2).await)
}

/// A node whose lease ends after [`TTL`], and one whose lease does not.
async fn one_that_dies(bench: &Bench) -> (Lease, Lease) {
    let (dies, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    (dies, bench.join("b", 2).await)
}

pub async fn joining_leaves_the_leases_of_other_nodes_alone(bench: &Bench) {
    let (a, b) = two(bench).await;
    assert!(lives(bench, &a).await && lives(bench, &b).await);
    let nodes = bench.store.cluster().await.unwrap().nodes;
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

pub async fn a_partition_has_one_holder(bench: &Bench) {
    let (a, b) = two(bench).await;
    let low = PartitionSet::all(100);
    assert_eq!(bench.store.acquire(&a, &low).await.unwrap(), low);
    assert_eq!(bench.store.acquire(&b, &bench.all()).await.unwrap(), bench.all().without(low));
    assert_eq!(record(bench, 99).await.holder, Some(a.incarnation));
    assert_eq!(record(bench, 100).await.holder, Some(b.incarnation));
}

pub async fn the_partitions_of_an_expired_lease_can_be_taken_and_their_fences_rise(bench: &Bench) {
    let (a, b) = one_that_dies(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    let held = record(bench, 7).await;
    bench.go(14);
    assert!(bench.store.acquire(&b, &bench.all()).await.unwrap().is_empty());
    bench.go(15);
    assert_eq!(bench.store.acquire(&b, &only(7)).await.unwrap(), only(7));
    let taken = record(bench, 7).await;
    assert_eq!((taken.holder, taken.since), (Some(b.incarnation), s(15)));
    assert!(taken.fence > held.fence);
    assert_eq!(record(bench, 8).await.holder, Some(a.incarnation), "not asked for");
}

pub async fn the_partitions_of_a_node_that_left_can_be_taken(bench: &Bench) {
    let (a, b) = two(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    bench.store.leave(&a).await.unwrap();
    assert_eq!(bench.store.acquire(&b, &bench.all()).await.unwrap(), bench.all());
}

pub async fn taking_over_fences_the_dead_node(bench: &Bench) {
    let (a, b) = one_that_dies(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    bench.go(20);
    bench.store.acquire(&b, &only(0)).await.unwrap();
    // The clock goes back: an expired lease would live again, a fenced one does not.
    bench.go(10);
    assert!(!lives(bench, &a).await);
    assert!(matches!(bench.store.renew(&a, TTL, &Beat::of(RunId::floor(START))).await, Err(StoreError::LeaseLost)));
}

pub async fn a_node_that_comes_back_finds_what_nobody_took(bench: &Bench) {
    let (a, b) = one_that_dies(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    bench.go(20);
    bench.store.acquire(&b, &only(0)).await.unwrap();
    let again = bench.join("a", 1).await;
    assert!(again.fence > a.fence);
    assert_eq!(bench.store.acquire(&again, &bench.all()).await.unwrap(), bench.all().without(only(0)));
}

pub async fn a_node_that_is_about_to_stop_gives_all_back_and_keeps_its_claims(bench: &Bench) {
    let (a, b) = two(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let run = bench.claimed(&a, &job, 10).await;
    bench.store.retire(&a).await.unwrap();
    let holds: Vec<_> = bench.store.cluster().await.unwrap().nodes.iter().map(|node| node.holds).collect();
    assert_eq!(holds, [false, true]);
    assert_eq!(bench.store.acquire(&b, &bench.all()).await.unwrap(), bench.all());
    assert!(lives(bench, &a).await);
    assert_eq!(bench.store.load_claimed(&a).await.unwrap(), [run]);
    // When it comes back, it takes part again.
    bench.join("a", 1).await;
    assert!(bench.store.cluster().await.unwrap().nodes.iter().all(|node| node.holds));
}

pub async fn of_two_processes_under_one_name_the_older_gives_way(bench: &Bench) {
    let old = bench.join("a", 1).await;
    bench.go(1);
    let (new, _) = bench.store.join(&NodeInfo::named("a"), incarnation(2), TTL).await.unwrap();
    assert!(!lives(bench, &old).await && lives(bench, &new).await);
    bench.store.load_lost(&new, 10).await.unwrap();
    let info = NodeInfo { again: true, ..NodeInfo::named("a") };
    let again = bench.store.join(&info, incarnation(1), TTL).await;
    assert!(matches!(&again, Err(StoreError::Unusable(said)) if said.contains("--node-name")), "{again:?}");
    assert!(lives(bench, &new).await);
    // When the newer one is gone, the older may go on.
    bench.go(20);
    let (back, _) = bench.store.join(&info, incarnation(1), TTL).await.unwrap();
    assert!(lives(bench, &back).await);
}

pub async fn only_the_holder_releases(bench: &Bench) {
    let (a, b) = two(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    bench.store.release(&b, &bench.all()).await.unwrap();
    assert_eq!(record(bench, 0).await.holder, Some(a.incarnation));
}

pub async fn the_lost_claims_of_one_node_are_found_by_another(bench: &Bench) {
    let (a, b) = one_that_dies(bench).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let run = bench.claimed(&a, &job, 10).await;
    assert!(bench.store.load_lost(&b, 10).await.unwrap().is_empty());
    bench.go(15);
    assert_eq!(bench.store.load_lost(&b, 10).await.unwrap(), std::slice::from_ref(&run));
    bench.settle(&run, Verdict::Redeliver).await;
    assert!(bench.store.load_lost(&b, 10).await.unwrap().is_empty());
    assert_eq!(bench.due(&b).await, [run.id]);
}

pub async fn the_claims_of_a_living_node_are_not_lost(bench: &Bench) {
    let (a, b) = two(bench).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let run = bench.claimed(&a, &job, 10).await;
    assert!(bench.store.load_lost(&b, 10).await.unwrap().is_empty());
    assert!(bench.store.load_claimed(&b).await.unwrap().is_empty());
    assert_eq!(bench.store.load_claimed(&a).await.unwrap(), [run]);
}

/// Also where both were told that they hold the partition.
pub async fn two_nodes_record_a_tick_once(bench: &Bench) {
    let (a, b) = two(bench).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let batch = [ticks(&job, 1, vec![born(&job, 10)])];
    let (first, second) = tokio::join!(bench.store.record(&a, &batch), bench.store.record(&b, &batch));
    let mut answers = [first.unwrap().jobs[0][0], second.unwrap().jobs[0][0]];
    answers.sort_unstable_by_key(|answer| *answer != RowAnswer::Inserted);
    assert_eq!(answers, [RowAnswer::Inserted, RowAnswer::Existed]);
    assert_eq!(bench.history(&job).await.len(), 1);
}

pub async fn a_run_is_claimed_by_one_of_two_nodes(bench: &Bench) {
    let (a, b) = two(bench).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let runs = [bench.waiting(&a, &job, 10).await];
    let all = bench.all();
    let (first, second) = tokio::join!(bench.store.claim(&a, &all, &runs), bench.store.claim(&b, &all, &runs));
    assert_eq!(first.unwrap().len() + second.unwrap().len(), 1);
}
