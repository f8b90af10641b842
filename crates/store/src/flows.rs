//! The flow transactions of a store, and flows as the API returns them.

mod rows;

use async_trait::async_trait;
use everytick_domain::{
    flow::{FlowState, When},
    ids::{JobId, RunId, TenantId},
    run::{SkipReason, State},
    time::DbTime,
};

use crate::{Actor, FlowFilter, IdempotencyKey, Page, Result};
pub use rows::{
    ChildRow, FlowRow, LockedChild, NextRuns, Output, Rendered, cancel_detail, opens_flow, rerun, rerun_detail, subject,
};

/// The result of one transaction on a flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Advanced {
    /// How many of its jobs got a waiting run.
    pub started: usize,
    /// Its jobs that were recorded as skipped.
    pub skipped: Vec<SkippedChild>,
    /// More of its jobs are to be started. Its steps remain in the table.
    pub more: bool,
}

/// A job of a flow that was recorded as skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SkippedChild {
    pub run: RunId,
    pub job_name: String,
    pub reason: SkipReason,
    pub error: String,
}

/// A flow as the API returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    pub id: RunId,
    pub tenant: TenantId,
    pub state: FlowState,
    /// The name of the job that opened it; `None` for a rerun.
    pub root: Option<String>,
    pub opened_at: DbTime,
    /// The nominal tick of its runs.
    pub scheduled_at: DbTime,
    pub rerun_of: Option<RunId>,
    pub cancelled_at: Option<DbTime>,
    /// Parents come before their children.
    pub nodes: Vec<FlowNode>,
}

/// A job of a flow. It has no run until its parents have ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowNode {
    pub job: JobId,
    pub job_name: String,
    pub parents: Vec<(String, When)>,
    pub run: Option<NodeRun>,
}

/// A run of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeRun {
    pub id: RunId,
    pub state: State,
    pub skip_reason: Option<SkipReason>,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    pub error: Option<String>,
}

impl NodeRun {
    /// Skipped because of an error, so its flow has failed.
    fn is_broken(&self) -> bool {
        self.skip_reason == Some(SkipReason::Error)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelledFlow {
    pub flow: FlowRecord,
    /// Runs that were claimed: the caller must stop the work.
    pub claimed: Vec<(JobId, RunId)>,
    /// All cancelled runs.
    pub cancelled: Vec<RunId>,
}

/// A request for a new flow that repeats the failed jobs of an old one and all their descendants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RerunFlow {
    pub flow: RunId,
    /// Jobs of the flow by name or id. If empty: every job that failed, was cancelled, or was skipped because of an
    /// error.
    pub from: Vec<String>,
    /// Random, or derived from the request's key.
    pub key: Vec<u8>,
    pub idempotency: Option<IdempotencyKey>,
}

/// The flow transactions of a [`crate::Store`]. Each transaction that ends a run with children, or a run of a flow,
/// also writes a step. Advancing a flow reads its steps, records its next runs, and removes the steps, in one
/// transaction per flow.
#[async_trait]
pub trait FlowStore: Send + Sync + 'static {
    /// Flows that have steps, by id, after the given one; at most `limit`.
    async fn flows_with_steps(&self, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>>;
    /// Advances one flow. Renders payloads before the transaction begins. After an error the steps remain.
    async fn advance_flow(&self, flow: RunId) -> Result<Advanced>;
    /// Records the next jobs of a flow that cannot be advanced as skipped with the reason `error` and this text.
    async fn give_up_flow(&self, flow: RunId, why: &str) -> Result<Advanced>;
    /// Whether this store wrote steps since the last call. Only a hint: other processes write steps too.
    fn take_steps_written(&self) -> bool;
    /// Returns a flow. If its root has not ended, the flow shows the current graph.
    async fn get_flow(&self, tenant: TenantId, flow: RunId) -> Result<FlowRecord>;
    /// Flows, newest first, before the given id. A flow whose root has not ended is listed only if the root is among the
    /// newest [`crate::tx::flow::ROOTS_SEARCHED_MAX`] runs of the page's time. A page may have fewer items than `limit`, and a
    /// position of the next page.
    async fn list_flows(
        &self,
        tenant: TenantId,
        filter: &FlowFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<FlowRecord, RunId>>;
    /// Cancels the open runs of a flow. It starts no more runs. An ended flow is refused: [`StoreError::FlowEnded`].
    async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, flow: RunId) -> Result<CancelledFlow>;
    /// Creates a new flow, whose first runs wait.
    async fn rerun_flow(&self, tenant: TenantId, actor: &Actor, ask: RerunFlow) -> Result<FlowRecord>;
}
