//! I12 and the other overlap policies, checked on the journal. A run whose node is dead or paused is in progress until it is
//! settled; delivered again, it is still the same run.

use std::collections::{BTreeMap, BTreeSet};

use everytick_domain::{
    ids::{JobId, RunId},
    job::{JobSpec, Overlap},
    run::{CauseKind, SkipReason, State, Verdict},
    time::{DbTime, Span},
};
use everytick_sim::{Db, Entry, RunRow};

use super::{
    checker::{Definition, Definitions},
    world::Scene,
};

/// The length of the last part of a history. Before it, the nodes may still recover from the last fault.
const RECOVERED: Span = Span::seconds(8);
/// Ticks are planned at most this long before they are recorded, unless the clock is set.
const RECORDED_WITHIN: Span = Span::seconds(15);
/// Under `cancel_previous`, an older run is cancelled within this time after a newer one is due.
const SUPERSEDED_WITHIN: Span = Span::seconds(2);

/// The runs of one job at one point of the journal.
#[derive(Default)]
struct JobRuns {
    recorded: BTreeSet<RunId>,
    in_progress: BTreeSet<RunId>,
    /// Runs claimed or delegated at least once, each with the last attempt that began.
    begun: BTreeMap<RunId, u32>,
    /// Waiting runs that were never claimed.
    waiting: BTreeMap<RunId, WaitingRun>,
    forced: BTreeSet<RunId>,
    /// Runs that have not ended.
    open: BTreeSet<RunId>,
    /// When the last open run ended.
    idle_since: Option<DbTime>,
    /// In progress because their owner delegated them; not claimed yet.
    delegated: BTreeSet<RunId>,
    /// Runs that could not be decoded while they waited: others may start before them.
    unreadable: BTreeSet<RunId>,
}

struct WaitingRun {
    /// The position in the journal at which the run was recorded.
    position: usize,
    due: DbTime,
    /// The time since which the run could have started.
    since: DbTime,
    late: bool,
}

pub fn check(db: &Db, jobs: &Definitions<'_>, scene: Scene, end: DbTime, found: &mut Vec<String>) {
    let rows: BTreeMap<RunId, &RunRow> = db.all_runs().collect();
    let mut runs_of: BTreeMap<JobId, JobRuns> = BTreeMap::new();
    for (position, entry) in db.journal().iter().enumerate() {
        let (job, run) = match entry {
            Entry::Recorded { job, run, .. }
            | Entry::Claimed { job, run, .. }
            | Entry::Settled { job, run, .. }
            | Entry::Delegated { job, run }
            | Entry::Undelegated { job, run }
            | Entry::Unreadable { job, run }
            | Entry::Cancelled { job, run, .. } => (*job, *run),
            _ => continue,
        };
        let runs = runs_of.entry(job).or_default();
        // Simulated users change many fields of a job, but not its overlap policy.
        runs.check(&jobs[&job][0].job.spec, entry, end, found);
        runs.check_skip(&jobs[&job], entry, rows[&run], found);
        if scene.patient {
            check_newest(&jobs[&job], entry, rows[&run], found);
        }
        runs.apply(position, entry, rows[&run]);
    }
}

/// Under `skip` and `cancel_previous`, no newer tick is due when a tick is planned as a run.
fn check_newest(definitions: &[Definition<'_>], entry: &Entry, row: &RunRow, found: &mut Vec<String>) {
    let Entry::Recorded { run, job, state, at, by: Some(_), late: false, .. } = entry else { return };
    if row.cause != CauseKind::Tick || *state == State::Skipped {
        return;
    }
    // A calendar could exclude the newer tick.
    let newer = |definition: &Definition<'_>| {
        let (spec, schedule) = (&definition.job.spec, definition.job.ticking());
        let next = schedule.and_then(|schedule| schedule.next_after(row.scheduled_at));
        matches!(spec.overlap, Overlap::Skip | Overlap::CancelPrevious)
            && spec.exclude().is_empty()
            && next.is_some_and(|next| at.since(next) > RECORDED_WITHIN)
    };
    if definitions.iter().all(newer) {
        found.push(format!("overlap: {run} of {job} began although a newer tick was due"));
    }
}

