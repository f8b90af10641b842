//! Creates jobs, one or many at a time.

use everytick_domain::{
    ids::{JobId, TenantId},
    job::JobSpec,
};
use everytick_store::{Actor, Created, IdempotencyKey, NewJob, Result};

use super::Commands;

impl Commands {
    /// Creates or refuses each spec on its own, in the given order. The caller has validated the specs.
    pub async fn create_jobs(
        &self,
        tenant: TenantId,
        actor: &Actor,
        specs: Vec<JobSpec>,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Vec<Result<Created>>> {
        let now = self.store.now().await?;
        let mut random = vec![[0; 10]; specs.len()];
        self.entropy.fill(random.as_flattened_mut());
        let mut ids: Vec<JobId> = random.into_iter().map(|random| JobId::new(now, random)).collect();
        // Sorted, so that the many keys of one millisecond append to the end of each index and fill its pages.
        ids.sort_unstable();
        let jobs = specs.into_iter().zip(ids).map(|(spec, id)| NewJob { id, spec }).collect();
        let created = self.store.create_jobs(tenant, actor, jobs, idempotency).await?;
        self.hints.jobs_changed();
        Ok(created)
    }
}
