//! `job explain` from outside, in each situation that a job can be in.

use std::sync::Arc;

use everytick_domain::{
    ids::Epoch,
    schedule::Timing,
    time::{DbTime, Span},
};
use everytick_store::{
    Limits, ManualClock, NewJob, Raise, SqliteStore, Store, SystemClock, WallClock,
    conformance::{TENANT, actor, job_id, schedule, server::Server as Postgres, spec},
};
use serde_json::Value;

use crate::support::{Server, Sink, wait_for};

const DAY: Span = Span::days(1);

/// A file with a daily job that was created 100 days ago. No tick is recorded, although the cursor has passed them.
async fn create_job_100_days_old(data: &std::path::Path) {
    let now = SystemClock.now();
    let clock = Arc::new(ManualClock::at(now.minus(Span::days(100))));
    let store = SqliteStore::open(data.join("everytick.db"), clock.clone(), Limits::default()).await.unwrap();
    let mut old = spec("old");
    old.schedule = Some(schedule(Timing::Every { every: DAY }));
    let new = NewJob { id: job_id(TENANT, "old"), spec: old };
    let made = store.create_jobs(TENANT, &actor(), vec![new], None).await.unwrap().remove(0).unwrap();
    clock.set(now);
    let cursor = made.job.schedule.as_ref().unwrap().next_after(now.plus(DAY));
    let raise = Raise { job: made.job.id, epoch: Epoch::from_raw(1), cursor };
    assert_eq!(store.raise_cursors(&[raise]).await.unwrap().len(), 1);
    store.close().await;
}

/// The message and the details of an answer.
fn whole(answer: &Value) -> String {
    let details = answer["details"].as_array().unwrap().iter().map(|detail| detail.as_str().unwrap());
    std::iter::once(answer["message"].as_str().unwrap()).chain(details).collect::<Vec<_>>().join("\n")
}

fn midnight(at: DbTime) -> DbTime {
    DbTime::from_millis(at.millis() / 86_400_000 * 86_400_000)
}

