//! Calendars: their versions, and the jobs that use them. A new version raises the epochs of those jobs in its
//! transaction, so that no tick planned under the old version is recorded after it.

use std::sync::Arc;

use everytick_domain::{
    calendar::{CALENDAR_VERSIONS_KEPT, Calendar, CalendarSpec, Exclusion},
    ids::{JobId, TenantId, Version},
    invalid::Invalid,
    job::JobSpec,
};
use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};

use super::{Failed, SqliteStore, Write, range, read, rows, rows::Hex, sql};
use crate::tx::{JobRow, Tx as _};
use crate::unreadable::Unreadable;
use crate::{
    Actor, CalendarPut, CalendarRecord, Page, PutCalendar, Result, StoreError,
    calendars::{JOBS_NAMED_MAX, Known, VersionRow, attach, detail, known, named, subject},
};

pub(super) async fn put_calendar(
    store: &SqliteStore,
    tenant: TenantId,
    actor: &Actor,
    put: PutCalendar,
) -> Result<CalendarPut> {
    const DOING: &str = "write the calendar";
    let mut write = store.write(DOING).await?;
    let was = find(&mut write.tx, tenant, &put.name, DOING).await?;
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
            .failed(DOING)?;
        if count.unsigned_abs() >= store.limits.calendars_per_tenant_max {
            return Err(full(store.limits.calendars_per_tenant_max));
        }
    }
    // A clock that was set back must not put versions out of order.
    let x = was.as_ref().map_or(write.now, |was| was.updated_at.max(write.now));
    let version = has.next();
    let spec =
        serde_json::to_string(&put.spec).map_err(|error| StoreError::Refused { doing: DOING, source: error.into() })?;
    sqlx::query(sql!("calendar_set"))
        .bind(tenant.raw())
        .bind(&put.name)
        .bind(version.raw())
        .bind(x.millis())
        .bind(&actor.0)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    sqlx::query(sql!("calendar_add_version"))
        .bind(tenant.raw())
        .bind(&put.name)
        .bind(version.raw())
        .bind(x.millis())
        .bind(spec)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    sqlx::query(sql!("calendar_forget_versions"))
        .bind(tenant.raw())
        .bind(&put.name)
        .bind(version.raw() - rows::limit(CALENDAR_VERSIONS_KEPT))
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    let users = users(&mut write, tenant, &put.name).await?;
    if !users.is_empty() {
        let before = range::next_change(&mut write, users.len()).await? - rows::limit(users.len());
        sqlx::query(sql!("calendar_raise_epochs"))
            .bind(rows::job_ids(users.iter().map(|(job, _)| *job)).failed(DOING)?)
            .bind(before)
            .bind(write.now.millis())
            .execute(&mut *write.tx)
            .await
            .failed(DOING)?;
    }
    write.audit(tenant, actor, "set_calendar", &[(subject(&put.name), detail(version, x))]).await?;
    let calendar = find(&mut write.tx, tenant, &put.name, DOING).await?.ok_or(StoreError::NotFound("calendar"))?;
    write.commit().await?;
    Ok(CalendarPut { calendar, made: was.is_none(), effective_at: Some(x) })
}

fn full(max: u64) -> StoreError {
    StoreError::Invalid(vec![Invalid::new("name", format!("the tenant has {max} calendars, which is its quota"))])
}

pub(super) async fn delete_calendar(
    store: &SqliteStore,
    tenant: TenantId,
    actor: &Actor,
    name: &str,
    if_match: Option<Version>,
) -> Result<CalendarRecord> {
    const DOING: &str = "delete the calendar";
    let mut write = store.write(DOING).await?;
    let was = find(&mut write.tx, tenant, name, DOING).await?.ok_or(StoreError::NotFound("calendar"))?;
    if let Some(wanted) = if_match.filter(|wanted| *wanted != was.version) {
        return Err(StoreError::VersionMismatch { has: was.version, wanted });
    }
    let users = users(&mut write, tenant, name).await?;
    if !users.is_empty() {
        let count = users.len();
        let by = users.into_iter().take(JOBS_NAMED_MAX).map(|(_, name)| name).collect();
        return Err(StoreError::InUse { what: "calendar", by, count });
    }
    sqlx::query(sql!("calendar_forget_versions"))
        .bind(tenant.raw())
        .bind(name)
        .bind(i64::MAX)
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    sqlx::query(sql!("calendar_forget")).bind(tenant.raw()).bind(name).execute(&mut *write.tx).await.failed(DOING)?;
    let told = detail(was.version, write.now);
    write.audit(tenant, actor, "delete_calendar", &[(subject(name), told)]).await?;
    write.commit().await?;
    Ok(was)
}

pub(super) async fn get_calendar(store: &SqliteStore, tenant: TenantId, name: &str) -> Result<CalendarRecord> {
    const DOING: &str = "read the calendar";
    let mut read = store.read(DOING).await?;
    find(&mut read, tenant, name, DOING).await?.ok_or(StoreError::NotFound("calendar"))
}

pub(super) async fn list_calendars(
    store: &SqliteStore,
    tenant: TenantId,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<CalendarRecord, String>> {
    const DOING: &str = "list calendars";
    let mut read = store.read(DOING).await?;
    let list = sqlx::query(sql!("calendar_list"))
        .bind(tenant.raw())
        .bind(after.unwrap_or_default())
        .bind(rows::limit(limit.saturating_add(1)));
    let (found, more) = read::page(list.fetch(&mut *read), limit, "spec").await.failed(DOING)?;
    // Set even if the last row cannot be decoded.
    let next = found.last().filter(|_| more).map(|row| row.try_get("name")).transpose().failed(DOING)?;
    let items = store.unreadable.each("calendar_versions", &found, record);
    Ok(Page { items, next })
}

pub(super) async fn load_calendars(
    store: &SqliteStore,
    tenant: TenantId,
    names: &[String],
) -> Result<Vec<Arc<Calendar>>> {
    const DOING: &str = "load calendars";
    let mut read = store.read(DOING).await?;
    Ok(of_tenant(&mut read, &store.unreadable, tenant, names, DOING).await?.into_values().collect())
}

async fn find(
    connection: &mut SqliteConnection,
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

fn record(row: &SqliteRow) -> std::result::Result<CalendarRecord, sqlx::Error> {
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
    let user = |row: &SqliteRow| Ok((rows::job_id(row, "job")?, row.try_get("name")?));
    found.iter().map(user).collect::<std::result::Result<_, sqlx::Error>>().failed(write.doing)
}

/// Those of the named calendars that exist.
pub(super) async fn of_tenant(
    connection: &mut SqliteConnection,
    unreadable: &Unreadable,
    tenant: TenantId,
    names: &[String],
    doing: &'static str,
) -> Result<Known> {
    if names.is_empty() {
        return Ok(Known::new());
    }
    let found = sqlx::query(sql!("calendar_named"))
        .bind(tenant.raw())
        .bind(rows::json(&names).failed(doing)?)
        .fetch_all(connection)
        .await
        .failed(doing)?;
    let version = |row: &SqliteRow| {
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
    connection: &mut SqliteConnection,
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
    connection: &mut SqliteConnection,
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
    let uses: Vec<(Hex, &String)> =
        jobs.flat_map(|(job, spec)| spec.exclude().iter().map(move |name| (Hex(job.uuid()), name))).collect();
    if uses.is_empty() {
        return Ok(());
    }
    sqlx::query(sql!("calendar_use"))
        .bind(tenant.raw())
        .bind(rows::json(&uses).failed(write.doing)?)
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
