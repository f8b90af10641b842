//! Requests of workers: claim runs from a queue (with a wait, if it is empty), end such a wait, extend a claim, return a claim
//! unused, and append to a run's log.

use std::{collections::HashMap, time::Duration};

use everytick_domain::{
    ids::{Fence, RunId, TenantId},
    job::Job,
    output::LogPart,
    queue::{CLAIM_LEASE, QueueLimits},
    secret::Scrubber,
    target::Outcome,
};
use everytick_store::{Actor, ClaimBeat, ClaimQueue, QueueClaims, Result, SettleAnswer, StoreError};
use futures::{
    FutureExt as _,
    future::{BoxFuture, ready},
};
use metrics::counter;

use super::{Commands, report_result::locked};
use crate::settle::conclude::{EndedAttempt, conclude};

/// The answer to a worker's request for work.
#[derive(Clone, Debug)]
pub enum Work {
    /// Claims; empty if no run came within the wait.
    Claims(QueueClaims),
    /// Too many workers wait already: retry later.
    TooManyWaiting,
    /// The caller's credential ended while it waited. Nothing was claimed.
    NotAdmitted,
}

/// A worker's request for work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkRequest {
    pub tenant: TenantId,
    pub queue: String,
    pub worker: String,
    /// Maximum number of runs to claim.
    pub limit: usize,
    /// How long to wait if the queue is empty.
    pub wait: Duration,
}

impl Commands {
    /// Claims up to `limit` runs for a worker. If the queue is empty, it waits up to `wait` and claims again when work may be
    /// due.
    pub async fn claim_work(
        &self,
        tenant: TenantId,
        queue: String,
        worker: String,
        limit: usize,
        wait: Duration,
    ) -> Result<Work> {
        let work = WorkRequest { tenant, queue, worker, limit, wait };
        self.claim_work_until(work, std::future::pending(), || ready(Ok(true)).boxed()).await
    }

    /// Like `claim_work`, but `ended` ends the wait too. A claim in progress is not interrupted: otherwise its runs would stay
    /// claimed without a worker until their lease expires. After a wait, runs are claimed only if the caller is still
    /// `admitted`: its credential may have ended meanwhile.
    pub async fn claim_work_until(
        &self,
        work: WorkRequest,
        ended: impl Future<Output = ()>,
        admitted: impl Fn() -> BoxFuture<'static, Result<bool>> + Send,
    ) -> Result<Work> {
        let WorkRequest { tenant, queue, worker, limit, wait } = work;
        tokio::pin!(ended);
        let key = (tenant, queue.clone());
        let request = ClaimQueue { tenant, queue, worker, limit, lease: CLAIM_LEASE };
        let deadline = tokio::time::sleep(wait);
        tokio::pin!(deadline);
        let mut has_waited = false;
        loop {
            // Join the list before the claim, so that a run that arrives during an empty claim still wakes this worker.
            let Some(mut waiter) = self.waiters.join(&key, &request.worker) else { return Ok(Work::TooManyWaiting) };
            if has_waited && !admitted().await? {
                drop(waiter);
                // The run that ended the wait is for another worker.
                self.waiters.wake(&key);
                return Ok(Work::NotAdmitted);
            }
            // Store the request before the claim. If it were stored after the claim and the caller disconnected during
            // this call, the claimed runs would be unavailable for a lease. Store it again after a wait, because the
            // first job of the queue may have been created meanwhile.
            self.asked.note(self.store.as_ref(), &key, &request.worker).await;
            let found = self.store.claim_queue(&request).await?;
            if !found.claims.is_empty() {
                drop(waiter);
                counter!("everytick_worker_claims_total").increment(found.claims.len() as u64);
                if found.claims.len() >= limit {
                    self.waiters.wake(&key);
                }
                return Ok(Work::Claims(found));
            }
            if wait.is_zero() {
                return Ok(Work::Claims(found));
            }
            self.waiters.watch(&self.store, &self.hints);
            tokio::select! {
                biased;
                () = &mut deadline => return Ok(Work::Claims(found)),
                () = self.waiters.closed() => return Ok(Work::Claims(found)),
                () = &mut ended => return Ok(Work::Claims(found)),
                may_have_work = waiter.woken() => if !may_have_work { return Ok(Work::Claims(found)) },
            }
            has_waited = true;
        }
    }

