//! Flows: each job has one run per flow, in whatever order its parents end.

use everytick_domain::{
    edit::Change,
    flow::{DependsOn, FlowState, When},
    ids::{Cause, RunId},
    job::{Job, JobSpec, Overlap},
    run::{CauseKind, State, Verdict},
};

use super::{Bench, TENANT, actor, by_name, change, new_run, pause, s, settle_with, spec};
use crate::{ClaimedRun, FlowRecord, Lease, StoreError};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_flows {
    ($open:path) => {
        $crate::conformance_group! { $open, flows:
            a_diamond_runs_each_job_once,
            two_parents_that_end_in_one_batch_make_one_child,
            a_skip_propagates_with_its_reason,
            a_failed_root_skips_its_descendants,
            every_way_of_ending_a_run_advances_its_flow,
            a_retry_does_not_advance_the_flow,
            a_run_of_a_job_without_children_opens_no_flow,
            a_child_can_have_its_own_ticks_and_requests,
            a_child_that_is_paused_busy_or_deleted_is_skipped,
            a_child_under_queue_waits_and_raises_the_epoch_of_its_job,
            a_flow_keeps_the_graph_that_it_was_opened_with,
            a_flow_that_starts_many_jobs_does_so_in_several_transactions,
            giving_up_a_flow_skips_its_next_jobs_with_reason_error,
            a_run_outside_every_flow_leaves_no_step,
            a_run_that_ends_leaves_a_step_only_in_its_own_flow,
            a_step_that_opens_no_flow_is_removed_and_no_other_step_is,
        }
    };
}

/// Triggers and claims the run of the parent "a".
pub(super) async fn root_of(bench: &Bench) -> (Lease, ClaimedRun) {
    let lease = bench.join("n", 1).await;
    let root = bench.trigger(new_run("a", "k")).await.id;
    let run = bench.claim(&lease, root).await;
    (lease, run)
}

pub(super) fn taking(name: &str, parent: &str, payload: &str) -> JobSpec {
    JobSpec { payload: Some(payload.into()), ..after(name, &[parent]) }
}

pub(super) fn follow(parents: &[&str]) -> impl Fn(JobSpec) -> Change {
    let depends_on = after("x", parents).depends_on;
    move |spec| Change::Replace(Box::new(JobSpec { depends_on: depends_on.clone(), ..spec }))
}

/// A job without a schedule that depends on these parents, each written as `name` or `name:when`.
pub(super) fn after(name: &str, parents: &[&str]) -> JobSpec {
    let parent = |text: &&str| {
        let (job, when) = text.split_once(':').unwrap_or((text, "succeeded"));
        DependsOn { job: job.to_owned(), when: When::from_word(when).unwrap() }
    };
    JobSpec { schedule: None, depends_on: parents.iter().map(parent).collect(), ..spec(name) }
}

/// Advances all flows that have steps.
pub(super) async fn advance(bench: &Bench) -> usize {
    let mut started = 0;
    loop {
        let flows = bench.store.flows_with_steps(None, 10).await.unwrap();
        if flows.is_empty() {
            return started;
        }
        for flow in flows {
            started += bench.store.advance_flow(flow).await.unwrap().started;
        }
    }
}

pub(super) async fn flow(bench: &Bench, id: RunId) -> FlowRecord {
    bench.store.get_flow(TENANT, id).await.unwrap()
}

/// `name state` of each job, or `-` if it is not decided yet; skips with their reasons.
pub(super) async fn shown(bench: &Bench, id: RunId) -> String {
    let shown = |node: crate::FlowNode| {
        let state = node.run.map_or_else(
            || "-".to_owned(),
            |run| match run.skip_reason {
                Some(reason) => format!("{}({})", run.state.word(), reason.word()),
                None => run.state.word().to_owned(),
            },
        );
        format!("{} {state}", node.job_name)
    };
    flow(bench, id).await.nodes.into_iter().map(shown).collect::<Vec<_>>().join(", ")
}

pub(super) fn child_of(job: &Job, flow: RunId) -> RunId {
    RunId::of(job.id, Cause::Parent { flow })
}

/// Claims the run of a job in a flow.
pub(super) async fn claim(bench: &Bench, lease: &Lease, job: &Job, flow: RunId) -> ClaimedRun {
    bench.claim(lease, child_of(job, flow)).await
}

pub(super) async fn end(bench: &Bench, lease: &Lease, job: &Job, flow: RunId, verdict: Verdict) {
    let run = claim(bench, lease, job, flow).await;
    bench.settle(&run, verdict).await;
    advance(bench).await;
}

