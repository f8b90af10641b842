//! Calendars: their versions, and the jobs that use them. A new version locks and raises the epochs of those jobs in
//! its transaction, and reads the clock in between, so that no tick planned under the old version is recorded after it.
//! Lock order: calendars, epochs, tenants.

use std::sync::Arc;

use everytick_domain::{
    calendar::{CALENDAR_VERSIONS_KEPT, Calendar, CalendarSpec, Exclusion},
    ids::{JobId, TenantId, Version},
    invalid::Invalid,
    job::JobSpec,
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::{Failed, PostgresStore, Write, range, read, rows, sql};
use crate::tx::{JobRow, Tx as _};
use crate::{
    Actor, CalendarPut, CalendarRecord, Page, PutCalendar, Result, StoreError,
    calendars::{JOBS_NAMED_MAX, Known, VersionRow, attach, detail, known, named, subject},
    unreadable::Unreadable,
};

pub(super) async fn put_calendar(
    store: &PostgresStore,
    tenant: TenantId,
    actor: &Actor,
    put: PutCalendar,
) -> Result<CalendarPut> {
    let mut write = store.write("write the calendar").await?;
    let done = put_in(&mut write, store.limits.calendars_per_tenant_max, tenant, actor, put).await;
    write.finish(done).await
}

async fn put_in(
    write: &mut Write,
    calendars_max: u64,
    tenant: TenantId,
    actor: &Actor,
    put: PutCalendar,
) -> Result<CalendarPut> {
    let doing = write.doing;
    let mut was = held(write, tenant, &put.name).await?;
    if was.is_none() {
        // No job uses it, so there are no epochs to lock first. The tenant's lock serializes the creation of calendars.
        sqlx::query(sql!("add_tenant")).bind(tenant.raw()).execute(&mut *write.tx).await.failed(doing)?;
        sqlx::query(sql!("tenant_held")).bind(tenant.raw()).execute(&mut *write.tx).await.failed(doing)?;
        was = find(&mut write.tx, tenant, &put.name, doing).await?;
        if was.is_some() {
            let source = "another process has just created it".into();
            return Err(StoreError::Failed { doing, source });
        }
    }
    let has = was.as_ref().map_or_else(Version::default, |was| was.version);
    if let Some(wanted) = put.if_match.filter(|wanted| *wanted != has) {
        return Err(StoreError::VersionMismatch { has, wanted });
    }
    if let Some(calendar) = was.as_ref().filter(|was| was.spec == put.spec) {
        return Ok(CalendarPut { calendar: calendar.clone(), made: false, effective_at: None });
    }
    if was.is_none() {
        let count: i64 = sqlx::query_scalar(sql!("calendar_count"))
            .bind(tenant.raw())
            .fetch_one(&mut *write.tx)
            .await
            .failed(doing)?;
        if count.unsigned_abs() >= calendars_max {
            return Err(full(calendars_max));
        }
    }
    let users = rows::job_ids(users(write, tenant, &put.name).await?.into_iter().map(|(job, _)| job));
    sqlx::query(sql!("epochs_held")).bind(&users).execute(&mut *write.tx).await.failed(doing)?;
    let now = write.read_clock().await?;
    // A clock that was set back must not put versions out of order.
    let x = was.as_ref().map_or(now, |was| was.updated_at.max(now));
    let version = has.next();
    let spec = serde_json::to_string(&put.spec).map_err(|error| StoreError::Refused { doing, source: error.into() })?;
    sqlx::query(sql!("calendar_set"))
        .bind(tenant.raw())
        .bind(&put.name)
        .bind(version.raw())
        .bind(x.millis())
        .bind(&*rows::text(&actor.0))
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(doing)?;
    sqlx::query(sql!("calendar_add_version"))
        .bind(tenant.raw())
        .bind(&put.name)
        .bind(version.raw())
        .bind(x.millis())
        .bind(spec)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(doing)?;
    sqlx::query(sql!("calendar_forget_versions"))
        .bind(tenant.raw())
        .bind(&put.name)
        .bind(version.raw() - rows::limit(CALENDAR_VERSIONS_KEPT))
        .execute(&mut *write.tx)
        .await
        .failed(doing)?;
    if !users.is_empty() {
        sqlx::query(sql!("raise_epochs"))
            .bind(&users)
            .bind(now.millis())
            .execute(&mut *write.tx)
            .await
            .failed(doing)?;
        range::notify(write).await?;
    }
    write.audit(tenant, actor, "set_calendar", &[(subject(&put.name), detail(version, x))]).await?;
    let calendar = find(&mut write.tx, tenant, &put.name, doing).await?.ok_or(StoreError::NotFound("calendar"))?;
    Ok(CalendarPut { calendar, made: was.is_none(), effective_at: Some(x) })
}

/// Locks a calendar. Then, in the next statement, reads it.
async fn held(write: &mut Write, tenant: TenantId, name: &str) -> Result<Option<CalendarRecord>> {
    sqlx::query(sql!("calendar_held"))
        .bind(tenant.raw())
        .bind(name)
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    find(&mut write.tx, tenant, name, write.doing).await
}

/// Locks the named calendars against changes, and returns those that exist.
pub(super) async fn hold(write: &mut Write, tenant: TenantId, names: &[String]) -> Result<Known> {
    if names.is_empty() {
        return Ok(Known::new());
    }
    let doing = write.doing;
    sqlx::query(sql!("calendars_held")).bind(tenant.raw()).bind(names).execute(&mut *write.tx).await.failed(doing)?;
    of_tenant(&mut write.tx, &write.unreadable, tenant, names, doing).await
}

fn full(max: u64) -> StoreError {
    StoreError::Invalid(vec![Invalid::new("name", format!("the tenant has {max} calendars, which is its quota"))])
}

pub(super) async fn delete_calendar(
    store: &PostgresStore,
    tenant: TenantId,
    actor: &Actor,
    name: &str,
    if_match: Option<Version>,
) -> Result<CalendarRecord> {
    let mut write = store.write("delete the calendar").await?;
    let done = delete_in(&mut write, tenant, actor, name, if_match).await;
    write.finish(done).await
}

async fn delete_in(
    write: &mut Write,
    tenant: TenantId,
    actor: &Actor,
    name: &str,
    if_match: Option<Version>,
) -> Result<CalendarRecord> {
    let doing = write.doing;
    let was = held(write, tenant, name).await?.ok_or(StoreError::NotFound("calendar"))?;
    if let Some(wanted) = if_match.filter(|wanted| *wanted != was.version) {
        return Err(StoreError::VersionMismatch { has: was.version, wanted });
    }
    let users = users(write, tenant, name).await?;
    if !users.is_empty() {
        let count = users.len();
        let by = users.into_iter().take(JOBS_NAMED_MAX).map(|(_, name)| name).collect();
        return Err(StoreError::InUse { what: "calendar", by, count });
    }
    let now = write.read_clock().await?;
    sqlx::query(sql!("calendar_forget_versions"))
        .bind(tenant.raw())
        .bind(name)
        .bind(i64::MAX)
        .execute(&mut *write.tx)
        .await
        .failed(doing)?;
    sqlx::query(sql!("calendar_forget")).bind(tenant.raw()).bind(name).execute(&mut *write.tx).await.failed(doing)?;
    write.audit(tenant, actor, "delete_calendar", &[(subject(name), detail(was.version, now))]).await?;
    Ok(was)
}

pub(super) async fn get_calendar(store: &PostgresStore, tenant: TenantId, name: &str) -> Result<CalendarRecord> {
    const DOING: &str = "read the calendar";
    let mut read = store.read(DOING).await?;
    find(&mut read, tenant, name, DOING).await?.ok_or(StoreError::NotFound("calendar"))
}

pub(super) async fn list_calendars(
    store: &PostgresStore,
    tenant: TenantId,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<CalendarRecord, String>> {
    const DOING: &str = "list calendars";
    let mut read = store.read(DOING).await?;
    let found = sqlx::query(read::ended_by_bytes(sql!("calendar_list"), "name", "spec"))
        .bind(tenant.raw())
        .bind(after.unwrap_or_default())
        .bind(rows::limit(limit.saturating_add(1)))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let (found, more) = read::page(found, limit).failed(DOING)?;
    // Set even if the last row cannot be decoded.
    let next = found.last().filter(|_| more).map(|row| row.try_get("name")).transpose().failed(DOING)?;
    let items = store.unreadable.each("calendar_versions", &found, record);
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

async fn find(
    connection: &mut PgConnection,
    tenant: TenantId,
    name: &str,
    doing: &'static str,
) -> Result<Option<CalendarRecord>> {
    let found = sqlx::query(sql!("calendar_get"))
        .bind(tenant.raw())
        .bind(name)
        .fetch_optional(connection)
        .await
        .failed(doing)?;
    found.as_ref().map(record).transpose().failed(doing)
}

fn record(row: &PgRow) -> std::result::Result<CalendarRecord, sqlx::Error> {
    let spec: CalendarSpec =
        serde_json::from_str(row.try_get("spec")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(CalendarRecord {
        name: row.try_get("name")?,
        version: Version::from_raw(row.try_get("version")?),
        created_at: rows::at(row, "created_at")?,
        created_by: row.try_get("created_by")?,
        updated_at: rows::at(row, "updated_at")?,
        spec,
        jobs: row.try_get::<i64, _>("jobs")?.unsigned_abs(),
    })
}

async fn users(write: &mut Write, tenant: TenantId, name: &str) -> Result<Vec<(JobId, String)>> {
    let found = sqlx::query(sql!("calendar_users"))
        .bind(tenant.raw())
        .bind(name)
        .fetch_all(&mut *write.tx)
        .await
        .failed(write.doing)?;
    let user = |row: &PgRow| Ok((rows::job_id(row, "job")?, row.try_get("name")?));
    found.iter().map(user).collect::<std::result::Result<_, sqlx::Error>>().failed(write.doing)
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
    let found =
        sqlx::query(sql!("calendar_named")).bind(tenant.raw()).bind(names).fetch_all(connection).await.failed(doing)?;
    let version = |row: &PgRow| {
        Ok(VersionRow {
            tenant: rows::tenant(row)?,
            name: row.try_get("name")?,
            version: Version::from_raw(row.try_get("version")?),
            valid_from: rows::at(row, "valid_from")?,
            spec: row.try_get("spec")?,
        })
    };
    Ok(known(unreadable, unreadable.each("calendar_versions", &found, version)))
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
    sqlx::query(sql!("calendar_use"))
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
    sqlx::query(sql!("calendar_unuse")).bind(job.id.uuid()).execute(&mut *write.tx).await.failed(write.doing)?;
    if job.deleted_at.is_some() {
        return Ok(());
    }
    used(write, job.tenant, std::iter::once((job.id, &*job.spec))).await
}
