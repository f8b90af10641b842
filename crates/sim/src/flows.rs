//! Flows on maps. The edges are read from the definitions, by name: a job with children cannot be renamed.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use everytick_domain::{
    flow::Edges,
    ids::{Cause, JobId, RunId, TenantId},
    mutant::Mutant,
    run::State,
    time::DbTime,
};

use super::{
    Point, SimStore,
    call::{call, script},
    db::{Db, JobRow, RunRow, WaitingRow},
    tx::SimTx,
};
use everytick_store::{
    Actor, Advanced, CancelledFlow, FlowFilter, FlowRecord, FlowStore, NodeRun, Page, RerunFlow, Result, StoreError,
    shared::flows::{ChildRow, FlowRow, NextRuns, Output},
    tx::{
        self, Tx as _,
        flow::{self, FlowTx, Root},
    },
};

#[async_trait]
impl FlowStore for SimStore {
    async fn flows_with_steps(&self, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        // Not through `call!`, so no fault applies. A seed without flows gives the same history as without this loop.
        if self.inspect(|db| db.steps.is_empty()) {
            return Ok(Vec::new());
        }
        call!(self, Read, [], |db, _| Ok(db.flows_with_steps(after, limit)))
    }
    async fn advance_flow(&self, id: RunId) -> Result<Advanced> {
        if self.inspect(|db| db.broken_flows.contains(&id)) {
            return Err(StoreError::Refused { doing: "advance a flow", source: "broken by a fault".into() });
        }
        if Mutant::StepDroppedFirst.is_on() {
            script!(self, Advance, "advance a flow", [], |tx| tx.forget_steps(id))?;
        }
        script!(self, Advance, "advance a flow", [], |tx| async {
            let rendered = flow::render(tx, id).await?;
            flow::advance(tx, id, NextRuns::Start(&rendered)).await
        })
    }
    async fn give_up_flow(&self, id: RunId, why: &str) -> Result<Advanced> {
        script!(self, Advance, "advance a flow", [why], |tx| flow::advance(tx, id, NextRuns::Skip(&why)))
    }
    fn take_steps_written(&self) -> bool {
        std::mem::take(&mut self.lock().left_steps)
    }
    async fn get_flow(&self, tenant: TenantId, id: RunId) -> Result<FlowRecord> {
        script!(self, Read, "read the flow", [], |tx| flow::get_flow(tx, tenant, id))
    }
    async fn list_flows(
        &self,
        tenant: TenantId,
        filter: &FlowFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<FlowRecord, RunId>> {
        script!(self, Read, "list flows", [filter], |tx| flow::list_flows(tx, tenant, &filter, before, limit))
    }
    async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, id: RunId) -> Result<CancelledFlow> {
        script!(self, Ask, "cancel a flow", [actor], |tx| flow::cancel_flow(tx, tenant, &actor, id))
    }
    async fn rerun_flow(&self, tenant: TenantId, actor: &Actor, ask: RerunFlow) -> Result<FlowRecord> {
        script!(self, Ask, "rerun a flow", [actor], |tx| flow::rerun_flow(tx, tenant, &actor, &ask))
    }
}

