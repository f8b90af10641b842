//! The flows loop on the simulated store: a flow that cannot be advanced does not stop the others.

use std::{any::Any, sync::Arc, time::Duration};

use everytick_domain::{
    flow::{DependsOn, FlowState, When},
    ids::RunId,
    job::JobSpec,
    partition::PARTITIONS,
    run::SkipReason,
};
use everytick_sim::SimStore;
use everytick_store::{
    FlowRecord, Store,
    conformance::{Bench, TENANT, new_run, spec},
};

use super::detect::{Sink, start};

fn following(name: &str, parents: &[&str]) -> JobSpec {
    let parent = |job: &&str| DependsOn { job: (*job).to_owned(), when: When::Succeeded };
    JobSpec { schedule: None, depends_on: parents.iter().map(parent).collect(), ..spec(name) }
}

/// Waits in virtual time until the flow has ended.
async fn ended(bench: &Bench, flow: RunId) -> FlowRecord {
    let ended = async {
        loop {
            let flow = bench.store.get_flow(TENANT, flow).await.unwrap();
            if flow.state != FlowState::Running {
                return flow;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), ended).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_cannot_be_advanced_is_given_up_and_does_not_stop_others() {
    let mut made = None;
    let bench = Bench::open(async |clock, limits| {
        let store = Arc::new(SimStore::shared(clock, limits, PARTITIONS));
        made = Some(store.clone());
        (store as Arc<dyn Store>, Box::new(()) as Box<dyn Any + Send + Sync>)
    })
    .await;
    for (name, parents) in [("a", &[][..]), ("b", &["a"]), ("c", &["b"]), ("x", &[]), ("y", &["x"])] {
        bench.create(following(name, parents)).await;
    }
    let broken = bench.trigger(new_run("a", "k")).await.id;
    made.unwrap().break_flow(broken);
    bench.go(1);
    let sound = bench.trigger(new_run("x", "k")).await.id;
    let engine = start(&bench, Arc::<Sink>::default()).await;
    assert_eq!(ended(&bench, sound).await.state, FlowState::Succeeded);
    let broken = ended(&bench, broken).await;
    assert_eq!(broken.state, FlowState::Failed);
    let run = broken.nodes[1].run.as_ref().unwrap();
    assert_eq!(run.skip_reason, Some(SkipReason::Error));
    let why = run.error.as_deref().unwrap();
    assert!(why.starts_with("the flow could not be advanced after 5 failures: could not advance a flow"), "{why}");
    engine.stop(Duration::from_secs(5)).await;
}
