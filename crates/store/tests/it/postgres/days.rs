//! The day tables of `runs`: created ahead, dropped later, and no tick is lost or repeated by either.

use std::{sync::Arc, time::Duration};

use everytick_domain::{
    ids::{Cause, RunId},
    job::Job,
    plan::Fate,
    run::{SkipReason, State, Verdict},
};
use everytick_store::{
    Beat, Lease, PostgresOptions, PostgresStore, RowAnswer, Store as _, StoreError,
    conformance::{
        LIMITS, TENANT, born, by_name, new_run, overlapping, raised, s, server::options, settle, spec, tick, ticks,
    },
};

use sqlx::PgConnection;

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
async fn day_tables_are_created_a_week_ahead_as_time_passes() {
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let made = days(&opened).await;
    assert_eq!((made.len(), made[0].as_str(), made[8].as_str()), (9, "runs_20261115", "runs_20261123"));
    bench.go(2 * DAY);
    bench.store.renew(&lease, everytick_domain::time::Span::days(9), &Beat::of(RunId::floor(s(0)))).await.unwrap();
    assert_eq!(days(&opened).await.last().unwrap(), "runs_20261125");
    // No node ran for a month: the first tick creates the missing days.
    let job = bench.create(overlapping("j")).await;
    let lease = bench.join("a", 2).await;
    bench.go(40 * DAY);
    let rows = vec![tick(&job, 30 * DAY, Fate::Run), born(&job, 40 * DAY)];
    assert_eq!(bench.record(&lease, ticks(&job, 1, rows)).await, [RowAnswer::Inserted; 2]);
    assert_eq!(days(&opened).await.len(), 1 + 40 + 1 + 7);
}

/// Ticks of the first days, the last of them two days before the last day. The cursor has passed them.
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
    // The lease's `open_from` has passed the old claims.
    bench.pass_claims(&lease, RunId::floor(s(4 * DAY))).await;
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
    bench.pass_claims(&lease, RunId::floor(s(4 * DAY))).await;
    let last = bench.history(&job).await.pop().unwrap();
    assert_eq!(bench.store.prune(s(4 * DAY), 100).await.unwrap().runs, 2);
    assert_eq!((days(&opened).await[0].as_str(), count(&opened, "last_runs").await), ("runs_20261120", 1));
    assert_eq!(bench.history(&job).await, std::slice::from_ref(&last));
    assert_eq!(bench.run(last.id).await.output.as_deref(), Some("printed"));
    let read = bench.store.get_job(TENANT, &by_name("j")).await.unwrap();
    assert_eq!(read.last_run.unwrap().id, last.id);
    let all = bench.store.list_runs(TENANT, &Default::default(), None, 10).await.unwrap();
    assert_eq!(seconds(&all.items), [2 * DAY + 10]);
    // A newer run becomes the last one. When its day is dropped, it replaces the older row.
    let newer = bench.trigger(new_run("j", "k")).await;
    assert_eq!(bench.store.get_job(TENANT, &by_name("j")).await.unwrap().last_run.unwrap().id, newer.id);
    assert!(matches!(
        bench.store.cancel_run(TENANT, &everytick_store::conformance::actor(), last.id).await,
        Err(StoreError::Rejected { .. })
    ));
}

#[tokio::test]
async fn a_day_with_an_open_run_or_a_lagging_cursor_stays_and_only_its_ended_runs_are_removed() {
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
    assert_eq!(days(&opened).await[0], "runs_20261116", "the day before had no runs");
    for run in bench.store.load_claimed(&lease).await.unwrap() {
        bench.settle(&run, Verdict::Succeeded).await;
    }
    bench.pass_claims(&lease, RunId::floor(s(2 * DAY))).await;
    bench.store.prune(s(2 * DAY), 100).await.unwrap();
    assert_eq!(days(&opened).await[0], "runs_20261118");
    assert_eq!(seconds(&bench.history(&job).await), [30], "its last run outlives the day");
}

