//! The SQLite store: the conformance suite, and properties of a file.

use std::{
    any::Any,
    future::poll_fn,
    path::Path,
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
};

use everytick_domain::{ids::Epoch, plan::Fate, run::Verdict, time::DbTime};
use everytick_store::{
    Limits, ManualClock, NewJob, Raise, RowAnswer, SqliteStore, Store, StoreError, WallClock,
    conformance::{
        Bench, LIMITS, START, TENANT, actor, born, by_name, job_id, overlapping, s, settle, spec, tick, ticks,
    },
    shared::statements,
};
use sqlx::{
    ConnectOptions, Connection, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteRow},
};
use tempfile::TempDir;

use crate::unreadable::{Column, Kind, Raw, sound_rows_are_served_beside_damaged_ones};

async fn open(clock: Arc<dyn WallClock>, limits: Limits) -> (Arc<dyn Store>, Box<dyn Any + Send + Sync>) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("deep/er/everytick.db"), clock, limits).await.unwrap();
    (Arc::new(store), Box::new(folder))
}

mod conforms {
    everytick_store::conformance_suite!(crate::sqlite::open, alone);
}

/// A bench on a file in a known directory.
async fn bench() -> (Bench, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (bench_at(&folder).await, folder)
}

async fn bench_at(folder: &TempDir) -> Bench {
    bench_with(folder, LIMITS).await
}

async fn bench_with(folder: &TempDir, limits: Limits) -> Bench {
    let path = folder.path().join("everytick.db");
    let store = async |clock, _| {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, clock, limits).await.unwrap());
        (store, Box::new(()) as Box<dyn Any + Send + Sync>)
    };
    Bench::open(store).await
}

async fn look(folder: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(folder.join("everytick.db")).connect().await.unwrap()
}

#[tokio::test]
async fn a_second_process_is_refused_and_the_message_names_the_first() {
    let (bench, folder) = bench().await;
    let clock = Arc::new(ManualClock::at(START));
    let second = SqliteStore::open(folder.path().join("everytick.db"), clock.clone(), LIMITS).await.unwrap_err();
    let StoreError::Unusable(said) = second else { panic!("{second:?}") };
    assert!(said.contains("is open in another everytick process"), "{said}");
    assert!(said.contains(&format!("(pid {})", std::process::id())), "{said}");
    drop(bench);
    SqliteStore::open(folder.path().join("everytick.db"), clock, LIMITS).await.unwrap();
}

#[tokio::test]
async fn acknowledged_writes_survive_a_store_that_was_never_closed() {
    let (bench, folder) = bench().await;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    // Like a kill: copies the file and its WAL while the store is open.
    let copy = tempfile::tempdir().unwrap();
    for name in ["everytick.db", "everytick.db-wal"] {
        std::fs::copy(folder.path().join(name), copy.path().join(name)).unwrap();
    }
    let after = bench_at(&copy).await;
    after.go(20);
    let new = after.join("a", 2).await;
    assert_eq!(after.store.load_lost(&new, 10).await.unwrap(), std::slice::from_ref(&run));
    assert_eq!(after.record(&new, ticks(&job, 1, vec![born(&job, 10)])).await, [RowAnswer::Existed]);
    drop(bench);
    let again = bench_at(&folder).await;
    assert_eq!(again.run(run.id).await.fence, run.fence);
}

#[tokio::test]
async fn the_file_passes_the_integrity_check_after_many_writes() {
    let (bench, folder) = bench().await;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    for n in 1..=50 {
        bench.go(n * 10);
        let run = bench.claimed(&lease, &job, n * 10).await;
        bench.store.settle(&[settle(&run, Verdict::Succeeded)]).await.unwrap();
        bench.raise(&job, 1, Some(s(n * 10 + 10))).await;
    }
    bench.store.prune(s(400), 10).await.unwrap();
    let mut file = look(folder.path()).await;
    let said: String = sqlx::query_scalar("pragma integrity_check").fetch_one(&mut file).await.unwrap();
    assert_eq!(said, "ok");
    let mode: String = sqlx::query_scalar("pragma journal_mode").fetch_one(&mut file).await.unwrap();
    assert_eq!(mode, "wal");
}

/// Like a full disk: SQLite rolls the transaction back by itself, and our own rollback finds none.
#[tokio::test]
async fn the_writer_survives_a_transaction_that_sqlite_rolled_back() {
    let (bench, folder) = bench().await;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let mut file = look(folder.path()).await;
    let full =
        "create trigger full before insert on runs begin select raise(rollback, 'database or disk is full'); end";
    sqlx::query(full).execute(&mut file).await.unwrap();
    for _ in 0..3 {
        assert!(bench.store.record(&lease, &[ticks(&job, 1, vec![born(&job, 10)])]).await.is_err());
    }
    sqlx::query("drop trigger full").execute(&mut file).await.unwrap();
    assert_eq!(bench.record(&lease, ticks(&job, 1, vec![born(&job, 10)])).await, [RowAnswer::Inserted]);
}

