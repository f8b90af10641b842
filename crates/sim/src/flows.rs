//! Flows on maps. The edges are read from the definitions, by name: a job with children cannot be renamed.

use std::{collections::BTreeMap, sync::PoisonError};

use async_trait::async_trait;
use everytick_domain::{
    flow::{Decided, Edges, FlowState, is_template},
    ids::{Cause, Fence, JobId, RunId, TenantId},
    mutant::Mutant,
    run::State,
    time::DbTime,
};

use super::{
    Point, SimStore,
    db::{Db, JobRow, RunRow, WaitingRow},
};
use everytick_store::{
    Actor, Advanced, CancelledFlow, FlowRecord, FlowStore, NodeRun, OpenRun, RerunFlow, Result, StoreError,
    shared::flows::{self, ChildRow, Children, FlowRow, LockedChild, Output, Rendered},
    tx::requests::{Kind, Made},
};

#[async_trait]
impl FlowStore for SimStore {
    async fn flows_with_steps(&self, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        // No call and so no fault: a history without flows is the same as without this loop.
        if self.inspect(|db| db.steps.is_empty()) {
            return Ok(Vec::new());
        }
        self.transact(Point::Read, move |db, _, _| Ok(db.flows_with_steps(after, limit))).await
    }
    async fn advance_flow(&self, flow: RunId) -> Result<Advanced> {
        if self.inspect(|db| db.broken_flows.contains(&flow)) {
            return Err(StoreError::Refused { doing: "advance a flow", source: "broken by a fault".into() });
        }
        if Mutant::StepDroppedFirst.is_on() {
            let dropped = self.transact(Point::Advance, move |db, now, _| {
                db.drop_steps(flow, now);
                Ok(())
            });
            dropped.await?;
        }
        self.transact(Point::Advance, move |db, now, _| Ok(db.advance(flow, None, now))).await
    }
    async fn give_up_flow(&self, flow: RunId, why: &str) -> Result<Advanced> {
        let why = why.to_owned();
        self.transact(Point::Advance, move |db, now, _| Ok(db.advance(flow, Some(&why), now))).await
    }
    fn take_steps_written(&self) -> bool {
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut db.left_steps)
    }
    async fn get_flow(&self, tenant: TenantId, flow: RunId) -> Result<FlowRecord> {
        self.transact(Point::Read, move |db, _, _| {
            let row = db.flow_row(flow, None).filter(|row| row.tenant == tenant);
            let row = row.ok_or(StoreError::NotFound("flow"))?;
            Ok(row.record(&db.node_runs(&row)))
        })
        .await
    }
    async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, flow: RunId) -> Result<CancelledFlow> {
        let actor = actor.clone();
        self.transact(Point::Ask, move |db, now, _| db.cancel_flow(tenant, &actor, flow, now)).await
    }
    async fn rerun_flow(&self, tenant: TenantId, actor: &Actor, ask: RerunFlow) -> Result<FlowRecord> {
        let actor = actor.clone();
        self.transact(Point::Ask, move |db, now, _| db.rerun_flow(tenant, &actor, &ask, now)).await
    }
}

impl Db {
    pub(super) fn live(&self, tenant: TenantId) -> impl Iterator<Item = &JobRow> {
        self.jobs.values().filter(move |row| row.job.tenant == tenant && row.job.deleted_at.is_none())
    }

    /// The edges between all live jobs of a tenant.
    pub(super) fn edges(&self, tenant: TenantId) -> Edges {
        let ids: BTreeMap<&str, JobId> =
            self.live(tenant).map(|row| (row.job.spec.name.as_str(), row.job.id)).collect();
        let mut edges = Edges::default();
        for row in self.live(tenant) {
            edges.add_job(row.job.id, row.job.spec.name.clone());
            for parent in &row.job.spec.depends_on {
                if let Some(id) = ids.get(parent.job.as_str()) {
                    edges.add(row.job.id, *id, parent.when);
                }
            }
        }
        edges
    }