#[tokio::test]
async fn a_tick_from_before_the_oldest_day_is_skipped_as_a_range_and_the_job_continues() {
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
    assert_eq!((loaded.epoch.raw(), loaded.cursor), (raised(s(DAY + 30)), Some(s(30))));
    // An edit does the same: ticks before the oldest day are skipped, the others are recorded.
    let edited = bench.edit("j", everytick_store::conformance::pause()).await;
    assert_eq!(edited.effective_at, Some(s(DAY + 30)));
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
async fn a_settlement_of_a_run_whose_day_was_dropped_is_stale() {
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
async fn a_detached_day_is_dropped_by_the_next_prune() {
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

/// 100 days of history with 1,000 runs each; 90 days are kept.
#[tokio::test]
async fn a_hundred_days_of_history_are_pruned_by_the_day_and_no_pruned_tick_fires_again() {
    const JOBS: i64 = 10;
    let opened = bench().await;
    let bench = &opened.bench;
    let mut jobs = Vec::new();
    for n in 0..JOBS {
        jobs.push(bench.create(overlapping(&format!("j{n}"))).await);
    }
    let rare = bench.create(overlapping("rare")).await;
    bench.go(100 * DAY);
    let lease = bench.join("a", 1).await;
    let open_from = RunId::floor(s(100 * DAY));
    bench.pass_claims(&lease, open_from).await;
    let mut admin = opened.connect().await;
    let insert = format!(
        "create function pg_temp.run_id(job uuid, at bigint) returns uuid language sql as
           $$ select (lpad(to_hex(at), 12, '0') || '8000' || '8' || substr(md5(job::text), 1, 15))::uuid $$;
         insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, started_at, finished_at)
           select pg_temp.run_id(c.job, at), 1, c.job, 1, at, at, 2, false, false, 1, 0, 1, at, at
             from cursors c
            cross join (select {start} + day * 86400000::bigint + n * 600000 as at from generate_series(0, 99) as day, generate_series(1, 100) as n) t
            where c.job <> '{rare}' or at = {start} + 2 * 86400000 + 600000;
         update cursors set next_tick = case when job = '{rare}' then {ahead} else {start} + 100 * 86400000::bigint end",
        start = s(0).millis(),
        rare = rare.id,
        ahead = s(500 * DAY).millis(),
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(&mut admin).await.unwrap();
    let cursors = "select job, next_tick from cursors order by job";
    let cursors_before: Vec<(uuid::Uuid, i64)> = sqlx::query_as(cursors).fetch_all(&mut admin).await.unwrap();
    assert_eq!(count(&opened, "runs").await, 100_001);

    let pruned = bench.store.prune(s(10 * DAY), 1_000).await.unwrap();
    assert_eq!(pruned.runs, 10_000, "ten days of 1,000 runs; the rare job's only run outlives them");
    assert_eq!((days(&opened).await[0].as_str(), count(&opened, "runs").await), ("runs_20261126", 90_000));
    let left: i64 =
        sqlx::query_scalar("select count(*) from pg_class where relname ~ '^runs_202611(1|2[0-5])' and relkind = 'r'")
            .fetch_one(&mut admin)
            .await
            .unwrap();
    assert_eq!(left, 0, "dropped, not only detached");
    let cursors_after: Vec<(uuid::Uuid, i64)> = sqlx::query_as(cursors).fetch_all(&mut admin).await.unwrap();
    assert_eq!(cursors_after, cursors_before);
    let last =
        async |name: &str| bench.store.get_job(TENANT, &by_name(name)).await.unwrap().last_run.unwrap().scheduled_at;
    assert_eq!(last("rare").await, s(2 * DAY + 600));
    assert_eq!(last("j3").await, s(99 * DAY + 60_000));
    for job in jobs.iter().chain([&rare]) {
        let rows: Vec<_> = (0..10).map(|day| born(job, day * DAY + 600)).collect();
        assert_eq!(bench.record(&lease, ticks(job, 1, rows)).await, [RowAnswer::Stale; 10]);
    }
    assert_eq!((count(&opened, "runs").await, days(&opened).await[0].as_str()), (90_000, "runs_20261126"));
    assert_eq!(bench.store.prune(s(10 * DAY), 1_000).await.unwrap().runs, 0);
}

/// If a node dies while the server waits for readers, the day is neither attached nor detached.
#[tokio::test]
async fn a_day_whose_detaching_was_interrupted_is_finished_by_the_next_prune() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = with_history(&opened).await;
    bench.pass_claims(&lease, RunId::floor(s(4 * DAY))).await;
    let (mut reader, mut admin) = (opened.connect().await, opened.connect().await);
    sqlx::raw_sql("begin; select count(*) from runs").execute(&mut reader).await.unwrap();
    sqlx::raw_sql("set statement_timeout = 300").execute(&mut admin).await.unwrap();
    let detached =
        sqlx::raw_sql("alter table runs detach partition runs_20261116 concurrently").execute(&mut admin).await;
    assert!(detached.is_err(), "the detach waits for the reader and is interrupted");
    sqlx::raw_sql("set statement_timeout = 0").execute(&mut admin).await.unwrap();
    sqlx::raw_sql("commit").execute(&mut reader).await.unwrap();
    let going = "select count(*) from pg_inherits where inhparent = 'runs'::regclass and inhdetachpending";
    assert_eq!(sqlx::query_scalar::<_, i64>(going).fetch_one(&mut admin).await.unwrap(), 1);
    // While half detached, the day hides its runs. Ticks of later days are recorded normally.
    bench.go(4 * DAY + 10);
    assert_eq!(bench.record(&lease, ticks(&job, 1, vec![born(&job, 4 * DAY + 10)])).await, [RowAnswer::Inserted]);
    bench.store.prune(s(2 * DAY), 100).await.unwrap();
    assert_eq!(days(&opened).await[0], "runs_20261118");
    let left: i64 = sqlx::query_scalar(
        "select count(*) from pg_class where relname in ('runs_20261115', 'runs_20261116', 'runs_20261117')",
    )
    .fetch_one(&mut admin)
    .await
    .unwrap();
    assert_eq!(left, 0);
    assert_eq!(bench.record(&lease, ticks(&job, 1, vec![born(&job, 10)])).await, [RowAnswer::Stale]);
}

/// A store on the same database with other timeouts.
async fn with_timeouts(opened: &Opened, statement: Duration, lock: Duration) -> PostgresStore {
    let as_usual = options(Some(opened.bench.clock.clone()));
    let options = PostgresOptions { statement_timeout: statement, lock_timeout: lock, ..as_usual };
    PostgresStore::connect(&opened.database.url, options, LIMITS).await.unwrap()
}

/// Detaches the first day with runs, as an interrupted prune leaves it, and locks its table.
async fn detached_and_locked(opened: &Opened) -> PgConnection {
    let mut session = opened.connect().await;
    sqlx::raw_sql("alter table runs detach partition runs_20261116").execute(&mut session).await.unwrap();
    sqlx::raw_sql("begin; lock table runs_20261116").execute(&mut session).await.unwrap();
    session
}

#[tokio::test]
async fn a_detached_day_that_cannot_be_dropped_does_not_stop_the_prune() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, _) = with_history(&opened).await;
    bench.pass_claims(&lease, RunId::floor(s(4 * DAY))).await;
    let store = with_timeouts(&opened, Duration::from_secs(5), Duration::from_millis(50)).await;
    let mut locked = detached_and_locked(&opened).await;
    store.prune(s(2 * DAY), 100).await.unwrap();
    assert_eq!(days(&opened).await[0], "runs_20261118", "the other days are dropped");
    sqlx::raw_sql("rollback").execute(&mut locked).await.unwrap();
    assert_eq!(store.prune(s(2 * DAY), 100).await.unwrap().runs, 1, "the next prune drops it");
    let left = "select count(*) from pg_class where relname = 'runs_20261116'";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&mut locked).await.unwrap(), 0);
}

