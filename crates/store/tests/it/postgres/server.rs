//! Faults of a server: it refuses data, ends sessions, or loses answers. Also measurements on a server.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration};

use everytick_domain::{edit::Change, ids::TenantId, partition::PartitionSet, plan::Fate, run::Verdict, time::Span};
use everytick_store::{
    ManualClock, NewJob, NodeInfo, PostgresOptions, PostgresStore, RowAnswer, Store, StoreError,
    conformance::{
        LIMITS, START, actor, born, change, incarnation, job_id, s,
        server::{Server, options},
        settle, settle_with, spec, tick, ticks,
    },
};

use sqlx::{Connection as _, PgConnection};

use super::bench;

#[tokio::test]
async fn refused_data_is_reported_as_refused_and_writes_nothing() {
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let (sound, poisoned) = (bench.create(spec("sound")).await, bench.create(spec("poisoned")).await);
    bench.go(10);
    let mut early = tick(&poisoned, 10, Fate::Run);
    early.tick.due_at = s(9);
    let mut urgent = ticks(&poisoned, 1, vec![tick(&poisoned, 10, Fate::Run)]);
    urgent.priority = 77;
    for refused in [ticks(&poisoned, 1, vec![early]), urgent] {
        let batch = [ticks(&sound, 1, vec![tick(&sound, 10, Fate::Run)]), refused];
        let recorded = bench.store.record(&lease, &batch).await;
        assert!(matches!(recorded, Err(StoreError::Refused { .. })), "{recorded:?}");
        assert!(bench.history(&sound).await.is_empty() && bench.history(&poisoned).await.is_empty());
    }
    assert_eq!(bench.record(&lease, ticks(&sound, 1, vec![born(&sound, 10)])).await, [RowAnswer::Inserted]);
}

#[tokio::test]
async fn an_output_with_nul_bytes_is_stored_completely() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    let mut settled = settle(&run, Verdict::Failed);
    settled.settlement.output = Some("before\0after".into());
    bench.store.settle(&[settled]).await.unwrap();
    assert_eq!(bench.run(run.id).await.output.as_deref(), Some("before\u{fffd}after"));
}

/// Drops a caller's future in the middle of a transaction, at every await point. Afterwards the whole batch is recorded
/// or nothing.
#[tokio::test]
async fn a_dropped_caller_leaves_the_whole_batch_or_nothing() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(80_000);
    let mut went_away = 0;
    for n in 1..=40 {
        let batch = [ticks(&job, 1, vec![tick(&job, n * 20, Fate::Run), tick(&job, n * 20 + 10, Fate::Run)])];
        let mut polls = n;
        let finished = {
            let mut record = pin!(bench.store.record(&lease, &batch));
            poll_fn(|context| {
                polls -= 1;
                match record.as_mut().poll(context) {
                    Poll::Ready(answer) => Poll::Ready(Some(answer)),
                    Poll::Pending if polls == 0 => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await
        };
        went_away += usize::from(finished.is_none());
        let answers = bench.record(&lease, batch[0].clone()).await;
        assert_eq!(answers[0], answers[1], "the whole batch or nothing");
        assert_eq!(bench.history(&job).await.len() as i64, n * 2);
    }
    assert!(went_away >= 1, "{went_away} callers were dropped in the middle");
}

#[tokio::test]
async fn sessions_that_the_server_has_ended_are_replaced_without_an_error() {
    let opened = bench().await;
    let bench = &opened.bench;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    bench.store.now().await.unwrap();
    let mut admin = opened.connect().await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    sqlx::raw_sql(end).execute(&mut admin).await.unwrap();
    assert_eq!(bench.record(&lease, ticks(&job, 1, vec![born(&job, 10)])).await, [RowAnswer::Inserted]);
}

/// A session lost before the commit is known not to have committed. One lost during the commit is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_lost_before_the_commit_has_failed_and_one_lost_during_it_is_unsure() {
    let opened = bench().await;
    let mut admin = opened.connect().await;
    let script = "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(5); return null; end $$;
        create constraint trigger slow after insert on jobs deferrable initially deferred for each row execute function slow();";
    sqlx::raw_sql(script).execute(&mut admin).await.unwrap();
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    for (how, unsure) in [("deferred", true), ("immediate", false)] {
        if !unsure {
            sqlx::raw_sql("drop trigger slow on jobs; create trigger slow after insert on jobs for each row execute function slow()")
                .execute(&mut admin)
                .await
                .unwrap();
        }
        let (store, new) = (opened.store.clone(), NewJob { id: job_id(TenantId::DEFAULT, how), spec: spec(how) });
        let creating =
            tokio::spawn(async move { store.create_jobs(TenantId::DEFAULT, &actor(), vec![new], None).await });
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let ended: Vec<bool> = sqlx::query_scalar(end).fetch_all(&mut admin).await.unwrap();
            if !ended.is_empty() {
                break;
            }
        }
        let created = creating.await.unwrap();
        assert_eq!(matches!(created, Err(StoreError::Unsure { .. })), unsure, "{how}: {created:?}");
        assert_eq!(matches!(created, Err(StoreError::Failed { .. })), !unsure, "{how}: {created:?}");
    }
    sqlx::raw_sql("drop trigger slow on jobs; drop function slow").execute(&mut admin).await.unwrap();
}

