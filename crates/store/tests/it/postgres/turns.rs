//! Under `queue`, a tick and a request that arrive at the same time see each other, in either order.

use everytick_domain::{
    job::{JobSpec, Overlap},
    plan::Fate,
    run::State,
};
use everytick_store::{
    RowAnswer, Store as _,
    conformance::{TENANT, actor, new_run, spec, tick, ticks},
};

use super::bench;

const ROUNDS: i64 = 60;

/// One run may wait. Whichever comes first, exactly one of the two becomes a waiting run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_and_a_request_at_once_do_not_exceed_the_queue_limit() {
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let job = bench.create(JobSpec { overlap: Overlap::Queue { limit: 1 }, ..spec("j") }).await;
    let (mut ticks_won, mut requests_won) = (0, 0);
    for round in 1..=ROUNDS {
        bench.go(round * 10);
        bench.store.now().await.unwrap();
        let planned = ticks(&job, bench.epoch(&job).await, vec![tick(&job, round * 10, Fate::Run)]);
        let (store, asks, lease) = (opened.store.clone(), opened.store.clone(), lease.clone());
        let recording = tokio::spawn(async move { store.record(&lease, &[planned]).await });
        let key = format!("k{round}");
        let asking = tokio::spawn(async move { asks.trigger(TENANT, &actor(), new_run("j", &key)).await });
        let recorded = recording.await.unwrap().unwrap().jobs.concat();
        let asked = asking.await.unwrap().unwrap();
        let waiting = bench.load(&job).await.open.len();
        assert_eq!(waiting, 1, "round {round}: {recorded:?}, {:?}", asked.state);
        match (recorded.as_slice(), asked.state) {
            ([RowAnswer::Inserted], State::Skipped) => ticks_won += 1,
            ([RowAnswer::Stale], State::Waiting) => requests_won += 1,
            other => panic!("round {round}: {other:?}"),
        }
        bench.store.cancel_job(TENANT, &actor(), &everytick_store::JobRef::Id(job.id)).await.unwrap();
    }
    println!("the tick won {ticks_won} of {ROUNDS} rounds, the request {requests_won}");
}
