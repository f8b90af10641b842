//! Backfills: the request, and the progress that the API returns.

use everytick_domain::{
    backfill::{BackfillState as DomainState, Order as DomainOrder, Stretch},
    ids::{BackfillId, JobId},
    invalid::Invalid,
    queue::Rate,
    time::{DbTime, Span},
};
use everytick_engine::{
    commands::Backfill as Command,
    types::{BackfillPreview, BackfillRecord, IdempotencyKey, JobRef},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::FieldErrors;

/// Which ticks get their runs first.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    #[default]
    Oldest,
    Newest,
}

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BackfillState {
    Running,
    Done,
    Cancelled,
    /// Written by a node of a later release.
    Unknown,
}

same_words!(Order = DomainOrder { Oldest, Newest });

impl From<DomainState> for BackfillState {
    fn from(state: DomainState) -> Self {
        match state {
            DomainState::Running => Self::Running,
            DomainState::Done => Self::Done,
            DomainState::Cancelled => Self::Cancelled,
            DomainState::Unknown(_) => Self::Unknown,
        }
    }
}

/// Creates a run for each tick of a past period.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "2026-11-01T00:00:00Z", "to": "2026-11-15T00:00:00Z", "rate": "10/1m"}))]
pub(crate) struct BackfillRequest {
    /// Start of the period, included. Not before the kept history.
    #[serde(default)]
    #[schema(required, nullable = false, format = DateTime)]
    from: Option<String>,
    /// End of the period, excluded. Not after now.
    #[serde(default)]
    #[schema(required, nullable = false, format = DateTime)]
    to: Option<String>,
    /// Maximum number of runs created in a period, such as `10/1m`. No rate limit when absent.
    #[schema(pattern = "^[0-9]{1,7}/[0-9a-z]{2,20}$", example = "10/1m")]
    rate: Option<String>,
    #[schema(inline, default = "oldest")]
    order: Option<Order>,
    /// Delivered by its runs instead of the job's payload. Any JSON, up to 256 KiB; `null` means the job's payload.
    #[schema(value_type = Value)]
    payload: Option<Box<RawValue>>,
    /// Creates nothing; only shows the ticks.
    #[schema(default = false)]
    dry_run: Option<bool>,
}

impl BackfillRequest {
    /// The backfill, and whether it is a dry run.
    pub(crate) fn read(
        self,
        job: JobRef,
        history: Span,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<(Command, bool), Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        let mut instant = |field: &str, text: Option<&str>| -> Option<DbTime> {
            match text {
                None => wrong.add(field, "is missing; write an instant such as \"2026-11-16T00:00:00Z\""),
                Some(text) => return wrong.ok(field, text.parse()),
            }
            None
        };
        let (from, to) = (instant("from", self.from.as_deref()), instant("to", self.to.as_deref()));
        let rate = self.rate.as_deref().and_then(|text| wrong.ok("rate", text.parse::<Rate>()));
        let order = self.order.unwrap_or_default().into();
        let stretch = from.zip(to).map(|(from, to)| Stretch { from, to, order });
        let payload = self.payload.map(|payload| payload.get().to_owned());
        let dry_run = self.dry_run.unwrap_or(false);
        wrong.end(stretch.map(|stretch| (Command { job, stretch, rate, payload, history, idempotency }, dry_run)))
    }
}

/// A backfill and its progress.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Backfill {
    /// `null` in a dry run, which creates no backfill.
    #[schema(required, value_type = Option<String>, format = Uuid)]
    id: Option<BackfillId>,
    /// The job's name.
    job: String,
    #[schema(value_type = String, format = Uuid)]
    job_id: JobId,
    #[schema(value_type = String, format = DateTime)]
    from: DbTime,
    #[schema(value_type = String, format = DateTime)]
    to: DbTime,
    #[schema(inline)]
    order: Order,
    #[schema(required, example = "10/1m")]
    rate: Option<String>,
    /// `running` until all its runs are created and have ended; `null` in a dry run.
    #[schema(required, inline)]
    state: Option<BackfillState>,
    /// Number of ticks that it covers.
    total: u64,
    /// Number of ticks whose runs have been created.
    made: u32,
    /// Number of those runs that have ended: `succeeded` + `failed` + `cancelled`.
    ended: u32,
    succeeded: u32,
    failed: u32,
    cancelled: u32,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    created_at: Option<DbTime>,
    #[schema(required)]
    created_by: Option<String>,
    /// When all its runs had ended, or when it was cancelled.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    finished_at: Option<DbTime>,
    /// Why it was cancelled.
    #[schema(required)]
    note: Option<String>,
    /// In a dry run: the first ticks, in the order in which their runs would be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    first: Option<Vec<DbTime>>,
    /// In a dry run: the last ticks, without those in `first`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    last: Option<Vec<DbTime>>,
}

impl From<BackfillRecord> for Backfill {
    fn from(record: BackfillRecord) -> Self {
        let Stretch { from, to, order } = record.stretch;
        Self {
            id: Some(record.id),
            job: record.job_name,
            job_id: record.job,
            from,
            to,
            order: order.into(),
            rate: record.rate.map(|rate| rate.to_string()),
            state: Some(record.state.into()),
            total: record.total.into(),
            made: record.made,
            ended: record.ended.all(),
            succeeded: record.ended.succeeded,
            failed: record.ended.failed,
            cancelled: record.ended.cancelled,
            created_at: Some(record.created_at),
            created_by: Some(record.created_by),
            finished_at: record.finished_at,
            note: record.note,
            first: None,
            last: None,
        }
    }
}

impl Backfill {
    /// The answer to a dry run.
    pub(crate) fn dry(command: &Command, preview: BackfillPreview) -> Self {
        let Stretch { from, to, order } = command.stretch;
        Self {
            id: None,
            job: preview.job_name,
            job_id: preview.job,
            from,
            to,
            order: order.into(),
            rate: command.rate.map(|rate| rate.to_string()),
            state: None,
            total: preview.total as u64,
            made: 0,
            ended: 0,
            succeeded: 0,
            failed: 0,
            cancelled: 0,
            created_at: None,
            created_by: None,
            finished_at: None,
            note: None,
            first: Some(preview.first),
            last: Some(preview.last),
        }
    }
}

/// A page of backfills, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BackfillPage {
    pub(crate) items: Vec<Backfill>,
    /// Cursor of the next page; `null` on the last page.
    pub(crate) next_cursor: Option<String>,
}