#[tokio::test]
async fn newer_zone_data_lowers_the_cursors_to_now() {
    let (bench, folder) = bench().await;
    let create = async |name| bench.create(spec(name)).await.id;
    let (ahead, behind, ended) = (create("ahead").await, create("behind").await, create("ended").await);
    let raise = |job, cursor| Raise { job, epoch: Epoch::from_raw(1), cursor };
    bench.store.raise_cursors(&[raise(ahead, Some(s(86_400))), raise(ended, None)]).await.unwrap();
    let before = bench.join("a", 1).await;
    drop(bench);
    let mut file = look(folder.path()).await;
    let late = format!("update cursors set next_tick = {} where next_tick = {}", s(-10).millis(), s(10).millis());
    assert_eq!(sqlx::query(sqlx::AssertSqlSafe(late)).execute(&mut file).await.unwrap().rows_affected(), 1);
    file.close().await.unwrap();
    let cursor = async |bench: &Bench, job| bench.store.load_jobs(&[job]).await.unwrap()[0].cursor;
    let same = bench_at(&folder).await;
    assert_eq!(cursor(&same, ahead).await, Some(s(86_400)), "the same data: nothing to do");
    drop(same);
    let mut file = look(folder.path()).await;
    sqlx::query("update counters set value = 202501 where name = 'zone_data'").execute(&mut file).await.unwrap();
    file.close().await.unwrap();
    let newer = bench_at(&folder).await;
    assert_eq!(cursor(&newer, ahead).await, Some(START), "lowered to now");
    assert_eq!(cursor(&newer, behind).await, Some(s(-10)), "a cursor that lies behind stays");
    assert_eq!(cursor(&newer, ended).await, None, "a job without more ticks gets none");
    assert!(newer.join("a", 2).await.fence > before.fence, "the other counters stay");
}

#[tokio::test]
async fn the_mark_of_a_backlog_begins_a_lot_and_changes_no_other_counter() {
    let (bench, folder) = bench().await;
    let (lease, job) = (bench.join("a", 1).await, bench.create(overlapping("j")).await);
    for n in 1..=i64::try_from(LIMITS.backlog_batch_max).unwrap() + 1 {
        bench.go(n * 10);
        bench.waiting(&lease, &job, n * 10).await;
    }
    let mut look = look(folder.path()).await;
    let mut counters = async || {
        let rows = sqlx::query_as::<_, (String, i64)>("select name, value from counters").fetch_all(&mut look).await;
        rows.unwrap().into_iter().collect::<std::collections::BTreeMap<_, _>>()
    };
    let mut expected = counters().await;
    assert!(bench.store.cancel_job(TENANT, &actor(), &by_name("j")).await.unwrap().runs.backlog);
    *expected.get_mut("lot").unwrap() += 1;
    assert_eq!(counters().await, expected);
}

/// A lease that cannot be decoded is left out of a search. Its claims are found when it can be decoded again.
#[tokio::test]
async fn a_search_for_lost_claims_leaves_out_a_lease_that_cannot_be_decoded() {
    let (bench, folder) = bench().await;
    let (first, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let claimed = bench.claimed(&first, &job, 10).await;
    bench.join("b", 2).await;
    let alive = bench.join("c", 3).await;
    let mut file = look(folder.path()).await;
    let change = async |file: &mut SqliteConnection, from: &[u8], to: &[u8]| {
        let update = sqlx::query("update leases set incarnation = ?2 where incarnation = ?1").bind(from).bind(to);
        assert_eq!(update.execute(file).await.unwrap().rows_affected(), 1);
    };
    let (sound, damaged) = (first.incarnation.uuid(), b"damaged");
    change(&mut file, sound.as_bytes(), damaged).await;
    assert!(bench.store.load_lost(&alive, 10).await.unwrap().is_empty());
    change(&mut file, damaged, sound.as_bytes()).await;
    assert_eq!(bench.store.load_lost(&alive, 10).await.unwrap(), [claimed]);
}

/// Drops calls at different points of a transaction. Afterwards the whole batch or nothing is recorded, and the next transaction
/// works as usual.
#[tokio::test]
async fn a_dropped_caller_leaves_no_transaction_open() {
    let (bench, _folder) = bench().await;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(100_000);
    let mut went_away = 0;
    for n in 1..=40 {
        let batch = [ticks(&job, 1, vec![tick(&job, n * 20, Fate::Run), tick(&job, n * 20 + 10, Fate::Run)])];
        // Few polls, so that most calls are dropped on a fast machine too.
        let mut polls = n % 4 + 1;
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
    assert!(went_away >= 1, "no call was dropped before its end");
}

#[tokio::test]
async fn refused_data_is_reported_as_refused_and_writes_nothing() {
    let (bench, _folder) = bench().await;
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
    let (bench, _folder) = bench().await;
    let (lease, job) = (bench.join("a", 1).await, bench.create(spec("j")).await);
    bench.go(10);
    let run = bench.claimed(&lease, &job, 10).await;
    let mut settled = settle(&run, Verdict::Failed);
    settled.settlement.output = Some("before\0after".into());
    bench.store.settle(&[settled]).await.unwrap();
    assert_eq!(bench.run(run.id).await.output.as_deref(), Some("before\u{fffd}after"));
}

#[tokio::test]
async fn a_file_of_a_newer_release_is_refused() {
    let (bench, folder) = bench().await;
    drop(bench);
    let mut file = look(folder.path()).await;
    sqlx::query(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time) values (999, 'later', 1, x'00', 0)",
    )
    .execute(&mut file)
    .await
    .unwrap();
    file.close().await.unwrap();
    let clock = Arc::new(ManualClock::at(START));
    let refused = SqliteStore::open(folder.path().join("everytick.db"), clock, LIMITS).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Unusable(said) if said.contains("newer everytick")), "{refused:?}");
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("everytick.db");
    std::fs::write(&path, "dear diary, ".repeat(1_000)).unwrap();
    let refused = SqliteStore::open(&path, Arc::new(ManualClock::at(DbTime::EPOCH)), LIMITS).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Unusable(said) if said.contains("not a SQLite file")), "{refused:?}");
}

