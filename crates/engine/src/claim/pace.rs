//! The rate of late runs, so that a backlog does not start all at once.

use std::time::Duration;

use everytick_domain::{
    mutant::Mutant,
    recovery::{LateStarts, Rate},
};

use crate::{clock::MonoTime, settings::RATE_ESTIMATED_EVERY, shared::Shared};

/// Limits how fast late runs start: at most at the rate at which the jobs in memory normally tick (I14).
pub(super) struct Pace {
    starts: LateStarts,
    rate: Rate,
    earned: MonoTime,
    /// When the rate was last estimated.
    estimated: Option<MonoTime>,
}

impl Pace {
    pub(super) fn new(now: MonoTime) -> Self {
        Self { starts: LateStarts::default(), rate: Rate::of_ticks(0), earned: now, estimated: None }
    }

    /// How many late runs may start now. The rate is estimated only if late runs wait.
    pub(super) fn budget(&mut self, shared: &Shared, late: bool) -> usize {
        if Mutant::LateRateUnbounded.is_on() {
            return usize::MAX;
        }
        let now = MonoTime::now();
        if late && self.estimated.is_none_or(|at| now.since(at) >= RATE_ESTIMATED_EVERY) {
            let jobs = shared.memory().jobs();
            self.rate = Rate::normal(jobs.iter().map(AsRef::as_ref), shared.clock.now());
            self.estimated = Some(now);
        }
        self.starts.earn(now.since(self.earned), self.rate);
        self.earned = now;
        self.starts.budget()
    }

    /// How long until the next late run may start.
    pub(super) fn wait(&self) -> Duration {
        self.starts.wait(self.rate)
    }

    /// Subtracts the late runs that start now from the budget.
    pub(super) fn spend(&mut self, runs: usize) {
        self.starts.spend(runs);
    }
}
