//! Notes that a worker asked for runs of a queue. `explain` reads it.

use everytick_domain::ids::TenantId;

use super::DbTx;
use crate::{Result, tx::Tx as _};

pub(super) async fn note(mut write: DbTx, tenant: TenantId, queue: &str, worker: &str) -> Result<()> {
    let now = write.read_clock().await?;
    // PostgreSQL text cannot contain NUL.
    let worker = worker.replace('\0', "\u{fffd}");
    write.execute_or_refuse(query!("queue/queue_asked", tenant.raw(), queue, now.millis(), worker)).await?;
    write.commit().await
}
