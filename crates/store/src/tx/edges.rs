//! The edges between jobs, checked with their definitions. A lock on the tenant serializes definitions with parents.
//! The data to check them is read in a later verb, so two concurrent edits cannot create a cycle.

use std::collections::BTreeMap;

use everytick_domain::{
    edit::Change,
    flow::{Edges, When},
    ids::{JobId, TenantId},
    job::{Job, JobSpec},
};

use super::Tx;
use crate::{
    NewJob, Result, StoreError,
    flows::{self, Family},
};

/// Reads the parents that new jobs name, and the edges connected with them.
pub async fn of_new<T: Tx + ?Sized>(tx: &mut T, tenant: TenantId, jobs: &[NewJob]) -> Result<Family> {
    let known = called(tx, tenant, jobs.iter().map(|new| &new.spec)).await?;
    let ids: Vec<JobId> = known.values().map(|(id, _)| *id).collect();
    let edges = if ids.is_empty() { Edges::default() } else { tx.edges_near(&ids).await? };
    Ok(Family::new(known, edges))
}

async fn called<'a, T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    specs: impl Iterator<Item = &'a JobSpec> + Send,
) -> Result<BTreeMap<String, (JobId, String)>> {
    let (names, ids) = flows::called(specs);
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    Ok(flows::by_call(tx.jobs_called(tenant, &names, &ids).await?))
}

/// Checks what an edit does to the edges: its parents must exist, it must not create a cycle, and a job that others
/// depend on can be neither renamed nor deleted. The caller has locked the job. Returns the parents if they change.
pub async fn of_edit<T: Tx + ?Sized>(tx: &mut T, old: &Job, change: &mut Change) -> Result<Option<Vec<(JobId, When)>>> {
    match change {
        Change::Replace(spec) => {
            let (renamed, changed) = (spec.name != old.spec.name, spec.depends_on != old.spec.depends_on);
            // Lock order: the tenant after the job's epoch, as in a delete.
            if renamed || changed {
                tx.lock_tenant(old.tenant).await?;
            }
            if renamed {
                flows::followed(tx.children_of(old.id).await?)?;
            }
            if !changed {
                return Ok(None);
            }
            let known = called(tx, old.tenant, std::iter::once(&**spec)).await?;
            let parents = flows::resolve(spec, |name| known.get(name).cloned()).map_err(StoreError::Invalid)?;
            let near: Vec<JobId> = parents.iter().map(|(id, _)| *id).chain([old.id]).collect();
            let mut edges = tx.edges_near(&near).await?;
            flows::define(&mut edges, old.id, &spec.name, &parents)?;
            Ok(Some(parents))
        }
        Change::Delete => {
            tx.lock_tenant(old.tenant).await?;
            flows::followed(tx.children_of(old.id).await?)?;
            Ok(Some(Vec::new()))
        }
        Change::Pause { .. } | Change::Quarantine { .. } | Change::Resume => Ok(None),
    }
}