/// A session stopped inside a transaction loses its locks soon. A lock that is not granted in time is a failure.
#[tokio::test]
async fn a_stopped_session_loses_its_locks_and_a_lock_timeout_is_a_failure() {
    let opened = bench().await;
    let bench = &opened.bench;
    bench.create(spec("j")).await;
    let brief = PostgresOptions { lock_timeout: Duration::from_millis(100), ..options(None) };
    let store = PostgresStore::connect(&opened.database.url, brief, LIMITS).await.unwrap();
    let mut stopped = opened.connect().await;
    sqlx::raw_sql("begin; set local idle_in_transaction_session_timeout = 1500; select * from epochs for update")
        .execute(&mut stopped)
        .await
        .unwrap();
    let edit = || everytick_store::conformance::change("j", everytick_store::conformance::pause());
    let refused = store.edit_job(TenantId::DEFAULT, &actor(), edit()).await;
    assert!(matches!(refused, Err(StoreError::Failed { .. })), "{refused:?}");
    assert!(
        bench.store.edit_job(TenantId::DEFAULT, &actor(), edit()).await.unwrap().effective_at.is_some(),
        "after 1.5 s at most"
    );
    store.close().await;
}

#[tokio::test]
async fn a_listener_is_notified_of_created_and_changed_jobs() {
    let opened = bench().await;
    let Some(mut hints) = opened.store.listen().await.unwrap() else { return };
    opened.bench.create(spec("j")).await;
    tokio::time::timeout(Duration::from_secs(5), hints.changed()).await.unwrap().unwrap();
    opened.bench.edit("j", Change::Delete).await;
    tokio::time::timeout(Duration::from_secs(5), hints.changed()).await.unwrap().unwrap();
}

/// Four server connections for two stores of five each: every transaction may get another connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_work_behind_a_transaction_pooler() {
    let clock = Arc::new(ManualClock::at(START));
    let database = Server::shared().migrated().await;
    let Some(url) = Server::shared().pooled(&database) else {
        println!("pgbouncer is not installed; nothing was tested");
        return;
    };
    let connect = async || {
        let options = PostgresOptions { transaction_pooler: true, ..options(Some(clock.clone())) };
        Arc::new(PostgresStore::connect(&url, options, LIMITS).await.unwrap())
    };
    let (a, b) = (connect().await, connect().await);
    assert!(a.listen().await.unwrap().is_none());
    let work = |store: Arc<PostgresStore>, name: &'static str, n: u128| async move {
        let (lease, _) = store.join(&NodeInfo::named(name), incarnation(n), Span::days(1)).await.unwrap();
        for round in 0..10 {
            let name = format!("{name}{round}");
            let new = NewJob { id: job_id(TenantId::DEFAULT, &name), spec: spec(&name) };
            let job =
                store.create_jobs(TenantId::DEFAULT, &actor(), vec![new], None).await.unwrap().remove(0).unwrap().job;
            let recorded = store.record(&lease, &[ticks(&job, 1, vec![born(&job, 10)])]).await.unwrap();
            assert_eq!(recorded.jobs[0], [RowAnswer::Early]);
            store.load_jobs(&[job.id]).await.unwrap();
            store.peek_waiting(&lease, &PartitionSet::all(256), &[], None, 10).await.unwrap();
            store.edit_job(TenantId::DEFAULT, &actor(), change(&name, Change::Delete)).await.unwrap();
        }
    };
    tokio::join!(work(a, "a", 1), work(b, "b", 2));
}

#[expect(clippy::disallowed_methods, reason = "measures elapsed time")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

