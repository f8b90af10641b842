//! Runs that users trigger, and runs that users cancel.

use everytick_domain::{
    ids::{Cause, JobId, RunId, TenantId},
    job::Overlap,
    overlap::{Admission, OpenRuns, admit_trigger, trigger_needs_open},
    queue::lead,
    run::{Request, SkipReason, State, answer},
};

use super::{Failed, PostgresStore, Write, create, create::Kind, edit, flows, horizon, range, read, rows, settle, sql};
use crate::{Actor, CancelledRun, JobRef, NewRun, OpenRun, Result, RunRecord, StoreError};

pub(super) async fn trigger(store: &PostgresStore, tenant: TenantId, actor: &Actor, ask: NewRun) -> Result<RunRecord> {
    let mut write = store.write("create a run").await?;
    let done = create(&mut write, store.limits.open_requests_per_job_max, tenant, actor, ask).await;
    write.finish(done).await
}

async fn create(write: &mut Write, max: u64, tenant: TenantId, actor: &Actor, ask: NewRun) -> Result<RunRecord> {
    let doing = write.doing;
    create::hold_key(write, tenant, ask.idempotency.as_ref()).await?;
    write.read_clock().await?;
    if let Some(made) = create::replayed(write, tenant, ask.idempotency.as_ref(), Kind::Run).await? {
        return read::run_record(&mut write.tx, tenant, RunId::from_uuid(made), doing).await;
    }
    let statement = holds(write, tenant, &ask.job).await?;
    let job = edit::hold(write, statement, tenant, &ask.job).await?.job;
    crate::flows::check_outside(&job.spec, ask.payload.as_deref())?;
    let now = write.now;
    if waiting(write, job.id, max).await? >= max {
        return Err(StoreError::BacklogFull(max));
    }
    let open = if trigger_needs_open(&job.spec, ask.force) {
        let open = horizon::open_runs(&mut write.tx, [&job], now, doing).await?;
        open.get(&job.id).map_or(OpenRuns::NONE, |open| OpenRun::count(open))
    } else {
        OpenRuns::NONE
    };
    let overlaps = admit_trigger(&job.spec, ask.force, open) == Admission::Skip;
    let state = if overlaps { State::Skipped } else { State::Waiting };
    let id = RunId::of(job.id, Cause::Request { at: now, key: &ask.key });
    let inserted = sqlx::query(sql!("trigger"))
        .bind(id.uuid())
        .bind(tenant.raw())
        .bind(job.id.uuid())
        .bind(now.millis())
        .bind(state.code())
        .bind(ask.force)
        .bind(overlaps.then_some(now.millis()))
        .bind(overlaps.then_some(SkipReason::Overlap.code()))
        .bind(rows::texts(ask.payload.as_ref()))
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(doing)?;
    if inserted.rows_affected() > 0 {
        if state == State::Waiting {
            range::notify(write).await?;
            if matches!(job.spec.overlap, Overlap::Queue { .. }) {
                range::raise_epoch(write, job.id).await?;
            }
            sqlx::query(sql!("enqueue_run"))
                .bind(id.uuid())
                .bind(job.id.uuid())
                .bind(tenant.raw())
                .bind(rows::partition(job.partition))
                .bind(i16::from(job.spec.priority))
                .bind(now.millis())
                .bind(ask.force)
                .bind(job.spec.target.queue())
                .bind(job.spec.target.queue().map(|_| now.millis() - lead(job.spec.priority, false)))
                .bind(job.spec.key_of(ask.payload.as_deref()))
                .execute(&mut *write.tx)
                .await
                .failed_or_refused(doing)?;
        }
        let detail = serde_json::json!({ "job": job.spec.name, "state": state.word(), "force": ask.force });
        create::note(write, tenant, actor, "trigger", &[(id.to_string(), detail.to_string())]).await?;
    }
    create::remember(write, tenant, ask.idempotency.as_ref(), Kind::Run, id.uuid()).await?;
    let run = read::run_record(&mut write.tx, tenant, id, doing).await?;
    Ok(run)
}

/// The number of waiting runs of a job, counted up to `max`.
pub(super) async fn waiting(write: &mut Write, job: JobId, max: u64) -> Result<u64> {
    let waiting: i64 = sqlx::query_scalar(sql!("count_waiting"))
        .bind(job.uuid())
        .bind(i64::try_from(max).unwrap_or(i64::MAX))
        .fetch_one(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(waiting.unsigned_abs())
}

/// The statement that locks a job against everything else that may create a run of it: other requests, and under
/// `queue` also ticks, so that all of them see each other. A job whose policy changes meanwhile is at worst locked too
/// weakly once.
pub(super) async fn holds(write: &mut Write, tenant: TenantId, job: &JobRef) -> Result<&'static str> {
    let found = edit::find(&mut write.tx, &write.unreadable, tenant, job, write.doing).await?.job;
    Ok(match found.spec.overlap {
        Overlap::Queue { .. } => sql!("epoch_held"),
        Overlap::Skip | Overlap::CancelPrevious | Overlap::Allow => sql!("job_held"),
    })
}

pub(super) async fn cancel_run(
    store: &PostgresStore,
    tenant: TenantId,
    actor: &Actor,
    id: RunId,
) -> Result<CancelledRun> {
    let mut write = store.write("cancel a run").await?;
    let done = cancel(&mut write, tenant, actor, id).await;
    write.finish(done).await
}

async fn cancel(write: &mut Write, tenant: TenantId, actor: &Actor, id: RunId) -> Result<CancelledRun> {
    let doing = write.doing;
    // First checks that the run belongs to the tenant. Then dequeues it, in the lock order of claims, and locks the
    // run.
    read::run_record(&mut write.tx, tenant, id, doing).await?;
    sqlx::query(sql!("dequeue")).bind(id.uuid()).execute(&mut *write.tx).await.failed(doing)?;
    sqlx::query(sql!("run_held")).bind(tenant.raw()).bind(id.uuid()).execute(&mut *write.tx).await.failed(doing)?;
    // Dequeues again: a settlement may have put it back before it was locked.
    sqlx::query(sql!("dequeue")).bind(id.uuid()).execute(&mut *write.tx).await.failed(doing)?;
    let was = read::run_record(&mut write.tx, tenant, id, doing).await?;
    let now = write.read_clock().await?;
    answer(was.state, Request::Cancel)
        .map_err(|rejected| StoreError::Rejected { state: rejected.state, request: rejected.request })?;
    sqlx::query(sql!("cancel_runs"))
        .bind(vec![id.uuid()])
        .bind(now.millis())
        .execute(&mut *write.tx)
        .await
        .failed(doing)?;
    if was.state == State::Claimed {
        settle::end_cancelled(write, vec![id.uuid()]).await?;
    }
    flows::leave_steps(write, &[id.uuid()]).await?;
    let detail = serde_json::json!({ "job": was.job_name, "was": was.state.word() });
    create::note(write, tenant, actor, "cancel", &[(id.to_string(), detail.to_string())]).await?;
    let run = read::run_record(&mut write.tx, tenant, id, doing).await?;
    Ok(CancelledRun { run, was_claimed: was.state == State::Claimed })
}
