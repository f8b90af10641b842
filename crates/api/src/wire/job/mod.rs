//! A job: the definition that clients send, with defaults filled in when it is read, and the job that the API returns.

mod patch;
mod policies;
mod requests;

use std::collections::BTreeMap;

use everytick_domain::{
    ids::{JobId, RunId},
    invalid::Invalid,
    job::{self as domain, JobSpec, MAX_CONCURRENT_MAX, PRIORITY_MAX, TIMEOUT_MAX},
    queue::KeyExpression,
    schedule::ScheduleSpec,
    target::{HttpTarget, TargetSpec},
    time::{DbTime, Span},
};
use everytick_engine::types::{Created, Edited, JobRecord, RunRecord};
use everytick_targets::{TargetSettings, TenantRules, object};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub(crate) use self::{
    patch::JobPatch,
    requests::{DeletedJob, JobPage, PauseRequest, TriggerRequest},
};
use self::{
    policies::{Misfire, OnLost, Overlap, Retry},
    requests::BacklogWork,
};
use super::{
    Duration, FieldErrors, Name,
    depends::{DependsOnRequest, Parent},
    run::LastRun,
    schedule::Schedule,
    target::Target,
};
use crate::elsewhere::Elsewhere;

/// What to run, and when. An absent field gets its default, also when a job is replaced.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "nightly-report",
    "labels": {"team": "billing"},
    "schedule": {"cron": "0 2 * * *", "timezone": "America/New_York"},
    "target": {"http": {"url": "https://example.org/hook"}},
    "payload": {"report": "daily"}
}))]
pub(crate) struct JobDefinition {
    /// Unique among existing jobs. Letters, digits, `-`, `_` and `.`.
    #[schema(required, nullable = false, value_type = Option<Name>, example = "nightly-report")]
    pub(crate) name: Option<String>,
    #[schema(max_length = 4096, default = "")]
    description: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    /// A disabled job has no ticks; it can still be triggered.
    #[schema(default = true)]
    enabled: Option<bool>,
    /// Absent for a job that runs only when it is triggered or when its parents end.
    #[serde(default, deserialize_with = "object::optional")]
    schedule: Option<Schedule>,
    #[serde(default, deserialize_with = "object::optional")]
    #[schema(required, nullable = false)]
    target: Option<Target>,
    /// Any JSON, up to 256 KiB, delivered byte for byte. `null` means no payload.
    #[schema(value_type = Value, required = false)]
    payload: Option<Box<RawValue>>,
    /// Fill in references to secrets, `{{ secrets.NAME }}`, in the strings of the payload. Only for http and shell targets.
    #[schema(default = false)]
    payload_secrets: Option<bool>,
    /// What happens to a tick or a trigger while runs of the job are open. `skip`: it is skipped. `queue`: it waits for them.
    /// `cancel_previous`: they are cancelled and it starts. `allow`: it starts beside them.
    #[schema(value_type = Option<Overlap>, inline)]
    overlap: Option<String>,
    /// How many runs may be in progress together under `allow`; no limit when absent.
    #[schema(minimum = 1, maximum = 1000)]
    max_concurrent: Option<i64>,
    /// How many runs may wait under `queue`; default 1. Further runs are skipped.
    #[schema(minimum = 1, maximum = 1000)]
    queue_limit: Option<i64>,
    /// Runs with priority 9 start first.
    #[schema(minimum = 0, maximum = 9, default = 5)]
    priority: Option<i64>,
    #[serde(default, deserialize_with = "object::optional")]
    misfire: Option<Misfire>,
    #[serde(default, deserialize_with = "object::optional")]
    retry: Option<Retry>,
    /// Time limit of an attempt. The default depends on the kind of target: 30s for http.
    #[schema(value_type = Option<Duration>, example = "30s")]
    timeout: Option<String>,
    #[schema(inline)]
    on_lost: Option<OnLost>,
    /// Nodes of this region own the job while one is alive, otherwise any node. 1 to 63 characters of `a-z 0-9 -`.
    #[schema(min_length = 1, max_length = 63, pattern = "^[a-z0-9-]{1,63}$", example = "eu-west-1")]
    home_region: Option<String>,
    /// For queues: a field of the payload or a label. At most `max_per_key` runs of the job with the same value are in progress
    /// together.
    #[schema(max_length = 256, pattern = "^(payload|labels)\\.[A-Za-z0-9_-]+$", example = "payload.customer")]
    concurrency_key: Option<String>,
    #[schema(minimum = 1, maximum = 1000, default = 1)]
    max_per_key: Option<i64>,
    /// Only with `at`: the job is deleted this long after its last run ended. Never when absent.
    #[schema(value_type = Option<Duration>, example = "7d")]
    keep: Option<String>,
    /// The job's parents. The job runs once in each flow that contains them, when all of them have ended as required.
    #[schema(value_type = Option<Vec<DependsOnRequest>>, max_items = 50)]
    depends_on: Option<Vec<Parent>>,

