//! The flow transactions of a store, and the logic that the stores share: it builds the API's view of a flow from its
//! rows, and the rows of children that may start.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use everytick_domain::{
    flow::{self, Ancestor, Child, Decided, Decision, Edges, Ended, Fate, FlowState, Graph, Judged, Node, When},
    ids::{Cause, JobId, RunId, TenantId},
    invalid::Invalid,
    job::{Job, JobSpec},
    overlap::OpenRuns,
    queue::lead,
    run::{CauseKind, SkipReason, State},
    time::DbTime,
};

use crate::{Actor, Created, IdempotencyKey, NewJob, Result, StoreError, calendars::JOBS_NAMED_MAX};

/// The size of the rendered payloads for one transaction. The payload that passes the limit is still included.
const RENDERED_BYTES_MAX: usize = 4 << 20;

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
    /// Cancels the open runs of a flow. It starts no more runs.
    async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, flow: RunId) -> Result<CancelledFlow>;
    /// Creates a new flow, whose first runs wait.
    async fn rerun_flow(&self, tenant: TenantId, actor: &Actor, ask: RerunFlow) -> Result<FlowRecord>;
}

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

    /// The decisions to record in one transaction; `None` if the flow is over.
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
    pub fn render(&self, job: &Job, outputs: &BTreeMap<RunId, Output>) -> Became {
        flow::render(job.spec.payload.as_deref(), self.id, &self.ancestors(job.id, outputs))
    }

    /// The rows of children whose parents have ended, judged by their state under the lock. A child whose payload has
    /// changed since it was rendered is left to the next transaction.
    pub fn children(
        &self,
        decided: &Decided,
        standing: &BTreeMap<JobId, LockedChild>,
        rendered: &Rendered,
        waiting_max: u64,
        now: DbTime,
    ) -> Children {
        let row = |decision: &Decision| {
            let stands = standing.get(&decision.job);
            let payload = match (&decision.fate, stands) {
                (Fate::Start, Some(stands)) => rendered.of(&stands.job)?,
                _ => Ok(None),
            };
            let judged = decision.judge(child(stands, waiting_max), |_| payload);
            Some(self.child_row(decision, judged, stands, now))
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

    fn child_row(&self, decision: &Decision, judged: Judged, standing: Option<&LockedChild>, now: DbTime) -> ChildRow {
        let run = self.graph.run_of(self.id, decision.job);
        let judged_itself = decision.fate == Fate::Start;
        ChildRow::new(run, decision.job, CauseKind::Parent, judged, judged_itself, standing, now)
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
        standing: &BTreeMap<JobId, LockedChild>,
        payloads: &BTreeMap<JobId, String>,
        outputs: &BTreeMap<RunId, Output>,
        waiting_max: u64,
        now: DbTime,
    ) -> Vec<ChildRow> {
        let row = |node: &Node| {
            let was = payloads.get(&node.job).cloned();
            let stands = standing.get(&node.job);
            let judged = flow::judge_rerun(child(stands, waiting_max), was, |job| self.render(job, outputs));
            let run = self.graph.run_of(self.id, node.job);
            ChildRow::new(run, node.job, CauseKind::Request, judged, true, stands, now)
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

fn child(standing: Option<&LockedChild>, waiting_max: u64) -> Child<'_> {
    Child {
        job: standing.map(|standing| &standing.job),
        open: standing.map_or(OpenRuns::NONE, |standing| standing.open),
        waiting: standing.map_or(0, |standing| standing.waiting),
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
pub type Became = Result<Option<String>, String>;

/// The payloads of children, rendered outside the transaction that records them.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    by_job: BTreeMap<JobId, (Arc<JobSpec>, Became)>,
    bytes: usize,
}

impl Rendered {
    pub fn add(&mut self, job: &Job, became: Became) {
        self.bytes += became.as_ref().map_or(0, |became| became.as_ref().map_or(0, String::len));
        self.by_job.insert(job.id, (job.spec.clone(), became));
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= RENDERED_BYTES_MAX
    }

    /// The rendered payload of a job. `None` if it was not rendered, or has been edited since.
    fn of(&self, job: &Job) -> Option<Became> {
        if !flow::is_template(job.spec.payload.as_deref()) {
            return Some(Ok(None));
        }
        let (spec, became) = self.by_job.get(&job.id)?;
        (spec.payload == job.spec.payload).then(|| became.clone())
    }
}

/// Rows to insert.
#[derive(Clone, Debug, Default)]
pub struct Children {
    pub rows: Vec<ChildRow>,
    /// More rows follow in another transaction: the flow keeps its steps.
    pub more: bool,
}

/// How to advance a flow: with rendered payloads, or by recording its next jobs as skipped with this error.
#[derive(Clone, Copy, Debug)]
pub enum How<'a> {
    With(&'a Rendered),
    GiveUp(&'a str),
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
        standing: Option<&LockedChild>,
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
pub fn check_open(opens: bool, graph: &Graph) -> Result<()> {
    if opens && graph.nodes.len() > 1 { Ok(()) } else { Err(StoreError::NotFound("flow")) }
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

/// Resolves the parents that a definition names to ids. Replaces a reference by id with the name.
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

/// Refuses a run outside a flow if its payload refers to parents: the placeholders would be delivered unrendered.
pub fn check_outside(spec: &JobSpec, own: Option<&str>) -> Result<()> {
    flow::check_outside(spec, own).map_err(|invalid| StoreError::Invalid(vec![invalid]))
}

/// Adds the parents of a job to the edges that were read, or returns what is wrong.
pub fn define(edges: &mut Edges, job: JobId, name: &str, parents: &[(JobId, When)]) -> Result<()> {
    edges.define(job, name, parents).map_err(|invalid| StoreError::Invalid(vec![invalid]))
}

/// The names and ids by which definitions refer to parents.
pub fn called<'a>(specs: impl Iterator<Item = &'a JobSpec>) -> (Vec<String>, Vec<JobId>) {
    let named: BTreeSet<&str> = specs.flat_map(|spec| &spec.depends_on).map(|parent| parent.job.as_str()).collect();
    let ids = named.iter().filter_map(|name| name.parse().ok()).collect();
    (named.into_iter().map(str::to_owned).collect(), ids)
}

/// Creates jobs of one request, parents before children. Returns the results in the order of the request.
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

/// The parents that new jobs name, and the edges connected with them.
pub struct Family {
    /// By name, and by id as text.
    known: BTreeMap<String, (JobId, String)>,
    edges: Edges,
}

impl Family {
    pub const fn new(known: BTreeMap<String, (JobId, String)>, edges: Edges) -> Self {
        Self { known, edges }
    }

    /// Determines the parents of a new job.
    pub fn resolve(&mut self, id: JobId, spec: &mut JobSpec) -> Result<Vec<(JobId, When)>> {
        if spec.depends_on.is_empty() {
            return Ok(Vec::new());
        }
        let parents = resolve(spec, |name| self.known.get(name).cloned()).map_err(StoreError::Invalid)?;
        define(&mut self.edges, id, &spec.name, &parents)?;
        Ok(parents)
    }

    /// Adds a new job, which may be a parent of the jobs after it.
    pub fn made(&mut self, created: &Created) {
        let (id, name) = (created.job.id, created.job.spec.name.clone());
        self.edges.add_job(id, name.clone());
        self.known.insert(id.to_string(), (id, name.clone()));
        self.known.insert(name.clone(), (id, name));
    }
}

/// Indexes parents by name and by id.
pub fn by_call(found: impl IntoIterator<Item = (JobId, String)>) -> BTreeMap<String, (JobId, String)> {
    let by = |(id, name): (JobId, String)| [(id.to_string(), (id, name.clone())), (name.clone(), (id, name))];
    found.into_iter().flat_map(by).collect()
}

/// Refuses to rename or delete a job that others depend on.
pub fn followed(by: Vec<String>) -> Result<()> {
    if by.is_empty() {
        return Ok(());
    }
    let count = by.len();
    Err(StoreError::InUse { what: "job", by: by.into_iter().take(JOBS_NAMED_MAX).collect(), count })
}
