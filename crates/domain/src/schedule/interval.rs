//! The shortest interval between ticks, for operators who set a minimum (`--min-interval`).

use super::{EVERY_MIN, Schedule, ScheduleSpec, Timing, When};
use crate::{
    invalid::Invalid,
    time::{DbTime, Span},
};

/// How many ticks are compared. A cron expression has the same times on every matching day, so a few thousand ticks show every
/// interval, except on days when clocks change.
const TICKS_COMPARED_MAX: usize = 4_096;
/// How long a sparse schedule is searched.
const COMPARED_FOR: Span = Span::days(400);

impl Schedule {
    /// The shortest time between two ticks; `None` if only one tick is found.
    #[must_use]
    pub fn shortest_interval(&self) -> Option<Span> {
        self.shortest_interval_of(TICKS_COMPARED_MAX)
    }

    /// The same among the first `ticks_max` ticks of a cron expression.
    pub(crate) fn shortest_interval_of(&self, ticks_max: usize) -> Option<Span> {
        match &self.when {
            When::Every { every, .. } => Some(Span::millis(*every)),
            When::At(_) => None,
            When::Cron(_) => {
                let first = self.first_from(DbTime::EPOCH)?;
                let ticks: Vec<_> = self.ticks(first, first.plus(COMPARED_FOR)).take(ticks_max).collect();
                ticks.windows(2).map(|pair| pair[1].since(pair[0])).min()
            }
        }
    }

    /// Refuses a schedule whose ticks are closer together than `min`. The error names the field `every` or `cron`.
    pub fn check_interval(&self, spec: &ScheduleSpec, min: Span) -> Result<(), Invalid> {
        let field = match spec.timing {
            Timing::Every { .. } => "every",
            Timing::Cron { .. } => "cron",
            Timing::At { .. } => return Ok(()),
        };
        // No two ticks are closer than `EVERY_MIN`, and the search costs more than all other checks of a job.
        if min <= EVERY_MIN {
            return Ok(());
        }
        match self.shortest_interval() {
            Some(shortest) if shortest < min => {
                let message = format!(
                    "fires {shortest} after the previous tick; this server allows no interval below {min} (--min-interval)"
                );
                Err(Invalid::new(field, message))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Fold, Gap};

    fn cron(text: &str) -> (Schedule, ScheduleSpec) {
        let spec: ScheduleSpec = ScheduleSpec::cron(text, None, Gap::Shift, Fold::First, "").unwrap().into();
        (Schedule::compile(&spec).unwrap(), spec)
    }

    #[test]
    fn the_shortest_interval_is_between_the_closest_ticks() {
        for (text, seconds) in [
            ("* * * * * *", 1),
            ("0 * * * *", 3_600),
            ("0,1 2 * * *", 60),
            ("0,59 0,23 * * *", 60),
            ("0 50 * * * *", 3_600),
            ("0,50 * * * * *", 10),
            ("0 2 * * *", 86_400),
            ("0 0 1 * *", 28 * 86_400),
        ] {
            assert_eq!(cron(text).0.shortest_interval(), Some(Span::seconds(seconds)), "{text}");
        }
        assert_eq!(cron("0 0 29 2 *").0.shortest_interval(), None, "the ticks are farther apart than the search goes");
    }

    #[test]
    fn a_too_short_interval_is_refused_under_its_field() {
        let refused = |(schedule, spec): (Schedule, ScheduleSpec), min| {
            schedule.check_interval(&spec, min).err().map(|invalid| invalid.to_string())
        };
        assert_eq!(refused(cron("*/5 * * * *"), Span::minutes(5)), None);
        let message = refused(cron("*/5 * * * *"), Span::minutes(6)).unwrap();
        assert!(message.starts_with("cron: fires 5m after") && message.contains("6m (--min-interval)"), "{message}");
        let every: ScheduleSpec = ScheduleSpec::every("30s").unwrap().into();
        let message = refused((Schedule::compile(&every).unwrap(), every), Span::minutes(1)).unwrap();
        assert!(message.starts_with("every: fires 30s after"), "{message}");
        let once: ScheduleSpec = ScheduleSpec::at("2026-12-24T00:00:00Z").unwrap().into();
        assert_eq!(refused((Schedule::compile(&once).unwrap(), once), Span::days(9)), None);
    }
}
