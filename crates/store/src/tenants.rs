//! The transactions about tenants, with their parameters and results.

use async_trait::async_trait;
use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    tenant::{Quotas, TenantState, TenantWork},
    time::DbTime,
};

use crate::{Actor, Page, Result};

/// A tenant as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantRecord {
    pub id: TenantId,
    pub name: String,
    pub state: TenantState,
    /// What remains to be done in the background.
    pub work: Option<TenantWork>,
    /// The quotas that the operator of the installation sets.
    pub quotas: Quotas,
    /// The quotas that the tenant's admins set.
    pub own_quotas: Quotas,
    /// The rules for webhooks that the operator sets, as JSON.
    pub egress: String,
    /// The rules for webhooks that the tenant's admins set, as JSON.
    pub own_egress: String,
    /// Whether its jobs may run commands.
    pub shell: bool,
    /// `None` for the tenant `default`, which every installation has.
    pub created_at: Option<DbTime>,
    pub suspended_at: Option<DbTime>,
    /// How many jobs it has that are not deleted.
    pub jobs: u64,
}

/// The rules for webhooks of a tenant without rules.
pub const NO_RULES: &str = "{}";

/// What a transaction must know of the tenant for which it works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TenantNow {
    pub state: TenantState,
    /// Both layers together, without the defaults of the installation.
    pub quotas: TenantQuotas,
    /// How many jobs it has that are not deleted.
    pub jobs: u64,
}

/// The two layers of a tenant's quotas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TenantQuotas {
    pub operator: Quotas,
    pub own: Quotas,
}

impl TenantQuotas {
    /// The quotas that apply in an installation with these defaults.
    #[must_use]
    pub fn effective(self, defaults: Quotas) -> Quotas {
        self.operator.or(defaults).and(self.own)
    }
}

impl TenantRecord {
    #[must_use]
    pub const fn layers(&self) -> TenantQuotas {
        TenantQuotas { operator: self.quotas, own: self.own_quotas }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTenant {
    pub name: String,
    pub quotas: Quotas,
    pub egress: String,
    pub shell: bool,
}

/// The fields to replace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TenantChange {
    pub quotas: Option<Quotas>,
    pub own_quotas: Option<Quotas>,
    pub egress: Option<String>,
    pub own_egress: Option<String>,
    pub shell: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TenantRef {
    Id(TenantId),
    Name(String),
}

/// A job that was paused, resumed or deleted because its tenant was, and those of its cancelled runs that were claimed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TenantJob {
    /// `false` if nothing had to be done.
    pub changed: bool,
    pub cancelled: Vec<RunId>,
    /// More runs wait than one transaction cancels. The others are cancelled in the background.
    pub backlog: bool,
}

/// The transactions about tenants. Each change writes an audit row of the tenant in its transaction, and notifies all
/// nodes.
#[async_trait]
pub trait TenantStore: Send + Sync + 'static {
    /// Creates a tenant under an id that no tenant ever had. Refused while a node of a release that knows no tenants is
    /// alive.
    async fn create_tenant(&self, actor: &Actor, new: NewTenant) -> Result<TenantRecord>;
    async fn get_tenant(&self, tenant: &TenantRef) -> Result<TenantRecord>;
    /// Tenants by name, after the given name.
    async fn list_tenants(&self, after: Option<&str>, limit: usize) -> Result<Page<TenantRecord, String>>;
    async fn update_tenant(&self, actor: &Actor, tenant: &TenantRef, change: TenantChange) -> Result<TenantRecord>;
    /// Suspends a tenant. Its jobs are paused in the background; with `cancel`, their runs are cancelled too.
    async fn suspend_tenant(&self, actor: &Actor, tenant: &TenantRef, cancel: bool) -> Result<TenantRecord>;
    /// Ends a suspension. The jobs that it paused are resumed in the background.
    async fn resume_tenant(&self, actor: &Actor, tenant: &TenantRef) -> Result<TenantRecord>;
    /// Ends the tokens of a suspended tenant, and lets its rows be removed in the background. Without `force`, only a tenant
    /// that was suspended long enough.
    async fn delete_tenant(&self, actor: &Actor, tenant: &TenantRef, force: bool) -> Result<TenantRecord>;

    /// Tenants with work in the background, by id; at most `limit`.
    async fn tenants_with_work(&self, limit: usize) -> Result<Vec<TenantRecord>>;
    /// Live jobs of a tenant by name, after the given name; at most `limit`.
    async fn tenant_jobs(&self, tenant: TenantId, after: &str, limit: usize) -> Result<Vec<(JobId, String)>>;
    /// Jobs that a suspension paused, or that a deletion removes; at most `limit`.
    async fn noted_jobs(&self, tenant: TenantId, limit: usize) -> Result<Vec<JobId>>;
    /// Pauses a job of a suspended tenant as [`crate::Store::edit_job`] does, and notes it. Does nothing if it is paused, or if
    /// the tenant is no longer suspended.
    async fn pause_for_tenant(&self, actor: &Actor, tenant: TenantId, job: JobId, cancel: bool) -> Result<TenantJob>;
    /// Resumes a noted job of an active tenant, unless it was paused again for another reason.
    async fn resume_for_tenant(&self, actor: &Actor, tenant: TenantId, job: JobId) -> Result<TenantJob>;
    /// Deletes a job of a tenant that is deleted, cancels its runs, and notes it.
    async fn delete_for_tenant(&self, actor: &Actor, tenant: TenantId, job: JobId) -> Result<TenantJob>;
    /// Removes up to `limit` runs of a noted job of a tenant that is deleted; with the last of them, the job. Returns whether
    /// the job is gone.
    async fn remove_tenant_job(&self, tenant: TenantId, job: JobId, limit: usize) -> Result<bool>;
    /// Removes up to `limit` of the other rows of a tenant that is deleted and has no jobs left; with the last of them, the
    /// tenant. Its audit rows stay. Returns whether the tenant is gone.
    async fn remove_tenant_rows(&self, actor: &Actor, tenant: TenantId, limit: usize) -> Result<bool>;
    /// Notes that this work of a tenant is done, unless it has got other work meanwhile.
    async fn end_tenant_work(&self, tenant: TenantId, work: TenantWork) -> Result<()>;
}
