//! Applies outcomes and settlements: ends claims, and removes ended runs.

use everytick_domain::{
    ids::{Fence, JobId, RunId},
    mutant::Mutant,
    overlap::Open,
    run::Verdict,
};

use super::Memory;

impl Memory {
    /// Notes that the target has answered. The claim stays until its settlement is answered. An answer to an older attempt
    /// changes nothing: this node may have claimed the run again.
    pub(crate) fn outcome_arrived(&mut self, job: JobId, run: RunId, fence: Fence) {
        if Mutant::OpenRunRemovedAtOutcome.is_on()
            && let Some(entry) = self.jobs.get_mut(&job)
        {
            entry.open.remove(&run);
        }
        if let Some(own) = self.claims.get_mut(&run).filter(|own| own.claim.fence == fence && !own.ended) {
            own.ended = true;
            self.ended += 1;
            let user = own.user;
            if std::mem::take(&mut own.accepted) {
                self.accepted -= 1;
            } else {
                self.release_slot(user);
            }
        }
    }

    /// Notes that the receiver has accepted the work and will report later. The run uses no slot of this node any more.
    pub(crate) fn accepted(&mut self, run: RunId, fence: Fence) {
        if let Some(own) = self.claims.get_mut(&run).filter(|own| own.claim.fence == fence && !own.accepted) {
            own.accepted = true;
            self.accepted += 1;
            let user = own.user;
            self.release_slot(user);
        }
    }

    /// Removes a claim that no longer belongs to this node, because its receiver will report, because its receiver has
    /// reported, or because a user cancelled the run. Its job is reloaded.
    pub(crate) fn reported(&mut self, job: JobId, run: RunId, fence: Fence) {
        self.remove_claim(run, fence);
        self.mark_stale(job);
    }

    /// Notes that a settlement is about to be sent. A load of the job before the answer may miss the settlement.
    pub(crate) fn settling(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.in_flight += 1;
        }
    }

    /// Applies a settlement. Returns whether a waiting run may start now.
    pub(crate) fn settled(&mut self, job: JobId, run: RunId, fence: Fence, verdict: Verdict, attempt: u32) -> bool {
        self.remove_claim(run, fence);
        if let Some(entry) = self.jobs.get_mut(&job) {
            match verdict {
                Verdict::Succeeded | Verdict::Failed | Verdict::Cancelled => {
                    entry.open.remove(&run);
                }
                Verdict::Retry { .. } | Verdict::Redeliver => {
                    entry.open.insert(run, Open { claimed: false, attempts: attempt });
                }
                Verdict::HandBack | Verdict::Return => {
                    entry.open.insert(run, Open { claimed: false, attempts: attempt.saturating_sub(1) });
                }
            }
        }
        self.answered(job);
        if !verdict.is_terminal() {
            self.with_waiting.insert(job);
        }
        self.due_runs_may_wait || self.delegated_wait || self.with_waiting.contains(&job)
    }

    /// Applies a refused settlement: the run was claimed again or has ended. Its job is reloaded.
    pub(crate) fn refused(&mut self, job: JobId, run: RunId, fence: Fence) {
        self.remove_claim(run, fence);
        self.answered(job);
        self.mark_stale(job);
    }

    /// Notes that a settlement was not stored. It is sent again.
    pub(crate) fn unsettled(&mut self, job: JobId) {
        self.answered(job);
    }

    /// Removes a claim by run and fence, so that a late answer about an older attempt changes nothing.
    fn remove_claim(&mut self, run: RunId, fence: Fence) {
        if self.settling_unknown.get(&run).is_some_and(|claim| claim.fence == fence) {
            self.settling_unknown.remove(&run);
        }
        if self.claims.get(&run).is_some_and(|own| own.claim.fence == fence)
            && let Some(own) = self.claims.remove(&run)
        {
            self.accepted -= usize::from(own.accepted);
            self.ended -= usize::from(own.ended);
            if !own.accepted && !own.ended {
                self.release_slot(own.user);
            }
            self.claims_by_job.remove(&(own.job.id, run));
        }
    }
}
