//! The transactions and verbs of flows. The scripts are in `crate::tx::flow`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use async_trait::async_trait;
use everytick_domain::{
    flow::{Edges, FLOW_JOBS_MAX, When},
    ids::{JobId, RunId, TenantId},
    run::State,
};
use uuid::Uuid;

use super::{DbStore, DbTx, Failed, flow_runs, history, jobs, rows};
use crate::{
    Actor, Advanced, CancelledFlow, FlowFilter, FlowRecord, FlowStore, NodeRun, Page, RerunFlow, Result, StoreError,
    flows::{ChildRow, FlowRow, NextRuns, Output},
    tx::{
        JobRow,
        flow::{self, FlowTx, Root},
        in_read, in_tx,
    },
};

#[async_trait]
impl FlowStore for DbStore {
    async fn flows_with_steps(&self, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        in_read!(self, "read the steps of flows", tx => with_steps(tx, after, limit))
    }
    async fn advance_flow(&self, flow: RunId) -> Result<Advanced> {
        let rendered = in_read!(self, "advance a flow", tx => flow::render(tx, flow))?;
        in_tx!(self, "advance a flow", tx => flow::advance(tx, flow, NextRuns::Start(&rendered)))
    }
    async fn give_up_flow(&self, flow: RunId, why: &str) -> Result<Advanced> {
        in_tx!(self, "advance a flow", tx => flow::advance(tx, flow, NextRuns::Skip(why)))
    }
    fn take_steps_written(&self) -> bool {
        self.steps.swap(false, Ordering::AcqRel)
    }
    async fn get_flow(&self, tenant: TenantId, id: RunId) -> Result<FlowRecord> {
        in_read!(self.of(tenant), "read the flow", tx => flow::get_flow(tx, tenant, id))
    }
    async fn list_flows(
        &self,
        tenant: TenantId,
        filter: &FlowFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<FlowRecord, RunId>> {
        in_read!(self.of(tenant), "list flows", tx => flow::list_flows(tx, tenant, filter, before, limit))
    }
    async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, id: RunId) -> Result<CancelledFlow> {
        in_tx!(self.of(tenant), "cancel a flow", tx => flow::cancel_flow(tx, tenant, actor, id))
    }
    async fn rerun_flow(&self, tenant: TenantId, actor: &Actor, ask: RerunFlow) -> Result<FlowRecord> {
        in_tx!(self.of(tenant), "rerun a flow", tx => flow::rerun_flow(tx, tenant, actor, &ask))
    }
}

async fn with_steps(tx: &mut DbTx, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
    let after = after.map_or(Uuid::nil(), RunId::uuid);
    tx.run_ids(query!("flows/flow_steps_after", after, rows::limit(limit))).await
}

