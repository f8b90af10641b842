//! Flows: each job has one run per flow, in whatever order its parents end.

use everytick_domain::{
    edit::Change,
    flow::{DependsOn, FlowState, When},
    ids::{Cause, RunId},
    job::{Job, JobSpec, Overlap},
    run::{CauseKind, SkipReason, State, Verdict},
    target::{QueueTarget, TargetSpec},
    time::Span,
};

use super::{Bench, OTHER_TENANT, TENANT, actor, by_name, change, job_id, new_run, pause, s, settle_with, spec};
use crate::{
    ClaimQueue, ClaimedRun, FlowRecord, IdempotencyKey, Lease, NewJob, RerunFlow, Result, RunRecord, StoreError,
};

/// A job without a schedule that depends on these parents, each written as `name` or `name:when`.
fn after(name: &str, parents: &[&str]) -> JobSpec {
    let parent = |text: &&str| {
        let (job, when) = text.split_once(':').unwrap_or((text, "succeeded"));
        DependsOn { job: job.to_owned(), when: When::from_word(when).unwrap() }
    };
    JobSpec { schedule: None, depends_on: parents.iter().map(parent).collect(), ..spec(name) }
}

fn follow(parents: &[&str]) -> impl Fn(JobSpec) -> Change {
    let depends_on = after("x", parents).depends_on;
    move |spec| Change::Replace(Box::new(JobSpec { depends_on: depends_on.clone(), ..spec }))
}

