//! Pruning of flows: not while one of their runs is open or kept.

use everytick_domain::{
    edit::Change,
    flow::FlowState,
    ids::RunId,
    job::{Job, JobSpec},
    run::{State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};

use super::flow_commands::rerun;
use super::flows::{advance, after, child_of, claim, diamond, end, flow, shown};
use super::{Bench, TENANT, actor, s, spec};
use crate::{ClaimQueue, Lease, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_flow_pruning {
    ($open:path) => {
        $crate::conformance_group! { $open, flow_pruning:
            an_old_flow_is_pruned_with_its_runs,
            an_old_flow_is_pruned_although_another_run_of_its_instant_is_kept,
            a_running_flow_is_not_pruned,
            a_flow_with_a_run_claimed_by_a_node_is_not_pruned,
            a_flow_with_a_run_claimed_by_a_worker_is_not_pruned,
            a_flow_is_kept_while_one_of_its_runs_is_kept,
            a_flow_is_kept_while_its_root_is_kept,
            a_running_rerun_is_not_pruned,
            an_old_flow_is_removed_and_a_newer_one_is_kept,
            a_flow_in_progress_keeps_only_its_own_runs,
        }
    };
}

/// Prunes long after the flow began, while `b` is open and `c` has succeeded. Only the flow keeps the root.
async fn pruned_while_b_is_open(bench: &Bench, a: &Job, root: RunId, lease: &Lease) {
    bench.waiting(lease, a, 20).await;
    bench.raise(a, 1, Some(s(30))).await;
    bench.go(200 * 86_400);
    bench.store.prune(s(100 * 86_400), 100).await.unwrap();
    assert_eq!(shown(bench, root).await, "a succeeded, b claimed, c succeeded, d -");
}

pub async fn an_old_flow_is_pruned_with_its_runs(bench: &Bench) {
    let (_, _, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Failed).await;
    advance(bench).await;
    for name in ["d", "c", "b", "a"] {
        bench.edit(name, Change::Delete).await;
    }
    bench.store.prune(s(0), 100).await.unwrap();
    assert_eq!(flow(bench, root.id).await.state, FlowState::Failed, "the flow is not old yet");
    bench.go(200 * 86_400);
    bench.store.prune(s(100 * 86_400), 100).await.unwrap();
    assert!(matches!(bench.store.get_flow(TENANT, root.id).await, Err(StoreError::NotFound("flow"))));
    assert_eq!(advance(bench).await, 0);
}

pub async fn an_old_flow_is_removed_and_a_newer_one_is_kept(bench: &Bench) {
    const LATER: i64 = 3 * 86_400;
    let (x, _) = (bench.create(spec("x")).await, bench.create(after("y", &["x"])).await);
    let (_, lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Failed).await;
    advance(bench).await;
    for name in ["d", "c", "b", "a"] {
        bench.edit(name, Change::Delete).await;
    }
    bench.go(LATER);
    let newer = bench.claimed(&lease, &x, LATER).await;
    bench.raise(&x, 1, Some(s(LATER + 10))).await;
    bench.settle(&newer, Verdict::Failed).await;
    bench.go(LATER + 5);
    advance(bench).await;
    bench.store.prune(s(LATER - 86_400), 100).await.unwrap();
    assert!(matches!(bench.store.get_flow(TENANT, root.id).await, Err(StoreError::NotFound("flow"))));
    assert_eq!(flow(bench, newer.id).await.opened_at, s(LATER + 5));
}

pub async fn an_old_flow_is_pruned_although_another_run_of_its_instant_is_kept(bench: &Bench) {
    let other = bench.create(spec("other")).await;
    let (_, lease, root) = diamond(bench).await;
    let left = bench.claimed(&lease, &other, 10).await;
    for run in [&root, &left] {
        bench.settle(run, Verdict::Failed).await;
    }
    advance(bench).await;
    for name in ["d", "c", "b", "a"] {
        bench.edit(name, Change::Delete).await;
    }
    bench.go(200 * 86_400);
    bench.store.prune(s(100 * 86_400), 100).await.unwrap();
    assert_eq!(bench.run(left.id).await.state, State::Failed, "the last run of a live job is kept");
    assert!(matches!(bench.store.get_flow(TENANT, root.id).await, Err(StoreError::NotFound("flow"))));
}

pub async fn a_running_flow_is_not_pruned(bench: &Bench) {
    let ([a, b, c, d], lease, root) = diamond(bench).await;
    // A later run of the root's job, and a cursor past its tick, so that the root itself could be pruned.
    bench.waiting(&lease, &a, 20).await;
    bench.raise(&a, 1, Some(s(30))).await;
    bench.settle(&root, Verdict::Succeeded).await;
    advance(bench).await;
    let (old, much_later) = (s(100 * 86_400), 200 * 86_400);
    bench.go(much_later);
    bench.store.prune(old, 100).await.unwrap();
    assert_eq!(shown(bench, root.id).await, "a succeeded, b waiting, c waiting, d -", "two of its runs are still open");
    let lease = bench.join("n", 2).await;
    for job in [&b, &c] {
        let run = claim(bench, &lease, job, root.id).await;
        bench.settle(&run, Verdict::Succeeded).await;
    }
    bench.store.prune(old, 100).await.unwrap();
    assert_eq!(advance(bench).await, 1, "the flow still had steps");
    assert_eq!(bench.run(child_of(&d, root.id)).await.state, State::Waiting);
}

pub async fn a_flow_with_a_run_claimed_by_a_node_is_not_pruned(bench: &Bench) {
    let ([a, b, c, _], lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Succeeded).await;
    advance(bench).await;
    end(bench, &lease, &c, root.id, Verdict::Succeeded).await;
    advance(bench).await;
    claim(bench, &lease, &b, root.id).await;
    pruned_while_b_is_open(bench, &a, root.id, &lease).await;
    // Also after the claim is listed as an old claim.
    bench.pass_claims(&lease, RunId::floor(s(199 * 86_400))).await;
    bench.store.prune(s(100 * 86_400), 100).await.unwrap();
    assert_eq!(shown(bench, root.id).await, "a succeeded, b claimed, c succeeded, d -");
}

pub async fn a_flow_with_a_run_claimed_by_a_worker_is_not_pruned(bench: &Bench) {
    let ([a, b, c, _], lease, root) = diamond(bench).await;
    let target = TargetSpec::Queue(QueueTarget { name: "q".into() });
    bench.edit("b", Change::Replace(Box::new(JobSpec { target, ..(*b.spec).clone() }))).await;
    bench.settle(&root, Verdict::Succeeded).await;
    advance(bench).await;
    end(bench, &lease, &c, root.id, Verdict::Succeeded).await;
    advance(bench).await;
    let ask = ClaimQueue { tenant: TENANT, queue: "q".into(), worker: "w".into(), limit: 9, lease: Span::days(300) };
    assert_eq!(bench.store.claim_queue(&ask).await.unwrap().claims.len(), 1);
    bench.pass_claims(&lease, RunId::floor(bench.store.now().await.unwrap())).await;
    pruned_while_b_is_open(bench, &a, root.id, &lease).await;
}

pub async fn a_flow_is_kept_while_one_of_its_runs_is_kept(bench: &Bench) {
    let ([a, ..], lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Failed).await;
    advance(bench).await;
    bench.waiting(&lease, &a, 20).await;
    bench.raise(&a, 1, Some(s(30))).await;
    bench.go(200 * 86_400);
    bench.store.prune(s(100 * 86_400), 100).await.unwrap();
    assert!(
        matches!(bench.store.get_run(TENANT, root.id).await, Err(StoreError::NotFound("run"))),
        "the root is pruned"
    );
    let left = shown(bench, root.id).await;
    assert_eq!(
        left, "a -, b skipped(parent), c skipped(parent), d skipped(parent)",
        "the last runs of live jobs are kept"
    );
}

pub async fn a_flow_is_kept_while_its_root_is_kept(bench: &Bench) {
    let (_, lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Failed).await;
    advance(bench).await;
    for name in ["d", "c", "b"] {
        bench.edit(name, Change::Delete).await;
    }
    // A waiting run, so that the day of the flow is not dropped as a whole.
    let other = bench.create(spec("other")).await;
    bench.go(40);
    bench.waiting(&lease, &other, 40).await;
    bench.go(200 * 86_400);
    bench.store.prune(s(100 * 86_400), 100).await.unwrap();
    assert_eq!(flow(bench, root.id).await.id, root.id, "the last run of a live job is kept");
}

pub async fn a_flow_in_progress_keeps_only_its_own_runs(bench: &Bench) {
    let other = bench.create(spec("other")).await;
    let (_, lease, root) = diamond(bench).await;
    let old = bench.claimed(&lease, &other, 10).await;
    bench.settle(&old, Verdict::Succeeded).await;
    bench.waiting(&lease, &other, 20).await;
    bench.raise(&other, 1, Some(s(30))).await;
    bench.settle(&root, Verdict::Succeeded).await;
    bench.go(200 * 86_400);
    bench.store.prune(s(100 * 86_400), 100).await.unwrap();
    assert!(matches!(bench.store.get_run(TENANT, old.id).await, Err(StoreError::NotFound("run"))));
    assert_eq!(advance(bench).await, 2, "the flow still has its step");
}

pub async fn a_running_rerun_is_not_pruned(bench: &Bench) {
    let (_, _, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Failed).await;
    advance(bench).await;
    let again = bench.store.rerun_flow(TENANT, &actor(), rerun(root.id, &["b"])).await.unwrap();
    bench.go(200 * 86_400);
    bench.store.prune(s(100 * 86_400), 100).await.unwrap();
    assert_eq!(shown(bench, again.id).await, "b waiting, d -");
}
