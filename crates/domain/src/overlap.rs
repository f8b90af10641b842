//! Overlap rules: how many runs of one job may be in progress together. They apply when a run is recorded (start, wait or skip)
//! and again when a waiting run is about to start. A run is in progress from its first claim to its end, also between two
//! attempts.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ids::RunId,
    job::{JobSpec, Overlap},
    mutant::Mutant,
};

/// A run that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    pub claimed: bool,
    /// 0 if the run was never claimed.
    pub attempts: u32,
}

impl Open {
    /// True from the first claim on, also between two attempts.
    #[must_use]
    pub fn in_progress(self) -> bool {
        self.claimed || (self.attempts > 0 && !Mutant::OverlapOnClaimedOnly.is_on())
    }
}

/// How many runs of a job have not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenRuns {
    pub in_progress: usize,
    /// Runs that were never claimed.
    pub waiting: usize,
}

impl OpenRuns {
    pub const NONE: Self = Self { in_progress: 0, waiting: 0 };

    #[must_use]
    pub const fn all(self) -> usize {
        self.in_progress + self.waiting
    }

    /// The counts with `more` additional waiting runs.
    #[must_use]
    pub const fn and_waiting(self, more: usize) -> Self {
        Self { waiting: self.waiting + more, ..self }
    }
}

impl FromIterator<Open> for OpenRuns {
    fn from_iter<T: IntoIterator<Item = Open>>(open: T) -> Self {
        let mut runs = Self::NONE;
        for open in open {
            if open.in_progress() {
                runs.in_progress += 1;
            } else if !Mutant::OverlapOnClaimedOnly.is_on() {
                runs.waiting += 1;
            }
        }
        runs
    }
}

/// How many waiting runs of a job are read at once under `cancel_previous`. After these are cancelled, the next are read.
const PREVIOUS_READ_MAX: usize = 16;

/// How many waiting runs of a job a reader must know to decide about another run. It reads no more than these, so a
/// backlog of millions costs no more than a short one. At least the number that may be in progress together, and at
/// least one, so that the reader knows whether any run waits. At most `MAX_CONCURRENT_MAX` or `QUEUE_LIMIT_MAX`.
#[must_use]
pub fn waiting_needed(spec: &JobSpec) -> usize {
    match spec.overlap {
        Overlap::Skip => 1,
        Overlap::Allow => spec.max_concurrent.map_or(1, |max| max as usize),
        Overlap::Queue { limit } => limit as usize,
        Overlap::CancelPrevious => PREVIOUS_READ_MAX,
    }
    .max(1)
}

/// Whether `known` is enough to decide about another run, for any number of further waiting runs.
#[must_use]
pub fn is_decided(spec: &JobSpec, known: OpenRuns) -> bool {
    admit(spec, known) == admit(spec, known.and_waiting(usize::MAX / 2))
}

/// What happens to a new run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It may start at once.
    Start,
    /// It is recorded as waiting and starts later.
    Wait,
    /// It is recorded as skipped.
    Skip,
}

/// Decides about a new tick or request, given the open runs of its job.
#[must_use]
pub fn admit(spec: &JobSpec, open: OpenRuns) -> Admission {
    match spec.overlap {
        Overlap::Skip if open.all() > 0 => Admission::Skip,
        Overlap::Allow if spec.in_progress_max().is_some_and(|max| open.all() >= max as usize) => Admission::Skip,
        Overlap::Skip | Overlap::Allow => Admission::Start,
        Overlap::Queue { limit } if open.waiting >= limit as usize => Admission::Skip,
        Overlap::Queue { .. } if open.in_progress == 0 && Mutant::QueueJumped.is_on() => Admission::Start,
        // Older runs start first (`queue`) or are cancelled first (`cancel_previous`).
        Overlap::Queue { .. } | Overlap::CancelPrevious if open.all() > 0 => Admission::Wait,
        Overlap::Queue { .. } | Overlap::CancelPrevious => Admission::Start,
    }
}

/// Whether the open runs of a job must be read to decide about a trigger. If not, they are not read, because a queue
/// may have a long backlog.
#[must_use]
pub const fn trigger_needs_open(spec: &JobSpec, force: bool) -> bool {
    !force && spec.in_progress_max().is_some()
}

