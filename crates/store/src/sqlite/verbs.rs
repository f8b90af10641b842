//! The verbs of cold transactions whose statements differ from PostgreSQL's. `both/tx.rs` calls them. One connection
//! writes, so no verb locks.

use std::collections::BTreeSet;

use async_trait::async_trait;
use everytick_domain::{
    edit::Edit,
    flow::When,
    home::{BlockClaim, Homes},
    ids::{Epoch, JobId, RunId, TenantId},
    job::Job,
    time::DbTime,
};

use super::{
    DbTx, backlog, define, flow_runs, marks, queue,
    record::{self, Queued},
    rows::{self, Hex},
    settle,
};
use crate::{
    Actor, AuditResult, BacklogAction, Result,
    tx::{JobRow, RequestedRun, SharedTx, backfill::StoredProgress},
};

#[async_trait]
impl SharedTx for DbTx {
    async fn backlog_is_long(&mut self, job: JobId) -> Result<bool> {
        marks::is_long(self, job).await
    }
    async fn backlog_action(&mut self, job: JobId) -> Result<Option<BacklogAction>> {
        marks::action_of(self, job).await
    }
    async fn mark_backlog(&mut self, tenant: TenantId, actor: &Actor, job: JobId, action: BacklogAction) -> Result<()> {
        backlog::mark(self, tenant, actor, job, action).await
    }
}

/// A write reads the clock once, when it has the write lock.
#[expect(clippy::unused_async, reason = "PostgreSQL's is a statement")]
pub(super) async fn read_clock(tx: &mut DbTx) -> Result<DbTime> {
    if let Some(clock) = &tx.clock {
        tx.now = clock.now();
    }
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
    let (at, rows) = (tx.now.millis(), rows::json(&audit));
    let insert = query!("audit/audit", tenant.raw(), at, &actor.name, action, rows);
    tx.execute(rows::bind_origin(insert, actor, result)).await.map(drop)
}

/// A file has one partition and no regions.
#[expect(clippy::unused_async, reason = "PostgreSQL's is a statement")]
pub(super) async fn lock_homes(_: &mut DbTx, _: &[&str]) -> Result<Homes> {
    Ok(Homes::new(1, []))
}
#[expect(clippy::unused_async, reason = "PostgreSQL's is a statement")]
pub(super) async fn claim_block(_: &mut DbTx, _: &BlockClaim) -> Result<()> {
    Ok(())
}
pub(super) async fn move_job(tx: &mut DbTx, was: &Job, job: &Job, marked: bool) -> Result<()> {
    let requeued = job.spec.target.queue() != was.spec.target.queue();
    if requeued { queue::requeue(tx, job, !marked).await } else { Ok(()) }
}

pub(super) async fn insert_edited(tx: &mut DbTx, was: &JobRow, edit: &Edit) -> Result<BTreeSet<RunId>> {
    record::insert_edited(tx, &was.ticks(0, &edit.rows)).await
}

pub(super) async fn insert_parents(tx: &mut DbTx, job: &Job, parents: &[(JobId, When)]) -> Result<()> {
    let parents: Vec<_> = parents.iter().map(|(id, when)| (Hex(id.uuid()), when.code())).collect();
    let adopt = query!("edges/flow_adopt", job.tenant.raw(), job.id.uuid(), rows::json(&parents));
    tx.execute_or_refuse(adopt).await.map(drop)
}

pub(super) async fn enqueue_requested(tx: &mut DbTx, run: &RequestedRun<'_>) -> Result<()> {
    let (priority, key) = (run.job.spec.priority, run.job.spec.key_of(run.payload.map(String::as_str)));
    record::wait(tx, &[Queued { run: run.id, priority, key: key.as_deref() }]).await
}

pub(super) async fn cancel_claimed(tx: &mut DbTx, job: JobId) -> Result<Vec<RunId>> {
    let mut claimed = tx.run_ids(query!("runs/cancel_claimed", job.uuid(), tx.now.millis())).await?;
    claimed.extend(tx.run_ids(query!("runs/cancel_listed", job.uuid(), tx.now.millis())).await?);
    Ok(claimed)
}

