//! Schedules: from the stored definition (`spec`) to ticks. `parse` reads the cron dialect, `pattern` matches dates, `zone` and
//! `search` handle clock changes, `excluded` applies calendars, and `describe`, `preview` and `clock_change` produce text for
//! users.

mod clock_change;
mod compiled;
mod crontab_line;
pub(crate) mod date;
mod describe;
mod excluded;
mod hashed;
mod interval;
mod parse;
mod pattern;
mod preview;
mod search;
mod spec;
mod text;
pub(crate) mod zone;

use std::sync::Arc;

use jiff::tz::Offset;

pub(crate) use self::zone::Zone;
pub use self::{
    compiled::CronCache,
    parse::EXPRESSION_BYTES_MAX,
    preview::{Nonexistent, PREVIEW_TICKS_MAX, Preview, PreviewTick},
    spec::{EVERY_MIN, Fold, Gap, ScheduleSpec, Timing},
    zone::{zone_data_number, zone_data_version},
};
use self::{pattern::Pattern, search::Cron};
use crate::{
    calendar::Exclusion,
    ids::JobId,
    invalid::Invalid,
    time::{DbTime, Span},
};

/// A compiled schedule. Clones share the compiled parts. Every tick lies in the years 1970 to 9999.
#[derive(Clone, Debug)]
pub struct Schedule {
    when: When,
    /// The first and the last instant that can be a tick.
    first: DbTime,
    last: DbTime,
    jitter: Span,
    /// The calendars whose dates are excluded. A stored schedule contains only their names.
    exclusion: Exclusion,
}

#[derive(Clone, Debug)]
enum When {
    Cron(Arc<Cron>),
    /// Every `every` milliseconds, counted from `from`.
    Every {
        every: u64,
        from: DbTime,
    },
    At(DbTime),
}

impl Schedule {
    /// Compiles a spec without a cache. See [`compile_with`](Self::compile_with).
    pub fn compile(spec: &ScheduleSpec) -> Result<Self, Vec<Invalid>> {
        Self::compile_with(spec, &CronCache::default())
    }

    /// Compiles a spec. It checks a stored spec again, so that a corrupt row is an error and not a wrong tick. It refuses a
    /// pattern that no date can match ("never fires"). It accepts a pattern whose dates have all passed: the caller checks
    /// whether there is a next tick.
    pub fn compile_with(spec: &ScheduleSpec, crons: &CronCache) -> Result<Self, Vec<Invalid>> {
        let mut wrong = Vec::new();
        spec.check_bounds(&mut wrong);
        let when = match &spec.timing {
            Timing::Cron { resolved, timezone, gap, fold, .. } => {
                compile_cron(crons, (resolved, timezone), *gap, *fold, &mut wrong)
            }
            Timing::Every { every } => match ScheduleSpec::every_span(*every) {
                Ok(_) => Some(When::Every { every: every.as_millis(), from: spec.starts_at.unwrap_or(DbTime::EPOCH) }),
                Err(invalid) => {
                    wrong.push(invalid);
                    None
                }
            },
            Timing::At { at } => Some(When::At(*at)),
        };
        match when {
            Some(when) if wrong.is_empty() => Ok(Self {
                when,
                first: spec.starts_at.unwrap_or(DbTime::EPOCH),
                last: spec.ends_at.unwrap_or(DbTime::MAX),
                jitter: spec.jitter.unwrap_or(Span::ZERO),
                exclusion: Exclusion::default(),
            }),
            _ => Err(wrong),
        }
    }

    /// The first tick strictly after `after`. Calling it with each result enumerates all ticks.
    #[must_use]
    pub fn next_after(&self, after: DbTime) -> Option<DbTime> {
        self.first_from(DbTime::from_millis(after.millis().checked_add(1)?))
    }

    /// The first tick at or after `from`.
    #[must_use]
    pub fn first_from(&self, from: DbTime) -> Option<DbTime> {
        let from = from.max(self.first);
        if from > self.last {
            return None;
        }
        let tick = match &self.when {
            When::Cron(cron) => at_second(cron.first_from(second_from(from))?)?,
            When::Every { every, from: anchor } => {
                let since = from.since(*anchor).as_millis();
                anchor.plus(Span::millis(since.div_ceil(*every).checked_mul(*every)?))
            }
            When::At(at) => Some(*at).filter(|at| *at >= from)?,
        };
        (tick <= self.last).then_some(tick)
    }

