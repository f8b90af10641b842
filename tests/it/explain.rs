//! `job explain` from outside, in each situation that a job can be in.

use std::sync::Arc;

use everytick_domain::{
    ids::Epoch,
    schedule::Timing,
    time::{DbTime, Span},
};
use everytick_store::{
    Limits, ManualClock, NewJob, Raise, SqliteStore, Store, SystemClock, WallClock,
    conformance::{TENANT, actor, job_id, schedule, spec},
};
use serde_json::Value;

use crate::support::{Server, wait_for};

const DAY: Span = Span::days(1);

/// A file with a daily job that was created 100 days ago. No tick is recorded, although the cursor has passed them.
async fn a_job_of_long_ago(data: &std::path::Path) {
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

fn midnight(at: DbTime) -> DbTime {
    DbTime::from_millis(at.millis() / 86_400_000 * 86_400_000)
}

#[test]
fn every_situation_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(a_job_of_long_ago(&dir.path().join("data")));
    let server = Server::builder().flags(&["--enable-shell"]).dir(dir).start();
    let ok = |args: &[&str]| server.everytick(args).ok();
    let create = |name: &str, args: &[&str], command: &[&str]| {
        let all = [&["job", "create", name], args, &["-o", "json", "--"], command].concat();
        server.everytick(&all).json()
    };
    let explain = |name: &str, at: Option<&str>| {
        let at: Vec<&str> = at.map(|at| vec!["--at", at]).unwrap_or_default();
        let told = server.everytick(&[&["job", "explain", name, "-o", "json"], &at[..]].concat()).json();
        let text = ok(&[&["job", "explain", name], &at[..]].concat());
        if !at.is_empty() {
            // A run may have ended between the two calls.
            let first = |text: &str| text.split(": ").next().unwrap().to_owned();
            assert_eq!(first(&text), first(told["message"].as_str().unwrap()));
        }
        told
    };
    let says = |told: &Value, kind: &str, words: &[&str]| {
        assert_eq!(told["kind"], kind, "{told}");
        for word in words {
            assert!(told["message"].as_str().unwrap().contains(word), "{word} is missing in {told}");
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
    let told = explain("well", Some(&tick(&run)));
    says(&told, "run", &["succeeded at"]);
    assert_eq!((&told["run"], &told["state"], &told["job"]), (&run["id"], &run["state"], &run["job"]));
    says(&explain("ill", Some(&tick(&ended("ill", "failed")))), "run", &["failed at"]);
    says(&explain("long", Some(&tick(&ended("long", "claimed")))), "run", &["is in progress on"]);
    // 4: skipped, because a run was open.
    let told = explain("long", Some(&tick(&ended("long", "skipped"))));
    says(&told, "skipped", &["still open"]);
    assert_eq!(told["skip_reason"], "overlap");
    // 5: before the job was created.
    let created_at = made["created_at"].as_str().unwrap();
    says(&explain("long", Some("2026-01-01T00:00:00Z")), "not_yet_made", &["did not exist yet", "local", created_at]);
    // 6, 7: an instant that is not a tick, and a tick that is not due.
    let told =
        explain("well", Some(&now.plus(Span::millis(86_400_500 - now.millis().unsigned_abs() % 1_000)).to_string()));
    says(&told, "not_a_tick", &["the nearest ticks are"]);
    assert!(told["tick_before"].is_string() && told["tick_after"].is_string(), "{told}");
    says(&explain("well", Some(&tomorrow)), "not_yet_due", &["the database time is"]);

    // 8, 9: a calendar excludes a recorded tick and a future tick.
    ok(&["calendar", "set", "down", "--date", "2026-01-01/2099-12-31"]);
    create("holiday", &["--every", "1s", "--exclude", "down"], &["true"]);
    let told = explain("holiday", Some(&tick(&ended("holiday", "skipped"))));
    says(&told, "skipped", &["calendar down excludes the date"]);
    assert_eq!((&told["calendar"], &told["skip_reason"]), (&"down".into(), &"calendar".into()));
    says(&explain("holiday", Some(&tomorrow)), "will_be_skipped", &["calendar down"]);
    // The last tick may be so recent that it is not recorded yet.
    let last = wait_for("a skip", || Some(explain("holiday", None)).filter(|told| told["kind"] == "skipped"));
    says(&last, "skipped", &["calendar down"]);

    // 10, 11: during a pause that continues, and during a pause that has ended.
    create("rested", &["--every", "1s"], &["true"]);
    ok(&["job", "pause", "rested", "--note", "for a while"]);
    says(&explain("rested", Some(&tomorrow)), "paused", &["by local", "still is", "(for a while)"]);
    let paused =
        server.everytick(&["job", "get", "rested", "-o", "json"]).json()["updated_at"].as_str().unwrap().to_owned();
    let second = wait_for("a second of the pause", || {
        let next = DbTime::from_millis((paused.parse::<DbTime>().unwrap().millis() / 1_000 + 1) * 1_000);
        (SystemClock.now() > next).then(|| next.to_string())
    });
    ok(&["job", "resume", "rested"]);
    let told = explain("rested", Some(&second));
    says(&told, "paused", &["by local", &paused, "until 20"]);
    assert_eq!((&told["by"], &told["since"]), (&"local".into(), &paused.as_str().into()));

    // 12-14: a disabled job, a job without a schedule, and an instant before starts_at.
    create("off", &["--every", "1s", "--disabled"], &["true"]);
    says(&explain("off", None), "disabled", &["enabled"]);
    create("manual", &[], &["true"]);
    says(&explain("manual", None), "no_schedule", &["when it is triggered"]);
    create("later", &["--every", "1s", "--starts-at", "2099-01-01T00:00:00Z"], &["true"]);
    says(&explain("later", Some(&tomorrow)), "out_of_bounds", &["starts at 2099-01-01T00:00:00Z"]);

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
    says(&explain("edited", Some(&edited)), "definition_changed", &["local set at"]);

    // 16: a deleted job.
    ok(&["job", "delete", "ill"]);
    says(&explain("ill", Some(&tomorrow)), "deleted", &["by local at"]);

    // 17, 18: a tick older than the history, and a tick whose record is missing.
    let ago = |days| midnight(now.minus(Span::days(days))).to_string();
    says(&explain("old", Some(&ago(95))), "out_of_history", &["has been pruned"]);
    says(&explain("old", Some(&ago(10))), "missing", &["should not happen"]);

    server.everytick(&["job", "explain", "nobody"]).failed(3);
    assert!(server.everytick(&["job", "explain", "well", "--at", "noon"]).failed(2).contains("RFC 3339"));
}
