//! The verbs of cold transactions whose statements differ from SQLite's. `both/tx.rs` calls them.

use std::collections::BTreeSet;

use everytick_domain::{
    edit::Edit,
    flow::When,
    home::{BlockClaim, Homes},
    ids::{Epoch, JobId, RunId, TenantId},
    job::Job,
    plan::TickRow,
    queue::lead,
    time::DbTime,
};

use super::{DbTx, days::Day, flow_runs, homes, horizon, range, record, rows, settle};
use crate::{
    Actor, AuditResult, Result,
    tx::{JobRow, RequestedRun, Tx as _, backfill::StoredProgress},
};

pub(super) async fn read_clock(tx: &mut DbTx) -> Result<DbTime> {
    tx.now = DbTime::from_millis(tx.scalar(query!("setup/now")).await?);
    Ok(tx.now)
}

pub(super) async fn audit(
    tx: &mut DbTx,
    tenant: TenantId,
    actor: &Actor,
    action: &str,
    audit: &[(String, String)],
    result: AuditResult,
) -> Result<()> {
    let (subjects, details): (Vec<_>, Vec<_>) = audit.iter().cloned().unzip();
    let (at, name) = (tx.now.millis(), rows::text(&actor.name));
    let insert = query!("audit/audit", tenant.raw(), at, name, action, subjects, details);
    tx.execute(rows::bind_origin(insert, actor, result)).await.map(drop)
}

pub(super) async fn lock_homes(tx: &mut DbTx, regions: &[&str]) -> Result<Homes> {
    homes::load(tx, regions).await
}
pub(super) async fn claim_block(tx: &mut DbTx, claim: &BlockClaim) -> Result<()> {
    homes::claim(tx, claim).await
}
pub(super) async fn move_job(tx: &mut DbTx, was: &Job, job: &Job, marked: bool) -> Result<()> {
    if job.partition != was.partition {
        homes::move_job(tx, job, marked).await?;
    }
    let requeued = job.spec.target.queue() != was.spec.target.queue();
    if requeued || job.spec.is_guarded() != was.spec.is_guarded() {
        homes::requeue(tx, job, requeued && !marked).await?;
    }
    Ok(())
}

/// Ticks before the oldest day have no table: they are recorded as skips.
pub(super) async fn insert_edited(tx: &mut DbTx, was: &JobRow, edit: &Edit) -> Result<BTreeSet<RunId>> {
    let (job, oldest) = (&edit.job, tx.oldest_day);
    let is_old = |tick: &TickRow| oldest.is_some_and(|oldest| Day::of(tick.at) < oldest);
    let (old, kept): (Vec<&TickRow>, Vec<&TickRow>) = edit.rows.iter().partition(|tick| is_old(tick));
    let due = was.ticks(job.partition, kept);
    let mut recorded = record::insert_edited(tx, &due, was.job.spec.target.queue()).await?;
    recorded.extend(old.iter().map(|tick| tick.id));
    range::insert_ranges(tx, job.id, job.tenant, &record::ranges_of(old.into_iter())).await?;
    Ok(recorded)
}

pub(super) async fn insert_parents(tx: &mut DbTx, job: &Job, parents: &[(JobId, When)]) -> Result<()> {
    let ids = rows::job_ids(parents.iter().map(|(id, _)| *id));
    let conditions: Vec<_> = parents.iter().map(|(_, when)| when.code()).collect();
    tx.execute_or_refuse(query!("edges/flow_adopt", job.tenant.raw(), job.id.uuid(), ids, conditions)).await.map(drop)
}

pub(super) async fn enqueue_requested(tx: &mut DbTx, run: &RequestedRun<'_>) -> Result<()> {
    let (job, spec, now) = (run.job, &run.job.spec, tx.now.millis());
    tx.execute_or_refuse(query!(
        "waiting/enqueue_run",
        run.id.uuid(),
        job.id.uuid(),
        job.tenant.raw(),
        rows::partition(job.partition),
        i16::from(spec.priority),
        now,
        run.force,
        spec.target.queue(),
        spec.target.queue().map(|_| now - lead(spec.priority, false)),
        spec.key_of(run.payload.map(String::as_str))
    ))
    .await
    .map(drop)
}

