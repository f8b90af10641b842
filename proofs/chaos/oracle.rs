//! The expected ticks of the schedules, computed independently of the product.

use std::collections::BTreeSet;

/// A schedule of the campaign. All are simple enough to be verified by reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Schedule {
    /// Every multiple of `ms` since 1970.
    Every {
        ms: i64,
    },
    /// Every minute that is a multiple of `step`, in a zone whose offset from UTC is `offset` minutes plus whole hours.
    Minutes {
        step: i64,
        offset: i64,
    },
    At {
        ms: i64,
    },
}

const MINUTE: i64 = 60_000;

impl Schedule {
    /// The ticks after `after`, up to and including `to`. An `at` shortly before the creation of its job still fires.
    pub(crate) fn ticks(self, after: i64, to: i64) -> Vec<i64> {
        let multiples = |of: i64, shift: i64| {
            let first = ((after + shift).div_euclid(of) + 1) * of - shift;
            (0..).map(|n| first + n * of).take_while(|tick| *tick <= to).collect()
        };
        match self {
            Self::Every { ms } => multiples(ms, 0),
            Self::Minutes { step, offset } => multiples(step * MINUTE, offset * MINUTE),
            Self::At { ms } => (ms <= to).then_some(ms).into_iter().collect(),
        }
    }
}

/// The definitions sent for a job, by version. The audit trail shows which were accepted.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Version and schedule.
    pub(crate) sent: Vec<(i64, Schedule)>,
    /// The first possible tick; the last is `ends_at`.
    pub(crate) starts_at: i64,
    pub(crate) ends_at: i64,
    /// Whether its creation was answered.
    pub(crate) created: bool,
    /// All requests since, answered or not.
    pub(crate) requested: Vec<&'static str>,
    /// The answered changes.
    pub(crate) answered: Vec<Answered>,
}

/// An answered change.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) action: &'static str,
    pub(crate) effective_at: i64,
    pub(crate) sent_at: i64,
    pub(crate) answered_at: i64,
}

/// The behaviour of a job, for the sink and the checker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    /// The sink answers at once; runs may overlap.
    Plain,
    /// The sink answers at once; a tick is skipped while a run is open.
    Single,
    /// The sink takes longer than the period; ticks in between are skipped.
    Slow,
    /// The first attempt fails; the next takes a while and succeeds.
    Retried,
    /// Always fails.
    Failing,
    /// The sink takes several periods; runs overlap.
    Greedy,
    Shot,
    Edited,
}

impl Kind {
    /// Whether a tick may be skipped because a run is open.
    pub(crate) const fn skips(self) -> bool {
        matches!(self, Self::Single | Self::Slow)
    }
}

/// A row of the audit trail.
#[derive(Clone, Debug)]
pub(crate) struct Audited {
    pub(crate) action: String,
    pub(crate) version: i64,
    /// When the job was created, or when the change took effect.
    pub(crate) effective_at: i64,
}

/// A period in which one definition applied: its ticks after `after`, up to and including `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InForce {
    pub(crate) schedule: Schedule,
    pub(crate) after: i64,
    pub(crate) to: i64,
}

/// When each definition applied: the definitions that were sent, at the instants of the audit trail.
pub(crate) fn in_force(planned: &Planned, audit: &[Audited], until: i64) -> Result<Vec<InForce>, String> {
    let sent = |version: i64| planned.sent.iter().find(|(of, _)| *of == version).map(|(_, schedule)| *schedule);
    let mut periods = Vec::new();
    let mut current: Option<(Schedule, i64)> = None;
    let mut last: Option<Schedule> = None;
    for change in audit {
        if let Some((schedule, after)) = current.take() {
            periods.push(InForce { schedule, after, to: change.effective_at.min(planned.ends_at) });
            last = Some(schedule);
        }
        let next = match change.action.as_str() {
            "create" => Some(sent(1).ok_or("was created with a definition that was not sent")?),
            "edit" => Some(sent(change.version).ok_or_else(|| format!("version {} was not sent", change.version))?),
            "resume" => last,
            "pause" | "delete" => None,
            other => return Err(format!("the audit has the unknown action {other:?}")),
        };
        current = next.map(|schedule| (schedule, change.effective_at.max(planned.starts_at - 1)));
    }
    if let Some((schedule, after)) = current {
        periods.push(InForce { schedule, after, to: until.min(planned.ends_at) });
    }
    Ok(periods)
}

