//! Cancels and supersedes runs, and stores the output of cancelled runs.

use everytick_domain::{ids::RunId, mutant::Mutant, overlap, run::State, time::DbTime};

use super::{
    db::{Db, RunRow},
    journal::Entry,
};
use everytick_store::{KeptOutput, Lease, Result, Supersede};

impl Db {
    /// Cancels an open run; `to` is the newer run that supersedes it.
    pub(super) fn cancel(&mut self, id: RunId, to: Option<RunId>, now: DbTime) {
        self.waiting.remove(&id);
        self.delegated.remove(&id);
        let log = self.worker_claims.remove(&id).and_then(|claim| claim.log);
        let Some(run) = self.runs.get_mut(&id) else { return };
        let was = run.state;
        run.state = State::Cancelled;
        if !Mutant::CancelKeepsFence.is_on() {
            run.fence = run.fence.raised(now);
        }
        run.finished_at = Some(now);
        run.output = run.output.take().or(log);
        run.error = to.map(overlap::superseded_error).or(run.error.take());
        self.open.remove(&(run.job, id));
        self.journal.push(Entry::Cancelled { run: id, job: run.job, was, fence: run.fence, to });
        self.leave_step(id);
    }

    pub(super) fn supersede(&mut self, lease: &Lease, runs: &[Supersede], now: DbTime) -> Result<Vec<RunId>> {
        self.check_lease(lease, now)?;
        let is_open = |given: &&Supersede| self.runs.get(&given.run).is_some_and(|run| run.state.is_open());
        let open: Vec<_> = runs.iter().filter(is_open).copied().collect();
        for given in &open {
            self.cancel(given.run, Some(given.to), now);
        }
        Ok(open.iter().map(|given| given.run).collect())
    }

    pub(super) fn keep_outputs(&mut self, outputs: &[KeptOutput]) {
        for kept in outputs {
            let ours = |run: &&mut RunRow| {
                run.state == State::Cancelled && run.attempt == kept.attempt && run.output.is_none()
            };
            if let Some(run) = self.runs.get_mut(&kept.run).filter(ours) {
                run.output = Some(kept.output.clone());
            }
        }
    }
}
