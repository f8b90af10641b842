//! Redriving the failed runs of a job, and cancelling all its open runs.

use everytick_domain::{
    ids::{JobId, RunId},
    invalid::Invalid,
    redrive::{REDRIVE_RUNS_DEFAULT, REDRIVE_RUNS_MAX},
    time::DbTime,
};
use everytick_engine::types::{self, JobRef};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    FieldErrors,
    run::{Run, RunState},
};

/// Creates a new run for each failed run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "2026-11-16T00:00:00Z", "limit": 100}))]
pub(crate) struct RedriveRequest {
    /// Failed runs scheduled at or after this instant; at most 7 days back.
    #[serde(default, alias = "since")]
    #[schema(required, nullable = false, format = DateTime)]
    from: Option<String>,
    /// Failed runs scheduled before this instant.
    #[serde(default, alias = "until")]
    #[schema(format = DateTime)]
    to: Option<String>,
    /// Maximum number of failed runs; the oldest are redriven first.
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<i64>,
    /// Creates nothing; only shows what would be redriven.
    #[schema(default = false)]
    dry_run: Option<bool>,
}

impl RedriveRequest {
    pub(crate) fn read(self, job: JobRef) -> Result<types::Redrive, Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let mut instant = |field: &str, text: Option<&str>| -> Option<DbTime> {
            text?.parse().map_err(|message| wrong.add(field, message)).ok()
        };
        let (from, to) = (instant("from", self.from.as_deref()), instant("to", self.to.as_deref()));
        if self.from.is_none() {
            wrong.add("from", "is missing; write an instant such as \"2026-11-16T00:00:00Z\"");
        }
        let limit = wrong.number("limit", self.limit, 1, i64::try_from(REDRIVE_RUNS_MAX).unwrap_or(i64::MAX));
        let (limit, dry_run) = (limit.unwrap_or(REDRIVE_RUNS_DEFAULT), self.dry_run.unwrap_or(false));
        wrong.end(from.map(|from| types::Redrive { job, from, to, limit, dry_run }))
    }
}

/// The redriven runs, the oldest failed run first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Redriven {
    /// The job's name.
    job: String,
    #[schema(value_type = String, format = Uuid)]
    job_id: JobId,
    items: Vec<RedrivenRun>,
    /// When there are more: repeat the request with this as `from`. `null` when these are all.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    next_from: Option<DbTime>,
    /// The same as `next_from`, for clients of the previous release.
    #[schema(required, value_type = Option<String>, format = DateTime, deprecated)]
    next_since: Option<DbTime>,
}

/// A failed run and its replacement.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RedrivenRun {
    failed: Run,
    /// The replacement. Its id is always the same for the same failed run.
    #[schema(value_type = String, format = Uuid)]
    run: RunId,
    /// State of the replacement; `null` in a dry run when it does not exist yet.
    #[schema(required, inline)]
    state: Option<RunState>,
    /// Whether this request created it; `false` when an earlier request did.
    made: bool,
}

impl From<types::Redriven> for Redriven {
    fn from(redriven: types::Redriven) -> Self {
        let item = |run: types::RedrivenRun| RedrivenRun {
            failed: run.failed.into(),
            run: run.run,
            state: run.state.map(Into::into),
            made: run.made,
        };
        Self {
            job: redriven.job_name,
            job_id: redriven.job,
            items: redriven.runs.into_iter().map(item).collect(),
            next_from: redriven.next_from,
            next_since: redriven.next_from,
        }
    }
}

/// The open runs of a job that were cancelled together.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CancelledJob {
    /// The job's name.
    job: String,
    #[schema(value_type = String, format = Uuid)]
    job_id: JobId,
    /// All cancelled runs, the oldest first.
    #[schema(value_type = Vec<String>)]
    cancelled: Vec<RunId>,
    /// The cancelled runs that were claimed; their work is being stopped.
    #[schema(value_type = Vec<String>)]
    stopped: Vec<RunId>,
    /// Whether waiting runs, too many for one transaction, are cancelled in the background. None of these runs starts.
    /// `GET` of the job shows the progress in `backlog`.
    cancelling: bool,
}

impl From<types::CancelledJob> for CancelledJob {
    fn from(cancelled: types::CancelledJob) -> Self {
        let (all, cancelling) = (cancelled.runs.all(), cancelled.runs.backlog);
        Self {
            job: cancelled.job_name,
            job_id: cancelled.job,
            cancelled: all,
            stopped: cancelled.runs.claimed,
            cancelling,
        }
    }
}
