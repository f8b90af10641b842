//! A node starts with the name of a node whose lease is still alive, in virtual time.

use std::{sync::Arc, time::Duration};

use everytick_domain::ids::RunId;
use everytick_engine::{Engine, Parts, Settings};
use everytick_store::{
    Beat, Lease, NodeInfo, NodeProcess, Result, StoreError,
    conformance::{Bench, START, TTL, incarnation},
};
use tokio::task::JoinHandle;

use super::detect::{Sink, parts, sim};

const NAME: &str = "n";

/// A store in which an earlier process of the node has joined.
async fn bench() -> (Bench, Lease) {
    let bench = Bench::open(sim).await;
    let process = NodeProcess { host: "h1".into(), pid: 42, mark: String::new() };
    let info = NodeInfo { process: Some(process), ..NodeInfo::named(NAME) };
    let (lease, _) = bench.store.join(&info, incarnation(1), TTL).await.unwrap();
    (bench, lease)
}

/// Starts the node again and waits 2 s, in which it checks the lease several times.
async fn start(bench: &Bench, lives: fn(&NodeProcess) -> Option<bool>) -> JoinHandle<Result<Engine>> {
    let settings = Settings { node: NAME.into(), ..Settings::default() };
    let parts = Parts { process_lives: lives, settings, ..parts(bench, Arc::new(Sink::default())) };
    let started = tokio::spawn(Engine::start(parts, incarnation(2)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    started
}

fn refused(started: Result<Engine>) {
    let Err(StoreError::NodeNameTaken(owner)) = started else { panic!("{started:?}") };
    assert_eq!(owner.incarnation, incarnation(1));
}

#[tokio::test(start_paused = true)]
async fn a_node_waits_for_a_lease_that_is_not_renewed_to_expire() {
    let (bench, _) = bench().await;
    let started = start(&bench, |_| None).await;
    assert!(!started.is_finished(), "the process of the lease may be alive");
    bench.go(15);
    started.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_is_refused_when_the_lease_is_renewed() {
    let (bench, lease) = bench().await;
    let started = start(&bench, |_| None).await;
    bench.go(5);
    bench.store.renew(&lease, TTL, &Beat::of(RunId::floor(START))).await.unwrap();
    refused(started.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_node_starts_or_is_refused_at_once_when_it_knows_whether_the_process_lives() {
    let (bench, _) = bench().await;
    refused(start(&bench, |_| Some(true)).await.await.unwrap());
    start(&bench, |_| Some(false)).await.await.unwrap().unwrap();
}
