//! Creates a run by request. If the overlap policy forbids it, the run is recorded as skipped.

use everytick_domain::{
    flow,
    ids::{Cause, RunId, TenantId},
    overlap::{Admission, OpenRuns, admit_trigger, trigger_needs_open},
    run::State,
};

use super::{
    RequestedRun, Tx, audit_one, count_open, invalid, lock_for_request,
    requests::{self, Kind},
};
use crate::{Actor, NewRun, Result, RunRecord, StoreError};

pub async fn trigger<T: Tx + ?Sized>(tx: &mut T, tenant: TenantId, actor: &Actor, ask: NewRun) -> Result<RunRecord> {
    let key = ask.idempotency.as_ref();
    requests::lock(tx, tenant, key).await?;
    if let Some(made) = requests::replayed(tx, tenant, key, Kind::Run).await? {
        return tx.get_run(tenant, RunId::from_uuid(made)).await;
    }
    let job = lock_for_request(tx, tenant, &ask.job).await?.job;
    flow::check_outside(&job.spec, ask.payload.as_deref()).map_err(invalid)?;
    let max = tx.limits().open_requests_per_job_max;
    if tx.count_waiting(job.id, max).await? >= max {
        return Err(StoreError::BacklogFull(max));
    }
    let open = if trigger_needs_open(&job.spec, ask.force) { count_open(tx, &job).await? } else { OpenRuns::NONE };
    let skipped = admit_trigger(&job.spec, ask.force, open) == Admission::Skip;
    let state = if skipped { State::Skipped } else { State::Waiting };
    let id = RunId::of(job.id, Cause::Request { at: tx.now(), key: &ask.key });
    let run = RequestedRun { id, job: &job, state, force: ask.force, payload: ask.payload.as_ref() };
    if tx.insert_requested(run).await? {
        if state == State::Waiting {
            if job.spec.overlap.is_queue() {
                tx.raise_epoch(job.id).await?;
            }
            tx.notify_owners().await?;
        }
        let detail = serde_json::json!({ "job": job.spec.name, "state": state.word(), "force": ask.force });
        audit_one(tx, tenant, actor, "trigger", id.to_string(), detail.to_string()).await?;
    }
    requests::remember(tx, tenant, key, Kind::Run, id.uuid()).await?;
    tx.get_run(tenant, id).await
}
