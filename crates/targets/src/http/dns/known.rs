//! The results of past lookups, by name and by zone. They decide which permits the next lookup uses. Pure: time is an argument.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::Unresolved;

/// A failed lookup is not repeated within this time.
pub(super) const NEGATIVE: Duration = Duration::from_secs(5);
/// An answer within this time is quick. A slow server occupies permits like one that does not answer.
const QUICK: Duration = Duration::from_millis(500);
/// A name is proven this long after its last quick answer: long enough for the host name of a daily job.
const PROVEN_FOR: Duration = Duration::from_secs(2 * 24 * 3_600);
/// A name is suspect this long after a slow or unanswered lookup.
const SUSPECT_FOR: Duration = Duration::from_secs(60);
/// After this many unanswered lookups in a row a zone counts as silent. A proven name loses its reputation after the
/// same number of slow or unanswered lookups.
const SILENT_LOOKUPS: u32 = 4;
/// Maximum number of names, and of zones, that are remembered.
pub(super) const NAMES_MAX: usize = 10_000;

pub(super) type Answer = Result<Arc<[IpAddr]>, Unresolved>;

/// How fast a lookup was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    Quick,
    Slow,
    Silent,
}

impl Pace {
    pub(super) fn of(silent: bool, took: Duration) -> Self {
        match silent {
            true => Self::Silent,
            false if took > QUICK => Self::Slow,
            false => Self::Quick,
        }
    }
}

/// Which permits a name uses. See the table in the header of `dns`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reputation {
    Proven,
    New,
    Suspect,
}

/// The results of past lookups, by name and by zone.
#[derive(Default)]
pub(super) struct Known {
    names: HashMap<Box<str>, KnownName>,
    /// The number of unanswered lookups in a row, and the instant at which this number expires.
    zones: HashMap<Box<str>, (u32, Instant)>,
}

struct KnownName {
    answer: Answer,
    /// The answer is valid until then.
    until: Instant,
    /// When the last quick answer with an address was received.
    resolved_at: Option<Instant>,
    /// Number of slow or unanswered lookups since the last quick one, and the time of the latest.
    late: u32,
    late_at: Instant,
}

impl KnownName {
    fn reputation(&self, now: Instant) -> Reputation {
        let resolves = self.resolved_at.is_some_and(|at| now < at + PROVEN_FOR);
        if resolves && self.late < SILENT_LOOKUPS {
            Reputation::Proven
        } else if self.late > 0 && now < self.late_at + SUSPECT_FOR {
            Reputation::Suspect
        } else {
            Reputation::New
        }
    }
}

impl Known {
    pub(super) fn reputation(&self, name: &str, now: Instant) -> Reputation {
        self.names.get(name).map_or(Reputation::New, |name| name.reputation(now))
    }

    pub(super) fn answer(&self, name: &str, now: Instant) -> Option<Answer> {
        if let Some(known) = self.names.get(name)
            && now < known.until
        {
            return Some(known.answer.clone());
        }
        if self.reputation(name, now) == Reputation::Proven {
            return None;
        }
        let (silent, until) = self.zones.get(zone(name))?;
        (*silent >= SILENT_LOOKUPS && now < *until)
            .then(|| Err(Unresolved::Failed(format!("the name servers of {} do not answer", zone(name)).into())))
    }

    /// The answer when other lookups occupied the permits. A suspect name whose last lookup failed counts as failed again;
    /// otherwise its runs would be released unsent forever. Any other name was not queried.
    pub(super) fn without_permit(&mut self, name: &str, now: Instant) -> Unresolved {
        match self.names.get_mut(name) {
            Some(known) if known.reputation(now) == Reputation::Suspect => match &known.answer {
                Err(failed @ Unresolved::Failed(_)) => {
                    (known.until, known.late_at) = (now + NEGATIVE, now);
                    failed.clone()
                }
                Err(Unresolved::NotQueried(_)) | Ok(_) => NO_PERMIT,
            },
            _ => NO_PERMIT,
        }
    }

    pub(super) fn remember(&mut self, name: &str, answer: Answer, until: Instant, pace: Pace, now: Instant) {
        self.evict(now);
        if self.names.len() < NAMES_MAX || self.names.contains_key(name) {
            let new = KnownName { answer: answer.clone(), until, resolved_at: None, late: 0, late_at: now };
            let known = self.names.entry(name.into()).or_insert(new);
            (known.answer, known.until) = (answer, until);
            match (pace, &known.answer) {
                (Pace::Quick, Ok(_)) => (known.resolved_at, known.late) = (Some(now), 0),
                (Pace::Quick, Err(_)) => known.late = 0,
                (Pace::Slow | Pace::Silent, _) => (known.late, known.late_at) = (known.late.saturating_add(1), now),
            }
        }
        if pace != Pace::Silent {
            self.zones.remove(zone(name));
            return;
        }
        if self.zones.len() >= NAMES_MAX {
            self.zones.retain(|_, (_, until)| now < *until);
        }
        if self.zones.len() < NAMES_MAX {
            let (count, counts_until) = self.zones.entry(zone(name).into()).or_insert((0, until));
            (*count, *counts_until) = (count.saturating_add(1), until);
        }
    }

    /// Removes names if there are too many. Names that resolve are removed last, so that a flood of dead names does not
    /// make them new again.
    fn evict(&mut self, now: Instant) {
        if self.names.len() >= NAMES_MAX {
            self.names.retain(|_, name| now < name.until || name.reputation(now) != Reputation::New);
        }
        if self.names.len() >= NAMES_MAX {
            self.names.retain(|_, name| name.reputation(now) == Reputation::Proven);
        }
    }
}

