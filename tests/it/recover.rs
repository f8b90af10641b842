//! `everytick recover --dry-run` predicts what the next restart does.

use std::path::Path;

use everytick_domain::time::{DbTime, Span};
use everytick_store::{
    Limits, PostgresStore, Store, SystemClock, WallClock,
    conformance::{self, TENANT, actor, job_id},
};
use serde_json::Value;
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::support::{Done, Server, Sink, everytick_command, wait_for};

const WEBHOOKS: [&str; 2] = ["--allow-webhook-range", "127.0.0.0/8"];

fn recover(dir: &Path, args: &[&str]) -> Done {
    everytick_command(dir).args(["recover", "--dry-run"]).args(args).output().unwrap().into()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn sqlite(file: &Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite:{}", file.display())).await.unwrap()
}

/// Sets all cursors back, as after an outage: no tick is recorded since this instant.
async fn silent_since(file: &Path, at: DbTime) {
    let mut database = sqlite(file).await;
    sqlx::query("update cursors set next_tick = ?1").bind(at.millis()).execute(&mut database).await.unwrap();
    database.close().await.unwrap();
}

/// The cursors, and the number of runs and ranges.
async fn ledger(file: &Path) -> (Vec<Option<i64>>, i64) {
    let mut database = sqlite(file).await;
    let cursors =
        sqlx::query_scalar("select next_tick from cursors order by job").fetch_all(&mut database).await.unwrap();
    let count = "select (select count(*) from runs) + (select count(*) from skip_ranges)";
    (cursors, sqlx::query_scalar(count).fetch_one(&mut database).await.unwrap())
}

/// Hourly jobs after an outage of 10.5 hours. Their ticks are half an hour away from now, so that none becomes due during the
/// test.
#[test]
fn a_dry_run_predicts_the_restart_and_writes_nothing() {
    let sink = Sink::start();
    let server = Server::start();
    let first = DbTime::from_millis(SystemClock.now().millis() - 10 * 3_600_000 - 1_800_000);
    let (url, starts_at) = (sink.url(), first.to_string());
    let create = |name: &str, more: &[&str]| {
        let flags = ["job", "create", name, "--every", "1h", "--starts-at", &starts_at, "--url", &url];
        server.everytick(&[&flags, more].concat()).ok();
    };
    create("all", &["--catch-up", "all", "--max-runs", "4", "--grace", "8h"]);
    create("latest", &["--grace", "20h"]);
    create("none", &["--catch-up", "none"]);
    let (dir, ..) = server.stop();
    let file = dir.path().join("data/everytick.db");
    block_on(silent_since(&file, first));

    let before = block_on(ledger(&file));
    let printed = recover(dir.path(), &["--data-dir", "data", "-o", "json"]).json();
    assert_eq!(block_on(ledger(&file)), before, "the dry run writes nothing");
    assert_eq!(printed["total"]["jobs"], 3);
    assert_eq!(printed["total"]["ticks"], 33);
    assert_eq!(printed["total"]["late"], 5);
    assert_eq!(printed["total"]["on_time"], 0);
    assert_eq!(printed["late_take"], "1s");
    let job = |name: &str| printed["jobs"].as_array().unwrap().iter().find(|job| job["job"] == name).unwrap().clone();
    assert_eq!(job("all")["skipped"], serde_json::json!({ "misfire": 3, "catch_up": 4 }));
    assert_eq!(job("latest")["skipped"], serde_json::json!({ "catch_up": 10 }));
    assert_eq!((&job("all")["from"], &job("all")["late"]), (&Value::from(starts_at), &Value::from(4)));
    assert_eq!(printed["jobs"][0]["job"], "all", "jobs with the most runs come first");

    let text = recover(dir.path(), &["--data-dir", "data", "--limit", "1"]).ok();
    assert!(text.contains("3 misfire") && text.contains("and 2 more jobs"), "{text}");
    let one = recover(dir.path(), &["--data-dir", "data", "--job", "none", "-o", "json"]).json();
    assert_eq!((&one["total"]["jobs"], &one["total"]["late"]), (&Value::from(1), &Value::from(0)));
    recover(dir.path(), &["--data-dir", "data", "--job", "missing"]).failed(3);

    let server = Server::builder().flags(&WEBHOOKS).dir(dir).start();
    for name in ["all", "latest", "none"] {
        let runs = wait_for("all ticks to be recorded", || {
            let runs = server.everytick(&["job", "runs", name, "--limit", "100", "-o", "json"]).json();
            let items = runs["items"].as_array().unwrap().clone();
            let ticks: u64 = items.iter().map(|run| run["count"].as_u64().unwrap_or(1)).sum();
            (ticks == 11).then_some(items)
        });
        let fired = runs.iter().filter(|run| run["state"] != "skipped").count();
        assert_eq!(job(name)["late"], fired, "{name}");
        for (reason, count) in job(name)["skipped"].as_object().unwrap() {
            let skips = runs.iter().filter(|run| run["skip_reason"] == reason.as_str());
            let skipped: u64 = skips.map(|run| run["count"].as_u64().unwrap_or(1)).sum();
            assert_eq!(*count, skipped, "{name}: {reason}");
        }
    }
    assert_eq!(sink.wait_for(5).len(), 5);
    let busy = recover(server.dir(), &["--data-dir", "data"]).failed(1);
    assert!(busy.contains("is open in another everytick process"), "{busy}");
    let (dir, ..) = server.stop();
    let text = recover(dir.path(), &["--data-dir", "data"]).ok();
    assert!(text.contains("no tick is overdue"), "{text}");
}

#[test]
fn without_dry_run_the_command_reports_the_same_and_states_that_recovery_is_automatic() {
    let server = Server::start();
    server.everytick(&["job", "create", "nightly", "--cron", "0 2 * * *", "--url", "https://example.org/"]).ok();
    let (dir, ..) = server.stop();
    let done: Done = everytick_command(dir.path()).args(["recover", "--data-dir", "data"]).output().unwrap().into();
    assert!(done.stderr.contains("a node recovers by itself when it starts"), "{done:?}");
    assert!(done.stderr.contains("nothing is changed"), "{done:?}");
    assert_eq!(done.ok(), recover(dir.path(), &["--data-dir", "data"]).ok());
}

#[test]
fn runs_in_progress_are_listed_and_a_restart_does_with_them_what_the_list_says() {
    let flags = ["--enable-shell", "--auth", "open"];
    let server = Server::builder().flags(&flags).start();
    let create = |name: &str, on_lost: &str| {
        server.everytick(&["job", "create", name, "--on-lost", on_lost, "--shell", "sleep 60"]).ok();
        let run = server.everytick(&["job", "trigger", name, "-o", "json"]).json()["id"].as_str().unwrap().to_owned();
        let get = || server.everytick(&["run", "get", &run, "-o", "json"]).json();
        wait_for("the command to run", || (get()["started_at"] != Value::Null).then_some(()));
        run
    };
    let (again, once) = (create("again", "retry"), create("once", "fail"));
    let dir = server.kill();
    let printed = recover(dir.path(), &["--data-dir", "data", "-o", "json"]).json();
    let found = |run: &str| {
        let list = printed["in_progress"].as_array().unwrap();
        list.iter().find(|found| found["run"] == run).unwrap_or_else(|| panic!("{run}: {printed}")).clone()
    };
    let row = found(&again);
    assert_eq!((&row["job"], &row["attempt"], &row["on_lost"]), (&"again".into(), &1.into(), &"retry".into()));
    assert_eq!((&row["next_attempt"], &found(&once)["next_attempt"]), (&2.into(), &Value::Null));
    let text = recover(dir.path(), &["--data-dir", "data"]).ok();
    for part in [again.as_str(), "starts attempt 2", once.as_str(), "fails", "no tick is overdue"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let one = recover(dir.path(), &["--data-dir", "data", "--job", "once"]).ok();
    assert!(one.contains(&once) && !one.contains(&again), "{one}");

    let server = Server::builder().flags(&flags).dir(dir).start();
    let get = |run: &str| server.everytick(&["run", "get", run, "-o", "json"]).json();
    wait_for("the next attempt", || (get(&again)["attempt"] == 2 && get(&once)["state"] == "failed").then_some(()));
    let why = server.everytick(&["run", "explain", &again]).ok();
    assert!(why.contains("attempt 2, 1 lost before it") && why.contains("attempt 1 was lost"), "{why}");
    server.everytick(&["run", "cancel", &again]).ok();
}

#[test]
fn a_missing_file_is_reported_and_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let message = recover(dir.path(), &[]).failed(1);
    assert!(message.contains("there is no file ./everytick-data/everytick.db"), "{message}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    std::fs::write(dir.path().join("a.db"), "").unwrap();
    let message = recover(dir.path(), &["--database-url", "sqlite:a.db"]).failed(1);
    assert!(message.contains("a.db contains no everytick data"), "{message}");
    std::fs::write(dir.path().join("a.db"), "neither SQLite nor short enough to be taken for a header of it").unwrap();
    let message = recover(dir.path(), &["--database-url", "sqlite:a.db"]).failed(1);
    assert!(message.contains("is not a SQLite file"), "{message}");
}

/// This also works while nodes run: a dry run takes no lease and no lock.
#[test]
fn a_dry_run_reads_postgresql() {
    let database = block_on(conformance::server::Server::shared().blank());
    let dir = tempfile::tempdir().unwrap();
    let ask = || recover(dir.path(), &["--database-url", &database.url, "-o", "json"]);
    let empty = ask().failed(1);
    assert!(empty.contains("the database contains no everytick data"), "{empty}");
    block_on(async {
        let options = conformance::server::options(None);
        let store = PostgresStore::connect(&database.url, options, Limits::default()).await.unwrap();
        let mut spec = conformance::spec("hourly");
        let now = store.now().await.unwrap();
        let first = now.minus(Span::minutes(630));
        let schedule = spec.schedule.as_mut().unwrap();
        schedule.timing = everytick_domain::schedule::Timing::Every { every: Span::hours(1) };
        schedule.starts_at = Some(first);
        let job = everytick_store::NewJob { id: job_id(TENANT, "hourly"), spec };
        store.create_jobs(TENANT, &actor(), vec![job], None).await.unwrap().remove(0).unwrap();
        store.close().await;
        let mut reader = PgConnection::connect(&database.url).await.unwrap();
        sqlx::query("update cursors set next_tick = $1").bind(first.millis()).execute(&mut reader).await.unwrap();
        let printed = ask().json();
        assert_eq!(
            (&printed["total"]["ticks"], &printed["total"]["late"]),
            (&Value::from(11), &Value::from(1)),
            "{printed}"
        );
        assert_eq!(printed["total"]["skipped"], serde_json::json!({ "misfire": 10 }));
        let cursor: i64 = sqlx::query_scalar("select next_tick from cursors").fetch_one(&mut reader).await.unwrap();
        assert_eq!(cursor, first.millis(), "the dry run writes nothing");
        let runs: i64 = sqlx::query_scalar("select count(*) from runs").fetch_one(&mut reader).await.unwrap();
        assert_eq!(runs, 0);
    });
}
