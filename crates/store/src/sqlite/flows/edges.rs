//! The edges between jobs, written with their definitions. There is one writer at a time, so two concurrent edits
//! cannot create a cycle.

use std::collections::BTreeMap;

use everytick_domain::{
    edit::Change,
    flow::{Edges, FLOW_JOBS_MAX, When},
    ids::{JobId, TenantId},
    job::{Job, JobSpec},
};
use sqlx::SqliteConnection;
use uuid::Uuid;

use super::super::{
    Failed, Write, rows,
    rows::{Hex, JobRow},
};
use super::sql;
use crate::{
    NewJob, Result, StoreError,
    flows::{self, Family},
};

/// The jobs connected with these, or those that follow them. One more than a flow may have shows that there are too
/// many.
pub(super) async fn load(
    connection: &mut SqliteConnection,
    statement: &'static str,
    jobs: &[JobId],
    doing: &'static str,
) -> Result<Edges> {
    let asked = rows::job_ids(jobs.iter().copied()).failed(doing)?;
    let limit = rows::limit((FLOW_JOBS_MAX + 1).saturating_mul(jobs.len().max(1)));
    let found: Vec<(Uuid, String, Option<Uuid>, Option<i64>)> =
        sqlx::query_as(statement).bind(asked).bind(limit).fetch_all(connection).await.failed(doing)?;
    let mut edges = Edges::default();
    for (job, name, parent, when) in found {
        let job = JobId::from_uuid(job);
        edges.add_job(job, name);
        if let (Some(parent), Some(when)) = (parent, when.and_then(When::from_code)) {
            edges.add(job, JobId::from_uuid(parent), when);
        }
    }
    Ok(edges)
}

/// Reads the parents that new jobs name.
pub(in super::super) async fn born(write: &mut Write, tenant: TenantId, jobs: &[NewJob]) -> Result<Family> {
    let known = named(write, tenant, jobs.iter().map(|new| &new.spec)).await?;
    let ids: Vec<JobId> = known.values().map(|(id, _)| *id).collect();
    let edges = match ids.is_empty() {
        true => Edges::default(),
        false => load(&mut write.tx, sql!("flow_near"), &ids, write.doing).await?,
    };
    Ok(Family::new(known, edges))
}

async fn named<'a>(
    write: &mut Write,
    tenant: TenantId,
    specs: impl Iterator<Item = &'a JobSpec>,
) -> Result<BTreeMap<String, (JobId, String)>> {
    let (names, ids) = flows::called(specs);
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found: Vec<(Uuid, String)> = sqlx::query_as(sql!("flow_named"))
        .bind(tenant.raw())
        .bind(rows::json(&names).failed(write.doing)?)
        .bind(rows::job_ids(ids).failed(write.doing)?)
        .fetch_all(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(flows::by_call(found.into_iter().map(|(id, name)| (JobId::from_uuid(id), name))))
}

/// Checks what an edit does to the edges: its parents must exist, it must not create a cycle, and a job that others
/// depend on can be neither renamed nor deleted. Returns the parents if they change.
pub(in super::super) async fn edited(
    write: &mut Write,
    row: &JobRow,
    change: &mut Change,
) -> Result<Option<Vec<(JobId, When)>>> {
    let old = &row.job;
    match change {
        Change::Replace(spec) => {
            if spec.name != old.spec.name {
                refuse_if_followed(write, old.id).await?;
            }
            if spec.depends_on == old.spec.depends_on {
                return Ok(None);
            }
            let known = named(write, old.tenant, std::iter::once(&**spec)).await?;
            let parents = flows::resolve(spec, |name| known.get(name).cloned()).map_err(StoreError::Invalid)?;
            let near: Vec<JobId> = parents.iter().map(|(id, _)| *id).chain([old.id]).collect();
            let mut edges = load(&mut write.tx, sql!("flow_near"), &near, write.doing).await?;
            flows::define(&mut edges, old.id, &spec.name, &parents)?;
            Ok(Some(parents))
        }
        Change::Delete => {
            refuse_if_followed(write, old.id).await?;
            Ok(Some(Vec::new()))
        }
        Change::Pause { .. } | Change::Quarantine { .. } | Change::Resume => Ok(None),
    }
}

async fn refuse_if_followed(write: &mut Write, job: JobId) -> Result<()> {
    let by: Vec<String> = sqlx::query_scalar(sql!("flow_children"))
        .bind(job.uuid())
        .fetch_all(&mut *write.tx)
        .await
        .failed(write.doing)?;
    flows::followed(by)
}

/// Writes the new parents of a job.
pub(in super::super) async fn parents_now(write: &mut Write, job: &Job, parents: &[(JobId, When)]) -> Result<()> {
    sqlx::query(sql!("flow_orphan")).bind(job.id.uuid()).execute(&mut *write.tx).await.failed(write.doing)?;
    if parents.is_empty() {
        return Ok(());
    }
    let parents: Vec<_> = parents.iter().map(|(id, when)| (Hex(id.uuid()), when.code())).collect();
    sqlx::query(sql!("flow_adopt"))
        .bind(job.tenant.raw())
        .bind(job.id.uuid())
        .bind(rows::json(&parents).failed(write.doing)?)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(write.doing)?;
    Ok(())
}
