//! Calendars: the definition that clients send, and the calendar that the API returns.

use everytick_domain::{
    calendar::{CalendarSpec, Days, LeftOut, MonthDay},
    ids::Version,
    invalid::Invalid,
    time::DbTime,
};
use everytick_engine::types::{CalendarPut, CalendarRecord};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use utoipa::ToSchema;

use super::{FieldErrors, Name};

/// A set of dates that schedules can exclude.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"timezone": "Europe/Berlin", "dates": ["2027-03-26", "2026-12-27/2026-12-31"], "yearly": ["12-25", "01-01"]}))]
#[expect(dead_code, reason = "fields that only answers have are accepted and ignored")]
pub(crate) struct CalendarDefinition {
    /// IANA name of the time zone in which the dates are days.
    #[schema(example = "Europe/Berlin", default = "UTC")]
    timezone: Option<String>,
    /// Single dates, or ranges `first/last`. At most 1000 together with `yearly`.
    #[schema(max_items = 1000)]
    dates: Option<Vec<String>>,
    /// Days of every year, as month and day.
    #[schema(max_items = 1000)]
    yearly: Option<Vec<String>>,

    // Fields that only answers have. Accepted and ignored, so that a client can send an answer back.
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
    #[schema(ignore)]
    left_out: Option<IgnoredAny>,
}

impl CalendarDefinition {
    pub(crate) fn read(self) -> Result<CalendarSpec, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let dates: Vec<Option<Days>> =
            self.dates.iter().flatten().map(|text| wrong.ok("dates", text.parse())).collect();
        let yearly: Vec<Option<MonthDay>> =
            self.yearly.iter().flatten().map(|text| wrong.ok("yearly", text.parse())).collect();
        let zone = self.timezone.as_deref().unwrap_or("UTC");
        let spec =
            CalendarSpec::new(zone, dates.into_iter().flatten().collect(), yearly.into_iter().flatten().collect())
                .map_err(|found| wrong.extend(found))
                .ok();
        wrong.end(spec)
    }
}

/// Maximum number of events in the `left_out` of one answer.
const LEFT_OUT_LISTED_MAX: usize = 100;

/// A stored calendar.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Calendar {
    #[schema(value_type = Name)]
    name: String,
    timezone: String,
    #[schema(value_type = Vec<String>)]
    dates: Vec<Days>,
    #[schema(value_type = Vec<String>)]
    yearly: Vec<MonthDay>,
    /// How many jobs exclude its dates.
    jobs: u64,
    #[schema(value_type = i64)]
    version: Version,
    #[schema(value_type = String, format = DateTime)]
    created_at: DbTime,
    created_by: String,
    #[schema(value_type = String, format = DateTime)]
    updated_at: DbTime,
    /// In the answer to an edit: the old version applies up to this instant, the new one after it. `null` when nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    effective_at: Option<Option<DbTime>>,
    /// In the answer to an iCalendar file: its events that were not imported, or only in part.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<Vec<LeftOutEvent>>,
}

/// An event of an iCalendar file that dates cannot represent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeftOutEvent {
    /// The line of the file.
    #[schema(minimum = 1)]
    line: usize,
    /// The event's SUMMARY.
    #[schema(example = "Team lunch")]
    event: String,
    reason: String,
}

impl From<LeftOut> for LeftOutEvent {
    fn from(LeftOut { line, event, reason }: LeftOut) -> Self {
        Self { line, event, reason }
    }
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
            left_out: None,
        }
    }
}

impl Calendar {
    /// The answer to an edit. `left_out` is set if the calendar was an iCalendar file.
    pub(crate) fn put(put: CalendarPut, left_out: Option<Vec<LeftOut>>) -> Self {
        let left_out = left_out.map(|left| left.into_iter().take(LEFT_OUT_LISTED_MAX).map(Into::into).collect());
        Self { effective_at: Some(put.effective_at), left_out, ..Self::from(put.calendar) }
    }
}

/// A page of calendars, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CalendarPage {
    pub(crate) items: Vec<Calendar>,
    /// Cursor of the next page; `null` on the last page.
    pub(crate) next_cursor: Option<String>,
}
