//! Redrives the failed runs of a job: takes them out of the dead-letter list.

use everytick_domain::{ids::TenantId, redrive::problems};
use everytick_store::{Actor, Redrive, Redriven, Result, StoreError};

use super::Commands;

impl Commands {
    /// Creates a new run for each failed run. The new id is derived from the failed run, so a repeated request creates no
    /// duplicates.
    pub async fn redrive(&self, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven> {
        let now = self.store.now().await?;
        let wrong = problems(ask.since, ask.until, ask.limit, now);
        if !wrong.is_empty() {
            return Err(StoreError::Invalid(wrong));
        }
        let redriven = self.store.redrive(tenant, actor, ask).await?;
        if redriven.runs.iter().any(|run| run.made) {
            self.hints.run_waits();
        }
        Ok(redriven)
    }
}
