//! Backlogs too long for one transaction. SQLite and PostgreSQL mark them at once and process them in batches. The
//! simulated store processes any backlog at once, so there the rules see no batch.

use everytick_domain::{
    edit::Change,
    flow::{DependsOn, When},
    ids::RunId,
    job::{Job, JobSpec},
    plan::Fate,
    run::State,
};

use super::{
    Bench, LIMITS, TENANT, actor, by_name, change,
    flows::advance,
    overlapping, pause,
    queues::{ids, queued},
    s, spec, tick, ticks,
};
use crate::{BacklogAction, BacklogStep, BacklogWork, EditJob, Lease};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_backlogs {
    ($open:path) => {
        $crate::conformance_group! { $open, backlogs:
            none_of_a_cancelled_backlog_starts_and_later_runs_do,
            a_run_that_waits_only_since_the_cancel_is_not_cancelled,
            none_of_a_cancelled_backlog_of_late_runs_starts,
            workers_get_no_run_of_a_cancelled_backlog,
            a_pause_or_delete_that_cancels_ends_a_long_backlog,
            a_long_backlog_follows_its_job_to_another_target,
            a_backlog_that_moves_can_be_cancelled,
            a_batch_of_a_backlog_is_limited_and_changes_no_other_backlog,
            the_progress_of_one_backlog_is_not_that_of_another,
            a_run_of_a_cancelled_backlog_names_its_author_and_advances_its_flow,
        }
    };
}

/// More than two batches.
const LONG: usize = LIMITS.backlog_batch_max * 2 + 5;

fn at(n: usize) -> i64 {
    10 * i64::try_from(n).unwrap()
}

/// A job with `LONG` waiting ticks that are on time, and their runs.
async fn backlog(bench: &Bench, lease: &Lease, spec: JobSpec) -> (Job, Vec<RunId>) {
    bench.go(0);
    let job = bench.create(spec).await;
    let mut runs = Vec::new();
    for n in 1..=LONG {
        bench.go(at(n));
        runs.push(bench.waiting(lease, &job, at(n)).await);
    }
    (job, runs)
}

async fn cancel(bench: &Bench, job: &str) {
    let cancelled = bench.store.cancel_job(TENANT, &actor(), &by_name(job)).await.unwrap().runs;
    assert_eq!(cancelled.waited.len(), if cancelled.backlog { 0 } else { LONG });
}

async fn work(bench: &Bench, job: &str) -> Option<BacklogWork> {
    bench.store.get_job(TENANT, &by_name(job)).await.unwrap().backlog
}

/// Processes every batch until nothing is left.
async fn batches(bench: &Bench) {
    for _ in 0..LONG {
        if bench.store.advance_backlog().await.unwrap().job.is_none() {
            return;
        }
    }
    panic!("the batches do not end");
}

async fn all_cancelled(bench: &Bench, runs: &[RunId]) {
    for run in runs {
        assert_eq!(bench.run(*run).await.state, State::Cancelled);
    }
}

pub async fn none_of_a_cancelled_backlog_starts_and_later_runs_do(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (job, runs) = backlog(bench, &lease, overlapping("j")).await;
    let (_, beside) = backlog(bench, &lease, overlapping("other")).await;
    cancel(bench, "j").await;
    let due = bench.store.peek_waiting(&lease, &bench.all(), &[], None, 100).await.unwrap().due;
    assert_eq!(due.iter().map(|run| run.id).collect::<Vec<_>>(), beside, "the runs of other jobs are found");
    assert_eq!(bench.store.claim(&lease, &bench.all(), &runs).await.unwrap(), [], "no claim takes them");
    bench.go(at(LONG + 1));
    let later = bench.waiting(&lease, &job, at(LONG + 1)).await;
    assert!(bench.due(&lease).await.contains(&later), "a run that began to wait later is not part of the cancel");
    assert_eq!(bench.claim(&lease, later).await.id, later);
    assert_eq!(bench.store.claim(&lease, &bench.all(), &beside).await.unwrap().len(), LONG);
    batches(bench).await;
    assert_eq!(work(bench, "j").await, None);
    all_cancelled(bench, &runs).await;
}

pub async fn a_run_that_waits_only_since_the_cancel_is_not_cancelled(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (job, runs) = backlog(bench, &lease, overlapping("j")).await;
    cancel(bench, "j").await;
    bench.go(at(LONG + 1));
    let later = bench.waiting(&lease, &job, at(LONG + 1)).await;
    batches(bench).await;
    assert_eq!(bench.run(runs[LONG - 1]).await.state, State::Cancelled);
    assert_eq!(bench.run(later).await.state, State::Waiting);
}

pub async fn none_of_a_cancelled_backlog_of_late_runs_starts(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(at(LONG));
    let rows: Vec<_> = (1..=LONG).map(|n| tick(&job, at(n), Fate::Late)).collect();
    let runs: Vec<RunId> = rows.iter().map(|row| row.tick.id).collect();
    bench.record(&lease, ticks(&job, 1, rows)).await;
    assert_ne!(bench.due(&lease).await, []);
    cancel(bench, "j").await;
    assert_eq!(bench.due(&lease).await, []);
    batches(bench).await;
    all_cancelled(bench, &runs).await;
}

pub async fn workers_get_no_run_of_a_cancelled_backlog(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (job, runs) = backlog(bench, &lease, queued(overlapping("j"))).await;
    cancel(bench, "j").await;
    assert_eq!(ids(bench, 100).await, []);
    bench.go(at(LONG + 1));
    let later = bench.waiting(&lease, &job, at(LONG + 1)).await;
    assert_eq!(ids(bench, 100).await, [later]);
    batches(bench).await;
    all_cancelled(bench, &runs).await;
}

