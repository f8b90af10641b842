//! When a job is due: the form that people write, and the preview of what it means.

use everytick_domain::{
    invalid::Invalid,
    schedule::{self as domain, ScheduleSpec, Timing},
    time::DbTime,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Complaints, Duration, Name};

/// When a job is due: exactly one of `cron`, `every` and `at`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"cron": "0 2 * * *", "timezone": "America/New_York"}))]
pub(crate) struct Schedule {
    /// A cron expression of 5, 6 (seconds first) or 7 (year last) fields, or `@daily` and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 2 * * *", max_length = 255)]
    pub(crate) cron: Option<String>,
    /// IANA name of the zone in which `cron` is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "America/New_York", default = "UTC")]
    pub(crate) timezone: Option<String>,
    /// What becomes of a fixed time that clocks skip in spring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) gap: Option<Gap>,
    /// At which pass a fixed time fires that clocks repeat in autumn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) fold: Option<Fold>,
    /// A period, counted from `starts_at` or else from the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "15m", value_type = Option<Duration>)]
    pub(crate) every: Option<String>,
    /// One instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) at: Option<String>,
    /// No tick before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) starts_at: Option<String>,
    /// No tick after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) ends_at: Option<String>,
    /// Runs are due up to this long after their tick, always the same for the same tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30s", value_type = Option<Duration>)]
    pub(crate) jitter: Option<String>,
    /// Names of calendars whose dates are left out: a tick there is a skip with the reason `calendar`. At most 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Name>>, max_items = 8, example = json!(["holidays-de"]))]
    pub(crate) exclude: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Gap {
    Shift,
    Skip,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fold {
    First,
    Last,
    Both,
}

impl Schedule {
    /// `seed` is the job's name: `H` goes by it. Complaints name fields of this object.
    pub(crate) fn read(&self, seed: &str) -> Result<(ScheduleSpec, domain::Schedule), Vec<Invalid>> {
        let mut wrong = Complaints::default();
        let timing = self.timing(seed, &mut wrong);
        let instant = |wrong: &mut Complaints, field, text: &Option<String>| -> Option<DbTime> {
            wrong.keep(field, text.as_deref()?.parse())
        };
        let starts_at = instant(&mut wrong, "starts_at", &self.starts_at);
        let ends_at = instant(&mut wrong, "ends_at", &self.ends_at);
        let jitter = wrong.span("jitter", self.jitter.as_deref());
        let spec = wrong.end(timing.map(|timing| ScheduleSpec {
            timing,
            starts_at,
            ends_at,
            jitter,
            exclude: self.exclude.clone().unwrap_or_default(),
        }))?;
        let compiled = domain::Schedule::compile(&spec)?;
        Ok((spec, compiled))
    }

    fn timing(&self, seed: &str, wrong: &mut Complaints) -> Option<Timing> {
        if self.cron.is_none() {
            let of_cron =
                [("timezone", self.timezone.is_some()), ("gap", self.gap.is_some()), ("fold", self.fold.is_some())];
            for (field, _) in of_cron.into_iter().filter(|(_, given)| *given) {
                wrong.add(field, "goes with cron only; leave it out, or write a cron expression");
            }
        }
        match (&self.cron, &self.every, &self.at) {
            (Some(cron), None, None) => {
                let gap = self.gap.map_or_else(Default::default, Into::into);
                let fold = self.fold.map_or_else(Default::default, Into::into);
                ScheduleSpec::cron(cron, self.timezone.as_deref(), gap, fold, seed)
                    .map_err(|found| wrong.extend(found))
                    .ok()
            }
            (None, Some(every), None) => ScheduleSpec::every(every).map_err(|found| wrong.extend([found])).ok(),
            (None, None, Some(at)) => ScheduleSpec::at(at).map_err(|found| wrong.extend([found])).ok(),
            (None, None, None) => {
                wrong.add("", "names no time; write one of cron, every and at, or no schedule at all");
                None
            }
            _ => {
                wrong.add("", "names several kinds of time; write only one of cron, every and at");
                None
            }
        }
    }
}

impl From<&ScheduleSpec> for Schedule {
    fn from(spec: &ScheduleSpec) -> Self {
        let bounds = Self {
            starts_at: spec.starts_at.map(|at| at.to_string()),
            ends_at: spec.ends_at.map(|at| at.to_string()),
            jitter: spec.jitter.map(|span| span.to_string()),
            exclude: (!spec.exclude.is_empty()).then(|| spec.exclude.clone()),
            ..Self::default()
        };
        match &spec.timing {
            Timing::Cron { cron, timezone, gap, fold, .. } => Self {
                cron: Some(cron.clone()),
                timezone: Some(timezone.clone()),
                gap: Some((*gap).into()),
                fold: Some((*fold).into()),
                ..bounds
            },
            Timing::Every { every } => Self { every: Some(every.to_string()), ..bounds },
            Timing::At { at } => Self { at: Some(at.to_string()), ..bounds },
        }
    }
}

same_words! {
    Gap = domain::Gap { Shift, Skip }
    Fold = domain::Fold { First, Last, Both }
}

/// A schedule to be looked at before it is used: one of `cron`, `every` and `at`, with what goes with it.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"cron": "0 2 * * *", "timezone": "America/New_York", "count": 3}))]
pub(crate) struct PreviewRequest {
    /// A cron expression of 5, 6 (seconds first) or 7 (year last) fields, or `@daily` and the like.
    #[schema(example = "0 2 * * *", max_length = 255)]
    cron: Option<String>,
    /// IANA name of the zone in which `cron` is read.
    #[schema(example = "America/New_York", default = "UTC")]
    timezone: Option<String>,
    #[schema(inline)]
    gap: Option<Gap>,
    #[schema(inline)]
    fold: Option<Fold>,
    #[schema(example = "15m", value_type = Option<Duration>)]
    every: Option<String>,
    #[schema(format = DateTime)]
    at: Option<String>,
    #[schema(format = DateTime)]
    starts_at: Option<String>,
    #[schema(format = DateTime)]
    ends_at: Option<String>,
    #[schema(value_type = Option<Duration>)]
    jitter: Option<String>,
    /// Names of calendars whose dates are left out.
    #[schema(value_type = Option<Vec<Name>>, max_items = 8)]
    exclude: Option<Vec<String>>,
    /// The job's name, by which `H` is resolved.
    #[schema(value_type = Option<Name>)]
    name: Option<String>,
    /// How many ticks to show.
    #[schema(minimum = 1, maximum = 1000, default = 10)]
    count: Option<i64>,
    /// Shows the ticks after this instant; now by default.
    #[schema(format = DateTime)]
    from: Option<String>,
}

/// A preview that was asked for, checked.
pub(crate) struct PreviewAsked {
    pub(crate) schedule: domain::Schedule,
    /// The calendars that it names.
    pub(crate) exclude: Vec<String>,
    pub(crate) count: usize,
    pub(crate) from: Option<DbTime>,
}

pub(crate) const PREVIEW_DEFAULT: usize = 10;
pub(crate) const PREVIEW_MAX: usize = 1_000;

impl PreviewRequest {
    pub(crate) fn read(self) -> Result<PreviewAsked, Vec<Invalid>> {
        let mut wrong = Complaints::default();
        let seed = self.name.unwrap_or_default();
        let schedule = Schedule {
            cron: self.cron,
            timezone: self.timezone,
            gap: self.gap,
            fold: self.fold,
            every: self.every,
            at: self.at,
            starts_at: self.starts_at,
            ends_at: self.ends_at,
            jitter: self.jitter,
            exclude: self.exclude,
        };
        let schedule = schedule.read(&seed).map_err(|found| wrong.extend(found)).ok();
        let count = wrong.number::<u32>("count", self.count, 1, PREVIEW_MAX as i64);
        let from = self.from.as_deref().and_then(|text| wrong.keep("from", text.parse()));
        let count = count.map_or(PREVIEW_DEFAULT, |count| count as usize);
        wrong.end(schedule.map(|(spec, schedule)| PreviewAsked { schedule, exclude: spec.exclude, count, from }))
    }
}

/// What a schedule means, in words and in ticks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Preview {
    /// In plain English; `null` for a job without a schedule.
    #[schema(example = "at 02:00 every day, America/New_York")]
    pub(crate) description: Option<String>,
    pub(crate) ticks: Vec<PreviewTick>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PreviewTick {
    #[schema(value_type = String, format = DateTime)]
    at: DbTime,
    /// The same instant in the schedule's zone.
    #[schema(format = DateTime, example = "2026-11-16T02:00:00-05:00")]
    local: String,
    /// Clock changes since the tick before, and whether a calendar leaves it out.
    note: Option<String>,
    /// The calendar that leaves it out: it will be a skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    excluded_by: Option<String>,
}

impl From<domain::Preview> for Preview {
    fn from(preview: domain::Preview) -> Self {
        let ticks = preview.ticks.into_iter();
        Self {
            description: Some(preview.description),
            ticks: ticks
                .map(|tick| PreviewTick {
                    at: tick.at,
                    local: tick.local,
                    note: tick.note,
                    excluded_by: tick.excluded_by,
                })
                .collect(),
        }
    }
}
