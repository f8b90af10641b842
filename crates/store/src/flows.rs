//! What is asked of a store about flows, and what its keepers share: how a row of a flow and the runs of it become what people
//! read, and what becomes of children whose turn has come.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use everytick_domain::{
    flow::{self, Ancestor, Child, Decision, Edges, Ended, Fate, FlowState, Graph, Judged, Node, When},
    ids::{Cause, JobId, RunId, TenantId},
    invalid::Invalid,
    job::{Job, JobSpec},
    overlap::OpenRuns,
    queue::lead,
    run::{CauseKind, SkipReason, State},
    time::DbTime,
};

use crate::{Actor, Created, IdempotencyKey, NewJob, Result, StoreError, calendars::JOBS_NAMED_MAX};

/// One pass over the flows that have something to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Advanced {
    /// How many flows were looked at.
    pub flows: usize,
    /// How many of their jobs have a run that waits now.
    pub started: usize,
    /// The last flow of a full page: there may be more behind it.
    pub last: Option<RunId>,
}

/// A flow as people read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRecord {
    pub id: RunId,
    pub tenant: TenantId,
    pub state: FlowState,
    /// The name of the job that opened it; `None` for a rerun.
    pub root: Option<String>,
    pub opened_at: DbTime,
    /// The instant that its runs stand for.
    pub scheduled_at: DbTime,
    pub rerun_of: Option<RunId>,
    pub cancelled_at: Option<DbTime>,
    /// Parents come before their children.
    pub nodes: Vec<FlowNode>,
}

/// A job of a flow. One whose turn has not come has no run.
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

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelledFlow {
    pub flow: FlowRecord,
    /// Runs that were being worked on: the work is to be stopped.
    pub claimed: Vec<(JobId, RunId)>,
    /// All that were cancelled.
    pub cancelled: Vec<RunId>,
}

/// Asks for a new flow of what failed in one, and of all that follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RerunFlow {
    pub flow: RunId,
    /// Jobs of the flow by name or id; every one that failed or was cancelled when there are none.
    pub from: Vec<String>,
    /// A fresh key, or one made of the request's.
    pub key: Vec<u8>,
    pub idempotency: Option<IdempotencyKey>,
}

/// The part of a [`crate::Store`] that keeps flows. Whatever ends a run that has children, or that belongs to a flow, leaves a
/// step in its own transaction; advancing reads steps, records what comes next, and removes them, in one transaction a flow.
#[async_trait]
pub trait FlowStore: Send + Sync + 'static {
    /// Advances flows that have steps, by id, after the given one; at most `limit`. One that cannot be advanced holds up no
    /// other: it is logged, and its steps stay.
    async fn advance_flows(&self, after: Option<RunId>, limit: usize) -> Result<Advanced>;
    /// Whether steps were left through this store since it was asked last. Only a hint: others leave steps too.
    fn left_steps(&self) -> bool;
    /// A flow, also one whose root has not ended: then as the graph is at present.
    async fn get_flow(&self, tenant: TenantId, flow: RunId) -> Result<FlowRecord>;
    /// Cancels what is open of a flow; it starts nothing more.
    async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, flow: RunId) -> Result<CancelledFlow>;
    /// Makes one new flow, whose first runs wait.
    async fn rerun_flow(&self, tenant: TenantId, actor: &Actor, ask: RerunFlow) -> Result<FlowRecord>;
}

