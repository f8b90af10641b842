//! Calendars, as people write and read them.

use everytick_domain::{
    calendar::{CalendarSpec, Days, MonthDay},
    ids::Version,
    invalid::Invalid,
    time::DbTime,
};
use everytick_engine::store::{CalendarPut, CalendarRecord};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use utoipa::ToSchema;

use super::{Complaints, Name};

/// A set of dates that schedules can leave out.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"timezone": "Europe/Berlin", "dates": ["2027-03-26", "2026-12-27/2026-12-31"], "yearly": ["12-25", "01-01"]}))]
#[expect(dead_code, reason = "what an answer adds is taken, and ignored")]
pub(crate) struct CalendarDefinition {
    /// IANA name of the zone in which a date is a day.
    #[schema(example = "Europe/Berlin", default = "UTC")]
    timezone: Option<String>,
    /// Single dates, or `first/last`; with `yearly` at most 1000.
    #[schema(max_items = 1000)]
    dates: Option<Vec<String>>,
    /// Days of every year: month and day.
    #[schema(max_items = 1000)]
    yearly: Option<Vec<String>>,

    // What an answer adds: it can be sent back, and changes nothing.
    #[schema(ignore)]
    name: Option<IgnoredAny>,
    #[schema(ignore)]
    version: Option<IgnoredAny>,
    #[schema(ignore)]
    jobs: Option<IgnoredAny>,
    #[schema(ignore)]
    created_at: Option<IgnoredAny>,
    #[schema(ignore)]
    created_by: Option<IgnoredAny>,
    #[schema(ignore)]
    updated_at: Option<IgnoredAny>,
    #[schema(ignore)]
    effective_at: Option<IgnoredAny>,
}

impl CalendarDefinition {
    pub(crate) fn read(self) -> Result<CalendarSpec, Vec<Invalid>> {
        let mut wrong = Complaints::default();
        let dates: Vec<Option<Days>> =
            self.dates.iter().flatten().map(|text| wrong.keep("dates", text.parse())).collect();
        let yearly: Vec<Option<MonthDay>> =
            self.yearly.iter().flatten().map(|text| wrong.keep("yearly", text.parse())).collect();
        let zone = self.timezone.as_deref().unwrap_or("UTC");
        let spec =
            CalendarSpec::new(zone, dates.into_iter().flatten().collect(), yearly.into_iter().flatten().collect())
                .map_err(|found| wrong.extend(found))
                .ok();
        wrong.end(spec)
    }
}

/// A calendar as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Calendar {
    #[schema(value_type = Name)]
    name: String,
    timezone: String,
    #[schema(value_type = Vec<String>)]
    dates: Vec<Days>,
    #[schema(value_type = Vec<String>)]
    yearly: Vec<MonthDay>,
    /// How many jobs leave its dates out.
    jobs: u64,
    #[schema(value_type = i64)]
    version: Version,
    #[schema(value_type = String, format = DateTime)]
    created_at: DbTime,
    created_by: String,
    #[schema(value_type = String, format = DateTime)]
    updated_at: DbTime,
    /// After an edit: up to this instant the old version holds, after it the new one. `null` where nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    effective_at: Option<Option<DbTime>>,
}

impl From<CalendarRecord> for Calendar {
    fn from(record: CalendarRecord) -> Self {
        Self {
            name: record.name,
            timezone: record.spec.timezone,
            dates: record.spec.dates,
            yearly: record.spec.yearly,
            jobs: record.jobs,
            version: record.version,
            created_at: record.created_at,
            created_by: record.created_by,
            updated_at: record.updated_at,
            effective_at: None,
        }
    }
}

impl From<CalendarPut> for Calendar {
    fn from(put: CalendarPut) -> Self {
        Self { effective_at: Some(put.x), ..Self::from(put.calendar) }
    }
}

/// A page of calendars, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CalendarPage {
    pub(crate) items: Vec<Calendar>,
    /// Where the next page begins; `null` on the last one.
    pub(crate) next_cursor: Option<String>,
}
