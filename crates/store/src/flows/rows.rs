//! A flow as stored: the API's view of it, and the rows of its next runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use everytick_domain::{
    flow::{self, Ancestor, Child, Decided, Decision, Ended, Fate, Graph, Judged, Node},
    ids::{Cause, JobId, RunId, TenantId},
    job::{Job, JobSpec},
    overlap::OpenRuns,
    queue::lead,
    run::{CauseKind, SkipReason, State},
    time::DbTime,
};

use super::{Advanced, FlowNode, FlowRecord, NodeRun, RerunFlow, SkippedChild};
use crate::{Result, StoreError};

/// The size of the rendered payloads for one transaction. The payload that passes the limit is still included.
const RENDERED_BYTES_MAX: usize = 4 << 20;

/// A flow as stored.
#[derive(Clone, Debug)]
pub struct FlowRow {
    pub id: RunId,
    pub tenant: TenantId,
    pub opened_at: DbTime,
    pub scheduled_at: DbTime,
    pub rerun_of: Option<RunId>,
    pub cancelled_at: Option<DbTime>,
    pub graph: Graph,
}

impl FlowRow {
    /// The flow that a run opens.
    pub fn opened(root: RunId, (tenant, scheduled_at): (TenantId, DbTime), graph: Graph, now: DbTime) -> Self {
        Self { id: root, tenant, opened_at: now, scheduled_at, rerun_of: None, cancelled_at: None, graph }
    }

    pub fn run_ids(&self) -> Vec<RunId> {
        self.graph.runs(self.id).map(|(_, run)| run).collect()
    }

    /// The states of its runs, by job.
    pub fn states(&self, runs: &BTreeMap<RunId, NodeRun>) -> BTreeMap<JobId, State> {
        let state = |(node, run): (&Node, RunId)| runs.get(&run).map(|run| (node.job, run.state));
        self.graph.runs(self.id).filter_map(state).collect()
    }

    pub fn record(&self, runs: &BTreeMap<RunId, NodeRun>) -> FlowRecord {
        let node = |(node, run): (&Node, RunId)| FlowNode {
            job: node.job,
            job_name: node.name.clone(),
            parents: node.parents.iter().map(|edge| (self.graph.name(edge.job).to_owned(), edge.when)).collect(),
            run: runs.get(&run).cloned(),
        };
        FlowRecord {
            id: self.id,
            tenant: self.tenant,
            state: self.graph.state(
                &self.states(runs),
                runs.values().any(NodeRun::is_broken),
                self.cancelled_at.is_some(),
            ),
            root: self.graph.root.map(|root| self.graph.name(root).to_owned()),
            opened_at: self.opened_at,
            scheduled_at: self.scheduled_at,
            rerun_of: self.rerun_of,
            cancelled_at: self.cancelled_at,
            nodes: self.graph.runs(self.id).map(node).collect(),
        }
    }

    /// The decisions to record in one transaction; `None` if the flow has ended.
    pub fn decide(&self, runs: &BTreeMap<RunId, NodeRun>) -> Option<Decided> {
        self.graph.next_step(&self.states(runs), self.cancelled_at.is_some())
    }

