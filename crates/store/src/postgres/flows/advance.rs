//! Takes steps up: one transaction a flow. Holds the flow's row, then reads its steps, then how its runs stand (each in a
//! statement of its own, so that whoever holds the row sees at least what the steps tell of), asks the domain what comes next,
//! judges children under their epochs as requests are judged, writes them, and removes the steps that it read.

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
    super::{Failed, PostgresStore, Write, horizon, range, rows},
    edges, find, insert, leave_steps, root_of, runs_of, sql,
};
use crate::{
    Advanced, OpenRun, Result,
    flows::{ChildRow, FlowRow, Output, Standing},
};

const DOING: &str = "advance a flow";

pub(super) async fn advance_flows(store: &PostgresStore, after: Option<RunId>, limit: usize) -> Result<Advanced> {
    let waiting = store.reads(flows_with_steps(store, after, limit)).await?;
    let mut advanced =
        Advanced { flows: waiting.len(), started: 0, last: waiting.last().copied().filter(|_| waiting.len() >= limit) };
    for flow in waiting {
        match store.writes(advance_one(store, flow)).await {
            Ok(started) => advanced.started += started,
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%flow, %error, source, "a flow could not be advanced; it is tried again");
            }
        }
    }
    Ok(advanced)
}

async fn flows_with_steps(store: &PostgresStore, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
    let mut read = store.read(DOING).await?;
    let found: Vec<Uuid> = sqlx::query_scalar(sql!("flow_steps_after"))
        .bind(after.map_or(Uuid::nil(), RunId::uuid))
        .bind(rows::limit(limit))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    Ok(found.into_iter().map(RunId::from_uuid).collect())
}

async fn advance_one(store: &PostgresStore, flow: RunId) -> Result<usize> {
    let mut write = store.write(DOING).await?;
    let done = advance(&mut write, store.limits.open_requests_per_job_max, flow).await;
    write.finish(done).await
}

async fn advance(write: &mut Write, waiting_max: u64, flow: RunId) -> Result<usize> {
    let Some(row) = hold(write, flow).await? else {
        sqlx::query(sql!("flow_forget_steps")).bind(flow.uuid()).execute(&mut *write.tx).await.failed(DOING)?;
        return Ok(0);
    };
    let steps: Vec<Uuid> =
        sqlx::query_scalar(sql!("flow_steps_of")).bind(flow.uuid()).fetch_all(&mut *write.tx).await.failed(DOING)?;
    if steps.is_empty() {
        return Ok(0);
    }
    let runs = runs_of(&mut write.tx, &row, DOING).await?;
    let decided = row.decide(&runs).unwrap_or_default();
    let starts: Vec<JobId> =
        decided.iter().filter(|decision| decision.fate == Fate::Start).map(|decision| decision.job).collect();
    let standing = standing(write, &starts).await?;
    write.read_clock().await?;
    let outputs = outputs(write, &row.parents_of(&starts)).await?;
    let children = row.children(&decided, &standing, &outputs, waiting_max, write.now);
    let started = record(write, &row, &children, &standing).await?;
    sqlx::query(sql!("flow_drop_steps")).bind(&steps).execute(&mut *write.tx).await.failed(DOING)?;
    Ok(started)
}

/// Holds the row of a flow, which is made where there is none. `None` when there is no such flow: its root was pruned, or nobody
/// follows the root's job any more.
pub(super) async fn hold(write: &mut Write, flow: RunId) -> Result<Option<FlowRow>> {
    let doing = write.doing;
    if let Some(row) = find(&mut write.tx, sql!("flow_held"), flow, doing).await? {
        return Ok(Some(row));
    }
    let Some(root) = root_of(&mut write.tx, flow, doing).await? else { return Ok(None) };
    let graph = edges::load(&mut write.tx, sql!("flow_below"), &[root.job], doing).await?.graph(root.job);
    if graph.nodes.len() < 2 || !root.opens {
        return Ok(None);
    }
    let now = write.read_clock().await?;
    insert(write, &FlowRow::opened(flow, (root.tenant, root.scheduled_at), graph, now)).await?;
    find(&mut write.tx, sql!("flow_held"), flow, doing).await
}

/// Holds jobs against whatever else may make runs of them, in the order of their ids, and reads how they stand.
pub(super) async fn standing(write: &mut Write, jobs: &[JobId]) -> Result<BTreeMap<JobId, Standing>> {
    if jobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let doing = write.doing;
    // As a request is held: under `queue` ticks and requests must see each other.
    let before = horizon::job_rows(&mut write.tx, jobs, doing).await?;
    let queues = before.iter().any(|row| matches!(row.job.spec.overlap, Overlap::Queue { .. }));
    let statement = if queues { sql!("epochs_held") } else { sql!("flow_jobs_held") };
    sqlx::query(statement).bind(rows::job_ids(jobs.iter().copied())).execute(&mut *write.tx).await.failed(doing)?;
    let found = horizon::job_rows(&mut write.tx, jobs, doing).await?;
    let now = write.read_clock().await?;
    // Where any number may be open, none of them is read.
    let counted = found.iter().filter(|row| row.job.spec.in_progress_max().is_some()).map(|row| row.job.id);
    let counted: Vec<JobId> = counted.collect();
    let mut open = horizon::open_runs(&mut write.tx, &counted, now, doing).await?;
    let mut standing = BTreeMap::new();
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
    let found: Vec<(Uuid, i16, Option<String>)> = sqlx::query_as(sql!("flow_outputs"))
        .bind(rows::run_ids(runs.iter().copied()))
        .fetch_all(&mut *write.tx)
        .await
        .failed(write.doing)?;
    let output = |(run, state, output): (Uuid, i16, Option<String>)| {
        let state = State::from_code(state.into()).unwrap_or(State::Skipped);
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
    let all = || children.iter();
    let made: Vec<(Uuid, i16)> = sqlx::query_as(sql!("flow_record"))
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
        .bind(write.now.millis())
        .fetch_all(&mut *write.tx)
        .await
        .failed_or_refused(write.doing)?;
    let stepped: Vec<Uuid> = all().filter(|child| child.leaves_step).map(|child| child.run.uuid()).collect();
    leave_steps(write, &stepped).await?;
    let mut started = 0;
    for child in all().filter(|child| child.waits()) {
        if !made.iter().any(|(run, _)| *run == child.run.uuid()) {
            continue;
        }
        started += 1;
        let queues =
            standing.get(&child.job).is_some_and(|stands| matches!(stands.job.spec.overlap, Overlap::Queue { .. }));
        if queues {
            range::raise_epoch(write, child.job).await?;
        }
    }
    if started > 0 {
        range::notify(write).await?;
    }
    Ok(started)
}

/// A tenant's flow, held; or none of its.
pub(super) async fn hold_own(write: &mut Write, tenant: TenantId, flow: RunId) -> Result<FlowRow> {
    let row = hold(write, flow).await?.filter(|row| row.tenant == tenant);
    row.ok_or(crate::StoreError::NotFound("flow"))
}
