//! The verbs of tenants. The transactions that use them are in `crate::tx::tenant`.

use async_trait::async_trait;
use everytick_domain::{
    ids::{JobId, TenantId},
    tenant::{Quotas, TenantState, TenantWork},
    time::DbTime,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbRow, DbStore, DbTx, Failed, backlog, drop_days, rows};
use crate::{
    Actor, NewTenant, Page, Result, StoreError, TenantChange, TenantJob, TenantNow, TenantQuotas, TenantRecord,
    TenantRef, TenantStore,
    tx::{
        in_read, in_tx,
        tenant::{self, LAST_TENANT, TenantTx},
        token::TokenTx as _,
    },
};

#[async_trait]
impl TenantStore for DbStore {
    async fn create_tenant(&self, actor: &Actor, new: NewTenant) -> Result<TenantRecord> {
        in_tx!(self, "create the tenant", tx => tenant::create_tenant(tx, actor, new))
    }
    async fn get_tenant(&self, tenant: &TenantRef) -> Result<TenantRecord> {
        in_read!(self, "read the tenant", tx => tenant::get_tenant(tx, tenant))
    }
    async fn list_tenants(&self, after: Option<&str>, limit: usize) -> Result<Page<TenantRecord, String>> {
        self.reads(list(self, after, limit)).await
    }
    async fn update_tenant(&self, actor: &Actor, tenant: &TenantRef, change: TenantChange) -> Result<TenantRecord> {
        in_tx!(self, "update the tenant", tx => tenant::update_tenant(tx, actor, tenant, change))
    }
    async fn suspend_tenant(&self, actor: &Actor, tenant: &TenantRef, cancel: bool) -> Result<TenantRecord> {
        in_tx!(self, "suspend the tenant", tx => tenant::suspend_tenant(tx, actor, tenant, cancel))
    }
    async fn resume_tenant(&self, actor: &Actor, tenant: &TenantRef) -> Result<TenantRecord> {
        in_tx!(self, "resume the tenant", tx => tenant::resume_tenant(tx, actor, tenant))
    }
    async fn delete_tenant(&self, actor: &Actor, tenant: &TenantRef, force: bool) -> Result<TenantRecord> {
        in_tx!(self, "delete the tenant", tx => tenant::delete_tenant(tx, actor, tenant, force))
    }

    async fn tenants_with_work(&self, limit: usize) -> Result<Vec<TenantRecord>> {
        in_read!(self, "find tenants with work", tx => tx.working_tenants(limit))
    }
    async fn tenant_jobs(&self, tenant: TenantId, after: &str, limit: usize) -> Result<Vec<(JobId, String)>> {
        in_read!(self, "list the jobs of the tenant", tx => tx.jobs_of_tenant(tenant, after, limit))
    }
    async fn noted_jobs(&self, tenant: TenantId, limit: usize) -> Result<Vec<JobId>> {
        in_read!(self, "list the jobs of the tenant", tx => TenantTx::noted_jobs(tx, tenant, limit))
    }
    async fn pause_for_tenant(&self, actor: &Actor, tenant: TenantId, job: JobId, cancel: bool) -> Result<TenantJob> {
        let done = in_tx!(self, "pause the job", tx => tenant::pause_job(tx, actor, tenant, job, cancel))?;
        backlog::after_cancel(self, actor, tenant, job, done).await
    }
    async fn resume_for_tenant(&self, actor: &Actor, tenant: TenantId, job: JobId) -> Result<TenantJob> {
        in_tx!(self, "resume the job", tx => tenant::resume_job(tx, actor, tenant, job))
    }
    async fn delete_for_tenant(&self, actor: &Actor, tenant: TenantId, job: JobId) -> Result<TenantJob> {
        let done = in_tx!(self, "delete the job", tx => tenant::delete_job(tx, actor, tenant, job))?;
        backlog::after_cancel(self, actor, tenant, job, done).await
    }
    async fn remove_tenant_job(&self, tenant: TenantId, job: JobId, limit: usize) -> Result<bool> {
        in_tx!(self, "remove the job", tx => tenant::remove_job(tx, tenant, job, limit))
    }
    async fn remove_tenant_rows(&self, actor: &Actor, tenant: TenantId, limit: usize) -> Result<bool> {
        in_tx!(self, "remove the tenant", tx => tenant::remove_rows(tx, actor, tenant, limit))
    }
    async fn end_tenant_work(&self, tenant: TenantId, work: TenantWork) -> Result<()> {
        in_tx!(self, "end the work of the tenant", tx => tenant::end_work(tx, tenant, work))
    }
}

