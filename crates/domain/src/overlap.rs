//! What a job's runs may do beside each other. Judged when a run comes (is it one at all?) and again when it is about to start:
//! a run is in progress from its first claim to its end, also between two attempts.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ids::RunId,
    job::{JobSpec, Overlap},
    mutant::Mutant,
};

/// A run that is not over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    pub claimed: bool,
    /// 0 for one that nobody has claimed yet.
    pub attempts: u32,
}

impl Open {
    /// From its first claim on, also between two attempts.
    #[must_use]
    pub fn in_progress(self) -> bool {
        self.claimed || (self.attempts > 0 && !Mutant::OverlapOnClaimedOnly.is_on())
    }
}

/// How many runs of a job are not over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpenRuns {
    pub in_progress: usize,
    /// Those that nobody has claimed yet.
    pub waiting: usize,
}

impl OpenRuns {
    pub const NONE: Self = Self { in_progress: 0, waiting: 0 };

    #[must_use]
    pub const fn all(self) -> usize {
        self.in_progress + self.waiting
    }

    /// After so many more have come and wait.
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

/// Under `cancel_previous`, so many waiting runs of a job are read at once; when they are cancelled, the next are read.
const PREVIOUS_READ_MAX: usize = 16;

/// How many waiting runs of a job decide what happens to a further one. A reader needs no more of them, so that a backlog of
/// millions costs no more than a short one. Never less than may be in progress together, and at least one, so that a reader
/// knows whether any run waits. At most `MAX_CONCURRENT_MAX` or `QUEUE_LIMIT_MAX`.
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

/// Whether `known` decides what happens to a further run, however many more wait.
#[must_use]
pub fn is_decided(spec: &JobSpec, known: OpenRuns) -> bool {
    admit(spec, known) == admit(spec, known.and_waiting(usize::MAX / 2))
}

/// What becomes of a run that comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It may be in progress at once.
    Start,
    /// It is a run, and its turn comes later.
    Wait,
    /// It is none: recorded as skipped.
    Skip,
}

/// Judges a tick or a request when it comes, given what is open of its job.
#[must_use]
pub fn admit(spec: &JobSpec, open: OpenRuns) -> Admission {
    match spec.overlap {
        Overlap::Skip if open.all() > 0 => Admission::Skip,
        Overlap::Allow if spec.in_progress_max().is_some_and(|max| open.all() >= max as usize) => Admission::Skip,
        Overlap::Skip | Overlap::Allow => Admission::Start,
        Overlap::Queue { limit } if open.waiting >= limit as usize => Admission::Skip,
        Overlap::Queue { .. } if open.in_progress == 0 && Mutant::QueueJumped.is_on() => Admission::Start,
        // Whoever came before goes first, or is told to stop first.
        Overlap::Queue { .. } | Overlap::CancelPrevious if open.all() > 0 => Admission::Wait,
        Overlap::Queue { .. } | Overlap::CancelPrevious => Admission::Start,
    }
}

/// Whether a run that waits may start now, beside `starting` others of its job that are about to. One that was asked for
/// with `force` always may. Whoever asks goes through what waits in the order of claims, so that what came due first goes first.
#[must_use]
pub fn may_start(spec: &JobSpec, open: &BTreeMap<RunId, Open>, run: RunId, starting: usize) -> bool {
    spec.in_progress_max().is_none_or(|max| in_progress_besides(open, run) + starting < max as usize)
}

/// How many others stand in the way of a run. Of those that wait between two attempts the lower goes first: where the job's
/// limit was lowered meanwhile, they would else wait for each other for ever.
fn in_progress_besides(open: &BTreeMap<RunId, Open>, run: RunId) -> usize {
    let waits_itself = open.get(&run).is_some_and(|open| open.in_progress());
    let before = |id: RunId, open: &Open| open.claimed || (open.in_progress() && (!waits_itself || id < run));
    open.iter().filter(|(id, open)| **id != run && before(**id, open)).count()
}

/// The runs that are to be cancelled under `cancel_previous`, and the one that they give way to: the newest of those that are
/// due. Runs are as old as the instants they stand for. `forced` ones were asked for beside whatever there is: while they
/// wait they neither give way nor cancel others.
#[must_use]
pub fn give_way(
    spec: &JobSpec,
    open: &BTreeMap<RunId, Open>,
    due: &BTreeSet<RunId>,
    forced: &BTreeSet<RunId>,
) -> Option<(Vec<RunId>, RunId)> {
    if spec.overlap != Overlap::CancelPrevious || Mutant::NobodyGivesWay.is_on() {
        return None;
    }
    let waiting = *due.iter().rev().find(|run| !forced.contains(run))?;
    let in_progress = open.iter().rev().find(|(_, open)| open.in_progress()).map(|(run, _)| *run);
    let newest = in_progress.map_or(waiting, |run| run.max(waiting));
    let gives_way = |run: &RunId, open: &Open| match open.in_progress() {
        // What works beside the newest that is in progress was forced to.
        true => newest == waiting,
        false => !forced.contains(run),
    };
    let older = open.range(..newest).filter(|(run, open)| gives_way(run, open));
    let older: Vec<RunId> = older.map(|(run, _)| *run).collect();
    (!older.is_empty()).then_some((older, newest))
}

