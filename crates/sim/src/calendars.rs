//! Calendars on maps: their versions, and the jobs that name them.

use std::sync::Arc;

use async_trait::async_trait;
use everytick_domain::{
    calendar::{CALENDAR_VERSIONS_KEPT, Calendar, CalendarSpec, CalendarVersion},
    ids::{JobId, TenantId, Version},
    job,
    mutant::Mutant,
    time::DbTime,
};

use super::{
    db::{Db, JobRow},
    journal::Entry,
    tx::SimTx,
};
use everytick_store::{
    Actor, CalendarRecord, Page, Result,
    shared::CRONS,
    tx::{Tx as _, calendar::CalendarTx},
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

#[async_trait]
impl CalendarTx for SimTx<'_> {
    async fn find_calendar(&mut self, tenant: TenantId, name: &str) -> Result<Option<CalendarRecord>> {
        Ok(self.db.calendar(tenant, name))
    }
    async fn count_calendars(&mut self, tenant: TenantId) -> Result<u64> {
        Ok(self.db.calendars.keys().filter(|(owner, _)| *owner == tenant).count() as u64)
    }
    async fn calendar_users(&mut self, tenant: TenantId, name: &str) -> Result<Vec<(JobId, String)>> {
        Ok(self.db.calendar_users(tenant, name))
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
        let row = self.db.calendars.entry((tenant, name.to_owned())).or_insert_with(|| CalendarRow {
            version,
            created_at: self.at,
            created_by: actor.name.clone(),
            versions: Vec::new(),
        });
        row.version = version;
        row.versions.push((version, effective_at, spec.clone()));
        let forgotten = row.versions.len().saturating_sub(CALENDAR_VERSIONS_KEPT);
        row.versions.drain(..forgotten);
        // The real stores read the calendars with each job.
        for (id, _) in self.db.calendar_users(tenant, name) {
            let known = self.db.jobs.get(&id).map(|row| self.db.calendars_named(tenant, row.job.spec.exclude()));
            if let (Some(row), Some(known)) = (self.db.jobs.get_mut(&id), known)
                && let Ok(schedule) = job::compile(&row.job.spec, &known, &CRONS)
            {
                row.job.schedule = schedule;
            }
        }
        let calendars = self.db.calendars_named(tenant, &[name.to_owned()]);
        self.db.journal.extend(calendars.into_iter().map(|calendar| Entry::CalendarPut { tenant, calendar }));
        Ok(())
    }
    async fn raise_epochs(&mut self, jobs: &[JobId]) -> Result<()> {
        if !Mutant::CalendarKeepsEpoch.is_on() {
            for job in jobs {
                self.raise_epoch(*job).await?;
            }
        }
        Ok(())
    }
    async fn remove_calendar(&mut self, tenant: TenantId, name: &str) -> Result<()> {
        self.db.calendars.remove(&(tenant, name.to_owned()));
        Ok(())
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
        let uses = |row: &&JobRow| row.job.spec.exclude().iter().any(|used| used == name);
        self.live(tenant).filter(uses).map(|row| (row.job.id, row.job.spec.name.clone())).collect()
    }

    pub(super) fn calendars_named(&self, tenant: TenantId, names: &[String]) -> Vec<Arc<Calendar>> {
        let calendar = |name: &String| {
            let row = self.calendars.get(&(tenant, name.clone()))?;
            let version = |(version, from, spec): &_| CalendarVersion::new(*version, *from, spec).ok();
            Calendar::new(name, row.versions.iter().filter_map(version).collect()).map(Arc::new)
        };
        names.iter().filter_map(calendar).collect()
    }

    pub(super) fn list_calendars(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Page<CalendarRecord, String> {
        let behind = |name: &str| after.is_none_or(|after| name > after);
        let names = self.calendars.keys().filter(|(owner, name)| *owner == tenant && behind(name));
        let found = names.filter_map(|(_, name)| self.calendar(tenant, name)).take(limit.saturating_add(1));
        Page::cut(found.collect(), limit, |calendar| calendar.name.clone())
    }
}
