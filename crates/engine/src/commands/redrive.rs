//! Drives the failed runs of a job again: the way out of the dead-letter list.

use everytick_domain::{ids::TenantId, redrive::problems};
use everytick_store::{Actor, Redrive, Redriven, Result, StoreError};

use super::Commands;

impl Commands {
    /// A new run in place of each, always the same one: asking twice makes nothing twice.
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
