//! Processes steps, in one transaction per flow. It locks the flow's row, reads its steps, and then reads the state of
//! its runs. These are separate statements, so the reads under the lock see at least the changes that the steps
//! announce. Then it asks the domain what comes next, judges children under their epochs as requests are judged, writes
//! them, and removes the steps that it read. Payloads are rendered before that transaction: the parents' outputs are
//! final, and a job edited in between is left to the next transaction.

use std::collections::BTreeMap;

use everytick_domain::{
    flow,
    ids::{JobId, RunId, TenantId},
    job::Overlap,
    overlap::OpenRuns,
    run::{SkipReason, State},
};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    super::{Failed, PostgresStore, Write, horizon, range, rows},
    asks::peek,
    edges, find, insert, leave_steps, root_of, runs_of, sql,
};
use crate::tx::Tx as _;
use crate::{
    Advanced, OpenRun, Result,
    flows::{ChildRow, FlowRow, How, LockedChild, Output, Rendered},
};

const DOING: &str = "advance a flow";

pub(super) async fn flows_with_steps(store: &PostgresStore, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
    let mut read = store.read(DOING).await?;
    let found: Vec<Uuid> = sqlx::query_scalar(sql!("flow_steps_after"))
        .bind(after.map_or(Uuid::nil(), RunId::uuid))
        .bind(rows::limit(limit))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    Ok(found.into_iter().map(RunId::from_uuid).collect())
}

pub(super) async fn advance_flow(store: &PostgresStore, flow: RunId) -> Result<Advanced> {
    let rendered = render(store, flow).await?;
    advance_by(store, flow, How::With(&rendered)).await
}

pub(super) async fn advance_by(store: &PostgresStore, flow: RunId, how: How<'_>) -> Result<Advanced> {
    let mut write = store.write(DOING).await?;
    let done = advance(&mut write, store.limits.open_requests_per_job_max, flow, how).await;
    write.finish(done).await
}

/// Renders the payloads of the children that may start, before any lock is taken.
async fn render(store: &PostgresStore, flow: RunId) -> Result<Rendered> {
    let mut read = store.read(DOING).await?;
    let mut rendered = Rendered::default();
    let Some(row) = peek(&mut read, flow, DOING).await? else { return Ok(rendered) };
    let decided = row.decide(&runs_of(&mut read, &row, DOING).await?).unwrap_or_default();
    let starts = decided.starts();
    if starts.is_empty() {
        return Ok(rendered);
    }
    for found in horizon::readable_job_rows(&mut read, &store.unreadable, &starts, DOING).await? {
        if flow::is_template(found.job.spec.payload.as_deref()) && !rendered.is_full() {
            let mut outputs = outputs(&mut read, &row.parents_of(&[found.job.id]), DOING).await?;
            row.add_skipped(&decided, &mut outputs);
            rendered.add(&found.job, row.render(&found.job, &outputs));
        }
    }
    Ok(rendered)
}

async fn advance(write: &mut Write, waiting_max: u64, flow: RunId, how: How<'_>) -> Result<Advanced> {
    let Some(row) = hold(write, flow).await? else {
        sqlx::query(sql!("flow_forget_steps")).bind(flow.uuid()).execute(&mut *write.tx).await.failed(DOING)?;
        return Ok(Advanced::default());
    };
    let steps: Vec<Uuid> =
        sqlx::query_scalar(sql!("flow_steps_of")).bind(flow.uuid()).fetch_all(&mut *write.tx).await.failed(DOING)?;
    if steps.is_empty() {
        return Ok(Advanced::default());
    }
    let decided = row.decide(&runs_of(&mut write.tx, &row, DOING).await?).unwrap_or_default();
    let (standing, children) = match how {
        How::With(rendered) => {
            let standing = standing(write, &decided.starts(), waiting_max).await?;
            write.read_clock().await?;
            let children = row.children(&decided, &standing, rendered, waiting_max, write.now);
            (standing, children)
        }
        How::GiveUp(why) => {
            write.read_clock().await?;
            (BTreeMap::new(), row.given_up(&decided, why, write.now))
        }
    };
    let advanced = record(write, &row, &children.rows, &standing).await?;
    if !children.more {
        sqlx::query(sql!("flow_drop_steps")).bind(&steps).execute(&mut *write.tx).await.failed(DOING)?;
    }
    Ok(Advanced { more: children.more, ..advanced })
}

