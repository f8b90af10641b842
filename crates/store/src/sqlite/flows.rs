//! The verbs of flows on SQLite. The transactions that use them are in `crate::tx::flow`.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use everytick_domain::{
    flow::{Edges, FLOW_JOBS_MAX, When},
    ids::{JobId, RunId, TenantId},
    run::{SkipReason, State},
};
use uuid::Uuid;

use super::{
    DbTx, Failed, SqliteStore, history, jobs,
    record::{self, Queued},
    rows::{self, Hex, Text},
};
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
impl FlowStore for SqliteStore {
    async fn flows_with_steps(&self, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
        with_steps(self, after, limit).await
    }
    async fn advance_flow(&self, flow: RunId) -> Result<Advanced> {
        let rendered = in_read!(self, "advance a flow", tx => flow::render(tx, flow))?;
        in_tx!(self, "advance a flow", tx => flow::advance(tx, flow, NextRuns::Start(&rendered)))
    }
    async fn give_up_flow(&self, flow: RunId, why: &str) -> Result<Advanced> {
        in_tx!(self, "advance a flow", tx => flow::advance(tx, flow, NextRuns::Skip(why)))
    }
    fn take_steps_written(&self) -> bool {
        self.steps.swap(false, std::sync::atomic::Ordering::AcqRel)
    }
    async fn get_flow(&self, tenant: TenantId, id: RunId) -> Result<FlowRecord> {
        in_read!(self, "read the flow", tx => flow::get_flow(tx, tenant, id))
    }
    async fn list_flows(
        &self,
        tenant: TenantId,
        filter: &FlowFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<FlowRecord, RunId>> {
        in_read!(self, "list flows", tx => flow::list_flows(tx, tenant, filter, before, limit))
    }
    async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, id: RunId) -> Result<CancelledFlow> {
        in_tx!(self, "cancel a flow", tx => flow::cancel_flow(tx, tenant, actor, id))
    }
    async fn rerun_flow(&self, tenant: TenantId, actor: &Actor, ask: RerunFlow) -> Result<FlowRecord> {
        in_tx!(self, "rerun a flow", tx => flow::rerun_flow(tx, tenant, actor, &ask))
    }
}

async fn with_steps(store: &SqliteStore, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
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
        found.iter().map(rows::node_run).collect::<std::result::Result<_, _>>().failed(self.doing)
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
        jobs::load(self, jobs).await
    }
    async fn steps_of(&mut self, flow: RunId) -> Result<Vec<RunId>> {
        let found: Vec<Uuid> = self.scalars(query!("flows/flow_steps_of", flow.uuid())).await?;
        Ok(found.into_iter().map(RunId::from_uuid).collect())
    }
    async fn drop_steps(&mut self, runs: &[RunId]) -> Result<()> {
        let drop = query!("flows/flow_drop_steps", rows::run_ids(runs.iter().copied()));
        drop.execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn forget_steps(&mut self, flow: RunId) -> Result<()> {
        self.execute(query!("flows/flow_forget_steps", flow.uuid())).await?;
        Ok(())
    }
    async fn outputs(&mut self, runs: &[RunId]) -> Result<BTreeMap<RunId, Output>> {
        let found = sqlx::query_as(sql!("flows/flow_outputs")).bind(rows::run_ids(runs.iter().copied()));
        let found: Vec<(Uuid, i16, Option<String>, Option<String>)> =
            found.fetch_all(&mut *self.tx).await.failed(self.doing)?;
        let output = |(run, state, output, error)| {
            (RunId::from_uuid(run), Output { state: State::from_code(state), output, error })
        };
        Ok(found.into_iter().map(output).collect())
    }
    async fn payloads(&mut self, runs: &[RunId]) -> Result<BTreeMap<JobId, String>> {
        let found = sqlx::query_as(sql!("flows/flow_payloads")).bind(rows::run_ids(runs.iter().copied()));
        let found: Vec<(Uuid, Option<String>)> = found.fetch_all(&mut *self.tx).await.failed(self.doing)?;
        Ok(found.into_iter().filter_map(|(job, payload)| Some((JobId::from_uuid(job), payload?))).collect())
    }
    async fn insert_children(&mut self, row: &FlowRow, children: &[ChildRow]) -> Result<BTreeSet<RunId>> {
        let batch: Vec<_> = children
            .iter()
            .map(|child| {
                let (run, job, reason) =
                    (Hex(child.run.uuid()), Hex(child.job.uuid()), child.reason.map(SkipReason::code));
                let (error, payload) = (child.error.as_deref().map(Text), child.payload.as_deref().map(Text));
                (run, job, child.cause.code(), child.state.code(), reason, error, payload)
            })
            .collect();
        let made: Vec<Uuid> = sqlx::query_scalar(sql!("flows/flow_record"))
            .bind(rows::json(&batch))
            .bind(row.tenant.raw())
            .bind(row.id.uuid())
            .bind(row.scheduled_at.millis())
            .bind(self.now.millis())
            .fetch_all(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        let made: BTreeSet<RunId> = made.into_iter().map(RunId::from_uuid).collect();
        let waiting = children.iter().filter(|child| child.waits() && made.contains(&child.run));
        let queued: Vec<_> = waiting
            .map(|child| Queued { run: child.run, priority: child.priority, key: child.key.as_deref() })
            .collect();
        record::wait(self, &queued).await?;
        Ok(made)
    }
    async fn set_flow_cancelled(&mut self, flow: RunId) -> Result<()> {
        self.execute(query!("flows/flow_cancel", flow.uuid(), self.now.millis())).await?;
        Ok(())
    }
    async fn cancel_flow_runs(&mut self, runs: &[RunId]) -> Result<Vec<(RunId, JobId, bool)>> {
        let runs = rows::run_ids(runs.iter().copied());
        let ended: Vec<(Uuid, Uuid, bool)> = self.fetch_all_as(query!("flows/flow_open", &runs)).await?;
        self.execute(query!("runs/cancel_runs", &runs, self.now.millis())).await?;
        let ended =
            ended.into_iter().map(|(run, job, claimed)| (RunId::from_uuid(run), JobId::from_uuid(job), claimed));
        Ok(ended.collect())
    }
}

/// Writes a step for each of these ended runs that a flow may follow. Every transaction that ends runs calls this.
pub(super) async fn leave_steps(write: &mut DbTx, runs: impl IntoIterator<Item = RunId>) -> Result<()> {
    let any: bool = write.scalar(query!("flows/flow_any")).await?;
    if !any {
        return Ok(());
    }
    let left = write.execute(query!("flows/flow_leave_steps", rows::run_ids(runs))).await?;
    write.left_steps |= left > 0;
    Ok(())
}

/// The jobs connected with these, or those that follow them. One more than a flow may have shows that there are too
/// many.
pub(super) async fn edges(tx: &mut DbTx, statement: &'static str, jobs: &[JobId]) -> Result<Edges> {
    let asked = rows::job_ids(jobs.iter().copied());
    let limit = rows::limit((FLOW_JOBS_MAX + 1).saturating_mul(jobs.len().max(1)));
    let found: Vec<(Uuid, String, Option<Uuid>, Option<i64>)> =
        sqlx::query_as(statement).bind(asked).bind(limit).fetch_all(&mut *tx.tx).await.failed(tx.doing)?;
    let mut edges = Edges::default();
    for (job, name, parent, when) in found {
        let job = JobId::from_uuid(job);
        edges.add_job(job, name);
        if let (Some(parent), Some(when)) = (parent, when.and_then(When::from_code)) {
            edges.add(job, JobId::from_uuid(parent), when);
        }
    }
    Ok(edges)
}
