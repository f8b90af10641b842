//! Runs and attempts as the API returns them, and the result that a receiver reports.

use std::borrow::Cow;

use everytick_domain::{
    ids::{Fence, JobId, RunId},
    invalid::Invalid,
    output::split,
    run::{CauseKind, SkipReason, State as DomainState},
    time::DbTime,
};
use everytick_engine::{
    commands::Report,
    types::{AttemptRecord, RunRecord},
};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, schema::Type},
};

use super::FieldErrors;

/// Defines a wire form for a domain enum: its words. A new value of the domain needs no change here.
macro_rules! words {
    ($($name:ident = $domain:ident)*) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name($domain);

        impl From<$domain> for $name {
            fn from(domain: $domain) -> Self {
                Self(domain)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.0.word())
            }
        }
        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
        impl PartialSchema for $name {
            /// `unknown` is a value that a node of a later release wrote.
            fn schema() -> RefOr<Schema> {
                let words = $domain::ALL.iter().map(|value| value.word()).chain(["unknown"]);
                ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).build().into()
            }
        }
    )*};
}
words! {
    RunState = DomainState
    Skip = SkipReason
    Cause = CauseKind
}

/// One execution of a job; or, with `from`, `to` and `count`, a range of skipped ticks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Run {
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
    #[schema(value_type = String, format = DateTime)]
    due_at: DbTime,
    #[schema(inline)]
    state: RunState,
    attempt: u32,
    /// How many attempts were lost because their node or worker disappeared.
    lost: u32,
    /// Number of the claim. A report must contain it.
    fence: i64,
    #[schema(required)]
    node: Option<String>,
    #[schema(required)]
    worker: Option<String>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    started_at: Option<DbTime>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    finished_at: Option<DbTime>,
    #[schema(required, minimum = 0)]
    duration_ms: Option<u64>,
    #[schema(required)]
    error: Option<String>,
    /// The end of the output or of the response body, up to 64 KiB; omitted from lists. If its beginning is not stored,
    /// the first line states how many bytes are missing.
    #[schema(required)]
    output: Option<String>,
    /// How many bytes of the output are not stored, before the stored ones; `null` without `output`.
    #[schema(required, minimum = 0)]
    output_truncated_bytes: Option<u64>,
    #[schema(required, inline)]
    skip_reason: Option<Skip>,
    /// The flow that it belongs to or starts; `null` when it has none.
    #[schema(required, value_type = Option<String>, format = Uuid)]
    flow: Option<RunId>,
    /// Who cancelled it; `null` for a run that was not cancelled, or that a newer run superseded.
    #[schema(required)]
    cancelled_by: Option<String>,
    /// The first tick of a skipped range.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    from: Option<DbTime>,
    /// The last tick of a skipped range.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    to: Option<DbTime>,
    /// Number of ticks in the range.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    count: Option<u64>,
}

impl From<RunRecord> for Run {
    fn from(run: RunRecord) -> Self {
        Self {
            id: run.id,
            job: run.job_name,
            job_id: run.job,
            cause: run.cause.into(),
            scheduled_at: run.scheduled_at,
            due_at: run.due_at,
            state: run.state.into(),
            attempt: run.attempt,
            lost: run.lost,
            fence: run.fence.raw(),
            node: run.node,
            worker: run.worker,
            started_at: run.started_at,
            finished_at: run.finished_at,
            duration_ms: duration_ms(run.started_at, run.finished_at),
            error: run.error,
            output_truncated_bytes: truncated(run.output.as_deref()),
            output: run.output,
            skip_reason: run.skip_reason.map(Into::into),
            flow: run.flow,
            cancelled_by: run.cancelled_by,
            from: run.range.map(|range| range.from),
            to: run.range.map(|range| range.to),
            count: run.range.map(|range| range.count),
        }
    }
}

fn truncated(output: Option<&str>) -> Option<u64> {
    output.map(|output| split(output).0)
}

fn duration_ms(started: Option<DbTime>, finished: Option<DbTime>) -> Option<u64> {
    Some(finished?.since(started?).as_millis())
}

/// A page of runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunPage {
    pub(crate) items: Vec<Run>,
    /// Cursor of the next page; `null` on the last page. A page searches a limited number of runs, so it can have fewer items than
    /// `limit`, even none, and still have a cursor.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
    /// How far back this page has searched; `null` on the last page.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub(crate) searched_to: Option<DbTime>,
}

