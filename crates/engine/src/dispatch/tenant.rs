//! Checks the rules of a job's tenant before a delivery: they may have changed since the job was defined.

use everytick_domain::{
    job::Job,
    target::{Outcome, Retry},
};
use everytick_store::StoreError;
use everytick_targets::TenantRules;

use crate::shared::Shared;

/// The outcome of a delivery that the tenant's rules do not permit.
pub(super) async fn check(shared: &Shared, job: &Job) -> Result<(), Outcome> {
    let found = match shared.tenants.cached(job.tenant) {
        Some(found) => Ok(found),
        None => shared.read("read the tenant", shared.tenants.get(job.tenant)).await,
    };
    let found = match found {
        Ok(found) => found,
        // A run of a tenant that was just deleted, or a row that cannot be decoded.
        Err(error @ (StoreError::NotFound(_) | StoreError::Unreadable { .. })) => {
            return Err(failed(error.to_string()));
        }
        Err(error) => match shared.tenants.last_known(job.tenant) {
            Some(known) => known,
            None => {
                tracing::warn!(%error, job = job.spec.name, "a run is released unsent: its tenant could not be read");
                return Err(Outcome::Unsent);
            }
        },
    };
    let rules = TenantRules::of(found.shell, [&found.egress, &found.own_egress]).map_err(failed)?;
    match rules.refused(&job.spec.target).first() {
        None => Ok(()),
        Some(why) => Err(failed(why.to_string())),
    }
}

fn failed(error: String) -> Outcome {
    Outcome::Failed { error, output: None, retry: Retry::Never }
}
