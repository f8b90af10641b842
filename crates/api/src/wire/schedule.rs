//! Schedules as clients write them, and the preview of a schedule.

use std::sync::LazyLock;

use everytick_domain::{
    invalid::Invalid,
    schedule::{self as domain, CronCache, ScheduleSpec, Timing},
    time::DbTime,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Duration, FieldErrors, Name};

/// Clients register many jobs with few different expressions.
static CRONS: LazyLock<CronCache> = LazyLock::new(CronCache::default);

/// When a job runs: exactly one of `cron`, `every` and `at`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"cron": "0 2 * * *", "timezone": "America/New_York"}))]
pub(crate) struct Schedule {
    /// A cron expression of 5, 6 (seconds first) or 7 (year last) fields, or `@daily` and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 2 * * *", max_length = 255)]
    pub(crate) cron: Option<String>,
    /// IANA name of the time zone of `cron`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "America/New_York", default = "UTC")]
    pub(crate) timezone: Option<String>,
    /// What happens to a fixed time in the hour that clocks skip in spring: it runs after the gap, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) gap: Option<Gap>,
    /// In which pass a fixed time runs when clocks repeat an hour in autumn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub(crate) fold: Option<Fold>,
    /// A period, counted from `starts_at`, or from the Unix epoch when that is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "15m", value_type = Option<Duration>)]
    pub(crate) every: Option<String>,
    /// One instant: the job has a single tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) at: Option<String>,
    /// The earliest possible tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) starts_at: Option<String>,
    /// The latest possible tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub(crate) ends_at: Option<String>,
    /// Delays each run by up to this long after its tick. The delay is always the same for the same tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30s", value_type = Option<Duration>)]
    pub(crate) jitter: Option<String>,
    /// Names of calendars whose dates are excluded: a tick on such a date is a skip with the reason `calendar`. At most 8.
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
    /// `seed` is the job's name, from which `H` is derived. Errors name fields of this object.
    pub(crate) fn read(&self, seed: &str) -> Result<(ScheduleSpec, domain::Schedule), Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let timing = self.timing(seed, &mut wrong);
        let instant = |wrong: &mut FieldErrors, field, text: &Option<String>| -> Option<DbTime> {
            wrong.ok(field, text.as_deref()?.parse())
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
        let compiled = domain::Schedule::compile_with(&spec, &CRONS)?;
        Ok((spec, compiled))
    }

