//! What goes into the transaction that drives failed runs again, and comes out of it.

use everytick_domain::{
    ids::{JobId, RunId},
    job::{JobSpec, Overlap},
    run::State,
    time::{DbTime, Span},
};

use crate::{JobRef, RunRecord};

/// Asks for a new run in place of each failed run of a job. They are [checked](everytick_domain::redrive::problems) already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redrive {
    pub job: JobRef,
    /// Failed runs that were scheduled from here...
    pub since: DbTime,
    /// ...to here, both included.
    pub until: Option<DbTime>,
    /// So many failed runs at the most, the oldest first.
    pub limit: usize,
    /// Only tells what would be done.
    pub dry_run: bool,
}

impl Redrive {
    /// The ids that such runs have: from the first to before the second.
    pub fn ids(&self) -> (RunId, RunId) {
        let until = self.until.unwrap_or(DbTime::MAX);
        (RunId::floor(self.since), RunId::floor(until.plus(Span::millis(1))))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redriven {
    pub job: JobId,
    pub job_name: String,
    /// The oldest failed run first.
    pub runs: Vec<RedrivenRun>,
    /// There are more from here on.
    pub next_since: Option<DbTime>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedrivenRun {
    pub failed: RunRecord,
    /// The one in its place, always the same.
    pub run: RunId,
    /// As it stands; `None` when it is not on the record, because nobody has made it yet.
    pub state: Option<State>,
    /// It was made just now.
    pub made: bool,
}

impl Redriven {
    /// How many may be made now of a job that has so many open runs, of which so many wait; and what is said where that is none.
    /// Under `cancel_previous` one at a time: the newest would cancel the others, for good.
    pub fn room(spec: &JobSpec, open: usize, waits: u64, max: u64) -> (u64, String) {
        if spec.overlap == Overlap::CancelPrevious {
            let message = "a run of it is open, and under cancel_previous they would cancel each other; ask again when it has ended";
            return (u64::from(open == 0), message.to_owned());
        }
        (max.saturating_sub(waits), format!("{waits} of its runs wait already; at most {max} may"))
    }

    pub fn plan(
        (job, job_name): (JobId, String),
        ask: &Redrive,
        failed: Vec<RunRecord>,
        room: u64,
        state: impl Fn(RunId) -> Option<State>,
    ) -> Self {
        let (mut runs, mut next_since, mut left) = (Vec::new(), None, room);
        for failed in failed {
            let run = RunId::redriven(job, failed.id);
            let state = state(run);
            let makes = state.is_none() && !ask.dry_run;
            if runs.len() >= ask.limit || (makes && left == 0) {
                next_since = Some(failed.scheduled_at);
                break;
            }
            left -= u64::from(makes);
            let state = if makes { Some(State::Waiting) } else { state };
            runs.push(RedrivenRun { failed, run, state, made: makes });
        }
        Self { job, job_name, runs, next_since }
    }

    /// The failed runs that have to get a new one, each with it.
    pub fn to_make(&self) -> impl Iterator<Item = (RunId, RunId)> + '_ {
        self.runs.iter().filter(|run| run.made).map(|run| (run.failed.id, run.run))
    }

    /// What the audit trail says: (new run, detail).
    pub fn audit(&self) -> Vec<(String, String)> {
        let detail =
            |failed: RunId| serde_json::json!({ "job": self.job_name, "failed": failed.to_string() }).to_string();
        self.to_make().map(|(failed, run)| (run.to_string(), detail(failed))).collect()
    }
}
