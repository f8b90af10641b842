//! The reads of the scheduler: jobs by cursor with their open runs, and changed jobs.

use std::collections::HashMap;

use everytick_domain::{
    edit::Change,
    ids::JobId,
    job::{JobSpec, Overlap},
    plan::Fate,
    run::{SkipReason, State, Verdict},
    schedule::Timing,
    time::{DbTime, Span},
};

use super::{
    Bench, LIMITS, START, TTL, incarnation, new_run, overlapping, pause, queues::queued, raised, s, schedule, spec,
    tick, ticks,
};
use crate::{ChangeMark, NodeInfo, StoreError, Unread};

/// The rules of this file.
#[macro_export]
#[doc(hidden)]
macro_rules! conformance_loads {
    ($open:path) => {
        $crate::conformance_group! { $open, loads:
            the_horizon_returns_jobs_by_cursor_in_pages,
            the_horizon_has_no_jobs_without_ticks,
            the_horizon_needs_a_lease,
            a_loaded_job_has_its_open_runs_and_no_others,
            a_load_reads_as_many_waiting_runs_as_the_policy_needs,
            a_load_reads_runs_between_two_attempts_before_others,
            waiting_runs_of_a_queue_job_are_counted_but_not_read,
            a_loaded_job_has_its_last_recorded_tick_from_the_cursor_on,
            a_claim_of_a_dead_incarnation_is_still_an_open_run,
            deleted_jobs_are_loaded_and_unknown_jobs_are_not,
            changes_include_created_and_edited_jobs,
            a_new_job_whose_first_tick_is_far_ahead_is_found_by_the_horizon,
            changes_come_in_pages,
            a_reader_of_changes_that_is_up_to_date_gets_nothing_new,
        }
    };
}

pub async fn the_horizon_returns_jobs_by_cursor_in_pages(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let every = |seconds| Some(schedule(Timing::Every { every: Span::seconds(seconds) }));
    for (name, seconds) in [("a", 60), ("b", 10), ("c", 10), ("d", 120)] {
        let mut spec = spec(name);
        spec.schedule = every(seconds);
        bench.create(spec).await;
    }
    let names = |jobs: &[crate::LoadedJob]| jobs.iter().map(|job| job.job.spec.name.clone()).collect::<Vec<_>>();
    let all = bench.store.load_horizon(&lease, &bench.all(), s(61), None, 10).await.unwrap();
    assert_eq!(names(&all), ["b", "c", "a"]);
    assert_eq!(all[0].cursor, Some(s(10)));
    assert_eq!(names(&bench.store.load_horizon(&lease, &bench.all(), s(60), None, 10).await.unwrap()), ["b", "c"]);
    let first = bench.store.load_horizon(&lease, &bench.all(), s(61), None, 1).await.unwrap();
    assert_eq!(names(&first), ["b"]);
    let after = Some((first[0].cursor.unwrap(), first[0].job.id));
    assert_eq!(names(&bench.store.load_horizon(&lease, &bench.all(), s(61), after, 10).await.unwrap()), ["c", "a"]);
    let seen = bench.store.look_at_horizon(&lease, &bench.all(), s(61), None, 10).await.unwrap();
    let loaded: Vec<_> = all.iter().map(|job| (job.job.id, job.epoch, job.cursor)).collect();
    assert_eq!(seen.iter().map(|seen| (seen.id, seen.epoch, seen.cursor)).collect::<Vec<_>>(), loaded);
    let seen = bench.store.look_at_horizon(&lease, &bench.all(), s(61), after, 1).await.unwrap();
    assert_eq!(seen.iter().map(|seen| seen.id).collect::<Vec<_>>(), [all[1].job.id]);
}

pub async fn the_horizon_has_no_jobs_without_ticks(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let mut disabled = spec("disabled");
    disabled.enabled = false;
    let mut manual = spec("manual");
    manual.schedule = None;
    bench.create(disabled).await;
    bench.create(manual).await;
    bench.create(spec("paused")).await;
    bench.edit("paused", pause()).await;
    bench.create(spec("deleted")).await;
    bench.edit("deleted", Change::Delete).await;
    assert!(bench.store.load_horizon(&lease, &bench.all(), s(1_000_000), None, 10).await.unwrap().is_empty());
}

pub async fn the_horizon_needs_a_lease(bench: &Bench) {
    let (lease, _) = bench.store.join(&NodeInfo::named("a"), incarnation(1), TTL).await.unwrap();
    bench.go(15);
    let loaded = bench.store.load_horizon(&lease, &bench.all(), s(60), None, 10).await;
    assert!(matches!(loaded, Err(StoreError::LeaseLost)));
    let seen = bench.store.look_at_horizon(&lease, &bench.all(), s(60), None, 10).await;
    assert!(matches!(seen, Err(StoreError::LeaseLost)));
}

