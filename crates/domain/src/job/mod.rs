//! A job: its definition (`JobSpec`) and the loaded form (`Job`) that the engine and the store work with. `check`
//! checks each field, `contradictions` checks fields together, and `create` makes a job from a definition.

mod check;
mod contradictions;
mod create;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    flow::DependsOn,
    ids::{JobId, TenantId, Version},
    queue::KeyExpression,
    retry::{OnLost, RetryPolicy},
    schedule::{Schedule, ScheduleSpec},
    target::TargetSpec,
    time::{DbTime, Span},
};

pub use self::{
    check::check_name,
    contradictions::Contradictions,
    create::{Creation, check_at, compile, create, first_cursor},
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
/// Upper limit of `misfire.late_after`. An on-time run is inserted already claimed, at most this long after its tick. So
/// a scan of the run ids of this period finds every such claim.
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
    /// Whether references to secrets in the strings of the payload are filled in at delivery.
    #[serde(default, skip_serializing_if = "is_false")]
    pub payload_secrets: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
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

    /// Whether new runs wait behind the open ones.
    #[must_use]
    pub const fn is_queue(self) -> bool {
        matches!(self, Self::Queue { .. })
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

impl CatchUp {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Latest => "latest",
            Self::All => "all",
        }
    }
}

impl JobSpec {
    /// A definition in which every field has its default. It has no schedule.
    #[must_use]
    pub fn new(name: impl Into<String>, target: TargetSpec) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            labels: BTreeMap::new(),
            enabled: true,
            schedule: None,
            payload: None,
            overlap: Overlap::default(),
            max_concurrent: None,
            priority: PRIORITY_DEFAULT,
            misfire: Misfire::default(),
            retry: target.retry_default(),
            on_lost: OnLost::default(),
            timeout: target.timeout_default(),
            home_region: None,
            concurrency_key: None,
            max_per_key: 1,
            keep: None,
            depends_on: Vec::new(),
            payload_secrets: false,
            target,
        }
    }

    /// How many of the job's runs may be in progress together; `None` means no limit.
    #[must_use]
    pub const fn in_progress_max(&self) -> Option<u32> {
        match self.overlap {
            Overlap::Skip | Overlap::Queue { .. } | Overlap::CancelPrevious => Some(1),
            Overlap::Allow => self.max_concurrent,
        }
    }

    /// Whether a node must count the job's open runs. Not for a queue job without a limit on its runs in progress: its
    /// runs start when workers claim them.
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