    /// Ends the waits of a worker for a queue at this node: each of its open claim requests is answered at once. Returns how many
    /// there were.
    pub fn leave_queue(&self, tenant: TenantId, queue: String, worker: &str) -> usize {
        self.waiters.leave(&(tenant, queue), worker)
    }

    /// Returns a claim that a worker did not use. The run waits again and no attempt is spent. `false` if the fence is old: nothing
    /// was changed (I7).
    pub async fn release_claim(&self, tenant: TenantId, run: RunId, fence: Fence) -> Result<bool> {
        let claims = self.store.load_claims(tenant, &[run]).await?;
        let claim = claims.into_iter().find(|claim| claim.run.fence == fence && !claim.accepted);
        let settle = claim.and_then(|claim| {
            let attempt = EndedAttempt { log: None, ..EndedAttempt::of(&claim) };
            conclude(attempt, Outcome::Returned, claim.now, self.entropy.as_ref())
        });
        let answers = self.store.settle(settle.as_slice()).await?;
        match answers.first() {
            Some(SettleAnswer::Settled) => {
                self.hints.run_waits();
                Ok(true)
            }
            Some(SettleAnswer::Locked) => Err(locked()),
            Some(SettleAnswer::Stale) | None => {
                // Returns an error if the run does not exist.
                self.store.get_run(tenant, run).await?;
                counter!("everytick_settles_refused_total").increment(1);
                Ok(false)
            }
        }
    }

    /// The queue of each run: of its claim, else of its job. `None` if there is no such run, or if its job has no queue.
    pub async fn queues_of(&self, tenant: TenantId, runs: &[RunId]) -> Result<Vec<Option<String>>> {
        let queue = |job: &Job| job.spec.target.queue().map(ToOwned::to_owned);
        let claims = self.store.load_claims(tenant, runs).await?;
        let claimed: HashMap<RunId, Option<String>> =
            claims.iter().map(|claim| (claim.run.id, queue(&claim.job))).collect();
        let mut queues = Vec::with_capacity(runs.len());
        for run in runs {
            queues.push(match claimed.get(run) {
                Some(queue) => queue.clone(),
                // The claim has ended: its worker repeats a report.
                None => match self.store.get_run(tenant, *run).await {
                    Ok(record) => {
                        self.store.load_jobs(&[record.job]).await?.first().and_then(|loaded| queue(&loaded.job))
                    }
                    Err(StoreError::NotFound(_)) => None,
                    Err(error) => return Err(error),
                },
            });
        }
        Ok(queues)
    }

    /// Sets or removes the limits of a queue. The caller has validated them.
    pub async fn limit_queue(&self, tenant: TenantId, actor: &Actor, queue: &str, limits: QueueLimits) -> Result<()> {
        self.store.set_queue(tenant, actor, queue, limits).await?;
        self.hints.queue_waits();
        Ok(())
    }

    /// Ends the wait of every worker, now and later, because the node stops.
    pub fn stop_waiting(&self) {
        self.waiters.close();
    }

    /// Extends a claim by one lease.
    pub async fn beat(&self, tenant: TenantId, run: RunId, fence: Fence) -> Result<ClaimBeat> {
        let beat = self.store.beat_claim(tenant, run, fence, CLAIM_LEASE).await?;
        if beat == ClaimBeat::Stale {
            counter!("everytick_settles_refused_total").increment(1);
        }
        Ok(beat)
    }

    /// Appends to the log of a run, without the secrets that the receiver got. `false` if the fence is old: nothing was changed
    /// (I7).
    pub async fn log(&self, tenant: TenantId, run: RunId, fence: Fence, part: LogPart<'_>) -> Result<bool> {
        let scrubbed = self.secrets_of_run(tenant, run).await?.map(|forms| Scrubber::scrub(&forms, part.text));
        let part = LogPart { text: scrubbed.as_deref().unwrap_or(part.text), ..part };
        let logged = self.store.log_claim(tenant, run, fence, part).await?;
        if !logged {
            counter!("everytick_settles_refused_total").increment(1);
        }
        Ok(logged)
    }
}
