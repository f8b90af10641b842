//! Tenants: their states, quotas and rules, and the steps by which a suspension pauses jobs and a deletion removes rows. A
//! change of a tenant locks its row. Transactions that define jobs share-lock it, so that no job is created or resumed after a
//! suspension was answered.

use async_trait::async_trait;
use everytick_domain::{
    edit::Change,
    ids::{JobId, TenantId},
    invalid::Invalid,
    tenant::{DELETED_AFTER, Quotas, SUSPENDED_NOTE, TenantState, TenantWork, check_tenant_name},
};

use super::{JobLock, Tx, audit_one, cancel, edit::edit_job, invalid, token::TokenTx};
use crate::{
    Actor, EditJob, Edited, JobRef, Limits, NewTenant, Result, StoreError, TenantChange, TenantJob, TenantNow,
    TenantRecord, TenantRef,
};

/// The verbs of tenants.
#[async_trait]
pub trait TenantTx: TokenTx {
    async fn find_tenant(&mut self, tenant: &TenantRef) -> Result<Option<TenantRecord>>;
    /// An id above that of every tenant.
    async fn next_tenant(&mut self) -> Result<TenantId>;
    async fn insert_tenant(&mut self, tenant: &TenantRecord) -> Result<()>;
    /// Writes every field but the id, the name and the number of jobs.
    async fn write_tenant(&mut self, tenant: &TenantRecord) -> Result<()>;
    async fn working_tenants(&mut self, limit: usize) -> Result<Vec<TenantRecord>>;
    async fn jobs_of_tenant(&mut self, tenant: TenantId, after: &str, limit: usize) -> Result<Vec<(JobId, String)>>;
    /// The noted jobs, by id.
    async fn noted_jobs(&mut self, tenant: TenantId, limit: usize) -> Result<Vec<JobId>>;
    async fn is_noted(&mut self, tenant: TenantId, job: JobId) -> Result<bool>;
    async fn note_job(&mut self, tenant: TenantId, job: JobId) -> Result<()>;
    async fn forget_job(&mut self, tenant: TenantId, job: JobId) -> Result<()>;
    /// Ends every valid token of a tenant.
    async fn end_tokens(&mut self, tenant: TenantId) -> Result<()>;
    /// Removes up to `limit` runs of a job, with all that belongs to them. Returns how many.
    async fn remove_runs(&mut self, tenant: TenantId, job: JobId, limit: usize) -> Result<usize>;
    /// Removes a job that has no runs, with all that belongs to it.
    async fn remove_job(&mut self, tenant: TenantId, job: JobId) -> Result<()>;
    /// Removes up to `limit` rows of each kind that belong to the tenant and to no job. Returns how many.
    async fn remove_rows(&mut self, tenant: TenantId, limit: usize) -> Result<u64>;
    async fn remove_tenant(&mut self, tenant: TenantId) -> Result<()>;
}

/// The setting with the highest id that a tenant ever had.
pub const LAST_TENANT: &str = "last_tenant";

/// The quotas of a tenant for which none are set.
#[must_use]
pub const fn default_quotas(limits: &Limits) -> Quotas {
    Quotas {
        jobs: Some(limits.jobs_per_tenant_max),
        calendars: Some(limits.calendars_per_tenant_max),
        secrets: Some(limits.secrets_per_tenant_max),
        tokens: Some(limits.tokens_per_tenant_max),
        min_interval: None,
    }
}

impl TenantNow {
    /// The quotas that apply.
    #[must_use]
    pub fn quotas(&self, limits: &Limits) -> Quotas {
        self.quotas.effective(default_quotas(limits))
    }

    /// Refuses work for a tenant that is suspended.
    pub fn check_active(&self) -> Result<()> {
        match self.state {
            TenantState::Active => Ok(()),
            TenantState::Suspended | TenantState::Deleting => Err(StoreError::TenantSuspended),
        }
    }
}

/// Refuses one more thing if the tenant has `count` of them already.
pub fn check_quota(what: &'static str, count: u64, max: Option<u64>) -> Result<()> {
    match max.filter(|max| count >= *max) {
        None => Ok(()),
        Some(max) => Err(StoreError::QuotaFull { what, max }),
    }
}

