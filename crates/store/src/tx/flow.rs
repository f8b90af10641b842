//! Flows: advances them from their steps, and executes the requests of users.
//!
//! A transaction that ends a run also writes a step ([`Tx::leave_steps`]). A later transaction processes the steps of one
//! flow, so that no settlement waits for a flow:
//!
//! ```text
//! render   in a transaction of its own, without locks: the payloads of children that may start
//! lock     the flow's row
//! read     the steps, then the states of the flow's runs: at least the changes that the steps announce
//! decide   ask the domain which children start or are skipped
//! lock     the epochs of the children that start, as a request does
//! write    the children; remove the steps that were read
//! ```
//!
//! The outputs of parents are final, so a payload rendered early is right. A job that was edited in between is left to
//! the next transaction.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use everytick_domain::{
    flow::{self, Edges, FlowState},
    ids::{JobId, RunId, TenantId},
    overlap::OpenRuns,
    time::DbTime,
};

use super::{
    JobLock, JobRow, Tx, audit_one, cancel,
    requests::{self, Kind},
};
use crate::{
    Actor, Advanced, CancelledFlow, FlowFilter, FlowRecord, NodeRun, OpenRun, Page, RerunFlow, Result, StoreError,
    flows::{self, ChildRow, FlowRow, LockedChild, NextRuns, Output, Rendered},
};

/// The root run of a flow that has no row yet.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    pub job: JobId,
    pub tenant: TenantId,
    pub scheduled_at: DbTime,
    /// Whether it will open a flow. False for a run that ended before any job depended on its job.
    pub opens: bool,
}

/// The verbs of flows.
#[async_trait]
pub trait FlowTx: Tx {
    async fn find_flow(&mut self, flow: RunId) -> Result<Option<FlowRow>>;
    /// Inserts a flow's row; an existing row stays.
    async fn insert_flow(&mut self, row: &FlowRow) -> Result<()>;
    async fn root_of(&mut self, flow: RunId) -> Result<Option<Root>>;
    /// The edges between this job and all jobs that follow it.
    async fn edges_below(&mut self, job: JobId) -> Result<Edges>;
    /// Those of the runs that are recorded.
    async fn node_runs(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, NodeRun>>;
    /// The flows with ids from `low` to before `high`, newest first; at most `limit`, and fewer if they are large or if many
    /// rows had to be read. The second value is the position after them, if there are more.
    async fn flow_rows(
        &mut self,
        tenant: TenantId,
        low: RunId,
        high: Option<RunId>,
        limit: usize,
    ) -> Result<(Vec<FlowRow>, Option<RunId>)>;
    /// The open runs with ids from `low` to before `high` that will open a flow, newest first; at most `limit`, among the
    /// newest [`ROOTS_SEARCHED_MAX`] runs.
    async fn open_roots(
        &mut self,
        tenant: TenantId,
        low: RunId,
        high: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunId>>;
    /// The rows of these jobs. Notes and leaves out a row that cannot be decoded.
    async fn readable_jobs(&mut self, jobs: &[JobId]) -> Result<Vec<JobRow>>;
    async fn steps_of(&mut self, flow: RunId) -> Result<Vec<RunId>>;
    /// Removes the steps of these runs.
    async fn drop_steps(&mut self, runs: &[RunId]) -> Result<()>;
    /// Removes all steps of this flow.
    async fn forget_steps(&mut self, flow: RunId) -> Result<()>;
    /// The results of runs.
    async fn outputs(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, Output>>;
    /// The runs' own payloads, by job.
    async fn payloads(&mut self, runs: &[RunId]) -> Result<BTreeMap<JobId, String>>;
    /// Inserts children, and enqueues those that wait; an existing row stays. Returns the inserted runs.
    async fn insert_children(&mut self, row: &FlowRow, children: &[ChildRow]) -> Result<BTreeSet<RunId>>;
    async fn set_flow_cancelled(&mut self, flow: RunId) -> Result<()>;
    /// Cancels those of the runs that are open, and returns them: run, job, and whether it was claimed.
    async fn cancel_flow_runs(&mut self, runs: &[RunId]) -> Result<Vec<(RunId, JobId, bool)>>;
}

pub async fn get_flow<T: FlowTx + ?Sized>(tx: &mut T, tenant: TenantId, flow: RunId) -> Result<FlowRecord> {
    let row = peek(tx, flow).await?.filter(|row| row.tenant == tenant).ok_or(StoreError::NotFound("flow"))?;
    Ok(row.record(&tx.node_runs(&row.run_ids()).await?))
}

/// How many runs a page of flows reads to find roots that are still open. A flow has no row until its root has ended.
pub const ROOTS_SEARCHED_MAX: usize = 10_000;

pub async fn list_flows<T: FlowTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    filter: &FlowFilter,
    before: Option<RunId>,
    limit: usize,
) -> Result<Page<FlowRecord, RunId>> {
    let (low, high) = filter.bounds(before);
    let (mut rows, next) = tx.flow_rows(tenant, low, high, limit).await?;
    let known: BTreeSet<RunId> = rows.iter().map(|row| row.id).collect();
    for root in tx.open_roots(tenant, next.unwrap_or(low).max(low), high, limit.saturating_add(1)).await? {
        if !known.contains(&root) {
            rows.extend(peek(tx, root).await?);
        }
    }
    rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.id));
    let page = Page::cut(rows, limit, |row| row.id);
    let ids: Vec<RunId> = page.items.iter().flat_map(FlowRow::run_ids).collect();
    let runs = tx.node_runs(&ids).await?;
    let record = |row: &FlowRow| {
        let own = row.run_ids().into_iter().filter_map(|id| Some((id, runs.get(&id)?.clone())));
        row.record(&own.collect())
    };
    let mut items: Vec<FlowRecord> = page.items.iter().map(record).collect();
    items.retain(|flow| filter.states.is_empty() || filter.states.contains(&flow.state));
    Ok(Page { items, next: page.next.or(next) })
}

