//! What cold transactions need because many nodes share the database: locks, notifications, and backlogs that are too
//! long for one transaction. `crate::tx` has the lock order.

use async_trait::async_trait;
use everytick_domain::ids::{BackfillId, JobId, RunId, TenantId};

use super::{DbTx, backlog, homes, marks, rows};
use crate::{
    Actor, BacklogAction, Result,
    tx::{JobLock, SharedTx},
};

#[async_trait]
impl SharedTx for DbTx {
    async fn notify_owners(&mut self) -> Result<()> {
        self.execute(query!("ranges/notify")).await.map(drop)
    }
    async fn lock_key(&mut self, tenant: TenantId, key: &str) -> Result<()> {
        self.execute(query!("requests/lock_key", i64::from(tenant.raw()), key)).await.map(drop)
    }
    async fn lock_calendar(&mut self, tenant: TenantId, name: &str) -> Result<()> {
        self.execute(query!("calendars/lock_calendar", tenant.raw(), name)).await.map(drop)
    }
    async fn lock_calendars(&mut self, tenant: TenantId, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        self.execute(query!("calendars/lock_calendars", tenant.raw(), names)).await.map(drop)
    }
    async fn lock_secret(&mut self, tenant: TenantId, name: &str) -> Result<()> {
        self.execute(query!("secrets/lock_secret", tenant.raw(), name)).await.map(drop)
    }
    async fn lock_secrets(&mut self, tenant: TenantId, names: &[String]) -> Result<()> {
        self.execute(query!("secrets/lock_secrets", tenant.raw(), names)).await.map(drop)
    }
    async fn lock_keys(&mut self) -> Result<()> {
        self.execute(query!("secrets/lock_keys")).await.map(drop)
    }
    async fn lock_jobs(&mut self, ids: &[JobId], lock: JobLock) -> Result<()> {
        let query = match (ids, lock) {
            ([], _) => return Ok(()),
            ([job], JobLock::All) => query!("epochs/lock_epoch", job.uuid()),
            ([job], JobLock::Requests) => query!("epochs/lock_job", job.uuid()),
            (_, JobLock::All) => query!("epochs/lock_epochs", rows::job_ids(ids)),
            (_, JobLock::Requests) => query!("epochs/lock_jobs", rows::job_ids(ids)),
        };
        self.execute(query).await.map(drop)
    }
    async fn lock_access(&mut self) -> Result<()> {
        self.execute(query!("tokens/lock_access")).await.map(drop)
    }
    async fn notify_access(&mut self) -> Result<()> {
        self.execute(query!("tokens/tokens_notify")).await.map(drop)
    }
    async fn unchecking_nodes(&mut self) -> Result<Vec<String>> {
        self.scalars(query!("leases/unchecking_nodes")).await
    }
    async fn refuse_unchecking_nodes(&mut self) -> Result<()> {
        self.execute(query!("setup/access_only")).await.map(drop)
    }
    async fn unfilling_nodes(&mut self) -> Result<Vec<String>> {
        self.scalars(query!("leases/unfilling_nodes")).await
    }
    async fn refuse_unfilling_nodes(&mut self) -> Result<()> {
        self.execute(query!("setup/secrets_only")).await.map(drop)
    }
    async fn unaware_nodes(&mut self) -> Result<Vec<String>> {
        self.scalars(query!("leases/unaware_nodes")).await
    }
    async fn refuse_unaware_nodes(&mut self) -> Result<()> {
        self.execute(query!("setup/tenants_only")).await.map(drop)
    }
    async fn lock_tenant_row(&mut self, tenant: TenantId) -> Result<()> {
        self.execute(query!("tenants/lock_tenant_row", tenant.raw())).await.map(drop)
    }
    async fn lock_backfill(&mut self, id: BackfillId) -> Result<()> {
        self.execute(query!("backfills/lock_backfill", id.uuid())).await.map(drop)
    }
    async fn lock_flow(&mut self, flow: RunId) -> Result<()> {
        self.execute(query!("flows/lock_flow", flow.uuid())).await.map(drop)
    }
    async fn lock_run(&mut self, tenant: TenantId, run: RunId) -> Result<()> {
        self.execute(query!("runs/lock_run", tenant.raw(), run.uuid())).await.map(drop)
    }
    async fn lock_claimed(&mut self, job: JobId) -> Result<()> {
        homes::lock_claimed(self, job.uuid()).await
    }

    async fn backlog_is_long(&mut self, job: JobId) -> Result<bool> {
        marks::is_long(self, job).await
    }
    async fn backlog_action(&mut self, job: JobId) -> Result<Option<BacklogAction>> {
        marks::action_of(self, job).await
    }
    async fn mark_backlog(&mut self, tenant: TenantId, actor: &Actor, job: JobId, action: BacklogAction) -> Result<()> {
        backlog::mark(self, tenant, actor, job, action).await
    }
}
