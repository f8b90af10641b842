//! Queues and the requests of workers: claim, heartbeat, log, settle.

use everytick_domain::{
    ids::{Fence, JobId, RunId},
    invalid::Invalid,
    output::LogPart,
    queue::{CLAIM_BEAT, CLAIM_RUNS_MAX, LOG_BYTES_MAX, QUEUE_CONCURRENCY_MAX, QueueLimits, SETTLES_MAX, check_worker},
    time::{DbTime, Span},
};
use everytick_engine::{
    commands::Report,
    types::{ClaimBeat, QueueRecord, WorkerClaim},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    Duration, FieldError, FieldErrors,
    run::{Cause, RunState, SettleRequest},
};

/// Maximum time that one claim request waits for a run.
pub(crate) const CLAIM_WAIT_MAX: Span = Span::seconds(20);

/// Claims runs of a queue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"worker": "mailer-1", "limit": 10, "wait": "20s"}))]
pub(crate) struct ClaimRequest {
    /// Name of the worker.
    #[schema(required, nullable = false, min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    worker: Option<String>,
    /// Maximum number of runs.
    #[schema(minimum = 1, maximum = 100, default = 1)]
    limit: Option<i64>,
    /// How long to wait when no run is available, up to 20s.
    #[schema(value_type = Option<Duration>, default = "0s")]
    wait: Option<String>,
}

/// A checked claim request.
pub(crate) struct CheckedClaim {
    pub(crate) worker: String,
    pub(crate) limit: usize,
    pub(crate) wait: std::time::Duration,
}

impl ClaimRequest {
    pub(crate) fn read(self) -> Result<CheckedClaim, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let limit = wrong.number::<u16>("limit", self.limit, 1, i64::try_from(CLAIM_RUNS_MAX).unwrap_or(i64::MAX));
        let wait = wrong.span("wait", self.wait.as_deref()).unwrap_or(Span::ZERO);
        if wait > CLAIM_WAIT_MAX {
            wrong.add("wait", format!("{wait} is too long; wait up to {CLAIM_WAIT_MAX}, then claim again"));
        }
        let worker = wrong.worker(self.worker);
        let limit = limit.map_or(1, usize::from);
        wrong.end(worker.map(|worker| CheckedClaim { worker, limit, wait: wait.into() }))
    }
}

/// Ends the waiting claim requests of a worker.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"worker": "mailer-1"}))]
pub(crate) struct LeaveRequest {
    /// Name of the worker, as in its claim requests.
    #[schema(required, nullable = false, min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    worker: Option<String>,
}

impl LeaveRequest {
    pub(crate) fn read(self) -> Result<String, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let worker = wrong.worker(self.worker);
        wrong.end(worker)
    }
}

/// How many waiting claim requests were ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeaveAnswer {
    pub(crate) ended: usize,
}

/// Whether the run was returned.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReleaseAnswer {
    pub(crate) released: bool,
}

/// The claimed runs, the most urgent first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimAnswer {
    pub(crate) runs: Vec<ClaimedRun>,
}

/// A run that a worker has claimed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimedRun {
    /// The same for every attempt: do the work of one id only once.
    #[schema(value_type = String, format = Uuid)]
    id: RunId,
    /// The job's name.
    job: String,
    #[schema(value_type = String, format = Uuid)]
    job_id: JobId,
    #[schema(inline)]
    cause: Cause,
    #[schema(value_type = String, format = DateTime)]
    scheduled_at: DbTime,
    attempt: u32,
    /// Send it with every heartbeat, log and settlement.
    fence: i64,
    #[schema(value_type = Value)]
    payload: Option<Box<RawValue>>,
    /// Without a heartbeat until then the claim is lost, and another worker may claim the run.
    #[schema(value_type = String, format = DateTime)]
    lease_until: DbTime,
    /// Interval between heartbeats.
    #[schema(value_type = Duration, example = "10s")]
    beat_every: String,
    /// The attempt fails at this instant, even if the worker sends heartbeats.
    #[schema(value_type = String, format = DateTime)]
    timeout_at: DbTime,
}

