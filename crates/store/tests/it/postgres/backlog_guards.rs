//! The work on one long backlog changes no other backlog, and no run that has ended.

use everytick_domain::{
    edit::Change,
    ids::RunId,
    job::JobSpec,
    run::State,
    target::{QueueTarget, TargetSpec},
};
use everytick_store::{
    BacklogAction, BacklogStep, BacklogWork, Store as _,
    conformance::{LIMITS, TENANT, actor, by_name, overlapping},
};

use super::{
    Opened, bench,
    guards::{run, waits_or_ends},
};

/// Creates the job with one waiting run more than a batch has. Returns the runs.
async fn backlog(opened: &Opened, name: &str) -> Vec<RunId> {
    let bench = &opened.bench;
    bench.go(0);
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping(name)).await);
    let mut runs = Vec::new();
    for n in 1..=i64::try_from(LIMITS.backlog_batch_max).unwrap() + 1 {
        bench.go(n * 10);
        runs.push(bench.waiting(&lease, &job, n * 10).await);
    }
    runs
}

/// Ends a run outside the store, but keeps its waiting row. A promotion that loses a part of a manual repair could leave such rows
/// (`backlog_cancel`).
#[tokio::test]
async fn a_cancelled_backlog_leaves_an_ended_run_whose_waiting_row_remains() {
    let opened = bench().await;
    let runs = backlog(&opened, "j").await;
    let mut session = opened.connect().await;
    run(&mut session, &format!("update runs set state = 2, finished_at = 1 where id = '{}'", runs[0])).await;
    assert!(opened.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap().runs.backlog);
    while opened.store.advance_backlog().await.unwrap() != BacklogStep::default() {}
    assert_eq!(opened.bench.run(runs[0]).await.state, State::Succeeded);
    assert_eq!(opened.bench.run(runs[1]).await.state, State::Cancelled);
}

/// The cancel of another job may still wait for claims that began before its mark (`backlog_bound`).
#[tokio::test]
async fn a_cancel_sets_no_bound_for_the_cancel_of_another_job() {
    let opened = bench().await;
    backlog(&opened, "j").await;
    let other = opened.bench.create(overlapping("other")).await;
    let mut session = opened.connect().await;
    let mark = format!(
        "insert into backlog_work (job, action, tenant, up_to, created_at, worked_at, actor)
         values ('{}', 1, {}, {}, 0, 0, 'tester')",
        other.id,
        TENANT.raw(),
        i64::MAX
    );
    run(&mut session, &mark).await;
    assert!(opened.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap().runs.backlog);
    let bounds: Vec<bool> = sqlx::query_scalar("select up_to = 9223372036854775807 from backlog_work order by 1")
        .fetch_all(&mut session)
        .await
        .unwrap();
    assert_eq!(bounds, [false, true]);
}

fn queued(name: &str, queue: &str) -> JobSpec {
    JobSpec { target: TargetSpec::Queue(QueueTarget { name: queue.into() }), ..overlapping(name) }
}

/// `backlog_job_held` reads queue and partition of the job, and `backlog_move` moves its runs alone.
#[tokio::test]
async fn the_runs_of_a_moved_backlog_follow_their_own_job_and_others_stay() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, other) = (bench.join("a", 1).await, bench.create(queued("other", "other")).await);
    bench.go(10);
    bench.waiting(&lease, &other, 10).await;
    backlog(&opened, "j").await;
    assert!(bench.edit("j", Change::Replace(Box::new(queued("j", "q")))).await.backlog);
    while opened.store.advance_backlog().await.unwrap() != BacklogStep::default() {}
    let mut look = opened.connect().await;
    let astray = "select count(*) from waiting w join epochs e on e.job = w.job
                   where w.queue is distinct from e.queue or w.partition <> e.partition";
    let astray: i64 = sqlx::query_scalar(astray).fetch_one(&mut look).await.unwrap();
    assert_eq!(astray, 0);
}

