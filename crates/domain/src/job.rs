//! A job: its definition (`JobSpec`), its checks, and the loaded form (`Job`) that the engine and the store work with. The
//! schedule and the target check themselves; this module checks the other fields.

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
    schedule::{CronCache, Schedule, ScheduleSpec, Timing},
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
/// Upper limit of `misfire.late_after`. An on-time run is born claimed at most this long after its tick, so a scan of recent
/// run ids finds every claim that was born with its run.
pub const LATE_AFTER_MAX: Span = Span::hours(1);
pub const TIMEOUT_MAX: Span = Span::days(7);
pub const KEEP_MAX: Span = Span::days(3_660);

/// A job's definition: complete, with every default filled in, and checked. Stored as one document.
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
    /// How many runs may be in progress together. `None` under `allow` means: limited only by free slots.
    pub max_concurrent: Option<u32>,
    pub priority: u8,
    pub misfire: Misfire,
    pub retry: RetryPolicy,
    pub on_lost: OnLost,
    pub timeout: Span,
    /// Nodes of this region own the job while at least one of them is alive.
    #[serde(default)]
    pub home_region: Option<String>,
    /// Selects the concurrency key of a run. At most `max_per_key` runs with the same key value are in progress together. Pull
    /// queues only.
    #[serde(default)]
    pub concurrency_key: Option<KeyExpression>,
    #[serde(default = "one")]
    pub max_per_key: u32,
    /// Only with `at`: the job is deleted this long after its last run ended. `None`: it is never deleted automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Span>,
    /// The parent jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependsOn>,
}

const fn one() -> u32 {
    1
}

/// What happens to a tick or a request while runs of its job are open. See [`crate::overlap`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Skip the new run.
    #[default]
    Skip,
    /// Queue the new run in order of due time if fewer than `limit` runs wait; otherwise skip it.
    Queue { limit: u32 },
    /// Cancel the open runs and start the new one.
    CancelPrevious,
    /// Start the new run beside the open ones, up to `max_concurrent`.
    Allow,
}

impl Overlap {
    /// The name of this policy in the API and the CLI.
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

/// What happens to ticks that were not recorded in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Misfire {
    pub late_after: Span,
    /// A tick older than this never fires. `None` means the larger of one hour and one period.
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
    /// How many of the job's runs may be in progress together; `None` means no limit.
    #[must_use]
    pub const fn in_progress_max(&self) -> Option<u32> {
        match self.overlap {
            Overlap::Skip | Overlap::Queue { .. } | Overlap::CancelPrevious => Some(1),
            Overlap::Allow => self.max_concurrent,
        }
    }

    /// Whether a node must count the job's open runs. For a pull queue without a limit it need not: the worker's claim decides.
    #[must_use]
    pub fn counts_open(&self) -> bool {
        self.target.queue().is_none() || self.in_progress_max().is_some()
    }

    /// The names of the calendars whose dates the schedule excludes.
    #[must_use]
    pub fn exclude(&self) -> &[String] {
        self.schedule.as_ref().map_or(&[], |schedule| schedule.exclude.as_slice())
    }

    /// Whether a worker's claim must check the job's other runs first.
    #[must_use]
    pub const fn is_guarded(&self) -> bool {
        self.in_progress_max().is_some() || self.concurrency_key.is_some()
    }

    /// The concurrency key of a run. `payload` is the run's own payload; without one, the job's payload is used.
    #[must_use]
    pub fn key_of(&self, payload: Option<&str>) -> Option<String> {
        self.concurrency_key.as_ref()?.value(self, payload.or(self.payload.as_deref()))
    }