    // Fields that only answers have. Accepted and ignored when a job is replaced, so that a client can send an answer back.
    #[schema(ignore)]
    id: Option<IgnoredAny>,
    #[schema(ignore)]
    version: Option<IgnoredAny>,
    #[schema(ignore)]
    created_at: Option<IgnoredAny>,
    #[schema(ignore)]
    created_by: Option<IgnoredAny>,
    #[schema(ignore)]
    updated_at: Option<IgnoredAny>,
    #[schema(ignore)]
    next_tick: Option<IgnoredAny>,
    #[schema(ignore)]
    last_run: Option<IgnoredAny>,
    #[schema(ignore)]
    paused: Option<bool>,
    #[schema(ignore)]
    pause_note: Option<IgnoredAny>,
    #[schema(ignore)]
    payload_bytes: Option<u64>,
    #[schema(ignore)]
    effective_at: Option<IgnoredAny>,
    #[schema(ignore)]
    cancelled: Option<IgnoredAny>,
    #[schema(ignore)]
    backlog: Option<IgnoredAny>,
    #[schema(ignore)]
    warnings: Option<IgnoredAny>,
    #[schema(ignore)]
    followers: Option<IgnoredAny>,
}

/// Lists omit a longer payload.
const LISTED_PAYLOAD_BYTES_MAX: usize = 4 * 1024;

/// What the operator allows jobs to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed<'a> {
    pub(crate) targets: &'a TargetSettings,
    /// What the caller's tenant permits.
    pub(crate) tenant: &'a TenantRules,
    pub(crate) elsewhere: &'a Elsewhere,
    pub(crate) min_interval: Span,
}

/// `POST /api/v1/jobs/batch` uses the path segment in which other paths have the job's name.
const RESERVED_NAME: &str = "batch";

