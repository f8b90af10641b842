//! Parameters and results of the transaction that redrives failed runs.

use everytick_domain::{
    ids::{JobId, RunId},
    job::{JobSpec, Overlap},
    run::State,
    time::DbTime,
};

use crate::{JobRef, RunRecord};

/// A request for a new run for each failed run of a job. Already [checked](everytick_domain::redrive::problems).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redrive {
    pub job: JobRef,
    /// Failed runs scheduled at or after this instant...
    pub from: DbTime,
    /// ...and before this one.
    pub to: Option<DbTime>,
    /// At most this many failed runs, oldest first.
    pub limit: usize,
    /// Only reports what would be done.
    pub dry_run: bool,
}

impl Redrive {
    /// The id range of such runs: from the first up to but not including the second.
    pub fn ids(&self) -> (RunId, RunId) {
        (RunId::floor(self.from), RunId::floor(self.to.unwrap_or(DbTime::MAX)))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redriven {
    pub job: JobId,
    pub job_name: String,
    /// The oldest failed run first.
    pub runs: Vec<RedrivenRun>,
    /// More failed runs follow from this instant on.
    pub next_from: Option<DbTime>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedrivenRun {
    pub failed: RunRecord,
    /// The new run. Its id is derived from the failed run, so it is always the same.
    pub run: RunId,
    /// The state of the new run; `None` if it does not exist yet.
    pub state: Option<State>,
    /// It was created by this call.
    pub made: bool,
}

impl Redriven {
    /// How many new runs may be created for a job with `open` open and `waits` waiting runs, and the error message if
    /// that is none. Under `cancel_previous` one at a time: a newer run would cancel the others for good.
    pub fn remaining(spec: &JobSpec, open: usize, waits: u64, max: u64) -> (u64, String) {
        if spec.overlap == Overlap::CancelPrevious {
            let message = "a run of the job is open, and under cancel_previous the runs would cancel each other; retry when it has ended";
            return (u64::from(open == 0), message.to_owned());
        }
        (max.saturating_sub(waits), format!("{waits} runs of the job already wait; at most {max} may wait"))
    }

    pub fn plan(
        (job, job_name): (JobId, String),
        ask: &Redrive,
        failed: Vec<RunRecord>,
        remaining: u64,
        state: impl Fn(RunId) -> Option<State>,
    ) -> Self {
        let (mut runs, mut next_from, mut left) = (Vec::new(), None, remaining);
        for failed in failed {
            let run = RunId::redriven(job, failed.id);
            let state = state(run);
            let is_new = state.is_none();
            if runs.len() >= ask.limit || (is_new && left == 0) {
                next_from = Some(failed.scheduled_at);
                break;
            }
            left -= u64::from(is_new);
            let made = is_new && !ask.dry_run;
            let state = if made { Some(State::Waiting) } else { state };
            runs.push(RedrivenRun { failed, run, state, made });
        }
        Self { job, job_name, runs, next_from }
    }

    /// Pairs of (failed run, new run) for the runs to create.
    pub fn to_make(&self) -> impl Iterator<Item = (RunId, RunId)> + '_ {
        self.runs.iter().filter(|run| run.made).map(|run| (run.failed.id, run.run))
    }

    /// The audit rows: (new run, detail).
    pub fn audit(&self) -> Vec<(String, String)> {
        let detail =
            |failed: RunId| serde_json::json!({ "job": self.job_name, "failed": failed.to_string() }).to_string();
        self.to_make().map(|(failed, run)| (run.to_string(), detail(failed))).collect()
    }
}