/// `UPDATE_SCHEMA=1 cargo test` rewrites the dump.
#[tokio::test]
async fn the_migrated_schema_matches_the_committed_dump() {
    let (bench, folder) = bench().await;
    drop(bench);
    let mut file = look(folder.path()).await;
    let found = sqlx::query("select sql from sqlite_schema where sql is not null and name not like '\\_sqlx%' escape '\\' and name not like 'sqlite%' order by tbl_name, type desc, name")
        .fetch_all(&mut file)
        .await
        .unwrap();
    let mut dump =
        "-- What the migrations make. Written by the test that compares it; see tests/it/sqlite.rs.\n".to_owned();
    for row in found {
        dump.push_str(&format!("\n{};\n", row.get::<String, _>(0)));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite/schema.sql");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &dump).unwrap();
    }
    let on_record = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(dump, on_record, "run with UPDATE_SCHEMA=1 and check the difference");
}

/// Thousands of flows may have the same instant. Reading the runs of the instant for each of them would be quadratic.
#[tokio::test]
async fn pruning_reads_the_runs_of_an_instant_once() {
    let (bench, folder) = bench().await;
    drop(bench);
    let mut file = look(folder.path()).await;
    for text in [
        include_str!("../../src/sqlite/sql/prune/prune_runs.sql"),
        include_str!("../../src/sqlite/sql/prune/flow_prune.sql"),
    ] {
        let explain = sqlx::AssertSqlSafe(format!("explain query plan {text}"));
        let rows = sqlx::query(explain).fetch_all(&mut file).await.unwrap();
        let steps: std::collections::BTreeMap<i64, (i64, String)> =
            rows.iter().map(|row| (row.get("id"), (row.get("parent"), row.get("detail")))).collect();
        let above = |id: i64| std::iter::successors(steps.get(&id), |(parent, _)| steps.get(parent));
        for (id, (_, step)) in &steps {
            let ranges = step.contains("(id>? AND id<?)");
            let for_each_row = above(*id).any(|(_, step)| step.contains("CORRELATED"));
            assert!(!(ranges && for_each_row), "{step}: {steps:#?}");
        }
        assert!(steps.values().any(|(_, step)| step.contains("(id>? AND id<?)")), "{steps:#?}");
    }
}