/// a -> b, c; b, c -> d; and a lease. a's run at second 10 is claimed.
pub(super) async fn diamond(bench: &Bench) -> ([Job; 4], Lease, ClaimedRun) {
    let a = bench.create(spec("a")).await;
    let b = bench.create(after("b", &["a"])).await;
    let c = bench.create(after("c", &["a"])).await;
    let d = bench.create(after("d", &["b", "c"])).await;
    let lease = bench.join("n", 1).await;
    bench.go(10);
    let run = bench.claimed(&lease, &a, 10).await;
    bench.go(20);
    ([a, b, c, d], lease, run)
}

pub async fn a_diamond_runs_each_job_once(bench: &Bench) {
    let ([a, b, c, d], lease, root) = diamond(bench).await;
    assert_eq!(
        shown(bench, root.id).await,
        "a claimed, b -, c -, d -",
        "the flow of an open root shows the jobs to come"
    );
    assert_eq!(bench.run(root.id).await.flow, Some(root.id));
    bench.settle(&root, Verdict::Succeeded).await;
    assert!(bench.store.take_steps_written());
    assert_eq!(bench.run(root.id).await.flow, Some(root.id));
    assert_eq!(advance(bench).await, 2);
    assert_eq!(advance(bench).await, 0, "a step is processed once");
    assert_eq!(shown(bench, root.id).await, "a succeeded, b waiting, c waiting, d -");
    let run = bench.run(child_of(&b, root.id)).await;
    assert_eq!((run.cause, run.scheduled_at, run.due_at), (CauseKind::Parent, s(10), s(20)));
    assert_eq!((run.flow, run.attempt), (Some(root.id), 0));

    let (left, right) = (claim(bench, &lease, &b, root.id).await, claim(bench, &lease, &c, root.id).await);
    bench.settle(&left, Verdict::Succeeded).await;
    assert_eq!(advance(bench).await, 0, "d waits for both");
    bench.settle(&right, Verdict::Succeeded).await;
    assert_eq!(advance(bench).await, 1);
    end(bench, &lease, &d, root.id, Verdict::Succeeded).await;
    assert_eq!(shown(bench, root.id).await, "a succeeded, b succeeded, c succeeded, d succeeded");
    let record = flow(bench, root.id).await;
    assert_eq!((record.state, record.root.as_deref(), record.rerun_of), (FlowState::Succeeded, Some("a"), None));
    assert_eq!((record.opened_at, record.scheduled_at), (s(20), s(10)));
    assert_eq!(record.nodes[3].parents, [("b".to_owned(), When::Succeeded), ("c".to_owned(), When::Succeeded)]);
    for job in [&a, &b, &c, &d] {
        assert_eq!(bench.history(job).await.len(), 1, "{}", job.spec.name);
    }
}

pub async fn two_parents_that_end_in_one_batch_make_one_child(bench: &Bench) {
    let ([_, b, c, d], lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Succeeded).await;
    advance(bench).await;
    let runs = [claim(bench, &lease, &b, root.id).await, claim(bench, &lease, &c, root.id).await];
    let settles = runs.each_ref().map(|run| settle_with(run.id, run.fence, run.job, TENANT, Verdict::Succeeded));
    bench.store.settle(&settles).await.unwrap();
    assert_eq!(advance(bench).await, 1);
    assert_eq!(bench.history(&d).await.len(), 1);
}

pub async fn a_skip_propagates_with_its_reason(bench: &Bench) {
    let ([_, b, c, d], lease, root) = diamond(bench).await;
    bench.create(after("mend", &["b:failed"])).await;
    bench.create(after("clean", &["d:finished"])).await;
    bench.settle(&root, Verdict::Succeeded).await;
    advance(bench).await;
    end(bench, &lease, &b, root.id, Verdict::Failed).await;
    assert_eq!(shown(bench, root.id).await, "a succeeded, b failed, c waiting, d -, mend waiting, clean -");
    end(bench, &lease, &c, root.id, Verdict::Succeeded).await;
    let all = "a succeeded, b failed, c succeeded, d skipped(parent), mend waiting, clean waiting";
    assert_eq!(shown(bench, root.id).await, all);
    let skipped = bench.run(child_of(&d, root.id)).await;
    assert_eq!((skipped.state, skipped.cause), (State::Skipped, CauseKind::Parent));
    assert_eq!(
        (skipped.error.as_deref(), skipped.finished_at),
        (Some("parent b is failed, not succeeded"), Some(s(20)))
    );
    assert_eq!(flow(bench, root.id).await.state, FlowState::Running);
}

pub async fn a_failed_root_skips_its_descendants(bench: &Bench) {
    let (_, _, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Failed).await;
    assert_eq!(advance(bench).await, 0);
    assert_eq!(shown(bench, root.id).await, "a failed, b skipped(parent), c skipped(parent), d skipped(parent)");
    assert_eq!(flow(bench, root.id).await.state, FlowState::Failed);
    super::flow_commands::refuses_to_cancel(bench, root.id, FlowState::Failed).await;
}