/// A flow's row.
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
            state: self.graph.state(&self.states(runs), self.cancelled_at.is_some()),
            root: self.graph.root.map(|root| self.graph.name(root).to_owned()),
            opened_at: self.opened_at,
            scheduled_at: self.scheduled_at,
            rerun_of: self.rerun_of,
            cancelled_at: self.cancelled_at,
            nodes: self.graph.runs(self.id).map(node).collect(),
        }
    }

    /// What is to be recorded, where anything is. `None` when the runs that opened the flow are gone: it is over.
    pub fn decide(&self, runs: &BTreeMap<RunId, NodeRun>) -> Option<Vec<Decision>> {
        let states = self.states(runs);
        self.graph.stands(&states).then(|| self.graph.advance(&states, self.cancelled_at.is_some()))
    }

    /// The runs whose outputs the payloads of these jobs may take from.
    pub fn parents_of(&self, jobs: &[JobId]) -> Vec<RunId> {
        let nodes = jobs.iter().filter_map(|job| self.graph.node(*job));
        let runs = nodes.flat_map(|node| &node.parents).map(|edge| self.graph.parent_run(self.id, edge.job));
        runs.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The rows of children whose turn has come, as they stand under their locks.
    pub fn children(
        &self,
        decided: &[Decision],
        standing: &BTreeMap<JobId, Standing>,
        outputs: &BTreeMap<RunId, Output>,
        waiting_max: u64,
        now: DbTime,
    ) -> Vec<ChildRow> {
        let row = |decision: &Decision| {
            let run = self.graph.run_of(self.id, decision.job);
            let judged = match &decision.fate {
                Fate::Skip(why) => Judged::Skip(SkipReason::Parent, why.clone()),
                Fate::Start => {
                    let parents = self.ancestors(decision.job, outputs);
                    flow::judge(child(standing.get(&decision.job), waiting_max), self.id, &parents)
                }
            };
            let judged_itself = decision.fate == Fate::Start;
            let standing = standing.get(&decision.job);
            ChildRow::new(run, decision.job, CauseKind::Parent, judged, judged_itself, standing, now)
        };
        decided.iter().map(row).collect()
    }

    /// The runs that a rerun asks for, each with the payload of the one in its place, where that had one of its own.
    pub fn starts(
        &self,
        standing: &BTreeMap<JobId, Standing>,
        payloads: &BTreeMap<JobId, String>,
        outputs: &BTreeMap<RunId, Output>,
        waiting_max: u64,
        now: DbTime,
    ) -> Vec<ChildRow> {
        let row = |node: &Node| {
            let was = payloads.get(&node.job).cloned();
            let stands = standing.get(&node.job);
            let parents = self.ancestors(node.job, outputs);
            let judged = match flow::judge(child(stands, waiting_max), self.id, &parents) {
                Judged::Skip(SkipReason::Error, _) if was.is_some() && stands.is_some_and(Standing::lives) => {
                    Judged::Wait { payload: was }
                }
                Judged::Wait { payload } => Judged::Wait { payload: was.or(payload) },
                skip @ Judged::Skip(..) => skip,
            };
            let run = self.graph.run_of(self.id, node.job);
            ChildRow::new(run, node.job, CauseKind::Request, judged, true, stands, now)
        };
        self.graph.nodes.iter().filter(|node| node.starts).map(row).collect()
    }

    fn ancestors<'a>(&'a self, job: JobId, outputs: &'a BTreeMap<RunId, Output>) -> BTreeMap<&'a str, Ancestor<'a>> {
        let edges = self.graph.node(job).into_iter().flat_map(|node| &node.parents);
        let ancestor = |parent: JobId| {
            let run = self.graph.parent_run(self.id, parent);
            // One that is not on the record yet is being skipped beside this one.
            let (state, output) =
                outputs.get(&run).map_or((State::Skipped, None), |found| (found.state, found.output.as_deref()));
            (self.graph.name(parent), Ancestor { run, state, output })
        };
        edges.map(|edge| ancestor(edge.job)).collect()
    }
}

fn child(standing: Option<&Standing>, waiting_max: u64) -> Child<'_> {
    Child {
        job: standing.map(|standing| &standing.job),
        open: standing.map_or(OpenRuns::NONE, |standing| standing.open),
        waiting: standing.map_or(0, |standing| standing.waiting),
        waiting_max,
    }
}

/// A child under its lock.
#[derive(Clone, Debug)]
pub struct Standing {
    pub job: Job,
    pub open: OpenRuns,
    pub waiting: u64,
}

impl Standing {
    fn lives(&self) -> bool {
        self.job.deleted_at.is_none()
    }
}

/// What a parent's run left.
#[derive(Clone, Debug)]
pub struct Output {
    pub state: State,
    pub output: Option<String>,
}

/// A run of a flow, to be inserted.
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
    /// It ended here otherwise than its parents' ends said: those that follow have not been told.
    pub leaves_step: bool,
}