pub async fn get_tenant<T: TenantTx + ?Sized>(tx: &mut T, tenant: &TenantRef) -> Result<TenantRecord> {
    tx.find_tenant(tenant).await?.ok_or(StoreError::NotFound("tenant"))
}

pub async fn create_tenant<T: TenantTx + ?Sized>(tx: &mut T, actor: &Actor, new: NewTenant) -> Result<TenantRecord> {
    check_tenant_name(&new.name).map_err(invalid)?;
    check_fields(&[new.quotas])?;
    tx.lock_access().await?;
    if tx.find_tenant(&TenantRef::Name(new.name.clone())).await?.is_some() {
        return Err(conflict("name", format!("a tenant named {:?} exists; choose another name", new.name)));
    }
    let unaware = tx.unaware_nodes().await?;
    if !unaware.is_empty() {
        let nodes = unaware.join(", ");
        return Err(conflict(
            "",
            format!("nodes of an earlier release are alive and know no tenants: {nodes}; upgrade or stop them first"),
        ));
    }
    let now = tx.read_clock().await?;
    let NewTenant { name, quotas, egress, shell } = new;
    let tenant = TenantRecord {
        id: tx.next_tenant().await?,
        name,
        state: TenantState::Active,
        work: None,
        quotas,
        own_quotas: Quotas::default(),
        egress,
        own_egress: crate::NO_RULES.to_owned(),
        shell,
        created_at: Some(now),
        suspended_at: None,
        jobs: 0,
    };
    tx.set_setting(LAST_TENANT, &tenant.id.raw().to_string()).await?;
    tx.insert_tenant(&tenant).await?;
    tx.refuse_unaware_nodes().await?;
    changed(tx, actor, "create_tenant", &tenant).await?;
    Ok(tenant)
}

fn check_fields(quotas: &[Quotas]) -> Result<()> {
    let wrong: Vec<Invalid> =
        quotas.iter().flat_map(|quotas| quotas.problems()).map(|wrong| wrong.under("quotas")).collect();
    if wrong.is_empty() { Ok(()) } else { Err(StoreError::Invalid(wrong)) }
}

pub async fn update_tenant<T: TenantTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    tenant: &TenantRef,
    change: TenantChange,
) -> Result<TenantRecord> {
    check_fields(&[change.quotas.unwrap_or_default(), change.own_quotas.unwrap_or_default()])?;
    let was = locked(tx, tenant).await?;
    check_not_deleted(&was)?;
    let new = TenantRecord {
        quotas: change.quotas.unwrap_or(was.quotas),
        own_quotas: change.own_quotas.unwrap_or(was.own_quotas),
        egress: change.egress.unwrap_or_else(|| was.egress.clone()),
        own_egress: change.own_egress.unwrap_or_else(|| was.own_egress.clone()),
        shell: change.shell.unwrap_or(was.shell),
        ..was.clone()
    };
    if new != was {
        tx.write_tenant(&new).await?;
        changed(tx, actor, "update_tenant", &new).await?;
    }
    Ok(new)
}

pub async fn suspend_tenant<T: TenantTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    tenant: &TenantRef,
    cancel: bool,
) -> Result<TenantRecord> {
    let was = locked(tx, tenant).await?;
    check_not_deleted(&was)?;
    let work = if cancel { TenantWork::PauseAndCancel } else { TenantWork::Pause };
    if was.state == TenantState::Suspended && !cancel {
        return Ok(was);
    }
    let suspended_at = was.suspended_at.or(Some(tx.now()));
    let new = TenantRecord { state: TenantState::Suspended, work: Some(work), suspended_at, ..was };
    tx.write_tenant(&new).await?;
    changed(tx, actor, "suspend_tenant", &new).await?;
    Ok(new)
}

pub async fn resume_tenant<T: TenantTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    tenant: &TenantRef,
) -> Result<TenantRecord> {
    let was = locked(tx, tenant).await?;
    check_not_deleted(&was)?;
    if was.state == TenantState::Active {
        return Ok(was);
    }
    let work = Some(TenantWork::Resume);
    let new = TenantRecord { state: TenantState::Active, work, suspended_at: None, ..was };
    tx.write_tenant(&new).await?;
    changed(tx, actor, "resume_tenant", &new).await?;
    Ok(new)
}

