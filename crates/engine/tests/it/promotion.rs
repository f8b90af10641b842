//! A standby that lagged is promoted: the database has lost commits that it had confirmed to nodes.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use everytick_domain::{run::State, target::Outcome};
use everytick_store::{Store as _, conformance::TENANT};
use everytick_targets::{Dispatch, LiveOutput, Target};
use tokio_util::sync::CancellationToken;

use crate::harness::Harness;

/// Succeeds at every delivery and remembers the attempts.
#[derive(Default)]
struct Sink {
    attempts: Mutex<Vec<u32>>,
    /// How many seconds a delivery lasts.
    lasts: AtomicU64,
}

impl Sink {
    fn attempts(&self) -> Vec<u32> {
        self.attempts.lock().unwrap().clone()
    }
}

#[async_trait::async_trait]
impl Target for Sink {
    async fn deliver(&self, dispatch: &Dispatch, _: &dyn LiveOutput, _: &CancellationToken) -> Outcome {
        self.attempts.lock().unwrap().push(dispatch.attempt);
        tokio::time::sleep(Duration::from_secs(self.lasts.load(Ordering::Relaxed))).await;
        Outcome::Succeeded { output: Some("done".into()) }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_settlement_was_lost_is_lost_and_gets_the_next_attempt() {
    let harness = Harness::<Sink>::new().await;
    let engine = harness.start(1).await;
    let run = harness.trigger(10).await;
    assert_eq!(harness.run(run).await.state, State::Succeeded);
    assert!(harness.store.lose_settlement(run));
    // The node does not learn of the promotion. The claim is compared when it is old.
    tokio::time::sleep(Duration::from_secs(80)).await;
    let record = harness.run(run).await;
    assert_eq!((record.state, record.attempt, record.lost), (State::Succeeded, 2, 1));
    assert_eq!(harness.target.attempts(), [1, 2], "no attempt is sent twice");
    let attempts = harness.store.list_attempts(TENANT, run).await.unwrap();
    let outcomes: Vec<_> = attempts.iter().map(|attempt| attempt.outcome.as_deref()).collect();
    assert_eq!(outcomes, [Some("lost"), Some("succeeded")]);
    engine.stop(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn the_lost_settlement_of_an_old_run_is_found_after_the_next_renewal() {
    let harness = Harness::<Sink>::new().await;
    let engine = harness.start(1).await;
    harness.target.lasts.store(120, Ordering::Relaxed);
    let run = harness.trigger(130).await;
    assert_eq!(harness.run(run).await.state, State::Succeeded);
    harness.target.lasts.store(0, Ordering::Relaxed);
    assert!(harness.store.lose_settlement(run));
    tokio::time::sleep(Duration::from_secs(8)).await;
    let record = harness.run(run).await;
    assert_eq!((record.state, record.attempt, record.lost), (State::Succeeded, 2, 1));
    assert_eq!(harness.target.attempts(), [1, 2]);
    engine.stop(Duration::from_secs(5)).await;
}