    /// The runs whose outputs the payloads of these jobs may use.
    pub fn parents_of(&self, jobs: &[JobId]) -> Vec<RunId> {
        let nodes = jobs.iter().filter_map(|job| self.graph.node(*job));
        let runs = nodes.flat_map(|node| &node.parents).map(|edge| self.graph.parent_run(self.id, edge.job));
        runs.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Adds the outputs of parents that are skipped in the same transaction as their children: they have no rows yet.
    pub fn add_skipped(&self, decided: &Decided, outputs: &mut BTreeMap<RunId, Output>) {
        for decision in &decided.all {
            if let Fate::Skip(why) = &decision.fate {
                let skipped = Output { state: State::Skipped, output: None, error: Some(why.clone()) };
                outputs.entry(self.graph.run_of(self.id, decision.job)).or_insert(skipped);
            }
        }
    }

    /// Renders the payload of one child.
    pub fn render(&self, job: &Job, outputs: &BTreeMap<RunId, Output>) -> Payload {
        flow::render(job.spec.payload.as_deref(), self.id, &self.ancestors(job.id, outputs))
    }

    /// The rows of children whose parents have ended, judged by their state under the lock. A child whose payload has
    /// changed since it was rendered is left to the next transaction.
    pub fn children(
        &self,
        decided: &Decided,
        locked: &BTreeMap<JobId, LockedChild>,
        rendered: &Rendered,
        waiting_max: u64,
        now: DbTime,
    ) -> Children {
        let row = |decision: &Decision| {
            let found = locked.get(&decision.job);
            let payload = match (&decision.fate, found) {
                (Fate::Start, Some(found)) => rendered.of(&found.job)?,
                _ => Ok(None),
            };
            let judged = decision.judge(judged_child(found, waiting_max), |_| payload);
            Some(self.child_row(decision, judged, found, now))
        };
        let rows: Vec<ChildRow> = decided.all.iter().filter_map(row).collect();
        let more = decided.more || rows.len() < decided.all.len();
        Children { rows, more }
    }

    /// The rows of children that cannot be started.
    pub fn given_up(&self, decided: &Decided, why: &str, now: DbTime) -> Children {
        let row = |decision: &Decision| self.child_row(decision, decision.give_up(why), None, now);
        Children { rows: decided.all.iter().map(row).collect(), more: decided.more }
    }

    fn child_row(&self, decision: &Decision, judged: Judged, child: Option<&LockedChild>, now: DbTime) -> ChildRow {
        let run = self.graph.run_of(self.id, decision.job);
        let judged_itself = decision.fate == Fate::Start;
        ChildRow::new(run, decision.job, CauseKind::Parent, judged, judged_itself, child, now)
    }

    /// Summarizes the recorded children.
    pub fn advanced<'a>(&self, recorded: impl Iterator<Item = &'a ChildRow>) -> Advanced {
        let mut advanced = Advanced::default();
        for child in recorded {
            match child.reason {
                None => advanced.started += 1,
                Some(reason) => advanced.skipped.push(SkippedChild {
                    run: child.run,
                    job_name: self.graph.name(child.job).to_owned(),
                    reason,
                    error: child.error.clone().unwrap_or_default(),
                }),
            }
        }
        advanced
    }

    /// The runs that a rerun starts. Each reuses the payload of the run that it repeats, if that run had its own.
    pub fn starts(
        &self,
        locked: &BTreeMap<JobId, LockedChild>,
        payloads: &BTreeMap<JobId, String>,
        outputs: &BTreeMap<RunId, Output>,
        waiting_max: u64,
        now: DbTime,
    ) -> Vec<ChildRow> {
        let row = |node: &Node| {
            let was = payloads.get(&node.job).cloned();
            let found = locked.get(&node.job);
            let judged = flow::judge_rerun(judged_child(found, waiting_max), was, |job| self.render(job, outputs));
            let run = self.graph.run_of(self.id, node.job);
            ChildRow::new(run, node.job, CauseKind::Request, judged, true, found, now)
        };
        self.graph.nodes.iter().filter(|node| node.starts).map(row).collect()
    }

    fn ancestors<'a>(&'a self, job: JobId, outputs: &'a BTreeMap<RunId, Output>) -> BTreeMap<&'a str, Ancestor<'a>> {
        let edges = self.graph.node(job).into_iter().flat_map(|node| &node.parents);
        let ancestor = |parent: JobId| {
            let run = self.graph.parent_run(self.id, parent);
            // A parent without a row yet is being skipped in the same transaction.
            let found = outputs.get(&run);
            let ancestor = Ancestor {
                run,
                state: found.map_or(State::Skipped, |found| found.state),
                output: found.and_then(|found| found.output.as_deref()),
                error: found.and_then(|found| found.error.as_deref()),
            };
            (self.graph.name(parent), ancestor)
        };
        edges.map(|edge| ancestor(edge.job)).collect()
    }
}

fn judged_child(child: Option<&LockedChild>, waiting_max: u64) -> Child<'_> {
    Child {
        job: child.map(|child| &child.job),
        open: child.map_or(OpenRuns::NONE, |child| child.open),
        waiting: child.map_or(0, |child| child.waiting),
        waiting_max,
    }
}

/// A child job, read under its lock.
#[derive(Clone, Debug)]
pub struct LockedChild {
    pub job: Job,
    pub open: OpenRuns,
    pub waiting: u64,
}

/// The result of a parent's run.
#[derive(Clone, Debug)]
pub struct Output {
    pub state: State,
    pub output: Option<String>,
    pub error: Option<String>,
}

/// A rendered payload: `None` if the job's own payload is delivered. The error names what is missing.
pub type Payload = Result<Option<String>, String>;

/// The payloads of children, rendered outside the transaction that records them.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    by_job: BTreeMap<JobId, (Arc<JobSpec>, Payload)>,
    bytes: usize,
}

impl Rendered {
    pub fn add(&mut self, job: &Job, payload: Payload) {
        self.bytes += payload.as_ref().map_or(0, |payload| payload.as_ref().map_or(0, String::len));
        self.by_job.insert(job.id, (job.spec.clone(), payload));
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= RENDERED_BYTES_MAX
    }