    fn timing(&self, seed: &str, wrong: &mut FieldErrors) -> Option<Timing> {
        if self.cron.is_none() {
            let of_cron =
                [("timezone", self.timezone.is_some()), ("gap", self.gap.is_some()), ("fold", self.fold.is_some())];
            for (field, _) in of_cron.into_iter().filter(|(_, given)| *given) {
                wrong.add(field, "is allowed only with cron; omit it, or write a cron expression");
            }
        }
        match (&self.cron, &self.every, &self.at) {
            (Some(cron), None, None) => {
                let gap = self.gap.map_or_else(Default::default, Into::into);
                let fold = self.fold.map_or_else(Default::default, Into::into);
                ScheduleSpec::cron_with(cron, self.timezone.as_deref(), gap, fold, seed, &CRONS)
                    .map_err(|found| wrong.extend(found))
                    .ok()
            }
            (None, Some(every), None) => ScheduleSpec::every(every).map_err(|found| wrong.extend([found])).ok(),
            (None, None, Some(at)) => ScheduleSpec::at(at).map_err(|found| wrong.extend([found])).ok(),
            (None, None, None) => {
                wrong.add("", "the schedule is empty; write one of cron, every and at, or omit it");
                None
            }
            _ => {
                let given = [("cron", &self.cron), ("every", &self.every), ("at", &self.at)];
                let given: Vec<String> =
                    given.iter().filter_map(|(name, text)| Some(format!("{name} ({:?})", text.as_ref()?))).collect();
                let given = given.join(" and ");
                wrong.add("", format!("has {given}; write only one of them, and in a patch set the others to null"));
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

/// A schedule to preview: one of `cron`, `every` and `at`, with its options.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"cron": "0 2 * * *", "timezone": "America/New_York", "count": 3}))]
pub(crate) struct PreviewRequest {
    /// A cron expression of 5, 6 (seconds first) or 7 (year last) fields, or `@daily` and the like.
    #[schema(example = "0 2 * * *", max_length = 255)]
    cron: Option<String>,
    /// IANA name of the time zone of `cron`.
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
    /// Names of calendars whose dates are excluded.
    #[schema(value_type = Option<Vec<Name>>, max_items = 8)]
    exclude: Option<Vec<String>>,
    /// The job's name, from which `H` is derived.
    #[schema(value_type = Option<Name>)]
    name: Option<String>,
    /// How many ticks to show.
    #[schema(minimum = 1, maximum = 1000, default = 10)]
    count: Option<i64>,
    /// Shows the ticks from this instant on; default now.
    #[schema(format = DateTime)]
    from: Option<String>,
}

/// A checked preview request.
pub(crate) struct CheckedPreview {
    pub(crate) schedule: domain::Schedule,
    /// The names of the calendars that the schedule excludes.
    pub(crate) exclude: Vec<String>,
    pub(crate) count: usize,
    pub(crate) from: Option<DbTime>,
}

pub(crate) const PREVIEW_DEFAULT: usize = 10;
pub(crate) const PREVIEW_MAX: usize = 1_000;

impl PreviewRequest {
    pub(crate) fn read(self) -> Result<CheckedPreview, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
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
        let from = self.from.as_deref().and_then(|text| wrong.ok("from", text.parse()));
        let count = count.map_or(PREVIEW_DEFAULT, |count| count as usize);
        wrong.end(schedule.map(|(spec, schedule)| CheckedPreview { schedule, exclude: spec.exclude, count, from }))
    }
}

/// The meaning of a schedule: a description and the next ticks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Preview {
    /// In plain English; `null` for a job without a schedule.
    #[schema(example = "at 02:00 every day, America/New_York")]
    pub(crate) description: Option<String>,
    pub(crate) ticks: Vec<PreviewTick>,
    /// Times of the schedule that do not exist because clocks go forward, and that have no tick: with `gap: skip`, or
    /// on a date that the zone skipped.
    pub(crate) nonexistent: Vec<Nonexistent>,
    /// Why a job has no further ticks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "no ticks while the job is paused; it was paused at 2026-11-16T07:00:00Z")]
    pub(crate) no_ticks: Option<String>,
}

impl Preview {
    pub(crate) fn without_ticks(schedule: Option<&domain::Schedule>) -> Self {
        let description = schedule.map(domain::Schedule::describe);
        Self { description, ticks: Vec::new(), nonexistent: Vec::new(), no_ticks: None }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PreviewTick {
    #[schema(value_type = String, format = DateTime)]
    at: DbTime,
    /// The same instant in the schedule's zone.
    #[schema(format = DateTime, example = "2026-11-16T02:00:00-05:00")]
    local: String,
    /// What a clock change does to this tick, and whether a calendar excludes it.
    #[schema(
        example = "02:30 does not exist, fires at 03:00; clocks go forward 1h at 2026-03-08T07:00:00Z (02:00 -> 03:00)"
    )]
    note: Option<String>,
    /// The calendar that excludes it: the tick will be a skip.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    excluded_by: Option<String>,
}

/// Times of a schedule that a clock change skips. They have no tick.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Nonexistent {
    /// The instant of the clock change.
    #[schema(value_type = String, format = DateTime)]
    at: DbTime,
    /// The first of the skipped times, without an offset.
    #[schema(example = "2026-03-08T02:30:00")]
    local: String,
    note: String,
}

impl From<domain::Nonexistent> for Nonexistent {
    fn from(times: domain::Nonexistent) -> Self {
        Self { at: times.at, local: times.local, note: times.note }
    }
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
            nonexistent: preview.nonexistent.into_iter().map(Into::into).collect(),
            no_ticks: None,
        }
    }
}
