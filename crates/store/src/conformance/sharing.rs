//! Rules only for a store that several nodes share.

use everytick_domain::{
    ids::{JobId, RunId},
    job::JobSpec,
    partition::PartitionSet,
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};

use super::{
    Bench, START, TTL, born, incarnation,
    nodes::{lives, replacing},
    overlapping,
    partitions::{only, record},
    s, spec, ticks,
};
use crate::{Beat, Lease, NodeInfo, NodeProcess, RowAnswer, StoreError, TakeOver};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_sharing {
    ($open:path) => {
        $crate::conformance_group! { $open, sharing:
            joining_does_not_end_the_leases_of_other_nodes,
            a_partition_has_one_owner,
            taking_over_the_partitions_of_an_expired_lease_raises_their_fences,
            the_partitions_of_a_node_that_left_can_be_acquired,
            a_take_over_fences_the_dead_node,
            raising_the_fence_of_a_lease_keeps_the_fences_of_others,
            a_returning_node_keeps_partitions_that_were_not_taken_over,
            a_retiring_node_releases_its_partitions_and_keeps_its_claims,
            a_newer_process_of_the_same_name_replaces_the_older_one,
            a_second_process_with_the_name_of_a_live_node_is_refused,
            an_expired_lease_frees_its_name,
            a_lease_written_by_a_fast_clock_lasts_no_longer_than_its_ttl,
            a_delegated_run_is_claimed_only_by_its_node,
            a_delegated_run_counts_as_in_progress,
            a_search_for_delegated_runs_skips_full_jobs_and_returns_the_oldest_first,
            a_run_delegated_to_a_dead_or_retiring_node_waits_again_unspent,
            a_run_is_delegated_only_to_a_live_node_and_only_by_the_owner,
            only_the_owner_releases_a_partition,
            the_lost_claims_of_one_node_are_found_by_another,
            the_claims_of_a_live_node_are_not_lost,
            two_nodes_record_a_tick_once,
            a_run_is_claimed_by_one_of_two_nodes,
            only_the_named_due_runs_are_delegated,
            no_run_is_delegated_to_a_node_that_left_was_replaced_or_is_about_to_stop,
            a_run_that_was_delegated_to_a_living_node_stays_delegated,
            a_node_that_leaves_or_stops_affects_no_other_node,
            a_run_is_claimed_only_in_the_partitions_named,
            a_node_that_has_compared_its_claims_raises_no_bound_of_another_node,
        }
    };
}

async fn two(bench: &Bench) -> (Lease, Lease) {
    (bench.join("a", 1).await, bench.join("b", 2).await)
}