impl JobRuns {
    /// Checks an entry against the state before it.
    fn check(&self, spec: &JobSpec, entry: &Entry, end: DbTime, found: &mut Vec<String>) {
        match (spec.overlap, entry) {
            (Overlap::Queue { limit }, Entry::Recorded { run, job, state, late: false, force: false, .. })
                if *state == State::Waiting && self.waiting.len() >= limit as usize =>
            {
                found.push(format!("queue: {run} of {job} began to wait although {} runs wait", self.waiting.len()));
            }
            // The next attempt at a run that is in progress is not a start.
            (_, Entry::Claimed { run, job, .. } | Entry::Delegated { run, job })
                if !self.forced.contains(run) && !self.in_progress.contains(run) =>
            {
                let besides = self.in_progress.len();
                if spec.in_progress_max().is_some_and(|max| besides >= max as usize) {
                    found.push(format!(
                        "I12: {run} of {job} began while {besides} others were in progress under {}",
                        spec.overlap.word()
                    ));
                }
                if let (Overlap::Queue { .. }, Some(before)) = (spec.overlap, self.overtaken_by(run)) {
                    found.push(format!("queue: {run} of {job} began before {before}, which should start first"));
                }
            }
            (policy, Entry::Cancelled { run, job, to: Some(to), .. })
                if policy != Overlap::CancelPrevious || to <= run || !self.recorded.contains(to) =>
            {
                found.push(format!("cancel_previous: {run} of {job} was superseded by {to}, which is not newer"));
            }
            (Overlap::CancelPrevious, Entry::Settled { run, job, verdict, at, .. }) if verdict.is_terminal() => {
                let is_late = |waiting: &WaitingRun| at.since(waiting.since) > SUPERSEDED_WITHIN;
                let newer =
                    self.waiting.range(run..).find(|(newer, waiting)| !self.forced.contains(newer) && is_late(waiting));
                if let (Some((newer, _)), true) = (newer, *at >= end.minus(RECOVERED)) {
                    found.push(format!(
                        "cancel_previous: {newer} of {job} waited behind {run}, which was not cancelled"
                    ));
                }
            }
            _ => {}
        }
    }

    /// A skip for overlap has a cause: an open run, or a newer tick that is due too and runs instead.
    fn check_skip(&self, definitions: &[Definition<'_>], entry: &Entry, row: &RunRow, found: &mut Vec<String>) {
        let Entry::Recorded { run, job, at, by: Some(_), .. } = entry else { return };
        let idle = self.open.is_empty() && self.idle_since.is_none_or(|since| at.since(since) > RECORDED_WITHIN);
        if row.skip_reason != Some(SkipReason::Overlap) || !idle {
            return;
        }
        let newer = |definition: &Definition<'_>| {
            let next = definition.job.ticking().and_then(|schedule| schedule.next_after(row.scheduled_at));
            next.is_some_and(|next| next <= *at)
        };
        if !definitions.iter().any(newer) {
            found.push(format!("overlap: {run} of {job} was skipped, nothing was open and no newer tick was due"));
        }
    }

    /// A waiting run that should have started before `run`. It was recorded earlier and came due earlier, and both runs
    /// are on time or both are late. If `run` was recorded as claimed, every waiting run counts. `None` if `run` has
    /// begun before.
    fn overtaken_by(&self, run: &RunId) -> Option<RunId> {
        let before = |(other, waiting): (&RunId, &WaitingRun)| match self.waiting.get(run) {
            Some(own) => {
                let first = (waiting.due, *other) < (own.due, *run);
                waiting.late == own.late && waiting.position < own.position && first
            }
            None => true,
        };
        let readable = self.waiting.iter().filter(|(other, _)| !self.unreadable.contains(other));
        let mut candidates = readable.filter(|_| !self.begun.contains_key(run));
        candidates.find(|(other, waiting)| *other != run && before((other, waiting))).map(|(other, _)| *other)
    }

    /// Applies an entry to the state.
    fn apply(&mut self, position: usize, entry: &Entry, row: &RunRow) {
        match entry {
            Entry::Recorded { run, state, .. } if *state != State::Skipped => _ = self.open.insert(*run),
            Entry::Settled { run, verdict, at, .. } if verdict.is_terminal() => {
                self.open.remove(run);
                self.idle_since = Some(*at);
            }
            Entry::Cancelled { run, .. } => {
                self.open.remove(run);
                self.idle_since = row.finished_at;
            }
            _ => {}
        }
        match entry {
            Entry::Recorded { run, state, at, force, late, .. } => {
                self.recorded.insert(*run);
                if *state == State::Waiting {
                    let (due, since) = (row.due_at, row.due_at.max(*at));
                    self.waiting.insert(*run, WaitingRun { position, due, since, late: *late });
                }
                if *force {
                    self.forced.insert(*run);
                }
            }
            Entry::Delegated { run, .. } => {
                self.waiting.remove(run);
                // It counts as begun, even if it waits again later.
                self.begun.entry(*run).or_insert(0);
                if self.in_progress.insert(*run) {
                    self.delegated.insert(*run);
                }
            }
            Entry::Unreadable { run, .. } => _ = self.unreadable.insert(*run),
            Entry::Undelegated { run, .. } if self.delegated.remove(run) => {
                self.in_progress.remove(run);
            }
            Entry::Claimed { run, attempt, .. } => {
                self.delegated.remove(run);
                self.waiting.remove(run);
                self.begun.insert(*run, *attempt);
                self.in_progress.insert(*run);
            }
            Entry::Settled { run, verdict, .. } if verdict.is_terminal() => {
                self.in_progress.remove(run);
            }
            // The claim was returned unused. If an earlier attempt began, the run is still in progress.
            Entry::Settled { run, verdict: Verdict::HandBack | Verdict::Return, .. }
                if self.begun.get(run) == Some(&1) =>
            {
                self.in_progress.remove(run);
            }
            Entry::Cancelled { run, .. } => {
                self.waiting.remove(run);
                self.in_progress.remove(run);
            }
            _ => {}
        }
    }
}
