//! The edges between jobs, checked with their definitions. A lock on the tenant serializes definitions with parents.
//! The data to check them is read in a later verb, so two concurrent edits cannot create a cycle.

use std::collections::{BTreeMap, BTreeSet};

use everytick_domain::{
    edit::Change,
    flow::{self, Edges, When},
    ids::{JobId, TenantId},
    job::{Job, JobSpec},
};

use super::{Tx, invalid};
use crate::{Created, NewJob, Result, StoreError, calendars::JOBS_NAMED_MAX};

/// Jobs by the names and ids with which definitions refer to them.
type ByReference = BTreeMap<String, (JobId, String)>;

/// The parents that new jobs name, and the edges connected with them.
pub(super) struct Family {
    known: ByReference,
    edges: Edges,
}

impl Family {
    /// Determines the parents of a new job.
    pub(super) fn resolve(&mut self, id: JobId, spec: &mut JobSpec) -> Result<Vec<(JobId, When)>> {
        if spec.depends_on.is_empty() {
            return Ok(Vec::new());
        }
        let parents = resolve(spec, &self.known)?;
        self.edges.define(id, &spec.name, &parents).map_err(invalid)?;
        Ok(parents)
    }

    /// Adds a new job, which may be a parent of the jobs after it.
    pub(super) fn made(&mut self, created: &Created) {
        let (id, name) = (created.job.id, created.job.spec.name.clone());
        self.edges.add_job(id, name.clone());
        self.known.extend(references(id, name));
    }
}

fn references(id: JobId, name: String) -> [(String, (JobId, String)); 2] {
    [(id.to_string(), (id, name.clone())), (name.clone(), (id, name))]
}

/// Reads the parents that new jobs name, and the edges connected with them.
pub(super) async fn of_new<T: Tx + ?Sized>(tx: &mut T, tenant: TenantId, jobs: &[NewJob]) -> Result<Family> {
    let known = named_parents(tx, tenant, jobs.iter().map(|new| &new.spec)).await?;
    let ids: Vec<JobId> = known.values().map(|(id, _)| *id).collect();
    let edges = if ids.is_empty() { Edges::default() } else { tx.edges_near(&ids).await? };
    Ok(Family { known, edges })
}

/// Reads the jobs that definitions name as parents.
async fn named_parents<'a, T: Tx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    specs: impl Iterator<Item = &'a JobSpec> + Send,
) -> Result<ByReference> {
    let named: BTreeSet<&str> = specs.flat_map(|spec| &spec.depends_on).map(|parent| parent.job.as_str()).collect();
    if named.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<JobId> = named.iter().filter_map(|name| name.parse().ok()).collect();
    let names: Vec<String> = named.into_iter().map(str::to_owned).collect();
    let found = tx.jobs_called(tenant, &names, &ids).await?;
    Ok(found.into_iter().flat_map(|(id, name)| references(id, name)).collect())
}

/// Resolves the parents that a definition names to ids. Replaces a reference by id with the name.
fn resolve(spec: &mut JobSpec, known: &ByReference) -> Result<Vec<(JobId, When)>> {
    let (mut parents, mut wrong) = (Vec::new(), Vec::new());
    for (index, parent) in spec.depends_on.iter_mut().enumerate() {
        match known.get(&parent.job).cloned() {
            Some((id, name)) => {
                parents.push((id, parent.when));
                parent.job = name;
            }
            None => wrong.push(flow::unknown_parent(index, &parent.job)),
        }
    }
    if wrong.is_empty() {
        wrong = flow::problems(spec);
    }
    if wrong.is_empty() { Ok(parents) } else { Err(StoreError::Invalid(wrong)) }
}

/// Creates jobs of one request, parents before children. Returns the results in the order of the request.
pub(super) fn each_in_order(
    jobs: Vec<NewJob>,
    mut make: impl FnMut(NewJob) -> Result<Created>,
) -> Vec<Result<Created>> {
    if jobs.iter().all(|new| new.spec.depends_on.is_empty()) {
        return jobs.into_iter().map(make).collect();
    }
    let parents = |new: &NewJob| new.spec.depends_on.iter().map(|parent| parent.job.clone()).collect();
    let given: Vec<(String, Vec<String>)> = jobs.iter().map(|new| (new.spec.name.clone(), parents(new))).collect();
    let given: Vec<(&str, Vec<&str>)> =
        given.iter().map(|(name, parents)| (name.as_str(), parents.iter().map(String::as_str).collect())).collect();
    let order = flow::in_order(&given);
    let mut jobs: Vec<Option<NewJob>> = jobs.into_iter().map(Some).collect();
    let mut made: BTreeMap<usize, Result<Created>> = BTreeMap::new();
    for index in order {
        if let Some(new) = jobs.get_mut(index).and_then(Option::take) {
            made.insert(index, make(new));
        }
    }
    made.into_values().collect()
}

/// Checks what an edit does to the edges: its parents must exist, it must not create a cycle, and a job that others
/// depend on can be neither renamed nor deleted. The caller has locked the job. Returns the parents if they change.
pub(super) async fn of_edit<T: Tx + ?Sized>(
    tx: &mut T,
    old: &Job,
    change: &mut Change,
) -> Result<Option<Vec<(JobId, When)>>> {
    match change {
        Change::Replace(spec) => {
            let (renamed, changed) = (spec.name != old.spec.name, spec.depends_on != old.spec.depends_on);
            // Lock order: the tenant after the job's epoch, as in a delete.
            if renamed || changed {
                tx.lock_tenant(old.tenant).await?;
            }
            if renamed {
                check_no_children(tx, old.id).await?;
            }
            if !changed {
                return Ok(None);
            }
            let known = named_parents(tx, old.tenant, std::iter::once(&**spec)).await?;
            let parents = resolve(spec, &known)?;
            let near: Vec<JobId> = parents.iter().map(|(id, _)| *id).chain([old.id]).collect();
            tx.edges_near(&near).await?.define(old.id, &spec.name, &parents).map_err(invalid)?;
            Ok(Some(parents))
        }
        Change::Delete => {
            tx.lock_tenant(old.tenant).await?;
            check_no_children(tx, old.id).await?;
            Ok(Some(Vec::new()))
        }
        Change::Pause { .. } | Change::Quarantine { .. } | Change::Resume => Ok(None),
    }
}

async fn check_no_children<T: Tx + ?Sized>(tx: &mut T, job: JobId) -> Result<()> {
    let by = tx.children_of(job).await?;
    if by.is_empty() {
        return Ok(());
    }
    let count = by.len();
    Err(StoreError::InUse { what: "job", by: by.into_iter().take(JOBS_NAMED_MAX).collect(), count })
}
