//! The verbs of calendars, and the calendars of jobs. The transactions that use them are in `crate::tx::calendar`.

use std::sync::Arc;

use async_trait::async_trait;
use everytick_domain::{
    calendar::{CALENDAR_VERSIONS_KEPT, Calendar, CalendarSpec, Exclusion},
    ids::{JobId, TenantId, Version},
    job::{Job, JobSpec},
    time::DbTime,
};
use sqlx::Row as _;

use super::{DbStore, DbTx, Failed, page, rows, verbs};
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
    async fn count_calendars(&mut self, tenant: TenantId) -> Result<u64> {
        self.scalar(query!("calendars/calendar_count", tenant.raw())).await.map(i64::unsigned_abs)
    }
    async fn calendar_users(&mut self, tenant: TenantId, name: &str) -> Result<Vec<(JobId, String)>> {
        self.fetch_decoded(query!("calendars/calendar_users", tenant.raw(), name), rows::named_job).await
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
        let (tenant, number, from) = (tenant.raw(), version.raw(), effective_at.millis());
        let set = query!("calendars/calendar_set", tenant, name, number, from, rows::text(&actor.name));
        self.execute_or_refuse(set).await?;
        let add = query!("calendars/calendar_add_version", tenant, name, number, from, spec);
        self.execute_or_refuse(add).await?;
        let oldest_kept = number - rows::limit(CALENDAR_VERSIONS_KEPT);
        self.execute(query!("calendars/calendar_forget_versions", tenant, name, oldest_kept)).await?;
        Ok(())
    }
    async fn raise_epochs(&mut self, jobs: &[JobId]) -> Result<()> {
        verbs::raise_epochs(self, jobs).await
    }
    async fn remove_calendar(&mut self, tenant: TenantId, name: &str) -> Result<()> {
        self.execute(query!("calendars/calendar_forget_versions", tenant.raw(), name, i64::MAX)).await?;
        self.execute(query!("calendars/calendar_forget", tenant.raw(), name)).await?;
        Ok(())
    }
}

pub(super) async fn list_calendars(
    store: &DbStore,
    tenant: TenantId,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<CalendarRecord, String>> {
    let mut read = store.of(tenant).read("list calendars").await?;
    let list = page::list(sql!("calendars/calendar_list"), "name", "spec").bind(tenant.raw());
    let list = list.bind(after.unwrap_or_default()).bind(rows::limit(limit.saturating_add(1)));
    let (found, more) = page::fetch(&mut read, list, limit, "spec").await?;
    // The position of the next page, even if the last row cannot be decoded.
    let next = found.last().filter(|_| more).map(|row| row.try_get("name")).transpose().failed(read.doing)?;
    Ok(Page { items: store.unreadable.each("calendar_versions", &found, rows::calendar), next })
}

pub(super) async fn load_calendars(store: &DbStore, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
    let mut read = store.of(tenant).read("load calendars").await?;
    Ok(of_tenant(&mut read, tenant, names).await?.into_values().collect())
}

/// Those of the named calendars that exist.
pub(super) async fn of_tenant(tx: &mut DbTx, tenant: TenantId, names: &[String]) -> Result<Known> {
    if names.is_empty() {
        return Ok(Known::new());
    }
    let found = tx.fetch_all(query!("calendars/calendar_named", tenant.raw(), rows::names(names))).await?;
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
    tx: &mut DbTx,
    tenant: TenantId,
    jobs: impl Iterator<Item = (JobId, &'a JobSpec)>,
) -> Result<()> {
    let of_job = |(job, spec): (JobId, &'a JobSpec)| spec.exclude().iter().map(move |name| (job, name.as_str()));
    let uses: Vec<(JobId, &str)> = jobs.flat_map(of_job).collect();
    if uses.is_empty() { Ok(()) } else { verbs::insert_calendar_uses(tx, tenant, &uses).await }
}

/// Stores which calendars a job uses now, if that has changed.
pub(super) async fn used_now(tx: &mut DbTx, was: &JobRow, job: &Job) -> Result<()> {
    let names = if job.deleted_at.is_some() { &[] } else { job.spec.exclude() };
    if names == was.job.spec.exclude() {
        return Ok(());
    }
    tx.execute(query!("calendars/calendar_unuse", job.id.uuid())).await?;
    if job.deleted_at.is_some() {
        return Ok(());
    }
    used(tx, job.tenant, std::iter::once((job.id, &*job.spec))).await
}
