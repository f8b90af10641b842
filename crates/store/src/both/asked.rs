//! Notes that a worker asked for runs of a queue. `explain` reads it.

use everytick_domain::ids::TenantId;

use super::{DbTx, rows};
use crate::{Result, tx::Tx as _};

pub(super) async fn note(tx: &mut DbTx, tenant: TenantId, queue: &str, worker: &str) -> Result<bool> {
    let now = tx.read_clock().await?.millis();
    let noted = query!("queue/queue_asked", tenant.raw(), queue, now, rows::text(worker));
    Ok(tx.execute_or_refuse(noted).await? > 0)
}
