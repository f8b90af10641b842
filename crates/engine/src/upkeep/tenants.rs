//! Carries out the suspension, the resumption and the deletion of tenants, by the leader. Each job is one transaction, which checks
//! the state of the tenant again. So a pass that fails or is repeated does no harm, and the next pass continues.

use std::sync::Arc;

use everytick_domain::{
    ids::{JobId, TenantId},
    tenant::{TENANT_BATCH, TenantWork},
};
use everytick_store::{Actor, Result, StoreError, TenantJob};
use metrics::counter;

use crate::{
    cluster::unsure,
    pulse,
    settings::{TENANT_WORK_EVERY, TENANTS_PER_PASS_MAX},
    shared::Shared,
};

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(TENANT_WORK_EVERY) => {}
        }
        if !shared.is_leader() {
            continue;
        }
        let _pass = pulse::pass();
        if let Err(error) = pass(&shared).await {
            unsure::report(&shared, &error);
        }
    }
}

/// Works for every tenant that has changed its state. Returns how many jobs changed.
pub(crate) async fn pass(shared: &Arc<Shared>) -> Result<usize> {
    let find = shared.parts.store.tenants_with_work(TENANTS_PER_PASS_MAX);
    let mut changed = 0;
    for tenant in shared.read("find tenants with work", find).await? {
        let Some(work) = tenant.work else { continue };
        let worker = Worker { shared, actor: Actor::node(&shared.parts.settings.node), tenant: tenant.id };
        let (jobs, done) = worker.work(work).await?;
        changed += jobs;
        if done && work != TenantWork::Delete {
            shared.call("end the work of the tenant", shared.parts.store.end_tenant_work(tenant.id, work)).await?;
        }
        tracing::info!(tenant = tenant.name, work = work.word(), jobs, done, "worked for a tenant");
    }
    Ok(changed)
}

struct Worker<'a> {
    shared: &'a Arc<Shared>,
    actor: Actor,
    tenant: TenantId,
}

impl Worker<'_> {
    /// Returns how many jobs changed, and whether nothing is left.
    async fn work(&self, work: TenantWork) -> Result<(usize, bool)> {
        match work {
            TenantWork::Pause | TenantWork::PauseAndCancel => self.of_all_jobs(work).await,
            TenantWork::Resume => self.resume().await,
            TenantWork::Delete => self.delete().await,
        }
    }

    async fn of_all_jobs(&self, work: TenantWork) -> Result<(usize, bool)> {
        let (mut changed, mut done, mut after) = (0, true, String::new());
        loop {
            let page = self.shared.parts.store.tenant_jobs(self.tenant, &after, TENANT_BATCH);
            let page = self.shared.read("list the jobs of the tenant", page).await?;
            let Some((_, last)) = page.last() else { return Ok((changed, done)) };
            after.clone_from(last);
            for (job, _) in page {
                if self.stops() {
                    return Ok((changed, false));
                }
                match self.change(work, job).await? {
                    Some(is_changed) => changed += usize::from(is_changed),
                    None => done = false,
                }
            }
            self.shared.parts.hints.jobs_changed();
        }
    }

    async fn resume(&self) -> Result<(usize, bool)> {
        let mut changed = 0;
        loop {
            let noted = self.shared.parts.store.noted_jobs(self.tenant, TENANT_BATCH);
            let noted = self.shared.read("list the jobs of the tenant", noted).await?;
            if noted.is_empty() {
                return Ok((changed, true));
            }
            let mut failed = 0;
            for job in &noted {
                if self.stops() {
                    return Ok((changed, false));
                }
                match self.change(TenantWork::Resume, *job).await? {
                    Some(is_changed) => changed += usize::from(is_changed),
                    None => failed += 1,
                }
            }
            self.shared.parts.hints.jobs_changed();
            // The same jobs would be found again.
            if failed == noted.len() {
                return Ok((changed, false));
            }
        }
    }

    /// Deletes the jobs, then removes their rows, then the other rows of the tenant.
    async fn delete(&self) -> Result<(usize, bool)> {
        let (changed, _) = self.of_all_jobs(TenantWork::Delete).await?;
        let store = &self.shared.parts.store;
        let noted = self.shared.read("list jobs", store.noted_jobs(self.tenant, TENANT_BATCH)).await?;
        for job in noted {
            loop {
                if self.stops() {
                    return Ok((changed, false));
                }
                let remove = store.remove_tenant_job(self.tenant, job, TENANT_BATCH);
                if self.shared.call("remove the job", remove).await? {
                    break;
                }
            }
        }
        let remove = store.remove_tenant_rows(&self.actor, self.tenant, TENANT_BATCH);
        let done = self.shared.call("remove the tenant", remove).await?;
        self.shared.parts.hints.access_changed();
        Ok((changed, done))
    }

    /// Changes one job. `None` if it could not be changed now. A job that the database refuses must not hold up the others.
    async fn change(&self, work: TenantWork, job: JobId) -> Result<Option<bool>> {
        let (store, actor, tenant) = (&self.shared.parts.store, &self.actor, self.tenant);
        let changed = match work {
            TenantWork::Pause => {
                self.shared.call("pause the job", store.pause_for_tenant(actor, tenant, job, false)).await
            }
            TenantWork::PauseAndCancel => {
                self.shared.call("pause the job", store.pause_for_tenant(actor, tenant, job, true)).await
            }
            TenantWork::Resume => self.shared.call("resume the job", store.resume_for_tenant(actor, tenant, job)).await,
            TenantWork::Delete => self.shared.call("delete the job", store.delete_for_tenant(actor, tenant, job)).await,
        };
        match changed {
            Ok(TenantJob { changed, cancelled, .. }) => {
                if !cancelled.is_empty() {
                    counter!("everytick_runs_total", "state" => "cancelled").increment(cancelled.len() as u64);
                    self.shared.parts.hints.runs_ended(job, cancelled);
                }
                self.shared.notify_flows();
                Ok(Some(changed))
            }
            // Another job of the tenant still depends on it. That job is deleted in this pass.
            Err(StoreError::InUse { .. }) => Ok(None),
            Err(error @ (StoreError::Failed { .. } | StoreError::Unsure { .. } | StoreError::LeaseLost)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, %job, work = work.word(), "could not change a job of a tenant");
                Ok(None)
            }
        }
    }

    fn stops(&self) -> bool {
        self.shared.stopping() || !self.shared.is_leader()
    }
}
