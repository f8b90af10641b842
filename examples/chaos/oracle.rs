//! What the schedules name, by arithmetic of its own: shares nothing with the product but the meaning of the words.

use std::collections::BTreeSet;

/// A schedule of the load. All of them are simple enough to be right by looking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Schedule {
    /// Every multiple of this since 1970.
    Every {
        ms: i64,
    },
    /// Every minute that is a multiple of `step` in a zone whose offset from UTC is `offset` minutes, give or take hours.
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
    /// The ticks after `after`, up to and with `to`. An `at` that lay shortly before its job was made fires all the same.
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

/// What was sent as a job's definition, by the version that it makes of the job. Whether it was taken, the audit says.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Version and schedule.
    pub(crate) sent: Vec<(i64, Schedule)>,
    /// No tick before this; none after `ends_at`.
    pub(crate) starts_at: i64,
    pub(crate) ends_at: i64,
    /// Whether its making was answered.
    pub(crate) made: bool,
    /// What was asked of it since, answered or not.
    pub(crate) asked: Vec<&'static str>,
    /// Changes that were answered.
    pub(crate) answered: Vec<Answered>,
}

/// A change that was answered, with the X that the answer named.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) action: &'static str,
    pub(crate) x: i64,
    pub(crate) sent_at: i64,
    pub(crate) answered_at: i64,
}

/// What a job does, as the sink and the checker see it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    /// Answers at once; runs may overlap.
    Plain,
    /// Answers at once; a tick is skipped while a run is open.
    Single,
    /// Answers after longer than its period; ticks in between are skipped.
    Slow,
    /// Fails at first, then takes its time and succeeds.
    Retried,
    /// Always fails.
    Failing,
    /// Keeps its receiver busy for several of its periods; runs overlap.
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
    /// When the job was made; the X of a change.
    pub(crate) x: i64,
}

/// A stretch in which one definition held: ticks after `after`, up to and with `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) schedule: Schedule,
    pub(crate) after: i64,
    pub(crate) to: i64,
}

/// Which definition held when: what we sent, at the instants that the audit names.
pub(crate) fn held(planned: &Planned, audit: &[Audited], until: i64) -> Result<Vec<Held>, String> {
    let sent = |version: i64| planned.sent.iter().find(|(of, _)| *of == version).map(|(_, schedule)| *schedule);
    let mut stretches = Vec::new();
    let mut current: Option<(Schedule, i64)> = None;
    let mut last: Option<Schedule> = None;
    for change in audit {
        if let Some((schedule, after)) = current.take() {
            stretches.push(Held { schedule, after, to: change.x.min(planned.ends_at) });
            last = Some(schedule);
        }
        let next = match change.action.as_str() {
            "create" => Some(sent(1).ok_or("was made with a definition that nobody sent")?),
            "edit" => {
                Some(sent(change.version).ok_or_else(|| format!("version {} was sent by nobody", change.version))?)
            }
            "resume" => last,
            "pause" | "delete" => None,
            other => return Err(format!("the audit has an action {other:?}")),
        };
        current = next.map(|schedule| (schedule, change.x.max(planned.starts_at - 1)));
    }
    if let Some((schedule, after)) = current {
        stretches.push(Held { schedule, after, to: until.min(planned.ends_at) });
    }
    Ok(stretches)
}

pub(crate) fn expected(stretches: &[Held]) -> BTreeSet<i64> {
    stretches.iter().flat_map(|held| held.schedule.ticks(held.after, held.to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_counts_from_1970_and_begins_after_its_start() {
        assert_eq!(Schedule::Every { ms: 5_000 }.ticks(10_000, 20_000), [15_000, 20_000]);
        assert_eq!(Schedule::Every { ms: 5_000 }.ticks(9_999, 14_999), [10_000]);
    }

    #[test]
    fn an_even_minute_of_kathmandu_is_an_odd_one_of_utc() {
        let ticks = Schedule::Minutes { step: 2, offset: 345 }.ticks(0, 6 * MINUTE);
        assert_eq!(ticks, [MINUTE, 3 * MINUTE, 5 * MINUTE]);
        assert_eq!(Schedule::Minutes { step: 2, offset: 330 }.ticks(0, 4 * MINUTE), [2 * MINUTE, 4 * MINUTE]);
        assert_eq!(Schedule::Minutes { step: 1, offset: 345 }.ticks(MINUTE, 3 * MINUTE), [2 * MINUTE, 3 * MINUTE]);
    }

    /// The product's own parser has the last word about what the oracle takes for granted.
    #[test]
    fn the_zones_of_the_load_have_the_offsets_it_says() {
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
            made: true,
            asked: Vec::new(),
            answered: Vec::new(),
        }
    }

    fn audited(action: &str, version: i64, x: i64) -> Audited {
        Audited { action: action.to_owned(), version, x }
    }

    #[test]
    fn each_definition_holds_from_its_x_to_the_next() {
        let audit = [
            audited("create", 1, 10_500),
            audited("edit", 2, 12_000),
            audited("pause", 3, 16_100),
            audited("resume", 4, 20_000),
            audited("delete", 5, 23_000),
        ];
        let stretches = held(&planned(), &audit, 60_000).unwrap();
        assert_eq!(expected(&stretches).into_iter().collect::<Vec<_>>(), [11_000, 12_000, 14_000, 16_000, 22_000]);
    }

    #[test]
    fn a_change_that_nobody_sent_is_told() {
        assert!(held(&planned(), &[audited("create", 1, 0), audited("edit", 7, 5)], 9).is_err());
    }

    #[test]
    fn a_job_that_was_never_made_has_no_ticks() {
        assert!(held(&planned(), &[], 60_000).unwrap().is_empty());
    }
}
