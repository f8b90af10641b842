//! Runs that users trigger, and runs that users cancel.

use everytick_domain::{
    ids::{Cause, JobId, RunId, TenantId},
    job::Overlap,
    overlap::{Admission, OpenRuns, admit_trigger, trigger_needs_open},
    run::{Request, SkipReason, State, answer},
};

use super::{
    Failed, SqliteStore, Write, create,
    create::Kind,
    edit, flows, horizon, range, read,
    record::{self, Queued},
    rows, settle, sql,
};
use crate::{Actor, CancelledRun, NewRun, OpenRun, Result, RunRecord, StoreError};

pub(super) async fn trigger(store: &SqliteStore, tenant: TenantId, actor: &Actor, ask: NewRun) -> Result<RunRecord> {
    const DOING: &str = "create a run";
    let mut write = store.write(DOING).await?;
    let now = write.now;
    if let Some(made) = create::replayed(&mut write, tenant, ask.idempotency.as_ref(), Kind::Run).await? {
        return read::run_record(&mut write.tx, tenant, RunId::from_uuid(made), DOING).await;
    }
    let job = edit::find(&mut write.tx, &write.unreadable, tenant, &ask.job, DOING).await?.job;
    crate::flows::check_outside(&job.spec, ask.payload.as_deref())?;
    let max = store.limits.open_requests_per_job_max;
    if waiting(&mut write, job.id, max).await? >= max {
        return Err(StoreError::BacklogFull(max));
    }
    let open = if trigger_needs_open(&job.spec, ask.force) {
        let open = horizon::open_runs(&mut write.tx, [&job], DOING).await?;
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
        .bind(&ask.payload)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(DOING)?;
    if inserted.rows_affected() > 0 {
        if state == State::Waiting {
            let key = job.spec.key_of(ask.payload.as_deref());
            let queued = Queued { run: id, priority: job.spec.priority, late: false, key: key.as_deref() };
            record::wait(&mut write, &[queued], DOING).await?;
            if matches!(job.spec.overlap, Overlap::Queue { .. }) {
                range::raise_epoch(&mut write, job.id).await?;
            }
        }
        let detail = serde_json::json!({ "job": job.spec.name, "state": state.word(), "force": ask.force });
        create::note(&mut write, tenant, actor, "trigger", &[(id.to_string(), detail.to_string())]).await?;
    }
    create::remember(&mut write, tenant, ask.idempotency.as_ref(), Kind::Run, id.uuid()).await?;
    let run = read::run_record(&mut write.tx, tenant, id, DOING).await?;
    write.commit().await?;
    Ok(run)
}

/// The number of waiting runs of a job, counted up to `max`.
pub(super) async fn waiting(write: &mut Write, job: JobId, max: u64) -> Result<u64> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    Ok(horizon::count_waiting(&mut write.tx, job, max, write.doing).await? as u64)
}

pub(super) async fn cancel_run(
    store: &SqliteStore,
    tenant: TenantId,
    actor: &Actor,
    id: RunId,
) -> Result<CancelledRun> {
    const DOING: &str = "cancel a run";
    let mut write = store.write(DOING).await?;
    let was = read::run_record(&mut write.tx, tenant, id, DOING).await?;
    answer(was.state, Request::Cancel)
        .map_err(|rejected| StoreError::Rejected { state: rejected.state, request: rejected.request })?;
    sqlx::query(sql!("cancel_run"))
        .bind(id.uuid())
        .bind(write.now.millis())
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    sqlx::query(sql!("dequeue"))
        .bind(rows::run_ids([id]).failed(DOING)?)
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    settle::end_cancelled(&mut write, std::iter::once(id)).await?;
    flows::leave_steps(&mut write, [id]).await?;
    let detail = serde_json::json!({ "job": was.job_name, "was": was.state.word() });
    create::note(&mut write, tenant, actor, "cancel", &[(id.to_string(), detail.to_string())]).await?;
    let run = read::run_record(&mut write.tx, tenant, id, DOING).await?;
    write.commit().await?;
    Ok(CancelledRun { run, was_claimed: was.state == State::Claimed })
}