    pub(super) fn children_of(&self, job: JobId) -> Vec<String> {
        let Some(row) = self.jobs.get(&job) else { return Vec::new() };
        let follows = |other: &&JobRow| other.job.spec.depends_on.iter().any(|on| on.job == row.job.spec.name);
        let mut names: Vec<_> =
            self.live(row.job.tenant).filter(follows).map(|other| other.job.spec.name.clone()).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn leave_step(&mut self, id: RunId) {
        let Some(run) = self.runs.get(&id).filter(|run| !run.state.is_open()) else { return };
        if run.flow.is_some() || !self.children_of(run.job).is_empty() {
            self.steps.insert(id, run.flow.unwrap_or(id));
            self.left_steps = true;
        }
    }

    pub(super) fn flow_of(&self, id: RunId, run: &RunRow) -> Option<RunId> {
        let opens = || {
            (run.state.is_open() && !self.children_of(run.job).is_empty())
                || self.steps.contains_key(&id)
                || self.flows.contains_key(&id)
        };
        run.flow.or_else(|| opens().then_some(id))
    }

    fn flows_with_steps(&self, after: Option<RunId>, limit: usize) -> Vec<RunId> {
        let flows: std::collections::BTreeSet<RunId> =
            self.steps.values().copied().filter(|flow| after.is_none_or(|after| *flow > after)).collect();
        flows.into_iter().take(limit).collect()
    }

    /// The row of a flow. If it has none, the row that its root opens at `now`, or else at the root's tick.
    fn flow_row(&self, flow: RunId, now: Option<DbTime>) -> Option<FlowRow> {
        if let Some(row) = self.flows.get(&flow) {
            return Some(row.clone());
        }
        let root = self.runs.get(&flow).filter(|run| run.flow.is_none())?;
        let graph = self.edges(root.tenant).graph(root.job);
        flows::check_open(root.state.is_open() || self.steps.contains_key(&flow), &graph).ok()?;
        let opened_at = now.unwrap_or(root.scheduled_at);
        Some(FlowRow::opened(flow, (root.tenant, root.scheduled_at), graph, opened_at))
    }

    fn node_runs(&self, row: &FlowRow) -> BTreeMap<RunId, NodeRun> {
        let node = |id: RunId| {
            let run = self.runs.get(&id)?;
            let node = NodeRun {
                id,
                state: run.state,
                skip_reason: run.skip_reason,
                started_at: run.started_at,
                finished_at: run.finished_at,
                error: run.error.clone(),
            };
            Some((id, node))
        };
        row.run_ids().into_iter().filter_map(node).collect()
    }

    fn stands(&self, jobs: impl Iterator<Item = JobId>) -> BTreeMap<JobId, LockedChild> {
        let standing = |job: JobId| {
            let row = self.jobs.get(&job)?;
            let open = OpenRun::count(&self.open_runs(job));
            let waiting = self.waiting.values().filter(|row| row.job == job).count() as u64;
            Some((job, LockedChild { job: row.job.clone(), open, waiting }))
        };
        jobs.filter_map(standing).collect()
    }

    fn outputs(&self, runs: &[RunId]) -> BTreeMap<RunId, Output> {
        let output = |id: &RunId| {
            let run = self.runs.get(id)?;
            Some((*id, Output { state: run.state, output: run.output.clone(), error: run.error.clone() }))
        };
        runs.iter().filter_map(output).collect()
    }

    /// For a mutant: drops the steps before the flow is advanced.
    fn drop_steps(&mut self, flow: RunId, now: DbTime) {
        if let Some(row) = self.flow_row(flow, Some(now)) {
            self.flows.insert(flow, row);
        }
        self.steps.retain(|_, of| *of != flow);
    }

    /// For a mutant: each ended parent creates the children that can start. Only the first derives their ids from the flow, so
    /// a child of two parents starts twice.
    fn advance_by_parent(&mut self, row: &FlowRow, now: DbTime) -> Advanced {
        let steps: Vec<RunId> = self.steps.iter().filter(|(_, of)| **of == row.id).map(|(run, _)| *run).collect();
        let decided = row.decide(&self.node_runs(row)).unwrap_or_default();
        let mut children = self.judged(row, &decided, now).rows;
        let ended: Vec<(RunId, JobId)> =
            steps.iter().filter_map(|step| Some((*step, self.runs.get(step)?.job))).collect();
        for child in children.clone() {
            let node = row.graph.node(child.job);
            let follows = |parent: JobId| node.is_some_and(|node| node.parents.iter().any(|edge| edge.job == parent));
            let others = ended.iter().filter(|(_, parent)| follows(*parent)).skip(1);
            let again = |(step, _): &(RunId, JobId)| RunId::of(child.job, Cause::Parent { flow: *step });
            children.extend(others.map(|other| ChildRow { run: again(other), ..child.clone() }));
        }
        self.record_children(row, children, now)
    }

    pub(super) fn advance(&mut self, flow: RunId, give_up: Option<&str>, now: DbTime) -> Advanced {
        let Some(row) = self.flow_row(flow, Some(now)) else {
            self.steps.retain(|_, of| *of != flow);
            return Advanced::default();
        };
        self.flows.insert(flow, row.clone());
        if Mutant::FanInByParent.is_on() {
            let advanced = self.advance_by_parent(&row, now);
            self.steps.retain(|_, of| *of != flow);
            return advanced;
        }
        let decided = row.decide(&self.node_runs(&row)).unwrap_or_default();
        let children = match give_up {
            None => self.judged(&row, &decided, now),
            Some(why) => row.given_up(&decided, why, now),
        };
        if !children.more {
            self.steps.retain(|_, of| *of != flow);
        }
        Advanced { more: children.more, ..self.record_children(&row, children.rows, now) }
    }

    fn judged(&self, row: &FlowRow, decided: &Decided, now: DbTime) -> Children {
        let starts = decided.starts();
        let standing = self.stands(starts.iter().copied());
        let mut rendered = Rendered::default();
        for stands in standing.values().filter(|stands| is_template(stands.job.spec.payload.as_deref())) {
            let mut outputs = self.outputs(&row.parents_of(&[stands.job.id]));
            row.add_skipped(decided, &mut outputs);
            if !rendered.is_full() {
                rendered.add(&stands.job, row.render(&stands.job, &outputs));
            }
        }
        row.children(decided, &standing, &rendered, self.limits.open_requests_per_job_max, now)
    }

    fn record_children(&mut self, row: &FlowRow, children: Vec<ChildRow>, now: DbTime) -> Advanced {
        let new: Vec<ChildRow> = children.into_iter().filter(|child| !self.runs.contains_key(&child.run)).collect();
        let advanced = row.advanced(new.iter());
        for child in new {
            let waits = child.waits();
            let due_at = now.max(row.scheduled_at);
            let run = RunRow {
                job: child.job,
                tenant: row.tenant,
                cause: child.cause,
                scheduled_at: row.scheduled_at,
                due_at,
                state: child.state,
                attempt: 0,
                lost: 0,
                fence: Fence::default(),
                node: None,
                worker: None,
                incarnation: None,
                started_at: None,
                finished_at: (!waits).then_some(now),
                error: child.error,
                output: None,
                skip_reason: child.reason,
                payload: child.payload,
                flow: Some(row.id),
            };
            if waits {
                let waiting = WaitingRow {
                    job: child.job,
                    tenant: row.tenant,
                    priority: child.priority,
                    due_at,
                    late: false,
                    force: false,
                    attempts: 0,
                    queue: child.queue,
                    rank: child.rank.unwrap_or_default(),
                    key: child.key,
                };
                self.waiting.insert(child.run, waiting);
                self.plan_anew(child.job, now);
            }
            self.insert_run(child.run, run, None, now);
            if child.leaves_step {
                self.leave_step(child.run);
            }
        }
        advanced
    }

    fn cancel_flow(&mut self, tenant: TenantId, actor: &Actor, flow: RunId, now: DbTime) -> Result<CancelledFlow> {
        let row = self.flow_row(flow, Some(now)).filter(|row| row.tenant == tenant);
        let mut row = row.ok_or(StoreError::NotFound("flow"))?;
        // A flow that has ended keeps its state.
        if row.record(&self.node_runs(&row)).state == FlowState::Running {
            row.cancelled_at = Some(now);
        }
        self.flows.insert(flow, row.clone());
        let open: Vec<NodeRun> = self.node_runs(&row).into_values().filter(|run| run.state.is_open()).collect();
        for run in &open {
            self.cancel(run.id, None, now);
            self.note(tenant, actor, "cancel", run.id.to_string(), "{}".into(), now);
        }
        self.note(tenant, actor, "cancel_flow", flows::subject(flow), flows::cancel_detail(open.len()), now);
        let was_claimed = open.iter().filter(|run| run.state == State::Claimed);
        let claimed = was_claimed.filter_map(|run| Some((self.runs.get(&run.id)?.job, run.id))).collect();
        let cancelled = open.iter().map(|run| run.id).collect();
        Ok(CancelledFlow { flow: row.record(&self.node_runs(&row)), claimed, cancelled })
    }

    fn rerun_flow(&mut self, tenant: TenantId, actor: &Actor, ask: &RerunFlow, now: DbTime) -> Result<FlowRecord> {
        if let Some(made) = self.replayed(tenant, ask.idempotency.as_ref())? {
            let row = self.flows.get(&RunId::from_uuid(made.id)).ok_or(StoreError::NotFound("flow"))?;
            return Ok(row.record(&self.node_runs(row)));
        }
        let old = self.flow_row(ask.flow, Some(now)).filter(|row| row.tenant == tenant);
        let old = old.ok_or(StoreError::NotFound("flow"))?;
        let row = flows::rerun(&old, &self.node_runs(&old), ask, now)?;
        let starts: Vec<JobId> = row.graph.nodes.iter().filter(|node| node.starts).map(|node| node.job).collect();
        let standing = self.stands(starts.iter().copied());
        let payload = |job: &JobId| {
            let was = self.runs.get(&old.graph.run_of(old.id, *job))?;
            was.payload.clone().map(|payload| (*job, payload))
        };
        let payloads = starts.iter().filter_map(payload).collect();
        let outputs = self.outputs(&row.parents_of(&starts));
        let first = row.starts(&standing, &payloads, &outputs, self.limits.open_requests_per_job_max, now);
        self.flows.insert(row.id, row.clone());
        self.record_children(&row, first, now);
        self.note(tenant, actor, "rerun_flow", flows::subject(row.id), flows::rerun_detail(&row), now);
        self.remember(tenant, ask.idempotency.as_ref(), Made { kind: Kind::Flow, id: row.id.uuid() }, now);
        Ok(row.record(&self.node_runs(&row)))
    }

    pub(super) fn prune_flows(&mut self, before: DbTime) {
        let (runs, steps) = (&self.runs, &self.steps);
        let has_run = |id: RunId| runs.contains_key(&id) || runs.values().any(|run| run.flow == Some(id));
        self.flows.retain(|id, _| *id >= RunId::floor(before) || has_run(*id) || steps.values().any(|flow| flow == id));
    }

    /// Whether a flow is in progress: it has steps or an open run.
    pub(super) fn flow_works(&self, flow: RunId) -> bool {
        self.steps.values().any(|of| *of == flow)
            || self.runs.values().any(|run| run.flow == Some(flow) && run.state.is_open())
    }
}
