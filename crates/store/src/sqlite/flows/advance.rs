//! Processes steps, in one transaction per flow. It reads the steps and the state of the flow's runs, asks the domain
//! what comes next, judges children as requests are judged, writes them, and removes the steps. Payloads are rendered
//! before that transaction: the parents' outputs are final, and a job edited in between is left to the next
//! transaction.

use std::collections::BTreeMap;

use everytick_domain::{
    flow,
    ids::{JobId, RunId, TenantId},
    job::Overlap,
    overlap::OpenRuns,
    run::{SkipReason, State},
};
use sqlx::SqliteConnection;
use uuid::Uuid;

use super::{
    super::{
        Failed, SqliteStore, Write, horizon, range,
        record::{self, Queued},
        rows,
        rows::{Hex, Text},
    },
    asks::peek,
    edges, find, insert, leave_steps, root_of, runs_of, sql,
};
use crate::tx::Tx as _;
use crate::{
    Advanced, OpenRun, Result, StoreError,
    flows::{ChildRow, FlowRow, How, LockedChild, Output, Rendered},
};

const DOING: &str = "advance a flow";

pub(super) async fn flows_with_steps(store: &SqliteStore, after: Option<RunId>, limit: usize) -> Result<Vec<RunId>> {
    let mut read = store.read(DOING).await?;
    let found: Vec<Uuid> = sqlx::query_scalar(sql!("flow_steps_after"))
        .bind(after.map_or(Uuid::nil(), RunId::uuid))
        .bind(rows::limit(limit))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    Ok(found.into_iter().map(RunId::from_uuid).collect())
}

pub(super) async fn advance_flow(store: &SqliteStore, flow: RunId) -> Result<Advanced> {
    let rendered = render(store, flow).await?;
    advance_by(store, flow, How::With(&rendered)).await
}

pub(super) async fn advance_by(store: &SqliteStore, flow: RunId, how: How<'_>) -> Result<Advanced> {
    let mut write = store.write(DOING).await?;
    let advanced = advance(&mut write, store.limits.open_requests_per_job_max, flow, how).await?;
    write.commit().await?;
    Ok(advanced)
}

/// Renders the payloads of the children that may start, before the write transaction begins.
async fn render(store: &SqliteStore, flow: RunId) -> Result<Rendered> {
    let mut read = store.read(DOING).await?;
    let mut rendered = Rendered::default();
    let Some(row) = peek(&mut read, flow, DOING).await? else { return Ok(rendered) };
    let decided = row.decide(&runs_of(&mut read, &row, DOING).await?).unwrap_or_default();
    for found in jobs(&mut read, &decided.starts(), DOING).await? {
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
        forget(write, flow).await?;
        return Ok(Advanced::default());
    };
    let decided = row.decide(&runs_of(&mut write.tx, &row, DOING).await?).unwrap_or_default();
    let (standing, children) = match how {
        How::With(rendered) => {
            let standing = standing(write, &decided.starts(), waiting_max).await?;
            let children = row.children(&decided, &standing, rendered, waiting_max, write.now);
            (standing, children)
        }
        How::GiveUp(why) => (BTreeMap::new(), row.given_up(&decided, why, write.now)),
    };
    if !children.more {
        forget(write, flow).await?;
    }
    let advanced = record(write, &row, &children.rows, &standing).await?;
    Ok(Advanced { more: children.more, ..advanced })
}

async fn forget(write: &mut Write, flow: RunId) -> Result<()> {
    sqlx::query(sql!("flow_forget_steps")).bind(flow.uuid()).execute(&mut *write.tx).await.failed(DOING)?;
    Ok(())
}

/// The row of a flow, created if missing. `None` if there is no such flow: its root was pruned, or no job depends on
/// the root's job any more.
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

async fn jobs(connection: &mut SqliteConnection, ids: &[JobId], doing: &'static str) -> Result<Vec<crate::tx::JobRow>> {
    let asked = rows::job_ids(ids.iter().copied()).failed(doing)?;
    let found = sqlx::query(sql!("load_jobs")).bind(asked).fetch_all(connection).await.failed(doing)?;
    found.iter().map(rows::job).collect::<std::result::Result<_, _>>().failed(doing)
}

/// The state of jobs: definition, open runs, waiting runs.
pub(super) async fn standing(
    write: &mut Write,
    jobs: &[JobId],
    waiting_max: u64,
) -> Result<BTreeMap<JobId, LockedChild>> {
    let mut standing = BTreeMap::new();
    if jobs.is_empty() {
        return Ok(standing);
    }
    let doing = write.doing;
    let found = self::jobs(&mut write.tx, jobs, doing).await?;
    // If any number of runs may be open, none of them is read.
    let counted = found.iter().map(|row| &row.job).filter(|job| job.spec.in_progress_max().is_some());
    let mut open = horizon::open_runs(&mut write.tx, counted, doing).await?;
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
    connection: &mut SqliteConnection,
    runs: &[RunId],
    doing: &'static str,
) -> Result<BTreeMap<RunId, Output>> {
    if runs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found: Vec<(Uuid, i16, Option<String>, Option<String>)> = sqlx::query_as(sql!("flow_outputs"))
        .bind(rows::run_ids(runs.iter().copied()).failed(doing)?)
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
    Ok(row.advanced(children.iter().filter(|child| made.contains(&child.run.uuid()))))
}

/// A flow of this tenant. A flow of another tenant is not found.
pub(super) async fn hold_own(write: &mut Write, tenant: TenantId, flow: RunId) -> Result<FlowRow> {
    let row = hold(write, flow).await?.filter(|row| row.tenant == tenant);
    row.ok_or(StoreError::NotFound("flow"))
}
