//! What workers ask: work from a queue, at once or when there is some; to keep it; and to have something logged.

use std::time::Duration;

use everytick_domain::{
    ids::{Fence, RunId, TenantId},
    queue::{CLAIM_LEASE, QueueLimits},
};
use everytick_store::{Actor, ClaimBeat, ClaimQueue, QueueClaims, Result};
use metrics::counter;

use super::Commands;

/// What a worker that asked for work is given.
#[derive(Clone, Debug)]
pub enum Work {
    /// Claims, or none when nothing came within the wait.
    Claims(QueueClaims),
    /// Too many wait already: it may ask again later.
    Crowded,
}

impl Commands {
    /// Claims up to `limit` runs for a worker. Where nothing is there it waits, and is called as soon as something may be.
    pub async fn claim_work(
        &self,
        tenant: TenantId,
        queue: String,
        worker: String,
        limit: usize,
        wait: Duration,
    ) -> Result<Work> {
        self.claim_work_until(tenant, queue, worker, limit, wait, std::future::pending()).await
    }

    /// The same, with a wait that also ends with `ended`. A claim under way is not cut off: its runs would be lost for a lease.
    pub async fn claim_work_until(
        &self,
        tenant: TenantId,
        queue: String,
        worker: String,
        limit: usize,
        wait: Duration,
        ended: impl Future<Output = ()>,
    ) -> Result<Work> {
        tokio::pin!(ended);
        let key = (tenant, queue.clone());
        let ask = ClaimQueue { tenant, queue, worker, limit, lease: CLAIM_LEASE };
        let deadline = tokio::time::sleep(wait);
        tokio::pin!(deadline);
        loop {
            // Before the claim: what comes while it finds nothing still calls.
            let Some(mut place) = self.room.enter(&key) else { return Ok(Work::Crowded) };
            let found = self.store.claim_queue(&ask).await?;
            if !found.claims.is_empty() {
                drop(place);
                counter!("everytick_worker_claims_total").increment(found.claims.len() as u64);
                if found.claims.len() >= limit {
                    self.room.call(&key);
                }
                return Ok(Work::Claims(found));
            }
            if wait.is_zero() {
                return Ok(Work::Claims(found));
            }
            self.room.watch(&self.store, &self.hints);
            tokio::select! {
                biased;
                () = &mut deadline => return Ok(Work::Claims(found)),
                () = self.room.closed() => return Ok(Work::Claims(found)),
                () = &mut ended => return Ok(Work::Claims(found)),
                () = place.called() => {}
            }
        }
    }

    /// Limits a queue, or frees it of limits. The limits must have been checked.
    pub async fn limit_queue(&self, tenant: TenantId, actor: &Actor, queue: &str, limits: QueueLimits) -> Result<()> {
        self.store.set_queue(tenant, actor, queue, limits).await?;
        self.hints.queue_waits();
        Ok(())
    }

    /// Answers every worker that waits, and lets none wait from here on: for a node that stops.
    pub fn stop_waiting(&self) {
        self.room.close();
    }

    /// Keeps a claim for another lease.
    pub async fn beat(&self, tenant: TenantId, run: RunId, fence: Fence) -> Result<ClaimBeat> {
        let beat = self.store.beat_claim(tenant, run, fence, CLAIM_LEASE).await?;
        if beat == ClaimBeat::Stale {
            counter!("everytick_settles_refused_total").increment(1);
        }
        Ok(beat)
    }

    /// Adds to the log of a run. `false` when the fence is old: nothing was changed (I7).
    pub async fn log(&self, tenant: TenantId, run: RunId, fence: Fence, text: &str) -> Result<bool> {
        let logged = self.store.log_claim(tenant, run, fence, text).await?;
        if !logged {
            counter!("everytick_settles_refused_total").increment(1);
        }
        Ok(logged)
    }
}
