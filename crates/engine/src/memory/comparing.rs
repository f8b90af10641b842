//! The claims of this node that memory knows, for the comparison with the database.

use everytick_domain::ids::RunId;
use everytick_store::{ClaimedRun, JobTicks, OldClaim, WaitingRun};

use super::{Memory, OwnClaim, UnsureClaim};

impl Memory {
    /// Notes that a batch of ticks has an unknown outcome. Each run that the batch inserts as claimed may be claimed.
    pub(super) fn unsure_tick_claims(&mut self, ticks: &JobTicks) {
        for row in ticks.rows.iter().filter(|row| row.born_claimed) {
            self.unsure_claims.insert(row.tick.id, UnsureClaim { attempt: 1, fenced: false });
        }
    }

    /// Notes a claim with an unknown outcome.
    pub(super) fn unsure_claim(&mut self, run: &WaitingRun) {
        self.unsure_claims.insert(run.id, UnsureClaim { attempt: run.attempts + 1, fenced: false });
    }

    /// Notes a committed claim whose job has left memory meanwhile. Its run is not sent.
    pub(super) fn unsent_claim(&mut self, run: RunId, attempt: u32) {
        self.unsure_claims.insert(run, UnsureClaim { attempt, fenced: true });
    }

    /// The fence was raised, or the node joined again: no unsure claim can be committed from now on.
    pub(crate) fn mark_claims_fenced(&mut self) {
        for unsure in self.unsure_claims.values_mut() {
            unsure.fenced = true;
        }
    }

    /// Whether the database may have claims of this node that memory does not know.
    pub(crate) fn has_unsure_claims(&self) -> bool {
        !self.unsure_claims.is_empty()
    }

    /// The unsure claims that a comparison resolves if it begins now.
    pub(crate) fn resolvable(&self) -> Vec<RunId> {
        self.unsure_claims.iter().filter(|(_, unsure)| unsure.fenced).map(|(run, _)| *run).collect()
    }

    /// Removes these unsure claims. A comparison has read all claims since, so memory knows them by now or they do not exist.
    pub(crate) fn resolve(&mut self, resolved: &[RunId]) {
        for run in resolved {
            if self.unsure_claims.get(run).is_some_and(|unsure| unsure.fenced) {
                self.unsure_claims.remove(run);
            }
        }
    }

    /// The given claims that memory does not know: this node neither works on the run nor settles it under the fence of
    /// the claim.
    pub(crate) fn unknown(&self, claims: Vec<ClaimedRun>) -> Vec<ClaimedRun> {
        let own = |run: &ClaimedRun| self.claims.get(&run.id).is_some_and(|own| own.claim.fence == run.fence);
        let settling =
            |run: &ClaimedRun| self.settling_unknown.get(&run.id).is_some_and(|claim| claim.fence == run.fence);
        claims.into_iter().filter(|run| !own(run) && !settling(run)).collect()
    }

    /// Notes an unknown claim that is about to be settled. Returns whether it was certainly never sent: its attempt is the one
    /// that a statement with an unknown outcome would have begun.
    pub(crate) fn settle_unknown(&mut self, run: &ClaimedRun) -> bool {
        self.settling_unknown.insert(run.id, OldClaim::of(run));
        self.unsure_claims.get(&run.id).is_some_and(|unsure| unsure.attempt == run.attempt)
    }

    /// Notes that the database is asked to list the claims below this id.
    pub(crate) fn listing_to(&mut self, to: RunId) {
        self.listing_to = self.listing_to.max(Some(to));
    }

    /// What a renewal reports about old claims: how far the bound may be raised, and the claims below it.
    pub(crate) fn old_claims(&self) -> (Option<RunId>, Vec<OldClaim>) {
        let Some(to) = self.listing_to.filter(|_| !self.has_unsure_claims()) else { return (None, Vec::new()) };
        let own = |own: &OwnClaim| OldClaim {
            run: own.claim.run,
            job: own.job.id,
            tenant: own.tenant,
            fence: own.claim.fence,
        };
        let own = self.claims.range(..to).map(|(_, claim)| own(claim));
        (Some(to), own.chain(self.settling_unknown.range(..to).map(|(_, claim)| *claim)).collect())
    }

    /// Whether this node works on a claim or settles one.
    pub(crate) fn has_claims(&self) -> bool {
        !self.claims.is_empty() || !self.settling_unknown.is_empty()
    }
}