impl From<WorkerClaim> for ClaimedRun {
    fn from(claim: WorkerClaim) -> Self {
        let payload = claim.run.payload.or_else(|| claim.job.spec.payload.clone());
        Self {
            id: claim.run.id,
            job: claim.job.spec.name.clone(),
            job_id: claim.run.job,
            cause: claim.run.cause.into(),
            scheduled_at: claim.run.scheduled_at,
            attempt: claim.run.attempt,
            fence: claim.run.fence.raw(),
            // The API accepted it as JSON when it was stored.
            payload: payload.and_then(|text| RawValue::from_string(text).ok()),
            lease_until: claim.until,
            beat_every: CLAIM_BEAT.to_string(),
            timeout_at: claim.timeout_at,
        }
    }
}

/// A heartbeat: the worker still works on the run. A request that returns a run has the same form.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"fence": 1763200000000000_i64}))]
pub(crate) struct BeatRequest {
    #[schema(required, nullable = false, minimum = 0)]
    fence: Option<i64>,
}

impl BeatRequest {
    pub(crate) fn read(self) -> Result<Fence, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let fence = wrong.fence(self.fence);
        wrong.end(fence)
    }
}

impl FieldErrors {
    fn worker(&mut self, worker: Option<String>) -> Option<String> {
        match worker {
            Some(worker) => self.ok("worker", check_worker(&worker).map(|()| worker)),
            None => {
                self.add("worker", "is missing; send the name of the worker");
                None
            }
        }
    }

    fn fence(&mut self, fence: Option<i64>) -> Option<Fence> {
        if fence.is_none() {
            self.add("fence", "is missing; send the fence of the claimed run");
        }
        fence.map(Fence::from_raw)
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BeatAnswer {
    /// `null` when the run was cancelled.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    lease_until: Option<DbTime>,
    /// The run was cancelled: stop the work, and do not settle the run.
    cancelled: bool,
}

impl BeatAnswer {
    /// `None` when the worker no longer has the claim.
    pub(crate) fn of(beat: ClaimBeat) -> Option<Self> {
        match beat {
            ClaimBeat::Extended { until } => Some(Self { lease_until: Some(until), cancelled: false }),
            ClaimBeat::Cancelled => Some(Self { lease_until: None, cancelled: true }),
            ClaimBeat::Stale => None,
        }
    }
}

/// Appends text to the run's log.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"fence": 1763200000000000_i64, "text": "42 of 100 done\n"}))]
pub(crate) struct LogRequest {
    #[schema(required, nullable = false, minimum = 0)]
    fence: Option<i64>,
    /// Appended to the log, of which the last 64 KiB are stored.
    #[schema(required, nullable = false, max_length = 65536)]
    text: Option<String>,
    /// How many bytes of the log the worker left out before this text. The log then begins with this text, and its
    /// first line states how many bytes are missing.
    #[schema(minimum = 0, default = 0)]
    missing_bytes: Option<u64>,
}

/// A checked part of a log.
pub(crate) struct Logged {
    pub(crate) fence: Fence,
    text: String,
    missing: u64,
}

impl Logged {
    pub(crate) fn part(&self) -> LogPart<'_> {
        LogPart { missing: self.missing, text: &self.text }
    }
}

impl LogRequest {
    pub(crate) fn read(self) -> Result<Logged, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let fence = wrong.fence(self.fence);
        let text = self.text.unwrap_or_default();
        if text.is_empty() {
            wrong.add("text", "is missing; send the text to log");
        }
        if text.len() > LOG_BYTES_MAX {
            wrong.add("text", format!("is {} bytes long; send at most {LOG_BYTES_MAX} in one request", text.len()));
        }
        wrong.no_nul("text", &text);
        let missing = self.missing_bytes.unwrap_or(0);
        wrong.end(fence.map(|fence| Logged { fence, text, missing }))
    }
}

/// Whether the text was appended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogAnswer {
    pub(crate) logged: bool,
}

/// Results of several runs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleBatch {
    #[schema(required, nullable = false, min_items = 1, max_items = 1000)]
    settles: Option<Vec<SettleItem>>,
}

/// The result of one run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"run": "01a1e327-d180-8de1-92e3-d388a74d8fe4", "fence": 1763200000000000_i64, "outcome": "succeeded"}))]
pub(crate) struct SettleItem {
    #[schema(required, nullable = false, format = Uuid)]
    run: Option<String>,
    #[schema(required, nullable = false)]
    fence: Option<i64>,
    #[schema(required, nullable = false, inline)]
    outcome: Option<super::run::SettleOutcome>,
    output: Option<String>,
    error: Option<String>,
    #[schema(default = true)]
    retry: Option<bool>,
}

