//! Tenants on maps.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use async_trait::async_trait;
use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    tenant::{Quotas, TenantState, TenantWork},
};
use everytick_store::{
    Actor, NO_RULES, NewTenant, Page, Result, StoreError, TenantChange, TenantJob, TenantNow, TenantRecord, TenantRef,
    TenantStore,
    tx::tenant::{self, LAST_TENANT, TenantTx},
};

use super::{
    Point, SimStore,
    call::{call, script},
    db::Db,
    tx::SimTx,
};

/// The tables of tenants.
#[derive(Clone, Debug)]
pub(super) struct Tenants {
    by_id: BTreeMap<TenantId, TenantRecord>,
    noted: BTreeSet<(TenantId, JobId)>,
}

impl Default for Tenants {
    fn default() -> Self {
        let default = TenantRecord {
            id: TenantId::DEFAULT,
            name: "default".to_owned(),
            state: TenantState::Active,
            work: None,
            quotas: Quotas::default(),
            own_quotas: Quotas::default(),
            egress: NO_RULES.to_owned(),
            own_egress: NO_RULES.to_owned(),
            shell: true,
            created_at: None,
            suspended_at: None,
            jobs: 0,
        };
        Self { by_id: [(default.id, default)].into(), noted: BTreeSet::new() }
    }
}

/// Nodes read tenants before each delivery, and look for work once a second. Both reads are without faults.
#[async_trait]
impl TenantStore for SimStore {
    async fn create_tenant(&self, actor: &Actor, new: NewTenant) -> Result<TenantRecord> {
        script!(self, Ask, "create the tenant", [actor], |tx| tenant::create_tenant(tx, &actor, new))
    }
    async fn get_tenant(&self, tenant: &TenantRef) -> Result<TenantRecord> {
        let found = self.inspect(|db| db.find_tenant(tenant).cloned().map(|found| db.with_count(found)));
        found.ok_or(StoreError::NotFound("tenant"))
    }
    async fn list_tenants(&self, after: Option<&str>, limit: usize) -> Result<Page<TenantRecord, String>> {
        let after = after.unwrap_or_default().to_owned();
        call!(self, Read, [], |db, _| {
            let mut all: Vec<_> = db.tenants.by_id.values().filter(|tenant| tenant.name > after).cloned().collect();
            all.sort_by(|one, other| one.name.cmp(&other.name));
            let all = all.into_iter().map(|tenant| db.with_count(tenant)).collect();
            Ok(Page::cut(all, limit, |tenant| tenant.name.clone()))
        })
    }
    async fn update_tenant(&self, actor: &Actor, tenant: &TenantRef, change: TenantChange) -> Result<TenantRecord> {
        script!(self, Ask, "update the tenant", [actor, tenant], |tx| tenant::update_tenant(
            tx, &actor, &tenant, change
        ))
    }
    async fn suspend_tenant(&self, actor: &Actor, tenant: &TenantRef, cancel: bool) -> Result<TenantRecord> {
        script!(self, Ask, "suspend the tenant", [actor, tenant], |tx| tenant::suspend_tenant(
            tx, &actor, &tenant, cancel
        ))
    }
    async fn resume_tenant(&self, actor: &Actor, tenant: &TenantRef) -> Result<TenantRecord> {
        script!(self, Ask, "resume the tenant", [actor, tenant], |tx| tenant::resume_tenant(tx, &actor, &tenant))
    }
    async fn delete_tenant(&self, actor: &Actor, tenant: &TenantRef, force: bool) -> Result<TenantRecord> {
        script!(self, Ask, "delete the tenant", [actor, tenant], |tx| tenant::delete_tenant(tx, &actor, &tenant, force))
    }

