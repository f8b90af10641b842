//! Reads the audit trail without a gap: up to a number that is settled (`everytick_domain::audit`).

use std::time::Duration;

use everytick_domain::audit::Horizon;
use everytick_store::{Result, Store, StoreError};

/// How often the transactions in progress are read again.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A transaction with audit rows lasts milliseconds. One that lasts longer than this makes an export fail; a later one succeeds.
const SETTLE_MAX: Duration = Duration::from_secs(5);

/// The last number of the trail that no row in progress precedes. Includes every row that is visible when this is called.
pub(crate) async fn settled(store: &dyn Store) -> Result<i64> {
    let mut horizon = Horizon::default();
    let first = store.look_at_audit().await?;
    let wanted = first.given;
    let mut settled = horizon.see(first);
    let looks = async {
        while settled < wanted {
            tokio::time::sleep(LOOK_EVERY).await;
            settled = horizon.see(store.look_at_audit().await?);
        }
        Ok(settled)
    };
    let late = || StoreError::Failed {
        doing: "export the audit trail: a transaction that writes audit rows has not ended in time",
        source: "a transaction has a lock on the table audit".into(),
    };
    tokio::time::timeout(SETTLE_MAX, looks).await.unwrap_or_else(|_| Err(late()))
}