    /// All errors in the fields that this module checks. The schedule and the target check themselves.
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
            format!("is {size} bytes long; at most {DESCRIPTION_BYTES_MAX} bytes are allowed"),
        );
        check(
            self.labels.len() <= LABELS_MAX,
            "labels",
            format!("has {} entries; at most {LABELS_MAX} are allowed", self.labels.len()),
        );
        for (key, value) in &self.labels {
            let sound = !key.is_empty() && key.len() <= LABEL_BYTES_MAX && value.len() <= LABEL_BYTES_MAX;
            check(
                sound,
                "labels",
                format!("{key:?}: a key must have 1 to {LABEL_BYTES_MAX} bytes and a value at most {LABEL_BYTES_MAX}"),
            );
        }
        if let Some(payload) = &self.payload {
            let size = payload.len();
            check(
                size <= PAYLOAD_BYTES_MAX,
                "payload",
                format!("is {size} bytes long; at most {PAYLOAD_BYTES_MAX} (256 KiB) are allowed"),
            );
        }
        check(
            self.priority <= PRIORITY_MAX,
            "priority",
            format!("{} is out of range; it must be 0 (last) to {PRIORITY_MAX} (first)", self.priority),
        );
        if let Some(max) = self.max_concurrent {
            check(
                (1..=MAX_CONCURRENT_MAX).contains(&max),
                "max_concurrent",
                format!("{max} is out of range; it must be 1 to {MAX_CONCURRENT_MAX}"),
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
                format!("{limit} is out of range; it must be 1 to {QUEUE_LIMIT_MAX}"),
            );
        }
        check(
            (1..=MAX_CONCURRENT_MAX).contains(&self.max_per_key),
            "max_per_key",
            format!("{} is out of range; it must be 1 to {MAX_CONCURRENT_MAX}", self.max_per_key),
        );
        check(
            self.concurrency_key.is_none() || self.target.queue().is_some(),
            "concurrency_key",
            "needs a queue target: the limit is enforced when a worker claims".to_owned(),
        );
        check(
            (1..=CATCH_UP_RUNS_MAX).contains(&self.misfire.max_runs),
            "misfire.max_runs",
            format!("{} is out of range; it must be 1 to {CATCH_UP_RUNS_MAX}", self.misfire.max_runs),
        );
        check(
            !self.misfire.late_after.is_zero() && self.misfire.late_after <= LATE_AFTER_MAX,
            "misfire.late_after",
            format!(
                "{} is out of range; it must be more than 0s and at most {LATE_AFTER_MAX}",
                self.misfire.late_after
            ),
        );
        check(
            !self.timeout.is_zero() && self.timeout <= TIMEOUT_MAX,
            "timeout",
            format!("{} is out of range; it must be more than 0s and at most {TIMEOUT_MAX}", self.timeout),
        );
        if let Some(Err(message)) = self.home_region.as_deref().map(home::check_region) {
            check(false, "home_region", message);
        }
        if let Some(keep) = self.keep {
            let once = matches!(self.schedule.as_ref().map(|schedule| &schedule.timing), Some(Timing::At { .. }));
            check(
                once,
                "keep",
                format!(
                    "{keep} needs a schedule with one instant (at); a job with more ticks is never deleted automatically"
                ),
            );
            check(keep <= KEEP_MAX, "keep", format!("{keep} is out of range; it must be at most {KEEP_MAX}"));
        }
        found.extend(flow::problems(self));
        found.extend(self.retry.problems().into_iter().map(|invalid| invalid.under("retry")));
        found
    }
}

/// Checks a job name. Names are typed on command lines and appear in URLs and headers, so only a few characters are allowed.
pub fn check_name(name: &str) -> Result<(), String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(sound) || name.starts_with(['-', '.']) {
        return Err(format!(
            "{:?} is not a name; write 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 - _ . and begin with a letter, a digit or _",
            name.chars().take(NAME_BYTES_MAX).collect::<String>()
        ));
    }
    if name.parse::<JobId>().is_ok() {
        return Err(format!("{name:?} is a UUID, which could be a job's id; choose another name"));
    }
    Ok(())
}

/// A job as the engine and the store use it.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: JobId,
    pub tenant: TenantId,
    pub partition: u16,
    pub version: Version,
    pub spec: Arc<JobSpec>,
    /// Compiled from the spec. `None` for a job that is only triggered or started by other jobs.
    pub schedule: Option<Schedule>,
    pub created_at: DbTime,
    pub created_by: String,
    pub updated_at: DbTime,
    pub paused: Option<Paused>,
    pub deleted_at: Option<DbTime>,
}

/// Since when a job is paused, and why. A paused job has no ticks until it is resumed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paused {
    pub at: DbTime,
    pub note: Option<String>,
}