pub async fn a_loaded_job_has_its_open_runs_and_no_others(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    let other = bench.create(spec("other")).await;
    bench.go(30);
    let over = bench.claimed(&lease, &job, 10).await;
    bench.settle(&over, Verdict::Succeeded).await;
    let claimed = bench.claimed(&lease, &job, 20).await;
    let waiting = bench.waiting(&lease, &job, 30).await;
    bench.waiting(&lease, &other, 10).await;
    for loaded in [
        bench.load(&job).await,
        bench
            .store
            .load_horizon(&lease, &bench.all(), s(60), None, 10)
            .await
            .unwrap()
            .into_iter()
            .find(|at| at.job.id == job.id)
            .unwrap(),
    ] {
        let open: Vec<_> = loaded.open.iter().map(|run| (run.id, run.state, run.attempt, run.fence)).collect();
        let unclaimed = everytick_domain::ids::Fence::default();
        assert_eq!(open, [(claimed.id, State::Claimed, 1, claimed.fence), (waiting, State::Waiting, 0, unclaimed)]);
    }
}

/// How much of a backlog a load reads depends on the job's policy, not on the length of the backlog.
pub async fn a_load_reads_as_many_waiting_runs_as_the_policy_needs(bench: &Bench) {
    let lease = bench.join("a", 1).await;
    let mut at = 0;
    for (name, overlap, max_concurrent, needed) in [
        ("skip", Overlap::Skip, None, 1),
        ("allow", Overlap::Allow, None, 1),
        ("three", Overlap::Allow, Some(3), 3),
        ("queue", Overlap::Queue { limit: 2 }, None, 2),
    ] {
        let job = bench.create(JobSpec { overlap, max_concurrent, ..spec(name) }).await;
        for count in 1..=5_usize {
            at += 10;
            bench.go(at);
            bench.waiting(&lease, &job, at).await;
            let loaded = bench.load(&job).await;
            assert_eq!(loaded.open.len(), count.min(needed), "{name}: {count} wait");
            assert_eq!(loaded.unread, Unread { waiting: count > needed, tried: false }, "{name}: {count} wait");
            assert_eq!(loaded.remaining, LIMITS.waiting_per_job_max - count, "{name}: all waiting runs count");
        }
    }
}

/// Runs between two attempts are in progress, so they are read even if other runs wait before them.
pub async fn a_load_reads_runs_between_two_attempts_before_others(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(60);
    for at in [10, 20, 30] {
        bench.waiting(&lease, &job, at).await;
    }
    let tried = bench.claimed(&lease, &job, 40).await;
    bench.settle(&tried, Verdict::Retry { due_at: s(100) }).await;
    let loaded = bench.load(&job).await;
    let tried_read: Vec<_> = loaded.open.iter().filter(|run| run.attempt > 0).map(|run| run.id).collect();
    assert_eq!((tried_read, loaded.open.len()), (vec![tried.id], 2));
    assert_eq!(loaded.unread, Unread { waiting: true, tried: false });
    for at in [50, 60] {
        let tried = bench.claimed(&lease, &job, at).await;
        bench.settle(&tried, Verdict::Retry { due_at: s(100) }).await;
    }
    let loaded = bench.load(&job).await;
    assert_eq!((loaded.open.len(), loaded.unread), (2, Unread { waiting: true, tried: true }));
}

pub async fn waiting_runs_of_a_queue_job_are_counted_but_not_read(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(queued(overlapping("q"))).await);
    bench.go(60);
    for at in [10, 20, 30] {
        bench.waiting(&lease, &job, at).await;
    }
    let loaded = bench.load(&job).await;
    assert_eq!((loaded.open.len(), loaded.remaining), (0, LIMITS.waiting_per_job_max - 3));
}

pub async fn a_loaded_job_has_its_last_recorded_tick_from_the_cursor_on(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.create(spec("other")).await;
    bench.go(35);
    assert_eq!(bench.load(&job).await.last_tick, None);
    bench.waiting(&lease, &job, 10).await;
    bench.record(&lease, ticks(&job, 1, vec![tick(&job, 20, Fate::Skip(SkipReason::Overlap))])).await;
    bench.waiting(&lease, &job, 30).await;
    // A triggered run is not a tick.
    bench.trigger(new_run("j", "k")).await;
    let horizon = bench.store.load_horizon(&lease, &bench.all(), s(60), None, 10).await.unwrap();
    let in_horizon = horizon.iter().find(|at| at.job.id == job.id).unwrap();
    assert_eq!((bench.load(&job).await.last_tick, in_horizon.last_tick), (Some(s(30)), Some(s(30))));
    bench.raise(&job, 1, Some(s(30))).await;
    assert_eq!(bench.load(&job).await.last_tick, Some(s(30)));
    bench.raise(&job, 1, Some(s(40))).await;
    assert_eq!(bench.load(&job).await.last_tick, None, "the cursor has passed it");
}