async fn list(store: &DbStore, after: Option<&str>, limit: usize) -> Result<Page<TenantRecord, String>> {
    let mut tx = store.read("list tenants").await?;
    let most = rows::limit(limit.saturating_add(1));
    let found = tx.fetch_all(query!("tenants/tenant_list", after.unwrap_or_default(), most)).await?;
    let names = found.iter().map(|row| row.try_get("name")).collect::<sqlx::Result<Vec<String>>>().failed(tx.doing)?;
    // Set even if the last row cannot be decoded.
    let next = if found.len() > limit { names.get(limit.saturating_sub(1)).cloned() } else { None };
    let shown = found.get(..limit.min(found.len())).unwrap_or_default();
    Ok(Page { items: tx.unreadable.each("tenants", shown, record), next })
}

fn record(row: &DbRow) -> rows::Decoded<TenantRecord> {
    let TenantNow { state, quotas, jobs } = now(row)?;
    let work: Option<String> = row.try_get("work")?;
    let work = work.map(|word| TenantWork::from_word(&word).ok_or_else(|| rows::wrong("work", word))).transpose()?;
    Ok(TenantRecord {
        id: TenantId::from_raw(row.try_get("id")?),
        name: row.try_get("name")?,
        state,
        work,
        quotas: quotas.operator,
        own_quotas: quotas.own,
        egress: row.try_get("egress")?,
        own_egress: row.try_get("own_egress")?,
        shell: row.try_get("shell")?,
        created_at: rows::time(row, "created_at")?,
        suspended_at: rows::time(row, "suspended_at")?,
        jobs,
    })
}

fn now(row: &DbRow) -> rows::Decoded<TenantNow> {
    let state: String = row.try_get("state")?;
    let quotas = |column: &str| {
        let text: String = row.try_get(column)?;
        serde_json::from_str::<Quotas>(&text).map_err(|error| rows::wrong(column, error))
    };
    Ok(TenantNow {
        state: TenantState::from_word(&state).ok_or_else(|| rows::wrong("state", state))?,
        quotas: TenantQuotas { operator: quotas("quotas")?, own: quotas("own_quotas")? },
        jobs: row.try_get::<i64, _>("jobs")?.unsigned_abs(),
    })
}

/// Locks the tenant and reads what limits its definitions. A tenant without a row gets one, unless it was removed.
pub(super) async fn lock(tx: &mut DbTx, tenant: TenantId) -> Result<TenantNow> {
    let lock = || query!("tenants/lock_tenant", tenant.raw());
    if let Some(row) = tx.fetch_optional(lock()).await? {
        return now(&row).failed(tx.doing);
    }
    let given = tx.setting(LAST_TENANT).await?.and_then(|last| last.parse::<i32>().ok()).unwrap_or_default();
    tx.execute(query!("tenants/add_tenant", tenant.raw(), given)).await?;
    let row = tx.fetch_optional(lock()).await?;
    now(&row.ok_or(StoreError::NotFound("tenant"))?).failed(tx.doing)
}

pub(super) async fn share(tx: &mut DbTx, tenant: TenantId) -> Result<Option<TenantNow>> {
    let found = tx.fetch_optional(query!("tenants/share_tenant", tenant.raw())).await?;
    found.as_ref().map(now).transpose().failed(tx.doing)
}

fn json(quotas: Quotas) -> String {
    serde_json::to_string(&quotas).unwrap_or_default()
}

