//! Calendars: their versions, and the jobs that use them. A new version locks and raises the epochs of those jobs in
//! its transaction, and reads the clock in between, so that no tick planned under the old version is recorded after it.

use async_trait::async_trait;
use everytick_domain::{
    calendar::CalendarSpec,
    ids::{JobId, TenantId, Version},
    time::DbTime,
};

use super::{JobLock, Tx, audit_one, tenant::check_quota};
use crate::{
    Actor, CalendarPut, CalendarRecord, PutCalendar, Result, StoreError,
    calendars::{JOBS_NAMED_MAX, detail, subject},
};

/// The verbs of calendars.
#[async_trait]
pub trait CalendarTx: Tx {
    async fn find_calendar(&mut self, tenant: TenantId, name: &str) -> Result<Option<CalendarRecord>>;
    async fn count_calendars(&mut self, tenant: TenantId) -> Result<u64>;
    /// The live jobs that use a calendar, by id.
    async fn calendar_users(&mut self, tenant: TenantId, name: &str) -> Result<Vec<(JobId, String)>>;
    /// Inserts a version, valid for ticks after `effective_at`, and removes the versions that are no longer kept.
    async fn put_version(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        version: Version,
        effective_at: DbTime,
        spec: &CalendarSpec,
    ) -> Result<()>;
    /// Raises the epochs of jobs, as [`Tx::raise_epoch`] does.
    async fn raise_epochs(&mut self, jobs: &[JobId]) -> Result<()>;
    /// Removes a calendar with all its versions.
    async fn remove_calendar(&mut self, tenant: TenantId, name: &str) -> Result<()>;
}

pub async fn put_calendar<T: CalendarTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    put: PutCalendar,
) -> Result<CalendarPut> {
    tx.lock_calendar(tenant, &put.name).await?;
    let was = tx.find_calendar(tenant, &put.name).await?;
    let mut quota = None;
    if was.is_none() {
        // No job uses it, so there are no epochs to lock first. The tenant's lock serializes the creation of calendars.
        quota = tx.lock_tenant(tenant).await?.quotas(tx.limits()).calendars;
        if tx.find_calendar(tenant, &put.name).await?.is_some() {
            let source = "another process has just created it".into();
            return Err(StoreError::Failed { doing: tx.doing(), source });
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
        check_quota("calendars", tx.count_calendars(tenant).await?, quota)?;
    }
    let users: Vec<JobId> = tx.calendar_users(tenant, &put.name).await?.into_iter().map(|(job, _)| job).collect();
    tx.lock_jobs(&users, JobLock::All).await?;
    let now = tx.read_clock().await?;
    // A clock that was set back must not put versions out of order.
    let effective_at = was.as_ref().map_or(now, |was| was.updated_at.max(now));
    let version = has.next();
    tx.put_version(tenant, actor, &put.name, version, effective_at, &put.spec).await?;
    if !users.is_empty() {
        tx.raise_epochs(&users).await?;
        tx.notify_owners().await?;
    }
    let (subject, detail) = (subject(&put.name), detail(version, effective_at));
    audit_one(tx, tenant, actor, "set_calendar", subject, detail).await?;
    let calendar = tx.find_calendar(tenant, &put.name).await?.ok_or(StoreError::NotFound("calendar"))?;
    Ok(CalendarPut { calendar, made: was.is_none(), effective_at: Some(effective_at) })
}

pub async fn delete_calendar<T: CalendarTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    name: &str,
    if_match: Option<Version>,
) -> Result<CalendarRecord> {
    tx.lock_calendar(tenant, name).await?;
    let was = tx.find_calendar(tenant, name).await?.ok_or(StoreError::NotFound("calendar"))?;
    if let Some(wanted) = if_match.filter(|wanted| *wanted != was.version) {
        return Err(StoreError::VersionMismatch { has: was.version, wanted });
    }
    let users = tx.calendar_users(tenant, name).await?;
    if !users.is_empty() {
        let count = users.len();
        let by = users.into_iter().take(JOBS_NAMED_MAX).map(|(_, name)| name).collect();
        return Err(StoreError::InUse { what: "calendar", by, count });
    }
    let now = tx.read_clock().await?;
    tx.remove_calendar(tenant, name).await?;
    audit_one(tx, tenant, actor, "delete_calendar", subject(name), detail(was.version, now)).await?;
    Ok(was)
}

pub async fn get_calendar<T: CalendarTx + ?Sized>(tx: &mut T, tenant: TenantId, name: &str) -> Result<CalendarRecord> {
    tx.find_calendar(tenant, name).await?.ok_or(StoreError::NotFound("calendar"))
}
