//! What to do, and when: a job as people define it, and as the engine holds it.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    calendar::{Calendar, Exclusion},
    flow::{self, DependsOn},
    home,
    ids::{JobId, TenantId, Version},
    invalid::Invalid,
    queue::KeyExpression,
    retry::{OnLost, RetryPolicy},
    schedule::{Schedule, ScheduleSpec, Timing},
    target::TargetSpec,
    time::{DbTime, Span},
};

pub const NAME_BYTES_MAX: usize = 128;
pub const DESCRIPTION_BYTES_MAX: usize = 4_096;
pub const LABELS_MAX: usize = 32;
pub const LABEL_BYTES_MAX: usize = 128;
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;
pub const PRIORITY_MAX: u8 = 9;
pub const PRIORITY_DEFAULT: u8 = 5;
pub const MAX_CONCURRENT_MAX: u32 = 1_000;
pub const QUEUE_LIMIT_DEFAULT: u32 = 1;
pub const QUEUE_LIMIT_MAX: u32 = 1_000;
pub const CATCH_UP_RUNS_MAX: u32 = 1_000;
/// A tick is born on time within this of its instant at the most, so a short scan finds every claim born with its run.
pub const LATE_AFTER_MAX: Span = Span::hours(1);
pub const TIMEOUT_MAX: Span = Span::days(7);
pub const KEEP_MAX: Span = Span::days(3_660);

/// A job as it was defined: complete, with every default filled in, and checked. Stored as one document.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: String,
    pub description: String,
    pub labels: BTreeMap<String, String>,
    pub enabled: bool,
    pub schedule: Option<ScheduleSpec>,
    pub target: TargetSpec,
    /// JSON text, delivered byte for byte.
    pub payload: Option<String>,
    pub overlap: Overlap,
    /// How many runs may be in progress together; `None` under `allow` means as many as there are slots.
    pub max_concurrent: Option<u32>,
    pub priority: u8,
    pub misfire: Misfire,
    pub retry: RetryPolicy,
    pub on_lost: OnLost,
    pub timeout: Span,
    /// Nodes of this region hold the job while one lives.
    #[serde(default)]
    pub home_region: Option<String>,
    /// Runs of one value of this are in progress together no more than `max_per_key`; for pull queues.
    #[serde(default)]
    pub concurrency_key: Option<KeyExpression>,
    #[serde(default = "one")]
    pub max_per_key: u32,
    /// With `at`: the job is deleted this long after its last run ended. `None`: it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Span>,
    /// The jobs that it follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependsOn>,
}

const fn one() -> u32 {
    1
}

/// What a tick or a request does when runs of its job are still open. See [`crate::overlap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// It waits for its turn, in the order in which they come due, where fewer than this many others wait; else it is skipped.
    Queue { limit: u32 },
    /// What is open is cancelled, and it takes its place.
    CancelPrevious,
    /// It starts beside them, up to `max_concurrent`.
    Allow,
}

impl Overlap {
    /// The word by which the API and the CLI call this policy.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Queue { .. } => "queue",
            Self::CancelPrevious => "cancel_previous",
            Self::Allow => "allow",
        }
    }
}

/// What becomes of ticks that were not recorded in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Misfire {
    pub late_after: Span,
    /// Never fires when older than this; `None` means the larger of one hour and one period.
    pub grace: Option<Span>,
    pub catch_up: CatchUp,
    pub max_runs: u32,
}

