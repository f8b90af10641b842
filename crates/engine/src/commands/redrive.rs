//! Redrives the failed runs of a job: starts a new run for each, which removes the failed run from the dead-letter list.

use everytick_domain::{ids::TenantId, redrive::problems};
use everytick_store::{Actor, Redrive, Redriven, Result, StoreError};

use super::Commands;

impl Commands {
    /// Creates a new run for each failed run. The new id is derived from the failed run, so a repeated request creates no
    /// duplicates.
    pub async fn redrive(&self, tenant: TenantId, actor: &Actor, request: &Redrive) -> Result<Redriven> {
        let now = self.store.now().await?;
        let wrong = problems(request.from, request.to, request.limit, now);
        if !wrong.is_empty() {
            return Err(StoreError::Invalid(wrong));
        }
        let redriven = self.store.redrive(tenant, actor, request).await?;
        if redriven.runs.iter().any(|run| run.made) {
            self.hints.run_waits();
        }
        Ok(redriven)
    }
}
