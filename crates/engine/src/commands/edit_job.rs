//! Edits, pauses, resumes and deletes a job.

use everytick_domain::ids::TenantId;
use everytick_store::{Actor, EditJob, Edited, Result};

use super::{Commands, trigger::count_cancelled};

impl Commands {
    pub async fn edit_job(&self, tenant: TenantId, actor: &Actor, edit: EditJob) -> Result<Edited> {
        let edited = self.store.edit_job(tenant, actor, edit).await?;
        self.hints.jobs_changed();
        self.hints.run_waits();
        if !edited.cancelled.is_empty() {
            count_cancelled(edited.cancelled.len());
            self.hints.runs_ended(edited.job.id, edited.cancelled.iter().copied());
        }
        self.notify_flows();
        Ok(edited)
    }
}