impl Default for Misfire {
    fn default() -> Self {
        Self { late_after: Span::minutes(1), grace: None, catch_up: CatchUp::Latest, max_runs: 10 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    None,
    #[default]
    Latest,
    All,
}

impl JobSpec {
    /// How many of the job's runs may be in progress together; `None` when nothing limits them.
    #[must_use]
    pub const fn in_progress_max(&self) -> Option<u32> {
        match self.overlap {
            Overlap::Skip | Overlap::Queue { .. } | Overlap::CancelPrevious => Some(1),
            Overlap::Allow => self.max_concurrent,
        }
    }

    /// Whether a node has to know its open runs: what workers may have together is judged where they claim it.
    #[must_use]
    pub fn counts_open(&self) -> bool {
        self.target.queue().is_none() || self.in_progress_max().is_some()
    }

    /// The calendars that its schedule names.
    #[must_use]
    pub fn exclude(&self) -> &[String] {
        self.schedule.as_ref().map_or(&[], |schedule| schedule.exclude.as_slice())
    }

    /// Whether a worker's claim must look at the job's other runs first.
    #[must_use]
    pub const fn is_guarded(&self) -> bool {
        self.in_progress_max().is_some() || self.concurrency_key.is_some()
    }

    /// The key of a run with this payload of its own, or the job's.
    #[must_use]
    pub fn key_of(&self, payload: Option<&str>) -> Option<String> {
        self.concurrency_key.as_ref()?.value(self, payload.or(self.payload.as_deref()))
    }

    /// Everything that is wrong with the fields this module owns, each named. The schedule and the target check themselves.
    #[must_use]
    pub fn problems(&self) -> Vec<Invalid> {
        let mut found = Vec::new();
        let mut check = |right: bool, field: &str, message: String| {
            if !right {
                found.push(Invalid::new(field, message));
            }
        };
        if let Err(message) = check_name(&self.name) {
            check(false, "name", message);
        }
        let size = self.description.len();
        check(
            size <= DESCRIPTION_BYTES_MAX,
            "description",
            format!("is {size} bytes long; at most {DESCRIPTION_BYTES_MAX} are kept"),
        );
        check(
            self.labels.len() <= LABELS_MAX,
            "labels",
            format!("has {} entries; at most {LABELS_MAX} are kept", self.labels.len()),
        );
        for (key, value) in &self.labels {
            let sound = !key.is_empty() && key.len() <= LABEL_BYTES_MAX && value.len() <= LABEL_BYTES_MAX;
            check(
                sound,
                "labels",
                format!("{key:?}: keys have 1 to {LABEL_BYTES_MAX} bytes and values at most as many"),
            );
        }
        if let Some(payload) = &self.payload {
            let size = payload.len();
            check(
                size <= PAYLOAD_BYTES_MAX,
                "payload",
                format!("is {size} bytes long; at most {PAYLOAD_BYTES_MAX} (256 KiB) are delivered"),
            );
        }
        check(
            self.priority <= PRIORITY_MAX,
            "priority",
            format!("{} is out of range; 0 (last) to {PRIORITY_MAX} (first) are right", self.priority),
        );
        if let Some(max) = self.max_concurrent {
            check(
                (1..=MAX_CONCURRENT_MAX).contains(&max),
                "max_concurrent",
                format!("{max} is out of range; 1 to {MAX_CONCURRENT_MAX} are right"),
            );
            check(
                self.overlap == Overlap::Allow || max == 1,
                "max_concurrent",
                format!(
                    "{max} needs overlap \"allow\"; under {:?} one run at a time is in progress",
                    self.overlap.word()
                ),
            );
        }
        if let Overlap::Queue { limit } = self.overlap {
            check(
                (1..=QUEUE_LIMIT_MAX).contains(&limit),
                "queue_limit",
                format!("{limit} is out of range; 1 to {QUEUE_LIMIT_MAX} are right"),
            );
        }
        check(
            (1..=MAX_CONCURRENT_MAX).contains(&self.max_per_key),
            "max_per_key",
            format!("{} is out of range; 1 to {MAX_CONCURRENT_MAX} are right", self.max_per_key),
        );
        check(
            self.concurrency_key.is_none() || self.target.queue().is_some(),
            "concurrency_key",
            "needs a target of the kind queue: workers are held to it when they claim".to_owned(),
        );
        check(
            (1..=CATCH_UP_RUNS_MAX).contains(&self.misfire.max_runs),
            "misfire.max_runs",
            format!("{} is out of range; 1 to {CATCH_UP_RUNS_MAX} are right", self.misfire.max_runs),
        );
        check(
            !self.misfire.late_after.is_zero() && self.misfire.late_after <= LATE_AFTER_MAX,
            "misfire.late_after",
            format!("{} is out of range; up to {LATE_AFTER_MAX} is right", self.misfire.late_after),
        );
        check(
            !self.timeout.is_zero() && self.timeout <= TIMEOUT_MAX,
            "timeout",
            format!("{} is out of range; up to {TIMEOUT_MAX} is right", self.timeout),
        );
        if let Some(Err(message)) = self.home_region.as_deref().map(home::check_region) {
            check(false, "home_region", message);
        }
        if let Some(keep) = self.keep {
            let once = matches!(self.schedule.as_ref().map(|schedule| &schedule.timing), Some(Timing::At { .. }));
            check(
                once,
                "keep",
                format!("{keep} goes with a schedule of one instant (at); a job with more ticks stays"),
            );
            check(keep <= KEEP_MAX, "keep", format!("{keep} is out of range; up to {KEEP_MAX} is right"));
        }
        found.extend(flow::problems(self));
        found.extend(self.retry.problems().into_iter().map(|invalid| invalid.under("retry")));
        found
    }
}

/// A name is typed on command lines and stands in URLs and headers.
pub fn check_name(name: &str) -> Result<(), String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(sound) || name.starts_with(['-', '.']) {
        return Err(format!(
            "{:?} is not a name; write 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 - _ . and begin with a letter, a digit or _",
            name.chars().take(NAME_BYTES_MAX).collect::<String>()
        ));
    }
    if name.parse::<JobId>().is_ok() {
        return Err(format!("{name:?} reads as an id; choose a name that is no UUID"));
    }
    Ok(())
}

/// A job as the engine and the store hold it.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: JobId,
    pub tenant: TenantId,
    pub partition: u16,
    pub version: Version,
    pub spec: Arc<JobSpec>,
    /// Compiled from the spec; absent for a job that only people or other jobs start.
    pub schedule: Option<Schedule>,
    pub created_at: DbTime,
    pub created_by: String,
    pub updated_at: DbTime,
    pub paused: Option<Paused>,
    pub deleted_at: Option<DbTime>,
}