    async fn tenants_with_work(&self, limit: usize) -> Result<Vec<TenantRecord>> {
        Ok(self.inspect(|db| {
            let working = db.tenants.by_id.values().filter(|tenant| tenant.work.is_some());
            working.take(limit).cloned().map(|tenant| db.with_count(tenant)).collect()
        }))
    }
    async fn tenant_jobs(&self, tenant: TenantId, after: &str, limit: usize) -> Result<Vec<(JobId, String)>> {
        script!(self, Read, "list the jobs of the tenant", [after], |tx| tx.jobs_of_tenant(tenant, &after, limit))
    }
    async fn noted_jobs(&self, tenant: TenantId, limit: usize) -> Result<Vec<JobId>> {
        script!(self, Read, "list the jobs of the tenant", [], |tx| TenantTx::noted_jobs(tx, tenant, limit))
    }
    async fn pause_for_tenant(&self, actor: &Actor, tenant: TenantId, job: JobId, cancel: bool) -> Result<TenantJob> {
        script!(self, Edit, "pause the job", [actor], |tx| tenant::pause_job(tx, &actor, tenant, job, cancel))
    }
    async fn resume_for_tenant(&self, actor: &Actor, tenant: TenantId, job: JobId) -> Result<TenantJob> {
        script!(self, Edit, "resume the job", [actor], |tx| tenant::resume_job(tx, &actor, tenant, job))
    }
    async fn delete_for_tenant(&self, actor: &Actor, tenant: TenantId, job: JobId) -> Result<TenantJob> {
        script!(self, Edit, "delete the job", [actor], |tx| tenant::delete_job(tx, &actor, tenant, job))
    }
    async fn remove_tenant_job(&self, tenant: TenantId, job: JobId, limit: usize) -> Result<bool> {
        script!(self, Prune, "remove the job", [], |tx| tenant::remove_job(tx, tenant, job, limit))
    }
    async fn remove_tenant_rows(&self, actor: &Actor, tenant: TenantId, limit: usize) -> Result<bool> {
        script!(self, Prune, "remove the tenant", [actor], |tx| tenant::remove_rows(tx, &actor, tenant, limit))
    }
    async fn end_tenant_work(&self, tenant: TenantId, work: TenantWork) -> Result<()> {
        script!(self, Ask, "end the work of the tenant", [], |tx| tenant::end_work(tx, tenant, work))
    }
}

impl Db {
    fn find_tenant(&self, tenant: &TenantRef) -> Option<&TenantRecord> {
        match tenant {
            TenantRef::Id(id) => self.tenants.by_id.get(id),
            TenantRef::Name(name) => self.tenants.by_id.values().find(|tenant| tenant.name == *name),
        }
    }

    fn with_count(&self, tenant: TenantRecord) -> TenantRecord {
        let jobs = self.live(tenant.id).count() as u64;
        TenantRecord { jobs, ..tenant }
    }

    pub(super) fn tenant_now(&self, tenant: TenantId) -> Option<TenantNow> {
        let found = self.tenants.by_id.get(&tenant)?;
        Some(TenantNow { state: found.state, quotas: found.layers(), jobs: self.live(tenant).count() as u64 })
    }

    /// The highest id that a tenant ever had.
    pub(super) fn given_tenant(&self) -> i32 {
        self.settings.get(LAST_TENANT).and_then(|last| last.parse().ok()).unwrap_or_default()
    }
}

