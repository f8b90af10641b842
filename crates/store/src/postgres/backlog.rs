//! Backlogs too long for one transaction.
//!
//! A cancel, or an edit that moves waiting runs, marks the job in its own short transaction. From then on no claim
//! takes a marked run. Any node cancels or moves the runs in batches, each one commit. A crash leaves the mark, and the
//! next batch continues. Runs that begin to wait later get a higher lot, so they are not marked.
//!
//! A claim that began before the mark was committed may still take a marked run, and a settlement may put that run back
//! under a new lot. So a cancel has three steps:
//!
//! ```text
//! mark    mark every lot of the job, also of runs that begin to wait later: no claim that begins now takes any
//! wait    until the claims of all nodes that began before the commit of the mark have ended
//! bound   under the job's lock: cancel what those claims took; runs that begin to wait from now on are not marked
//! ```
//!
//! In the last step no claim of the job is in progress, so each open run either waits under a marked lot or is visible
//! as claimed. The cancel returns after this step. If its node dies before, the node that processes the backlog does
//! the last two steps.

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    queue::lead,
};
use uuid::Uuid;

use super::{
    DbTx, Failed, PostgresStore, flow_runs, homes, is_locked, jobs,
    marks::{self, Mark},
    rows,
};
use crate::{
    Actor, BacklogAction, BacklogStep, CancelledJob, EditJob, Edited, JobRef, Result, TenantJob,
    tx::{SharedTx as _, Tx as _, cancel, edit, in_tx},
};

const DOING: &str = "process a backlog";

/// Edits a job. If it cancels a long backlog, waits for the claims that began before.
pub(super) async fn edit_job(store: &PostgresStore, tenant: TenantId, actor: &Actor, ask: EditJob) -> Result<Edited> {
    let cancel = ask.cancel;
    let mut edited = in_tx!(store, "edit the job", tx => edit::edit_job(tx, tenant, actor, ask))?;
    if edited.backlog && cancel {
        edited.cancelled.extend(cancel_late_claims(store, tenant, actor, edited.job.id).await?);
    }
    Ok(edited)
}

/// Completes the cancellation of the runs of a job. If the backlog is long, waits for the claims that began before.
pub(super) async fn after_cancel(
    store: &PostgresStore,
    actor: &Actor,
    tenant: TenantId,
    job: JobId,
    mut done: TenantJob,
) -> Result<TenantJob> {
    if done.backlog {
        done.cancelled.extend(cancel_late_claims(store, tenant, actor, job).await?);
    }
    Ok(done)
}

/// Cancels all open runs of a job. If the backlog is long, waits for the claims that began before.
pub(super) async fn cancel_job(
    store: &PostgresStore,
    tenant: TenantId,
    actor: &Actor,
    job: &JobRef,
) -> Result<CancelledJob> {
    let mut cancelled = in_tx!(store, "cancel the runs of a job", tx => cancel::cancel_job(tx, tenant, actor, job))?;
    if cancelled.runs.backlog {
        let late = cancel_late_claims(store, tenant, actor, cancelled.job).await?;
        cancelled.runs.claimed.extend(late);
    }
    Ok(cancelled)
}

/// Marks the waiting runs of a job. The caller has the job locked. Waits for settlements in progress, so that the runs
/// they put back are marked too.
pub(super) async fn mark(
    write: &mut DbTx,
    tenant: TenantId,
    actor: &Actor,
    job: JobId,
    action: BacklogAction,
) -> Result<()> {
    homes::lock_claimed(write, job.uuid()).await?;
    marks::set(write, tenant, actor, job, action).await
}

/// The last two steps of a cancel whose mark is committed. Returns the claimed runs that it cancelled. If another
/// session keeps a lock longer than the lock timeout, the mark stays, and the node that processes the backlog tries
/// again.
pub(super) async fn cancel_late_claims(
    store: &PostgresStore,
    tenant: TenantId,
    actor: &Actor,
    job: JobId,
) -> Result<Vec<RunId>> {
    match bound(store, tenant, actor, job).await {
        Err(error) if is_locked(&error) => {
            tracing::info!(%job, "claims are in progress; the cancel continues in the background");
            Ok(Vec::new())
        }
        done => done,
    }
}

async fn bound(store: &PostgresStore, tenant: TenantId, actor: &Actor, job: JobId) -> Result<Vec<RunId>> {
    const DOING: &str = "cancel late claims";
    claims_end(store).await?;
    let mut write = store.write(DOING).await?;
    let done = late_claims(&mut write, tenant, actor, job).await;
    write.finish(done).await
}

/// Waits for the claims in progress on all nodes; each share-locks its node's lease. Uses one transaction per lease:
/// while it waits for one node, it must not lock the leases of others, because no node records or renews without its
/// lease.
async fn claims_end(store: &PostgresStore) -> Result<()> {
    const DOING: &str = "wait for claims";
    let mut read = store.read(DOING).await?;
    let leases: Vec<Uuid> = read.scalars(query!("backlog/backlog_leases")).await?;
    drop(read);
    for lease in leases {
        let mut wait = store.write(DOING).await?;
        let waited = wait.execute(query!("backlog/backlog_claims_end", lease)).await;
        wait.finish(waited).await?;
    }
    Ok(())
}

