//! What is known of our claims, for the comparison with what the database has.

use everytick_domain::ids::RunId;
use everytick_store::{ClaimedRun, JobTicks, OldClaim, WaitingRun};

use super::{Held, Memory, UnsureClaim};

impl Memory {
    /// A batch of ticks without an answer: those to be born claimed may have been.
    pub(super) fn unsure_births(&mut self, ticks: &JobTicks) {
        for row in ticks.rows.iter().filter(|row| row.born_claimed) {
            self.unsure_claims.insert(row.tick.id, UnsureClaim { attempt: 1, fenced: false });
        }
    }

    /// A claim without an answer.
    pub(super) fn unsure_claim(&mut self, run: &WaitingRun) {
        self.unsure_claims.insert(run.id, UnsureClaim { attempt: run.attempts + 1, fenced: false });
    }

    /// A claim that was committed, of a job that has left memory meanwhile: it is not sent.
    pub(super) fn unsent_claim(&mut self, run: RunId, attempt: u32) {
        self.unsure_claims.insert(run, UnsureClaim { attempt, fenced: true });
    }

    /// The fence is raised, or the lease was taken anew: no claim that we do not know of is made any more.
    pub(crate) fn sure_of_claims(&mut self) {
        for unsure in self.unsure_claims.values_mut() {
            unsure.fenced = true;
        }
    }

    /// Whether the database may have claims of ours that we do not know of.
    pub(crate) fn may_have_claims(&self) -> bool {
        !self.unsure_claims.is_empty()
    }

    /// The unsure claims that a comparison which begins now clears up.
    pub(crate) fn resolvable(&self) -> Vec<RunId> {
        self.unsure_claims.iter().filter(|(_, unsure)| unsure.fenced).map(|(run, _)| *run).collect()
    }

    /// All claims were compared: of these the database has none that is not known by now.
    pub(crate) fn resolve(&mut self, resolved: &[RunId]) {
        for run in resolved {
            if self.unsure_claims.get(run).is_some_and(|unsure| unsure.fenced) {
                self.unsure_claims.remove(run);
            }
        }
    }

    /// Those of the claims that we neither work on nor settle, under the fence that they have.
    pub(crate) fn unknown(&self, claims: Vec<ClaimedRun>) -> Vec<ClaimedRun> {
        let held = |run: &ClaimedRun| self.held.get(&run.id).is_some_and(|held| held.claim.fence == run.fence);
        let returning = |run: &ClaimedRun| self.returning.get(&run.id).is_some_and(|claim| claim.fence == run.fence);
        claims.into_iter().filter(|run| !held(run) && !returning(run)).collect()
    }

    /// Notes a claim that is about to be settled though we did not know it. Tells whether it was surely never sent: whether this
    /// attempt is the one that a statement without an answer was to begin.
    pub(crate) fn returning(&mut self, run: &ClaimedRun) -> bool {
        self.returning.insert(run.id, OldClaim::of(run));
        self.unsure_claims.get(&run.id).is_some_and(|unsure| unsure.attempt == run.attempt)
    }

    /// The database is asked to list our claims below this id.
    pub(crate) fn listing_to(&mut self, to: RunId) {
        self.listing_to = self.listing_to.max(Some(to));
    }

    /// What a renewal says of old claims: how far the bound may be raised, and the claims below it.
    pub(crate) fn old_claims(&self) -> (Option<RunId>, Vec<OldClaim>) {
        let Some(to) = self.listing_to.filter(|_| !self.may_have_claims()) else { return (None, Vec::new()) };
        let held = |held: &Held| OldClaim {
            run: held.claim.run,
            job: held.job.id,
            tenant: held.tenant,
            fence: held.claim.fence,
        };
        let held = self.held.range(..to).map(|(_, claim)| held(claim));
        (Some(to), held.chain(self.returning.range(..to).map(|(_, claim)| *claim)).collect())
    }

    /// Whether we work on a claim, or settle one.
    pub(crate) fn has_claims(&self) -> bool {
        !self.held.is_empty() || !self.returning.is_empty()
    }
}
