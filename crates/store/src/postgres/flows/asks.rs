//! User requests about a flow: read it, cancel it, and rerun it from its failed jobs.

use std::collections::BTreeMap;

use everytick_domain::{
    flow::FlowState,
    ids::{JobId, RunId, TenantId},
};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    super::{Failed, PostgresStore, Write, rows, settle},
    advance, edges, find, insert, leave_steps, root_of, runs_of, sql,
};
use crate::{
    Actor, CancelledFlow, FlowRecord, RerunFlow, Result, StoreError,
    flows::{self, FlowRow},
    tx::{
        Tx as _,
        requests::{self, Kind},
    },
};

pub(super) async fn get_flow(store: &PostgresStore, tenant: TenantId, flow: RunId) -> Result<FlowRecord> {
    const DOING: &str = "read the flow";
    let mut read = store.read(DOING).await?;
    let row = peek(&mut read, flow, DOING).await?.ok_or(StoreError::NotFound("flow"))?;
    if row.tenant != tenant {
        return Err(StoreError::NotFound("flow"));
    }
    Ok(row.record(&runs_of(&mut read, &row, DOING).await?))
}

/// A flow's row, or the one that its root will open with the current graph.
pub(super) async fn peek(connection: &mut PgConnection, flow: RunId, doing: &'static str) -> Result<Option<FlowRow>> {
    if let Some(row) = find(connection, sql!("flow_get"), flow, doing).await? {
        return Ok(Some(row));
    }
    let Some(root) = root_of(connection, flow, doing).await? else { return Ok(None) };
    let graph = edges::load(connection, sql!("flow_below"), &[root.job], doing).await?.graph(root.job);
    let row = FlowRow::opened(flow, (root.tenant, root.scheduled_at), graph, root.scheduled_at);
    Ok(flows::check_open(root.opens, &row.graph).is_ok().then_some(row))
}

pub(super) async fn cancel_flow(
    store: &PostgresStore,
    tenant: TenantId,
    actor: &Actor,
    flow: RunId,
) -> Result<CancelledFlow> {
    let mut write = store.write("cancel a flow").await?;
    let done = cancel(&mut write, tenant, actor, flow).await;
    write.finish(done).await
}

async fn cancel(write: &mut Write, tenant: TenantId, actor: &Actor, flow: RunId) -> Result<CancelledFlow> {
    let doing = write.doing;
    let mut row = advance::hold_own(write, tenant, flow).await?;
    let now = write.read_clock().await?;
    // An ended flow keeps its state.
    let before = runs_of(&mut write.tx, &row, doing).await?;
    if row.record(&before).state == FlowState::Running {
        row.cancelled_at = Some(now);
        sqlx::query(sql!("flow_cancel"))
            .bind(flow.uuid())
            .bind(now.millis())
            .execute(&mut *write.tx)
            .await
            .failed(doing)?;
    }
    let ids = rows::run_ids(row.run_ids());
    // Dequeues first, in the lock order of claims, to avoid deadlocks.
    sqlx::query(sql!("dequeue_runs")).bind(&ids).execute(&mut *write.tx).await.failed(doing)?;
    let ended: Vec<(Uuid, Uuid, bool)> = sqlx::query_as(sql!("flow_cancel_runs"))
        .bind(&ids)
        .bind(now.millis())
        .fetch_all(&mut *write.tx)
        .await
        .failed(doing)?;
    let cancelled: Vec<Uuid> = ended.iter().map(|(run, _, _)| *run).collect();
    // Dequeues again, now that the runs are locked: a settlement may have put one back meanwhile.
    sqlx::query(sql!("dequeue_runs")).bind(&cancelled).execute(&mut *write.tx).await.failed(doing)?;
    settle::end_cancelled(write, cancelled.clone()).await?;
    leave_steps(write, &cancelled).await?;
    let notes: Vec<_> = cancelled.iter().map(|run| (run.to_string(), "{}".to_owned())).collect();
    if !notes.is_empty() {
        write.audit(tenant, actor, "cancel", &notes).await?;
    }
    let note = (flows::subject(flow), flows::cancel_detail(cancelled.len()));
    write.audit(tenant, actor, "cancel_flow", &[note]).await?;
    let runs = runs_of(&mut write.tx, &row, doing).await?;
    let claimed = ended.iter().filter(|(_, _, claimed)| *claimed);
    Ok(CancelledFlow {
        flow: row.record(&runs),
        claimed: claimed.map(|(run, job, _)| (JobId::from_uuid(*job), RunId::from_uuid(*run))).collect(),
        cancelled: cancelled.into_iter().map(RunId::from_uuid).collect(),
    })
}

pub(super) async fn rerun_flow(
    store: &PostgresStore,
    tenant: TenantId,
    actor: &Actor,
    ask: RerunFlow,
) -> Result<FlowRecord> {
    let mut write = store.write("rerun a flow").await?;
    let done = rerun(&mut write, store.limits.open_requests_per_job_max, tenant, actor, &ask).await;
    write.finish(done).await
}

async fn rerun(
    write: &mut Write,
    waiting_max: u64,
    tenant: TenantId,
    actor: &Actor,
    ask: &RerunFlow,
) -> Result<FlowRecord> {
    let doing = write.doing;
    requests::lock(write, tenant, ask.idempotency.as_ref()).await?;
    if let Some(made) = requests::replayed(write, tenant, ask.idempotency.as_ref(), Kind::Flow).await? {
        let row = find(&mut write.tx, sql!("flow_get"), RunId::from_uuid(made), doing).await?;
        let row = row.ok_or(StoreError::NotFound("flow"))?;
        return Ok(row.record(&runs_of(&mut write.tx, &row, doing).await?));
    }
    // Locked, so that no other transaction advances it while it is read.
    let old = advance::hold_own(write, tenant, ask.flow).await?;
    let old_runs = runs_of(&mut write.tx, &old, doing).await?;
    let row = flows::rerun(&old, &old_runs, ask, write.now)?;
    let starts: Vec<JobId> = row.graph.nodes.iter().filter(|node| node.starts).map(|node| node.job).collect();
    let standing = advance::standing(write, &starts, waiting_max).await?;
    let was: Vec<RunId> = starts.iter().map(|job| old.graph.run_of(old.id, *job)).collect();
    let payloads = payloads(write, was).await?;
    let outputs = advance::outputs(&mut write.tx, &row.parents_of(&starts), doing).await?;
    let first = row.starts(&standing, &payloads, &outputs, waiting_max, write.now);
    insert(write, &row).await?;
    advance::record(write, &row, &first, &standing).await?;
    let note = (flows::subject(row.id), flows::rerun_detail(&row));
    write.audit(tenant, actor, "rerun_flow", &[note]).await?;
    requests::remember(write, tenant, ask.idempotency.as_ref(), Kind::Flow, row.id.uuid()).await?;
    Ok(row.record(&runs_of(&mut write.tx, &row, doing).await?))
}

/// The runs' own payloads, by job.
async fn payloads(write: &mut Write, runs: Vec<RunId>) -> Result<BTreeMap<JobId, String>> {
    let found: Vec<(Uuid, Option<String>)> = sqlx::query_as(sql!("flow_payloads"))
        .bind(rows::run_ids(runs))
        .fetch_all(&mut *write.tx)
        .await
        .failed(write.doing)?;
    let of = |(job, payload): (Uuid, Option<String>)| payload.map(|payload| (JobId::from_uuid(job), payload));
    Ok(found.into_iter().filter_map(of).collect())
}