/// A summary of the job's last run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LastRun {
    #[schema(value_type = String, format = Uuid)]
    id: RunId,
    #[schema(inline)]
    state: RunState,
    #[schema(inline)]
    cause: Cause,
    #[schema(value_type = String, format = DateTime)]
    scheduled_at: DbTime,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    started_at: Option<DbTime>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    finished_at: Option<DbTime>,
    #[schema(required)]
    error: Option<String>,
    #[schema(required, inline)]
    skip_reason: Option<Skip>,
}

impl From<&RunRecord> for LastRun {
    fn from(run: &RunRecord) -> Self {
        Self {
            id: run.id,
            state: run.state.into(),
            cause: run.cause.into(),
            scheduled_at: run.scheduled_at,
            started_at: run.started_at,
            finished_at: run.finished_at,
            error: run.error.clone(),
            skip_reason: run.skip_reason.map(Into::into),
        }
    }
}

/// One attempt at a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Attempt {
    attempt: u32,
    fence: i64,
    #[schema(required)]
    node: Option<String>,
    #[schema(required)]
    worker: Option<String>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    started_at: Option<DbTime>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    finished_at: Option<DbTime>,
    #[schema(required, minimum = 0)]
    duration_ms: Option<u64>,
    /// `succeeded`, `failed`, `lost` or `cancelled`; `null` while it is in progress.
    #[schema(required, example = "succeeded")]
    outcome: Option<String>,
    #[schema(required)]
    error: Option<String>,
    #[schema(required)]
    output: Option<String>,
    /// How many bytes of the output are not stored, before the stored ones; `null` without `output`.
    #[schema(required, minimum = 0)]
    output_truncated_bytes: Option<u64>,
}

impl From<AttemptRecord> for Attempt {
    fn from(attempt: AttemptRecord) -> Self {
        Self {
            attempt: attempt.attempt,
            fence: attempt.fence.raw(),
            node: attempt.node,
            worker: attempt.worker,
            started_at: attempt.started_at,
            finished_at: attempt.finished_at,
            duration_ms: duration_ms(attempt.started_at, attempt.finished_at),
            outcome: attempt.outcome,
            error: attempt.error,
            output_truncated_bytes: truncated(attempt.output.as_deref()),
            output: attempt.output,
        }
    }
}

/// Every attempt at a run, the first attempt first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptPage {
    pub(crate) items: Vec<Attempt>,
    /// Always `null`: all attempts fit in one page.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// The result that a worker reports, or that a receiver reports after it answered 202 with `everytick-async: true`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"fence": 1763200000000000_i64, "outcome": "succeeded", "output": "done"}))]
pub(crate) struct SettleRequest {
    /// The `fence` of the claim, or the header `everytick-fence` of the delivery.
    #[schema(required, nullable = false, minimum = 0)]
    fence: Option<i64>,
    #[schema(required, nullable = false, inline)]
    outcome: Option<SettleOutcome>,
    /// What the work printed. It is stored behind the log; of both, the last 64 KiB are stored.
    output: Option<String>,
    /// Why it failed; only with `failed`.
    error: Option<String>,
    /// Whether to retry a failure.
    #[schema(default = true)]
    retry: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SettleOutcome {
    Succeeded,
    Failed,
}

impl SettleRequest {
    pub(crate) const fn new(
        fence: Option<i64>,
        outcome: Option<SettleOutcome>,
        output: Option<String>,
        error: Option<String>,
        retry: Option<bool>,
    ) -> Self {
        Self { fence, outcome, output, error, retry }
    }

    pub(crate) fn read(self) -> Result<Report, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        if self.fence.is_none() {
            wrong.add("fence", "is missing; send the fence of the claim, or the everytick-fence of the delivery");
        }
        if self.outcome.is_none() {
            wrong.add("outcome", "is missing; write \"succeeded\" or \"failed\"");
        }
        if self.outcome == Some(SettleOutcome::Succeeded) && self.error.is_some() {
            wrong.add("error", "is allowed only with the outcome \"failed\"");
        }
        for (field, text) in [("output", &self.output), ("error", &self.error)] {
            wrong.no_nul(field, text.as_deref().unwrap_or_default());
        }
        let report = self.fence.zip(self.outcome).map(|(fence, outcome)| Report {
            fence: Fence::from_raw(fence),
            succeeded: outcome == SettleOutcome::Succeeded,
            output: self.output,
            error: self.error,
            retry: self.retry.unwrap_or(true),
        });
        wrong.end(report)
    }
}