const NO_PERMIT: Unresolved =
    Unresolved::NotQueried("other DNS lookups occupy all permits, so its name could not be looked up");

/// The zone of a name: everything after its first dot. If that is only a top-level domain, or one like `co.uk`, the zone is the
/// name itself: unrelated names must not share a zone.
pub(super) fn zone(name: &str) -> &str {
    let name = name.trim_end_matches('.');
    let shared = |zone: &str| match zone.split_once('.') {
        None => true,
        Some((first, rest)) => first.len() <= 3 && !rest.contains('.'),
    };
    name.split_once('.').map(|(_, zone)| zone).filter(|zone| !shared(zone)).unwrap_or(name)
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::now, *};

    pub(in super::super) fn failed() -> Answer {
        Err(Unresolved::Failed("no answer".into()))
    }
    pub(in super::super) fn found() -> Answer {
        Ok(Arc::new([IpAddr::from([192, 0, 2, 1])]))
    }

    #[test]
    fn the_zone_of_a_name_is_everything_after_the_first_dot() {
        for (name, expected) in [
            ("a.b.example.org", "b.example.org"),
            ("www.example.org", "example.org"),
            ("www.example.org.", "example.org"),
            ("example.org", "example.org"),
            ("shop.co.uk", "shop.co.uk"),
            ("www.shop.co.uk", "shop.co.uk"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(zone(name), expected);
        }
    }

    #[test]
    fn a_zone_is_silent_for_5_s_after_4_unanswered_lookups() {
        let (mut known, start) = (Known::default(), now());
        let silent = start + NEGATIVE;
        for n in 0..SILENT_LOOKUPS {
            assert!(known.answer("new.dead.example", start).is_none(), "{n} lookups had no answer");
            known.remember(&format!("n{n}.dead.example"), failed(), silent, Pace::Silent, start);
        }
        assert!(known.answer("new.dead.example", start).is_some_and(|answer| answer.is_err()));
        assert!(known.answer("new.live.example", start).is_none());
        assert!(known.answer("new.dead.example", silent).is_none(), "the zone is queried again");
        known.remember("n9.dead.example", found(), start + Duration::from_secs(60), Pace::Quick, start);
        assert!(known.answer("new.dead.example", start).is_none(), "one answer ends the silence");
    }

    #[test]
    fn a_silent_zone_does_not_fail_a_name_that_resolves() {
        let (mut known, start) = (Known::default(), now());
        known.remember("ok.shared.example", found(), start, Pace::Quick, start);
        for n in 0..SILENT_LOOKUPS {
            known.remember(&format!("n{n}.shared.example"), failed(), start + NEGATIVE, Pace::Silent, start);
        }
        assert!(known.answer("new.shared.example", start).is_some());
        assert!(known.answer("ok.shared.example", start).is_none(), "it is looked up, because it is proven");
    }

    #[test]
    fn the_reputation_of_a_name_follows_its_lookups() {
        let (mut known, start) = (Known::default(), now());
        let name = "a.example";
        assert_eq!(known.reputation(name, start), Reputation::New);
        known.remember(name, failed(), start, Pace::Silent, start);
        assert_eq!(known.reputation(name, start), Reputation::Suspect);
        assert_eq!(known.reputation(name, start + SUSPECT_FOR), Reputation::New);
        known.remember(name, found(), start, Pace::Slow, start);
        assert_eq!(
            known.reputation(name, start),
            Reputation::Suspect,
            "a slow answer occupies a permit as long as a missing answer"
        );
        known.remember(name, found(), start, Pace::Quick, start);
        assert_eq!(known.reputation(name, start), Reputation::Proven);
        for _ in 1..SILENT_LOOKUPS {
            known.remember(name, failed(), start, Pace::Silent, start);
            assert_eq!(
                known.reputation(name, start),
                Reputation::Proven,
                "lost packets alone do not change its reputation"
            );
        }
        known.remember(name, failed(), start, Pace::Silent, start);
        assert_eq!(known.reputation(name, start), Reputation::Suspect);
        known.remember(name, found(), start, Pace::Quick, start);
        assert_eq!(known.reputation(name, start + PROVEN_FOR), Reputation::New);
        known.remember("none.example", failed(), start, Pace::Quick, start);
        assert_eq!(
            known.reputation("none.example", start),
            Reputation::New,
            "its server answers, so it is not suspect"
        );
    }

    #[test]
    fn a_name_without_a_permit_in_time_counts_as_not_queried_unless_it_failed_before() {
        let (mut known, start) = (Known::default(), now());
        known.remember("dead.example", failed(), start, Pace::Silent, start);
        known.remember("slow.example", found(), start, Pace::Slow, start);
        known.remember("live.example", found(), start, Pace::Quick, start);
        for name in ["new.example", "slow.example", "live.example"] {
            assert!(matches!(known.without_permit(name, start), Unresolved::NotQueried(_)), "{name}");
        }
        assert!(matches!(known.without_permit("dead.example", start), Unresolved::Failed(_)));
    }

    #[test]
    fn a_flood_of_dead_names_does_not_evict_names_that_resolve() {
        let (mut known, start) = (Known::default(), now());
        known.remember("ok.example", found(), start, Pace::Quick, start);
        for n in 0..NAMES_MAX + 10 {
            known.remember(&format!("n{n}.example"), failed(), start + NEGATIVE, Pace::Silent, start);
        }
        assert_eq!(known.reputation("ok.example", start), Reputation::Proven);
        assert!(known.names.len() <= NAMES_MAX);
    }
}
