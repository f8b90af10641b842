//! A node is fenced while one of its transactions begins. The transaction waits for the fencing and is then rejected:
//! each of them locks the lease before it reads or writes anything.

use std::{future::Future, pin::Pin, sync::Arc};

use everytick_domain::{
    ids::{BackfillId, RunId},
    job::Job,
    partition::PartitionSet,
    time::Span,
};
use everytick_store::{
    BackfillStore as _, Beat, Lease, NodeInfo, PostgresStore, Result, Store as _, StoreError,
    conformance::{TTL, born, incarnation, range, s, spec, ticks},
};

use super::{
    bench,
    guards::{run, waits_for_a_lock},
};

type Answer = Pin<Box<dyn Future<Output = Result<()>> + Send>>;
/// A transaction under a lease.
type Transaction = fn(Arc<PostgresStore>, Lease, Context) -> Answer;

/// What the transactions name: a job, and a run of it that waits.
struct Context {
    job: Job,
    waits: RunId,
}

fn all() -> PartitionSet {
    PartitionSet::all(256)
}

/// Fences the node of the lease while the transaction waits for the lease.
async fn is_rejected_when_fenced(name: &str, transaction: Transaction) {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(60);
    let waits = bench.waiting(&lease, &job, 10).await;
    let mut fencing = opened.connect().await;
    run(&mut fencing, "begin; update leases set fence = fence + 1").await;
    let mut task = tokio::spawn(transaction(opened.store.clone(), lease, Context { job, waits }));
    waits_for_a_lock(&opened, &mut task).await;
    run(&mut fencing, "commit").await;
    let answer = task.await.unwrap();
    assert!(matches!(answer, Err(StoreError::LeaseLost)), "{name}: {answer:?}");
}

/// `lock_lease`, in transactions that do not change the lease.
#[tokio::test]
async fn a_transaction_that_waited_for_the_fencing_of_its_node_is_rejected() {
    let transactions: [(&str, Transaction); 8] = [
        ("claim", |store, lease, of| Box::pin(async move { store.claim(&lease, &all(), &[of.waits]).await.map(drop) })),
        ("delegate", |store, lease, of| {
            Box::pin(async move {
                let to = [(of.waits, lease.incarnation)];
                store.delegate(&lease, &all(), &to).await.map(drop)
            })
        }),
        ("record_range", |store, lease, of| {
            Box::pin(async move { store.record_range(&lease, &range(&of.job, 1, 20, 30)).await.map(drop) })
        }),
        ("repair", |store, lease, of| {
            Box::pin(async move { store.repair(&lease, &ticks(&of.job, 1, vec![born(&of.job, 20)])).await.map(drop) })
        }),
        ("load_lost", |store, lease, _| Box::pin(async move { store.load_lost(&lease, 10).await.map(drop) })),
        ("acquire", |store, lease, _| Box::pin(async move { store.acquire(&lease, &all()).await.map(drop) })),
        ("release", |store, lease, _| Box::pin(async move { store.release(&lease, &all()).await })),
        ("advance_backfill", |store, lease, _| {
            Box::pin(async move {
                let id = BackfillId::from_uuid(uuid::Uuid::from_u128(1));
                store.advance_backfill(&lease, id, Span::days(90)).await.map(drop)
            })
        }),
    ];
    for (name, transaction) in transactions {
        is_rejected_when_fenced(name, transaction).await;
    }
}

/// `lock_lease_alone`, in transactions that change the lease. Each would wait for the row also without the lock,
/// and then change the lease that another transaction has fenced.
#[tokio::test]
async fn a_change_of_a_lease_that_waited_for_the_fencing_of_its_node_is_rejected() {
    let transactions: [(&str, Transaction); 5] = [
        ("renew", |store, lease, _| {
            Box::pin(async move { store.renew(&lease, TTL, &Beat::of(RunId::floor(s(0)))).await.map(drop) })
        }),
        ("raise_fence", |store, lease, _| Box::pin(async move { store.raise_fence(&lease).await.map(drop) })),
        ("retire", |store, lease, _| Box::pin(async move { store.retire(&lease).await })),
        ("leave", |store, lease, _| Box::pin(async move { store.leave(&lease).await })),
        ("list_old_claims", |store, lease, _| {
            Box::pin(async move { store.list_old_claims(&lease, RunId::floor(s(50))).await.map(drop) })
        }),
    ];
    for (name, transaction) in transactions {
        is_rejected_when_fenced(name, transaction).await;
    }
}

/// `lock_expired` reads a lease again after it has locked it. The renewal found the lease alive and is not committed yet.
#[tokio::test]
async fn a_node_whose_renewal_was_under_way_is_not_fenced() {
    let opened = bench().await;
    let (slow, _) = opened.store.join(&NodeInfo::named("slow"), incarnation(1), TTL).await.unwrap();
    let other = opened.bench.join("other", 2).await;
    opened.bench.go(20);
    let mut renewal = opened.connect().await;
    run(&mut renewal, &format!("begin; update leases set until = {} where node = 'slow'", s(35).millis())).await;
    let store = opened.store.clone();
    let mut acquiring = tokio::spawn(async move { store.acquire(&other, &all()).await });
    waits_for_a_lock(&opened, &mut acquiring).await;
    run(&mut renewal, "commit").await;
    acquiring.await.unwrap().unwrap();
    opened.store.renew(&slow, TTL, &Beat::of(RunId::floor(s(0)))).await.unwrap();
}