/// Locks the row of a flow, and creates it if missing. `None` if there is no such flow: its root was pruned, or no job
/// depends on the root's job any more.
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

/// Locks jobs against everything else that may create runs of them, in the order of their ids, and reads their state.
pub(super) async fn standing(
    write: &mut Write,
    jobs: &[JobId],
    waiting_max: u64,
) -> Result<BTreeMap<JobId, LockedChild>> {
    if jobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let doing = write.doing;
    // Locked as for a request: under `queue`, ticks and requests must see each other.
    let before = horizon::job_rows(&mut write.tx, &write.unreadable, jobs, doing).await?;
    let queues = before.iter().any(|row| matches!(row.job.spec.overlap, Overlap::Queue { .. }));
    let statement = if queues { sql!("epochs_held") } else { sql!("flow_jobs_held") };
    sqlx::query(statement).bind(rows::job_ids(jobs.iter().copied())).execute(&mut *write.tx).await.failed(doing)?;
    let found = horizon::job_rows(&mut write.tx, &write.unreadable, jobs, doing).await?;
    let now = write.read_clock().await?;
    // If any number of runs may be open, none of them is read.
    let counted = found.iter().map(|row| &row.job).filter(|job| job.spec.in_progress_max().is_some());
    let mut open = horizon::open_runs(&mut write.tx, counted, now, doing).await?;
    let mut standing = BTreeMap::new();
    for row in found {
        let id = row.job.id;
        let waiting = write.count_waiting(id, waiting_max).await?;
        let open = open.remove(&id).map_or(OpenRuns::NONE, |open| OpenRun::count(&open));
        standing.insert(id, LockedChild { job: row.job, open, waiting });
    }
    Ok(standing)
}

/// The results of parents.
pub(super) async fn outputs(
    connection: &mut PgConnection,
    runs: &[RunId],
    doing: &'static str,
) -> Result<BTreeMap<RunId, Output>> {
    if runs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found: Vec<(Uuid, i16, Option<String>, Option<String>)> = sqlx::query_as(sql!("flow_outputs"))
        .bind(rows::run_ids(runs.iter().copied()))
        .fetch_all(connection)
        .await
        .failed(doing)?;
    let output = |(run, state, output, error): (Uuid, i16, Option<String>, Option<String>)| {
        let state = State::from_code(state);
        (RunId::from_uuid(run), Output { state, output, error })
    };
    Ok(found.into_iter().map(output).collect())
}

/// Inserts children; an existing row stays. Returns a summary of the inserted ones.
pub(super) async fn record(
    write: &mut Write,
    row: &FlowRow,
    children: &[ChildRow],
    standing: &BTreeMap<JobId, LockedChild>,
) -> Result<Advanced> {
    if children.is_empty() {
        return Ok(Advanced::default());
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
    let advanced = row.advanced(all().filter(|child| made.iter().any(|(run, _)| *run == child.run.uuid())));
    for child in all().filter(|child| child.waits() && made.iter().any(|(run, _)| *run == child.run.uuid())) {
        let queues =
            standing.get(&child.job).is_some_and(|stands| matches!(stands.job.spec.overlap, Overlap::Queue { .. }));
        if queues {
            range::raise_epoch(write, child.job).await?;
        }
    }
    if advanced.started > 0 {
        range::notify(write).await?;
    }
    Ok(advanced)
}

/// Locks a flow of this tenant. A flow of another tenant is not found.
pub(super) async fn hold_own(write: &mut Write, tenant: TenantId, flow: RunId) -> Result<FlowRow> {
    let row = hold(write, flow).await?.filter(|row| row.tenant == tenant);
    row.ok_or(crate::StoreError::NotFound("flow"))
}
