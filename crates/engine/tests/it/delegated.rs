//! Runs that other nodes have delegated to a node.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use everytick_domain::{ids::RunId, partition::PartitionSet, run::State, target::Outcome};
use everytick_engine::Settings;
use everytick_sim::{Call, Fate, Faults, Point};
use everytick_store::{
    Lease, NodeInfo, Store as _,
    conformance::{TENANT, TTL, actor, incarnation, new_run},
};
use everytick_targets::{Dispatch, LiveOutput, Target};
use tokio_util::sync::CancellationToken;

use crate::harness::Harness;

/// Counts the deliveries of each job. A delivery lasts 28 s: it ends between two polls, which are 5 s apart.
#[derive(Default)]
struct Slow(Mutex<BTreeMap<String, usize>>);

impl Slow {
    fn deliveries(&self, job: &str) -> usize {
        self.0.lock().unwrap().get(job).copied().unwrap_or(0)
    }
}

#[async_trait::async_trait]
impl Target for Slow {
    async fn deliver(&self, dispatch: &Dispatch, _: &dyn LiveOutput, _: &CancellationToken) -> Outcome {
        *self.0.lock().unwrap().entry(dispatch.job.clone()).or_default() += 1;
        tokio::time::sleep(Duration::from_secs(28)).await;
        Outcome::Succeeded { output: None }
    }
}

/// Injects one fault into the next calls at one point. Stores the point, the fault, and how many calls it affects.
#[derive(Default)]
struct AimedFault(Mutex<Option<(Point, Call, usize)>>);

impl AimedFault {
    fn at(&self, point: Point, call: Call, calls: usize) {
        *self.0.lock().unwrap() = Some((point, call, calls));
    }
}

impl Faults for AimedFault {
    fn call(&self, point: Point) -> Option<Call> {
        let mut aimed = self.0.lock().unwrap();
        let (_, call, calls) = aimed.as_mut().filter(|(at, _, calls)| *at == point && *calls > 0)?;
        *calls -= 1;
        Some(*call)
    }
}

/// The node that receives the runs.
const RECEIVER: u128 = 1;

/// A second node that owns no partition. Its lease publishes no capabilities, so the receiver knows of no node that can deliver
/// less.
async fn owner(harness: &Harness<Slow>) -> Lease {
    harness.store.join(&NodeInfo::named("owner"), incarnation(2), TTL).await.unwrap().0
}

/// Creates a run and delegates it to the receiver before the receiver claims it as its own.
async fn delegate(harness: &Harness<Slow>, owner: &Lease, job: &str, key: &str) -> RunId {
    let run = harness.store.trigger(TENANT, &actor(), new_run(job, key)).await.unwrap().id;
    let to = [(run, incarnation(RECEIVER))];
    assert_eq!(harness.store.delegate(owner, &PartitionSet::all(1), &to).await.unwrap(), [run]);
    run
}

#[tokio::test(start_paused = true)]
async fn a_node_delivers_runs_delegated_to_it_when_all_nodes_can_deliver_the_same() {
    let harness = Harness::<Slow>::shared().await;
    let engine = harness.start(RECEIVER).await;
    let owner = owner(&harness).await;
    let run = delegate(&harness, &owner, "j", "k").await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!((harness.run(run).await.state, harness.target.deliveries("j")), (State::Succeeded, 1));
    engine.stop(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_search_for_delegated_runs_that_times_out_does_not_raise_the_fence() {
    for point in [Point::Peek, Point::Load] {
        let (harness, faults) = (Harness::<Slow>::shared().await, Arc::new(AimedFault::default()));
        let store = Arc::new(harness.store.connect(faults.clone()));
        let engine = harness.start_with(store, RECEIVER, Settings::default()).await;
        let fence = async || {
            let nodes = harness.store.cluster().await.unwrap().nodes;
            nodes.iter().find(|node| node.incarnation == incarnation(RECEIVER)).unwrap().fence
        };
        let before = fence().await;
        let owner = owner(&harness).await;
        let run = delegate(&harness, &owner, "j", "k").await;
        let slow = Call { travel: Duration::from_secs(6), fate: Fate::Done, back: Duration::ZERO };
        faults.at(point, slow, usize::MAX);
        tokio::time::sleep(Duration::from_secs(20)).await;
        faults.at(point, slow, 0);
        tokio::time::sleep(Duration::from_secs(80)).await;
        assert_eq!((harness.run(run).await.state, fence().await), (State::Succeeded, before), "{point:?}");
        engine.stop(Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_delegated_run_whose_claim_was_not_confirmed_is_released_unspent() {
    let (harness, faults) = (Harness::<Slow>::shared().await, Arc::new(AimedFault::default()));
    let store = Arc::new(harness.store.connect(faults.clone()));
    let engine = harness.start_with(store, RECEIVER, Settings::default()).await;
    let owner = owner(&harness).await;
    let run = delegate(&harness, &owner, "j", "k").await;
    let lost = Call { travel: Duration::ZERO, fate: Fate::ReplyLost, back: Duration::ZERO };
    faults.at(Point::Claim, lost, usize::MAX);
    while harness.run(run).await.state == State::Waiting {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    faults.at(Point::Claim, lost, 0);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let record = harness.run(run).await;
    assert_eq!(
        (record.state, record.attempt, record.lost),
        (State::Succeeded, 1, 0),
        "the unconfirmed claim was never sent"
    );
    assert_eq!(harness.target.deliveries("j"), 1);
    engine.stop(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn delegated_runs_of_one_job_use_no_more_than_its_share_of_the_slots_and_hide_no_other_job() {
    let harness = Harness::<Slow>::shared().await;
    harness.create("modest").await;
    let settings = Settings { slots: 20, ..Settings::default() };
    let engine = harness.start_with(harness.store.clone(), RECEIVER, settings).await;
    let owner = owner(&harness).await;
    for n in 0..30 {
        delegate(&harness, &owner, "j", &format!("k{n}")).await;
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    delegate(&harness, &owner, "modest", "k").await;
    while harness.target.deliveries("modest") == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(harness.target.deliveries("j"), 5, "a quarter of 20 slots");
    tokio::time::sleep(Duration::from_millis(8_500)).await;
    assert_eq!(harness.target.deliveries("j"), 10, "a free slot is used before the next poll");
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(harness.target.deliveries("j"), 30, "all are delivered in the end");
    engine.stop(Duration::from_secs(5)).await;
}
