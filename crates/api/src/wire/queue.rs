//! Queues, and what workers say and hear.

use everytick_domain::{
    ids::{Fence, JobId, RunId},
    invalid::Invalid,
    queue::{CLAIM_BEAT, CLAIM_RUNS_MAX, LOG_BYTES_MAX, QUEUE_CONCURRENCY_MAX, QueueLimits, SETTLES_MAX, check_worker},
    time::{DbTime, Span},
};
use everytick_engine::{
    commands::Report,
    store::{ClaimBeat, QueueRecord, WorkerClaim},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    Complaints, Duration, FieldError,
    run::{Cause, RunState, SettleRequest},
};

/// A worker waits for work no longer than this in one request.
pub(crate) const CLAIM_WAIT_MAX: Span = Span::seconds(20);

/// Asks for work.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"worker": "mailer-1", "limit": 10, "wait": "20s"}))]
pub(crate) struct ClaimRequest {
    /// What the worker calls itself.
    #[schema(required, nullable = false, min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    worker: Option<String>,
    /// How many runs at the most.
    #[schema(minimum = 1, maximum = 100, default = 1)]
    limit: Option<i64>,
    /// How long to wait where there is nothing, up to 20s.
    #[schema(value_type = Option<Duration>, default = "0s")]
    wait: Option<String>,
}

/// What a worker wants, checked.
pub(crate) struct Wanted {
    pub(crate) worker: String,
    pub(crate) limit: usize,
    pub(crate) wait: std::time::Duration,
}

impl ClaimRequest {
    pub(crate) fn read(self) -> Result<Wanted, Vec<Invalid>> {
        let mut wrong = Complaints::default();
        let limit = wrong.number::<u16>("limit", self.limit, 1, i64::try_from(CLAIM_RUNS_MAX).unwrap_or(i64::MAX));
        let wait = wrong.span("wait", self.wait.as_deref()).unwrap_or(Span::ZERO);
        if wait > CLAIM_WAIT_MAX {
            wrong.add("wait", format!("{wait} is too long; up to {CLAIM_WAIT_MAX} is right, then ask again"));
        }
        let worker = match self.worker {
            Some(worker) => wrong.keep("worker", check_worker(&worker).map(|()| worker)),
            None => {
                wrong.add("worker", "is missing; say who is asking");
                None
            }
        };
        let limit = limit.map_or(1, usize::from);
        wrong.end(worker.map(|worker| Wanted { worker, limit, wait: wait.into() }))
    }
}

/// Runs that were handed out, the most urgent first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimAnswer {
    pub(crate) runs: Vec<HandedRun>,
}

/// A run in a worker's hands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HandedRun {
    /// The same at every attempt: do the work of one id once.
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
    /// Goes along with every beat, log and settlement.
    fence: i64,
    #[schema(value_type = Value)]
    payload: Option<Box<RawValue>>,
    /// Without a beat the run is lost then, and handed to another.
    #[schema(value_type = String, format = DateTime)]
    lease_until: DbTime,
    /// How often to beat.
    #[schema(value_type = Duration, example = "10s")]
    beat_every: String,
    /// The attempt has failed then, however often the worker beats.
    #[schema(value_type = String, format = DateTime)]
    timeout_at: DbTime,
}

impl From<WorkerClaim> for HandedRun {
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
            // It was JSON when it was stored.
            payload: payload.and_then(|text| RawValue::from_string(text).ok()),
            lease_until: claim.until,
            beat_every: CLAIM_BEAT.to_string(),
            timeout_at: claim.timeout_at,
        }
    }
}

/// A worker is still at it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"fence": 1763200000000000_i64}))]
pub(crate) struct BeatRequest {
    #[schema(required, nullable = false, minimum = 0)]
    fence: Option<i64>,
}

impl BeatRequest {
    pub(crate) fn read(self) -> Result<Fence, Vec<Invalid>> {
        let mut wrong = Complaints::default();
        let fence = wrong.fence(self.fence);
        wrong.end(fence)
    }
}