/// A node whose lease expires after [`TTL`], and a node whose lease does not expire.
async fn one_that_dies(bench: &Bench) -> (Lease, Lease) {
    let (dies, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    (dies, bench.join("b", 2).await)
}

pub async fn joining_does_not_end_the_leases_of_other_nodes(bench: &Bench) {
    let (a, b) = two(bench).await;
    assert!(lives(bench, &a).await && lives(bench, &b).await);
    let nodes = bench.store.cluster().await.unwrap().nodes;
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

pub async fn a_partition_has_one_owner(bench: &Bench) {
    let (a, b) = two(bench).await;
    let low = PartitionSet::all(100);
    assert_eq!(bench.store.acquire(&a, &low).await.unwrap(), low);
    assert_eq!(bench.store.acquire(&b, &bench.all()).await.unwrap(), bench.all().without(low));
    assert_eq!(record(bench, 99).await.owner, Some(a.incarnation));
    assert_eq!(record(bench, 100).await.owner, Some(b.incarnation));
}

pub async fn taking_over_the_partitions_of_an_expired_lease_raises_their_fences(bench: &Bench) {
    let (a, b) = one_that_dies(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    let before = record(bench, 7).await;
    bench.go(14);
    assert!(bench.store.acquire(&b, &bench.all()).await.unwrap().is_empty());
    bench.go(15);
    assert_eq!(bench.store.acquire(&b, &only(7)).await.unwrap(), only(7));
    let taken = record(bench, 7).await;
    assert_eq!((taken.owner, taken.since), (Some(b.incarnation), s(15)));
    assert!(taken.fence > before.fence);
    assert_eq!(record(bench, 8).await.owner, Some(a.incarnation), "it was not requested");
}

pub async fn the_partitions_of_a_node_that_left_can_be_acquired(bench: &Bench) {
    let (a, b) = two(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    bench.store.leave(&a).await.unwrap();
    assert_eq!(bench.store.acquire(&b, &bench.all()).await.unwrap(), bench.all());
}

pub async fn a_take_over_fences_the_dead_node(bench: &Bench) {
    let (a, b) = one_that_dies(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    bench.go(20);
    bench.store.acquire(&b, &only(0)).await.unwrap();
    // The clock goes back: an expired lease would be valid again, a fenced lease is not.
    bench.go(10);
    assert!(!lives(bench, &a).await);
    assert!(matches!(bench.store.renew(&a, TTL, &Beat::of(RunId::floor(START))).await, Err(StoreError::LeaseLost)));
}

pub async fn raising_the_fence_of_a_lease_keeps_the_fences_of_others(bench: &Bench) {
    let (a, b) = two(bench).await;
    bench.store.raise_fence(&a).await.unwrap();
    assert!(!lives(bench, &a).await && lives(bench, &b).await);
}

pub async fn a_returning_node_keeps_partitions_that_were_not_taken_over(bench: &Bench) {
    let (a, b) = one_that_dies(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    bench.go(20);
    bench.store.acquire(&b, &only(0)).await.unwrap();
    let again = bench.join("a", 1).await;
    assert!(again.fence > a.fence);
    assert_eq!(bench.store.acquire(&again, &bench.all()).await.unwrap(), bench.all().without(only(0)));
}

pub async fn a_retiring_node_releases_its_partitions_and_keeps_its_claims(bench: &Bench) {
    let (a, b) = two(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let run = bench.claimed(&a, &job, 10).await;
    bench.store.retire(&a).await.unwrap();
    let holds: Vec<_> = bench.store.cluster().await.unwrap().nodes.iter().map(|node| node.may_own).collect();
    assert_eq!(holds, [false, true]);
    assert_eq!(bench.store.acquire(&b, &bench.all()).await.unwrap(), bench.all());
    assert!(lives(bench, &a).await);
    assert_eq!(bench.store.load_claimed(&a).await.unwrap(), [run]);
    // After it joins again, it can own partitions again.
    bench.join("a", 1).await;
    assert!(bench.store.cluster().await.unwrap().nodes.iter().all(|node| node.may_own));
}

pub async fn a_newer_process_of_the_same_name_replaces_the_older_one(bench: &Bench) {
    let old = bench.join("a", 1).await;
    bench.go(1);
    let (new, _) = bench.store.join(&replacing("a"), incarnation(2), TTL).await.unwrap();
    assert!(!lives(bench, &old).await && lives(bench, &new).await);
    bench.store.load_lost(&new, 10).await.unwrap();
    let info = NodeInfo { again: true, ..NodeInfo::named("a") };
    let again = bench.store.join(&info, incarnation(1), TTL).await;
    assert!(matches!(&again, Err(StoreError::Unusable(said)) if said.contains("--node-name")), "{again:?}");
    assert!(lives(bench, &new).await);
    // After the newer process is gone, the older one may join again.
    bench.go(20);
    let (back, _) = bench.store.join(&info, incarnation(1), TTL).await.unwrap();
    assert!(lives(bench, &back).await);
}

pub async fn a_second_process_with_the_name_of_a_live_node_is_refused(bench: &Bench) {
    let process = NodeProcess { host: "h1".into(), pid: 42, mark: "boot 7".into() };
    let first = NodeInfo { process: Some(process.clone()), ..NodeInfo::named("a") };
    let (old, _) = bench.store.join(&first, incarnation(1), TTL).await.unwrap();
    bench.go(10);
    bench.store.renew(&old, TTL, &Beat::of(RunId::floor(START))).await.unwrap();
    bench.go(24);
    let join = async |takes_over| {
        bench.store.join(&NodeInfo { takes_over, ..NodeInfo::named("a") }, incarnation(2), TTL).await
    };
    for takes_over in [TakeOver::Expired, TakeOver::Only(incarnation(3))] {
        let refused = join(takes_over).await;
        let Err(StoreError::NodeNameTaken(holder)) = refused else { panic!("{refused:?}") };
        assert_eq!((holder.incarnation, holder.process.clone()), (old.incarnation, Some(process.clone())));
        assert_eq!((holder.renewed_at, holder.until, holder.now), (s(10), s(25), s(24)));
        let said = StoreError::NodeNameTaken(holder).to_string();
        for part in ["\"a\"", "process 42 on host h1", "14s ago", "--node-name", "--replace-node"] {
            assert!(said.contains(part), "{part} is missing: {said}");
        }
    }
    assert!(lives(bench, &old).await, "the live node keeps its lease");
    // A process that is known to be dead is replaced before its lease expires.
    join(TakeOver::Only(incarnation(1))).await.unwrap();
    assert!(!lives(bench, &old).await);
}

pub async fn an_expired_lease_frees_its_name(bench: &Bench) {
    bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    bench.go(15);
    let (new, _) = bench.store.join(&NodeInfo::named("a"), incarnation(2), TTL).await.unwrap();
    bench.store.leave(&new).await.unwrap();
    bench.store.join(&NodeInfo::named("a"), incarnation(3), TTL).await.unwrap();
}

pub async fn only_the_owner_releases_a_partition(bench: &Bench) {
    let (a, b) = two(bench).await;
    bench.store.acquire(&a, &bench.all()).await.unwrap();
    bench.store.release(&b, &bench.all()).await.unwrap();
    assert_eq!(record(bench, 0).await.owner, Some(a.incarnation));
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

pub async fn the_claims_of_a_live_node_are_not_lost(bench: &Bench) {
    let (a, b) = two(bench).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let run = bench.claimed(&a, &job, 10).await;
    assert!(bench.store.load_lost(&b, 10).await.unwrap().is_empty());
    assert!(bench.store.load_claimed(&b).await.unwrap().is_empty());
    assert_eq!(bench.store.load_claimed(&a).await.unwrap(), [run]);
}

/// This holds even when both nodes believe that they own the partition.
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

/// The database clock was an hour ahead when the node last renewed its lease.
pub async fn a_lease_written_by_a_fast_clock_lasts_no_longer_than_its_ttl(bench: &Bench) {
    bench.go(3_600);
    let (dead, _) = bench.store.join(&NodeInfo::named("dead"), incarnation(1), TTL).await.unwrap();
    let (lives, _) = bench.store.join(&NodeInfo::named("lives"), incarnation(2), TTL).await.unwrap();
    bench.store.acquire(&dead, &bench.all()).await.unwrap();
    bench.go(0);
    let renew = async || bench.store.renew(&lives, TTL, &Beat::of(RunId::floor(START))).await;
    renew().await.unwrap();
    let until = async || {
        let nodes = bench.store.cluster().await.unwrap().nodes;
        nodes.iter().map(|node| node.until).collect::<Vec<_>>()
    };
    assert_eq!(until().await, [s(15), s(15)]);
    bench.go(10);
    renew().await.unwrap();
    assert!(bench.store.acquire(&lives, &bench.all()).await.unwrap().is_empty(), "the node may still be alive");
    bench.go(16);
    assert_eq!(bench.store.acquire(&lives, &bench.all()).await.unwrap(), bench.all());
    // A process does not wait longer for its own name either.
    bench.go(7_200);
    bench.store.join(&NodeInfo::named("other"), incarnation(3), TTL).await.unwrap();
    bench.go(20);
    let refused = bench.store.join(&NodeInfo::named("other"), incarnation(4), TTL).await;
    assert!(matches!(&refused, Err(StoreError::NodeNameTaken(owner)) if owner.until == s(35)), "{refused:?}");
}

/// An owner, a node that delivers for it, and a waiting run that the owner has delegated.
async fn handed_over(bench: &Bench) -> (Lease, Lease, everytick_domain::job::Job, RunId) {
    let (a, b) = one_that_lives_and_one_that_dies(bench).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let run = bench.waiting(&a, &job, 10).await;
    assert_eq!(bench.store.delegate(&a, &bench.all(), &[(run, b.incarnation)]).await.unwrap(), [run]);
    (a, b, job, run)
}

async fn one_that_lives_and_one_that_dies(bench: &Bench) -> (Lease, Lease) {
    let (b, a) = one_that_dies(bench).await;
    (a, b)
}

async fn handed_to(bench: &Bench, node: &Lease) -> Vec<RunId> {
    bench.store.peek_delegated(node, &[], 10).await.unwrap().into_iter().map(|run| run.id).collect()
}

pub async fn a_delegated_run_is_claimed_only_by_its_node(bench: &Bench) {
    let (a, b, _, run) = handed_over(bench).await;
    assert!(bench.due(&a).await.is_empty(), "the owner does not start a delegated run");
    assert!(bench.store.claim(&a, &bench.all(), &[run]).await.unwrap().is_empty());
    assert!(bench.store.claim_delegated(&a, &[run]).await.unwrap().is_empty());
    assert!(bench.store.delegate(&a, &bench.all(), &[(run, b.incarnation)]).await.unwrap().is_empty());
    assert_eq!((handed_to(bench, &a).await, handed_to(bench, &b).await), (vec![], vec![run]));
    let claimed = bench.store.claim_delegated(&b, &[run]).await.unwrap().remove(0);
    assert_eq!((claimed.id, claimed.attempt), (run, 1));
    assert!(handed_to(bench, &b).await.is_empty());
    assert_eq!(bench.store.load_claimed(&b).await.unwrap(), std::slice::from_ref(&claimed));
    // A retry belongs to the owner again, which decides when and where it runs.
    bench.settle(&claimed, Verdict::Retry { due_at: s(11) }).await;
    bench.go(11);
    assert_eq!((bench.due(&a).await, handed_to(bench, &b).await), (vec![run], vec![]));
}

pub async fn a_search_for_delegated_runs_skips_full_jobs_and_returns_the_oldest_first(bench: &Bench) {
    let (a, b) = two(bench).await;
    let (full, other) = (bench.create(spec("full")).await, bench.create(spec("other")).await);
    bench.go(20);
    let (first, second) = (bench.waiting(&a, &full, 10).await, bench.waiting(&a, &other, 20).await);
    let to = [(second, b.incarnation), (first, b.incarnation)];
    assert_eq!(bench.store.delegate(&a, &bench.all(), &to).await.unwrap().len(), 2);
    let search = async |full: &[JobId], limit| {
        let found = bench.store.peek_delegated(&b, full, limit).await.unwrap();
        found.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(search(&[], 10).await, [first, second]);
    assert_eq!(search(&[full.id], 1).await, [second]);
    assert!(search(&[full.id, other.id], 10).await.is_empty());
}

pub async fn a_delegated_run_counts_as_in_progress(bench: &Bench) {
    let (_, b, job, run) = handed_over(bench).await;
    let open = async || {
        let open = bench.load(&job).await.open;
        open.iter().map(|open| (open.id, open.state)).collect::<Vec<_>>()
    };
    assert_eq!(open().await, [(run, State::Claimed)], "the present owner of the job starts no other run beside it");
    bench.store.claim_delegated(&b, &[run]).await.unwrap();
    assert_eq!(open().await, [(run, State::Claimed)]);
}

pub async fn a_run_delegated_to_a_dead_or_retiring_node_waits_again_unspent(bench: &Bench) {
    let (a, b, _, run) = handed_over(bench).await;
    bench.store.retire(&b).await.unwrap();
    assert_eq!((bench.due(&a).await, handed_to(bench, &b).await), (vec![run], vec![]));
    let (c, _) = bench.store.join(&NodeInfo::named("c"), incarnation(3), TTL).await.unwrap();
    assert_eq!(bench.store.delegate(&a, &bench.all(), &[(run, c.incarnation)]).await.unwrap(), [run]);
    bench.go(25);
    assert!(bench.store.load_lost(&a, 10).await.unwrap().is_empty());
    assert_eq!(bench.due(&a).await, [run]);
    assert_eq!(bench.claim(&a, run).await.attempt, 1);
}

pub async fn a_run_is_delegated_only_to_a_live_node_and_only_by_the_owner(bench: &Bench) {
    let (a, b) = one_that_lives_and_one_that_dies(bench).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let run = bench.waiting(&a, &job, 10).await;
    let hand = async |partitions: &PartitionSet, to| bench.store.delegate(&a, partitions, &[(run, to)]).await.unwrap();
    assert!(hand(&bench.all().without(only(job.partition)), b.incarnation).await.is_empty());
    assert!(hand(&bench.all(), incarnation(99)).await.is_empty());
    bench.go(15);
    assert!(hand(&bench.all(), b.incarnation).await.is_empty(), "its lease has expired");
    let lost = bench.store.delegate(&b, &bench.all(), &[(run, a.incarnation)]).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost)), "{lost:?}");
    assert_eq!(bench.due(&a).await, [run]);
}

pub async fn only_the_named_due_runs_are_delegated(bench: &Bench) {
    let (a, b) = two(bench).await;
    let target = TargetSpec::Queue(QueueTarget { name: "q".into() });
    let (job, queued) =
        (bench.create(overlapping("j")).await, bench.create(JobSpec { target, ..overlapping("queued") }).await);
    bench.go(30);
    let (named, other) = (bench.waiting(&a, &job, 10).await, bench.waiting(&a, &job, 20).await);
    let later = bench.claimed(&a, &job, 30).await;
    bench.settle(&later, Verdict::Retry { due_at: s(40) }).await;
    let of_queue = bench.waiting(&a, &queued, 10).await;
    let hand = async |runs: &[RunId]| {
        let runs: Vec<_> = runs.iter().map(|run| (*run, b.incarnation)).collect();
        bench.store.delegate(&a, &bench.all(), &runs).await.unwrap()
    };
    assert_eq!(hand(&[named]).await, [named]);
    assert_eq!((bench.due(&a).await, handed_to(bench, &b).await), (vec![other], vec![named]));
    assert!(hand(&[later.id]).await.is_empty(), "it is not due");
    assert!(hand(&[of_queue]).await.is_empty(), "a worker claims it");
}

pub async fn no_run_is_delegated_to_a_node_that_left_was_replaced_or_is_about_to_stop(bench: &Bench) {
    let (a, left) = two(bench).await;
    let (stops, replaced) = (bench.join("c", 3).await, bench.join("d", 4).await);
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let run = bench.waiting(&a, &job, 10).await;
    bench.store.leave(&left).await.unwrap();
    bench.store.retire(&stops).await.unwrap();
    bench.join("d", 5).await;
    for node in [&left, &stops, &replaced] {
        let handed = bench.store.delegate(&a, &bench.all(), &[(run, node.incarnation)]).await.unwrap();
        assert!(handed.is_empty(), "{}", node.node);
    }
    assert_eq!(bench.due(&a).await, [run]);
}

pub async fn a_run_that_was_delegated_to_a_living_node_stays_delegated(bench: &Bench) {
    let (a, b, _, run) = handed_over(bench).await;
    bench.store.load_lost(&a, 10).await.unwrap();
    assert_eq!((bench.due(&a).await, handed_to(bench, &b).await), (vec![], vec![run]));
}

pub async fn a_node_that_leaves_or_stops_affects_no_other_node(bench: &Bench) {
    let (a, b) = two(bench).await;
    let c = bench.join("c", 3).await;
    bench.store.retire(&c).await.unwrap();
    bench.store.leave(&b).await.unwrap();
    assert!(lives(bench, &a).await && lives(bench, &c).await);
    let nodes = bench.store.cluster().await.unwrap().nodes;
    let holds: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.may_own)).collect();
    assert_eq!(holds, [("a", true), ("c", false)]);
}

pub async fn a_run_is_claimed_only_in_the_partitions_named(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.waiting(&lease, &job, 10).await;
    let others = bench.all().without(only(job.partition));
    assert!(bench.store.claim(&lease, &others, &[run]).await.unwrap().is_empty());
    assert_eq!(bench.store.claim(&lease, &only(job.partition), &[run]).await.unwrap().len(), 1);
}

pub async fn a_node_that_has_compared_its_claims_raises_no_bound_of_another_node(bench: &Bench) {
    let (a, b) = two(bench).await;
    let job = bench.create(spec("j")).await;
    bench.go(10);
    let claimed = bench.claimed(&b, &job, 10).await;
    bench.go(600);
    let bound = RunId::floor(s(540));
    while bench.store.list_old_claims(&a, bound).await.unwrap() < bound {}
    bench.store.renew(&b, Span::days(9), &Beat::of(bound)).await.unwrap();
    assert_eq!(bench.store.load_claimed(&b).await.unwrap(), [claimed], "b has not compared its own");
}