pub(crate) fn expected(periods: &[InForce]) -> BTreeSet<i64> {
    periods.iter().flat_map(|in_force| in_force.schedule.ticks(in_force.after, in_force.to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_from_1970_and_excludes_its_start() {
        assert_eq!(Schedule::Every { ms: 5_000 }.ticks(10_000, 20_000), [15_000, 20_000]);
        assert_eq!(Schedule::Every { ms: 5_000 }.ticks(9_999, 14_999), [10_000]);
    }

    #[test]
    fn an_even_minute_in_kathmandu_is_an_odd_minute_in_utc() {
        let ticks = Schedule::Minutes { step: 2, offset: 345 }.ticks(0, 6 * MINUTE);
        assert_eq!(ticks, [MINUTE, 3 * MINUTE, 5 * MINUTE]);
        assert_eq!(Schedule::Minutes { step: 2, offset: 330 }.ticks(0, 4 * MINUTE), [2 * MINUTE, 4 * MINUTE]);
        assert_eq!(Schedule::Minutes { step: 1, offset: 345 }.ticks(MINUTE, 3 * MINUTE), [2 * MINUTE, 3 * MINUTE]);
    }

    /// Verifies the oracle's assumptions with the product's own parser.
    #[test]
    fn the_zones_of_the_jobs_have_the_assumed_offsets() {
        use everytick_domain::{
            schedule::{Fold, Gap, Schedule as Real, ScheduleSpec},
            time::DbTime,
        };
        let from = 1_790_000_000_000;
        for (zone, offset) in crate::load::ZONES {
            for (step, cron) in [(1, "* * * * *"), (2, "*/2 * * * *")] {
                let timing = ScheduleSpec::cron(cron, Some(zone), Gap::default(), Fold::default(), "seed").unwrap();
                let real = Real::compile(&timing.into()).unwrap();
                let to = from + 10 * MINUTE;
                let ticks: Vec<_> =
                    real.ticks(DbTime::from_millis(from + 1), DbTime::from_millis(to)).map(DbTime::millis).collect();
                assert_eq!(Schedule::Minutes { step, offset }.ticks(from, to), ticks, "{cron} in {zone}");
            }
        }
    }

    fn planned() -> Planned {
        Planned {
            name: "e".to_owned(),
            kind: Kind::Edited,
            sent: vec![(1, Schedule::Every { ms: 1_000 }), (2, Schedule::Every { ms: 2_000 })],
            starts_at: 0,
            ends_at: i64::MAX,
            created: true,
            requested: Vec::new(),
            answered: Vec::new(),
        }
    }

    fn audited(action: &str, version: i64, effective_at: i64) -> Audited {
        Audited { action: action.to_owned(), version, effective_at }
    }

    #[test]
    fn each_definition_applies_until_the_next_takes_effect() {
        let audit = [
            audited("create", 1, 10_500),
            audited("edit", 2, 12_000),
            audited("pause", 3, 16_100),
            audited("resume", 4, 20_000),
            audited("delete", 5, 23_000),
        ];
        let periods = in_force(&planned(), &audit, 60_000).unwrap();
        assert_eq!(expected(&periods).into_iter().collect::<Vec<_>>(), [11_000, 12_000, 14_000, 16_000, 22_000]);
    }

    #[test]
    fn a_change_that_was_not_sent_is_an_error() {
        assert!(in_force(&planned(), &[audited("create", 1, 0), audited("edit", 7, 5)], 9).is_err());
    }

    #[test]
    fn a_job_that_was_never_created_has_no_ticks() {
        assert!(in_force(&planned(), &[], 60_000).unwrap().is_empty());
    }
}
