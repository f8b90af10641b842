//! Makes jobs, one or many at a time.

use everytick_domain::{
    ids::{JobId, TenantId},
    job::JobSpec,
};
use everytick_store::{Actor, Created, IdempotencyKey, NewJob, Result};

use super::Commands;

impl Commands {
    /// Each spec alone is made or refused, in the order given. They must have been checked.
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
        // In order: many keys of one millisecond then go to the end of each index, whose pages they fill.
        ids.sort_unstable();
        let jobs = specs.into_iter().zip(ids).map(|(spec, id)| NewJob { id, spec }).collect();
        let created = self.store.create_jobs(tenant, actor, jobs, idempotency).await?;
        self.hints.jobs_changed();
        Ok(created)
    }
}
