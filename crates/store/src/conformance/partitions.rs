//! Partitions: acquiring and releasing them, and loading only their jobs.

use everytick_domain::{edit::Change, ids::Incarnation, partition::PartitionSet, time::Span};

use super::{Bench, START, TTL, incarnation, new_run, raised, s, spec};
use crate::{ChangeMark, Lease, NodeInfo, PartitionRecord, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_partitions {
    ($open:path) => {
        $crate::conformance_group! { $open, partitions:
            the_partition_of_a_job_follows_from_its_id,
            acquiring_a_free_partition_raises_its_fence,
            acquiring_an_owned_partition_again_keeps_its_fence,
            an_unknown_partition_is_not_acquired,
            only_the_named_partitions_are_acquired_and_released,
            a_partition_of_another_incarnation_is_not_released,
            a_released_partition_is_free,
            a_node_that_leaves_releases_its_partitions,
            a_lost_lease_acquires_and_releases_nothing,
            only_the_node_and_incarnation_of_a_lease_can_acquire_and_release_partitions,
            a_new_incarnation_acquires_the_partitions_of_the_old_one,
            the_horizon_has_only_jobs_of_the_requested_partitions,
            changes_come_only_from_the_requested_partitions,
            waiting_runs_come_only_from_the_requested_partitions,
        }
    };
}

pub(super) async fn record(bench: &Bench, partition: u16) -> PartitionRecord {
    bench.store.cluster().await.unwrap().partitions.swap_remove(usize::from(partition))
}

pub(super) fn only(partition: u16) -> PartitionSet {
    [partition].into_iter().collect()
}

pub async fn the_partition_of_a_job_follows_from_its_id(bench: &Bench) {
    let count = bench.store.partitions();
    for name in ["a", "b", "c", "d"] {
        let job = bench.create(spec(name)).await;
        assert_eq!(job.partition, job.id.partition(count));
        assert_eq!(bench.load(&job).await.job.partition, job.partition);
    }
}

pub async fn acquiring_a_free_partition_raises_its_fence(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let before = record(bench, 0).await;
    assert_eq!((before.partition, before.owner), (0, None));
    bench.go(5);
    assert_eq!(bench.store.acquire(&lease, &only(0)).await.unwrap(), only(0));
    let after = record(bench, 0).await;
    assert_eq!((after.owner, after.since), (Some(lease.incarnation), s(5)));
    assert!(after.fence > before.fence);
}

pub async fn acquiring_an_owned_partition_again_keeps_its_fence(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.store.acquire(&lease, &only(0)).await.unwrap();
    let first = record(bench, 0).await;
    bench.go(5);
    assert_eq!(bench.store.acquire(&lease, &bench.all()).await.unwrap(), bench.all());
    assert_eq!(record(bench, 0).await, first);
}

pub async fn an_unknown_partition_is_not_acquired(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    assert_eq!(bench.store.acquire(&lease, &PartitionSet::all(u16::MAX)).await.unwrap(), bench.all());
    assert_eq!(bench.store.acquire(&lease, &PartitionSet::none()).await.unwrap(), PartitionSet::none());
}

pub async fn only_the_named_partitions_are_acquired_and_released(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.store.acquire(&lease, &PartitionSet::none()).await.unwrap();
    assert_eq!(holders(bench).await, [None]);
    bench.store.acquire(&lease, &bench.all()).await.unwrap();
    bench.store.release(&lease, &PartitionSet::none()).await.unwrap();
    assert_eq!(holders(bench).await, [Some(lease.incarnation)]);
}

pub async fn a_partition_of_another_incarnation_is_not_released(bench: &Bench) {
    let old = bench.join("a", 1).await;
    bench.store.acquire(&old, &bench.all()).await.unwrap();
    let new = bench.join("a", 2).await;
    let before = record(bench, 0).await;
    bench.go(5);
    bench.store.release(&new, &bench.all()).await.unwrap();
    assert_eq!(record(bench, 0).await, before);
}

pub async fn a_released_partition_is_free(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.store.acquire(&lease, &bench.all()).await.unwrap();
    let held = record(bench, 0).await;
    bench.go(5);
    bench.store.release(&lease, &only(0)).await.unwrap();
    let free = record(bench, 0).await;
    assert_eq!((free.owner, free.fence, free.since), (None, held.fence, s(5)));
    bench.store.acquire(&lease, &only(0)).await.unwrap();
    assert!(record(bench, 0).await.fence > held.fence);
}

async fn holders(bench: &Bench) -> Vec<Option<Incarnation>> {
    let mut holders: Vec<_> = bench.store.cluster().await.unwrap().partitions.iter().map(|row| row.owner).collect();
    holders.dedup();
    holders
}

pub async fn a_node_that_leaves_releases_its_partitions(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.store.acquire(&lease, &bench.all()).await.unwrap();
    assert_eq!(holders(bench).await, [Some(lease.incarnation)]);
    bench.store.leave(&lease).await.unwrap();
    assert_eq!(holders(bench).await, [None]);
}

pub async fn a_lost_lease_acquires_and_releases_nothing(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    bench.store.acquire(&lease, &only(0)).await.unwrap();
    let raised = bench.store.raise_fence(&lease).await.unwrap();
    assert!(matches!(bench.store.release(&lease, &only(0)).await, Err(StoreError::LeaseLost)), "an old fence");
    bench.go(15);
    assert!(matches!(bench.store.acquire(&raised, &bench.all()).await, Err(StoreError::LeaseLost)));
    assert!(matches!(bench.store.release(&raised, &only(0)).await, Err(StoreError::LeaseLost)));
    assert_eq!(record(bench, 0).await.owner, Some(lease.incarnation));
}

pub async fn only_the_node_and_incarnation_of_a_lease_can_acquire_and_release_partitions(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    bench.store.acquire(&lease, &only(0)).await.unwrap();
    for other in [Lease { incarnation: incarnation(9), ..lease.clone() }, Lease { node: "b".into(), ..lease.clone() }] {
        assert!(matches!(bench.store.acquire(&other, &bench.all()).await, Err(StoreError::LeaseLost)), "{other:?}");
        assert!(matches!(bench.store.release(&other, &only(0)).await, Err(StoreError::LeaseLost)), "{other:?}");
    }
    assert_eq!(record(bench, 0).await.owner, Some(lease.incarnation));
}

pub async fn a_new_incarnation_acquires_the_partitions_of_the_old_one(bench: &Bench) {
    let old = bench.join("a", 1).await;
    bench.store.acquire(&old, &bench.all()).await.unwrap();
    let new = bench.join("a", 2).await;
    assert_eq!(bench.store.acquire(&new, &bench.all()).await.unwrap(), bench.all());
    assert_eq!(holders(bench).await, [Some(new.incarnation)]);
}

pub async fn the_horizon_has_only_jobs_of_the_requested_partitions(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let mut jobs = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        jobs.push(bench.create(spec(name)).await);
    }
    let loaded = async |partitions: &PartitionSet| {
        let found = bench.store.load_horizon(&lease, partitions, s(60), None, 100).await.unwrap();
        found.into_iter().map(|job| job.job.id).collect::<Vec<_>>()
    };
    for job in &jobs {
        let theirs: Vec<_> = {
            let mut same: Vec<_> =
                jobs.iter().filter(|other| other.partition == job.partition).map(|job| job.id).collect();
            same.sort_unstable();
            same
        };
        assert_eq!(loaded(&only(job.partition)).await, theirs);
        let others = bench.all().without(only(job.partition));
        assert!(!loaded(&others).await.contains(&job.id));
    }
    assert!(loaded(&PartitionSet::none()).await.is_empty());
}

