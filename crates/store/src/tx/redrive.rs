//! Redrives failed runs: creates a waiting run for each, under an id derived from the failed run's id.

use std::collections::HashMap;

use everytick_domain::{
    ids::{RunId, TenantId},
    invalid::Invalid,
    job::Overlap,
};

use super::{Tx, invalid, lock_for_request};
use crate::{Actor, Redrive, Redriven, Result, RunRecord};

pub async fn redrive<T: Tx + ?Sized>(tx: &mut T, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven> {
    let job = lock_for_request(tx, tenant, &ask.job).await?.job;
    let (from, to) = ask.ids();
    let failed = tx.failed_runs(&job, from, to, ask.limit.saturating_add(1)).await?;
    let keys: HashMap<_, _> = failed.iter().map(|run| (run.id, job.spec.key_of(run.payload.as_deref()))).collect();
    let failed: Vec<_> = failed.into_iter().map(|run| RunRecord { payload: None, output: None, ..run }).collect();
    let made: Vec<_> = failed.iter().map(|run| RunId::redriven(job.id, run.id)).collect();
    let states = tx.run_states(&made).await?;
    let max = tx.limits().open_requests_per_job_max;
    let waits = tx.count_waiting(job.id, max).await?;
    let open = match job.spec.overlap {
        Overlap::CancelPrevious => tx.open_runs(&[&job]).await?.get(&job.id).map_or(0, Vec::len),
        Overlap::Skip | Overlap::Queue { .. } | Overlap::Allow => 0,
    };
    let (remaining, full) = Redriven::remaining(&job.spec, open, waits, max);
    let named = (job.id, job.spec.name.clone());
    let redriven = Redriven::plan(named, ask, failed, remaining, |run| states.get(&run).copied());
    if redriven.runs.is_empty() && redriven.next_from.is_some() {
        return Err(invalid(Invalid::new("job", full)));
    }
    let key = |failed: RunId| keys.get(&failed).cloned().flatten();
    let new: Vec<_> = redriven.to_make().map(|(failed, run)| (failed, run, key(failed))).collect();
    if new.is_empty() {
        return Ok(redriven);
    }
    tx.insert_redriven(&job, &new).await?;
    if job.spec.overlap.is_queue() {
        tx.raise_epoch(job.id).await?;
    }
    tx.notify_owners().await?;
    tx.audit(tenant, actor, "redrive", &redriven.audit()).await?;
    Ok(redriven)
}