impl ChildRow {
    fn new(
        run: RunId,
        job: JobId,
        cause: CauseKind,
        judged: Judged,
        judged_itself: bool,
        standing: Option<&Standing>,
        now: DbTime,
    ) -> Self {
        let (state, reason, error, payload) = match judged {
            Judged::Wait { payload } => (State::Waiting, None, None, payload),
            Judged::Skip(reason, why) => (State::Skipped, Some(reason), Some(why), None),
        };
        let spec: Option<&JobSpec> = standing.map(|standing| &*standing.job.spec);
        let priority = spec.map_or(0, |spec| spec.priority);
        let queue = spec.and_then(|spec| spec.target.queue()).map(str::to_owned);
        Self {
            run,
            job,
            cause,
            state,
            reason,
            error,
            partition: standing.map_or(0, |standing| standing.job.partition),
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
    let ended = |(node, id): (&Node, RunId)| runs.get(&id).map(|run| (node.job, Ended { run: id, state: run.state }));
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

/// What has no row is a flow only where one is to come of its root, and somebody follows it.
pub fn check_open(opens: bool, graph: &Graph) -> Result<()> {
    if opens && graph.nodes.len() > 1 { Ok(()) } else { Err(StoreError::NotFound("flow")) }
}

/// What the audit trail says.
pub fn cancel_detail(cancelled: usize) -> String {
    serde_json::json!({ "cancelled": cancelled }).to_string()
}
pub fn rerun_detail(row: &FlowRow) -> String {
    let starts: Vec<_> = row.graph.nodes.iter().filter(|node| node.starts).map(|node| &node.name).collect();
    serde_json::json!({ "rerun_of": row.rerun_of.map(|old| old.to_string()), "from": starts }).to_string()
}
/// What the audit trail calls a flow.
pub fn subject(flow: RunId) -> String {
    format!("flow/{flow}")
}

/// The parents that a definition names, as ids: those that it calls by id are called by name from here on.
pub fn resolve(
    spec: &mut JobSpec,
    find: impl Fn(&str) -> Option<(JobId, String)>,
) -> Result<Vec<(JobId, When)>, Vec<Invalid>> {
    let (mut parents, mut wrong) = (Vec::new(), Vec::new());
    for (place, parent) in spec.depends_on.iter_mut().enumerate() {
        match find(&parent.job) {
            Some((id, name)) => {
                parents.push((id, parent.when));
                parent.job = name;
            }
            None => wrong.push(flow::unknown_parent(place, &parent.job)),
        }
    }
    if wrong.is_empty() {
        wrong = flow::problems(spec);
    }
    if wrong.is_empty() { Ok(parents) } else { Err(wrong) }
}

/// Defines the parents of a job among those that were read, or says what is wrong.
pub fn define(edges: &mut Edges, job: JobId, name: &str, parents: &[(JobId, When)]) -> Result<()> {
    edges.define(job, name, parents).map_err(|invalid| StoreError::Invalid(vec![invalid]))
}

/// The names and ids by which definitions call parents.
pub fn called<'a>(specs: impl Iterator<Item = &'a JobSpec>) -> (Vec<String>, Vec<JobId>) {
    let named: BTreeSet<&str> = specs.flat_map(|spec| &spec.depends_on).map(|parent| parent.job.as_str()).collect();
    let ids = named.iter().filter_map(|name| name.parse().ok()).collect();
    (named.into_iter().map(str::to_owned).collect(), ids)
}

/// Makes jobs that come together, parents before their children; the answers are in the order in which they came.
pub fn each_in_order(jobs: Vec<NewJob>, mut make: impl FnMut(NewJob) -> Result<Created>) -> Vec<Result<Created>> {
    let parents = |new: &'_ NewJob| new.spec.depends_on.iter().map(|parent| parent.job.clone()).collect::<Vec<_>>();
    if jobs.iter().all(|new| new.spec.depends_on.is_empty()) {
        return jobs.into_iter().map(make).collect();
    }
    let given: Vec<(String, Vec<String>)> = jobs.iter().map(|new| (new.spec.name.clone(), parents(new))).collect();
    let given: Vec<(&str, Vec<&str>)> =
        given.iter().map(|(name, parents)| (name.as_str(), parents.iter().map(String::as_str).collect())).collect();
    let order = flow::in_order(&given);
    let mut jobs: Vec<Option<NewJob>> = jobs.into_iter().map(Some).collect();
    let mut made: BTreeMap<usize, Result<Created>> = BTreeMap::new();
    for place in order {
        if let Some(new) = jobs.get_mut(place).and_then(Option::take) {
            made.insert(place, make(new));
        }
    }
    made.into_values().collect()
}

/// The parents that new jobs name, and what hangs together with them.
pub struct Family {
    /// By name, and by id as text.
    known: BTreeMap<String, (JobId, String)>,
    edges: Edges,
}

impl Family {
    pub const fn new(known: BTreeMap<String, (JobId, String)>, edges: Edges) -> Self {
        Self { known, edges }
    }

    /// Settles who the parents of a new job are.
    pub fn resolve(&mut self, id: JobId, spec: &mut JobSpec) -> Result<Vec<(JobId, When)>> {
        if spec.depends_on.is_empty() {
            return Ok(Vec::new());
        }
        let parents = resolve(spec, |name| self.known.get(name).cloned()).map_err(StoreError::Invalid)?;
        define(&mut self.edges, id, &spec.name, &parents)?;
        Ok(parents)
    }

    /// A new job may be a parent of those that come after it.
    pub fn made(&mut self, created: &Created) {
        let (id, name) = (created.job.id, created.job.spec.name.clone());
        self.edges.add_job(id, name.clone());
        self.known.insert(id.to_string(), (id, name.clone()));
        self.known.insert(name.clone(), (id, name));
    }
}

/// Parents by what they may be called.
pub fn by_call(found: impl IntoIterator<Item = (JobId, String)>) -> BTreeMap<String, (JobId, String)> {
    let by = |(id, name): (JobId, String)| [(id.to_string(), (id, name.clone())), (name.clone(), (id, name))];
    found.into_iter().flat_map(by).collect()
}

/// Others follow a job: it keeps its name, and stays.
pub fn followed(by: Vec<String>) -> Result<()> {
    if by.is_empty() {
        return Ok(());
    }
    let count = by.len();
    Err(StoreError::InUse { what: "job", by: by.into_iter().take(JOBS_NAMED_MAX).collect(), count })
}