impl JobDefinition {
    /// The kinds of target that it names.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.target.as_ref().map(Target::names_given).unwrap_or_default()
    }

    /// The complete spec, or every error. `old` is the job that is replaced.
    pub(crate) fn read(self, old: Option<&domain::Job>, allowed: Allowed<'_>) -> Result<JobSpec, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        self.check_read_only(old, &mut wrong);
        let name = wrong.job_name(self.name, old);
        let schedule = self.schedule.and_then(|schedule| wrong.schedule(schedule, &name, old, allowed.min_interval));
        let target = match self.target {
            Some(target) => target.read(old.map(|old| &old.spec.target), allowed, &mut wrong),
            None => {
                wrong.add("target", Target::missing());
                None
            }
        };
        // An unreadable target has its error already. A placeholder lets the remaining checks run.
        let unreadable = target.is_none();
        let target = target.unwrap_or_else(|| TargetSpec::Http(HttpTarget::post(String::new())));
        let (description, labels) = wrong.texts(self.description, self.labels);
        let overlap = wrong.overlap(self.overlap.as_deref(), self.queue_limit);
        let max_concurrent = wrong.number("max_concurrent", self.max_concurrent, 1, MAX_CONCURRENT_MAX.into());
        let priority = wrong.number("priority", self.priority, 0, PRIORITY_MAX.into());
        let key = self.concurrency_key.and_then(|key| wrong.ok("concurrency_key", KeyExpression::try_from(key)));
        let max_per_key = wrong.number("max_per_key", self.max_per_key, 1, MAX_CONCURRENT_MAX.into());
        let spec = JobSpec {
            name,
            description,
            labels,
            enabled: self.enabled.unwrap_or(true),
            schedule,
            payload: self.payload.map(|payload| payload.get().to_owned()),
            overlap,
            max_concurrent,
            priority: priority.unwrap_or(domain::PRIORITY_DEFAULT),
            misfire: self.misfire.unwrap_or_default().read(&mut wrong),
            retry: self.retry.unwrap_or_default().read(&target, &mut wrong),
            on_lost: self.on_lost.map_or_else(Default::default, Into::into),
            timeout: wrong.span("timeout", self.timeout.as_deref()).unwrap_or(target.timeout_default()),
            home_region: self.home_region,
            concurrency_key: key,
            max_per_key: max_per_key.unwrap_or(1),
            keep: wrong.span("keep", self.keep.as_deref()),
            depends_on: self.depends_on.unwrap_or_default().into_iter().map(Into::into).collect(),
            payload_secrets: self.payload_secrets.unwrap_or(false),
            target,
        };
        wrong.extend(spec.problems());
        wrong.extend(too_long(&spec, old));
        wrong.extend(spec.contradictions(old.map(|old| &*old.spec)).errors);
        // Under any other policy the limit is always one, so the value of the client is not stored.
        let max_concurrent = spec.max_concurrent.filter(|_| spec.overlap == domain::Overlap::Allow);
        wrong.end((!unreadable).then_some(JobSpec { max_concurrent, ..spec }))
    }

    fn check_read_only(&self, old: Option<&domain::Job>, wrong: &mut FieldErrors) {
        // A client that sends an item of a list back unchanged would remove the payload.
        if self.payload.is_none() && self.payload_bytes.is_some_and(|bytes| bytes > 0) {
            wrong.add("payload", "was omitted from the list; read the job itself, or the list with include=payload");
        }
        match old {
            Some(old) => {
                if self.paused.is_some_and(|paused| paused != old.paused.is_some()) {
                    wrong.add("paused", "cannot be changed here; use POST /api/v1/jobs/{job}/pause or /resume");
                }
            }
            None => {
                for (field, given) in [
                    ("id", self.id.is_some()),
                    ("version", self.version.is_some()),
                    ("created_at", self.created_at.is_some()),
                    ("created_by", self.created_by.is_some()),
                    ("updated_at", self.updated_at.is_some()),
                    ("next_tick", self.next_tick.is_some()),
                    ("last_run", self.last_run.is_some()),
                    ("paused", self.paused.is_some()),
                    ("pause_note", self.pause_note.is_some()),
                    ("effective_at", self.effective_at.is_some()),
                    ("cancelled", self.cancelled.is_some()),
                    ("backlog", self.backlog.is_some()),
                    ("warnings", self.warnings.is_some()),
                    ("followers", self.followers.is_some()),
                ] {
                    if given {
                        wrong.add(field, "is set by the server; omit it from a new job");
                    }
                }
            }
        }
    }
}

impl FieldErrors {
    fn job_name(&mut self, name: Option<String>, old: Option<&domain::Job>) -> String {
        let Some(name) = name else {
            self.add("name", "is missing; every job needs a name");
            return "unnamed".to_owned();
        };
        // A job that got this name from an older release keeps it.
        if name == RESERVED_NAME && old.is_none_or(|old| old.spec.name != name) {
            self.add(
                "name",
                format!("{name:?} is reserved: POST /api/v1/jobs/batch creates many jobs; choose another name"),
            );
        }
        name
    }