#[async_trait]
impl TenantTx for DbTx {
    async fn find_tenant(&mut self, tenant: &TenantRef) -> Result<Option<TenantRecord>> {
        let query = match tenant {
            TenantRef::Id(id) => query!("tenants/tenant_by_id", id.raw()),
            TenantRef::Name(name) => query!("tenants/tenant_by_name", name),
        };
        let found = self.fetch_optional(query).await?;
        found.as_ref().map(record).transpose().failed(self.doing)
    }
    async fn next_tenant(&mut self) -> Result<TenantId> {
        let highest: i32 = self.scalar(query!("tenants/last_tenant")).await?;
        let given = self.setting(LAST_TENANT).await?.and_then(|last| last.parse::<i32>().ok()).unwrap_or_default();
        Ok(TenantId::from_raw(highest.max(given).saturating_add(1)))
    }
    async fn insert_tenant(&mut self, tenant: &TenantRecord) -> Result<()> {
        let insert = query!(
            "tenants/tenant_add",
            tenant.id.raw(),
            &tenant.name,
            tenant.state.word(),
            tenant.work.map(TenantWork::word),
            json(tenant.quotas),
            json(tenant.own_quotas),
            &tenant.egress,
            &tenant.own_egress,
            tenant.shell,
            tenant.created_at.map(DbTime::millis),
            tenant.suspended_at.map(DbTime::millis),
        );
        self.execute_or_refuse(insert).await.map(drop)
    }
    async fn write_tenant(&mut self, tenant: &TenantRecord) -> Result<()> {
        let set = query!(
            "tenants/tenant_set",
            tenant.id.raw(),
            tenant.state.word(),
            tenant.work.map(TenantWork::word),
            json(tenant.quotas),
            json(tenant.own_quotas),
            &tenant.egress,
            &tenant.own_egress,
            tenant.shell,
            tenant.suspended_at.map(DbTime::millis),
        );
        self.execute_or_refuse(set).await.map(drop)
    }
    async fn working_tenants(&mut self, limit: usize) -> Result<Vec<TenantRecord>> {
        let found = self.fetch_all(query!("tenants/tenants_working", rows::limit(limit))).await?;
        Ok(self.unreadable.each("tenants", &found, record))
    }
    async fn jobs_of_tenant(&mut self, tenant: TenantId, after: &str, limit: usize) -> Result<Vec<(JobId, String)>> {
        self.fetch_decoded(query!("tenants/tenant_jobs", tenant.raw(), after, rows::limit(limit)), rows::named_job)
            .await
    }
    async fn noted_jobs(&mut self, tenant: TenantId, limit: usize) -> Result<Vec<JobId>> {
        let found: Vec<Uuid> = self.scalars(query!("tenants/noted_jobs", tenant.raw(), rows::limit(limit))).await?;
        Ok(found.into_iter().map(JobId::from_uuid).collect())
    }
    async fn is_noted(&mut self, tenant: TenantId, job: JobId) -> Result<bool> {
        self.scalar(query!("tenants/is_noted", tenant.raw(), job.uuid())).await
    }
    async fn note_job(&mut self, tenant: TenantId, job: JobId) -> Result<()> {
        self.execute(query!("tenants/note_job", tenant.raw(), job.uuid())).await.map(drop)
    }
    async fn forget_job(&mut self, tenant: TenantId, job: JobId) -> Result<()> {
        self.execute(query!("tenants/forget_job", tenant.raw(), job.uuid())).await.map(drop)
    }
    async fn end_tokens(&mut self, tenant: TenantId) -> Result<()> {
        self.execute(query!("tenants/end_tokens", tenant.raw(), self.now.millis())).await.map(drop)
    }

    async fn remove_runs(&mut self, tenant: TenantId, job: JobId, limit: usize) -> Result<usize> {
        let runs: Vec<Uuid> = self.scalars(query!("tenants/job_runs", job.uuid(), rows::limit(limit))).await?;
        if runs.is_empty() {
            return Ok(0);
        }
        let gone = || rows::ids(runs.iter().copied());
        // In the lock order of claims: waiting rows first, the runs themselves later.
        for statement in [
            sql!("tenants/remove_waiting"),
            sql!("tenants/remove_worker_claims"),
            sql!("tenants/remove_open_claims"),
            sql!("tenants/remove_flow_steps"),
            sql!("tenants/remove_backfill_runs"),
            sql!("tenants/remove_attempts"),
            sql!("tenants/remove_flows"),
            sql!("tenants/remove_runs"),
        ] {
            self.execute(sqlx::query(statement).bind(gone())).await?;
        }
        self.execute(query!("tenants/remove_failures", tenant.raw(), gone())).await?;
        Ok(runs.len())
    }
    async fn remove_job(&mut self, _: TenantId, job: JobId) -> Result<()> {
        for statement in [
            sql!("tenants/remove_skip_ranges"),
            sql!("tenants/remove_backfills"),
            sql!("tenants/remove_calendar_jobs"),
            sql!("tenants/remove_secret_jobs"),
            sql!("tenants/remove_backlog_work"),
            sql!("tenants/remove_edges"),
            sql!("tenants/remove_cursors"),
            sql!("tenants/remove_jobs"),
            sql!("tenants/remove_epochs"),
        ]
        .into_iter()
        .chain(drop_days::last_run_of_job())
        {
            self.execute(sqlx::query(statement).bind(job.uuid())).await?;
        }
        Ok(())
    }
    async fn remove_rows(&mut self, tenant: TenantId, limit: usize) -> Result<u64> {
        let mut removed = 0;
        for statement in [
            sql!("tenants/rest_of_calendar_versions"),
            sql!("tenants/rest_of_calendars"),
            sql!("tenants/rest_of_queues"),
            sql!("tenants/rest_of_queue_asks"),
            sql!("tenants/rest_of_requests"),
            sql!("tenants/rest_of_secret_versions"),
            sql!("tenants/rest_of_secrets"),
            sql!("tenants/rest_of_tokens"),
            sql!("tenants/rest_of_failures"),
        ] {
            removed += self.execute(sqlx::query(statement).bind(tenant.raw()).bind(rows::limit(limit))).await?;
        }
        Ok(removed)
    }
    async fn remove_tenant(&mut self, tenant: TenantId) -> Result<()> {
        self.execute(query!("tenants/tenant_remove", tenant.raw())).await.map(drop)
    }
}