pub async fn changes_come_only_from_the_requested_partitions(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    let changed = async |partitions: &PartitionSet| {
        let found = bench.store.changes(partitions, ChangeMark::default(), 10).await.unwrap();
        found.jobs.into_iter().map(|job| (job.id, job.epoch.raw())).collect::<Vec<_>>()
    };
    assert_eq!(changed(&only(job.partition)).await, [(job.id, 1)]);
    bench.edit("j", Change::Delete).await;
    assert_eq!(changed(&only(job.partition)).await, [(job.id, raised(START))]);
    assert!(changed(&bench.all().without(only(job.partition))).await.is_empty());
}

pub async fn waiting_runs_come_only_from_the_requested_partitions(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    let run = bench.trigger(new_run("j", "k")).await;
    let mut later = spec("later");
    later.retry.max_retries = 1;
    let waiting = async |partitions: &PartitionSet| {
        let found = bench.store.peek_waiting(&lease, partitions, &[], None, 10).await.unwrap();
        (found.due.into_iter().map(|run| run.id).collect::<Vec<_>>(), found.next_due)
    };
    let (ours, others) = (only(job.partition), bench.all().without(only(job.partition)));
    assert_eq!(waiting(&ours).await, (vec![run.id], None));
    assert_eq!(waiting(&others).await, (vec![], None));
    let claimed = bench.claim(&lease, run.id).await;
    bench.settle(&claimed, everytick_domain::run::Verdict::Retry { due_at: s(30) }).await;
    assert_eq!(waiting(&ours).await, (vec![], Some(s(30))));
    assert_eq!(waiting(&others).await, (vec![], None));
    bench.clock.set(s(30).plus(Span::millis(1)));
    assert_eq!(waiting(&ours).await, (vec![run.id], None));
}