pub async fn a_claim_of_a_dead_incarnation_is_still_an_open_run(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&lease, &job, 10).await;
    bench.go(7_300);
    let next = bench.join("a", 2).await;
    assert_eq!(bench.load(&job).await.open[0].id, claimed.id);
    let loaded = bench.store.load_horizon(&next, &bench.all(), s(7_400), None, 10).await.unwrap();
    assert_eq!(loaded[0].open.len(), 1);
}

pub async fn deleted_jobs_are_loaded_and_unknown_jobs_are_not(bench: &Bench) {
    let job = bench.create(spec("j")).await;
    bench.edit("j", Change::Delete).await;
    let unknown = JobId::from_uuid(uuid::Uuid::from_u128(99));
    let loaded = bench.store.load_jobs(&[unknown, job.id]).await.unwrap();
    assert_eq!(loaded.len(), 1);
    assert!(loaded[0].job.deleted_at.is_some());
    assert_eq!(loaded[0].cursor, None);
}

/// Reads changes as the engine does: a change with a known epoch is not new.
#[derive(Default)]
struct Reader {
    mark: ChangeMark,
    known: HashMap<JobId, i64>,
}

impl Reader {
    async fn news(&mut self, bench: &Bench) -> Vec<(JobId, i64, Option<DbTime>)> {
        let changes = bench.store.changes(&bench.all(), self.mark, 10).await.unwrap();
        assert!(!changes.more);
        self.mark = changes.mark;
        let found = changes.jobs.into_iter().map(|job| (job.id, job.epoch.raw(), job.cursor));
        found.filter(|(job, epoch, _)| self.known.insert(*job, *epoch) != Some(*epoch)).collect()
    }
}

pub async fn changes_include_created_and_edited_jobs(bench: &Bench) {
    let (a, b) = (bench.create(spec("a")).await, bench.create(spec("b")).await);
    let mut reader = Reader::default();
    assert_eq!(reader.news(bench).await, [(a.id, 1, Some(s(10))), (b.id, 1, Some(s(10)))]);
    bench.edit("a", pause()).await;
    assert_eq!(reader.news(bench).await, [(a.id, raised(START), None)]);
    bench.edit("b", Change::Delete).await;
    assert_eq!(reader.news(bench).await, [(b.id, raised(START), None)]);
    bench.go(3_600);
    bench.edit("a", Change::Resume).await;
    assert_eq!(reader.news(bench).await, [(a.id, raised(s(3_600)), Some(s(3_610)))]);
}

/// A new job may be left out of the changes. The owner still finds it in time, and sees each later edit.
pub async fn a_new_job_whose_first_tick_is_far_ahead_is_found_by_the_horizon(bench: &Bench) {
    let mut daily = spec("j");
    daily.schedule = Some(schedule(Timing::Every { every: Span::days(1) }));
    let (lease, job) = (bench.join("a", 1).await, bench.create(daily).await);
    let mut reader = Reader::default();
    reader.news(bench).await;
    let cursor = bench.cursor(&job).await.unwrap();
    assert!(cursor >= START.plus(crate::ANNOUNCED_WITHIN), "{cursor}");
    let until = cursor.plus(Span::seconds(1));
    let found = bench.store.load_horizon(&lease, &bench.all(), until, None, 10).await.unwrap();
    assert_eq!(found.iter().map(|found| (found.job.id, found.epoch.raw())).collect::<Vec<_>>(), [(job.id, 1)]);
    bench.edit("j", pause()).await;
    assert_eq!(reader.news(bench).await, [(job.id, raised(START), None)]);
}

pub async fn changes_come_in_pages(bench: &Bench) {
    for name in ["a", "b", "c"] {
        bench.create(spec(name)).await;
    }
    let first = bench.store.changes(&bench.all(), ChangeMark::default(), 2).await.unwrap();
    assert_eq!((first.jobs.len(), first.more), (2, true));
    let rest = bench.store.changes(&bench.all(), first.mark, 2).await.unwrap();
    assert_eq!((rest.jobs.len(), rest.more), (1, false));
}

pub async fn a_reader_of_changes_that_is_up_to_date_gets_nothing_new(bench: &Bench) {
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    let mut reader = Reader::default();
    reader.news(bench).await;
    let mark = reader.mark;
    // Recording a tick and raising a cursor are not changes of a job.
    bench.go(10);
    bench.waiting(&lease, &job, 10).await;
    bench.raise(&job, 1, Some(s(20))).await;
    assert!(reader.news(bench).await.is_empty());
    assert!(reader.mark.0 >= mark.0, "the mark never goes back");
    let present = bench.store.changes(&bench.all(), ChangeMark::default(), 0).await.unwrap();
    assert!(present.jobs.is_empty() && present.mark.0 <= reader.mark.0, "a limit of 0 returns only the present mark");
    bench.go(3_600);
    assert!(
        bench.store.changes(&bench.all(), mark, 10).await.unwrap().jobs.len() <= 1,
        "only changes of the last minute are returned again"
    );
}