/// Tables grow to millions of rows, so no statement may scan one, except those listed here.
#[tokio::test]
async fn no_statement_scans_a_table_that_grows() {
    let (bench, folder) = bench().await;
    drop(bench);
    let mut file = look(folder.path()).await;
    // This table exists only in a file that was moved.
    sqlx::raw_sql(include_str!("../../src/sqlite/sql/move/move_mark_table.sql")).execute(&mut file).await.unwrap();
    let statements = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/sql");
    let mut seen = 0;
    let folders = std::fs::read_dir(statements).unwrap().map(|folder| folder.unwrap().path());
    for entry in folders.flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let path = entry.unwrap().path();
        let text = statements::of_file("sqlite", &std::fs::read_to_string(&path).unwrap());
        assert!(text.starts_with("-- "), "{} has no header comment", path.display());
        // A benchmark works in a file of its own, which no node serves.
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("probe_")) {
            continue;
        }
        let explain = sqlx::AssertSqlSafe(format!("explain query plan {text}"));
        for row in sqlx::query(explain).fetch_all(&mut file).await.unwrap() {
            let step: String = row.get("detail");
            let words: Vec<_> = step.split_whitespace().collect();
            let scans = words.first() == Some(&"SCAN")
                && [
                    "runs",
                    "r",
                    "n",
                    "x",
                    "jobs",
                    "j",
                    "epochs",
                    "e",
                    "cursors",
                    "c",
                    "waiting",
                    "w",
                    "attempts",
                    "skip_ranges",
                    "g",
                    "p",
                    "f",
                ]
                .contains(&words[1])
                && !step.contains("USING")
                && !step.contains("VIRTUAL TABLE");
            // A move reads everything.
            let whole_move = path.ends_with("move_first_run.sql");
            assert!(!scans || whole_move, "{}: {step}", path.display());
        }
        seen += 1;
    }
    assert!(seen > 60, "{seen}");
    for read in statements::move_reads() {
        let explain = sqlx::AssertSqlSafe(format!("explain query plan {read}"));
        for row in sqlx::query(explain).fetch_all(&mut file).await.unwrap() {
            let step: String = row.get("detail");
            assert!(step.starts_with("SEARCH "), "{read}: {step}");
        }
    }
    assert_eq!(TENANT.raw(), 1);
}

/// The write connection serves in order of arrival, so the number of API requests ahead of the engine is limited.
#[tokio::test]
async fn a_write_of_the_engine_waits_for_at_most_one_write_of_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("everytick.db");
    let store = SqliteStore::open(path, Arc::new(ManualClock::at(START)), LIMITS).await.unwrap();
    let (api, engine) = (Arc::new(store.api_handle()), Arc::new(store));
    let done = Arc::new(Mutex::new(Vec::new()));
    let mut other = look(folder.path()).await;
    // Until the lock is released, the first request waits inside its transaction, and the others wait behind it.
    sqlx::raw_sql("begin immediate").execute(&mut other).await.unwrap();
    let mut asked = tokio::task::JoinSet::new();
    let mut ask = |who: &'static str, store: Arc<SqliteStore>, name: String| {
        let done = done.clone();
        asked.spawn(async move {
            let new = NewJob { id: job_id(TENANT, &name), spec: spec(&name) };
            if store.create_jobs(TENANT, &actor(), vec![new], None).await.is_ok() {
                done.lock().unwrap().push(who);
            }
        });
    };
    (0..8).for_each(|n| ask("api", api.clone(), format!("j{n}")));
    tokio::task::yield_now().await;
    ask("engine", engine, "tick".to_owned());
    tokio::task::yield_now().await;
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    asked.join_all().await;
    let done = done.lock().unwrap();
    let before = done.iter().position(|who| *who == "engine").unwrap();
    assert!(before <= 1, "{done:?}");
}

impl Raw for SqliteConnection {
    async fn columns(&mut self) -> Vec<Column> {
        let found = sqlx::query(
            "select t.name as relation, c.name as name, c.type as type,
                    (select group_concat(k.name) from pragma_table_info(t.name) k where k.pk > 0) as keys,
                    (select group_concat(o.name) from pragma_table_info(t.name) o) as columns
               from sqlite_schema t join pragma_table_info(t.name) c
              where t.type = 'table' and t.name not like 'sqlite_%'
              order by 1, c.cid",
        )
        .fetch_all(self)
        .await
        .unwrap();
        let kind = |text: &str| match text {
            "INTEGER" => Kind::Number { max: i64::MAX },
            "TEXT" => Kind::Text,
            "BLOB" => Kind::Bytes { values: ["x'00'", "x'ffffffffffffffffffffffffffffffff'"] },
            other => panic!("a column of type {other}"),
        };
        let names = |text: Option<String>| -> Vec<String> {
            text.unwrap_or_default().split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let column = |row: &SqliteRow| {
            let relation: String = row.get("relation");
            let keys = names(row.get("keys"));
            (!keys.is_empty() && relation != "_sqlx_migrations").then(|| Column {
                kind: kind(&row.get::<String, _>("type").to_uppercase()),
                name: row.get("name"),
                columns: names(row.get("columns")),
                table: relation,
                keys,
            })
        };
        found.iter().filter_map(column).collect()
    }

    async fn run(&mut self, sql: String) -> Result<u64, String> {
        let done = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(self).await;
        done.map(|done| done.rows_affected()).map_err(|error| error.to_string())
    }

    fn id(id: uuid::Uuid) -> String {
        format!("x'{}'", id.simple())
    }
}

#[tokio::test]
async fn damaged_rows_do_not_stop_other_work() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench_with(&folder, Limits::default()).await;
    let mut raw = look(folder.path()).await;
    sound_rows_are_served_beside_damaged_ones(&bench, &mut raw, 200).await;
}
