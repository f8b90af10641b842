//! What goes into the transactions that end runs before their time, and comes out of them.

use everytick_domain::ids::{JobId, RunId};

/// A run that is to be cancelled because a newer one of its job takes its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GiveWay {
    pub job: JobId,
    pub run: RunId,
    /// The one that it gives way to.
    pub to: RunId,
}

/// What a run had printed when it was cancelled while somebody worked on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptOutput {
    pub run: RunId,
    /// The attempt that printed it.
    pub attempt: u32,
    pub output: String,
}

/// The runs of a job that were cancelled together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelledJob {
    pub job: JobId,
    pub job_name: String,
    pub runs: CancelledRuns,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CancelledRuns {
    pub waited: Vec<RunId>,
    /// These were being worked on: the work is to be stopped.
    pub claimed: Vec<RunId>,
    /// More wait than one transaction cancels: no run of them starts any more, and they are cancelled in the background.
    pub backlog: bool,
}

impl CancelledRuns {
    /// All of them, the oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<RunId> {
        let mut all: Vec<_> = self.waited.iter().chain(&self.claimed).copied().collect();
        all.sort_unstable();
        all
    }
}