/// A lock simulates a scan that takes longer than the statement timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scan_of_a_detached_day_may_take_longer_than_the_statement_timeout() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, _) = with_history(&opened).await;
    bench.pass_claims(&lease, RunId::floor(s(4 * DAY))).await;
    let store = Arc::new(with_timeouts(&opened, Duration::from_secs(2), Duration::from_secs(600)).await);
    let (mut locked, mut look) = (detached_and_locked(&opened).await, opened.connect().await);
    let pruning = tokio::spawn({
        let store = store.clone();
        async move { store.prune(s(2 * DAY), 100).await }
    });
    let waits_long = "select exists (select 1 from pg_stat_activity where datname = current_database()
                       and wait_event_type = 'Lock' and clock_timestamp() - query_start > interval '2.5 s')";
    while !sqlx::query_scalar::<_, bool>(waits_long).fetch_one(&mut look).await.unwrap() && !pruning.is_finished() {
        tokio::task::yield_now().await;
    }
    sqlx::raw_sql("rollback").execute(&mut locked).await.unwrap();
    assert_eq!(pruning.await.unwrap().unwrap().runs, 2);
    let left = "select count(*) from pg_class where relname in ('runs_20261116', 'runs_20261117')";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&mut look).await.unwrap(), 0, "no day stays detached");
}

/// One waiting run keeps its old day. The days after it that were dropped stay dropped.
#[tokio::test]
async fn dropped_days_after_an_old_day_that_stays_are_not_created_again() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(10);
    bench.waiting(&lease, &job, 10).await;
    bench.raise(&job, 1, Some(s(30 * DAY))).await;
    bench.go(30 * DAY);
    bench.store.prune(s(20 * DAY), 100).await.unwrap();
    let first = days(&opened).await;
    assert_eq!((first[0].as_str(), first.last().unwrap().as_str()), ("runs_20261116", "runs_20261223"));
    let mut admin = opened.connect().await;
    let noting = "create table made (name text);
        create function note_made() returns event_trigger language plpgsql as $$ begin
            insert into made select distinct object_identity from pg_event_trigger_ddl_commands()
             where object_type = 'table'; end $$;
        create event trigger note_made on ddl_command_end when tag in ('CREATE TABLE') execute function note_made()";
    sqlx::raw_sql(noting).execute(&mut admin).await.unwrap();
    bench.store.prune(s(20 * DAY), 100).await.unwrap();
    assert_eq!((count(&opened, "made").await, days(&opened).await), (0, first));
    bench.go(31 * DAY);
    bench.store.prune(s(21 * DAY), 100).await.unwrap();
    assert_eq!(count(&opened, "(select distinct name from made) made").await, 1, "only the new day a week ahead");
}

