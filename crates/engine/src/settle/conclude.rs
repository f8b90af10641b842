//! Turns an outcome into a settlement. Every end of an attempt passes through [`conclude`]: a delivery, the report of a
//! worker or receiver, a timeout, a lost node or worker, and a cancelled delivery. The domain decides the settlement
//! ([`Claim::settle`]); this file adds the data that a store needs to write it.

use everytick_domain::{
    ids::TenantId,
    job::Job,
    output::join,
    run::{Claim, Policy, Verdict},
    target::Outcome,
    time::DbTime,
};
use everytick_store::{ClaimedRun, LoadedClaim, Settle};
use metrics::counter;

use crate::commands::Entropy;

/// An attempt that has ended or never began.
#[derive(Debug)]
pub(crate) struct EndedAttempt<'a> {
    pub claim: Claim,
    pub job: &'a Job,
    pub tenant: TenantId,
    /// When the target was called; `None` for a claim that was never sent.
    pub started_at: Option<DbTime>,
    pub ended_at: DbTime,
    /// The log of the worker. It is stored before the output of the outcome.
    pub log: Option<String>,
}

impl<'a> EndedAttempt<'a> {
    /// The attempt of a worker, which ends now.
    pub(crate) fn of(claim: &'a LoadedClaim) -> Self {
        Self {
            claim: claim_of(&claim.run),
            job: &claim.job,
            tenant: claim.run.tenant,
            started_at: claim.started_at,
            ended_at: claim.now,
            log: claim.log.clone(),
        }
    }
}

/// The settlement of an attempt that ended with `outcome`; `None` if its receiver accepted the work and will report later.
pub(crate) fn conclude(
    attempt: EndedAttempt<'_>,
    mut outcome: Outcome,
    now: DbTime,
    entropy: &dyn Entropy,
) -> Option<Settle> {
    let EndedAttempt { claim, job, tenant, started_at, ended_at, log } = attempt;
    let policy = Policy { retry: job.spec.retry, on_lost: job.spec.on_lost };
    // Only the delay of a retry needs randomness.
    let random = if matches!(outcome, Outcome::Succeeded { .. }) { 0 } else { entropy.u64() };
    let output = outcome.take_output();
    let mut settlement = claim.settle(outcome, policy, now, random)?;
    settlement.output = join(log, output);
    let (partition, priority) = (job.partition, job.spec.priority);
    Some(Settle { settlement, job: job.id, tenant, partition, priority, started_at, ended_at })
}

/// The claim of a run that was read from the store.
pub(crate) fn claim_of(run: &ClaimedRun) -> Claim {
    Claim { run: run.id, fence: run.fence, attempt: run.attempt, lost: run.lost }
}

/// Counts settlements by the new state of their runs.
pub(crate) fn count(verdict: Verdict, settled: u64) {
    counter!("everytick_runs_total", "state" => verdict.state().word()).increment(settled);
}