/// A flow's row, or the one that its root will open with the current graph.
async fn peek<T: FlowTx + ?Sized>(tx: &mut T, flow: RunId) -> Result<Option<FlowRow>> {
    if let Some(row) = tx.find_flow(flow).await? {
        return Ok(Some(row));
    }
    let Some(root) = tx.root_of(flow).await? else { return Ok(None) };
    let graph = tx.edges_below(root.job).await?.graph(root.job);
    let row = FlowRow::opened(flow, (root.tenant, root.scheduled_at), graph, root.scheduled_at);
    Ok(flows::opens_flow(root.opens, &row.graph).then_some(row))
}

/// Renders the payloads of the children that may start, before any lock is taken.
pub async fn render<T: FlowTx + ?Sized>(tx: &mut T, flow: RunId) -> Result<Rendered> {
    let mut rendered = Rendered::default();
    let Some(row) = peek(tx, flow).await? else { return Ok(rendered) };
    let decided = row.decide(&tx.node_runs(&row.run_ids()).await?).unwrap_or_default();
    let starts = decided.starts();
    if starts.is_empty() {
        return Ok(rendered);
    }
    for JobRow { job, .. } in tx.readable_jobs(&starts).await? {
        if flow::is_template(job.spec.payload.as_deref()) && !rendered.is_full() {
            let mut outputs = tx.outputs(&row.parents_of(&[job.id])).await?;
            row.add_skipped(&decided, &mut outputs);
            rendered.add(&job, row.render(&job, &outputs));
        }
    }
    Ok(rendered)
}

