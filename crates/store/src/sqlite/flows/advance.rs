//! Takes steps up: one transaction a flow, which reads its steps and how its runs stand, asks the domain what comes next, judges
//! children as requests are judged, writes them, and removes the steps.

use std::collections::BTreeMap;

use everytick_domain::{
    flow::Fate,
    ids::{JobId, RunId, TenantId},
    job::Overlap,
    overlap::OpenRuns,
    run::{SkipReason, State},
};
use uuid::Uuid;

use super::{
    super::{
        Failed, SqliteStore, Write, horizon, range,
        record::{self, Queued},
        rows,
        rows::{Hex, Text},
    },
    edges, find, insert, leave_steps, root_of, runs_of, sql,
};
use crate::{
    Advanced, OpenRun, Result, StoreError,
    flows::{ChildRow, FlowRow, Output, Standing},
};

const DOING: &str = "advance a flow";

pub(super) async fn advance_flows(store: &SqliteStore, after: Option<RunId>, limit: usize) -> Result<Advanced> {
    let mut read = store.read(DOING).await?;
    let waiting: Vec<Uuid> = sqlx::query_scalar(sql!("flow_steps_after"))
        .bind(after.map_or(Uuid::nil(), RunId::uuid))
        .bind(rows::limit(limit))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    drop(read);
    let last = waiting.last().copied().filter(|_| waiting.len() >= limit).map(RunId::from_uuid);
    let mut advanced = Advanced { flows: waiting.len(), started: 0, last };
    for flow in waiting.into_iter().map(RunId::from_uuid) {
        match advance_one(store, flow).await {
            Ok(started) => advanced.started += started,
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%flow, %error, source, "a flow could not be advanced; it is tried again");
            }
        }
    }
    Ok(advanced)
}

async fn advance_one(store: &SqliteStore, flow: RunId) -> Result<usize> {
    let mut write = store.write(DOING).await?;
    let started = advance(&mut write, store.limits.open_requests_per_job_max, flow).await?;
    write.commit().await?;
    Ok(started)
}

async fn advance(write: &mut Write, waiting_max: u64, flow: RunId) -> Result<usize> {
    if let Some(row) = hold(write, flow).await? {
        let runs = runs_of(&mut write.tx, &row, DOING).await?;
        let decided = row.decide(&runs).unwrap_or_default();
        let starts: Vec<JobId> =
            decided.iter().filter(|decision| decision.fate == Fate::Start).map(|decision| decision.job).collect();
        let standing = standing(write, &starts).await?;
        let outputs = outputs(write, &row.parents_of(&starts)).await?;
        let children = row.children(&decided, &standing, &outputs, waiting_max, write.now);
        forget(write, flow).await?;
        return record(write, &row, &children, &standing).await;
    }
    forget(write, flow).await?;
    Ok(0)
}

async fn forget(write: &mut Write, flow: RunId) -> Result<()> {
    sqlx::query(sql!("flow_forget_steps")).bind(flow.uuid()).execute(&mut *write.tx).await.failed(DOING)?;
    Ok(())
}

/// The row of a flow, which is made where there is none. `None` when there is no such flow: its root was pruned, or nobody
/// follows the root's job any more.
pub(super) async fn hold(write: &mut Write, flow: RunId) -> Result<Option<FlowRow>> {
    let doing = write.doing;
    if let Some(row) = find(&mut write.tx, flow, doing).await? {
        return Ok(Some(row));
    }
    let Some(root) = root_of(&mut write.tx, flow, doing).await? else { return Ok(None) };
    let graph = edges::load(&mut write.tx, sql!("flow_below"), &[root.job], doing).await?.graph(root.job);
    if graph.nodes.len() < 2 || !root.opens {
        return Ok(None);
    }
    let row = FlowRow::opened(flow, (root.tenant, root.scheduled_at), graph, write.now);
    insert(write, &row).await?;
    Ok(Some(row))
}

