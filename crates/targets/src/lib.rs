//! Where runs are delivered. A [`Dispatch`] goes in, an [`Outcome`] comes out; nothing here knows a store.

use everytick_domain::{
    ids::{Fence, JobId, RunId},
    target::{Outcome, TargetSpec},
    time::{DbTime, Span},
};

/// What a target is handed: one attempt at one run.
#[derive(Clone, Debug)]
pub struct Dispatch {
    pub run: RunId,
    pub job_id: JobId,
    pub job: String,
    /// `tick`, `request`, `backfill` or `parent`.
    pub cause: &'static str,
    pub scheduled_at: DbTime,
    pub attempt: u32,
    pub fence: Fence,
    pub node: String,
    /// The database's clock when the attempt starts, for the signature's timestamp.
    pub now: DbTime,
    /// JSON text, or nothing.
    pub payload: Option<String>,
    pub timeout: Span,
    pub target: TargetSpec,
}
