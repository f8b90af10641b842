//! Payloads that use the results of parents.

use everytick_domain::{
    edit::Change,
    flow::FlowState,
    job::{Job, JobSpec},
    run::{SkipReason, State, Verdict},
};

use super::flow_commands::rerun;
use super::flows::{advance, after, child_of, flow, root_of, shown, taking};
use super::{Bench, TENANT, actor, new_run, settle_with, spec};
use crate::StoreError;

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_flow_payloads {
    ($open:path) => {
        $crate::conformance_group! { $open, flow_payloads:
            a_payload_uses_the_outputs_of_its_parents,
            a_payload_uses_the_error_of_a_parent,
            a_skip_with_reason_error_fails_the_flow_and_can_be_rerun,
            a_run_outside_a_flow_cannot_refer_to_parents,
        }
    };
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
