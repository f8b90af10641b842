//! `everytick bench` from outside: it prints the documented fields, and removes its files and schemas. These tests do not
//! check speed; `soak guard` does, by ratios.

use std::process::{Command, Stdio};

use everytick_store::conformance::server::Server as Postgres;
use serde_json::Value;
use sqlx::{Connection as _, PgConnection};

use crate::support::{Done, everytick, everytick_command, wait_for};

/// The object that a benchmark printed.
fn measured(args: &[&str], folder: &std::path::Path) -> Value {
    let done: Done = everytick_command(folder).args(["--output", "json", "bench"]).args(args).output().unwrap().into();
    serde_json::from_str(&done.ok()).unwrap()
}

fn files(folder: &std::path::Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn each_benchmark_prints_one_object_and_removes_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let tick = measured(&["tick", "--jobs", "2000", "--from", "1000", "--seconds", "4"], folder.path());
    assert_eq!((tick["bench"].as_str(), tick["database"].as_str()), (Some("tick"), Some("sqlite")));
    for figure in ["rate", "limit", "ratio", "from_rate", "growth"] {
        assert!(tick[figure].as_f64().unwrap() > 0.0, "{figure} in {tick}");
    }
    let life = measured(&["life", "--jobs", "500", "--target", "http"], folder.path());
    assert!(life["rate"].as_f64().unwrap() > 0.0 && life["bare_ratio"].as_f64().unwrap() > 0.0, "{life}");
    let register = measured(&["register", "--jobs", "1000"], folder.path());
    for figure in ["rate", "bytes_per_job", "audit_bytes_per_job"] {
        assert!(register[figure].as_f64().unwrap() > 0.0, "{figure} in {register}");
    }
    let burst = measured(&["burst", "--due", "200", "--jobs", "1000"], folder.path());
    assert!(burst["max_ms"].as_f64().unwrap() >= burst["p99_ms"].as_f64().unwrap(), "{burst}");
    assert_eq!(files(folder.path()), Vec::<String>::new());
}

#[test]
fn a_benchmark_on_postgres_uses_its_own_schema_and_removes_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(async { Postgres::shared().blank().await });
    let folder = tempfile::tempdir().unwrap();
    let on = ["--database-url", &database.url];
    let queue =
        measured(&[&["life", "--jobs", "500", "--target", "queue", "--tokens"], &on[..]].concat(), folder.path());
    assert!(queue["rate"].as_f64().unwrap() > 0.0 && queue["tokens"] == true, "{queue}");
    let register = measured(&[&["register", "--jobs", "1000"], &on[..]].concat(), folder.path());
    for figure in ["rate", "store_rate", "bytes_per_job", "memory_bytes"] {
        assert!(register[figure].as_f64().unwrap() > 0.0, "{figure} in {register}");
    }
    let left: Vec<String> = runtime.block_on(async {
        let mut connection = PgConnection::connect(&database.url).await.unwrap();
        sqlx::query_scalar("select nspname::text from pg_namespace where nspname like 'everytick%' union select relname::text from pg_class where relname = 'runs'")
            .fetch_all(&mut connection)
            .await
            .unwrap()
    });
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_benchmark_removes_its_files_after_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = everytick_command(folder.path());
    let mut bench = command.args(["bench", "tick", "--jobs", "1000000"]).stderr(Stdio::null()).spawn().unwrap();
    wait_for("its file", || (!files(folder.path()).is_empty()).then_some(()));
    assert!(Command::new("kill").args(["-TERM", &bench.id().to_string()]).status().unwrap().success());
    assert_eq!(bench.wait().unwrap().code(), Some(1));
    assert_eq!(files(folder.path()), Vec::<String>::new());
}

#[test]
fn a_benchmark_names_the_directory_that_it_could_not_create() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = everytick_command(folder.path());
    let done: Done = command.args(["bench", "tick", "--database-url", "sqlite:none/x.db"]).output().unwrap().into();
    let printed = done.failed(1);
    assert!(
        printed.contains("could not create the directory none/x.db.bench-") && printed.contains("--database-url"),
        "{printed}"
    );
    assert_eq!(files(folder.path()), Vec::<String>::new());
}

#[test]
fn a_benchmark_refuses_invalid_flags() {
    for (args, printed) in [
        (&["tick", "--jobs", "2000", "--from", "5000"][..], "--from: 5000 is more than --jobs 2000"),
        (&["tick", "--jobs", "999999999999"], "100000000"),
        (&["life", "--tokens"], "--target queue"),
        (&["cron", "--tz", "Europe/Paris"], "--expr"),
    ] {
        let refused = everytick(&[&["bench"], args].concat()).failed(2);
        assert!(refused.contains(printed), "{refused}");
    }
}

#[test]
fn bench_cron_measures_one_expression_and_refuses_one_that_never_fires() {
    let folder = tempfile::tempdir().unwrap();
    let one = measured(&["cron", "--expr", "0 9 * * MON-FRI", "--tz", "Europe/Paris"], folder.path());
    assert!(one["rate"].as_f64().unwrap() > 0.0, "{one}");
    let refused = everytick(&["bench", "cron", "--expr", "0 0 30 2 *"]);
    assert!(refused.failed(2).contains("never fires"));
}