    /// An unchanged schedule keeps its resolved form, so that `H` does not move when only the name changes.
    fn schedule(
        &mut self,
        schedule: Schedule,
        name: &str,
        old: Option<&domain::Job>,
        min_interval: Span,
    ) -> Option<ScheduleSpec> {
        let stored = old.and_then(|old| old.spec.schedule.as_ref());
        if let Some(stored) = stored.filter(|stored| Schedule::from(*stored) == schedule) {
            return Some(stored.clone());
        }
        let read = schedule.read(name).and_then(|(spec, compiled)| {
            compiled.check_interval(&spec, min_interval).map_err(|invalid| vec![invalid])?;
            Ok(spec)
        });
        read.map_err(|found| self.extend(found.into_iter().map(|invalid| invalid.under("schedule")))).ok()
    }

    fn texts(
        &mut self,
        description: Option<String>,
        labels: Option<BTreeMap<String, String>>,
    ) -> (String, BTreeMap<String, String>) {
        let (description, labels) = (description.unwrap_or_default(), labels.unwrap_or_default());
        self.no_nul("description", &description);
        for (key, value) in &labels {
            self.no_nul("labels", key);
            self.no_nul("labels", value);
        }
        (description, labels)
    }
}

/// The error of a timeout above the limit of the target's kind. A timeout above the limit for all targets has its error
/// already. An unchanged timeout is accepted.
fn too_long(spec: &JobSpec, old: Option<&domain::Job>) -> Option<Invalid> {
    let (timeout, kind) = (spec.timeout, spec.target.kind());
    let longest = spec.target.timeout_max().filter(|longest| timeout > *longest)?;
    if timeout > TIMEOUT_MAX || old.is_some_and(|old| old.spec.timeout == timeout) {
        return None;
    }
    let message = format!(
        "{timeout} is longer than {longest}, the limit for {kind}; for longer work, use a queue target, whose workers may \
         take up to {TIMEOUT_MAX}"
    );
    Some(Invalid::new("timeout", message))
}

/// A stored job. `********` replaces a credential; a client that sends it back keeps the stored value.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Job {
    #[schema(value_type = String, format = Uuid)]
    id: JobId,
    #[schema(example = "nightly-report")]
    name: String,
    description: String,
    labels: BTreeMap<String, String>,
    enabled: bool,
    /// `null` for a job that runs only when it is triggered or when its parents end.
    #[schema(required)]
    schedule: Option<Schedule>,
    target: Target,
    #[schema(value_type = Value)]
    payload: Option<Box<RawValue>>,
    /// In a list: the size of a payload that is omitted because it is longer than 4 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    payload_bytes: Option<usize>,
    payload_secrets: bool,
    #[schema(inline)]
    overlap: Overlap,
    /// `null`: no limit.
    #[schema(required)]
    max_concurrent: Option<u32>,
    /// `null` under any policy but `queue`.
    #[schema(required)]
    queue_limit: Option<u32>,
    priority: u8,
    misfire: Misfire,
    retry: Retry,
    timeout: String,
    #[schema(inline)]
    on_lost: OnLost,
    /// `null`: any node may own it.
    #[schema(required)]
    home_region: Option<String>,
    #[schema(required)]
    concurrency_key: Option<String>,
    max_per_key: u32,
    /// `null`: the job is never deleted automatically.
    #[schema(required)]
    keep: Option<String>,
    depends_on: Vec<Parent>,
    /// Also the job's `ETag`, in quotes.
    version: i64,
    #[schema(value_type = String, format = DateTime)]
    created_at: DbTime,
    created_by: String,
    #[schema(value_type = String, format = DateTime)]
    updated_at: DbTime,
    /// The next tick after now that no calendar excludes; `null` when there is none.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    next_tick: Option<DbTime>,
    #[schema(required)]
    last_run: Option<LastRun>,
    paused: bool,
    #[schema(required)]
    pause_note: Option<String>,
    /// In the answer to an edit: the old definition applies up to this instant, the new one after it. `null` when nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    effective_at: Option<Option<DbTime>>,
    /// In the answer to an edit: the runs cancelled with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    cancelled: Option<Vec<RunId>>,
    /// Present while waiting runs, too many for one transaction, are cancelled or moved in the background. None of these runs
    /// starts before it is cancelled or moved. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog: Option<BacklogWork>,
    /// Only in the answer to a request that defines the job: settings that are accepted but probably a mistake. Absent if there
    /// are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<super::FieldError>,
    /// The jobs that depend on this one. Only in the answer to `GET` of one job.
    #[serde(skip_serializing_if = "Option::is_none")]
    followers: Option<Vec<String>>,
}

