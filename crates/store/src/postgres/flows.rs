//! The verbs of flows on PostgreSQL. The transactions that use them are in `crate::tx::flow`.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use everytick_domain::{
    flow::{Edges, FLOW_JOBS_MAX, When},
    ids::{JobId, RunId, TenantId},
    run::{SkipReason, State},
};
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, history, jobs, rows};
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
impl FlowStore for PostgresStore {
    async fn flows_with_steps(&self, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        self.reads(with_steps(self, after, limit)).await
    }
    async fn advance_flow(&self, flow: RunId) -> Result<Advanced> {
        let advanced = async {
            let rendered = in_read!(self, "advance a flow", tx => flow::render(tx, flow))?;
            in_tx!(self, "advance a flow", tx => flow::advance(tx, flow, NextRuns::Start(&rendered)))
        };
        self.writes(advanced).await
    }
    async fn give_up_flow(&self, flow: RunId, why: &str) -> Result<Advanced> {
        self.writes(async { in_tx!(self, "advance a flow", tx => flow::advance(tx, flow, NextRuns::Skip(why))) }).await
    }
    fn take_steps_written(&self) -> bool {
        self.steps.swap(false, std::sync::atomic::Ordering::AcqRel)
    }
    async fn get_flow(&self, tenant: TenantId, id: RunId) -> Result<FlowRecord> {
        self.reads(async { in_read!(self, "read the flow", tx => flow::get_flow(tx, tenant, id)) }).await
    }
    async fn list_flows(
        &self,
        tenant: TenantId,
        filter: &FlowFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<FlowRecord, RunId>> {
        self.reads(async { in_read!(self, "list flows", tx => flow::list_flows(tx, tenant, filter, before, limit)) })
            .await
    }
    async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, id: RunId) -> Result<CancelledFlow> {
        self.writes(async { in_tx!(self, "cancel a flow", tx => flow::cancel_flow(tx, tenant, actor, id)) }).await
    }
    async fn rerun_flow(&self, tenant: TenantId, actor: &Actor, ask: RerunFlow) -> Result<FlowRecord> {
        self.writes(async { in_tx!(self, "rerun a flow", tx => flow::rerun_flow(tx, tenant, actor, &ask)) }).await
    }
}

async fn with_steps(store: &PostgresStore, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
    const DOING: &str = "read the steps of flows";
    let mut read = store.read(DOING).await?;
    let found: Vec<Uuid> = read
        .scalars(query!("flows/flow_steps_after", after.map_or(Uuid::nil(), RunId::uuid), rows::limit(limit)))
        .await?;
    Ok(found.into_iter().map(RunId::from_uuid).collect())
}