impl SettleBatch {
    pub(crate) fn read(self) -> Result<Vec<(RunId, Report)>, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let items = self.settles.unwrap_or_default();
        if !(1..=SETTLES_MAX).contains(&items.len()) {
            wrong.add("settles", format!("has {} entries; send 1 to {SETTLES_MAX}", items.len()));
        }
        let mut reports = Vec::with_capacity(items.len());
        for (n, item) in items.into_iter().enumerate() {
            let at = format!("settles[{n}]");
            let run = match item.run.as_deref().map(str::parse) {
                Some(parsed) => wrong.ok(&format!("{at}.run"), parsed),
                None => {
                    wrong.add(&format!("{at}.run"), "is missing; send the id of the run");
                    None
                }
            };
            let report = SettleRequest::new(item.fence, item.outcome, item.output, item.error, item.retry).read();
            match report {
                Ok(report) => reports.extend(run.map(|run: RunId| (run, report))),
                Err(found) => wrong.extend(found.into_iter().map(|invalid| invalid.under(&at))),
            }
        }
        wrong.end(Some(reports))
    }
}

/// The answer for each result, in the order of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettleAnswers {
    pub(crate) results: Vec<SettleResult>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettleResult {
    #[schema(value_type = String, format = Uuid)]
    pub(crate) run: RunId,
    /// The status that this result alone would get: 200 when it was accepted.
    #[schema(minimum = 200, maximum = 599)]
    pub(crate) status: u16,
    /// State of the run after the settlement; `null` when the result was not accepted.
    #[schema(required, inline)]
    pub(crate) state: Option<RunState>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<FieldError>,
}

/// A queue: its limits and its contents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Queue {
    #[schema(example = "emails")]
    name: String,
    /// How many runs workers may have claimed at a time; `null` means no limit.
    #[schema(required)]
    concurrency: Option<u32>,
    /// How many runs workers may claim in a period; `null` means no limit.
    #[schema(required, example = "100/1m")]
    rate: Option<String>,
    /// Waiting runs that are due. Counted up to 100,000.
    depth: u64,
    /// Waiting runs that are due later (retries, jitter). Counted up to 100,000.
    later: u64,
    /// The earliest `due_at` of the waiting runs that are due.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    oldest: Option<DbTime>,
    /// Runs that workers have claimed.
    claimed: u64,
    /// When a worker last asked for runs, to about 5 seconds; `null` if none has.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    asked_at: Option<DbTime>,
}

impl From<QueueRecord> for Queue {
    fn from(queue: QueueRecord) -> Self {
        Self {
            name: queue.name,
            concurrency: queue.limits.concurrency,
            rate: queue.limits.rate.map(|rate| rate.to_string()),
            depth: queue.due,
            later: queue.later,
            oldest: queue.oldest,
            claimed: queue.claimed,
            asked_at: queue.asked_at,
        }
    }
}

/// A page of queues, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueuePage {
    pub(crate) items: Vec<Queue>,
    /// Cursor of the next page; `null` on the last page.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// The limits of a queue. An absent field means no limit.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"concurrency": 20, "rate": "100/1m"}))]
pub(crate) struct QueueRequest {
    /// How many runs workers may have claimed at a time.
    #[schema(minimum = 1, maximum = 100000)]
    concurrency: Option<i64>,
    /// How many runs workers may claim in a period: a number, a slash and a duration up to 1d.
    #[schema(pattern = "^[1-9][0-9]{0,5}/[1-9][0-9]{0,3}(ms|s|m)$", example = "100/1m")]
    rate: Option<String>,
}

impl QueueRequest {
    pub(crate) fn read(self) -> Result<QueueLimits, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let concurrency = wrong.number("concurrency", self.concurrency, 1, QUEUE_CONCURRENCY_MAX.into());
        let rate = self.rate.and_then(|rate| wrong.ok("rate", rate.parse()));
        wrong.end(Some(QueueLimits { concurrency, rate }))
    }
}
