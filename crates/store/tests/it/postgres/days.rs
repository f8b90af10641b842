//! The days of `runs`: made ahead, dropped behind, and nothing lost or repeated by either.

use everytick_domain::{
    ids::{Cause, RunId},
    job::Job,
    plan::Fate,
    run::{SkipReason, State, Verdict},
};
use everytick_store::{
    Beat, Lease, RowAnswer, StoreError,
    conformance::{TENANT, born, by_name, new_run, overlapping, s, settle, spec, tick, ticks},
};

use super::{Opened, bench};

const DAY: i64 = 86_400;

async fn days(opened: &Opened) -> Vec<String> {
    let mut look = opened.connect().await;
    sqlx::query_scalar(
        "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
          where i.inhparent = 'runs'::regclass order by 1",
    )
    .fetch_all(&mut look)
    .await
    .unwrap()
}

async fn count(opened: &Opened, table: &str) -> i64 {
    let mut look = opened.connect().await;
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from {table}"))).fetch_one(&mut look).await.unwrap()
}

#[tokio::test]
async fn days_are_made_a_week_ahead_as_time_goes_on() {
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let made = days(&opened).await;
    assert_eq!((made.len(), made[0].as_str(), made[8].as_str()), (9, "runs_20261115", "runs_20261123"));
    bench.go(2 * DAY);
    bench.store.renew(&lease, everytick_domain::time::Span::days(9), &Beat::of(RunId::floor(s(0)))).await.unwrap();
    assert_eq!(days(&opened).await.last().unwrap(), "runs_20261125");
    // Nobody was there for a month: the first tick makes up for it.
    let job = bench.create(overlapping("j")).await;
    let lease = bench.join("a", 2).await;
    bench.go(40 * DAY);
    let rows = vec![tick(&job, 30 * DAY, Fate::Run), born(&job, 40 * DAY)];
    assert_eq!(bench.record(&lease, ticks(&job, 1, rows)).await, [RowAnswer::Inserted; 2]);
    assert_eq!(days(&opened).await.len(), 1 + 40 + 1 + 7);
}

/// Ticks of the first days, the last of them two days before the last day; the cursor is behind them.
async fn with_history(opened: &Opened) -> (Lease, Job) {
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    for day in 0..3 {
        bench.go(day * DAY + 10);
        let run = bench.claimed(&lease, &job, day * DAY + 10).await;
        bench.settle(&run, Verdict::Succeeded).await;
    }
    bench.raise(&job, 1, Some(s(4 * DAY))).await;
    bench.go(4 * DAY);
    (lease, job)
}

fn seconds(bench_runs: &[everytick_store::RunRecord]) -> Vec<i64> {
    bench_runs.iter().map(|run| (run.scheduled_at.millis() - s(0).millis()) / 1_000).collect()
}

#[tokio::test]
async fn old_days_are_dropped_and_no_tick_of_them_is_recorded_again() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = with_history(&opened).await;
    // The lease has noted how far back its claims go.
    bench
        .store
        .renew(&lease, everytick_domain::time::Span::days(9), &Beat::of(RunId::floor(s(4 * DAY))))
        .await
        .unwrap();
    let pruned = bench.store.prune(s(2 * DAY), 100).await.unwrap();
    assert_eq!(pruned.runs, 2);
    assert_eq!(days(&opened).await[0], "runs_20261118");
    assert_eq!(seconds(&bench.history(&job).await), [2 * DAY + 10]);
    let rows = (0..3).map(|day| born(&job, day * DAY + 10)).collect();
    assert_eq!(bench.record(&lease, ticks(&job, 1, rows)).await, [RowAnswer::Stale; 3]);
    assert_eq!(bench.store.prune(s(2 * DAY), 100).await.unwrap().runs, 0);
}

#[tokio::test]
async fn a_jobs_last_run_outlives_its_day_and_is_found_everywhere() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = with_history(&opened).await;
    bench
        .store
        .renew(&lease, everytick_domain::time::Span::days(9), &Beat::of(RunId::floor(s(4 * DAY))))
        .await
        .unwrap();
    let last = bench.history(&job).await.pop().unwrap();
    assert_eq!(bench.store.prune(s(4 * DAY), 100).await.unwrap().runs, 2);
    assert_eq!((days(&opened).await[0].as_str(), count(&opened, "last_runs").await), ("runs_20261120", 1));
    assert_eq!(bench.history(&job).await, std::slice::from_ref(&last));
    assert_eq!(bench.run(last.id).await.output.as_deref(), Some("printed"));
    let read = bench.store.get_job(TENANT, &by_name("j")).await.unwrap();
    assert_eq!(read.last_run.unwrap().id, last.id);
    let all = bench.store.list_runs(TENANT, &Default::default(), None, 10).await.unwrap();
    assert_eq!(seconds(&all.items), [2 * DAY + 10]);
    // A newer one takes its place as the last; when its day goes, it takes the place altogether.
    let newer = bench.trigger(new_run("j", "k")).await;
    assert_eq!(bench.store.get_job(TENANT, &by_name("j")).await.unwrap().last_run.unwrap().id, newer.id);
    assert!(matches!(
        bench.store.cancel_run(TENANT, &everytick_store::conformance::actor(), last.id).await,
        Err(StoreError::Rejected { .. })
    ));
}

