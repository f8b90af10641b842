//! A schedule as the user wrote it, checked, in its stored form.

use serde::{Deserialize, Serialize};

use crate::{
    calendar::check_exclude,
    invalid::Invalid,
    time::{DbTime, Span},
};

use super::{CronCache, parse, zone::Zone};

/// The shortest period of `every`.
pub const EVERY_MIN: Span = Span::seconds(1);

/// A stored schedule. Build its timing with [`ScheduleSpec::cron`], [`every`](ScheduleSpec::every) or [`at`](ScheduleSpec::at),
/// and [compile](super::Schedule::compile) it to get ticks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScheduleSpec {
    pub timing: Timing,
    /// No tick lies before this. `every` counts from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<DbTime>,
    /// No tick lies after this. A tick at this instant still fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DbTime>,
    /// Runs are due up to this long after their tick, spread by a hash. Ticks do not move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    /// Names of calendars whose dates are excluded. An excluded tick is recorded as a skip.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Timing {
    Cron {
        /// The expression as the user wrote it.
        cron: String,
        /// The expression with a value for every `H` and without a zone prefix.
        resolved: String,
        /// The zone's name, spelled as in the zone data.
        timezone: String,
        #[serde(default)]
        gap: Gap,
        #[serde(default)]
        fold: Fold,
    },
    Every {
        every: Span,
    },
    At {
        at: DbTime,
    },
}

/// What happens to a fixed time that does not exist because clocks go forward.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// Fire at the first instant after the gap, once for all times inside.
    #[default]
    Shift,
    Skip,
}

/// When to fire a fixed time that occurs twice because clocks go back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    #[default]
    First,
    Last,
    Both,
}

impl From<Timing> for ScheduleSpec {
    fn from(timing: Timing) -> Self {
        Self { timing, starts_at: None, ends_at: None, jitter: None, exclude: Vec::new() }
    }
}

impl ScheduleSpec {
    /// The timing of a cron expression. It may have a zone prefix (`CRON_TZ=` or `TZ=`), or be `@every 90s`. `seed` is the
    /// job's stable identity, from which each `H` is derived.
    pub fn cron(cron: &str, timezone: Option<&str>, gap: Gap, fold: Fold, seed: &str) -> Result<Timing, Vec<Invalid>> {
        Self::cron_with(cron, timezone, gap, fold, seed, &CronCache::default())
    }

    /// The same, with a cache of compiled expressions.
    pub fn cron_with(
        cron: &str,
        timezone: Option<&str>,
        gap: Gap,
        fold: Fold,
        seed: &str,
        crons: &CronCache,
    ) -> Result<Timing, Vec<Invalid>> {
        let (prefix, expression) = zone_prefix(cron);
        let mut wrong = Vec::new();
        let zone = zone(prefix, timezone).map_err(|invalid| wrong.push(invalid)).ok();
        if let Some(span) =
            expression.trim().strip_prefix("@every").filter(|_| cron.len() <= parse::EXPRESSION_BYTES_MAX)
        {
            let timing = Self::every(span.trim()).map_err(|invalid| {
                wrong.push(Invalid::new("cron", format!("@every: {}", invalid.message)));
            });
            return if wrong.is_empty() { timing.map_err(|()| wrong) } else { Err(wrong) };
        }
        let parsed = if cron.len() > parse::EXPRESSION_BYTES_MAX {
            parse::parse(cron, Some(seed))
        } else {
            parse::parse(expression, Some(seed))
        };
        match (parsed, zone) {
            (Ok(expression), Some(zone)) => {
                let timezone = zone.name().to_owned();
                let timing = Timing::Cron { cron: cron.to_owned(), resolved: expression.resolved, timezone, gap, fold };
                super::Schedule::compile_with(&timing.clone().into(), crons).map(|_| timing)
            }
            (Err(invalid), _) => {
                wrong.splice(0..0, invalid);
                Err(wrong)
            }
            (Ok(_), None) => Err(wrong),
        }
    }

    pub fn every(every: &str) -> Result<Timing, Invalid> {
        let every = every.parse().map_err(|message: String| Invalid::new("every", message))?;
        Self::every_span(every)
    }

    pub fn every_span(every: Span) -> Result<Timing, Invalid> {
        if every < EVERY_MIN {
            return Err(Invalid::new("every", format!("{every} is shorter than {EVERY_MIN}, the shortest period")));
        }
        if every > Span::MAX {
            return Err(Invalid::new("every", format!("{every} is longer than a hundred years")));
        }
        Ok(Timing::Every { every })
    }

    pub fn at(at: &str) -> Result<Timing, Invalid> {
        let at = at.parse().map_err(|message: String| Invalid::new("at", message))?;
        Ok(Timing::At { at })
    }

    /// The errors in the bounds, the jitter and the calendar names that can be found without a clock.
    pub(super) fn check_bounds(&self, wrong: &mut Vec<Invalid>) {
        if let (Some(starts), Some(ends)) = (self.starts_at, self.ends_at)
            && ends < starts
        {
            wrong.push(Invalid::new("ends_at", format!("{ends} is before starts_at, {starts}")));
        }
        if let Timing::At { at } = self.timing {
            if self.starts_at.is_some_and(|starts| at < starts) {
                wrong.push(Invalid::new("at", format!("never fires: {at} is before starts_at")));
            }
            if self.ends_at.is_some_and(|ends| at > ends) {
                wrong.push(Invalid::new("at", format!("never fires: {at} is after ends_at")));
            }
        }
        for (field, bound) in [("starts_at", self.starts_at), ("ends_at", self.ends_at)] {
            if bound.is_some_and(|bound| !(DbTime::EPOCH..=DbTime::MAX).contains(&bound)) {
                wrong.push(Invalid::new(field, format!("is outside {} to {}", DbTime::EPOCH, DbTime::MAX)));
            }
        }
        if self.jitter.is_some_and(|jitter| jitter > Span::MAX) {
            wrong.push(Invalid::new("jitter", "is longer than a hundred years"));
        }
        check_exclude(&self.exclude, wrong);
    }
}

/// Splits the zone prefix from an expression.
fn zone_prefix(cron: &str) -> (Option<&str>, &str) {
    let trimmed = cron.trim_start();
    let named = trimmed.strip_prefix("CRON_TZ=").or_else(|| trimmed.strip_prefix("TZ="));
    match named {
        None => (None, cron),
        Some(rest) => {
            let (name, expression) = rest.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((rest, ""));
            (Some(name), expression)
        }
    }
}

fn zone(prefix: Option<&str>, timezone: Option<&str>) -> Result<std::sync::Arc<Zone>, Invalid> {
    let given = timezone.map(Zone::named).transpose().map_err(|message| Invalid::new("timezone", message))?;
    let prefixed = prefix.map(Zone::named).transpose().map_err(|message| Invalid::new("cron", message))?;
    match (given, prefixed) {
        (Some(given), Some(prefixed)) if given.name() != prefixed.name() => Err(Invalid::new(
            "timezone",
            format!("{:?} contradicts {:?} in the cron expression; write one of them", given.name(), prefixed.name()),
        )),
        (Some(zone), _) | (None, Some(zone)) => Ok(zone),
        (None, None) => Zone::named("UTC").map_err(|message| Invalid::new("timezone", message)),
    }
}