impl Complaints {
    fn fence(&mut self, fence: Option<i64>) -> Option<Fence> {
        if fence.is_none() {
            self.add("fence", "is missing; give back the fence that came with the run");
        }
        fence.map(Fence::from_raw)
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BeatAnswer {
    /// `null` when the run was cancelled.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    lease_until: Option<DbTime>,
    /// Somebody has cancelled the run: stop the work. There is nothing to settle.
    cancelled: bool,
}

impl BeatAnswer {
    /// `None` when the claim is no longer the worker's.
    pub(crate) fn of(beat: ClaimBeat) -> Option<Self> {
        match beat {
            ClaimBeat::Held { until } => Some(Self { lease_until: Some(until), cancelled: false }),
            ClaimBeat::Cancelled => Some(Self { lease_until: None, cancelled: true }),
            ClaimBeat::Stale => None,
        }
    }
}

/// Something for the run's log.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"fence": 1763200000000000_i64, "text": "42 of 100 done\n"}))]
pub(crate) struct LogRequest {
    #[schema(required, nullable = false, minimum = 0)]
    fence: Option<i64>,
    /// Added to what was logged before; of all of it the last 64 KiB are kept.
    #[schema(required, nullable = false, max_length = 65536)]
    text: Option<String>,
}

impl LogRequest {
    pub(crate) fn read(self) -> Result<(Fence, String), Vec<Invalid>> {
        let mut wrong = Complaints::default();
        let fence = wrong.fence(self.fence);
        let text = self.text.unwrap_or_default();
        if text.is_empty() {
            wrong.add("text", "is missing; say what is to be logged");
        }
        if text.len() > LOG_BYTES_MAX {
            wrong.add("text", format!("is {} bytes long; up to {LOG_BYTES_MAX} are taken at once", text.len()));
        }
        wrong.no_nul("text", &text);
        wrong.end(fence.map(|fence| (fence, text)))
    }
}

/// Whether it was logged.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LogAnswer {
    pub(crate) logged: bool,
}

/// Many results at once.
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
        let mut wrong = Complaints::default();
        let items = self.settles.unwrap_or_default();
        if !(1..=SETTLES_MAX).contains(&items.len()) {
            wrong.add("settles", format!("has {} entries; 1 to {SETTLES_MAX} are right", items.len()));
        }
        let mut reports = Vec::with_capacity(items.len());
        for (n, item) in items.into_iter().enumerate() {
            let at = format!("settles[{n}]");
            let run = match item.run.as_deref().map(str::parse) {
                Some(parsed) => wrong.keep(&format!("{at}.run"), parsed),
                None => {
                    wrong.add(&format!("{at}.run"), "is missing; name the run");
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

/// What became of each result, in the order given.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettleAnswers {
    pub(crate) results: Vec<SettleResult>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SettleResult {
    #[schema(value_type = String, format = Uuid)]
    pub(crate) run: RunId,
    /// The status that this result alone would have had: 200 when it was taken.
    #[schema(minimum = 200, maximum = 599)]
    pub(crate) status: u16,
    /// Of the run as it then stands; `null` when the result was not taken.
    #[schema(required, inline)]
    pub(crate) state: Option<RunState>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<FieldError>,
}

/// A queue: what it is allowed, and what it holds.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Queue {
    #[schema(example = "emails")]
    name: String,
    /// How many runs workers may have at once; `null` when nothing limits them.
    #[schema(required)]
    concurrency: Option<u32>,
    /// How many they are handed in a while; `null` when nothing limits them.
    #[schema(required, example = "100/1m")]
    rate: Option<String>,
    /// Runs that wait and are due. Counted up to 100,000.
    depth: u64,
    /// Runs that wait for a later instant: retries, jitter. Counted likewise.
    later: u64,
    /// When the run was due that is due first.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    oldest: Option<DbTime>,
    /// Runs that workers have.
    claimed: u64,
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
        }
    }
}

/// A page of queues, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueuePage {
    pub(crate) items: Vec<Queue>,
    /// Where the next page begins; `null` on the last one.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// What a queue is allowed. What is left out is not limited.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"concurrency": 20, "rate": "100/1m"}))]
pub(crate) struct QueueRequest {
    /// How many runs workers may have at once.
    #[schema(minimum = 1, maximum = 100000)]
    concurrency: Option<i64>,
    /// How many they are handed in a while: a number, a slash and a duration up to 1d.
    #[schema(pattern = "^[1-9][0-9]{0,5}/[1-9][0-9]{0,3}(ms|s|m)$", example = "100/1m")]
    rate: Option<String>,
}

impl QueueRequest {
    pub(crate) fn read(self) -> Result<QueueLimits, Vec<Invalid>> {
        let mut wrong = Complaints::default();
        let concurrency = wrong.number("concurrency", self.concurrency, 1, QUEUE_CONCURRENCY_MAX.into());
        let rate = self.rate.and_then(|rate| wrong.keep("rate", rate.parse()));
        wrong.end(Some(QueueLimits { concurrency, rate }))
    }
}
