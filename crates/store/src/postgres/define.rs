//! Writes the definitions of jobs.

use everytick_domain::{
    ids::TenantId,
    job::{Job, JobSpec},
    time::DbTime,
};

use super::{
    DbTx, calendars, compact,
    compact::Form,
    db_tx::{Query, refused},
    rows, secrets,
};
use crate::tx::SharedTx as _;
use crate::{Actor, Created, Result, StoreError, announced::is_announced};

pub(super) async fn insert(write: &mut DbTx, tenant: TenantId, actor: &Actor, created: &[&Created]) -> Result<()> {
    let form = compact::form(write).await?;
    let jobs: Vec<&Job> = created.iter().map(|created| &created.job).collect();
    let jobs = || jobs.iter().copied();
    let listed: Vec<Listed> = jobs().map(|job| Listed::of(&job.spec, form)).collect();
    let specs: Vec<String> = jobs().map(|job| compact::text(&job.spec, form)).collect::<Result<_>>()?;
    let ids = rows::job_ids(jobs().map(|job| job.id));
    let partitions: Vec<i16> = jobs().map(|job| rows::partition(job.partition)).collect();
    let announced: Vec<bool> = created.iter().map(|created| is_announced(created.cursor, write.now)).collect();
    write
        .execute_or_refuse(query!(
            "jobs/create_jobs",
            &ids,
            jobs().map(|job| job.spec.name.as_str()).collect::<Vec<_>>(),
            specs,
            listed.iter().map(|listed| listed.enabled).collect::<Vec<_>>(),
            listed.iter().map(|listed| listed.target).collect::<Vec<_>>(),
            listed.iter().map(|listed| listed.labels.as_str()).collect::<Vec<_>>(),
            listed.iter().map(|listed| listed.search.as_str()).collect::<Vec<_>>(),
            tenant.raw(),
            &*rows::text(&actor.name),
            write.now.millis()
        ))
        .await?;
    write
        .execute_or_refuse(query!(
            "epochs/create_epochs",
            &ids,
            &partitions,
            tenant.raw(),
            write.now.millis(),
            jobs().map(|job| job.spec.target.queue()).collect::<Vec<_>>(),
            jobs().map(|job| job.spec.is_guarded()).collect::<Vec<_>>(),
            &announced
        ))
        .await?;
    write
        .execute_or_refuse(query!(
            "cursors/create_cursors",
            &ids,
            &partitions,
            created.iter().map(|created| created.cursor.map(DbTime::millis)).collect::<Vec<_>>(),
            tenant.raw()
        ))
        .await?;
    calendars::used(write, tenant, jobs().map(|job| (job.id, &*job.spec))).await?;
    secrets::used(write, tenant, jobs().map(|job| (job.id, &*job.spec))).await?;
    count(write, tenant, rows::limit(created.len())).await?;
    if announced.contains(&true) {
        write.notify_owners().await?;
    }
    Ok(())
}

/// Adds to the number of live jobs of the tenant.
pub(super) async fn count(write: &mut DbTx, tenant: TenantId, more: i64) -> Result<()> {
    write.execute(query!("tenants/add_jobs_count", tenant.raw(), more)).await?;
    Ok(())
}

pub(super) fn definition(spec: &JobSpec) -> Result<String> {
    compact::text(spec, Form::Full)
}

/// The number of the parameter with which the edited columns begin: after the id and the filters.
pub(super) const EDITED_FROM: u8 = 6;
pub(super) const PARAMETER: char = '$';

/// Binds the columns by which lists filter jobs.
pub(super) fn edited<'q>(edit: Query<'q>, spec: &JobSpec) -> Query<'q> {
    let listed = Listed::of(spec, Form::Full);
    edit.bind(listed.enabled).bind(listed.target).bind(listed.labels).bind(listed.search)
}

pub(super) fn edit_error(error: sqlx::Error, job: &Job, doing: &'static str) -> StoreError {
    match super::is_taken(&error, "jobs_name") {
        true => StoreError::NameTaken(job.spec.name.clone()),
        false => refused(error, doing),
    }
}

/// The values by which lists filter jobs, in columns of their own, so that no list reads a definition.
pub(super) struct Listed {
    pub enabled: bool,
    pub target: &'static str,
    pub labels: String,
    pub search: String,
}

impl Listed {
    pub(super) fn of(spec: &JobSpec, form: Form) -> Self {
        let labels: serde_json::Map<_, _> = spec
            .labels
            .iter()
            .map(|(key, value)| (rows::text(key).into_owned(), rows::text(value).into_owned().into()))
            .collect();
        let search = match form {
            Form::Full => format!("{}\n{}", spec.name, spec.description).to_lowercase(),
            // The name is searched in its own column.
            Form::Compact => spec.description.to_lowercase(),
        };
        Self {
            enabled: spec.enabled,
            target: spec.target.kind(),
            labels: serde_json::Value::Object(labels).to_string(),
            search: rows::text(&search).into_owned(),
        }
    }
}