/// What is open of a job whose runs workers claim, as it is read under the job's lock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    pub open: BTreeMap<RunId, Open>,
    /// Those that wait and are due.
    pub due: BTreeSet<RunId>,
    /// Those that wait and were forced.
    pub forced: BTreeSet<RunId>,
}

impl Standing {
    /// See [`give_way`].
    #[must_use]
    pub fn give_way(&self, spec: &JobSpec) -> Option<(Vec<RunId>, RunId)> {
        give_way(spec, &self.open, &self.due, &self.forced)
    }
}

/// What the record says of a run that gave way.
#[must_use]
pub fn gave_way(to: RunId) -> String {
    format!("cancelled: run {to} came after it, and overlap is cancel_previous")
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

    /// The run of so many seconds.
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

    /// Policy by policy: what is open, and what becomes of a run that comes.
    #[test]
    fn a_run_that_comes_starts_waits_or_is_skipped_as_its_policy_says() {
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

    /// What is read of a long backlog decides as the whole backlog would.
    #[test]
    fn as_many_waiting_runs_as_are_needed_decide() {
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
            assert_eq!(is_decided(&spec, fewer), spec.in_progress_max().is_none(), "{overlap:?}: none is too few");
        }
    }

    #[test]
    fn a_run_between_two_attempts_is_in_progress() {
        let counted: OpenRuns = [WAITS, CLAIMED, BETWEEN].into_iter().collect();
        assert_eq!(counted, OpenRuns { in_progress: 2, waiting: 1 });
        assert_eq!((counted.all(), counted.and_waiting(2).waiting), (3, 3));
    }

    /// What is open, whose turn is asked for beside how many that are starting, and the answer.
    #[test]
    fn a_waiting_run_starts_when_its_policy_lets_it() {
        let allow = |max| under(Overlap::Allow, max);
        let (skip, queue, previous) =
            (under(Overlap::Skip, None), under(QUEUE, None), under(Overlap::CancelPrevious, None));
        for (policy, standing, asked, starting, may) in [
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
            let found = may_start(policy, &open(standing), run(asked), starting);
            assert_eq!(found, may, "{:?}: {standing:?}, {asked} beside {starting}", policy.overlap);
        }
    }

    /// What is open, what is due, what was forced; then who gives way, and to whom.
    #[test]
    fn under_cancel_previous_the_older_give_way_to_the_newest_that_is_due() {
        for (standing, due, forced, gives_way) in [
            (&[(1, WAITS)][..], &[1][..], &[][..], None),
            (&[(1, CLAIMED), (2, WAITS)], &[], &[], None),
            (&[(1, CLAIMED), (2, WAITS)], &[2], &[], Some((&[1][..], 2))),
            (&[(1, BETWEEN), (2, WAITS), (3, WAITS)], &[2, 3], &[], Some((&[1, 2], 3))),
            // 3 is not due yet: it cancels nobody.
            (&[(1, CLAIMED), (2, WAITS), (3, WAITS)], &[2], &[], Some((&[1], 2))),
            // A newer one is in progress: what came before it has no turn any more.
            (&[(1, WAITS), (2, CLAIMED)], &[1], &[], Some((&[1], 2))),
            (&[(1, CLAIMED), (2, WAITS)], &[2], &[2], None),
            (&[(1, WAITS), (2, WAITS)], &[1, 2], &[1], None),
            (&[(1, CLAIMED), (2, WAITS), (3, CLAIMED)], &[2], &[], Some((&[2], 3))),
        ] {
            let policy = under(Overlap::CancelPrevious, None);
            let found = give_way(&policy, &open(standing), &runs(due), &runs(forced));
            let expected = gives_way.map(|(older, newest)| (older.iter().map(|n| run(*n)).collect(), run(newest)));
            assert_eq!(found, expected, "{standing:?}, due {due:?}, forced {forced:?}");
            assert_eq!(give_way(&under(QUEUE, None), &open(standing), &runs(due), &runs(forced)), None);
        }
    }
}