    /// The ticks in `from..=to`.
    pub fn ticks(&self, from: DbTime, to: DbTime) -> impl Iterator<Item = DbTime> + '_ {
        std::iter::successors(self.first_from(from), |tick| self.next_after(*tick)).take_while(move |tick| *tick <= to)
    }

    /// How many ticks lie in `from..=to`. It counts by months, not by ticks, so a gap of years costs microseconds.
    #[must_use]
    pub fn count(&self, from: DbTime, to: DbTime) -> u64 {
        let (from, to) = (from.max(self.first), to.min(self.last));
        if from > to {
            return 0;
        }
        match &self.when {
            When::Cron(cron) => cron.count(second_from(from), to.millis().div_euclid(1_000)),
            When::Every { every, from: anchor } => {
                let until = |at: DbTime| at.since(*anchor).as_millis();
                until(to) / every + 1 - until(from).div_ceil(*every)
            }
            When::At(at) => u64::from((from..=to).contains(at)),
        }
    }

    /// The last tick in `from..=to`.
    #[must_use]
    pub fn last_up_to(&self, from: DbTime, to: DbTime) -> Option<DbTime> {
        self.newest(from, to, 1).pop()
    }

    /// The newest `n` ticks in `from..=to`, in ascending order.
    #[must_use]
    pub fn newest(&self, from: DbTime, to: DbTime, n: usize) -> Vec<DbTime> {
        let (mut low, mut high) = (from.max(self.first), to.min(self.last));
        let wanted = n as u64;
        if n == 0 || low > high {
            return Vec::new();
        }
        if self.count(low, high) > wanted {
            // Bisect for the latest instant from which at least `n` ticks remain.
            let to = high;
            while low < high {
                let middle = DbTime::from_millis(low.millis() + (high.millis() - low.millis() + 1) / 2);
                if self.count(middle, to) >= wanted {
                    low = middle;
                } else {
                    high = DbTime::from_millis(middle.millis() - 1);
                }
            }
        }
        self.ticks(low, to).take(n).collect()
    }

    /// The time from `tick` to the next tick.
    #[must_use]
    pub fn period_at(&self, tick: DbTime) -> Option<Span> {
        self.next_after(tick).map(|next| next.since(tick))
    }

    /// When the run of a tick is due: at the tick, plus a fixed part of the jitter that depends only on job and tick.
    #[must_use]
    pub fn due_at(&self, job: JobId, tick: DbTime) -> DbTime {
        if self.jitter.is_zero() {
            return tick;
        }
        tick.plus(Span::millis(hashed::jitter(job, tick, self.jitter.as_millis())))
    }

    /// The name of the zone of a cron expression. Other schedules have no zone.
    #[must_use]
    pub fn zone_name(&self) -> Option<&str> {
        match &self.when {
            When::Cron(cron) => Some(cron.zone.name()),
            When::Every { .. } | When::At(_) => None,
        }
    }

    /// An instant in the schedule's zone, in RFC 3339: `2026-11-16T02:00:00-05:00`, or with a `Z` in UTC.
    #[must_use]
    pub fn local(&self, tick: DbTime) -> String {
        match &self.when {
            When::Cron(cron) if !is_utc(cron.zone.name()) => {
                tick.timestamp().display_with_offset(self.offset_at(tick)).to_string()
            }
            _ => tick.to_string(),
        }
    }

    fn offset_at(&self, at: DbTime) -> Offset {
        match &self.when {
            When::Cron(cron) => cron.zone.offset_at(at.millis().div_euclid(1_000)),
            When::Every { .. } | When::At(_) => Offset::UTC,
        }
    }
}

fn compile_cron(
    crons: &CronCache,
    (resolved, timezone): (&str, &str),
    gap: Gap,
    fold: Fold,
    wrong: &mut Vec<Invalid>,
) -> Option<When> {
    if let Some(known) = crons.find(resolved, timezone, gap, fold) {
        return Some(When::Cron(known));
    }
    let zone = Zone::named(timezone).map_err(|message| wrong.push(Invalid::new("timezone", message))).ok();
    let expression = parse::parse(resolved, None).map_err(|invalid| wrong.extend(invalid)).ok()?;
    let pattern = Pattern::compile(&expression);
    if !pattern.matches_any_date() {
        wrong.push(Invalid::new("cron", format!("never fires: no date matches {resolved:?}")));
        return None;
    }
    let cron = Arc::new(Cron { pattern, zone: zone?, gap, fold, text: resolved.to_owned() });
    crons.insert(resolved, timezone, &cron);
    Some(When::Cron(cron))
}

pub(crate) fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "Etc/UTC")
}

/// The first whole second at or after an instant.
fn second_from(at: DbTime) -> i64 {
    at.millis().div_euclid(1_000) + i64::from(at.millis().rem_euclid(1_000) > 0)
}

fn at_second(second: i64) -> Option<DbTime> {
    second.checked_mul(1_000).map(DbTime::from_millis)
}