/// Decides about a triggered run. A forced run is never skipped; it waits for a slot beside the open runs.
#[must_use]
pub fn admit_trigger(spec: &JobSpec, force: bool, open: OpenRuns) -> Admission {
    if trigger_needs_open(spec, force) { admit(spec, open) } else { Admission::Start }
}

/// Whether a waiting run may start now, beside `starting` other runs of its job that are about to start. Not for forced runs:
/// these may always start. The caller goes through waiting runs in claim order, so the oldest due run starts first.
#[must_use]
pub fn may_start(spec: &JobSpec, open: &BTreeMap<RunId, Open>, run: RunId, starting: usize) -> bool {
    spec.in_progress_max().is_none_or(|max| in_progress_besides(open, run) + starting < max as usize)
}

/// How many other runs count against the limit for a run. Among runs that wait between two attempts, a run counts only runs
/// with a lower id. Otherwise these runs could block each other forever after the limit of the job was lowered.
fn in_progress_besides(open: &BTreeMap<RunId, Open>, run: RunId) -> usize {
    let waits_itself = open.get(&run).is_some_and(|open| open.in_progress());
    let before = |id: RunId, open: &Open| open.claimed || (open.in_progress() && (!waits_itself || id < run));
    open.iter().filter(|(id, open)| **id != run && before(**id, open)).count()
}

/// Under `cancel_previous`, the runs to cancel and the run that supersedes them: the newest due run, or a newer run that is
/// already in progress. A run is as old as the instant in its id. `forced` runs were requested to run beside others: while they
/// wait, they neither cancel runs nor get cancelled.
#[must_use]
pub fn supersede(
    spec: &JobSpec,
    open: &BTreeMap<RunId, Open>,
    due: &BTreeSet<RunId>,
    forced: &BTreeSet<RunId>,
) -> Option<(Vec<RunId>, RunId)> {
    if spec.overlap != Overlap::CancelPrevious || Mutant::NeverSupersedes.is_on() {
        return None;
    }
    let waiting = *due.iter().rev().find(|run| !forced.contains(run))?;
    let in_progress = open.iter().rev().find(|(_, open)| open.in_progress()).map(|(run, _)| *run);
    let newest = in_progress.map_or(waiting, |run| run.max(waiting));
    let is_superseded = |run: &RunId, open: &Open| match open.in_progress() {
        // An older run in progress beside the newest one was forced, so it stays.
        true => newest == waiting,
        false => !forced.contains(run),
    };
    let older = open.range(..newest).filter(|(run, open)| is_superseded(run, open));
    let older: Vec<RunId> = older.map(|(run, _)| *run).collect();
    (!older.is_empty()).then_some((older, newest))
}

/// The open runs of a queue job, as read under the job's lock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobRuns {
    pub open: BTreeMap<RunId, Open>,
    /// Waiting runs that are due.
    pub due: BTreeSet<RunId>,
    /// Waiting runs that were forced.
    pub forced: BTreeSet<RunId>,
}

impl JobRuns {
    /// See [`supersede`].
    #[must_use]
    pub fn supersede(&self, spec: &JobSpec) -> Option<(Vec<RunId>, RunId)> {
        supersede(spec, &self.open, &self.due, &self.forced)
    }
}

/// The error text recorded on a superseded run.
#[must_use]
pub fn superseded_error(to: RunId) -> String {
    format!("{SUPERSEDED}{to}, because overlap is cancel_previous")
}

const SUPERSEDED: &str = "cancelled: superseded by run ";