pub async fn every_way_of_ending_a_run_advances_its_flow(bench: &Bench) {
    let a = bench.create(JobSpec { overlap: Overlap::Allow, ..spec("a") }).await;
    let b = bench.create(JobSpec { overlap: Overlap::Allow, ..after("b", &["a:finished"]) }).await;
    let lease = bench.join("n", 1).await;
    bench.go(60);
    // A cancelled run, a superseded run, a cancelled job, and a job paused with `cancel`.
    let one = bench.waiting(&lease, &a, 10).await;
    bench.store.cancel_run(TENANT, &actor(), one).await.unwrap();
    let two = bench.claimed(&lease, &a, 20).await.id;
    let given = crate::Supersede { job: a.id, run: two, to: one };
    bench.store.supersede(&lease, &[given]).await.unwrap();
    let three = bench.claimed(&lease, &a, 30).await.id;
    bench.store.cancel_job(TENANT, &actor(), &by_name("a")).await.unwrap();
    let four = bench.waiting(&lease, &a, 40).await;
    let edit = crate::EditJob { cancel: true, ..change("a", pause()) };
    bench.store.edit_job(TENANT, &actor(), edit).await.unwrap();
    advance(bench).await;
    for root in [one, two, three, four] {
        assert_eq!(bench.run(root).await.state, State::Cancelled);
        assert_eq!(bench.run(child_of(&b, root)).await.flow, Some(root));
    }
}

pub async fn a_retry_does_not_advance_the_flow(bench: &Bench) {
    let (_, lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Retry { due_at: s(20) }).await;
    assert!(!bench.store.take_steps_written());
    assert_eq!(advance(bench).await, 0);
    let again = bench.claim(&lease, root.id).await;
    bench.settle(&again, Verdict::Succeeded).await;
    assert_eq!(advance(bench).await, 2);
}

pub async fn a_run_of_a_job_without_children_opens_no_flow(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    let lease = bench.join("n", 1).await;
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    bench.settle(&run, Verdict::Succeeded).await;
    assert!(!bench.store.take_steps_written());
    assert_eq!(bench.run(run.id).await.flow, None);
    assert!(matches!(bench.store.get_flow(TENANT, run.id).await, Err(StoreError::NotFound("flow"))));
    // A child that is added later does not open one either.
    bench.create(after("late", &["j"])).await;
    assert_eq!((advance(bench).await, bench.run(run.id).await.flow), (0, None));
    assert!(matches!(bench.store.get_flow(TENANT, run.id).await, Err(StoreError::NotFound("flow"))));
}

pub async fn a_run_outside_every_flow_leaves_no_step(bench: &Bench) {
    let alone = bench.create(spec("alone")).await;
    let (_, lease, _) = diamond(bench).await;
    let run = bench.claimed(&lease, &alone, 20).await;
    bench.settle(&run, Verdict::Succeeded).await;
    let run = bench.trigger(new_run("alone", "k")).await;
    bench.store.cancel_run(TENANT, &actor(), run.id).await.unwrap();
    assert!(
        bench.store.flows_with_steps(None, 10).await.unwrap().is_empty(),
        "other jobs are followed, this one is not"
    );
}

pub async fn a_run_that_ends_leaves_a_step_only_in_its_own_flow(bench: &Bench) {
    let ([a, ..], lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Failed).await;
    advance(bench).await;
    let second = bench.claimed(&lease, &a, 20).await;
    bench.settle(&second, Verdict::Failed).await;
    assert_eq!(bench.store.flows_with_steps(None, 10).await.unwrap(), [second.id]);
}

pub async fn a_step_that_opens_no_flow_is_removed_and_no_other_step_is(bench: &Bench) {
    let (x, _) = (bench.create(spec("x")).await, bench.create(after("y", &["x"])).await);
    let (_, lease, root) = diamond(bench).await;
    let alone = bench.claimed(&lease, &x, 10).await;
    for run in [&root, &alone] {
        bench.settle(run, Verdict::Failed).await;
    }
    bench.edit("y", Change::Delete).await;
    bench.store.advance_flow(alone.id).await.unwrap();
    assert_eq!(bench.store.flows_with_steps(None, 10).await.unwrap(), [root.id], "no job follows x any longer");
}