/// The burst at midnight: 10,000 jobs at one instant, recorded by one statement, then settled with HOT updates.
#[tokio::test]
async fn ten_thousand_jobs_at_one_instant_are_recorded_and_settled_with_hot_updates() {
    const TENANTS: i32 = 500;
    let opened = bench().await;
    let bench = &opened.bench;
    let lease = bench.join("a", 1).await;
    let mut jobs = Vec::new();
    for tenant in (1..=TENANTS).map(TenantId::from_raw) {
        let specs = (0..20).map(|n| NewJob { id: job_id(tenant, &format!("j{n}")), spec: spec(&format!("j{n}")) });
        let created = bench.store.create_jobs(tenant, &actor(), specs.collect(), None).await.unwrap();
        jobs.extend(created.into_iter().map(|created| created.unwrap().job));
    }
    bench.go(10);
    let batch: Vec<_> = jobs.iter().map(|job| ticks(job, 1, vec![born(job, 10)])).collect();
    let began = clock();
    let recorded = bench.store.record(&lease, &batch).await.unwrap();
    let took = began.elapsed();
    assert_eq!(recorded.jobs.concat(), vec![RowAnswer::Inserted; jobs.len()]);
    let again = clock();
    assert_eq!(bench.store.record(&lease, &batch).await.unwrap().jobs.concat(), vec![RowAnswer::Existed; jobs.len()]);
    println!("10,000 jobs at one instant: recorded in {took:?}, repeated in {:?}", again.elapsed());
    assert!(took < Duration::from_secs(3), "{took:?}");
    let fence = everytick_domain::ids::Fence::default().raised(recorded.now);
    for jobs in jobs.chunks(1_000) {
        let end = |job: &everytick_domain::job::Job| {
            settle_with(born(job, 10).tick.id, fence, job.id, job.tenant, Verdict::Succeeded)
        };
        bench.store.settle(&jobs.iter().map(end).collect::<Vec<_>>()).await.unwrap();
    }
    let mut look = opened.connect().await;
    let (mut updates, mut hot) = (0_i64, 0_i64);
    for _ in 0..100 {
        (updates, hot) =
            sqlx::query_as("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'runs_20261116'")
                .fetch_one(&mut look)
                .await
                .unwrap();
        if updates >= 10_000 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.store.now().await.unwrap();
    }
    println!("settled: {updates} updates, {hot} of them HOT");
    assert!(updates >= 10_000 && hot * 100 >= updates * 99, "{hot} of {updates} were HOT");
    assert_eq!(incarnation(1), lease.incarnation);
}

/// A trigger sees the setting of the transaction that writes.
#[tokio::test]
async fn commits_wait_for_the_disk_even_if_the_role_disables_it() {
    let database = Server::shared().blank().await;
    let url = format!("{}&options[synchronous_commit]=off", database.url);
    let store = PostgresStore::connect(&url, PostgresOptions::default(), LIMITS).await.unwrap();
    let mut session = PgConnection::connect(&url).await.unwrap();
    let off: String = sqlx::query_scalar("show synchronous_commit").fetch_one(&mut session).await.unwrap();
    assert_eq!(off, "off");
    let trigger = "create function refuse() returns trigger language plpgsql as $$ begin
            if current_setting('synchronous_commit') = 'off' then raise 'not durable'; end if; return new; end $$;
        create trigger durable before insert on jobs for each row execute function refuse()";
    sqlx::raw_sql(trigger).execute(&mut session).await.unwrap();
    let job = NewJob { id: job_id(TenantId::DEFAULT, "j"), spec: spec("j") };
    store.create_jobs(TenantId::DEFAULT, &actor(), vec![job], None).await.unwrap().remove(0).unwrap();
}

#[test]
fn a_remote_host_without_a_verified_certificate_is_reported() {
    for (url, named) in [
        ("postgres://u@db.example.org/d", Some("db.example.org")),
        ("postgres://u@db.example.org/d?sslmode=require", Some("db.example.org")),
        ("postgres://u@10.0.0.7:5433/d?sslmode=verify-ca", Some("10.0.0.7")),
        ("postgres://u@db.example.org/d?sslmode=verify-full", None),
        ("postgres://u@localhost/d", None),
        ("postgres://u@127.0.0.1/d", None),
        ("postgres://u@[::1]/d", None),
        ("postgres://u@localhost/d?host=/run/postgresql", None),
    ] {
        assert_eq!(PostgresStore::unverified_host(url).unwrap().as_deref(), named, "{url}");
    }
}