// A worker's claim on a run that has ended already is not removed here: every transaction that ends a run removes it,
// and the search for overdue claims removes what a node of an early release left.
pub(super) async fn cancel_claimed(tx: &mut DbTx, job: JobId) -> Result<Vec<RunId>> {
    let lowest = horizon::lowest_open_from(tx, tx.now).await?;
    let cancel = query!("runs/cancel_claimed", job.uuid(), tx.now.millis(), lowest.uuid());
    let mut claimed = tx.run_ids(cancel).await?;
    let listed = tx.run_ids(query!("runs/lock_claimed_listed", job.uuid())).await?;
    tx.cancel_runs(&listed).await?;
    claimed.extend(listed);
    Ok(claimed)
}

/// Leaves out runs from days that are dropped, because a new run would have no table of its day.
pub(super) async fn first_redrivable(tx: &mut DbTx, from: RunId) -> Result<RunId> {
    let closed: i64 = tx.scalar(query!("days/days_closed")).await?;
    Ok(from.max(RunId::floor(DbTime::from_millis(closed))))
}

pub(super) async fn insert_redriven(tx: &mut DbTx, job: &Job, runs: &[(RunId, RunId, Option<String>)]) -> Result<()> {
    let (queue, now) = (job.spec.target.queue(), tx.now.millis());
    tx.execute_or_refuse(query!(
        "runs/redrive_runs",
        rows::run_ids(runs.iter().map(|(failed, _, _)| *failed)),
        rows::run_ids(runs.iter().map(|(_, run, _)| *run)),
        now,
        rows::partition(job.partition),
        i16::from(job.spec.priority),
        queue,
        queue.map(|_| now - lead(job.spec.priority, true)),
        runs.iter().map(|(_, _, key)| key.clone()).collect::<Vec<_>>()
    ))
    .await
    .map(drop)
}

pub(super) async fn insert_backfilled(tx: &mut DbTx, row: &StoredProgress, job: &Job, ticks: &[DbTime]) -> Result<()> {
    let (spec, now, queue) = (&job.spec, tx.now.millis(), job.spec.target.queue());
    let payload = row.payload.as_deref();
    tx.execute_or_refuse(query!(
        "backfills/backfill_make",
        rows::run_ids(ticks.iter().map(|tick| row.origin.run(job.id, *tick))),
        ticks.iter().map(|tick| tick.millis()).collect::<Vec<_>>(),
        job.tenant.raw(),
        job.id.uuid(),
        now,
        payload,
        rows::partition(job.partition),
        i16::from(spec.priority),
        queue,
        queue.map(|_| now - lead(spec.priority, true)),
        spec.key_of(payload),
        row.origin.backfill.uuid()
    ))
    .await
    .map(drop)
}

pub(super) async fn insert_calendar_uses(tx: &mut DbTx, tenant: TenantId, uses: &[(JobId, &str)]) -> Result<()> {
    let (jobs, names): (Vec<_>, Vec<_>) = uses.iter().map(|(job, name)| (job.uuid(), (*name).to_owned())).unzip();
    tx.execute(query!("calendars/calendar_use", tenant.raw(), jobs, names)).await.map(drop)
}

pub(super) async fn insert_secret_uses(tx: &mut DbTx, tenant: TenantId, uses: &[(JobId, &str)]) -> Result<()> {
    let (jobs, names): (Vec<_>, Vec<_>) = uses.iter().map(|(job, name)| (job.uuid(), (*name).to_owned())).unzip();
    tx.execute(query!("secrets/secret_use", tenant.raw(), jobs, names)).await.map(drop)
}

pub(super) async fn raise_epoch(tx: &mut DbTx, job: JobId) -> Result<Epoch> {
    tx.scalar(query!("epochs/raise_epoch", job.uuid(), tx.now.millis())).await.map(Epoch::from_raw)
}
pub(super) async fn raise_epochs(tx: &mut DbTx, jobs: &[JobId]) -> Result<()> {
    tx.execute(query!("epochs/raise_epochs", rows::job_ids(jobs), tx.now.millis())).await.map(drop)
}

pub(super) async fn end_claims(tx: &mut DbTx, runs: &[RunId]) -> Result<()> {
    settle::end_cancelled(tx, rows::run_ids(runs)).await
}
pub(super) async fn leave_steps(tx: &mut DbTx, runs: &[RunId]) -> Result<()> {
    flow_runs::leave_steps(tx, &rows::run_ids(runs)).await
}

/// A function of the schema: the role of a node that does not own the tables may not delete audit rows.
pub(super) async fn prune_audit(tx: &mut DbTx, before: DbTime, limit: usize) -> Result<u64> {
    let gone: i64 = tx.scalar(query!("audit/prune_audit", before.millis(), rows::limit(limit))).await?;
    Ok(gone.unsigned_abs())
}