#[expect(clippy::unused_async, reason = "PostgreSQL's is a statement")]
pub(super) async fn first_redrivable(_: &mut DbTx, from: RunId) -> Result<RunId> {
    Ok(from)
}

pub(super) async fn insert_redriven(tx: &mut DbTx, job: &Job, runs: &[(RunId, RunId, Option<String>)]) -> Result<()> {
    let pairs: Vec<_> = runs.iter().map(|(failed, run, _)| (Hex(failed.uuid()), Hex(run.uuid()))).collect();
    tx.execute_or_refuse(query!("runs/redrive_runs", rows::json(&pairs), tx.now.millis())).await?;
    let priority = job.spec.priority;
    let queued = runs.iter().map(|(_, run, key)| Queued { run: *run, priority, key: key.as_deref() });
    record::wait(tx, &queued.collect::<Vec<_>>()).await
}

pub(super) async fn insert_backfilled(tx: &mut DbTx, row: &StoredProgress, job: &Job, ticks: &[DbTime]) -> Result<()> {
    let (spec, payload, backfill) = (&job.spec, row.payload.as_deref(), row.origin.backfill.uuid());
    let runs = ticks.iter().map(|tick| (Hex(row.origin.run(job.id, *tick).uuid()), tick.millis()));
    let (runs, now) = (rows::json(&runs.collect::<Vec<_>>()), tx.now.millis());
    let insert = query!("backfills/backfill_make", runs, job.tenant.raw(), job.id.uuid(), now, payload);
    let inserted = tx.written_runs(insert).await?;
    let key = spec.key_of(payload);
    let queued = |run: &RunId| Queued { run: *run, priority: spec.priority, key: key.as_deref() };
    record::wait(tx, &inserted.iter().map(queued).collect::<Vec<_>>()).await?;
    tx.execute(query!("backfills/backfill_runs_add", rows::run_ids(inserted), backfill, job.tenant.raw()))
        .await
        .map(drop)
}

pub(super) async fn insert_calendar_uses(tx: &mut DbTx, tenant: TenantId, uses: &[(JobId, &str)]) -> Result<()> {
    let uses: Vec<_> = uses.iter().map(|(job, name)| (Hex(job.uuid()), name)).collect();
    tx.execute(query!("calendars/calendar_use", tenant.raw(), rows::json(&uses))).await.map(drop)
}

pub(super) async fn insert_secret_uses(tx: &mut DbTx, tenant: TenantId, uses: &[(JobId, &str)]) -> Result<()> {
    let uses: Vec<_> = uses.iter().map(|(job, name)| (Hex(job.uuid()), name)).collect();
    tx.execute(query!("secrets/secret_use", tenant.raw(), rows::json(&uses))).await.map(drop)
}

pub(super) async fn raise_epoch(tx: &mut DbTx, job: JobId) -> Result<Epoch> {
    let change = define::next_change(tx, 1).await?;
    tx.scalar(query!("epochs/raise_epoch", job.uuid(), change, tx.now.millis())).await.map(Epoch::from_raw)
}
pub(super) async fn raise_epochs(tx: &mut DbTx, jobs: &[JobId]) -> Result<()> {
    let before = define::next_change(tx, jobs.len()).await? - rows::limit(jobs.len());
    let raise = query!("calendars/calendar_raise_epochs", rows::job_ids(jobs), before, tx.now.millis());
    tx.execute(raise).await.map(drop)
}

pub(super) async fn end_claims(tx: &mut DbTx, runs: &[RunId]) -> Result<()> {
    settle::end_cancelled(tx, runs.iter().copied()).await
}
pub(super) async fn leave_steps(tx: &mut DbTx, runs: &[RunId]) -> Result<()> {
    flow_runs::leave_steps(tx, runs.iter().copied()).await
}

pub(super) async fn prune_audit(tx: &mut DbTx, before: DbTime, limit: usize) -> Result<u64> {
    tx.execute(query!("audit/prune_audit", before.millis(), rows::limit(limit))).await
}