impl Job {
    pub(crate) fn new(job: &domain::Job, cursor: Option<DbTime>, now: DbTime, last_run: Option<&RunRecord>) -> Self {
        let spec = &*job.spec;
        Self {
            id: job.id,
            name: spec.name.clone(),
            description: spec.description.clone(),
            labels: spec.labels.clone(),
            enabled: spec.enabled,
            schedule: spec.schedule.as_ref().map(Schedule::from),
            target: Target::from(&spec.target),
            // The API accepted it as JSON when it was stored.
            payload: spec.payload.clone().and_then(|text| RawValue::from_string(text).ok()),
            payload_bytes: None,
            payload_secrets: spec.payload_secrets,
            overlap: spec.overlap.into(),
            max_concurrent: spec.in_progress_max(),
            queue_limit: match spec.overlap {
                domain::Overlap::Queue { limit } => Some(limit),
                domain::Overlap::Skip | domain::Overlap::CancelPrevious | domain::Overlap::Allow => None,
            },
            priority: spec.priority,
            misfire: Misfire::from(&spec.misfire),
            retry: Retry::from(&spec.retry),
            timeout: spec.timeout.to_string(),
            on_lost: spec.on_lost.into(),
            home_region: spec.home_region.clone(),
            concurrency_key: spec.concurrency_key.clone().map(Into::into),
            max_per_key: spec.max_per_key,
            keep: spec.keep.map(|keep| keep.to_string()),
            depends_on: spec.depends_on.iter().map(Parent::from).collect(),
            version: job.version.raw(),
            created_at: job.created_at,
            created_by: job.created_by.clone(),
            updated_at: job.updated_at,
            next_tick: job.next_tick(cursor, now),
            last_run: last_run.map(LastRun::from),
            paused: job.paused.is_some(),
            pause_note: job.paused.as_ref().and_then(|paused| paused.note.clone()),
            effective_at: None,
            cancelled: None,
            backlog: None,
            warnings: Vec::new(),
            followers: None,
        }
    }

    pub(crate) fn with_warnings(self, warnings: Vec<super::FieldError>) -> Self {
        Self { warnings, ..self }
    }

    /// The answer to `GET` of one job.
    pub(crate) fn whole(record: &JobRecord) -> Self {
        Self { followers: Some(record.followers.clone()), ..Self::from(record) }
    }

    /// The job as an item of a list: a long payload only on request.
    pub(crate) fn listed(record: &JobRecord, with_payload: bool) -> Self {
        let job = Self::from(record);
        let bytes = job.payload.as_ref().map_or(0, |payload| payload.get().len());
        if with_payload || bytes <= LISTED_PAYLOAD_BYTES_MAX {
            return job;
        }
        Self { payload: None, payload_bytes: Some(bytes), ..job }
    }

    /// The job after an edit. `read` is the job as read before or after the edit, for the fields that the edit does not return.
    pub(crate) fn edited(edited: &Edited, read: Option<&JobRecord>) -> Self {
        let now = read.map_or(edited.job.updated_at, |read| read.now.max(edited.job.updated_at));
        let last_run = read.and_then(|read| read.last_run.as_ref());
        let cancelled = Some(edited.cancelled.clone());
        let backlog = read.and_then(|read| read.backlog.as_ref()).map(BacklogWork::from);
        Self {
            effective_at: Some(edited.effective_at),
            cancelled,
            backlog,
            ..Self::new(&edited.job, edited.cursor, now, last_run)
        }
    }
}

impl From<&JobRecord> for Job {
    fn from(record: &JobRecord) -> Self {
        let backlog = record.backlog.as_ref().map(BacklogWork::from);
        Self { backlog, ..Self::new(&record.job, record.cursor, record.now, record.last_run.as_ref()) }
    }
}

impl From<&Created> for Job {
    fn from(created: &Created) -> Self {
        Self::new(&created.job, created.cursor, created.job.created_at, None)
    }
}
