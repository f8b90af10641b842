//! The verbs of calendars, and the calendars of jobs. The transactions that use them are in `crate::tx::calendar`.

use std::sync::Arc;

use async_trait::async_trait;
use everytick_domain::{
    calendar::{CALENDAR_VERSIONS_KEPT, Calendar, CalendarSpec, Exclusion},
    ids::{JobId, TenantId, Version},
    job::JobSpec,
    time::DbTime,
};
use sqlx::Row as _;

use super::{DbTx, Failed, PostgresStore, page, rows};
use crate::{
    Actor, CalendarRecord, Page, Result, StoreError,
    calendars::{Known, attach, known, named},
    tx::{JobRow, calendar::CalendarTx},
};

#[async_trait]
impl CalendarTx for DbTx {
    async fn find_calendar(&mut self, tenant: TenantId, name: &str) -> Result<Option<CalendarRecord>> {
        let found = self.fetch_optional(query!("calendars/calendar_get", tenant.raw(), name)).await?;
        found.as_ref().map(rows::calendar).transpose().failed(self.doing)
    }
    async fn lock_calendar(&mut self, tenant: TenantId, name: &str) -> Result<()> {
        self.execute(query!("calendars/lock_calendar", tenant.raw(), name)).await?;
        Ok(())
    }
    async fn count_calendars(&mut self, tenant: TenantId) -> Result<u64> {
        let count = sqlx::query_scalar(sql!("calendars/calendar_count")).bind(tenant.raw());
        Ok(count.fetch_one(&mut *self.tx).await.map(i64::unsigned_abs).failed(self.doing)?)
    }
    async fn calendar_users(&mut self, tenant: TenantId, name: &str) -> Result<Vec<(JobId, String)>> {
        let found = self.fetch_all(query!("calendars/calendar_users", tenant.raw(), name)).await?;
        found.iter().map(rows::named_job).collect::<std::result::Result<_, _>>().failed(self.doing)
    }
    async fn put_version(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        version: Version,
        effective_at: DbTime,
        spec: &CalendarSpec,
    ) -> Result<()> {
        let doing = self.doing;
        let spec = serde_json::to_string(spec).map_err(|error| StoreError::Refused { doing, source: error.into() })?;
        self.execute_or_refuse(query!(
            "calendars/calendar_set",
            tenant.raw(),
            name,
            version.raw(),
            effective_at.millis(),
            &*rows::text(&actor.0)
        ))
        .await?;
        self.execute_or_refuse(query!(
            "calendars/calendar_add_version",
            tenant.raw(),
            name,
            version.raw(),
            effective_at.millis(),
            spec
        ))
        .await?;
        self.execute(query!(
            "calendars/calendar_forget_versions",
            tenant.raw(),
            name,
            version.raw() - rows::limit(CALENDAR_VERSIONS_KEPT)
        ))
        .await?;
        Ok(())
    }
    async fn raise_epochs(&mut self, jobs: &[JobId]) -> Result<()> {
        self.execute(query!("epochs/raise_epochs", rows::job_ids(jobs.iter().copied()), self.now.millis())).await?;
        Ok(())
    }
    async fn remove_calendar(&mut self, tenant: TenantId, name: &str) -> Result<()> {
        let forget = query!("calendars/calendar_forget_versions", tenant.raw(), name, i64::MAX);
        forget.execute(&mut *self.tx).await.failed(self.doing)?;
        self.execute(query!("calendars/calendar_forget", tenant.raw(), name)).await?;
        Ok(())
    }
}

/// Locks the named calendars against changes, and returns those that exist.
pub(super) async fn lock(write: &mut DbTx, tenant: TenantId, names: &[String]) -> Result<Known> {
    if names.is_empty() {
        return Ok(Known::new());
    }
    write.execute(query!("calendars/lock_calendars", tenant.raw(), names)).await?;
    of_tenant(write, tenant, names).await
}

pub(super) async fn list_calendars(
    store: &PostgresStore,
    tenant: TenantId,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<CalendarRecord, String>> {
    const DOING: &str = "list calendars";
    let mut read = store.read(DOING).await?;
    let list = page::list(sql!("calendars/calendar_list"), "name", "spec").bind(tenant.raw());
    let list = list.bind(after.unwrap_or_default()).bind(rows::limit(limit.saturating_add(1)));
    let (found, more) = page::fetch(&mut read, list, limit, "spec").await?;
    // Set even if the last row cannot be decoded.
    let next = found.last().filter(|_| more).map(|row| row.try_get("name")).transpose().failed(DOING)?;
    let items = store.unreadable.each("calendar_versions", &found, rows::calendar);
    Ok(Page { items, next })
}

pub(super) async fn load_calendars(
    store: &PostgresStore,
    tenant: TenantId,
    names: &[String],
) -> Result<Vec<Arc<Calendar>>> {
    const DOING: &str = "load calendars";
    let mut read = store.read(DOING).await?;
    Ok(of_tenant(&mut read, tenant, names).await?.into_values().collect())
}

/// Those of the named calendars that exist.
pub(super) async fn of_tenant(tx: &mut DbTx, tenant: TenantId, names: &[String]) -> Result<Known> {
    if names.is_empty() {
        return Ok(Known::new());
    }
    let found = tx.fetch_all(query!("calendars/calendar_named", tenant.raw(), names)).await?;
    Ok(known(&tx.unreadable, tx.unreadable.each("calendar_versions", &found, rows::calendar_version)))
}

/// Attaches to jobs the calendars that they use, from the same snapshot.
pub(super) async fn attach_all(tx: &mut DbTx, jobs: &mut [JobRow]) -> Result<()> {
    for (tenant, names) in named(jobs.iter().map(|row| &row.job)) {
        let known = of_tenant(tx, tenant, &names).await?;
        jobs.iter_mut().filter(|row| row.job.tenant == tenant).for_each(|row| attach(&mut row.job, &known));
    }
    Ok(())
}

/// Attaches to a deleted job those of its calendars that still exist.
pub(super) async fn attach_existing(tx: &mut DbTx, row: &mut JobRow) -> Result<()> {
    let known = of_tenant(tx, row.job.tenant, row.job.spec.exclude()).await?;
    let exclusion = Exclusion::new(known.into_values().collect());
    row.job.schedule = row.job.schedule.take().map(|schedule| schedule.excluding(exclusion));
    Ok(())
}

/// Stores which calendars new jobs use.
pub(super) async fn used<'a>(
    write: &mut DbTx,
    tenant: TenantId,
    jobs: impl Iterator<Item = (JobId, &'a JobSpec)>,
) -> Result<()> {
    let (ids, names): (Vec<_>, Vec<_>) =
        jobs.flat_map(|(job, spec)| spec.exclude().iter().map(move |name| (job.uuid(), name.clone()))).unzip();
    if ids.is_empty() {
        return Ok(());
    }
    write.execute(query!("calendars/calendar_use", tenant.raw(), ids, names)).await?;
    Ok(())
}

/// Stores which calendars a job uses now, if that has changed.
pub(super) async fn used_now(write: &mut DbTx, was: &JobRow, job: &everytick_domain::job::Job) -> Result<()> {
    let none: &[String] = &[];
    let names = if job.deleted_at.is_some() { none } else { job.spec.exclude() };
    if names == was.job.spec.exclude() {
        return Ok(());
    }
    write.execute(query!("calendars/calendar_unuse", job.id.uuid())).await?;
    if job.deleted_at.is_some() {
        return Ok(());
    }
    used(write, job.tenant, std::iter::once((job.id, &*job.spec))).await
}