#[async_trait]
impl FlowTx for DbTx {
    async fn find_flow(&mut self, flow: RunId) -> Result<Option<FlowRow>> {
        let found = self.fetch_optional(query!("flows/flow_get", flow.uuid())).await?;
        found.as_ref().map(rows::flow).transpose().failed(self.doing)
    }
    async fn insert_flow(&mut self, row: &FlowRow) -> Result<()> {
        let graph = serde_json::to_string(&row.graph)
            .map_err(|error| StoreError::Refused { doing: self.doing, source: error.into() })?;
        self.execute_or_refuse(query!(
            "flows/flow_insert",
            row.id.uuid(),
            row.tenant.raw(),
            row.opened_at.millis(),
            row.scheduled_at.millis(),
            row.rerun_of.map(RunId::uuid),
            graph
        ))
        .await?;
        Ok(())
    }
    async fn root_of(&mut self, flow: RunId) -> Result<Option<Root>> {
        let found = self.fetch_optional(query!("flows/flow_root", flow.uuid())).await?;
        found.as_ref().map(rows::root).transpose().failed(self.doing)
    }
    async fn edges_below(&mut self, job: JobId) -> Result<Edges> {
        edges(self, sql!("edges/flow_below"), &[job]).await
    }
    async fn node_runs(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, NodeRun>> {
        self.fetch_decoded(query!("flows/flow_runs", rows::run_ids(runs)), rows::node_run).await
    }
    async fn flow_rows(
        &mut self,
        tenant: TenantId,
        low: RunId,
        high: Option<RunId>,
        limit: usize,
    ) -> Result<(Vec<FlowRow>, Option<RunId>)> {
        history::flow_rows(self, tenant, low, high, limit).await
    }
    async fn open_roots(
        &mut self,
        tenant: TenantId,
        low: RunId,
        high: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunId>> {
        history::open_roots(self, tenant, low, high, limit).await
    }
    async fn readable_jobs(&mut self, jobs: &[JobId]) -> Result<Vec<JobRow>> {
        jobs::readable(self, jobs).await
    }
    async fn steps_of(&mut self, flow: RunId) -> Result<Vec<RunId>> {
        self.run_ids(query!("flows/flow_steps_of", flow.uuid())).await
    }
    async fn drop_steps(&mut self, runs: &[RunId]) -> Result<()> {
        self.execute(query!("flows/flow_drop_steps", rows::run_ids(runs))).await?;
        Ok(())
    }
    async fn forget_steps(&mut self, flow: RunId) -> Result<()> {
        self.execute(query!("flows/flow_forget_steps", flow.uuid())).await?;
        Ok(())
    }
    async fn outputs(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, Output>> {
        let found: Vec<(Uuid, i16, Option<String>, Option<String>)> =
            self.fetch_all_as(query!("flows/flow_outputs", rows::run_ids(runs))).await?;
        let output = |(run, state, output, error)| {
            (RunId::from_uuid(run), Output { state: State::from_code(state), output, error })
        };
        Ok(found.into_iter().map(output).collect())
    }
    async fn payloads(&mut self, runs: &[RunId]) -> Result<BTreeMap<JobId, String>> {
        let found: Vec<(Uuid, Option<String>)> =
            self.fetch_all_as(query!("flows/flow_payloads", rows::run_ids(runs))).await?;
        Ok(found.into_iter().filter_map(|(job, payload)| Some((JobId::from_uuid(job), payload?))).collect())
    }
    async fn insert_children(&mut self, row: &FlowRow, children: &[ChildRow]) -> Result<BTreeSet<RunId>> {
        flow_runs::insert(self, row, children).await
    }
    async fn set_flow_cancelled(&mut self, flow: RunId) -> Result<()> {
        self.execute(query!("flows/flow_cancel", flow.uuid(), self.now.millis())).await?;
        Ok(())
    }
    async fn cancel_flow_runs(&mut self, runs: &[RunId]) -> Result<Vec<(RunId, JobId, bool)>> {
        let ended = flow_runs::cancel(self, runs).await?;
        Ok(ended
            .into_iter()
            .map(|(run, job, claimed)| (RunId::from_uuid(run), JobId::from_uuid(job), claimed))
            .collect())
    }
}

/// The jobs connected with these, or those that follow them. One more than a flow may have shows that there are too
/// many.
pub(super) async fn edges(tx: &mut DbTx, statement: &'static str, jobs: &[JobId]) -> Result<Edges> {
    let limit = rows::limit((FLOW_JOBS_MAX + 1).saturating_mul(jobs.len().max(1)));
    let query = sqlx::query(statement).bind(rows::job_ids(jobs)).bind(limit);
    let found: Vec<(Uuid, String, Option<Uuid>, Option<i16>)> = tx.fetch_all_as(query).await?;
    let mut edges = Edges::default();
    for (job, name, parent, when) in found {
        let job = JobId::from_uuid(job);
        edges.add_job(job, name);
        if let (Some(parent), Some(when)) = (parent, when.and_then(|code| When::from_code(code.into()))) {
            edges.add(job, JobId::from_uuid(parent), when);
        }
    }
    Ok(edges)
}
