//! Guards that only matter while another session is between its statement and its commit. Each test fails without the
//! lock that it names.

use everytick_store::{
    NodeInfo, Store, StoreError,
    conformance::{TTL, incarnation, s},
};

use super::{
    bench,
    guards::{run, waits_for_a_lock},
};

/// A join reads the leases of its name only when they are locked, so a renewal that was under way counts (`join_lock`).
#[tokio::test]
async fn a_name_stays_with_a_lease_whose_renewal_was_under_way() {
    let opened = bench().await;
    opened.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    opened.bench.go(20);
    let mut renewal = opened.connect().await;
    run(&mut renewal, &format!("begin; update leases set until = {}", s(30).millis())).await;
    let store = opened.store.clone();
    let mut join = tokio::spawn(async move { store.join(&NodeInfo::named("a"), incarnation(2), TTL).await });
    waits_for_a_lock(&opened, &mut join).await;
    run(&mut renewal, "commit").await;
    let refused = join.await.unwrap();
    assert!(matches!(refused, Err(StoreError::NameHeld(_))), "{refused:?}");
}