pub async fn a_child_can_have_its_own_ticks_and_requests(bench: &Bench) {
    bench.create(spec("a")).await;
    let b = bench.create(JobSpec { depends_on: after("b", &["a"]).depends_on, ..spec("b") }).await;
    let c = bench.create(after("c", &["b"])).await;
    let lease = bench.join("n", 1).await;
    bench.go(10);
    let tick = bench.claimed(&lease, &b, 10).await;
    assert_eq!((tick.cause, bench.run(tick.id).await.flow), (CauseKind::Tick, Some(tick.id)));
    bench.settle(&tick, Verdict::Succeeded).await;
    assert_eq!(advance(bench).await, 1);
    assert_eq!(shown(bench, tick.id).await, "b succeeded, c waiting", "its parents are not checked");
    bench.claim(&lease, child_of(&c, tick.id)).await;
    let asked = bench.trigger(new_run("b", "k")).await;
    assert_eq!(asked.flow, Some(asked.id));
}

pub async fn a_child_that_is_paused_busy_or_deleted_is_skipped(bench: &Bench) {
    bench.create(spec("a")).await;
    bench.create(after("asleep", &["a"])).await;
    bench.create(after("off", &["a"])).await;
    bench.create(after("busy", &["a"])).await;
    bench.create(after("next", &["asleep:finished"])).await;
    bench.edit("asleep", pause()).await;
    let off = JobSpec { enabled: false, ..after("off", &["a"]) };
    bench.edit("off", Change::Replace(Box::new(off))).await;
    let lease = bench.join("n", 1).await;
    bench.trigger(new_run("busy", "k")).await;
    let root = bench.trigger(new_run("a", "k")).await.id;
    let run = bench.claim(&lease, root).await;
    bench.settle(&run, Verdict::Succeeded).await;
    advance(bench).await;
    let all = "a succeeded, asleep skipped(paused), busy skipped(overlap), off skipped(paused), next waiting";
    assert_eq!(shown(bench, root).await, all);
    assert_eq!(
        bench.run(child_of(&job_of(bench, "asleep").await, root)).await.error.as_deref(),
        Some("the job was paused")
    );
}

pub(super) async fn job_of(bench: &Bench, name: &str) -> Job {
    bench.store.get_job(TENANT, &by_name(name)).await.unwrap().job
}

pub async fn a_child_under_queue_waits_and_raises_the_epoch_of_its_job(bench: &Bench) {
    bench.create(spec("a")).await;
    let b = bench.create(JobSpec { overlap: Overlap::Queue { limit: 1 }, ..after("b", &["a"]) }).await;
    let lease = bench.join("n", 1).await;
    let root = bench.trigger(new_run("a", "k")).await.id;
    let run = bench.claim(&lease, root).await;
    bench.settle(&run, Verdict::Succeeded).await;
    let epoch = bench.epoch(&b).await;
    assert_eq!(advance(bench).await, 1);
    assert!(bench.epoch(&b).await > epoch);
}

pub async fn a_flow_keeps_the_graph_that_it_was_opened_with(bench: &Bench) {
    let ([_, b, c, d], lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Succeeded).await;
    advance(bench).await;
    bench.edit("d", follow(&["b"])(after("d", &[]))).await;
    bench.create(after("e", &["b"])).await;
    end(bench, &lease, &b, root.id, Verdict::Succeeded).await;
    assert_eq!(shown(bench, root.id).await, "a succeeded, b succeeded, c waiting, d -");
    end(bench, &lease, &c, root.id, Verdict::Succeeded).await;
    assert_eq!(bench.run(child_of(&d, root.id)).await.state, State::Waiting);
}

pub async fn a_flow_that_starts_many_jobs_does_so_in_several_transactions(bench: &Bench) {
    bench.create(spec("a")).await;
    // Each rendered payload is close to the maximum size, and one transaction takes at most 4 MiB of them.
    let long = "x".repeat(250_000);
    let payload = format!(r#"["{{{{ parents.a.run }}}}", "{long}"]"#);
    for n in 0..19 {
        bench.create(taking(&format!("child-{n}"), "a", &payload)).await;
    }
    let (_, run) = root_of(bench).await;
    bench.settle(&run, Verdict::Succeeded).await;
    let first = bench.store.advance_flow(run.id).await.unwrap();
    assert!(first.more && (10..19).contains(&first.started), "{} started", first.started);
    let second = bench.store.advance_flow(run.id).await.unwrap();
    assert_eq!((first.started + second.started, second.more), (19, false));
    assert_eq!(advance(bench).await, 0);
}

pub async fn giving_up_a_flow_skips_its_next_jobs_with_reason_error(bench: &Bench) {
    let ([_, b, ..], _, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Succeeded).await;
    let given = bench.store.give_up_flow(root.id, "it is broken").await.unwrap();
    assert_eq!((given.started, given.skipped.len(), given.more), (0, 2, false));
    advance(bench).await;
    assert_eq!(shown(bench, root.id).await, "a succeeded, b skipped(error), c skipped(error), d skipped(parent)");
    assert_eq!(bench.run(child_of(&b, root.id)).await.error.as_deref(), Some("it is broken"));
    assert_eq!(flow(bench, root.id).await.state, FlowState::Failed);
}
