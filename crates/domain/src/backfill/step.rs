//! Decides how many runs of a backfill are created now.

use super::{BACKFILL_LASTS_MAX, BACKFILL_OPEN_MAX, BackfillState, Origin};
use crate::{
    job::JobSpec,
    queue::Rate,
    time::{DbTime, Span},
};

/// The state of a backfill, read under its lock.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    pub state: BackfillState,
    /// The next ticks without runs, in order; only as many as one step reads.
    pub next: &'a [DbTime],
    /// How many ticks without runs there are in total.
    pub left: usize,
    pub rate: Option<Rate>,
    /// The time up to which the rate is used up (microseconds).
    pub spent_until: i64,
    /// Open runs of this backfill.
    pub open: usize,
    /// The job's present definition; `None` if it was deleted.
    pub job: Option<&'a JobSpec>,
    /// Open runs of the job, of any cause.
    pub job_open: usize,
    pub origin: Origin,
    /// How long runs are kept.
    pub kept: Span,
    pub now: DbTime,
}

/// The next step, written in one commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The ticks that get runs now, in this order.
    pub make: Vec<DbTime>,
    pub spent_until: i64,
    pub state: BackfillState,
    /// Why the backfill was ended early.
    pub note: Option<String>,
    /// Whether another step is needed: runs remain to be created, or some are open.
    pub active: bool,
}

impl Progress<'_> {
    /// Decides the next step: as many runs as the rate, the backfill's own limit and the job's policy allow. If the policy
    /// limits the runs in progress, a run is created only if it could start. A waiting backlog would otherwise cause skips of
    /// on-time ticks or, under `cancel_previous`, make its runs cancel each other.
    #[must_use]
    pub fn step(&self) -> Step {
        let idle =
            Step { make: Vec::new(), spent_until: self.spent_until, state: self.state, note: None, active: true };
        let open = self.open > 0;
        let ended =
            |note: String| Step { state: BackfillState::Cancelled, note: Some(note), active: open, ..idle.clone() };
        let spec = match (self.state, self.job) {
            (BackfillState::Running, _) if self.left == 0 && !open => {
                return Step { state: BackfillState::Done, active: false, ..idle };
            }
            (BackfillState::Running, _) if self.left == 0 => return idle,
            (BackfillState::Running, Some(spec)) => spec,
            (BackfillState::Running, None) => return ended("its job was deleted".to_owned()),
            (BackfillState::Done | BackfillState::Cancelled, _) => return Step { active: open, ..idle },
            // A node of a later release handles it.
            (BackfillState::Unknown(_), _) => return idle,
        };
        let lasts_max = BACKFILL_LASTS_MAX.min(self.kept);
        if self.now.since(self.origin.begins()) > lasts_max {
            return ended(format!("it lasted longer than {lasts_max} with {} ticks left", self.left));
        }
        let make: Vec<_> = self.next.iter().copied().take(self.runs_allowed(spec)).collect();
        let spent_until = match self.rate {
            Some(rate) if !make.is_empty() => rate.spend(self.spent_until, self.now, make.len()),
            _ => self.spent_until,
        };
        Step { make, spent_until, ..idle }
    }

    fn runs_allowed(&self, spec: &JobSpec) -> usize {
        let own = BACKFILL_OPEN_MAX.saturating_sub(self.open);
        let pace = self.rate.map_or(usize::MAX, |rate| rate.admits(self.spent_until, self.now) as usize);
        let policy = spec.in_progress_max().map_or(usize::MAX, |max| (max as usize).saturating_sub(self.job_open));
        own.min(pace).min(policy)
    }
}
