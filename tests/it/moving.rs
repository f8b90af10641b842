//! `everytick move` with the real binary, a real file and a real PostgreSQL. After the move the target shows the same data
//! as the source did, also after interruptions.

mod installation;

use std::{
    io::Read as _,
    path::Path,
    process::{Child, Stdio},
    sync::Arc,
};

use everytick_domain::{
    ids::JobId,
    plan::Fate,
    run::{State, Verdict},
};
use everytick_store::{
    AuditFilter, BackfillStore as _, ManualClock, Move, MoveBatch, NodeInfo, PostgresStore, RowAnswer, SqliteStore,
    Store, StoreError, SystemClock,
    conformance::{
        LIMITS, TENANT, TTL, actor, born, incarnation, s,
        server::{Database, Server as Postgres, options},
        settle, spec, tick, ticks,
    },
};
use serde_json::Value;
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use uuid::Uuid;

use std::time::Duration;

use crate::support::{Done, Server, everytick_command, pause, wait_for};
use installation::{HISTORY, Installation, NOW, Snapshot, key, keyed_run, take_snapshot};

fn everytick_move(folder: &Path, args: &[&str]) -> Done {
    let mut command = everytick_command(folder);
    command.args(["move", "--from", "sqlite:everytick.db"]).args(args).stdin(Stdio::null()).output().unwrap().into()
}