pub async fn a_pause_or_delete_that_cancels_ends_a_long_backlog(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    for (name, ends) in [("paused", pause()), ("deleted", Change::Delete)] {
        let (_, runs) = backlog(bench, &lease, queued(overlapping(name))).await;
        bench.store.edit_job(TENANT, &actor(), EditJob { cancel: true, ..change(name, ends) }).await.unwrap();
        assert_eq!(ids(bench, 100).await, [], "{name}");
        batches(bench).await;
        all_cancelled(bench, &runs).await;
    }
}

pub async fn a_long_backlog_follows_its_job_to_another_target(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (job, runs) = backlog(bench, &lease, overlapping("j")).await;
    let replace = |spec: JobSpec| Change::Replace(Box::new(spec));
    bench.edit("j", replace(queued((*job.spec).clone()))).await;
    assert_eq!(bench.due(&lease).await, [], "no node delivers them to the old target");
    bench.store.advance_backlog().await.unwrap();
    let first = ids(bench, 7).await;
    assert_eq!(first, runs[..7], "a worker gets the runs that have moved");
    // The target changes back during the move: the rest goes to the current target.
    bench.edit("j", replace((*job.spec).clone())).await;
    batches(bench).await;
    assert_eq!(ids(bench, 100).await, []);
    assert_eq!(bench.due(&lease).await, runs[7..]);
    assert_eq!(work(bench, "j").await, None);
}

pub async fn a_backlog_that_moves_can_be_cancelled(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (job, runs) = backlog(bench, &lease, overlapping("j")).await;
    bench.edit("j", Change::Replace(Box::new(queued((*job.spec).clone())))).await;
    bench.store.advance_backlog().await.unwrap();
    cancel(bench, "j").await;
    assert_eq!(ids(bench, 100).await, []);
    batches(bench).await;
    all_cancelled(bench, &runs).await;
    assert_eq!(work(bench, "j").await, None);
}

pub async fn a_batch_of_a_backlog_is_limited_and_changes_no_other_backlog(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (cancelled, _) = backlog(bench, &lease, overlapping("cancelled")).await;
    let (moved, _) = backlog(bench, &lease, overlapping("moved")).await;
    cancel(bench, "cancelled").await;
    bench.go(at(LONG) + 1);
    bench.edit("moved", Change::Replace(Box::new(queued((*moved.spec).clone())))).await;
    let (all, max) = (LONG as u64, LIMITS.backlog_batch_max);
    let progress = |action, done| Some(BacklogWork { action, done, remaining: all - done });
    if work(bench, "cancelled").await.is_none() {
        assert_eq!(bench.store.advance_backlog().await.unwrap(), BacklogStep::default(), "nothing is marked");
        return;
    }
    let left = async || (work(bench, "cancelled").await, work(bench, "moved").await);
    let none = (progress(BacklogAction::Cancel, 0), progress(BacklogAction::Move, 0));
    assert_eq!(left().await, none);
    for (job, count, expected) in [
        (&cancelled, (max, 0), (progress(BacklogAction::Cancel, max as u64), none.1)),
        (&moved, (0, max), (progress(BacklogAction::Cancel, max as u64), progress(BacklogAction::Move, max as u64))),
    ] {
        bench.clock.set(s(at(LONG) + 2));
        let step = bench.store.advance_backlog().await.unwrap();
        assert_eq!(step, BacklogStep { job: Some(job.id), cancelled: count.0, moved: count.1 });
        assert_eq!(left().await, expected);
    }
    // A cancelled backlog that is not moved, although its job is: the cancel comes first.
    bench.edit("cancelled", Change::Replace(Box::new(queued((*cancelled.spec).clone())))).await;
    assert_eq!(work(bench, "cancelled").await.unwrap().action, BacklogAction::Cancel);
    batches(bench).await;
    assert_eq!(left().await, (None, None));
    let moved_runs = ids(bench, 100).await;
    assert_eq!(moved_runs.len(), LONG, "only the runs of the moved job");
}

/// Two cancels, and a job that is cancelled and then moved.
pub async fn the_progress_of_one_backlog_is_not_that_of_another(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (first, _) = backlog(bench, &lease, overlapping("first")).await;
    backlog(bench, &lease, overlapping("second")).await;
    cancel(bench, "first").await;
    bench.go(at(LONG) + 1);
    cancel(bench, "second").await;
    if work(bench, "first").await.is_none() {
        return;
    }
    bench.edit("first", Change::Replace(Box::new(queued((*first.spec).clone())))).await;
    bench.go(at(LONG) + 2);
    assert_eq!(bench.store.advance_backlog().await.unwrap().job, Some(first.id));
    assert_eq!(work(bench, "second").await.unwrap().done, 0);
    while work(bench, "first").await.unwrap().action == BacklogAction::Cancel {
        assert!(bench.store.advance_backlog().await.unwrap().job.is_some());
    }
    let moved = BacklogWork { action: BacklogAction::Move, done: 0, remaining: 0 };
    assert_eq!(work(bench, "first").await, Some(moved));
    batches(bench).await;
}

pub async fn a_run_of_a_cancelled_backlog_names_its_author_and_advances_its_flow(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let (_, runs) = backlog(bench, &lease, overlapping("j")).await;
    let after = DependsOn { job: "j".into(), when: When::Succeeded };
    let child = bench.create(JobSpec { schedule: None, depends_on: vec![after], ..spec("child") }).await;
    cancel(bench, "j").await;
    batches(bench).await;
    assert_eq!(bench.run(runs[LONG - 1]).await.cancelled_by.as_deref(), Some(actor().name.as_str()));
    advance(bench).await;
    let skipped = bench.history(&child).await;
    assert_eq!(skipped.len(), LONG);
    assert!(skipped.iter().all(|run| run.state == State::Skipped));
}