/// How jobs stand.
pub(super) async fn standing(write: &mut Write, jobs: &[JobId]) -> Result<BTreeMap<JobId, Standing>> {
    let mut standing = BTreeMap::new();
    if jobs.is_empty() {
        return Ok(standing);
    }
    let doing = write.doing;
    let asked = rows::job_ids(jobs.iter().copied()).failed(doing)?;
    let found = sqlx::query(sql!("load_jobs")).bind(asked).fetch_all(&mut *write.tx).await.failed(doing)?;
    let found = rows::readable_jobs(&found);
    // Where any number may be open, none of them is read.
    let counted = found.iter().filter(|row| row.job.spec.in_progress_max().is_some()).map(|row| row.job.id);
    let mut open = horizon::open_runs(&mut write.tx, counted, doing).await?;
    for row in found {
        let id = row.job.id;
        let waiting: i64 =
            sqlx::query_scalar(sql!("count_waiting")).bind(id.uuid()).fetch_one(&mut *write.tx).await.failed(doing)?;
        let open = open.remove(&id).map_or(OpenRuns::NONE, |open| OpenRun::count(&open));
        standing.insert(id, Standing { job: row.job, open, waiting: waiting.unsigned_abs() });
    }
    Ok(standing)
}

/// What parents left.
pub(super) async fn outputs(write: &mut Write, runs: &[RunId]) -> Result<BTreeMap<RunId, Output>> {
    if runs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found: Vec<(Uuid, i64, Option<String>)> = sqlx::query_as(sql!("flow_outputs"))
        .bind(rows::run_ids(runs.iter().copied()).failed(write.doing)?)
        .fetch_all(&mut *write.tx)
        .await
        .failed(write.doing)?;
    let output = |(run, state, output): (Uuid, i64, Option<String>)| {
        let state = State::from_code(state).unwrap_or(State::Skipped);
        (RunId::from_uuid(run), Output { state, output })
    };
    Ok(found.into_iter().map(output).collect())
}

/// Writes children; one that is on the record stays. Gives how many wait now.
pub(super) async fn record(
    write: &mut Write,
    row: &FlowRow,
    children: &[ChildRow],
    standing: &BTreeMap<JobId, Standing>,
) -> Result<usize> {
    if children.is_empty() {
        return Ok(0);
    }
    let doing = write.doing;
    let batch: Vec<_> = children
        .iter()
        .map(|child| {
            (
                Hex(child.run.uuid()),
                Hex(child.job.uuid()),
                child.cause.code(),
                child.state.code(),
                child.reason.map(SkipReason::code),
                child.error.as_deref().map(Text),
                child.payload.as_deref().map(Text),
            )
        })
        .collect();
    let made: Vec<Uuid> = sqlx::query_scalar(sql!("flow_record"))
        .bind(rows::json(&batch).failed(doing)?)
        .bind(row.tenant.raw())
        .bind(row.id.uuid())
        .bind(row.scheduled_at.millis())
        .bind(write.now.millis())
        .fetch_all(&mut *write.tx)
        .await
        .failed_or_refused(doing)?;
    let waiting: Vec<&ChildRow> =
        children.iter().filter(|child| child.waits() && made.contains(&child.run.uuid())).collect();
    let queued: Vec<Queued<'_>> = waiting
        .iter()
        .map(|child| Queued { run: child.run, priority: child.priority, late: false, key: child.key.as_deref() })
        .collect();
    record::wait(write, &queued, doing).await?;
    for child in &waiting {
        let stands = standing.get(&child.job);
        if stands.is_some_and(|stands| matches!(stands.job.spec.overlap, Overlap::Queue { .. })) {
            range::raise_epoch(write, child.job).await?;
        }
    }
    leave_steps(write, children.iter().filter(|child| child.leaves_step).map(|child| child.run)).await?;
    Ok(waiting.len())
}

/// A tenant's flow; or none of its.
pub(super) async fn hold_own(write: &mut Write, tenant: TenantId, flow: RunId) -> Result<FlowRow> {
    let row = hold(write, flow).await?.filter(|row| row.tenant == tenant);
    row.ok_or(StoreError::NotFound("flow"))
}