/// A job that has no ticks until somebody resumes it, since when, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paused {
    pub at: DbTime,
    pub note: Option<String>,
}

impl Job {
    /// The schedule while it has ticks: not of a disabled, paused or deleted job.
    #[must_use]
    pub fn ticking(&self) -> Option<&Schedule> {
        if self.spec.enabled && self.paused.is_none() && self.deleted_at.is_none() {
            self.schedule.as_ref()
        } else {
            None
        }
    }

    /// The next tick that fires, for people: after now, not one that the cursor has passed, nor one that a calendar leaves out.
    #[must_use]
    pub fn next_tick(&self, cursor: Option<DbTime>, now: DbTime) -> Option<DbTime> {
        self.ticking()?.first_free_from(now.plus(Span::millis(1)).max(cursor?))
    }
}

/// Whether a one-shot job has been kept as long as it asked for: its instant has passed, and its last run ended that long ago.
/// One that never ran stays.
#[must_use]
pub fn is_spent(job: &Job, last_ended: Option<DbTime>, now: DbTime) -> bool {
    let (Some(keep), Some(ended), Some(schedule)) = (job.spec.keep, last_ended, &job.schedule) else { return false };
    schedule.next_after(now).is_none() && ended.plus(keep) <= now
}

/// What makes a job, beside its definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Birth {
    pub id: JobId,
    pub tenant: TenantId,
    pub partition: u16,
    pub by: String,
    /// The database's clock.
    pub at: DbTime,
}

