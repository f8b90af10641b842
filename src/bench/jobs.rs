//! The jobs that a benchmark registers. A firing job has a schedule for the wanted instants, in one of several time zones.
//! Idle jobs, daily to yearly, have no tick in the next hours.

use everytick_domain::{
    job::{JobSpec, Overlap},
    schedule::{Fold, Gap, ScheduleSpec, Timing},
    target::{HttpTarget, QueueTarget, TargetSpec},
    time::{DbTime, Span},
};
use jiff::{Timestamp, Zoned, tz::TimeZone};

/// Half of these zones have clock changes.
const ZONES: [&str; 8] = [
    "UTC",
    "America/New_York",
    "Europe/Paris",
    "Asia/Kolkata",
    "Australia/Sydney",
    "America/Sao_Paulo",
    "Asia/Tokyo",
    "America/Los_Angeles",
];
/// Idle jobs have no tick before this.
pub(super) const IDLE_AT_LEAST: Span = Span::hours(2);

/// The target of a benchmark's jobs.
#[derive(Clone, Debug)]
pub(super) enum BenchTarget {
    /// The benchmark passes its own target to the engine, so the URL of the job is never called.
    Noop,
    Http(String),
    Queue(String),
}

/// Creates definitions with unique names.
#[derive(Debug)]
pub(super) struct Maker {
    made: u64,
    zones: Vec<(&'static str, TimeZone)>,
    target: BenchTarget,
}

impl Maker {
    pub(super) fn new(target: BenchTarget) -> anyhow::Result<Self> {
        let zones: Result<_, jiff::Error> = ZONES.iter().map(|name| Ok((*name, TimeZone::get(name)?))).collect();
        Ok(Self { made: 0, zones: zones?, target })
    }

    /// A job that fires at `at`, a whole second, and again after a day, a week, a month or a year. Most jobs are daily.
    pub(super) fn firing_at(&mut self, at: DbTime) -> JobSpec {
        let n = self.made;
        let (zone, local) = self.local(n, at);
        let (second, minute, hour) = (local.second(), local.minute(), local.hour());
        let cron = match n % 20 {
            0 => format!("{second} {minute} {hour} {} {} *", local.day(), local.month()),
            1 | 2 => format!("{second} {minute} {hour} {} * *", local.day()),
            3..=5 => format!("{second} {minute} {hour} * * {}", local.weekday().to_sunday_zero_offset()),
            _ => format!("{second} {minute} {hour} * * *"),
        };
        // Under another policy, each claim of a worker would check the overlap of every job.
        let overlap = if matches!(self.target, BenchTarget::Queue(_)) { Overlap::Allow } else { Overlap::Skip };
        self.spec(cron_timing(cron, zone), overlap)
    }

    /// A job without a tick in the next hours.
    pub(super) fn idle(&mut self, now: DbTime) -> JobSpec {
        // The step is coprime to the number of seconds, so the jobs spread over every second of 22 hours.
        let second = self.made.wrapping_mul(7_919) % 79_200;
        let at = now.plus(IDLE_AT_LEAST).plus(Span::seconds(second));
        self.firing_at(DbTime::from_millis(at.millis() - at.millis().rem_euclid(1_000)))
    }

    /// A job that fires every 1 to 10 seconds, from `from` on.
    pub(super) fn frequent(&mut self, from: DbTime) -> JobSpec {
        let n = self.made;
        let zone = self.zones[n as usize % self.zones.len()].0;
        let timing = match n % 16 {
            0..=7 => cron_timing("* * * * * *".to_owned(), zone),
            8..=10 => Timing::Every { every: Span::seconds(1) },
            11..=13 => cron_timing("*/2 * * * * *".to_owned(), zone),
            14 => cron_timing("*/5 * * * * *".to_owned(), zone),
            _ => cron_timing("*/10 * * * * *".to_owned(), zone),
        };
        self.from(timing, from)
    }

    /// A job that fires every `every`, first at `from`, with millisecond precision.
    pub(super) fn every(&mut self, every: Span, from: DbTime) -> JobSpec {
        self.from(Timing::Every { every }, from)
    }

    /// Uses overlap `allow`: under `skip`, a job that fires each second would skip ticks when a run takes longer than a second.
    fn from(&mut self, timing: Timing, from: DbTime) -> JobSpec {
        let mut spec = self.spec(timing, Overlap::Allow);
        if let Some(schedule) = &mut spec.schedule {
            schedule.starts_at = Some(from);
        }
        spec
    }

    fn local(&self, n: u64, at: DbTime) -> (&'static str, Zoned) {
        let (name, zone) = &self.zones[(n / 20) as usize % self.zones.len()];
        let at = Timestamp::from_millisecond(at.millis()).unwrap_or(Timestamp::UNIX_EPOCH);
        (name, at.to_zoned(zone.clone()))
    }

    fn spec(&mut self, timing: Timing, overlap: Overlap) -> JobSpec {
        self.made += 1;
        let target = match &self.target {
            BenchTarget::Noop => http("http://127.0.0.1:9/hook"),
            BenchTarget::Http(url) => http(url),
            BenchTarget::Queue(name) => TargetSpec::Queue(QueueTarget { name: name.clone() }),
        };
        let name = format!("bench-{:08}", self.made);
        JobSpec { schedule: Some(ScheduleSpec::from(timing)), overlap, ..JobSpec::new(name, target) }
    }
}

fn http(url: &str) -> TargetSpec {
    TargetSpec::Http(HttpTarget::post(url.to_owned()))
}

fn cron_timing(cron: String, zone: &str) -> Timing {
    Timing::Cron { resolved: cron.clone(), cron, timezone: zone.to_owned(), gap: Gap::Shift, fold: Fold::First }
}

#[cfg(test)]
mod tests {
    use everytick_domain::schedule::Schedule;

    use super::*;

    #[test]
    fn the_next_tick_of_a_job_is_the_wanted_instant() {
        let mut maker = Maker::new(BenchTarget::Noop).unwrap();
        let now: DbTime = "2026-11-16T10:00:00.250Z".parse().unwrap();
        for second in 0..2_000 {
            let at = DbTime::from_millis((now.millis() / 1_000 + 1 + second) * 1_000);
            let spec = maker.firing_at(at);
            let schedule = Schedule::compile(spec.schedule.as_ref().unwrap()).unwrap();
            assert_eq!(schedule.next_after(now), Some(at), "{spec:?}");
        }
    }

    #[test]
    fn idle_jobs_have_no_tick_in_the_next_hours_and_unique_names() {
        let mut maker = Maker::new(BenchTarget::Noop).unwrap();
        let now: DbTime = "2026-11-16T10:00:00.250Z".parse().unwrap();
        let mut names = std::collections::HashSet::new();
        for _ in 0..2_000 {
            let spec = maker.idle(now);
            let schedule = Schedule::compile(spec.schedule.as_ref().unwrap()).unwrap();
            assert!(schedule.next_after(now).unwrap() >= now.plus(IDLE_AT_LEAST).minus(Span::seconds(1)));
            assert!(names.insert(spec.name));
        }
    }
}
