//! Cancelling and rerunning a flow.

use everytick_domain::{
    flow::FlowState,
    ids::RunId,
    run::{CauseKind, State, Verdict},
};

use super::flows::{advance, child_of, claim, diamond, end, flow, shown};
use super::{Bench, OTHER_TENANT, TENANT, actor, by_name, new_run, s, spec};
use crate::{IdempotencyKey, RerunFlow, RunRecord, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_flow_commands {
    ($open:path) => {
        $crate::conformance_group! { $open, flow_commands:
            cancelling_a_flow_cancels_its_open_runs_and_starts_nothing_more,
            cancelling_a_flow_does_not_change_other_flows_and_runs,
            a_flow_may_be_cancelled_while_its_root_is_open,
            a_rerun_creates_one_new_flow_of_the_failed_jobs,
            a_rerun_with_the_same_key_is_created_once,
            a_redriven_run_opens_its_own_flow,
        }
    };
}

pub(super) fn rerun(flow: RunId, from: &[&str]) -> RerunFlow {
    let from = from.iter().map(|name| (*name).to_owned()).collect();
    RerunFlow { flow, from, key: b"k".to_vec(), idempotency: None }
}

/// Cancelling an ended flow is refused and changes nothing.
pub(super) async fn refuses_to_cancel(bench: &Bench, id: RunId, state: FlowState) {
    let (before, trail) = (flow(bench, id).await, bench.audit().await.len());
    let refused = bench.store.cancel_flow(TENANT, &actor(), id).await;
    assert!(matches!(refused, Err(StoreError::FlowEnded(has)) if has == state), "{refused:?}");
    assert_eq!((flow(bench, id).await, bench.audit().await.len()), (before, trail));
}

pub async fn cancelling_a_flow_cancels_its_open_runs_and_starts_nothing_more(bench: &Bench) {
    let ([_, b, c, d], lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Succeeded).await;
    advance(bench).await;
    let working = claim(bench, &lease, &b, root.id).await;
    let cancelled = bench.store.cancel_flow(TENANT, &actor(), root.id).await.unwrap();
    assert_eq!(cancelled.claimed, [(b.id, working.id)]);
    assert_eq!(cancelled.cancelled.len(), 2);
    assert_eq!((cancelled.flow.state, cancelled.flow.cancelled_at), (FlowState::Cancelled, Some(s(20))));
    assert_eq!(bench.settle(&working, Verdict::Succeeded).await, crate::SettleAnswer::Stale);
    advance(bench).await;
    assert_eq!(shown(bench, root.id).await, "a succeeded, b cancelled, c cancelled, d skipped(parent)");
    assert_eq!(bench.run(child_of(&d, root.id)).await.error.as_deref(), Some("the flow was cancelled"));
    assert_eq!(bench.run(child_of(&c, root.id)).await.state, State::Cancelled);
    refuses_to_cancel(bench, root.id, FlowState::Cancelled).await;
    let trail: Vec<_> = bench.audit().await.into_iter().map(|row| row.action).collect();
    assert!(trail.ends_with(&["cancel".into(), "cancel".into(), "cancel_flow".into()]), "{trail:?}");
    assert!(matches!(
        bench.store.cancel_flow(OTHER_TENANT, &actor(), root.id).await,
        Err(StoreError::NotFound("flow"))
    ));
}

pub async fn cancelling_a_flow_does_not_change_other_flows_and_runs(bench: &Bench) {
    let ([a, ..], lease, first) = diamond(bench).await;
    let second = bench.claimed(&lease, &a, 20).await;
    for root in [&first, &second] {
        bench.settle(root, Verdict::Succeeded).await;
    }
    advance(bench).await;
    bench.create(spec("other")).await;
    let other = bench.trigger(new_run("other", "k")).await;
    let before = flow(bench, second.id).await;
    bench.store.cancel_flow(TENANT, &actor(), first.id).await.unwrap();
    assert_eq!(flow(bench, first.id).await.cancelled_at, Some(s(20)));
    assert_eq!(flow(bench, second.id).await, before);
    assert_eq!(bench.run(other.id).await, other);
}

pub async fn a_flow_may_be_cancelled_while_its_root_is_open(bench: &Bench) {
    let (_, _, root) = diamond(bench).await;
    let cancelled = bench.store.cancel_flow(TENANT, &actor(), root.id).await.unwrap();
    assert_eq!(cancelled.cancelled, [root.id]);
    advance(bench).await;
    assert_eq!(shown(bench, root.id).await, "a cancelled, b skipped(parent), c skipped(parent), d skipped(parent)");
}

pub async fn a_rerun_creates_one_new_flow_of_the_failed_jobs(bench: &Bench) {
    let ([a, b, c, d], lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Succeeded).await;
    advance(bench).await;
    end(bench, &lease, &b, root.id, Verdict::Failed).await;
    end(bench, &lease, &c, root.id, Verdict::Succeeded).await;
    bench.go(30);
    let again = bench.store.rerun_flow(TENANT, &actor(), rerun(root.id, &[])).await.unwrap();
    assert_ne!(again.id, root.id);
    assert_eq!((again.rerun_of, again.root.clone(), again.state), (Some(root.id), None, FlowState::Running));
    assert_eq!((again.opened_at, again.scheduled_at), (s(30), s(10)));
    assert_eq!(shown(bench, again.id).await, "b waiting, d -");
    let start: RunRecord = bench.run(child_of(&b, again.id)).await;
    assert_eq!((start.cause, start.flow, start.scheduled_at), (CauseKind::Request, Some(again.id), s(10)));
    end(bench, &lease, &b, again.id, Verdict::Succeeded).await;
    assert_eq!(shown(bench, again.id).await, "b succeeded, d waiting", "c counts with the state in which it ended");
    end(bench, &lease, &d, again.id, Verdict::Succeeded).await;
    assert_eq!(flow(bench, again.id).await.state, FlowState::Succeeded);
    assert_eq!(flow(bench, root.id).await.state, FlowState::Failed, "a terminal state is final");
    for (job, runs) in [(&a, 1), (&b, 2), (&c, 1), (&d, 2)] {
        assert_eq!(bench.history(job).await.len(), runs, "{}", job.spec.name);
    }
    let none = bench.store.rerun_flow(TENANT, &actor(), rerun(again.id, &[])).await.unwrap_err();
    assert!(none.to_string().starts_with("from: no run of the flow failed"), "{none}");
    let unknown = bench.store.rerun_flow(TENANT, &actor(), rerun(again.id, &["z"])).await.unwrap_err();
    assert_eq!(unknown.to_string(), "from[0]: the flow has no job \"z\"; its jobs are b, d");
}

pub async fn a_rerun_with_the_same_key_is_created_once(bench: &Bench) {
    let ([_, b, ..], _, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Failed).await;
    advance(bench).await;
    let key = IdempotencyKey { key: "again".into(), fingerprint: [7; 32] };
    let ask = || RerunFlow { idempotency: Some(key.clone()), ..rerun(root.id, &["b"]) };
    let first = bench.store.rerun_flow(TENANT, &actor(), ask()).await.unwrap();
    bench.go(40);
    let second = bench.store.rerun_flow(TENANT, &actor(), ask()).await.unwrap();
    assert_eq!(first.id, second.id);
    assert_eq!(bench.history(&b).await.len(), 2, "the skip and one run");
    let other = RerunFlow { idempotency: Some(IdempotencyKey { fingerprint: [8; 32], ..key.clone() }), ..ask() };
    assert!(matches!(bench.store.rerun_flow(TENANT, &actor(), other).await, Err(StoreError::KeyReused)));
}

pub async fn a_redriven_run_opens_its_own_flow(bench: &Bench) {
    let ([_, b, ..], lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Succeeded).await;
    advance(bench).await;
    end(bench, &lease, &b, root.id, Verdict::Failed).await;
    let ask = crate::Redrive { job: by_name("b"), from: s(0), to: None, limit: 10, dry_run: false };
    let redriven = bench.store.redrive(TENANT, &actor(), &ask).await.unwrap().runs.remove(0).run;
    assert_eq!(bench.run(redriven).await.flow, Some(redriven));
}