#[async_trait]
impl FlowTx for SimTx<'_> {
    async fn find_flow(&mut self, flow: RunId) -> Result<Option<FlowRow>> {
        Ok(self.db.flows.get(&flow).cloned())
    }
    async fn insert_flow(&mut self, row: &FlowRow) -> Result<()> {
        self.db.flows.entry(row.id).or_insert_with(|| row.clone());
        Ok(())
    }
    async fn root_of(&mut self, flow: RunId) -> Result<Option<Root>> {
        let run = self.db.runs.get(&flow).filter(|run| run.flow.is_none());
        let opens = |run: &RunRow| run.state.is_open() || self.db.steps.contains_key(&flow) || dropped_first();
        Ok(run.map(|run| Root { job: run.job, tenant: run.tenant, scheduled_at: run.scheduled_at, opens: opens(run) }))
    }
    async fn edges_below(&mut self, job: JobId) -> Result<Edges> {
        self.edges_near(&[job]).await
    }
    async fn node_runs(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, NodeRun>> {
        let node = |id: RunId| {
            let run = self.db.runs.get(&id)?;
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
        Ok(runs.iter().copied().filter_map(node).collect())
    }
    async fn flow_rows(
        &mut self,
        tenant: TenantId,
        low: RunId,
        high: Option<RunId>,
        limit: usize,
    ) -> Result<(Vec<FlowRow>, Option<RunId>)> {
        let below = self.db.flows.range(low..).filter(|(id, _)| high.is_none_or(|high| **id < high));
        let own = below.filter(|(_, row)| row.tenant == tenant).map(|(_, row)| row.clone());
        let mut rows: Vec<FlowRow> = own.collect();
        rows.reverse();
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|row| row.id);
        Ok((rows, next))
    }
    async fn open_roots(
        &mut self,
        tenant: TenantId,
        low: RunId,
        high: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunId>> {
        let open = self.db.runs.iter().filter(|(id, run)| {
            **id >= low
                && high.is_none_or(|high| **id < high)
                && run.tenant == tenant
                && run.state.is_open()
                && self.db.flow_of(**id, run) == Some(**id)
        });
        let mut roots: Vec<RunId> = open.map(|(id, _)| *id).collect();
        roots.sort_unstable_by(|a, b| b.cmp(a));
        roots.truncate(limit);
        Ok(roots)
    }
    async fn readable_jobs(&mut self, jobs: &[JobId]) -> Result<Vec<tx::JobRow>> {
        self.load_jobs(jobs).await
    }
    async fn steps_of(&mut self, flow: RunId) -> Result<Vec<RunId>> {
        // The mutant dropped the steps in a transaction before this one.
        let mutant = dropped_first().then_some(flow);
        Ok(self.db.steps_of(flow).chain(mutant).collect())
    }
    async fn drop_steps(&mut self, runs: &[RunId]) -> Result<()> {
        self.db.steps.retain(|run, _| !runs.contains(run));
        Ok(())
    }
    async fn forget_steps(&mut self, flow: RunId) -> Result<()> {
        self.db.steps.retain(|_, of| *of != flow);
        Ok(())
    }
    async fn outputs(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, Output>> {
        let output = |id: &RunId| {
            let run = self.db.runs.get(id)?;
            Some((*id, Output { state: run.state, output: run.output.clone(), error: run.error.clone() }))
        };
        Ok(runs.iter().filter_map(output).collect())
    }
    async fn payloads(&mut self, runs: &[RunId]) -> Result<BTreeMap<JobId, String>> {
        let found = runs.iter().filter_map(|run| self.db.runs.get(run));
        Ok(found.filter_map(|run| Some((run.job, run.payload.clone()?))).collect())
    }
    async fn insert_children(&mut self, row: &FlowRow, children: &[ChildRow]) -> Result<BTreeSet<RunId>> {
        let mut children = children.to_vec();
        if Mutant::FanInByParent.is_on() {
            children.extend(self.db.again_by_parent(row, &children));
        }
        let new: Vec<_> = children.into_iter().filter(|child| !self.db.runs.contains_key(&child.run)).collect();
        for child in &new {
            self.db.insert_child(row, child, self.at);
        }
        Ok(new.iter().map(|child| child.run).collect())
    }
    async fn set_flow_cancelled(&mut self, flow: RunId) -> Result<()> {
        let at = self.at;
        if let Some(row) = self.db.flows.get_mut(&flow) {
            row.cancelled_at.get_or_insert(at);
        }
        Ok(())
    }
    async fn cancel_flow_runs(&mut self, runs: &[RunId]) -> Result<Vec<(RunId, JobId, bool)>> {
        let open = runs.iter().filter_map(|id| Some((*id, self.db.runs.get(id)?)));
        let open = open.filter(|(_, run)| run.state.is_open());
        let open: Vec<_> = open.map(|(id, run)| (id, run.job, run.state == State::Claimed)).collect();
        self.cancel_runs(runs).await?;
        Ok(open)
    }
}

fn dropped_first() -> bool {
    Mutant::StepDroppedFirst.is_on()
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
        let flows: BTreeSet<RunId> =
            self.steps.values().copied().filter(|flow| after.is_none_or(|after| *flow > after)).collect();
        flows.into_iter().take(limit).collect()
    }

    fn steps_of(&self, flow: RunId) -> impl Iterator<Item = RunId> {
        self.steps.iter().filter(move |(_, of)| **of == flow).map(|(run, _)| *run)
    }

    /// For a mutant: each ended parent but the first creates the children again, under an id derived from the parent. A
    /// child of two parents then starts twice.
    fn again_by_parent(&self, row: &FlowRow, children: &[ChildRow]) -> Vec<ChildRow> {
        let ended: Vec<(RunId, JobId)> =
            self.steps_of(row.id).filter_map(|step| Some((step, self.runs.get(&step)?.job))).collect();
        let again = |child: &ChildRow| {
            let node = row.graph.node(child.job);
            let follows = |parent: JobId| node.is_some_and(|node| node.parents.iter().any(|edge| edge.job == parent));
            let others = ended.iter().filter(|(_, parent)| follows(*parent)).skip(1);
            let copies = others.map(|(step, _)| ChildRow {
                run: RunId::of(child.job, Cause::Parent { flow: *step }),
                ..child.clone()
            });
            copies.collect::<Vec<_>>()
        };
        children.iter().flat_map(again).collect()
    }

    fn insert_child(&mut self, row: &FlowRow, child: &ChildRow, now: DbTime) {
        let due_at = now.max(row.scheduled_at);
        let mut run = RunRow {
            error: child.error.clone(),
            payload: child.payload.clone(),
            flow: Some(row.id),
            ..RunRow::waiting((child.job, row.tenant), child.cause, row.scheduled_at, due_at)
        };
        match child.reason {
            Some(reason) => {
                run.skip(reason, now);
                self.insert_run(child.run, run, None, now);
            }
            None => {
                let waiting = WaitingRow { key: child.key.clone(), ..WaitingRow::of(&run, child.priority) };
                self.insert_waiting(child.run, run, waiting, None, now);
            }
        }
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