/// `backlog_job_held` skips a job that another session has locked: an edit may be about to change what the batch reads.
#[tokio::test]
async fn the_backlog_of_a_job_that_is_being_edited_is_left_for_later() {
    let opened = bench().await;
    backlog(&opened, "j").await;
    assert!(opened.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap().runs.backlog);
    let mut edit = opened.connect().await;
    run(&mut edit, "begin; select from epochs for update").await;
    assert_eq!(opened.store.advance_backlog().await.unwrap(), BacklogStep::default());
    run(&mut edit, "rollback").await;
    assert_eq!(opened.store.advance_backlog().await.unwrap().cancelled, LIMITS.backlog_batch_max);
}

/// `backlog_take` and `backlog_move` skip locked rows; the next batch takes them.
#[tokio::test]
async fn a_locked_waiting_row_does_not_block_the_batch_of_its_backlog() {
    for cancels in [true, false] {
        let opened = bench().await;
        let runs = backlog(&opened, "j").await;
        if cancels {
            assert!(opened.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap().runs.backlog);
        } else {
            assert!(opened.bench.edit("j", Change::Replace(Box::new(queued("j", "q")))).await.backlog);
        }
        let mut session = opened.connect().await;
        run(&mut session, &format!("begin; select from waiting where run = '{}' for update", runs[0])).await;
        let store = opened.store.clone();
        let mut batch = tokio::spawn(async move { store.advance_backlog().await });
        assert!(!waits_or_ends(&opened, &mut batch).await, "cancels: {cancels}");
        run(&mut session, "rollback").await;
        assert_eq!(opened.bench.run(runs[0]).await.state, State::Waiting, "cancels: {cancels}");
        let step = opened.store.advance_backlog().await.unwrap();
        assert_eq!((step.cancelled, step.moved), if cancels { (1, 0) } else { (0, 1) });
    }
}

async fn work(opened: &Opened, name: &str) -> Option<BacklogWork> {
    opened.store.get_job(TENANT, &by_name(name)).await.unwrap().backlog
}

/// `backlog_take`, `backlog_worked` and `backlog_unmark` concern one job.
#[tokio::test]
async fn the_work_on_one_backlog_leaves_the_backlog_of_another_job() {
    let opened = bench().await;
    // Both wait before either is marked, so the mark of one would include the lots of the other.
    backlog(&opened, "a").await;
    backlog(&opened, "b").await;
    for job in ["a", "b"] {
        assert!(opened.store.cancel_job(TENANT, &actor(), &by_name(job)).await.unwrap().runs.backlog);
    }
    let steps = [opened.store.advance_backlog().await.unwrap(), opened.store.advance_backlog().await.unwrap()];
    assert_eq!((steps[0].cancelled, steps[1].cancelled), (LIMITS.backlog_batch_max, 1));
    assert_eq!(steps[0].job, steps[1].job);
    let worked = [work(&opened, "a").await, work(&opened, "b").await];
    let remaining = LIMITS.backlog_batch_max as u64 + 1;
    let other = BacklogWork { action: BacklogAction::Cancel, done: 0, remaining };
    assert!(worked.contains(&None) && worked.contains(&Some(other)), "{worked:?}");
}

/// `backlog_worked` counts the runs of a cancel for the cancel alone.
#[tokio::test]
async fn the_progress_of_a_cancel_is_not_that_of_a_move() {
    let opened = bench().await;
    backlog(&opened, "j").await;
    assert!(opened.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap().runs.backlog);
    assert!(opened.bench.edit("j", Change::Replace(Box::new(queued("j", "q")))).await.backlog);
    for cancelled in [LIMITS.backlog_batch_max, 1] {
        assert_eq!(opened.store.advance_backlog().await.unwrap().cancelled, cancelled);
    }
    assert_eq!(work(&opened, "j").await, Some(BacklogWork { action: BacklogAction::Move, done: 0, remaining: 0 }));
}