/// A new job and its cursor, or what is wrong with it. A schedule that has no tick left would never fire, and is refused;
/// so is one that names a calendar which is not among the known ones.
pub fn born(birth: Birth, spec: JobSpec, known: &[Arc<Calendar>]) -> Result<(Job, Option<DbTime>), Vec<Invalid>> {
    let now = birth.at;
    let schedule = compile(&spec, known)?;
    check_at(&spec, now).map_err(|invalid| vec![invalid])?;
    let job = Job {
        id: birth.id,
        tenant: birth.tenant,
        partition: birth.partition,
        version: Version::from_raw(1),
        spec: Arc::new(spec),
        schedule,
        created_at: now,
        created_by: birth.by,
        updated_at: now,
        paused: None,
        deleted_at: None,
    };
    let cursor = job.ticking().and_then(|schedule| first_cursor(&job.spec, schedule, now, now));
    if job.ticking().is_some() && cursor.is_none() {
        let message = format!("has no tick after {now}, the database's time: the job would never fire");
        return Err(vec![Invalid::new("schedule", message)]);
    }
    Ok((job, cursor))
}

/// The schedule of a definition, with the calendars that it names.
pub fn compile(spec: &JobSpec, known: &[Arc<Calendar>]) -> Result<Option<Schedule>, Vec<Invalid>> {
    let Some(spec) = &spec.schedule else { return Ok(None) };
    let excluding = |schedule: Schedule| Ok(schedule.excluding(Exclusion::named(&spec.exclude, known)?));
    let under = |found: Vec<Invalid>| found.into_iter().map(|invalid| invalid.under("schedule")).collect::<Vec<_>>();
    Schedule::compile(spec).and_then(excluding).map(Some).map_err(under)
}

/// Where a new definition's cursor begins when it takes over at `x`: its first tick after that. An `at` up to
/// `late_after` in the past still counts, so that "now" can be said by somebody whose clock or network is slow.
#[must_use]
pub fn first_cursor(spec: &JobSpec, schedule: &Schedule, x: DbTime, now: DbTime) -> Option<DbTime> {
    match spec.schedule.as_ref().map(|schedule| &schedule.timing) {
        Some(Timing::At { at }) if *at >= now.minus(spec.misfire.late_after) => schedule.first_from(*at),
        _ => schedule.next_after(x),
    }
}

/// An `at` that lies too far in the past to mean "now" is a mistake, and says so with the database's time.
pub fn check_at(spec: &JobSpec, now: DbTime) -> Result<(), Invalid> {
    match spec.schedule.as_ref().map(|schedule| &schedule.timing) {
        Some(Timing::At { at }) if *at < now.minus(spec.misfire.late_after) => Err(Invalid::new(
            "schedule.at",
            format!(
                "{at} has passed: it is {now} on the database's clock, and late_after is {}",
                spec.misfire.late_after
            ),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{job, spec};

    fn s(seconds: i64) -> DbTime {
        DbTime::from_millis(seconds * 1_000)
    }

    fn once(keep: Option<Span>) -> JobSpec {
        let mut spec = spec(Span::seconds(10));
        spec.schedule = Some(Timing::At { at: s(100) }.into());
        spec.keep = keep;
        spec
    }

    #[test]
    fn a_one_shot_job_is_spent_when_its_last_run_ended_long_enough_ago() {
        let kept = job(once(Some(Span::seconds(60))));
        for (ended, now, spent) in [
            (Some(110), 169, false),
            (Some(110), 170, true),
            (None, 9_999, false),
            // Asked for before its instant came.
            (Some(10), 99, false),
        ] {
            assert_eq!(is_spent(&kept, ended.map(s), s(now)), spent, "{ended:?} {now}");
        }
        assert!(!is_spent(&job(once(None)), Some(s(110)), s(9_999)), "it stays unless it says otherwise");
    }

    #[test]
    fn keep_goes_with_an_instant_only() {
        assert!(once(Some(Span::days(7))).problems().is_empty());
        let mut every = spec(Span::seconds(10));
        every.keep = Some(Span::days(7));
        assert_eq!(every.problems()[0].field, "keep");
        assert_eq!(once(Some(Span::days(4_000))).problems()[0].field, "keep");
    }
}
