//! Parameters and results of the transactions that cancel runs.

use everytick_domain::ids::{JobId, RunId};

/// A run to be cancelled because a newer run of its job supersedes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Supersede {
    pub job: JobId,
    pub run: RunId,
    /// The newer run.
    pub to: RunId,
}

/// The output of a run that was cancelled while claimed.
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
    /// They were claimed: the caller must stop the work.
    pub claimed: Vec<RunId>,
    /// More runs wait than one transaction cancels. None of them starts any more; they are cancelled in the background.
    pub backlog: bool,
}

impl CancelledRuns {
    /// All of them, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<RunId> {
        let mut all: Vec<_> = self.waited.iter().chain(&self.claimed).copied().collect();
        all.sort_unstable();
        all
    }
}