/// A redrive that began before pruning and commits during it. With `locks`, the redrive locks the counter
/// `days_closed`, as nodes of this release do; without it, it acts as a node of the previous release. Returns whether
/// the day was detached for a while.
async fn redriven_while_its_day_is_pruned(locks: bool) -> bool {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(10);
    let failed = bench.claimed(&lease, &job, 10).await;
    bench.settle(&failed, Verdict::Failed).await;
    bench.raise(&job, 1, Some(s(4 * DAY))).await;
    bench.go(4 * DAY);
    let lease = bench.join("a", 2).await;
    bench.store.prune(s(0), 100).await.unwrap();
    let again = RunId::redriven(job.id, failed.id);
    let mut redrive = opened.connect().await;
    let text = format!(
        "begin; {lock};
         insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence)
           select '{again}', tenant, job, 2, scheduled_at, {now}, 0, true, false, 0, 0, 0 from runs where id = '{failed}';
         insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts)
           values ('{again}', '{job}', 1, {partition}, 5, {now}, true, false, 0)",
        lock = if locks { "select 1 from counters where name = 'days_closed' for share" } else { "select 1" },
        now = s(4 * DAY).millis(),
        failed = failed.id,
        job = job.id,
        partition = job.partition,
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut redrive).await.unwrap();
    let mut admin = opened.connect().await;
    let noting = "create table altered (name text);
        create function note_altered() returns event_trigger language plpgsql as $$ begin
            insert into altered select object_identity from pg_event_trigger_ddl_commands(); end $$;
        create event trigger note_altered on ddl_command_end when tag in ('ALTER TABLE') execute function note_altered()";
    sqlx::raw_sql(noting).execute(&mut admin).await.unwrap();
    let store = bench.store.clone();
    let pruning = tokio::spawn(async move { store.prune(s(DAY), 100).await });
    let waits = "select exists (select 1 from pg_inherits where inhparent = 'runs'::regclass and inhdetachpending)
                     or exists (select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')";
    while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut admin).await.unwrap() && !pruning.is_finished() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    sqlx::raw_sql("commit").execute(&mut redrive).await.unwrap();
    pruning.await.unwrap().unwrap();
    assert_eq!(days(&opened).await[0], "runs_20261116", "the day still exists");
    assert_eq!(bench.run(again).await.state, State::Waiting);
    let detached = count(&opened, "altered").await > 0;
    let claimed = bench.claim(&lease, again).await;
    bench.settle(&claimed, Verdict::Succeeded).await;
    bench.store.prune(s(DAY), 100).await.unwrap();
    assert_eq!(days(&opened).await[0], "runs_20261117", "it is dropped after the run has ended");
    detached
}

#[tokio::test]
async fn a_run_redriven_into_a_day_that_is_being_pruned_is_not_lost() {
    assert!(!redriven_while_its_day_is_pruned(true).await, "pruning waits for the redrive and keeps the day");
}

#[tokio::test]
async fn a_run_that_an_old_node_redrives_into_a_day_that_is_being_dropped_is_not_lost() {
    assert!(redriven_while_its_day_is_pruned(false).await, "the day was detached and attached again");
}

#[tokio::test]
async fn a_redrive_creates_no_run_in_a_closed_day() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    bench.go(10);
    let failed = bench.claimed(&lease, &job, 10).await;
    bench.settle(&failed, Verdict::Failed).await;
    let ask = everytick_store::Redrive { job: by_name("j"), from: s(0), to: None, limit: 10, dry_run: true };
    let redrive = async || bench.store.redrive(TENANT, &everytick_store::conformance::actor(), &ask).await.unwrap();
    assert_eq!(redrive().await.runs.len(), 1);
    // The cursor has not passed the day, so it stays, but it may be dropped at any moment.
    bench.store.prune(s(DAY), 100).await.unwrap();
    assert_eq!((days(&opened).await[0].as_str(), redrive().await.runs.len()), ("runs_20261116", 0));
}
