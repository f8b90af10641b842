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
        let jobs = specs
            .into_iter()
            .map(|spec| {
                let mut random = [0; 10];
                self.entropy.fill(&mut random);
                NewJob { id: JobId::new(now, random), spec }
            })
            .collect();
        let created = self.store.create_jobs(tenant, actor, jobs, idempotency).await?;
        self.hints.jobs_changed();
        Ok(created)
    }
}
