//! What a receiver has accepted outlives the node that sent it.

use std::{sync::Mutex, time::Duration};

use everytick_domain::{
    ids::{Fence, RunId},
    mutant::{self, Mutant},
    run::State,
    target::Outcome,
};
use everytick_store::{
    Store as _,
    conformance::{TENANT, job_id, settle_with},
};
use everytick_targets::{Dispatch, LiveOutput, Target};
use tokio_util::sync::CancellationToken;

use crate::alone::Alone;

/// Accepts everything, and remembers what came.
#[derive(Default)]
struct Receiver(Mutex<Vec<(RunId, u32, Fence)>>);

#[async_trait::async_trait]
impl Target for Receiver {
    async fn deliver(&self, dispatch: &Dispatch, _: &dyn LiveOutput, _: &CancellationToken) -> Outcome {
        self.0.lock().unwrap().push((dispatch.run, dispatch.attempt, dispatch.fence));
        Outcome::Accepted
    }
}

/// A run is accepted, its node stops, and the next process takes over. Gives the attempts that were delivered.
async fn delivered_over_a_restart(alone: &Alone<Receiver>) -> Vec<u32> {
    let engine = alone.start(1).await;
    let run = alone.trigger(10).await;
    assert_eq!(alone.run(run).await.state, State::Claimed);
    engine.stop(Duration::from_secs(5)).await;
    let engine = alone.start(2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    engine.stop(Duration::from_secs(5)).await;
    alone.target.0.lock().unwrap().iter().map(|(_, attempt, _)| *attempt).collect()
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_deliver_an_accepted_run_again() {
    let alone = Alone::new().await;
    assert_eq!(delivered_over_a_restart(&alone).await, [1]);
    let (run, _, fence) = alone.target.0.lock().unwrap()[0];
    let record = alone.run(run).await;
    assert_eq!((record.state, record.attempt, record.worker.as_deref()), (State::Claimed, 1, Some("shell")));
    let report = settle_with(run, fence, job_id(TENANT, "j"), TENANT, everytick_domain::run::Verdict::Succeeded);
    alone.store.settle(&[report]).await.unwrap();
    assert_eq!(alone.run(run).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn the_mutant_accepted_stays_with_node_is_found() {
    mutant::set(Some(Mutant::AcceptedStaysWithNode));
    let alone = Alone::new().await;
    let delivered = delivered_over_a_restart(&alone).await;
    mutant::set(None);
    assert_ne!(delivered, [1], "it is delivered again by the next process");
}
