//! Several nodes advance one backfill at once, which may happen when partitions change owners.

use everytick_domain::{
    backfill::{BACKFILL_OPEN_MAX, Order, Stretch},
    ids::BackfillId,
    run::CauseKind,
    time::Span,
};
use everytick_store::{
    BackfillStore as _, NewBackfill,
    conformance::{TENANT, actor, by_name, overlapping, s, spec},
};
use tokio::task::JoinSet;

use super::{Opened, bench};

const KEPT: Span = Span::days(90);
const AT_ONCE: usize = 5;

/// Advances a backfill of all ticks up to now from several nodes at once. Returns how many runs they report, and how
/// many exist.
async fn advanced(opened: &Opened) -> (usize, usize) {
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    bench.go(5_000);
    let id = BackfillId::from_uuid(uuid::Uuid::from_u128(1));
    let ask = NewBackfill {
        id,
        job: by_name("j"),
        stretch: Stretch { from: s(0), to: s(5_000), order: Order::Oldest },
        rate: None,
        payload: None,
        kept: KEPT,
        idempotency: None,
    };
    let record = opened.store.create_backfill(TENANT, &actor(), ask).await.unwrap();
    let mut steps = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (store, lease) = (opened.store.clone(), lease.clone());
        steps.spawn(async move { store.advance_backfill(&lease, id, KEPT).await.unwrap().made });
    }
    let made: usize = steps.join_all().await.into_iter().sum();
    let stands = opened.store.get_backfill(TENANT, id).await.unwrap();
    assert_eq!(stands.made as usize, made);
    let job = bench.store.get_job(TENANT, &by_name("j")).await.unwrap().job;
    let history = bench.history(&job).await;
    let mut ticks: Vec<_> =
        history.iter().filter(|run| run.cause == CauseKind::Backfill).map(|run| run.scheduled_at).collect();
    ticks.sort_unstable();
    // The first ticks, each once.
    assert!(ticks.iter().zip(0..).all(|(tick, n)| *tick == s(n * 10)), "{ticks:?}");
    assert_eq!(record.total, 500);
    (made, ticks.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_advance_a_backfill_at_once_create_each_run_once_up_to_the_open_limit() {
    let opened = bench().await;
    opened.bench.create(overlapping("j")).await;
    assert_eq!(advanced(&opened).await, (BACKFILL_OPEN_MAX, BACKFILL_OPEN_MAX));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_advance_a_backfill_at_once_create_one_run_if_runs_may_not_overlap() {
    let opened = bench().await;
    opened.bench.create(spec("j")).await;
    assert_eq!(advanced(&opened).await, (1, 1));
}