    /// The rendered payload of a job. `None` if it was not rendered, or has been edited since.
    fn of(&self, job: &Job) -> Option<Payload> {
        if !flow::is_template(job.spec.payload.as_deref()) {
            return Some(Ok(None));
        }
        let (spec, payload) = self.by_job.get(&job.id)?;
        (spec.payload == job.spec.payload).then(|| payload.clone())
    }
}

/// Rows to insert.
#[derive(Clone, Debug, Default)]
pub struct Children {
    pub rows: Vec<ChildRow>,
    /// More rows follow in another transaction: the flow keeps its steps.
    pub more: bool,
}

/// The next runs of a flow: started with rendered payloads, or recorded as skipped with this error.
#[derive(Clone, Copy, Debug)]
pub enum NextRuns<'a> {
    Start(&'a Rendered),
    Skip(&'a str),
}

/// A run of a flow to insert.
#[derive(Clone, Debug)]
pub struct ChildRow {
    pub run: RunId,
    pub job: JobId,
    pub cause: CauseKind,
    pub state: State,
    pub reason: Option<SkipReason>,
    pub error: Option<String>,
    pub payload: Option<String>,
    pub partition: u16,
    pub priority: u8,
    pub queue: Option<String>,
    pub rank: Option<i64>,
    pub key: Option<String>,
    /// The child was skipped for a reason of its own, so the decision about its own children has not been taken yet.
    pub leaves_step: bool,
}

impl ChildRow {
    fn new(
        run: RunId,
        job: JobId,
        cause: CauseKind,
        judged: Judged,
        judged_itself: bool,
        child: Option<&LockedChild>,
        now: DbTime,
    ) -> Self {
        let (state, reason, error, payload) = match judged {
            Judged::Wait { payload } => (State::Waiting, None, None, payload),
            Judged::Skip(reason, why) => (State::Skipped, Some(reason), Some(why), None),
        };
        let spec: Option<&JobSpec> = child.map(|child| &*child.job.spec);
        let priority = spec.map_or(0, |spec| spec.priority);
        let queue = spec.and_then(|spec| spec.target.queue()).map(str::to_owned);
        Self {
            run,
            job,
            cause,
            state,
            reason,
            error,
            partition: child.map_or(0, |child| child.job.partition),
            priority,
            rank: queue.as_ref().map(|_| now.millis() - lead(priority, false)),
            queue,
            key: spec.and_then(|spec| spec.key_of(payload.as_deref())),
            payload,
            leaves_step: judged_itself && state == State::Skipped,
        }
    }

    pub fn waits(&self) -> bool {
        self.state == State::Waiting
    }
}

/// The new flow of a rerun.
pub fn rerun(old: &FlowRow, runs: &BTreeMap<RunId, NodeRun>, ask: &RerunFlow, now: DbTime) -> Result<FlowRow> {
    let ended = |(node, id): (&Node, RunId)| {
        runs.get(&id).map(|run| (node.job, Ended { run: id, state: run.state, broken: run.is_broken() }))
    };
    let ended: BTreeMap<JobId, Ended> = old.graph.runs(old.id).filter_map(ended).collect();
    let graph = flow::rerun(&old.graph, &ended, &ask.from).map_err(StoreError::Invalid)?;
    let first = graph.nodes.first().map_or_else(|| JobId::from_uuid(old.id.uuid()), |node| node.job);
    let key = [b"rerun:".as_slice(), old.id.uuid().as_bytes(), &ask.key].concat();
    Ok(FlowRow {
        id: RunId::of(first, Cause::Request { at: now, key: &key }),
        tenant: old.tenant,
        opened_at: now,
        scheduled_at: old.scheduled_at,
        rerun_of: Some(old.id),
        cancelled_at: None,
        graph,
    })
}

/// A run without a flow row counts as a flow only if it will open one and has children.
pub fn opens_flow(root_opens: bool, graph: &Graph) -> bool {
    root_opens && graph.nodes.len() > 1
}

/// The audit details.
pub fn cancel_detail(cancelled: usize) -> String {
    serde_json::json!({ "cancelled": cancelled }).to_string()
}
pub fn rerun_detail(row: &FlowRow) -> String {
    let starts: Vec<_> = row.graph.nodes.iter().filter(|node| node.starts).map(|node| &node.name).collect();
    serde_json::json!({ "rerun_of": row.rerun_of.map(|old| old.to_string()), "from": starts }).to_string()
}
/// The audit subject of a flow.
pub fn subject(flow: RunId) -> String {
    format!("flow/{flow}")
}