/// Starts a server that must refuse the file, and waits for its end. Kills it if it starts.
fn serve(folder: &Path) -> Done {
    struct Killed(Child);
    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let mut command = everytick_command(folder);
    command.args(["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite:everytick.db"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut child = Killed(child);
    let status = wait_for("the file to be refused", || child.0.try_wait().unwrap());
    let mut stderr = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    Done { code: status.code().unwrap_or(-1), stdout: String::new(), stderr }
}

async fn target(database: &Database) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect(&database.url, options(Some(Arc::new(ManualClock::at(s(NOW))))), LIMITS).await
}

async fn snapshot(database: &Database, installation: &Installation) -> Snapshot {
    let store = target(database).await.unwrap();
    let snapshot = take_snapshot(&store, installation).await;
    store.close().await;
    snapshot
}

#[tokio::test]
async fn a_move_copies_everything_and_the_target_continues() {
    let (installation, database) = (Installation::make().await, Postgres::shared().migrated().await);
    let report = everytick_move(installation.folder(), &["--to", &database.url, "-o", "json"]).json();
    let count = |table: &str| {
        let tables = report["tables"].as_array().unwrap();
        let row = tables.iter().find(|row| row["table"] == table).unwrap();
        assert_eq!(row["source"], row["target"], "{report}");
        row["source"].as_u64().unwrap()
    };
    assert_eq!((count("tenants"), count("jobs"), count("cursors"), count("epochs")), (2, 7, 7, 7));
    assert_eq!((count("runs"), count("attempts"), count("skip_ranges"), count("requests")), (12, 1, 1, 2));
    assert_eq!((count("calendars"), count("calendar_versions"), count("calendar_jobs")), (1, 2, 1));
    assert_eq!((count("backfills"), count("backfill_runs")), (1, 1));
    assert_eq!((count("waiting"), report["resumed"].as_bool()), (4, Some(false)));
    snapshot(&database, &installation).await.assert_is(&installation.snapshot);

    let store = target(&database).await.unwrap();
    let busy = store.load_jobs(&[installation.busy]).await.unwrap().remove(0);
    assert_eq!(busy.job.partition, installation.busy.partition(256));
    // Claims of the old node are lost. Their runs are claimed again under the same id with the next attempt.
    let (lease, _) = store.join(&NodeInfo::named("b"), incarnation(99), TTL).await.unwrap();
    assert!(lease.fence > installation.lease_fence, "{lease:?}");
    let lost = store.load_lost(&lease, 10).await.unwrap();
    let claimed: Vec<_> = installation.snapshot.runs.iter().filter(|run| run.state == State::Claimed).collect();
    assert_eq!(lost.iter().map(|run| run.id).collect::<Vec<_>>(), claimed.iter().map(|run| run.id).collect::<Vec<_>>());
    assert_eq!(lost.len(), 2);
    store.settle(&lost.iter().map(|run| settle(run, Verdict::Redeliver)).collect::<Vec<_>>()).await.unwrap();
    assert!(store.load_lost(&lease, 10).await.unwrap().is_empty());
    for (again, run) in store
        .claim(&lease, &everytick_domain::partition::PartitionSet::all(256), &[lost[0].id, lost[1].id])
        .await
        .unwrap()
        .iter()
        .zip(&claimed)
    {
        assert_eq!((again.id, again.attempt), (run.id, run.attempt + 1));
        assert!(again.fence > run.fence);
    }
    // Waiting runs are found in the partitions of their jobs.
    let all = everytick_domain::partition::PartitionSet::all(store.partitions());
    assert_eq!(store.peek_waiting(&lease, &all, &[], None, 10).await.unwrap().due.len(), 4);
    // A backfill continues from its position: it creates the next run when the open one has ended.
    let backfill = store.get_backfill(TENANT, installation.backfill).await.unwrap();
    assert_eq!(store.advance_backfill(&lease, backfill.id, HISTORY).await.unwrap().made, 0);
    store.cancel_run(TENANT, &actor(), backfill.run_of(s(20))).await.unwrap();
    assert_eq!(store.advance_backfill(&lease, backfill.id, HISTORY).await.unwrap().made, 1);
    let next = store.get_run(TENANT, backfill.run_of(s(10))).await.unwrap();
    assert_eq!((next.state, next.payload.as_deref()), (State::Waiting, Some("[1]")));
    // A recorded tick does not fire again, whether the cursor has passed it or not. The next tick fires.
    let epoch = busy.epoch.raw();
    let rows = vec![born(&busy.job, 20), tick(&busy.job, 40, Fate::Run), born(&busy.job, 50), born(&busy.job, 70)];
    let recorded = store.record(&lease, &[ticks(&busy.job, epoch, rows)]).await.unwrap().jobs.remove(0);
    assert_eq!(recorded, [RowAnswer::Stale, RowAnswer::Existed, RowAnswer::Existed, RowAnswer::Inserted]);
    // A repeated request with the same key returns the same run and job.
    let run = store.trigger(TENANT, &actor(), keyed_run()).await.unwrap();
    assert!(installation.snapshot.runs.iter().any(|known| known.id == run.id));
    let new = everytick_store::NewJob { id: JobId::from_uuid(Uuid::from_u128(5)), spec: spec("keyed") };
    let made = store.create_jobs(TENANT, &actor(), vec![new], Some(&key("job"))).await.unwrap().remove(0).unwrap();
    assert!(made.replayed);
    // New audit rows have higher ids than the old ones.
    store.trigger(TENANT, &actor(), everytick_store::conformance::new_run("never", "k")).await.unwrap();
    let audit = store.list_audit(TENANT, &AuditFilter::default(), None, 1).await.unwrap().items;
    assert!(audit[0].id > installation.snapshot.last_audit, "{audit:?}");
    store.close().await;
}

#[tokio::test]
async fn old_runs_get_their_day_tables_and_last_runs_need_no_day_table() {
    let (installation, database) = (Installation::make().await, Postgres::shared().migrated().await);
    everytick_move(installation.folder(), &["--to", &database.url]).ok();
    let mut reader = PgConnection::connect(&database.url).await.unwrap();
    let last: Vec<Uuid> = sqlx::query_scalar("select job from last_runs").fetch_all(&mut reader).await.unwrap();
    assert_eq!(last, [installation.old.uuid()]);
    let days = "select min(inhrelid::regclass::text) from pg_inherits where inhparent = 'runs'::regclass";
    let oldest: String = sqlx::query_scalar(days).fetch_one(&mut reader).await.unwrap();
    assert_eq!(oldest, "runs_20260808", "a hundred days before 2026-11-16");
}

#[tokio::test]
async fn a_move_interrupted_after_every_batch_has_the_same_result() {
    let (installation, database) = (Installation::make().await, Postgres::shared().migrated().await);
    let file = installation.folder().join("everytick.db");
    let (mut begun, mut steps) = (0, 0);
    loop {
        let batch = MoveBatch { rows_max: 2, ..MoveBatch::default() };
        begun += 1;
        let id = Uuid::from_u128(begun);
        let mut moving = match Move::begin(&file, &database.url, Arc::new(SystemClock), id, batch).await {
            // The lock of the last pass may still be open in a forked child of another test that has not called exec yet.
            Err(StoreError::Unusable(printed)) if printed.contains("is open in another") => {
                pause(Duration::from_millis(5));
                continue;
            }
            begun => begun.unwrap(),
        };
        // Drop the move without closing it, as when the process dies.
        match moving.step().await.unwrap() {
            Some(_) => steps += 1,
            None => break,
        }
    }
    let StoreError::Unusable(printed) = target(&database).await.unwrap_err() else { panic!() };
    assert!(printed.contains("is not finished"), "{printed}");
    assert!(steps > 20, "{steps}");
    let printed = serve(installation.folder()).failed(1);
    assert!(printed.contains("is being moved to postgres://localhost"), "{printed}");
    let report = everytick_move(installation.folder(), &["--to", &database.url, "-o", "json"]).json();
    assert_eq!(report["resumed"], true);
    snapshot(&database, &installation).await.assert_is(&installation.snapshot);
}

#[tokio::test]
async fn a_batch_is_limited_by_its_bytes() {
    let (installation, database) = (Installation::make().await, Postgres::shared().migrated().await);
    let file = installation.folder().join("everytick.db");
    let batch = MoveBatch { bytes_max: 1, ..MoveBatch::default() };
    let mut moving = Move::begin(&file, &database.url, Arc::new(SystemClock), Uuid::from_u128(1), batch).await.unwrap();
    while let Some(step) = moving.step().await.unwrap() {
        assert!(step.rows <= 1, "{step:?}");
    }
    let tables = moving.finish().await.unwrap();
    assert!(tables.iter().all(|table| table.source == table.target), "{tables:?}");
    snapshot(&database, &installation).await.assert_is(&installation.snapshot);
}

/// The test locks a table, so that the move is killed while a batch waits for that lock.
#[tokio::test]
async fn a_move_that_is_killed_in_a_batch_continues_from_there() {
    let (installation, database) = (Installation::make().await, Postgres::shared().migrated().await);
    let mut other = PgConnection::connect(&database.url).await.unwrap();
    let mut reader = PgConnection::connect(&database.url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    sqlx::raw_sql("lock table skip_ranges in share mode").execute(&mut *lock).await.unwrap();
    let mut child = everytick_command(installation.folder())
        .args(["move", "--from", "sqlite:everytick.db", "--to", &database.url])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    // The move may also end by its own lock timeout, which is an interruption too.
    while child.try_wait().unwrap().is_none() {
        let waiting: i64 = sqlx::query_scalar(waits).fetch_one(&mut reader).await.unwrap();
        if waiting > 0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
    lock.rollback().await.unwrap();
    let moved: i64 = sqlx::query_scalar("select count(*) from attempts").fetch_one(&mut reader).await.unwrap();
    assert_eq!(moved, 1, "the earlier batches are committed");
    let report = everytick_move(installation.folder(), &["--to", &database.url, "-o", "json"]).json();
    assert_eq!(report["resumed"], true);
    snapshot(&database, &installation).await.assert_is(&installation.snapshot);
}

#[tokio::test]
async fn a_moved_file_is_not_served_until_the_move_is_undone() {
    let (installation, database) = (Installation::make().await, Postgres::shared().migrated().await);
    let folder = installation.folder();
    everytick_move(folder, &["--to", &database.url]).ok();
    let printed = serve(folder).failed(1);
    assert!(printed.contains("was moved to postgres://") && printed.contains("--undo"), "{printed}");
    // A repeated move does nothing, even if the file does not record that the move has finished.
    let forget = "update moved_to set finished_at = null";
    let mut file = SqliteConnection::connect(&format!("sqlite:{}/everytick.db", folder.display())).await.unwrap();
    for _ in 0..2 {
        let again = everytick_move(folder, &["--to", &database.url]);
        assert!(again.stderr.contains("nothing is left to do"), "{again:?}");
        again.ok();
        sqlx::raw_sql(forget).execute(&mut file).await.unwrap();
    }
    everytick_move(folder, &["--to", &database.url]).ok();
    let other = Postgres::shared().migrated().await;
    let printed = everytick_move(folder, &["--to", &other.url]).failed(1);
    assert!(printed.contains("was moved to postgres://"), "{printed}");
    file.close().await.unwrap();

    let printed = everytick_move(folder, &["--undo"]).failed(1);
    assert!(printed.contains("--to URL") && printed.contains("--target-is-gone"), "{printed}");
    let served = target(&database).await.unwrap();
    let (lease, _) = served.join(&NodeInfo::named("other-node"), incarnation(5), TTL).await.unwrap();
    let printed = everytick_move(folder, &["--undo", "--to", &database.url]).failed(1);
    assert!(printed.contains("is being served by other-node"), "{printed}");
    served.leave(&lease).await.unwrap();
    let printed = everytick_move(folder, &["--undo", "--to", &database.url]).ok();
    assert!(printed.contains("can be served again") && printed.contains("fire every job twice"), "{printed}");
    assert!(target(&database).await.is_err(), "no node can serve the database any more");
    let store =
        SqliteStore::open(folder.join("everytick.db"), Arc::new(ManualClock::at(s(NOW))), LIMITS).await.unwrap();
    take_snapshot(&store, &installation).await.assert_is(&installation.snapshot);
    store.close().await;
    assert!(everytick_move(folder, &["--undo"]).ok().contains("has no mark"));
    // The target now contains another installation.
    let printed = everytick_move(folder, &["--to", &database.url]).failed(1);
    assert!(printed.contains("drop the database and create it again"), "{printed}");
}

#[tokio::test]
async fn a_target_that_is_in_use_is_refused_and_the_source_stays_unmarked() {
    let (installation, database) = (Installation::make().await, Postgres::shared().migrated().await);
    let folder = installation.folder();
    let store = target(&database).await.unwrap();
    let (lease, _) = store.join(&NodeInfo::named("other-node"), incarnation(5), TTL).await.unwrap();
    let printed = everytick_move(folder, &["--to", &database.url]).failed(1);
    assert!(printed.contains("is being served by other-node"), "{printed}");
    store.leave(&lease).await.unwrap();
    let new = everytick_store::NewJob { id: JobId::from_uuid(Uuid::from_u128(5)), spec: spec("theirs") };
    store.create_jobs(TENANT, &actor(), vec![new], None).await.unwrap().remove(0).unwrap();
    for more in [&["--dry-run"][..], &[]] {
        let printed = everytick_move(folder, &[&["--to", &database.url], more].concat()).failed(1);
        assert!(printed.contains("the target is not empty: it has 1 jobs, 1 audit rows"), "{printed}");
    }
    assert!(everytick_move(folder, &["--undo"]).ok().contains("has no mark"));
    store.close().await;
}

#[tokio::test]
async fn a_difference_in_row_counts_is_an_error_and_the_target_is_not_served() {
    let (installation, database) = (Installation::make().await, Postgres::shared().migrated().await);
    let mut other = PgConnection::connect(&database.url).await.unwrap();
    let lose =
        "create function lose() returns trigger language plpgsql as $$ begin delete from requests; return null; end $$;
        create trigger lose after insert on cursors for each statement execute function lose();";
    sqlx::raw_sql(lose).execute(&mut other).await.unwrap();
    let done = everytick_move(installation.folder(), &["--to", &database.url]);
    assert!(done.stdout.lines().any(|line| line.split_whitespace().eq(["requests", "2", "0"])), "{done:?}");
    assert!(done.failed(1).contains("the row counts of source and target differ in requests"));
    assert!(target(&database).await.is_err());
    sqlx::raw_sql("drop function lose cascade").execute(&mut other).await.unwrap();
}

/// The steps of the documentation: an empty database, and the file of a server that was killed.
#[tokio::test]
async fn the_file_of_a_killed_server_moves_into_an_empty_database() {
    let server = Server::start();
    server.everytick(&["job", "create", "nightly", "--cron", "0 2 * * *", "--url", "https://example.org/hook"]).ok();
    let database = Postgres::shared().blank().await;
    let from = ["move", "--from", "sqlite:data/everytick.db", "--to", &database.url];
    let printed = server.everytick(&from).failed(1);
    assert!(printed.contains("is open in another everytick process"), "{printed}");
    let folder = server.kill();
    let run = |more: &[&str]| -> Done {
        everytick_command(folder.path()).args(from).args(more).stdin(Stdio::null()).output().unwrap().into()
    };
    let plan = run(&["--dry-run", "-o", "json"]).json();
    assert_eq!((&plan["dry_run"], &plan["resumed"]), (&Value::Bool(true), &Value::Bool(false)));
    let done = run(&[]);
    assert!(done.stderr.contains("jobs: 1 row moved") && done.stderr.contains("as a backup"), "{done:?}");
    let rows: Vec<Vec<&str>> = done.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["TABLE", "SOURCE", "TARGET"]);
    assert!(rows.contains(&vec!["jobs", "1", "1"]), "{rows:?}");
    let store = PostgresStore::connect(&database.url, options(None), LIMITS).await.unwrap();
    let job = store.get_job(TENANT, &everytick_store::conformance::by_name("nightly")).await.unwrap();
    assert!(job.job.next_tick(job.cursor, job.now).is_some());
    store.close().await;
    assert!(run(&[]).stderr.contains("nothing is left to do"));
}

#[test]
fn other_directions_than_sqlite_to_postgresql_are_refused() {
    let run = |args: &[&str]| crate::support::everytick(&[&["move"], args].concat());
    let postgres = "postgres://u@h/d";
    for args in [["--from", postgres, "--to", "sqlite:a.db"], ["--from", "sqlite:a.db", "--to", "sqlite:b.db"]] {
        let printed = run(&args).failed(2);
        assert!(printed.contains("everytick move --from sqlite:<file> --to postgres://..."), "{printed}");
    }
    run(&["--from", "sqlite:a.db"]).failed(2);
    let printed = run(&["--from", "sqlite:a.db", "--to", postgres]).failed(1);
    assert!(printed.contains("there is no file a.db"), "{printed}");
}