#[test]
fn every_situation_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(create_job_100_days_old(&dir.path().join("data")));
    let server = Server::builder().flags(&["--enable-shell", "--auth", "open"]).dir(dir).start();
    let ok = |args: &[&str]| server.everytick(args).ok();
    let create = |name: &str, args: &[&str], command: &[&str]| {
        let all = [&["job", "create", name], args, &["-o", "json", "--"], command].concat();
        server.everytick(&all).json()
    };
    let explain = |name: &str, at: Option<&str>| {
        let at: Vec<&str> = at.map(|at| vec!["--at", at]).unwrap_or_default();
        let answer = server.everytick(&[&["job", "explain", name, "-o", "json"], &at[..]].concat()).json();
        let text = ok(&[&["job", "explain", name], &at[..]].concat());
        if !at.is_empty() {
            // A run may have ended between the two calls.
            let first = |text: &str| text.split(": ").next().unwrap().to_owned();
            assert_eq!(first(&text), first(answer["message"].as_str().unwrap()));
        }
        answer
    };
    let check_answer = |answer: &Value, kind: &str, words: &[&str]| {
        assert_eq!(answer["kind"], kind, "{answer}");
        for word in words {
            assert!(whole(answer).contains(word), "{word} is missing in {answer}");
        }
    };
    let ended = |job: &str, state: &str| {
        wait_for(&format!("a {state} run of {job}"), || {
            let list = server.everytick(&["job", "runs", job, "--status", state, "-o", "json"]).json();
            list["items"].as_array()?.iter().find(|run| run["from"].is_null()).cloned()
        })
    };
    let tick = |run: &Value| run["scheduled_at"].as_str().unwrap().to_owned();
    let now = SystemClock.now();
    let tomorrow = midnight(now.plus(DAY)).to_string();

    // 1-3: a recorded run that succeeded, one that failed, and one in progress.
    create("well", &["--every", "1s"], &["true"]);
    create("ill", &["--every", "1s"], &["false"]);
    let made = create("long", &["--every", "1s"], &["sleep", "600"]);
    let run = ended("well", "succeeded");
    let answer = explain("well", Some(&tick(&run)));
    check_answer(&answer, "run", &["succeeded at"]);
    assert_eq!((&answer["run"], &answer["state"], &answer["job"]), (&run["id"], &run["state"], &run["job"]));
    check_answer(&explain("ill", Some(&tick(&ended("ill", "failed")))), "run", &["failed at"]);
    check_answer(&explain("long", Some(&tick(&ended("long", "claimed")))), "run", &["is in progress on"]);
    // 4: skipped, because a run was open.
    let answer = explain("long", Some(&tick(&ended("long", "skipped"))));
    check_answer(&answer, "skipped", &["still open"]);
    assert_eq!(answer["skip_reason"], "overlap");
    // 5: before the job was created.
    let created_at = made["created_at"].as_str().unwrap();
    check_answer(
        &explain("long", Some("2026-01-01T00:00:00Z")),
        "not_yet_made",
        &["did not exist yet", "local", created_at],
    );
    // 6, 7: an instant that is not a tick, and a tick that is not due.
    let answer =
        explain("well", Some(&now.plus(Span::millis(86_400_500 - now.millis().unsigned_abs() % 1_000)).to_string()));
    check_answer(&answer, "not_a_tick", &["the nearest ticks are"]);
    assert!(answer["tick_before"].is_string() && answer["tick_after"].is_string(), "{answer}");
    check_answer(&explain("well", Some(&tomorrow)), "not_yet_due", &["the database time is"]);

    // 8, 9: a calendar excludes a recorded tick and a future tick.
    ok(&["calendar", "set", "down", "--date", "2026-01-01/2099-12-31"]);
    create("holiday", &["--every", "1s", "--exclude", "down"], &["true"]);
    let answer = explain("holiday", Some(&tick(&ended("holiday", "skipped"))));
    check_answer(&answer, "skipped", &["calendar down excludes the date"]);
    assert_eq!((&answer["calendar"], &answer["skip_reason"]), (&"down".into(), &"calendar".into()));
    check_answer(&explain("holiday", Some(&tomorrow)), "will_be_skipped", &["calendar down"]);
    // The last tick may be so recent that it is not recorded yet.
    let last = wait_for("a skip", || Some(explain("holiday", None)).filter(|answer| answer["kind"] == "skipped"));
    check_answer(&last, "skipped", &["calendar down"]);

    // 10, 11: during a pause that continues, and during a pause that has ended.
    create("rested", &["--every", "1s"], &["true"]);
    ok(&["job", "pause", "rested", "--note", "for a while"]);
    check_answer(&explain("rested", Some(&tomorrow)), "paused", &["by local", "still is", "(for a while)"]);
    let paused =
        server.everytick(&["job", "get", "rested", "-o", "json"]).json()["updated_at"].as_str().unwrap().to_owned();
    let second = wait_for("a second of the pause", || {
        let next = DbTime::from_millis((paused.parse::<DbTime>().unwrap().millis() / 1_000 + 1) * 1_000);
        (SystemClock.now() > next).then(|| next.to_string())
    });
    ok(&["job", "resume", "rested"]);
    let answer = explain("rested", Some(&second));
    check_answer(&answer, "paused", &["by local", &paused, "until 20"]);
    assert_eq!((&answer["by"], &answer["since"]), (&"local".into(), &paused.as_str().into()));

    // 12-14: a disabled job, a job without a schedule, and an instant before starts_at.
    create("off", &["--every", "1s", "--disabled"], &["true"]);
    check_answer(&explain("off", None), "disabled", &["enabled"]);
    create("manual", &[], &["true"]);
    check_answer(&explain("manual", None), "no_schedule", &["when it is triggered"]);
    create("later", &["--every", "1s", "--starts-at", "2099-01-01T00:00:00Z"], &["true"]);
    check_answer(&explain("later", Some(&tomorrow)), "out_of_bounds", &["starts at 2099-01-01T00:00:00Z"]);

    // 15: a tick of the new definition, before the edit.
    create("edited", &["--at", "2099-01-01T00:00:00Z"], &["true"]);
    let edited = wait_for("a tick before the edit", || {
        let made = server.everytick(&["job", "get", "edited", "-o", "json"]).json()["created_at"]
            .as_str()?
            .parse::<DbTime>()
            .ok()?;
        let tick = DbTime::from_millis((made.millis() / 1_000 + 1) * 1_000);
        (SystemClock.now() > tick).then(|| tick.to_string())
    });
    ok(&["job", "update", "edited", "--every", "1s"]);
    check_answer(&explain("edited", Some(&edited)), "definition_changed", &["local set at"]);

    // 16: a deleted job.
    ok(&["job", "delete", "ill"]);
    check_answer(&explain("ill", Some(&tomorrow)), "deleted", &["by local at"]);

    // 17, 18: a tick older than the history, and a tick whose record is missing.
    let ago = |days| midnight(now.minus(Span::days(days))).to_string();
    check_answer(&explain("old", Some(&ago(95))), "out_of_history", &["has been pruned"]);
    check_answer(&explain("old", Some(&ago(10))), "missing", &["should not happen"]);

    server.everytick(&["job", "explain", "missing"]).failed(3);
    assert!(server.everytick(&["job", "explain", "well", "--at", "noon"]).failed(2).contains("RFC 3339"));
}