async fn late_claims(write: &mut DbTx, tenant: TenantId, actor: &Actor, job: JobId) -> Result<Vec<RunId>> {
    write.execute(query!("epochs/lock_epoch", job.uuid())).await?;
    write.read_clock().await?;
    // Another node may have done this step meanwhile. Runs claimed since then are not part of the cancel.
    if !marks::of(write, job).await?.is_some_and(|mark| mark.is_unbounded()) {
        return Ok(Vec::new());
    }
    // Waits for settlements in progress, so that the runs they put back are below the bound.
    homes::lock_claimed(write, job.uuid()).await?;
    write.execute(query!("backlog/backlog_bound", job.uuid())).await?;
    let claimed = cancel::cancel_claimed(write, job).await?;
    cancel::audit_cancelled(write, tenant, actor, &claimed).await?;
    Ok(claimed)
}

impl Mark {
    /// Whether a cancel still marks every lot; see `backlog_mark.sql`.
    const fn is_unbounded(&self) -> bool {
        self.up_to == i64::MAX
    }
}

pub(super) async fn advance(store: &PostgresStore) -> Result<BacklogStep> {
    bound_next(store).await?;
    let mut write = store.write(DOING).await?;
    let done = step(store, &mut write).await;
    write.finish(done).await
}

/// Does the last two steps of the next cancel, if its node has not done them yet.
async fn bound_next(store: &PostgresStore) -> Result<()> {
    let mut read = store.read(DOING).await?;
    let Some(job) = marks::next(&mut read).await? else { return Ok(()) };
    let mark = marks::of(&mut read, job).await?;
    drop(read);
    if let Some(mark) = mark.filter(Mark::is_unbounded) {
        cancel_late_claims(store, mark.tenant, &mark.actor, job).await?;
    }
    Ok(())
}

async fn step(store: &PostgresStore, write: &mut DbTx) -> Result<BacklogStep> {
    let Some(job) = marks::next(write).await? else { return Ok(BacklogStep::default()) };
    let locked: Option<(Option<String>, i16)> =
        write.fetch_optional_as(query!("backlog/lock_backlog_job", job.uuid())).await?;
    let now = write.read_clock().await?;
    let mark = marks::of(write, job).await?.filter(|mark| !mark.is_unbounded());
    let (Some((queue, partition)), Some(mark)) = (locked, mark) else {
        // Another session has the job locked, or its cancel is not bounded yet: try the next job.
        let actions = [BacklogAction::Cancel, BacklogAction::Move];
        for action in actions {
            marks::worked(write, job, action, 0).await?;
        }
        return Ok(BacklogStep::default());
    };
    let batch = write.limits.backlog_batch_max;
    let count = match mark.action {
        BacklogAction::Cancel => cancel(store, write, job, &mark).await?,
        BacklogAction::Move => {
            let spec = jobs::load(write, &[job]).await?.into_iter().next().map(|row| row.job.spec);
            let priority = spec.map_or(0, |spec| spec.priority);
            let moved = write
                .execute(query!(
                    "backlog/backlog_move",
                    job.uuid(),
                    mark.up_to,
                    rows::limit(batch),
                    queue,
                    partition,
                    lead(priority, false),
                    lead(priority, true),
                    now.millis()
                ))
                .await?;
            write.notify_owners().await?;
            usize::try_from(moved).unwrap_or(usize::MAX)
        }
    };
    marks::worked(write, job, mark.action, count).await?;
    if count < batch && marks::left(write, job, mark.up_to, 1).await? == 0 {
        marks::remove(write, job, mark.action).await?;
    }
    let (cancelled, moved) = if mark.action == BacklogAction::Cancel { (count, 0) } else { (0, count) };
    Ok(BacklogStep { job: Some(job), cancelled, moved })
}

/// Cancels a batch. Returns the number of runs.
async fn cancel(store: &PostgresStore, write: &mut DbTx, job: JobId, mark: &Mark) -> Result<usize> {
    let taken: Vec<Uuid> = write
        .scalars(query!("backlog/backlog_take", job.uuid(), mark.up_to, rows::limit(write.limits.backlog_batch_max)))
        .await?;
    if taken.is_empty() {
        return Ok(0);
    }
    let mut ended: Vec<(Uuid, bool)> = Vec::with_capacity(taken.len());
    for (table, ids) in store.by_table(taken.iter().copied().map(RunId::from_uuid).collect(), |id| *id) {
        let found = sqlx::query_as(day_sql!("backlog/backlog_cancel", &table))
            .bind(rows::run_ids(ids))
            .bind(write.now.millis())
            .fetch_all(&mut *write.tx)
            .await
            .failed(DOING)?;
        ended.extend::<Vec<(Uuid, bool)>>(found);
    }
    let followed: bool = write.scalar(query!("backlog/backlog_followed", job.uuid())).await?;
    let steps: Vec<Uuid> = ended.iter().filter(|(_, of_flow)| *of_flow || followed).map(|(run, _)| *run).collect();
    if !steps.is_empty() {
        flow_runs::leave_steps(write, &steps).await?;
    }
    marks::audit_cancelled(write, job, mark, ended.len()).await?;
    Ok(taken.len())
}
