//! A job that cannot be loaded does not stop the ticks of other jobs.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use everytick_domain::{job::Job, partition::PARTITIONS};
use everytick_sim::SimStore;
use everytick_store::{
    Store,
    conformance::{Bench, overlapping},
};

use crate::detect::{Sink, start};

async fn until_ticked(bench: &Bench, jobs: &[Job]) {
    let ticked = async {
        for job in jobs {
            while bench.history(job).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ticked).await.unwrap();
}

#[tokio::test]
async fn a_job_that_cannot_be_loaded_is_retried_later_and_the_others_tick() {
    let opened: Mutex<Option<Arc<SimStore>>> = Mutex::default();
    let bench = Bench::open(|clock, limits| {
        let store = Arc::new(SimStore::shared(clock, limits, PARTITIONS));
        *opened.lock().unwrap() = Some(store.clone());
        async move { (store as Arc<dyn Store>, Box::new(()) as Box<dyn std::any::Any + Send + Sync>) }
    })
    .await;
    let store = opened.lock().unwrap().take().unwrap();
    let mut jobs = Vec::new();
    for n in 0..12 {
        jobs.push(bench.create(overlapping(&format!("j{n}"))).await);
    }
    let bad = jobs.swap_remove(5);
    store.fail_loads_of(bad.id, true);
    bench.go(10);
    let engine = start(&bench, Arc::new(Sink::default())).await;
    until_ticked(&bench, &jobs).await;
    assert!(bench.history(&bad).await.is_empty());
    store.fail_loads_of(bad.id, false);
    until_ticked(&bench, &[bad]).await;
    engine.stop(Duration::from_secs(5)).await;
}