/// Advances all flows that have steps.
async fn advance(bench: &Bench) -> usize {
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

async fn flow(bench: &Bench, id: RunId) -> FlowRecord {
    bench.store.get_flow(TENANT, id).await.unwrap()
}

/// `name state` of each job, or `-` if it is not decided yet; skips with their reasons.
async fn shown(bench: &Bench, id: RunId) -> String {
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

fn child_of(job: &Job, flow: RunId) -> RunId {
    RunId::of(job.id, Cause::Parent { flow })
}

/// Claims the run of a job in a flow.
async fn claim(bench: &Bench, lease: &Lease, job: &Job, flow: RunId) -> ClaimedRun {
    bench.claim(lease, child_of(job, flow)).await
}

async fn end(bench: &Bench, lease: &Lease, job: &Job, flow: RunId, verdict: Verdict) {
    let run = claim(bench, lease, job, flow).await;
    bench.settle(&run, verdict).await;
    advance(bench).await;
}

/// a -> b, c; b, c -> d; and a lease. a's run at second 10 is claimed.
async fn diamond(bench: &Bench) -> ([Job; 4], Lease, ClaimedRun) {
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

fn message(result: Result<crate::Created>) -> String {
    match result.unwrap_err() {
        StoreError::Invalid(found) => found[0].to_string(),
        error => error.to_string(),
    }
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
    let cancelled = bench.store.cancel_flow(TENANT, &actor(), root.id).await.unwrap();
    let told = (cancelled.flow.state, cancelled.flow.cancelled_at, cancelled.cancelled.len());
    assert_eq!(told, (FlowState::Failed, None, 0), "an ended flow keeps its state");
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

pub async fn a_run_that_ends_leaves_a_step_in_its_own_flow_alone(bench: &Bench) {
    let ([a, ..], lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Failed).await;
    advance(bench).await;
    let second = bench.claimed(&lease, &a, 20).await;
    bench.settle(&second, Verdict::Failed).await;
    assert_eq!(bench.store.flows_with_steps(None, 10).await.unwrap(), [second.id]);
}

pub async fn a_step_that_opens_no_flow_is_forgotten_alone(bench: &Bench) {
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

async fn job_of(bench: &Bench, name: &str) -> Job {
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

pub async fn a_payload_uses_the_outputs_of_its_parents(bench: &Bench) {
    bench.create(spec("a")).await;
    let payload = r#"{"rows": "{{ parents.a.output.rows }}", "of": "{{ flow }}", "kept": 1}"#;
    let good = bench.create(JobSpec { payload: Some(payload.into()), ..after("good", &["a"]) }).await;
    let missing = r#""{{ parents.a.output.nothing }}""#;
    let bad = bench.create(JobSpec { payload: Some(missing.into()), ..after("bad", &["a"]) }).await;
    let plain = bench.create(JobSpec { payload: Some("{ }".into()), ..after("plain", &["a"]) }).await;
    let lease = bench.join("n", 1).await;
    let root = bench.trigger(new_run("a", "k")).await.id;
    let run = bench.claim(&lease, root).await;
    let mut settle = settle_with(run.id, run.fence, run.job, TENANT, Verdict::Succeeded);
    settle.settlement.output = Some(r#"{"rows": 12}"#.into());
    bench.store.settle(&[settle]).await.unwrap();
    advance(bench).await;
    let of = |job: &Job| child_of(job, root);
    let filled = format!(r#"{{"kept":1,"of":"{root}","rows":12}}"#);
    assert_eq!(bench.run(of(&good)).await.payload.as_deref(), Some(filled.as_str()));
    assert_eq!(bench.claim(&lease, of(&good)).await.payload.as_deref(), Some(filled.as_str()));
    assert_eq!(bench.run(of(&plain)).await.payload, None, "the job's payload is delivered unchanged");
    let bad = bench.run(of(&bad)).await;
    assert_eq!((bad.state, bad.skip_reason), (State::Skipped, Some(SkipReason::Error)));
    let why = r#"payload: {{ parents.a.output.nothing }}: the output of "a" has no "nothing""#;
    assert_eq!(bad.error.as_deref(), Some(why));
}

/// Triggers and claims the run of the parent "a".
async fn root_of(bench: &Bench) -> (Lease, ClaimedRun) {
    let lease = bench.join("n", 1).await;
    let root = bench.trigger(new_run("a", "k")).await.id;
    let run = bench.claim(&lease, root).await;
    (lease, run)
}

fn taking(name: &str, parent: &str, payload: &str) -> JobSpec {
    JobSpec { payload: Some(payload.into()), ..after(name, &[parent]) }
}

pub async fn a_payload_uses_the_error_of_a_parent(bench: &Bench) {
    bench.create(spec("a")).await;
    let told = bench.create(taking("told", "a:failed", r#"{"why": "{{ parents.a.error }}"}"#)).await;
    bench.create(after("b", &["a"])).await;
    let skipped = bench.create(taking("skipped", "b:finished", r#""{{ parents.b.error }}""#)).await;
    let (_, run) = root_of(bench).await;
    let mut settle = settle_with(run.id, run.fence, run.job, TENANT, Verdict::Failed);
    settle.settlement.error = Some("exit 1".into());
    bench.store.settle(&[settle]).await.unwrap();
    advance(bench).await;
    let payload = bench.run(child_of(&told, run.id)).await.payload;
    assert_eq!(payload.as_deref(), Some(r#"{"why":"exit 1"}"#));
    let payload = bench.run(child_of(&skipped, run.id)).await.payload;
    assert_eq!(payload.as_deref(), Some(r#""parent a is failed, not succeeded""#), "b is skipped in the same step");
}

pub async fn a_skip_with_reason_error_fails_the_flow_and_can_be_rerun(bench: &Bench) {
    bench.create(spec("a")).await;
    let bad = bench.create(taking("bad", "a", r#""{{ parents.a.output.nothing }}""#)).await;
    bench.create(after("next", &["bad"])).await;
    let (_, run) = root_of(bench).await;
    bench.settle(&run, Verdict::Succeeded).await;
    let advanced = bench.store.advance_flow(run.id).await.unwrap();
    let [skipped] = &advanced.skipped[..] else { panic!("{advanced:?}") };
    assert_eq!((skipped.run, skipped.job_name.as_str()), (child_of(&bad, run.id), "bad"));
    assert_eq!((skipped.reason, advanced.started), (SkipReason::Error, 0));
    assert!(skipped.error.contains("is not JSON"), "{}", skipped.error);
    advance(bench).await;
    assert_eq!(shown(bench, run.id).await, "a succeeded, bad skipped(error), next skipped(parent)");
    assert_eq!(flow(bench, run.id).await.state, FlowState::Failed);
    bench.edit("bad", Change::Replace(Box::new(taking("bad", "a", "1")))).await;
    let again = bench.store.rerun_flow(TENANT, &actor(), rerun(run.id, &[])).await.unwrap();
    assert_eq!(shown(bench, again.id).await, "bad waiting, next -");
}

pub async fn a_run_outside_a_flow_cannot_refer_to_parents(bench: &Bench) {
    bench.create(spec("a")).await;
    bench.create(taking("b", "a", r#""{{ parents.a.run }}""#)).await;
    let refused = bench.store.trigger(TENANT, &actor(), new_run("b", "k")).await;
    assert!(matches!(&refused, Err(StoreError::Invalid(found)) if found[0].field == "payload"), "{refused:?}");
    let own = crate::NewRun { payload: Some("1".into()), ..new_run("b", "k") };
    assert_eq!(bench.trigger(own).await.state, State::Waiting);
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

pub async fn parents_are_resolved_when_a_job_is_defined(bench: &Bench) {
    let unknown = message(bench.created(TENANT, after("b", &["a"])).await);
    assert_eq!(unknown, "depends_on[0].job: there is no job \"a\"; create it first");
    let a = bench.create(spec("a")).await;
    let by_id = bench.create(after("b", &[&a.id.to_string()])).await;
    assert_eq!(by_id.spec.depends_on[0].job, "a", "the definition stores the name of the parent");
    assert!(message(bench.created(OTHER_TENANT, after("b", &["a"])).await).contains("no job \"a\""));
    let twice = message(bench.created(TENANT, after("c", &["a", &a.id.to_string()])).await);
    assert_eq!(twice, "depends_on[1].job: \"a\" is named twice");
}

pub async fn jobs_created_together_may_depend_on_each_other(bench: &Bench) {
    let new = |spec: JobSpec| NewJob { id: job_id(TENANT, &spec.name), spec };
    let jobs = vec![new(after("c", &["b"])), new(after("b", &["a"])), new(spec("a")), new(after("x", &["nobody"]))];
    let made = bench.store.create_jobs(TENANT, &actor(), jobs, None).await.unwrap();
    let names: Vec<_> = made.iter().map(|made| made.as_ref().ok().map(|made| made.job.spec.name.as_str())).collect();
    assert_eq!(names, [Some("c"), Some("b"), Some("a"), None], "answers are in the order of the request");
    let lease = bench.join("n", 1).await;
    let root = bench.trigger(new_run("a", "k")).await.id;
    assert_eq!(shown(bench, root).await, "a waiting, b -, c -");
    bench.claim(&lease, root).await;
}

pub async fn a_cycle_is_refused_and_named(bench: &Bench) {
    diamond(bench).await;
    let edit = change("a", follow(&["d"])(spec("a")));
    let refused = bench.store.edit_job(TENANT, &actor(), edit).await.unwrap_err();
    let StoreError::Invalid(found) = refused else { panic!("{refused}") };
    assert_eq!(found[0].to_string(), "depends_on: makes a cycle: a -> b -> d -> a");
    assert!(job_of(bench, "a").await.spec.depends_on.is_empty());
    // The reversed edge is no cycle after the first edges are removed.
    bench.edit("b", follow(&[])(after("b", &[]))).await;
    bench.edit("c", follow(&[])(after("c", &[]))).await;
    bench.edit("a", follow(&["d"])(spec("a"))).await;
    assert_eq!(job_of(bench, "a").await.spec.depends_on[0].job, "d");
}

pub async fn a_job_with_children_cannot_be_deleted_or_renamed(bench: &Bench) {
    diamond(bench).await;
    let refused = bench.store.edit_job(TENANT, &actor(), change("a", Change::Delete)).await.unwrap_err();
    assert_eq!(refused.to_string(), "the job is named by the jobs b, c");
    let renamed = Change::Replace(Box::new(JobSpec { name: "z".into(), ..spec("a") }));
    assert!(matches!(
        bench.store.edit_job(TENANT, &actor(), change("a", renamed)).await,
        Err(StoreError::InUse { what: "job", count: 2, .. })
    ));
    // Jobs without children can be deleted, children first.
    for name in ["d", "c", "b", "a"] {
        bench.edit(name, Change::Delete).await;
    }
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

fn rerun(flow: RunId, from: &[&str]) -> RerunFlow {
    let from = from.iter().map(|name| (*name).to_owned()).collect();
    RerunFlow { flow, from, key: b"k".to_vec(), idempotency: None }
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
    assert_eq!(unknown.to_string(), "from[0]: the flow has no job \"z\"");
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

pub async fn an_old_flow_goes_and_a_newer_one_stays(bench: &Bench) {
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

/// Prunes long after the flow began, while `b` is open and `c` has succeeded. Only the flow keeps the root.
async fn pruned_while_b_is_open(bench: &Bench, a: &Job, root: RunId, lease: &Lease) {
    bench.waiting(lease, a, 20).await;
    bench.raise(a, 1, Some(s(30))).await;
    bench.go(200 * 86_400);
    bench.store.prune(s(100 * 86_400), 100).await.unwrap();
    assert_eq!(shown(bench, root).await, "a succeeded, b claimed, c succeeded, d -");
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

pub async fn a_flow_that_goes_on_keeps_only_its_own_runs(bench: &Bench) {
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

pub async fn a_redriven_run_opens_its_own_flow(bench: &Bench) {
    let ([_, b, ..], lease, root) = diamond(bench).await;
    bench.settle(&root, Verdict::Succeeded).await;
    advance(bench).await;
    end(bench, &lease, &b, root.id, Verdict::Failed).await;
    let ask = crate::Redrive { job: by_name("b"), since: s(0), until: None, limit: 10, dry_run: false };
    let redriven = bench.store.redrive(TENANT, &actor(), &ask).await.unwrap().runs.remove(0).run;
    assert_eq!(bench.run(redriven).await.flow, Some(redriven));
}