pub async fn delete_tenant<T: TenantTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    tenant: &TenantRef,
    force: bool,
) -> Result<TenantRecord> {
    tx.lock_access().await?;
    let was = locked(tx, tenant).await?;
    if was.id == TenantId::DEFAULT {
        return Err(conflict("name", "the tenant \"default\" cannot be deleted; suspend it instead".to_owned()));
    }
    if was.state == TenantState::Deleting {
        return Ok(was);
    }
    let Some(suspended_at) = was.suspended_at.filter(|_| was.state == TenantState::Suspended) else {
        return Err(conflict("name", "the tenant is not suspended; suspend it first".to_owned()));
    };
    let from = suspended_at.plus(DELETED_AFTER);
    if !force && tx.now() < from {
        return Err(conflict(
            "force",
            format!(
                "the tenant can be deleted from {from} on, {DELETED_AFTER} after its suspension; or add force=true"
            ),
        ));
    }
    let new = TenantRecord { state: TenantState::Deleting, work: Some(TenantWork::Delete), ..was };
    tx.write_tenant(&new).await?;
    tx.end_tokens(new.id).await?;
    changed(tx, actor, "delete_tenant", &new).await?;
    Ok(new)
}

/// Locks a tenant, then reads it and the clock.
async fn locked<T: TenantTx + ?Sized>(tx: &mut T, tenant: &TenantRef) -> Result<TenantRecord> {
    let id = get_tenant(tx, tenant).await?.id;
    tx.lock_tenant_row(id).await?;
    tx.read_clock().await?;
    get_tenant(tx, &TenantRef::Id(id)).await
}

fn check_not_deleted(tenant: &TenantRecord) -> Result<()> {
    match tenant.state {
        TenantState::Deleting => Err(conflict("name", "the tenant is being deleted".to_owned())),
        TenantState::Active | TenantState::Suspended => Ok(()),
    }
}

/// Writes the audit row of a changed tenant, and notifies all nodes.
async fn changed<T: TenantTx + ?Sized>(tx: &mut T, actor: &Actor, action: &str, tenant: &TenantRecord) -> Result<()> {
    let rules = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    let detail = serde_json::json!({
        "state": tenant.state,
        "work": tenant.work.map(TenantWork::word),
        "quotas": tenant.quotas,
        "own_quotas": tenant.own_quotas,
        "egress": rules(&tenant.egress),
        "own_egress": rules(&tenant.own_egress),
        "shell": tenant.shell,
    });
    audit_one(tx, tenant.id, actor, action, format!("tenant/{}", tenant.name), detail.to_string()).await?;
    tx.notify_access().await
}

pub async fn end_work<T: TenantTx + ?Sized>(tx: &mut T, tenant: TenantId, work: TenantWork) -> Result<()> {
    let was = locked(tx, &TenantRef::Id(tenant)).await?;
    if was.work == Some(work) {
        tx.write_tenant(&TenantRecord { work: None, ..was }).await?;
    }
    Ok(())
}

/// Locks the job, then the tenant, which must be in this state; else returns `false`. So the state does not change before
/// this transaction ends.
async fn is_in<T: TenantTx + ?Sized>(tx: &mut T, tenant: TenantId, job: JobId, state: TenantState) -> Result<bool> {
    tx.lock_jobs(&[job], JobLock::All).await?;
    tx.lock_tenant_row(tenant).await?;
    tx.read_clock().await?;
    let found = tx.find_tenant(&TenantRef::Id(tenant)).await?;
    Ok(found.is_some_and(|found| found.state == state))
}

pub async fn pause_job<T: TenantTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    tenant: TenantId,
    job: JobId,
    cancel: bool,
) -> Result<TenantJob> {
    if !is_in(tx, tenant, job, TenantState::Suspended).await? {
        return Ok(TenantJob::default());
    }
    let Some(row) = found(tx.find_job(tenant, &JobRef::Id(job)).await)? else { return Ok(TenantJob::default()) };
    if row.job.paused.is_some() {
        if !cancel {
            return Ok(TenantJob::default());
        }
        let cancelled = cancel::cancel_open(tx, tenant, actor, job).await?;
        return Ok(TenantJob { changed: false, cancelled: cancelled.claimed, backlog: cancelled.backlog });
    }
    tx.note_job(tenant, job).await?;
    change(tx, actor, tenant, job, Change::Pause { note: Some(SUSPENDED_NOTE.to_owned()) }, cancel).await
}

