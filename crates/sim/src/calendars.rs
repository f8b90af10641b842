//! Calendars on maps: their versions, and the jobs that name them.

use std::sync::Arc;

use everytick_domain::{
    calendar::{CALENDAR_VERSIONS_KEPT, Calendar, CalendarSpec, CalendarVersion},
    ids::{JobId, TenantId, Version},
    invalid::Invalid,
    job,
    mutant::Mutant,
    time::DbTime,
};

use super::db::{Db, Entry};
use everytick_store::{
    Actor, CalendarPut, CalendarRecord, Page, PutCalendar, Result, StoreError,
    shared::{
        CRONS,
        calendars::{JOBS_NAMED_MAX, detail, subject},
    },
};

#[derive(Clone, Debug)]
pub(super) struct CalendarRow {
    version: Version,
    created_at: DbTime,
    created_by: String,
    /// Oldest first. A version applies to ticks after its instant.
    versions: Vec<(Version, DbTime, CalendarSpec)>,
}

impl CalendarRow {
    fn newest(&self) -> Option<&(Version, DbTime, CalendarSpec)> {
        self.versions.last()
    }
}

impl Db {
    fn calendar(&self, tenant: TenantId, name: &str) -> Option<CalendarRecord> {
        let row = self.calendars.get(&(tenant, name.to_owned()))?;
        let (version, updated_at, spec) = row.newest()?.clone();
        Some(CalendarRecord {
            name: name.to_owned(),
            version,
            created_at: row.created_at,
            created_by: row.created_by.clone(),
            updated_at,
            spec,
            jobs: self.calendar_users(tenant, name).len() as u64,
        })
    }

    fn calendar_users(&self, tenant: TenantId, name: &str) -> Vec<(JobId, String)> {
        let names = |job: &&super::db::JobRow| {
            job.job.tenant == tenant
                && job.job.deleted_at.is_none()
                && job.job.spec.exclude().iter().any(|named| named == name)
        };
        self.jobs.values().filter(names).map(|row| (row.job.id, row.job.spec.name.clone())).collect()
    }

    pub(super) fn calendars_named(&self, tenant: TenantId, names: &[String]) -> Vec<Arc<Calendar>> {
        let calendar = |name: &String| {
            let row = self.calendars.get(&(tenant, name.clone()))?;
            let held = row
                .versions
                .iter()
                .filter_map(|(version, from, spec)| CalendarVersion::new(*version, *from, spec).ok());
            Calendar::new(name, held.collect()).map(Arc::new)
        };
        names.iter().filter_map(calendar).collect()
    }

    pub(super) fn put_calendar(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        put: PutCalendar,
        now: DbTime,
    ) -> Result<CalendarPut> {
        let was = self.calendar(tenant, &put.name);
        let has = was.as_ref().map_or_else(Version::default, |was| was.version);
        if let Some(wanted) = put.if_match.filter(|wanted| *wanted != has) {
            return Err(StoreError::VersionMismatch { has, wanted });
        }
        if let Some(calendar) = was.as_ref().filter(|was| was.spec == put.spec) {
            return Ok(CalendarPut { calendar: calendar.clone(), made: false, effective_at: None });
        }
        let max = self.limits.calendars_per_tenant_max;
        if was.is_none() && self.calendars.keys().filter(|(owner, _)| *owner == tenant).count() as u64 >= max {
            let message = format!("the tenant has {max} calendars, as many as it may have");
            return Err(StoreError::Invalid(vec![Invalid::new("name", message)]));
        }
        let x = was.as_ref().map_or(now, |was| was.updated_at.max(now));
        let version = has.next();
        let row = self.calendars.entry((tenant, put.name.clone())).or_insert_with(|| CalendarRow {
            version,
            created_at: now,
            created_by: actor.0.clone(),
            versions: Vec::new(),
        });
        row.version = version;
        row.versions.push((version, x, put.spec));
        let forgotten = row.versions.len().saturating_sub(CALENDAR_VERSIONS_KEPT);
        row.versions.drain(..forgotten);
        for (id, _) in self.calendar_users(tenant, &put.name) {
            let seq = self.next_seq();
            let known = self.jobs.get(&id).map(|row| self.calendars_named(tenant, row.job.spec.exclude()));
            if let (Some(row), Some(known)) = (self.jobs.get_mut(&id), known) {
                if let Ok(schedule) = job::compile(&row.job.spec, &known, &CRONS) {
                    row.job.schedule = schedule;
                }
                if !Mutant::CalendarKeepsEpoch.is_on() {
                    row.epoch = row.epoch.raised(now);
                    row.seq = seq;
                }
            }
        }
        let calendars = self.calendars_named(tenant, std::slice::from_ref(&put.name));
        self.journal.extend(calendars.into_iter().map(|calendar| Entry::CalendarPut { tenant, calendar }));
        self.note(tenant, actor, "set_calendar", subject(&put.name), detail(version, x), now);
        let calendar = self.calendar(tenant, &put.name).ok_or(StoreError::NotFound("calendar"))?;
        Ok(CalendarPut { calendar, made: was.is_none(), effective_at: Some(x) })
    }

    pub(super) fn delete_calendar(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
        now: DbTime,
    ) -> Result<CalendarRecord> {
        let was = self.calendar(tenant, name).ok_or(StoreError::NotFound("calendar"))?;
        if let Some(wanted) = if_match.filter(|wanted| *wanted != was.version) {
            return Err(StoreError::VersionMismatch { has: was.version, wanted });
        }
        let users = self.calendar_users(tenant, name);
        if !users.is_empty() {
            let count = users.len();
            let by = users.into_iter().take(JOBS_NAMED_MAX).map(|(_, name)| name).collect();
            return Err(StoreError::InUse { what: "calendar", by, count });
        }
        self.calendars.remove(&(tenant, name.to_owned()));
        self.note(tenant, actor, "delete_calendar", subject(name), detail(was.version, now), now);
        Ok(was)
    }

    pub(super) fn get_calendar(&self, tenant: TenantId, name: &str) -> Result<CalendarRecord> {
        self.calendar(tenant, name).ok_or(StoreError::NotFound("calendar"))
    }

    pub(super) fn list_calendars(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Page<CalendarRecord, String> {
        let names = self
            .calendars
            .keys()
            .filter(|(owner, name)| *owner == tenant && after.is_none_or(|after| name.as_str() > after));
        let mut items: Vec<_> =
            names.filter_map(|(_, name)| self.calendar(tenant, name)).take(limit.saturating_add(1)).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().map(|calendar| calendar.name.clone()).filter(|_| more);
        Page { items, next }
    }
}
