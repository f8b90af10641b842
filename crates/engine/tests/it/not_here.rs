//! Deliveries that the settings of a node forbid.

use std::time::Duration;

use everytick_domain::{run::State, target::Outcome};
use everytick_store::{
    NodeInfo, Store as _,
    conformance::{TTL, incarnation},
};
use everytick_targets::{Capabilities, Dispatch, LiveOutput, Target};
use tokio_util::sync::CancellationToken;

use crate::harness::Harness;

/// Refuses every delivery after one second.
#[derive(Default)]
struct Refuses;

#[async_trait::async_trait]
impl Target for Refuses {
    async fn deliver(&self, _: &Dispatch, _: &dyn LiveOutput, _: &CancellationToken) -> Outcome {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Outcome::NotHere { error: "start it with --enable-shell".into(), address: None }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopping_node_releases_unspent_a_run_that_it_may_not_deliver() {
    let harness = Harness::<Refuses>::new().await;
    let engine = harness.start(1).await;
    let run = harness.trigger(0).await;
    while harness.run(run).await.state == State::Waiting {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    engine.stop(Duration::from_secs(5)).await;
    let record = harness.run(run).await;
    assert_eq!((record.state, record.attempt, record.error), (State::Waiting, 0, None));
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_unspent_for_the_only_capable_node_to_restart_and_then_fails_with_the_missing_flag() {
    let harness = Harness::<Refuses>::shared().await;
    let engine = harness.start(1).await;
    let able = NodeInfo { can: Some(Capabilities::all().publish()), ..NodeInfo::named("able") };
    let (lease, _) = harness.store.join(&able, incarnation(2), TTL).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    harness.store.leave(&lease).await.unwrap();
    let run = harness.trigger(20).await;
    let record = harness.run(run).await;
    assert_eq!((record.state, record.attempt), (State::Waiting, 0));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let record = harness.run(run).await;
    assert!(record.attempt > 0 && record.error.is_some_and(|error| error.contains("--enable-shell")));
    engine.stop(Duration::from_secs(5)).await;
}