pub async fn advance<T: FlowTx + ?Sized>(tx: &mut T, flow: RunId, next: NextRuns<'_>) -> Result<Advanced> {
    let Some(row) = lock(tx, flow).await? else {
        tx.forget_steps(flow).await?;
        return Ok(Advanced::default());
    };
    let steps = tx.steps_of(flow).await?;
    if steps.is_empty() {
        return Ok(Advanced::default());
    }
    let decided = row.decide(&tx.node_runs(&row.run_ids()).await?).unwrap_or_default();
    let (locked, children) = match next {
        NextRuns::Start(rendered) => {
            let locked = lock_children(tx, &decided.starts()).await?;
            let now = tx.read_clock().await?;
            let children = row.children(&decided, &locked, rendered, tx.limits().open_requests_per_job_max, now);
            (locked, children)
        }
        NextRuns::Skip(why) => {
            let now = tx.read_clock().await?;
            (BTreeMap::new(), row.given_up(&decided, why, now))
        }
    };
    let advanced = record(tx, &row, &children.rows, &locked).await?;
    // Only the steps that were read: a child that was skipped has left a step of its own.
    if !children.more {
        tx.drop_steps(&steps).await?;
    }
    Ok(Advanced { more: children.more, ..advanced })
}

/// Locks the row of a flow, and creates it if missing. `None` if there is no such flow: its root was pruned, or no job
/// depends on the root's job any more.
async fn lock<T: FlowTx + ?Sized>(tx: &mut T, flow: RunId) -> Result<Option<FlowRow>> {
    tx.lock_flow(flow).await?;
    if let Some(row) = tx.find_flow(flow).await? {
        return Ok(Some(row));
    }
    let Some(root) = tx.root_of(flow).await? else { return Ok(None) };
    let graph = tx.edges_below(root.job).await?.graph(root.job);
    if !flows::opens_flow(root.opens, &graph) {
        return Ok(None);
    }
    let now = tx.read_clock().await?;
    tx.insert_flow(&FlowRow::opened(flow, (root.tenant, root.scheduled_at), graph, now)).await?;
    // Another transaction may have inserted it first.
    tx.lock_flow(flow).await?;
    tx.find_flow(flow).await
}

/// Locks a flow of this tenant. A flow of another tenant is not found.
async fn lock_own<T: FlowTx + ?Sized>(tx: &mut T, tenant: TenantId, flow: RunId) -> Result<FlowRow> {
    lock(tx, flow).await?.filter(|row| row.tenant == tenant).ok_or(StoreError::NotFound("flow"))
}

/// Locks jobs against everything else that may create runs of them, and reads their state.
async fn lock_children<T: FlowTx + ?Sized>(tx: &mut T, jobs: &[JobId]) -> Result<BTreeMap<JobId, LockedChild>> {
    if jobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    // Locked as for a request: under `queue`, ticks and requests must see each other.
    let queues = tx.load_jobs(jobs).await?.iter().any(|row| row.job.spec.overlap.is_queue());
    tx.lock_jobs(jobs, if queues { JobLock::All } else { JobLock::Requests }).await?;
    let found = tx.load_jobs(jobs).await?;
    tx.read_clock().await?;
    // If any number of runs may be open, none of them is read.
    let counted: Vec<_> = found.iter().map(|row| &row.job).filter(|job| job.spec.in_progress_max().is_some()).collect();
    let open = tx.open_runs(&counted).await?;
    let max = tx.limits().open_requests_per_job_max;
    let mut locked = BTreeMap::new();
    for JobRow { job, .. } in found {
        let waiting = tx.count_waiting(job.id, max).await?;
        let open = open.get(&job.id).map_or(OpenRuns::NONE, |open| OpenRun::count(open));
        locked.insert(job.id, LockedChild { job, open, waiting });
    }
    Ok(locked)
}