#[tokio::test]
async fn a_day_with_an_open_run_or_a_lagging_cursor_stays_and_loses_only_what_is_over() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(30);
    let rows = vec![tick(&job, 10, Fate::Skip(SkipReason::Overlap)), tick(&job, 20, Fate::Run), born(&job, 30)];
    bench.record(&lease, ticks(&job, 1, rows)).await;
    bench.raise(&job, 1, Some(s(2 * DAY))).await;
    bench.go(2 * DAY);
    for (left, what) in [(vec![20, 30], "two are open"), (vec![30], "one is claimed")] {
        bench.store.prune(s(2 * DAY), 100).await.unwrap();
        assert_eq!(seconds(&bench.history(&job).await), left, "{what}");
        let waiting = bench.due(&lease).await;
        for run in waiting {
            let claimed = bench.claim(&lease, run).await;
            bench.settle(&claimed, Verdict::Succeeded).await;
        }
    }
    assert_eq!(days(&opened).await[0], "runs_20261116", "the day before had nothing");
    for run in bench.store.load_claimed(&lease).await.unwrap() {
        bench.settle(&run, Verdict::Succeeded).await;
    }
    bench
        .store
        .renew(&lease, everytick_domain::time::Span::days(9), &Beat::of(RunId::floor(s(2 * DAY))))
        .await
        .unwrap();
    bench.store.prune(s(2 * DAY), 100).await.unwrap();
    assert_eq!(days(&opened).await[0], "runs_20261118");
    assert_eq!(seconds(&bench.history(&job).await), [30], "its last run outlives the day");
}

#[tokio::test]
async fn a_tick_from_before_the_oldest_day_is_skipped_as_a_range_and_the_job_goes_on() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    let other = bench.create(spec("other")).await;
    bench.go(DAY + 30);
    let mut admin = opened.connect().await;
    sqlx::raw_sql("drop table runs_20261115; drop table runs_20261116").execute(&mut admin).await.unwrap();
    let batch = [
        ticks(
            &job,
            1,
            vec![
                tick(&job, 10, Fate::Skip(SkipReason::CatchUp)),
                tick(&job, 20, Fate::Late),
                tick(&job, DAY, Fate::Run),
            ],
        ),
        ticks(&other, 1, vec![born(&other, DAY + 10)]),
    ];
    let recorded = bench.store.record(&lease, &batch).await.unwrap();
    assert_eq!(recorded.jobs, [vec![RowAnswer::Stale; 3], vec![RowAnswer::Inserted]]);
    let history = bench.history(&job).await;
    let skipped: Vec<_> = history.iter().map(|run| (run.id, run.state, run.skip_reason)).collect();
    let id = |seconds| RunId::of(job.id, Cause::Range { from: s(seconds) });
    assert_eq!(
        skipped,
        [(id(10), State::Skipped, Some(SkipReason::CatchUp)), (id(20), State::Skipped, Some(SkipReason::Misfire))]
    );
    let loaded = bench.load(&job).await;
    assert_eq!((loaded.epoch.raw(), loaded.cursor), (2, Some(s(30))));
    // An edit meets the same: what is too old for a day is skipped, the rest is recorded.
    let edited = bench.edit("j", everytick_store::conformance::pause()).await;
    assert_eq!(edited.x, Some(s(DAY + 30)));
    assert!(
        bench
            .history(&job)
            .await
            .iter()
            .any(|run| run.scheduled_at == s(DAY) || run.range.is_some_and(|range| range.to >= s(DAY)))
    );
}

#[tokio::test]
async fn a_batch_about_midnight_is_in_two_days_and_is_settled_in_both() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(DAY);
    let rows = vec![born(&job, DAY - 10), born(&job, DAY)];
    assert_eq!(bench.record(&lease, ticks(&job, 1, rows)).await, [RowAnswer::Inserted; 2]);
    assert_eq!((count(&opened, "runs_20261116").await, count(&opened, "runs_20261117").await), (1, 1));
    let claimed = bench.store.load_claimed(&lease).await.unwrap();
    let settles = [settle(&claimed[0], Verdict::Succeeded), settle(&claimed[1], Verdict::Retry { due_at: s(DAY + 5) })];
    bench.store.settle(&settles).await.unwrap();
    assert_eq!(bench.load(&job).await.open.len(), 1);
}

#[tokio::test]
async fn what_is_said_of_a_run_whose_day_was_dropped_elsewhere_is_stale() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    let mut admin = opened.connect().await;
    sqlx::raw_sql("drop table runs_20261116").execute(&mut admin).await.unwrap();
    assert_eq!(bench.settle(&run, Verdict::Succeeded).await, everytick_store::SettleAnswer::Stale);
}

#[tokio::test]
async fn a_day_that_was_left_half_detached_is_finished() {
    let opened = bench().await;
    let bench = &opened.bench;
    bench.go(3 * DAY);
    let mut admin = opened.connect().await;
    sqlx::raw_sql("alter table runs detach partition runs_20261116").execute(&mut admin).await.unwrap();
    bench.store.prune(s(2 * DAY), 100).await.unwrap();
    let left: i64 =
        sqlx::query_scalar("select count(*) from pg_class where relname in ('runs_20261115', 'runs_20261116')")
            .fetch_one(&mut admin)
            .await
            .unwrap();
    assert_eq!(left, 0);
}
