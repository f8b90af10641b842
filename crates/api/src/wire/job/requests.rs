//! The other bodies about jobs: pages, pause, trigger, delete, and work in the background.

use everytick_domain::{
    ids::{JobId, RunId},
    invalid::Invalid,
    job::PAYLOAD_BYTES_MAX,
    time::DbTime,
};
use everytick_engine::types;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Job;
use crate::wire::FieldErrors;

/// A page of jobs, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobPage {
    pub(crate) items: Vec<Job>,
    /// Cursor of the next page; `null` on the last page.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// Pauses a job: it has no ticks until it is resumed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"note": "until the move is done"}))]
pub(crate) struct PauseRequest {
    /// The reason, shown with the job.
    #[schema(max_length = 1024)]
    pub(crate) note: Option<String>,
    /// Also cancels the waiting and claimed runs.
    #[schema(default = false)]
    pub(crate) cancel: Option<bool>,
}

const NOTE_BYTES_MAX: usize = 1_024;

impl PauseRequest {
    pub(crate) fn check(&self) -> Result<(), Vec<Invalid>> {
        let mut wrong = FieldErrors::default();
        if let Some(note) = &self.note {
            wrong.no_nul("note", note);
            if note.len() > NOTE_BYTES_MAX {
                wrong.add("note", format!("is {} bytes long; at most {NOTE_BYTES_MAX} are allowed", note.len()));
            }
        }
        wrong.end(Some(()))
    }
}

/// Starts a run now.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"payload": {"report": "again"}}))]
pub(crate) struct TriggerRequest {
    /// Delivered by this run instead of the job's payload. Any JSON, up to 256 KiB; `null` means the job's payload.
    #[schema(value_type = Value)]
    pub(crate) payload: Option<Box<RawValue>>,
    /// Creates the run even if the job's overlap policy would skip it.
    #[schema(default = false)]
    pub(crate) force: Option<bool>,
}

impl TriggerRequest {
    pub(crate) fn payload(&self) -> Result<Option<String>, Vec<Invalid>> {
        let Some(payload) = &self.payload else { return Ok(None) };
        let size = payload.get().len();
        if size > PAYLOAD_BYTES_MAX {
            let message = format!("is {size} bytes long; at most {PAYLOAD_BYTES_MAX} (256 KiB) are delivered");
            return Err(vec![Invalid::new("payload", message)]);
        }
        Ok(Some(payload.get().to_owned()))
    }
}

/// The answer to deleting a job.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeletedJob {
    #[schema(value_type = String, format = Uuid)]
    pub(crate) id: JobId,
    pub(crate) name: String,
    /// The job has no tick after this instant; `null` when it had been deleted before.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub(crate) effective_at: Option<DbTime>,
    /// The runs cancelled with it.
    #[schema(value_type = Vec<String>)]
    pub(crate) cancelled: Vec<RunId>,
    /// Whether waiting runs, too many for one transaction, are cancelled in the background. None of these runs starts.
    pub(crate) cancelling: bool,
}

/// Waiting runs that are cancelled, or moved to the job's new target, in the background.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BacklogWork {
    /// `cancel` or `move`.
    action: &'static str,
    /// Runs already cancelled or moved.
    done: u64,
    /// Runs still to be cancelled or moved, counted up to 100,000.
    remaining: u64,
}

impl From<&types::BacklogWork> for BacklogWork {
    fn from(work: &types::BacklogWork) -> Self {
        Self { action: work.action.word(), done: work.done, remaining: work.remaining }
    }
}