#[async_trait]
impl FlowTx for DbTx {
    async fn find_flow(&mut self, flow: RunId) -> Result<Option<FlowRow>> {
        let found = self.fetch_optional(query!("flows/flow_get", flow.uuid())).await?;
        found.as_ref().map(rows::flow).transpose().failed_or_refused(self.doing)
    }
    async fn lock_flow(&mut self, flow: RunId) -> Result<()> {
        self.execute(query!("flows/lock_flow", flow.uuid())).await?;
        Ok(())
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
        let found = self.fetch_all(query!("flows/flow_runs", rows::run_ids(runs.iter().copied()))).await?;
        found.iter().map(rows::node_run).collect::<std::result::Result<_, _>>().failed_or_refused(self.doing)
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
        let found: Vec<Uuid> = self.scalars(query!("flows/flow_steps_of", flow.uuid())).await?;
        Ok(found.into_iter().map(RunId::from_uuid).collect())
    }
    async fn drop_steps(&mut self, runs: &[RunId]) -> Result<()> {
        self.execute(query!("flows/flow_drop_steps", rows::run_ids(runs.iter().copied()))).await?;
        Ok(())
    }
    async fn forget_steps(&mut self, flow: RunId) -> Result<()> {
        self.execute(query!("flows/flow_forget_steps", flow.uuid())).await?;
        Ok(())
    }
    async fn outputs(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, Output>> {
        let found: Vec<(Uuid, i16, Option<String>, Option<String>)> =
            self.fetch_all_as(query!("flows/flow_outputs", rows::run_ids(runs.iter().copied()))).await?;
        let output = |(run, state, output, error)| {
            (RunId::from_uuid(run), Output { state: State::from_code(state), output, error })
        };
        Ok(found.into_iter().map(output).collect())
    }
    async fn payloads(&mut self, runs: &[RunId]) -> Result<BTreeMap<JobId, String>> {
        let found: Vec<(Uuid, Option<String>)> =
            self.fetch_all_as(query!("flows/flow_payloads", rows::run_ids(runs.iter().copied()))).await?;
        Ok(found.into_iter().filter_map(|(job, payload)| Some((JobId::from_uuid(job), payload?))).collect())
    }
    async fn insert_children(&mut self, row: &FlowRow, children: &[ChildRow]) -> Result<BTreeSet<RunId>> {
        let all = || children.iter();
        let made: Vec<(Uuid, i16)> = sqlx::query_as(sql!("flows/flow_record"))
            .bind(rows::run_ids(all().map(|child| child.run)))
            .bind(rows::job_ids(all().map(|child| child.job)))
            .bind(all().map(|child| child.cause.code()).collect::<Vec<_>>())
            .bind(all().map(|child| child.state.code()).collect::<Vec<_>>())
            .bind(all().map(|child| child.reason.map(SkipReason::code)).collect::<Vec<_>>())
            .bind(all().map(|child| rows::texts(child.error.as_ref())).collect::<Vec<_>>())
            .bind(all().map(|child| rows::texts(child.payload.as_ref())).collect::<Vec<_>>())
            .bind(all().map(|child| rows::partition(child.partition)).collect::<Vec<_>>())
            .bind(all().map(|child| i16::from(child.priority)).collect::<Vec<_>>())
            .bind(all().map(|child| child.queue.clone()).collect::<Vec<_>>())
            .bind(all().map(|child| child.rank).collect::<Vec<_>>())
            .bind(all().map(|child| child.key.clone()).collect::<Vec<_>>())
            .bind(row.tenant.raw())
            .bind(row.id.uuid())
            .bind(row.scheduled_at.millis())
            .bind(self.now.millis())
            .fetch_all(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        Ok(made.into_iter().map(|(run, _)| RunId::from_uuid(run)).collect())
    }
    async fn set_flow_cancelled(&mut self, flow: RunId) -> Result<()> {
        self.execute(query!("flows/flow_cancel", flow.uuid(), self.now.millis())).await?;
        Ok(())
    }
    async fn cancel_flow_runs(&mut self, runs: &[RunId]) -> Result<Vec<(RunId, JobId, bool)>> {
        let ended: Vec<(Uuid, Uuid, bool)> = self
            .fetch_all_as(query!("flows/flow_cancel_runs", rows::run_ids(runs.iter().copied()), self.now.millis()))
            .await?;
        let ended =
            ended.into_iter().map(|(run, job, claimed)| (RunId::from_uuid(run), JobId::from_uuid(job), claimed));
        Ok(ended.collect())
    }
}

/// Writes a step for each of these ended runs that a flow may follow. Every transaction that ends runs calls this.
pub(super) async fn leave_steps(write: &mut DbTx, runs: &[Uuid]) -> Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let left = write.execute(query!("flows/flow_leave_steps", runs)).await?;
    write.left_steps |= left > 0;
    Ok(())
}

/// The jobs connected with these, or those that follow them. One more than a flow may have shows that there are too
/// many.
pub(super) async fn edges(tx: &mut DbTx, statement: &'static str, jobs: &[JobId]) -> Result<Edges> {
    let asked = rows::job_ids(jobs.iter().copied());
    let limit = rows::limit((FLOW_JOBS_MAX + 1).saturating_mul(jobs.len().max(1)));
    let found: Vec<(Uuid, String, Option<Uuid>, Option<i16>)> =
        sqlx::query_as(statement).bind(asked).bind(limit).fetch_all(&mut *tx.tx).await.failed(tx.doing)?;
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