/// Asks a question twice, as text and as JSON. Both contain the same answer.
fn ask(server: &Server, question: &[&str]) -> Value {
    let answer = server.everytick(&[question, &["-o", "json"]].concat()).json();
    let text = server.everytick(question).ok();
    // The present time, and durations such as "in 40s", differ between the two calls.
    let begins = |text: &str| text.split_once(": ").unwrap().1.chars().take(20).collect::<String>();
    assert_eq!(begins(&text), begins(answer["message"].as_str().unwrap()), "{question:?}");
    for command in answer["commands"].as_array().unwrap() {
        assert!(text.contains(&format!("  $ {}\n", command.as_str().unwrap())), "{command}: {text}");
    }
    answer
}

/// Checks the kind and the reason of an answer, and its text.
#[track_caller]
fn check(answer: &Value, kind: &str, reason: Option<&str>, words: &[&str]) {
    assert_eq!((answer["kind"].as_str(), answer["reason"].as_str()), (Some(kind), reason), "{answer}");
    for word in words {
        assert!(whole(answer).contains(word), "{word:?} is missing in {}", whole(answer));
    }
}

fn id(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The newest run of a job in this state.
fn newest(server: &Server, job: &str, state: &str) -> Value {
    wait_for(&format!("a {state} run of {job}"), || {
        let list = server.everytick(&["job", "runs", job, "--status", state, "-o", "json"]).json();
        list["items"].as_array()?.iter().find(|run| run["from"].is_null()).cloned()
    })
}

fn trigger(server: &Server, job: &str) -> String {
    server.everytick(&["job", "trigger", job]).stdout.trim().to_owned()
}

const NEW_YORK: [&str; 4] = ["--cron", "30 2 * * *", "--tz", "America/New_York"];

fn ask_about_the_schedule(server: &Server) {
    let create = |name: &str, more: &[&str]| {
        server.everytick(&[&["job", "create", name], &NEW_YORK[..], more, &["--", "true"]].concat()).ok();
    };
    create("nightly", &[]);
    // 1: why has it not run yet?
    let answer = ask(server, &["job", "explain", "nightly"]);
    check(&answer, "not_yet_due", None, &["the first tick; not yet due: it will run in"]);
    let (local, at) = (id(&answer["local"]), id(&answer["at"]));
    assert!(id(&answer["message"]).starts_with(&format!("{local} ({at}): ")), "the job's zone, and UTC beside it");
    assert!(local.contains("T02:30:00-0"), "{local}");
    assert_eq!((&answer["next_tick"], &answer["timezone"]), (&answer["at"], &"America/New_York".into()));

    // 2: why not last night?
    let answer = ask(server, &["job", "explain", "nightly", "--at", "yesterday 02:30"]);
    check(&answer, "not_yet_made", None, &["the job did not exist yet; local created it at", "next tick: "]);

    // 3: will it run at Christmas?
    let answer = ask(server, &["job", "explain", "nightly", "--at", "2099-12-25"]);
    check(&answer, "not_yet_due", None, &["not yet due: it will run in"]);
    assert_eq!(answer["local"], "2099-12-25T02:30:00-05:00");
    server.everytick(&["calendar", "set", "holidays", "--tz", "America/New_York", "--date", "2099-12-25"]).ok();
    create("working-days", &["--exclude", "holidays"]);
    let answer = ask(server, &["job", "explain", "working-days", "--at", "2099-12-25"]);
    check(&answer, "will_be_skipped", None, &["calendar holidays excludes it"]);

    // 10: what happens at the DST gap?
    let answer = ask(server, &["job", "explain", "nightly", "--at", "2099-03-08 02:30"]);
    check(&answer, "not_yet_due", None, &["02:30 does not exist, fires at 03:00; clocks go forward 1h"]);
    assert_eq!(answer["local"], "2099-03-08T03:00:00-04:00");
    create("no-shift", &["--gap", "skip"]);
    for at in ["2099-03-08 02:30", "2099-03-08"] {
        let answer = ask(server, &["job", "explain", "no-shift", "--at", at]);
        let words = ["02:30 does not exist, does not fire (gap: skip)", "2099-03-07T02:30:00-05:00"];
        check(&answer, "not_a_tick", None, &words);
    }
    let rows = server.everytick(&["job", "next", "no-shift", "-n", "2", "--from", "2099-03-07"]).ok();
    assert!(rows.contains("2099-03-08T02:30:00") && rows.contains("does not fire (gap: skip)"), "{rows}");
}

fn ask_about_runs(server: &Server, sink: &Sink) {
    let create = |name: &str, more: &[&str]| server.everytick(&[&["job", "create", name], more].concat()).ok();
    // 2: why not last night? The job was paused.
    create("rested", &["--every", "1s", "--", "true"]);
    server.everytick(&["job", "pause", "rested", "--note", "night shift"]).ok();
    let answer = ask(server, &["job", "explain", "rested", "--at", "2099-01-01T00:00:00Z"]);
    check(&answer, "paused", None, &["paused by local at", "(night shift)"]);

    // 4: why did it stop? The receiver answered 410.
    create("gone", &["--every", "1s", "--url", &sink.url()]);
    wait_for("the job to be paused", || {
        let answer = server.everytick(&["job", "explain", "gone", "-o", "json"]).json();
        (answer["kind"] == "paused").then_some(())
    });
    let answer = ask(server, &["job", "explain", "gone"]);
    assert!(whole(&answer).contains("410"), "{answer}");
    assert!(answer["next_tick"].is_null(), "{answer}");
    let next = server.everytick(&["job", "next", "gone"]);
    assert!(next.stderr.contains("no ticks while the job is paused"), "{next:?}");

    // 5: why did it fail?
    create("broken", &["--shell", "echo no space left >&2; exit 3"]);
    let failed = trigger(server, "broken");
    newest(server, "broken", "failed");
    let answer = ask(server, &["run", "explain", &failed]);
    let words = ["failed at", "after 1 attempt: ", "3", "max_retries is 0", "triggered by local at"];
    check(&answer, "run", Some("attempts_used"), &words);
    assert!(answer["commands"].as_array().unwrap().contains(&format!("everytick run log {failed}").into()), "{answer}");
    assert_eq!(ask(server, &["job", "explain", "broken"])["run"], failed.as_str(), "its newest run");

    // 6: why was it skipped? The answer names the run in the way.
    create("long", &["--", "sleep", "600"]);
    let first = trigger(server, "long");
    newest(server, "long", "claimed");
    let skipped = trigger(server, "long");
    let answer = ask(server, &["run", "explain", &skipped]);
    check(
        &answer,
        "skipped",
        Some("overlap"),
        &[&format!("still open: run {first} (in progress since "), "overlap is skip"],
    );
    let other = &answer["in_the_way"][0];
    assert_eq!((&other["run"], &other["state"]), (&first.as_str().into(), &"claimed".into()), "{answer}");
    assert!(other["since"].is_string() && other["node"].is_string(), "{answer}");
    let shown = server.everytick(&["run", "get", &skipped]).ok();
    assert!(shown.contains(&format!("still open: run {first}")) && shown.contains("Origin"), "{shown}");
    server.everytick(&["run", "cancel", &first]).ok();
    check(&ask(server, &["run", "explain", &first]), "run", Some("cancelled"), &["was cancelled by local at"]);
    check(&ask(server, &["run", "explain", &skipped]), "skipped", Some("overlap"), &[&first, "it was cancelled"]);

    // 7: was it backfilled?
    create("hourly", &["--cron", "0 * * * *", "--", "true"]);
    let hour = |ago: u64| {
        let now = SystemClock.now().millis();
        DbTime::from_millis(now / 3_600_000 * 3_600_000).minus(Span::hours(ago)).to_string()
    };
    let (tick, to) = (hour(2), hour(1));
    let args = ["job", "backfill", "hourly", "--from", &tick, "--to", &to, "--wait", "-o", "json"];
    let backfill = server.everytick(&args).json();
    let answer = ask(server, &["job", "explain", "hourly", "--at", &tick]);
    check(&answer, "not_yet_made", None, &["backfilled: run ", "succeeded (backfill ", "by local at"]);
    assert_eq!(answer["backfilled"][0]["backfill"], backfill["id"]);
    let answer = ask(server, &["run", "explain", id(&answer["backfilled"][0]["run"])]);
    let words = [&format!("created by backfill {}", id(&backfill["id"])), &format!("for the tick {tick}")];
    check(&answer, "run", Some("succeeded"), &words.map(String::as_str));
}

fn ask_about_flows_and_queues(server: &Server) {
    let create = |name: &str, more: &[&str]| server.everytick(&[&["job", "create", name], more].concat()).ok();
    // 8: why did it not run in the flow?
    create("extract", &["--shell", "exit 1"]);
    create("transform", &["--after", "extract", "--", "true"]);
    create("load", &["--after", "transform", "--", "true"]);
    check(
        &ask(server, &["job", "explain", "load"]),
        "no_schedule",
        None,
        &["it has not run yet", "transform has succeeded"],
    );
    let root = trigger(server, "extract");
    let skipped = newest(server, "load", "skipped");
    let words = [
        "parent transform was skipped, and depends_on requires succeeded",
        "transform was skipped because parent extract failed",
        &format!("run {root} of extract failed at"),
        "it runs when transform has succeeded, or when it is triggered",
    ];
    check(&ask(server, &["job", "explain", "load"]), "skipped", Some("parent"), &words);
    check(&ask(server, &["run", "explain", id(&skipped["id"])]), "skipped", Some("parent"), &words[..3]);

    // 9: why does the queue job not start?
    create("mails", &["--queue", "mail"]);
    let first = trigger(server, "mails");
    let answer = ask(server, &["run", "explain", &first]);
    check(&answer, "run", Some("no_worker"), &["in queue mail: no worker has asked for queue mail yet"]);
    assert_eq!(answer["queue"]["asked_at"], Value::Null);
    let worker = ["worker", "--queue", "mail", "--name", "mailer-1", "--", "true"];
    let mut worker = server.command(&worker).spawn().unwrap();
    newest(server, "mails", "succeeded");
    let stopped = std::process::Command::new("sh").args(["-c", "kill -s TERM $0", &worker.id().to_string()]).status();
    assert!(stopped.unwrap().success());
    wait_for("the worker to stop", || worker.try_wait().unwrap());
    let second = trigger(server, "mails");
    let answer = without_worker(server, &second);
    check(&answer, "run", Some("no_worker"), &["no worker has asked for queue mail since 20", "the last was mailer-1"]);
    assert_eq!(answer["queue"]["asked_by"], "mailer-1");
    let queue = server.everytick(&["queue", "get", "mail", "-o", "json"]).json();
    assert_eq!(queue["asked_at"], answer["queue"]["asked_at"]);
}

/// The explanation of a run when its queue has no worker any more. A node notes the requests of workers at most every 5 s.
/// Until these 5 s have passed, a worker may have asked without a note, so the explanation may differ.
fn without_worker(server: &Server, run: &str) -> Value {
    wait_for("the last interval of requests to end", || {
        Some(ask(server, &["run", "explain", run])).filter(|answer| answer["reason"] != "next_claim")
    })
}

fn gone() -> Sink {
    Sink::answering(|_| "410 Gone".to_owned())
}

#[test]
fn ten_questions_of_an_operator_are_answered() {
    let sink = gone();
    let flags = ["--enable-shell", "--auth", "open", "--allow-webhook-range", "127.0.0.0/8"];
    let server = Server::builder().flags(&flags).start();
    ask_about_the_schedule(&server);
    ask_about_runs(&server, &sink);
    ask_about_flows_and_queues(&server);
    let waits = newest(&server, "mails", "waiting");
    let (dir, _, _) = server.stop();
    let server = Server::builder().flags(&flags).dir(dir).start();
    let answer = without_worker(&server, id(&waits["id"]));
    check(&answer, "run", Some("no_worker"), &["no worker has asked for queue mail since 20"]);

    assert!(server.everytick(&["run", "explain", "01a1e327-d180-8de1-92e3-d388a74d8fe4"]).failed(3).contains("run"));
}

#[test]
fn ten_questions_of_an_operator_are_answered_on_postgresql() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (database, sink) = (runtime.block_on(Postgres::shared().blank()), gone());
    let flags =
        ["--enable-shell", "--auth", "open", "--allow-webhook-range", "127.0.0.0/8", "--database-url", &database.url];
    let server = Server::builder().flags(&flags).flags(&["--node-name", "a"]).start();
    ask_about_the_schedule(&server);
    ask_about_runs(&server, &sink);
    ask_about_flows_and_queues(&server);
    // Another node gives the same explanation.
    let other = Server::builder().flags(&flags).flags(&["--node-name", "b"]).start();
    let waits = newest(&other, "mails", "waiting");
    let answer = without_worker(&other, id(&waits["id"]));
    check(&answer, "run", Some("no_worker"), &["no worker has asked for queue mail since 20"]);
}
