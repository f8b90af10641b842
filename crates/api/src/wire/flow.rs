//! Flows: the answers, and the request to rerun one.

use everytick_domain::{
    flow::FlowState as DomainState,
    ids::{JobId, RunId},
    run::State,
    time::DbTime,
};
use everytick_engine::types::{self, FlowNode, FlowRecord};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    depends::Parent,
    run::{RunState, Skip},
};

#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FlowState {
    /// A job of the flow has no run yet, or its run has not ended.
    Running,
    Succeeded,
    /// A run of the flow failed or was cancelled, or a job was skipped with the reason `error`.
    Failed,
    /// A user cancelled it: no further run starts.
    Cancelled,
}

impl From<DomainState> for FlowState {
    fn from(state: DomainState) -> Self {
        match state {
            DomainState::Running => Self::Running,
            DomainState::Succeeded => Self::Succeeded,
            DomainState::Failed => Self::Failed,
            DomainState::Cancelled => Self::Cancelled,
        }
    }
}

/// A root run and the runs of the jobs that depend on it. Its graph is fixed when the root run ends.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Flow {
    /// The id of the root run; a rerun has its own id.
    #[schema(value_type = String, format = Uuid)]
    id: RunId,
    /// The job of the root run; `null` for a rerun.
    #[schema(required)]
    root: Option<String>,
    #[schema(inline)]
    state: FlowState,
    #[schema(value_type = String, format = DateTime)]
    opened_at: DbTime,
    /// The `scheduled_at` of all its runs.
    #[schema(value_type = String, format = DateTime)]
    scheduled_at: DbTime,
    #[schema(required, value_type = Option<String>, format = Uuid)]
    rerun_of: Option<RunId>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    cancelled_at: Option<DbTime>,
    /// Ordered: parents before their children.
    nodes: Vec<Node>,
}

/// A flow as an item of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowSummary {
    /// The id of the root run; a rerun has its own id.
    #[schema(value_type = String, format = Uuid)]
    id: RunId,
    /// The job of the root run; `null` for a rerun.
    #[schema(required)]
    root: Option<String>,
    #[schema(inline)]
    state: FlowState,
    #[schema(value_type = String, format = DateTime)]
    opened_at: DbTime,
    #[schema(value_type = String, format = DateTime)]
    scheduled_at: DbTime,
    #[schema(required, value_type = Option<String>, format = Uuid)]
    rerun_of: Option<RunId>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    cancelled_at: Option<DbTime>,
    /// How many jobs it has.
    jobs: usize,
    /// How many of them have a run that has ended, or a skip.
    ended: usize,
    /// How many of them have a run that failed.
    failed: usize,
}

impl From<&FlowRecord> for FlowSummary {
    fn from(flow: &FlowRecord) -> Self {
        let states = || flow.nodes.iter().filter_map(|node| node.run.as_ref()).map(|run| run.state);
        Self {
            id: flow.id,
            root: flow.root.clone(),
            state: flow.state.into(),
            opened_at: flow.opened_at,
            scheduled_at: flow.scheduled_at,
            rerun_of: flow.rerun_of,
            cancelled_at: flow.cancelled_at,
            jobs: flow.nodes.len(),
            ended: states().filter(|state| !state.is_open()).count(),
            failed: states().filter(|state| *state == State::Failed).count(),
        }
    }
}

/// A page of flows, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowPage {
    pub(crate) items: Vec<FlowSummary>,
    /// Cursor of the next page; `null` on the last page. A page can have fewer items than `limit`, even none, and still have a
    /// cursor.
    #[schema(required)]
    pub(crate) next_cursor: Option<String>,
}

/// A job of a flow.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FlowNode)]
pub(crate) struct Node {
    job: String,
    #[schema(value_type = String, format = Uuid)]
    job_id: JobId,
    /// `null` while its parents have not ended.
    #[schema(required, value_type = Option<String>, format = Uuid)]
    run: Option<RunId>,
    #[schema(required, inline)]
    state: Option<RunState>,
    #[schema(required, inline)]
    skip_reason: Option<Skip>,
    #[schema(required)]
    error: Option<String>,
    /// The parents within this flow. A parent that is not reachable from the flow's root is not listed and not awaited.
    parents: Vec<Parent>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    started_at: Option<DbTime>,
    #[schema(required, value_type = Option<String>, format = DateTime)]
    finished_at: Option<DbTime>,
}

impl From<FlowRecord> for Flow {
    fn from(flow: FlowRecord) -> Self {
        Self {
            id: flow.id,
            root: flow.root,
            state: flow.state.into(),
            opened_at: flow.opened_at,
            scheduled_at: flow.scheduled_at,
            rerun_of: flow.rerun_of,
            cancelled_at: flow.cancelled_at,
            nodes: flow.nodes.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<FlowNode> for Node {
    fn from(node: FlowNode) -> Self {
        let run = node.run.as_ref();
        Self {
            job: node.job_name,
            job_id: node.job,
            run: run.map(|run| run.id),
            state: run.map(|run| run.state.into()),
            skip_reason: run.and_then(|run| run.skip_reason).map(Into::into),
            error: run.and_then(|run| run.error.clone()),
            parents: node.parents.into_iter().map(|(job, when)| Parent { job, when: when.into() }).collect(),
            started_at: run.and_then(|run| run.started_at),
            finished_at: run.and_then(|run| run.finished_at),
        }
    }
}

/// The answer to cancelling a flow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CancelledFlow {
    flow: Flow,
    /// The runs cancelled with it.
    #[schema(value_type = Vec<String>)]
    cancelled: Vec<RunId>,
}

impl From<types::CancelledFlow> for CancelledFlow {
    fn from(cancelled: types::CancelledFlow) -> Self {
        Self { flow: cancelled.flow.into(), cancelled: cancelled.cancelled }
    }
}

/// Reruns the failed jobs of a flow, in a new flow.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"from": ["load"]}))]
pub(crate) struct RerunRequest {
    /// Jobs of the flow, by name or id. Default: every job that failed, was cancelled, or was skipped with the reason `error`.
    #[schema(max_items = 1000)]
    pub(crate) from: Option<Vec<String>>,
}
