//! What goes into the transactions about calendars and comes out of them, and how jobs come by the calendars that they name.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use everytick_domain::{
    calendar::{Calendar, CalendarSpec, Exclusion, Held},
    ids::{TenantId, Version},
    job::Job,
    time::DbTime,
};

use crate::unreadable::Unreadable;

/// A calendar as people read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CalendarRecord {
    pub name: String,
    pub version: Version,
    pub created_at: DbTime,
    pub created_by: String,
    /// The instant after which this version holds.
    pub updated_at: DbTime,
    pub spec: CalendarSpec,
    /// How many jobs name it.
    pub jobs: u64,
}

/// A calendar to be made, or a new version of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PutCalendar {
    pub name: String,
    pub spec: CalendarSpec,
    pub if_match: Option<Version>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CalendarPut {
    pub calendar: CalendarRecord,
    /// There was none of this name.
    pub made: bool,
    /// Up to this instant the old version holds, after it the new one. `None` when nothing changed.
    pub x: Option<DbTime>,
}

/// How many of the jobs that stand in the way of a deletion are named.
pub const JOBS_NAMED_MAX: usize = 10;

/// One version, as rows have it.
pub struct VersionRow {
    pub tenant: TenantId,
    pub name: String,
    pub version: Version,
    pub valid_from: DbTime,
    pub spec: String,
}

/// Calendars by who has them.
pub type Known = HashMap<(TenantId, String), Arc<Calendar>>;

/// Puts versions together. One that cannot be decoded is noted and left out.
pub(crate) fn known(unreadable: &Unreadable, rows: Vec<VersionRow>) -> Known {
    let mut held: BTreeMap<(TenantId, String), Vec<Held>> = BTreeMap::new();
    for row in rows {
        let read = serde_json::from_str::<CalendarSpec>(&row.spec).map_err(|error| error.to_string());
        let made =
            read.and_then(|spec| Held::new(row.version, row.valid_from, &spec).map_err(|invalid| invalid.to_string()));
        match made {
            Ok(version) => held.entry((row.tenant, row.name)).or_default().push(version),
            Err(error) => {
                let key = format!("{}/{}/{}", row.tenant.raw(), row.name, row.version);
                unreadable.note("calendar_versions", key, &error);
            }
        }
    }
    let calendar = |(key, versions): ((TenantId, String), Vec<Held>)| {
        let calendar = Calendar::new(&key.1, versions)?;
        Some((key, Arc::new(calendar)))
    };
    held.into_iter().filter_map(calendar).collect()
}

/// The calendars that these jobs name, by tenant.
pub fn named<'a>(jobs: impl Iterator<Item = &'a Job>) -> BTreeMap<TenantId, Vec<String>> {
    let mut named: BTreeMap<TenantId, BTreeSet<&String>> = BTreeMap::new();
    for job in jobs {
        if !job.spec.exclude().is_empty() {
            named.entry(job.tenant).or_default().extend(job.spec.exclude());
        }
    }
    named.into_iter().map(|(tenant, names)| (tenant, names.into_iter().cloned().collect())).collect()
}

/// Gives a job the calendars that it names. One that is not there leaves nothing out, and is logged: no job can name it.
pub fn attach(job: &mut Job, known: &Known) {
    if job.spec.exclude().is_empty() {
        return;
    }
    let spec = Arc::clone(&job.spec);
    let calendar = |name: &String| {
        let found = known.get(&(job.tenant, name.clone())).cloned();
        if found.is_none() {
            tracing::error!(job = %job.id, calendar = name, "a job names a calendar that is not there");
        }
        found
    };
    let exclusion = Exclusion::new(spec.exclude().iter().filter_map(calendar).collect());
    job.schedule = job.schedule.take().map(|schedule| schedule.excluding(exclusion));
}

/// What the audit trail says of a version.
pub fn detail(version: Version, x: DbTime) -> String {
    serde_json::json!({ "version": version.raw(), "x": x }).to_string()
}

/// What the audit trail calls a calendar: jobs and runs are called by their ids, which hold no slash.
pub fn subject(name: &str) -> String {
    format!("calendar/{name}")
}
