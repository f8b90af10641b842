//! The verbs of calendars, and the calendars of jobs. The transactions that use them are in `crate::tx::calendar`.

use std::sync::Arc;

use async_trait::async_trait;
use everytick_domain::{
    calendar::{CALENDAR_VERSIONS_KEPT, Calendar, CalendarSpec, Exclusion},
    ids::{JobId, TenantId, Version},
    job::JobSpec,
    time::DbTime,
};
use sqlx::{PgConnection, Row as _};

use super::{Failed, PostgresStore, Write, read, rows, sql};
use crate::{
    Actor, CalendarRecord, Page, Result, StoreError,
    calendars::{Known, attach, known, named},
    tx::{JobRow, calendar::CalendarTx},
    unreadable::Unreadable,
};

#[async_trait]
impl CalendarTx for Write {
    async fn find_calendar(&mut self, tenant: TenantId, name: &str) -> Result<Option<CalendarRecord>> {
        let found = sqlx::query(sql!("calendars/calendar_get")).bind(tenant.raw()).bind(name);
        let found = found.fetch_optional(&mut *self.tx).await.failed(self.doing)?;
        found.as_ref().map(rows::calendar).transpose().failed(self.doing)
    }
    async fn lock_calendar(&mut self, tenant: TenantId, name: &str) -> Result<()> {
        let lock = sqlx::query(sql!("calendars/lock_calendar")).bind(tenant.raw()).bind(name);
        lock.execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn count_calendars(&mut self, tenant: TenantId) -> Result<u64> {
        let count = sqlx::query_scalar(sql!("calendars/calendar_count")).bind(tenant.raw());
        Ok(count.fetch_one(&mut *self.tx).await.map(i64::unsigned_abs).failed(self.doing)?)
    }
    async fn calendar_users(&mut self, tenant: TenantId, name: &str) -> Result<Vec<(JobId, String)>> {
        let found = sqlx::query(sql!("calendars/calendar_users")).bind(tenant.raw()).bind(name);
        let found = found.fetch_all(&mut *self.tx).await.failed(self.doing)?;
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
        let set = sqlx::query(sql!("calendars/calendar_set")).bind(tenant.raw()).bind(name).bind(version.raw());
        let set = set.bind(effective_at.millis()).bind(&*rows::text(&actor.0));
        set.execute(&mut *self.tx).await.failed_or_refused(doing)?;
        let add = sqlx::query(sql!("calendars/calendar_add_version")).bind(tenant.raw()).bind(name).bind(version.raw());
        let add = add.bind(effective_at.millis()).bind(spec);
        add.execute(&mut *self.tx).await.failed_or_refused(doing)?;
        let forget = sqlx::query(sql!("calendars/calendar_forget_versions")).bind(tenant.raw()).bind(name);
        let forget = forget.bind(version.raw() - rows::limit(CALENDAR_VERSIONS_KEPT));
        forget.execute(&mut *self.tx).await.failed(doing)?;
        Ok(())
    }
    async fn raise_epochs(&mut self, jobs: &[JobId]) -> Result<()> {
        let raise = sqlx::query(sql!("epochs/raise_epochs")).bind(rows::job_ids(jobs.iter().copied()));
        raise.bind(self.now.millis()).execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn remove_calendar(&mut self, tenant: TenantId, name: &str) -> Result<()> {
        let forget =
            sqlx::query(sql!("calendars/calendar_forget_versions")).bind(tenant.raw()).bind(name).bind(i64::MAX);
        forget.execute(&mut *self.tx).await.failed(self.doing)?;
        let forget = sqlx::query(sql!("calendars/calendar_forget")).bind(tenant.raw()).bind(name);
        forget.execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
}

/// Locks the named calendars against changes, and returns those that exist.
pub(super) async fn lock(write: &mut Write, tenant: TenantId, names: &[String]) -> Result<Known> {
    if names.is_empty() {
        return Ok(Known::new());
    }
    let doing = write.doing;
    sqlx::query(sql!("calendars/lock_calendars"))
        .bind(tenant.raw())
        .bind(names)
        .execute(&mut *write.tx)
        .await
        .failed(doing)?;
    of_tenant(&mut write.tx, &write.unreadable, tenant, names, doing).await
}

pub(super) async fn list_calendars(
    store: &PostgresStore,
    tenant: TenantId,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<CalendarRecord, String>> {
    const DOING: &str = "list calendars";
    let mut read = store.read(DOING).await?;
    let found = sqlx::query(read::ended_by_bytes(sql!("calendars/calendar_list"), "name", "spec"))
        .bind(tenant.raw())
        .bind(after.unwrap_or_default())
        .bind(rows::limit(limit.saturating_add(1)))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let (found, more) = read::page(found, limit).failed(DOING)?;
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
    Ok(of_tenant(&mut read, &store.unreadable, tenant, names, DOING).await?.into_values().collect())
}

/// Those of the named calendars that exist.
pub(super) async fn of_tenant(
    connection: &mut PgConnection,
    unreadable: &Unreadable,
    tenant: TenantId,
    names: &[String],
    doing: &'static str,
) -> Result<Known> {
    if names.is_empty() {
        return Ok(Known::new());
    }
    let found = sqlx::query(sql!("calendars/calendar_named"))
        .bind(tenant.raw())
        .bind(names)
        .fetch_all(connection)
        .await
        .failed(doing)?;
    Ok(known(unreadable, unreadable.each("calendar_versions", &found, rows::calendar_version)))
}

/// Attaches to jobs the calendars that they use, from the same snapshot.
pub(super) async fn give(
    connection: &mut PgConnection,
    unreadable: &Unreadable,
    jobs: &mut [JobRow],
    doing: &'static str,
) -> Result<()> {
    for (tenant, names) in named(jobs.iter().map(|row| &row.job)) {
        let known = of_tenant(connection, unreadable, tenant, &names, doing).await?;
        jobs.iter_mut().filter(|row| row.job.tenant == tenant).for_each(|row| attach(&mut row.job, &known));
    }
    Ok(())
}

/// Attaches to a deleted job those of its calendars that still exist.
pub(super) async fn give_what_there_is(
    connection: &mut PgConnection,
    unreadable: &Unreadable,
    row: &mut JobRow,
    doing: &'static str,
) -> Result<()> {
    let known = of_tenant(connection, unreadable, row.job.tenant, row.job.spec.exclude(), doing).await?;
    let exclusion = Exclusion::new(known.into_values().collect());
    row.job.schedule = row.job.schedule.take().map(|schedule| schedule.excluding(exclusion));
    Ok(())
}

/// Stores which calendars new jobs use.
pub(super) async fn used<'a>(
    write: &mut Write,
    tenant: TenantId,
    jobs: impl Iterator<Item = (JobId, &'a JobSpec)>,
) -> Result<()> {
    let (ids, names): (Vec<_>, Vec<_>) =
        jobs.flat_map(|(job, spec)| spec.exclude().iter().map(move |name| (job.uuid(), name.clone()))).unzip();
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query(sql!("calendars/calendar_use"))
        .bind(tenant.raw())
        .bind(ids)
        .bind(names)
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(())
}

/// Stores which calendars a job uses now, if that has changed.
pub(super) async fn used_now(write: &mut Write, was: &JobRow, job: &everytick_domain::job::Job) -> Result<()> {
    let none: &[String] = &[];
    let names = if job.deleted_at.is_some() { none } else { job.spec.exclude() };
    if names == was.job.spec.exclude() {
        return Ok(());
    }
    sqlx::query(sql!("calendars/calendar_unuse"))
        .bind(job.id.uuid())
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    if job.deleted_at.is_some() {
        return Ok(());
    }
    used(write, job.tenant, std::iter::once((job.id, &*job.spec))).await
}