#[async_trait]
impl TenantTx for SimTx<'_> {
    async fn find_tenant(&mut self, tenant: &TenantRef) -> Result<Option<TenantRecord>> {
        let found = self.db.find_tenant(tenant).cloned();
        Ok(found.map(|found| self.db.with_count(found)))
    }
    async fn next_tenant(&mut self) -> Result<TenantId> {
        let highest = self.db.tenants.by_id.keys().next_back().map_or(0, |id| id.raw());
        Ok(TenantId::from_raw(highest.max(self.db.given_tenant()) + 1))
    }
    async fn insert_tenant(&mut self, tenant: &TenantRecord) -> Result<()> {
        self.db.tenants.by_id.insert(tenant.id, tenant.clone());
        Ok(())
    }
    async fn write_tenant(&mut self, tenant: &TenantRecord) -> Result<()> {
        self.db.tenants.by_id.insert(tenant.id, tenant.clone());
        Ok(())
    }
    async fn working_tenants(&mut self, limit: usize) -> Result<Vec<TenantRecord>> {
        let working = self.db.tenants.by_id.values().filter(|tenant| tenant.work.is_some());
        Ok(working.take(limit).cloned().map(|tenant| self.db.with_count(tenant)).collect())
    }
    async fn jobs_of_tenant(&mut self, tenant: TenantId, after: &str, limit: usize) -> Result<Vec<(JobId, String)>> {
        let named: BTreeMap<_, _> = self.db.live(tenant).map(|row| (row.job.spec.name.clone(), row.job.id)).collect();
        let later = named.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        Ok(later.take(limit).map(|(name, id)| (*id, name.clone())).collect())
    }
    async fn noted_jobs(&mut self, tenant: TenantId, limit: usize) -> Result<Vec<JobId>> {
        let own = self.db.tenants.noted.iter().filter(|(owner, _)| *owner == tenant);
        Ok(own.take(limit).map(|(_, job)| *job).collect())
    }
    async fn is_noted(&mut self, tenant: TenantId, job: JobId) -> Result<bool> {
        Ok(self.db.tenants.noted.contains(&(tenant, job)))
    }
    async fn note_job(&mut self, tenant: TenantId, job: JobId) -> Result<()> {
        self.db.tenants.noted.insert((tenant, job));
        Ok(())
    }
    async fn forget_job(&mut self, tenant: TenantId, job: JobId) -> Result<()> {
        self.db.tenants.noted.remove(&(tenant, job));
        Ok(())
    }
    async fn end_tokens(&mut self, tenant: TenantId) -> Result<()> {
        let at = self.at;
        let own = self.db.tokens.values_mut().filter(|token| token.grant.tenant == Some(tenant));
        own.for_each(|token| token.revoked_at = token.revoked_at.or(Some(at)));
        Ok(())
    }

    async fn remove_runs(&mut self, _: TenantId, job: JobId, limit: usize) -> Result<usize> {
        let runs: BTreeSet<RunId> = self.db.runs_of(job).map(|(id, _)| id).take(limit).collect();
        let gone = |run: &RunId| runs.contains(run);
        self.db.runs.retain(|run, _| !gone(run));
        self.db.history.retain(|(_, run)| !gone(run));
        self.db.open.retain(|(_, run)| !gone(run));
        self.db.waiting.retain(|run, _| !gone(run));
        self.db.delegated.retain(|run, _| !gone(run));
        self.db.worker_claims.retain(|run, _| !gone(run));
        self.db.listed.retain(|run, _| !gone(run));
        self.db.flows.retain(|run, _| !gone(run));
        self.db.steps.retain(|run, _| !gone(run));
        self.db.attempts.retain(|(run, _), _| !gone(run));
        Ok(runs.len())
    }
    async fn remove_job(&mut self, _: TenantId, job: JobId) -> Result<()> {
        self.db.jobs.remove(&job);
        self.db.ranges.retain(|_, range| range.job != job);
        self.db.backfills.retain(|_, row| row.job != job);
        Ok(())
    }
    /// Removes all of them at once.
    async fn remove_rows(&mut self, tenant: TenantId, _: usize) -> Result<u64> {
        let db = &mut self.db;
        let before = db.calendars.len() + db.queues.len() + db.asked.len() + db.requests.len() + db.tokens.len();
        db.calendars.retain(|(owner, _), _| *owner != tenant);
        db.queues.retain(|(owner, _), _| *owner != tenant);
        db.asked.retain(|(owner, _), _| *owner != tenant);
        db.requests.retain(|(owner, _), _| *owner != tenant);
        db.tokens.retain(|_, token| token.grant.tenant != Some(tenant));
        let secrets = db.secrets.remove_of(tenant);
        let after = db.calendars.len() + db.queues.len() + db.asked.len() + db.requests.len() + db.tokens.len();
        Ok((before - after + secrets) as u64)
    }
    async fn remove_tenant(&mut self, tenant: TenantId) -> Result<()> {
        self.db.tenants.by_id.remove(&tenant);
        Ok(())
    }
}

impl SimTx<'_> {
    /// A tenant without a row gets one, unless it was removed.
    pub(super) fn known_tenant(&mut self, tenant: TenantId) -> Option<TenantNow> {
        if !self.db.tenants.by_id.contains_key(&tenant) && tenant.raw() > self.db.given_tenant() {
            let name = format!("tenant-{}", tenant.raw());
            let default = Tenants::default().by_id.remove(&TenantId::DEFAULT)?;
            let row = TenantRecord { id: tenant, name, shell: false, ..default };
            self.db.tenants.by_id.insert(tenant, row);
        }
        self.db.tenant_now(tenant)
    }
}