impl Job {
    /// The schedule, unless the job is disabled, paused or deleted and so has no ticks.
    #[must_use]
    pub fn ticking(&self) -> Option<&Schedule> {
        if self.spec.enabled && self.paused.is_none() && self.deleted_at.is_none() {
            self.schedule.as_ref()
        } else {
            None
        }
    }

    /// The next tick that will fire, for display: after `now`, not below the cursor, and not excluded by a calendar.
    #[must_use]
    pub fn next_tick(&self, cursor: Option<DbTime>, now: DbTime) -> Option<DbTime> {
        self.ticking()?.first_free_from(now.plus(Span::millis(1)).max(cursor?))
    }
}

/// Whether a one-shot job can be deleted: its instant has passed, and its last run ended at least `keep` ago. A job that never
/// ran is not deleted.
#[must_use]
pub fn is_spent(job: &Job, last_ended: Option<DbTime>, now: DbTime) -> bool {
    let (Some(keep), Some(ended), Some(schedule)) = (job.spec.keep, last_ended, &job.schedule) else { return false };
    schedule.next_after(now).is_none() && ended.plus(keep) <= now
}

/// The facts of a new job that are not in its definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Creation {
    pub id: JobId,
    pub tenant: TenantId,
    pub partition: u16,
    pub by: String,
    /// Time on the database clock.
    pub at: DbTime,
}

/// Makes a new job and its first cursor. Refuses a schedule without a future tick, because the job would never fire, and a
/// schedule that names an unknown calendar.
pub fn create(
    creation: Creation,
    spec: JobSpec,
    known: &[Arc<Calendar>],
    crons: &CronCache,
) -> Result<(Job, Option<DbTime>), Vec<Invalid>> {
    let now = creation.at;
    let schedule = compile(&spec, known, crons)?;
    check_at(&spec, now).map_err(|invalid| vec![invalid])?;
    let job = Job {
        id: creation.id,
        tenant: creation.tenant,
        partition: creation.partition,
        version: Version::from_raw(1),
        spec: Arc::new(spec),
        schedule,
        created_at: now,
        created_by: creation.by,
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

/// Compiles the schedule of a definition together with the calendars that it names.
pub fn compile(spec: &JobSpec, known: &[Arc<Calendar>], crons: &CronCache) -> Result<Option<Schedule>, Vec<Invalid>> {
    let Some(spec) = &spec.schedule else { return Ok(None) };
    let excluding = |schedule: Schedule| Ok(schedule.excluding(Exclusion::named(&spec.exclude, known)?));
    let under = |found: Vec<Invalid>| found.into_iter().map(|invalid| invalid.under("schedule")).collect::<Vec<_>>();
    Schedule::compile_with(spec, crons).and_then(excluding).map(Some).map_err(under)
}

/// The first cursor of a definition that takes effect at `x`: its first tick after `x`. An `at` up to `late_after` in the past
/// still counts, so a caller with a slow clock or network can schedule "now".
#[must_use]
pub fn first_cursor(spec: &JobSpec, schedule: &Schedule, x: DbTime, now: DbTime) -> Option<DbTime> {
    match spec.schedule.as_ref().map(|schedule| &schedule.timing) {
        Some(Timing::At { at }) if *at >= now.minus(spec.misfire.late_after) => schedule.first_from(*at),
        _ => schedule.next_after(x),
    }
}

/// Refuses an `at` that is more than `late_after` in the past. The message shows the database time.
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
            // Triggered before its instant.
            (Some(10), 99, false),
        ] {
            assert_eq!(is_spent(&kept, ended.map(s), s(now)), spent, "{ended:?} {now}");
        }
        assert!(!is_spent(&job(once(None)), Some(s(110)), s(9_999)), "without `keep` the job is never deleted");
    }

    #[test]
    fn keep_is_accepted_only_with_a_one_shot_schedule() {
        assert!(once(Some(Span::days(7))).problems().is_empty());
        let mut every = spec(Span::seconds(10));
        every.keep = Some(Span::days(7));
        assert_eq!(every.problems()[0].field, "keep");
        assert_eq!(once(Some(Span::days(4_000))).problems()[0].field, "keep");
    }
}