/// The newer run that [`superseded_error`] names.
#[must_use]
pub fn superseded_by(error: &str) -> Option<RunId> {
    error.strip_prefix(SUPERSEDED)?.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{Cause, JobId},
        plan::tests::spec,
        time::{DbTime, Span},
    };
    use Admission::{Skip, Start, Wait};

    const QUEUE: Overlap = Overlap::Queue { limit: 2 };

    fn under(overlap: Overlap, max_concurrent: Option<u32>) -> JobSpec {
        JobSpec { overlap, max_concurrent, ..spec(Span::minutes(1)) }
    }

    /// The run of the tick at `seconds`.
    fn run(seconds: i64) -> RunId {
        let job = JobId::from_uuid(uuid::Uuid::from_u128(7));
        RunId::of(job, Cause::Tick(DbTime::from_millis(seconds * 1_000)))
    }

    const WAITS: Open = Open { claimed: false, attempts: 0 };
    const CLAIMED: Open = Open { claimed: true, attempts: 1 };
    const BETWEEN: Open = Open { claimed: false, attempts: 1 };

    fn open(runs: &[(i64, Open)]) -> BTreeMap<RunId, Open> {
        runs.iter().map(|(seconds, open)| (run(*seconds), *open)).collect()
    }

    fn runs(seconds: &[i64]) -> BTreeSet<RunId> {
        seconds.iter().map(|seconds| run(*seconds)).collect()
    }

    #[test]
    fn a_trigger_follows_the_overlap_policy_unless_it_is_forced() {
        let busy = OpenRuns { in_progress: 1, waiting: 0 };
        for (overlap, max, force, admitted) in [
            (Overlap::Skip, None, false, Skip),
            (Overlap::Skip, None, true, Start),
            (Overlap::Allow, None, false, Start),
            (Overlap::Allow, Some(1), false, Skip),
            (Overlap::Allow, Some(1), true, Start),
            (QUEUE, None, false, Wait),
        ] {
            assert_eq!(admit_trigger(&under(overlap, max), force, busy), admitted, "{overlap:?} {max:?} {force}");
        }
    }

    /// For each policy: the open runs, and what happens to a new run.
    #[test]
    fn a_new_run_starts_waits_or_is_skipped_by_its_overlap_policy() {
        let two = Some(2);
        for (overlap, max, in_progress, waiting, admitted) in [
            (Overlap::Skip, None, 0, 0, Start),
            (Overlap::Skip, None, 1, 0, Skip),
            (Overlap::Skip, None, 0, 1, Skip),
            (Overlap::Allow, None, 900, 900, Start),
            (Overlap::Allow, two, 1, 0, Start),
            (Overlap::Allow, two, 0, 1, Start),
            (Overlap::Allow, two, 1, 1, Skip),
            (Overlap::Allow, two, 2, 0, Skip),
            (QUEUE, None, 0, 0, Start),
            (QUEUE, None, 1, 0, Wait),
            (QUEUE, None, 0, 1, Wait),
            (QUEUE, None, 1, 1, Wait),
            (QUEUE, None, 1, 2, Skip),
            (QUEUE, None, 0, 2, Skip),
            (Overlap::CancelPrevious, None, 0, 0, Start),
            (Overlap::CancelPrevious, None, 1, 0, Wait),
            (Overlap::CancelPrevious, None, 1, 900, Wait),
        ] {
            let found = admit(&under(overlap, max), OpenRuns { in_progress, waiting });
            assert_eq!(found, admitted, "{overlap:?} {max:?}: {in_progress} in progress, {waiting} waiting");
        }
    }

    /// The part of a long backlog that is read leads to the same decision as the whole backlog.
    #[test]
    fn waiting_needed_runs_are_enough_to_decide() {
        for (overlap, max) in [
            (Overlap::Skip, None),
            (Overlap::Allow, None),
            (Overlap::Allow, Some(7)),
            (Overlap::Queue { limit: 5 }, None),
            (Overlap::CancelPrevious, None),
        ] {
            let spec = under(overlap, max);
            let needed = waiting_needed(&spec);
            assert!(needed >= spec.in_progress_max().unwrap_or(0) as usize, "{overlap:?}");
            assert!(is_decided(&spec, OpenRuns { in_progress: 0, waiting: needed }), "{overlap:?}");
            let fewer = OpenRuns { in_progress: 0, waiting: 0 };
            assert_eq!(
                is_decided(&spec, fewer),
                spec.in_progress_max().is_none(),
                "{overlap:?}: zero runs are not enough"
            );
        }
    }

    #[test]
    fn a_run_between_two_attempts_is_in_progress() {
        let counted: OpenRuns = [WAITS, CLAIMED, BETWEEN].into_iter().collect();
        assert_eq!(counted, OpenRuns { in_progress: 2, waiting: 1 });
        assert_eq!((counted.all(), counted.and_waiting(2).waiting), (3, 3));
    }

    /// The open runs, the run that wants to start, how many others are starting, and the decision.
    #[test]
    fn a_waiting_run_starts_when_its_policy_allows_it() {
        let allow = |max| under(Overlap::Allow, max);
        let (skip, queue, previous) =
            (under(Overlap::Skip, None), under(QUEUE, None), under(Overlap::CancelPrevious, None));
        for (policy, existing, candidate, starting, may) in [
            (&skip, &[(1, WAITS)][..], 1, 0, true),
            (&skip, &[(1, WAITS), (2, WAITS)], 2, 0, true),
            (&skip, &[(1, WAITS), (2, WAITS)], 2, 1, false),
            (&skip, &[(1, CLAIMED), (2, WAITS)], 2, 0, false),
            (&skip, &[(1, BETWEEN), (2, WAITS)], 2, 0, false),
            (&skip, &[(1, BETWEEN), (2, WAITS)], 1, 0, true),
            (&skip, &[(1, BETWEEN), (2, BETWEEN)], 1, 0, true),
            (&skip, &[(1, BETWEEN), (2, BETWEEN)], 2, 0, false),
            (&allow(None), &[(1, CLAIMED), (2, WAITS)], 2, 900, true),
            (&allow(Some(2)), &[(1, CLAIMED), (2, WAITS)], 2, 0, true),
            (&allow(Some(2)), &[(1, CLAIMED), (2, WAITS)], 2, 1, false),
            (&allow(Some(2)), &[(1, CLAIMED), (2, BETWEEN), (3, WAITS)], 3, 0, false),
            (&queue, &[(1, WAITS), (2, WAITS)], 1, 0, true),
            (&queue, &[(1, WAITS), (2, WAITS)], 2, 1, false),
            (&queue, &[(1, BETWEEN), (2, WAITS)], 1, 0, true),
            (&queue, &[(1, CLAIMED), (2, WAITS)], 2, 0, false),
            (&queue, &[(1, WAITS), (2, BETWEEN)], 2, 0, true),
            (&queue, &[(1, WAITS), (2, BETWEEN)], 1, 0, false),
            (&previous, &[(1, WAITS), (2, WAITS)], 2, 0, true),
            (&previous, &[(1, CLAIMED), (2, WAITS)], 2, 0, false),
        ] {
            let found = may_start(policy, &open(existing), run(candidate), starting);
            assert_eq!(found, may, "{:?}: {existing:?}, {candidate} beside {starting}", policy.overlap);
        }
    }

    /// The open, due and forced runs; then the runs to cancel and the run that supersedes them.
    #[test]
    fn under_cancel_previous_the_newest_due_run_supersedes_older_runs() {
        for (existing, due, forced, is_superseded) in [
            (&[(1, WAITS)][..], &[1][..], &[][..], None),
            (&[(1, CLAIMED), (2, WAITS)], &[], &[], None),
            (&[(1, CLAIMED), (2, WAITS)], &[2], &[], Some((&[1][..], 2))),
            (&[(1, BETWEEN), (2, WAITS), (3, WAITS)], &[2, 3], &[], Some((&[1, 2], 3))),
            // Run 3 is not due yet: it cancels no run.
            (&[(1, CLAIMED), (2, WAITS), (3, WAITS)], &[2], &[], Some((&[1], 2))),
            // A newer run is in progress: older waiting runs are cancelled.
            (&[(1, WAITS), (2, CLAIMED)], &[1], &[], Some((&[1], 2))),
            (&[(1, CLAIMED), (2, WAITS)], &[2], &[2], None),
            (&[(1, WAITS), (2, WAITS)], &[1, 2], &[1], None),
            (&[(1, CLAIMED), (2, WAITS), (3, CLAIMED)], &[2], &[], Some((&[2], 3))),
        ] {
            let policy = under(Overlap::CancelPrevious, None);
            let found = supersede(&policy, &open(existing), &runs(due), &runs(forced));
            let expected = is_superseded.map(|(older, newest)| (older.iter().map(|n| run(*n)).collect(), run(newest)));
            assert_eq!(found, expected, "{existing:?}, due {due:?}, forced {forced:?}");
            assert_eq!(supersede(&under(QUEUE, None), &open(existing), &runs(due), &runs(forced)), None);
        }
    }
}
