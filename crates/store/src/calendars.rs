//! Parameters and results of the transactions about calendars, and how a job gets the calendars that it uses.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use everytick_domain::{
    calendar::{Calendar, CalendarSpec, CalendarVersion, Exclusion},
    ids::{TenantId, Version},
    job::Job,
    time::DbTime,
};

use crate::unreadable::Unreadable;

/// A calendar as the API returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CalendarRecord {
    pub name: String,
    pub version: Version,
    pub created_at: DbTime,
    pub created_by: String,
    /// This version is valid after this instant.
    pub updated_at: DbTime,
    pub spec: CalendarSpec,
    /// How many jobs use it.
    pub jobs: u64,
}

/// A calendar to create, or a new version of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutCalendar {
    pub name: String,
    pub spec: CalendarSpec,
    pub if_match: Option<Version>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CalendarPut {
    pub calendar: CalendarRecord,
    /// The calendar is new.
    pub made: bool,
    /// The old version is valid up to this instant, the new one after it. `None` if nothing changed.
    pub effective_at: Option<DbTime>,
}

/// How many of the jobs that prevent a deletion are named.
pub const JOBS_NAMED_MAX: usize = 10;

/// One version, as stored.
pub struct VersionRow {
    pub tenant: TenantId,
    pub name: String,
    pub version: Version,
    pub valid_from: DbTime,
    pub spec: String,
}

/// Calendars by tenant and name.
pub type Known = HashMap<(TenantId, String), Arc<Calendar>>;

/// Groups versions by calendar. Notes and leaves out a version that cannot be decoded.
pub(crate) fn known(unreadable: &Unreadable, rows: Vec<VersionRow>) -> Known {
    let mut by_name: BTreeMap<(TenantId, String), Vec<CalendarVersion>> = BTreeMap::new();
    for row in rows {
        let read = serde_json::from_str::<CalendarSpec>(&row.spec).map_err(|error| error.to_string());
        let made = read.and_then(|spec| {
            CalendarVersion::new(row.version, row.valid_from, &spec).map_err(|invalid| invalid.to_string())
        });
        match made {
            Ok(version) => by_name.entry((row.tenant, row.name)).or_default().push(version),
            Err(error) => {
                let key = format!("{}/{}/{}", row.tenant.raw(), row.name, row.version);
                unreadable.note("calendar_versions", key, &error);
            }
        }
    }
    let calendar = |(key, versions): ((TenantId, String), Vec<CalendarVersion>)| {
        let calendar = Calendar::new(&key.1, versions)?;
        Some((key, Arc::new(calendar)))
    };
    by_name.into_iter().filter_map(calendar).collect()
}

/// The calendars that these jobs use, by tenant.
pub fn named<'a>(jobs: impl Iterator<Item = &'a Job>) -> BTreeMap<TenantId, Vec<String>> {
    let mut named: BTreeMap<TenantId, BTreeSet<&String>> = BTreeMap::new();
    for job in jobs {
        if !job.spec.exclude().is_empty() {
            named.entry(job.tenant).or_default().extend(job.spec.exclude());
        }
    }
    named.into_iter().map(|(tenant, names)| (tenant, names.into_iter().cloned().collect())).collect()
}

/// Attaches the calendars that a job uses. A missing calendar excludes no tick and is logged as an error; jobs can only
/// name existing calendars.
pub fn attach(job: &mut Job, known: &Known) {
    if job.spec.exclude().is_empty() {
        return;
    }
    let spec = Arc::clone(&job.spec);
    let calendar = |name: &String| {
        let found = known.get(&(job.tenant, name.clone())).cloned();
        if found.is_none() {
            tracing::error!(job = %job.id, calendar = name, "a job uses a calendar that does not exist");
        }
        found
    };
    let exclusion = Exclusion::new(spec.exclude().iter().filter_map(calendar).collect());
    job.schedule = job.schedule.take().map(|schedule| schedule.excluding(exclusion));
}

/// The audit detail of a version.
pub fn detail(version: Version, x: DbTime) -> String {
    serde_json::json!({ "version": version.raw(), "x": x }).to_string()
}

/// The audit subject of a calendar. Subjects of jobs and runs are ids, which contain no slash.
pub fn subject(name: &str) -> String {
    format!("calendar/{name}")
}