/// Inserts children, and returns a summary of the inserted ones.
async fn record<T: FlowTx + ?Sized>(
    tx: &mut T,
    row: &FlowRow,
    children: &[ChildRow],
    locked: &BTreeMap<JobId, LockedChild>,
) -> Result<Advanced> {
    if children.is_empty() {
        return Ok(Advanced::default());
    }
    let made = tx.insert_children(row, children).await?;
    let made = || children.iter().filter(|child| made.contains(&child.run));
    let stepped: Vec<RunId> = children.iter().filter(|child| child.leaves_step).map(|child| child.run).collect();
    tx.leave_steps(&stepped).await?;
    for child in made().filter(|child| child.waits()) {
        if locked.get(&child.job).is_some_and(|locked| locked.job.spec.overlap.is_queue()) {
            tx.raise_epoch(child.job).await?;
        }
    }
    let advanced = row.advanced(made());
    if advanced.started > 0 {
        tx.notify_owners().await?;
    }
    Ok(advanced)
}

pub async fn cancel_flow<T: FlowTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    flow: RunId,
) -> Result<CancelledFlow> {
    let mut row = lock_own(tx, tenant, flow).await?;
    let now = tx.read_clock().await?;
    let was = row.record(&tx.node_runs(&row.run_ids()).await?).state;
    if was == FlowState::Running {
        row.cancelled_at = Some(now);
        tx.set_flow_cancelled(flow).await?;
    }
    let ids = row.run_ids();
    // Dequeues first, in the lock order of claims, to avoid deadlocks. Dequeues again when the runs are locked: a
    // settlement may have put one back meanwhile.
    tx.dequeue(&ids).await?;
    let ended = tx.cancel_flow_runs(&ids).await?;
    let cancelled: Vec<RunId> = ended.iter().map(|(run, _, _)| *run).collect();
    if was != FlowState::Running && cancelled.is_empty() {
        return Err(StoreError::FlowEnded(was));
    }
    tx.dequeue(&cancelled).await?;
    tx.end_claims(&cancelled).await?;
    tx.leave_steps(&cancelled).await?;
    cancel::audit_cancelled(tx, tenant, actor, &cancelled).await?;
    let (subject, detail) = (flows::subject(flow), flows::cancel_detail(cancelled.len()));
    audit_one(tx, tenant, actor, "cancel_flow", subject, detail).await?;
    let flow = row.record(&tx.node_runs(&row.run_ids()).await?);
    let claimed = ended.into_iter().filter(|(_, _, claimed)| *claimed).map(|(run, job, _)| (job, run)).collect();
    Ok(CancelledFlow { flow, claimed, cancelled })
}

pub async fn rerun_flow<T: FlowTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    ask: &RerunFlow,
) -> Result<FlowRecord> {
    let key = ask.idempotency.as_ref();
    requests::lock(tx, tenant, key).await?;
    if let Some(made) = requests::replayed(tx, tenant, key, Kind::Flow).await? {
        let row = tx.find_flow(RunId::from_uuid(made)).await?.ok_or(StoreError::NotFound("flow"))?;
        return Ok(row.record(&tx.node_runs(&row.run_ids()).await?));
    }
    // Locked, so that no other transaction advances it while it is read.
    let old = lock_own(tx, tenant, ask.flow).await?;
    let row = flows::rerun(&old, &tx.node_runs(&old.run_ids()).await?, ask, tx.now())?;
    let starts: Vec<JobId> = row.graph.nodes.iter().filter(|node| node.starts).map(|node| node.job).collect();
    let locked = lock_children(tx, &starts).await?;
    let was: Vec<RunId> = starts.iter().map(|job| old.graph.run_of(old.id, *job)).collect();
    let payloads = tx.payloads(&was).await?;
    let outputs = tx.outputs(&row.parents_of(&starts)).await?;
    let max = tx.limits().open_requests_per_job_max;
    let first = row.starts(&locked, &payloads, &outputs, max, tx.now());
    tx.insert_flow(&row).await?;
    record(tx, &row, &first, &locked).await?;
    audit_one(tx, tenant, actor, "rerun_flow", flows::subject(row.id), flows::rerun_detail(&row)).await?;
    requests::remember(tx, tenant, key, Kind::Flow, row.id.uuid()).await?;
    Ok(row.record(&tx.node_runs(&row.run_ids()).await?))
}
