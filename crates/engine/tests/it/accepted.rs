//! A run that a receiver has accepted survives the node that sent it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use everytick_domain::{
    ids::{Fence, RunId},
    mutant::{self, Mutant},
    run::State,
    target::Outcome,
    time::DbTime,
};
use everytick_engine::Settings;
use everytick_sim::{Call, Faults, Point};
use everytick_store::{
    Store as _,
    conformance::{TENANT, actor, job_id, new_run, settle_with},
};
use everytick_targets::{Dispatch, LiveOutput, Target};
use tokio_util::sync::CancellationToken;

use crate::harness::Harness;

/// Accepts every delivery and remembers it.
#[derive(Default)]
struct Receiver(Mutex<Vec<(RunId, u32, Fence)>>);

#[async_trait::async_trait]
impl Target for Receiver {
    async fn deliver(&self, dispatch: &Dispatch, _: &dyn LiveOutput, _: &CancellationToken) -> Outcome {
        self.0.lock().unwrap().push((dispatch.run, dispatch.attempt, dispatch.fence));
        Outcome::Accepted
    }
}

/// A run is accepted, its node stops, and the next process takes over. Returns the attempts that were delivered.
async fn delivered_over_a_restart(harness: &Harness<Receiver>) -> Vec<u32> {
    let engine = harness.start(1).await;
    let run = harness.trigger(10).await;
    assert_eq!(harness.run(run).await.state, State::Claimed);
    engine.stop(Duration::from_secs(5)).await;
    let engine = harness.start(2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    engine.stop(Duration::from_secs(5)).await;
    harness.target.0.lock().unwrap().iter().map(|(_, attempt, _)| *attempt).collect()
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_deliver_an_accepted_run_again() {
    let harness = Harness::new().await;
    assert_eq!(delivered_over_a_restart(&harness).await, [1]);
    let (run, _, fence) = harness.target.0.lock().unwrap()[0];
    let record = harness.run(run).await;
    assert_eq!((record.state, record.attempt, record.worker.as_deref()), (State::Claimed, 1, Some("shell")));
    let report = settle_with(run, fence, job_id(TENANT, "j"), TENANT, everytick_domain::run::Verdict::Succeeded);
    harness.store.settle(&[report]).await.unwrap();
    assert_eq!(harness.run(run).await.state, State::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn the_mutant_accepted_stays_with_node_is_found() {
    mutant::set(Some(Mutant::AcceptedStaysWithNode));
    let harness = Harness::new().await;
    let delivered = delivered_over_a_restart(&harness).await;
    mutant::set(None);
    assert_ne!(delivered, [1], "the next process delivers the run again");
}

/// Another session locks one run.
#[derive(Default)]
struct Locks(Mutex<Option<RunId>>);

impl Faults for Locks {
    fn call(&self, _: Point) -> Option<Call> {
        None
    }
    fn locks(&self, run: RunId, _: DbTime) -> bool {
        *self.0.lock().unwrap() == Some(run)
    }
}

#[tokio::test(start_paused = true)]
async fn a_locked_run_does_not_delay_other_accepted_runs_and_is_retried() {
    let (harness, locks) = (Harness::<Receiver>::new().await, Arc::new(Locks::default()));
    let store = Arc::new(harness.store.connect(locks.clone()));
    let engine = harness.start_with(store, 1, Settings::default()).await;
    let trigger = async |key: &str| harness.store.trigger(TENANT, &actor(), new_run("j", key)).await.unwrap().id;
    let (locked, other) = (trigger("locked").await, trigger("other").await);
    *locks.0.lock().unwrap() = Some(locked);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let last = trigger("last").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let accepted = async |run| harness.run(run).await.worker.is_some();
    assert_eq!((accepted(locked).await, accepted(other).await, accepted(last).await), (false, true, true));
    *locks.0.lock().unwrap() = None;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(accepted(locked).await);
    engine.stop(Duration::from_secs(5)).await;
    let attempts: Vec<_> = harness.target.0.lock().unwrap().iter().map(|(_, attempt, _)| *attempt).collect();
    assert_eq!(attempts, [1, 1, 1], "no run is delivered twice");
}