pub async fn resume_job<T: TenantTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    tenant: TenantId,
    job: JobId,
) -> Result<TenantJob> {
    if !is_in(tx, tenant, job, TenantState::Active).await? || !tx.is_noted(tenant, job).await? {
        return Ok(TenantJob::default());
    }
    tx.forget_job(tenant, job).await?;
    let row = found(tx.find_job(tenant, &JobRef::Id(job)).await)?;
    let note = row.and_then(|row| row.job.paused).and_then(|paused| paused.note);
    if note.as_deref() != Some(SUSPENDED_NOTE) {
        return Ok(TenantJob::default());
    }
    change(tx, actor, tenant, job, Change::Resume, false).await
}

pub async fn delete_job<T: TenantTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    tenant: TenantId,
    job: JobId,
) -> Result<TenantJob> {
    if !is_in(tx, tenant, job, TenantState::Deleting).await? {
        return Ok(TenantJob::default());
    }
    if found(tx.find_job(tenant, &JobRef::Id(job)).await)?.is_none() {
        return Ok(TenantJob::default());
    }
    tx.note_job(tenant, job).await?;
    change(tx, actor, tenant, job, Change::Delete, true).await
}

async fn change<T: TenantTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    tenant: TenantId,
    job: JobId,
    change: Change,
    cancel: bool,
) -> Result<TenantJob> {
    let edit = EditJob { job: JobRef::Id(job), change, if_match: None, cancel };
    let Edited { effective_at, cancelled, backlog, .. } = edit_job(tx, tenant, actor, edit).await?;
    Ok(TenantJob { changed: effective_at.is_some(), cancelled, backlog: backlog && cancel })
}

/// Removes runs of a noted job; with the last of them, the job.
pub async fn remove_job<T: TenantTx + ?Sized>(tx: &mut T, tenant: TenantId, job: JobId, limit: usize) -> Result<bool> {
    if !is_in(tx, tenant, job, TenantState::Deleting).await? || !tx.is_noted(tenant, job).await? {
        return Ok(true);
    }
    if tx.remove_runs(tenant, job, limit).await? > 0 {
        return Ok(false);
    }
    tx.remove_job(tenant, job).await?;
    tx.forget_job(tenant, job).await?;
    Ok(true)
}

/// Removes what belongs to the tenant and to no job; with the last row, the tenant.
pub async fn remove_rows<T: TenantTx + ?Sized>(
    tx: &mut T,
    actor: &Actor,
    tenant: TenantId,
    limit: usize,
) -> Result<bool> {
    let Some(was) = tx.find_tenant(&TenantRef::Id(tenant)).await? else { return Ok(true) };
    tx.lock_tenant_row(tenant).await?;
    tx.read_clock().await?;
    let has_jobs = !tx.jobs_of_tenant(tenant, "", 1).await?.is_empty() || !tx.noted_jobs(tenant, 1).await?.is_empty();
    if was.state != TenantState::Deleting || has_jobs || tx.remove_rows(tenant, limit).await? > 0 {
        return Ok(false);
    }
    tx.remove_tenant(tenant).await?;
    audit_one(tx, tenant, actor, "remove_tenant", format!("tenant/{}", was.name), "{}".to_owned()).await?;
    tx.notify_access().await?;
    Ok(true)
}

/// Maps "not found" to `None`.
fn found<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(StoreError::NotFound(_)) => Ok(None),
        found => found.map(Some),
    }
}

fn conflict(field: &str, message: String) -> StoreError {
    StoreError::Conflict(Invalid::new(field, message))
}

/// The tenant whose row does not exist: before its first job, no tenant of a test has one.
impl Default for TenantNow {
    fn default() -> Self {
        Self { state: TenantState::Active, quotas: Default::default(), jobs: 0 }
    }
}

/// The state and the quotas of the tenant, which do not change before the transaction ends.
pub async fn shared<T: Tx + ?Sized>(tx: &mut T, tenant: TenantId) -> Result<TenantNow> {
    Ok(tx.share_tenant(tenant).await?.unwrap_or_default())
}
