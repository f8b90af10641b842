//! Runs that workers report as succeeded.

use everytick_domain::ids::{JobId, TenantId};

use super::super::SqliteStore;
use crate::{Result, Success, queues::settle_successes};

pub(super) async fn succeed(store: &SqliteStore, tenant: TenantId, done: &[Success]) -> Result<Vec<Option<JobId>>> {
    let settled = settle_successes(store, tenant, &done.iter().collect::<Vec<_>>()).await?;
    Ok(done.iter().map(|done| settled.get(&done.run).copied()).collect())
}
