//! Notes that a worker asked for runs of a queue. `explain` reads it.

use everytick_domain::ids::TenantId;

use super::{DbTx, rows};
use crate::{Result, tx::Tx as _};

pub(super) async fn note(tx: &mut DbTx, tenant: TenantId, queue: &str, worker: &str) -> Result<()> {
    let now = tx.read_clock().await?.millis();
    tx.execute_or_refuse(query!("queue/queue_asked", tenant.raw(), queue, now, rows::text(worker))).await.map(drop)
}
