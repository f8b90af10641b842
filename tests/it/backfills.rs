//! Backfills from outside: a dry run, a backfill with `--wait`, and a cancelled backfill.

use everytick_domain::time::{DbTime, Span};
use everytick_store::{SystemClock, WallClock};
use serde_json::{Value, json};

use crate::support::{Server, wait_for};

/// Creates an hourly job. Returns a function from a number of hours to the tick that many hours ago.
fn hourly(server: &Server, name: &str, more: &[&str]) -> impl Fn(u64) -> String {
    let create = ["job", "create", name, "--cron", "0 * * * *"];
    server.everytick(&[&create, more].concat()).ok();
    let hour = DbTime::from_millis(SystemClock.now().millis() / 3_600_000 * 3_600_000);
    move |hours| hour.minus(Span::hours(hours)).to_string()
}

fn get(server: &Server, id: &str) -> Value {
    server.everytick(&["backfill", "get", id, "-o", "json"]).json()
}

#[test]
fn a_backfill_creates_runs_for_past_ticks_and_wait_returns_when_they_have_ended() {
    let server = Server::builder().flags(&["--enable-shell", "--auth", "open"]).start();
    let ago = hourly(&server, "j", &["--shell", "echo $EVERYTICK_CAUSE $EVERYTICK_SCHEDULED_AT; cat"]);
    let (from, to) = (ago(4), ago(1));
    let stretch = ["job", "backfill", "j", "--from", &from, "--to", &to];
    let dry = server.everytick(&[&stretch[..], &["--dry-run"]].concat()).ok();
    assert_eq!(dry, format!("{}\n{}\n{}\n", ago(4), ago(3), ago(2)), "--to is excluded");
    assert_eq!(server.everytick(&["backfill", "list", "--job", "j", "-o", "json"]).json()["items"], json!([]));

    let waited = server.everytick(&[&stretch[..], &["--payload", "[1.50]", "--wait", "-o", "json"]].concat()).json();
    assert_eq!((&waited["state"], &waited["succeeded"], &waited["made"]), (&json!("done"), &json!(3), &json!(3)));
    let runs = server.everytick(&["job", "runs", "j", "-o", "json"]).json();
    let causes_and_states: Vec<_> =
        runs["items"].as_array().unwrap().iter().map(|run| (&run["cause"], &run["state"])).collect();
    assert_eq!(causes_and_states, [(&json!("backfill"), &json!("succeeded")); 3]);
    let newest = runs["items"][0]["id"].as_str().unwrap();
    assert_eq!(runs["items"][0]["scheduled_at"], json!(ago(2)));
    let printed = server.everytick(&["run", "log", newest]).ok();
    assert_eq!(printed, format!("backfill {}\n[1.50]", ago(2)));

    let explained = server.everytick(&["job", "explain", "j", "--at", &ago(2)]).ok();
    assert!(explained.contains(&format!("; backfilled: run {newest} succeeded")), "{explained}");

    let id = waited["id"].as_str().unwrap();
    let text = server.everytick(&["backfill", "get", id]).ok();
    assert!(text.contains("done") && text.contains("oldest first"), "{text}");
    assert!(server.everytick(&["backfill", "list", "--job", "j"]).ok().contains(&id[..8]), "its short id");
}

#[test]
fn wait_reports_failed_runs_and_a_cancelled_backfill_creates_no_more_runs() {
    let server = Server::builder().flags(&["--enable-shell", "--auth", "open"]).start();
    let ago = hourly(&server, "bad", &["--shell", "exit 1"]);
    let (from, to) = (ago(3), ago(1));
    let failed = server.everytick(&["job", "backfill", "bad", "--from", &from, "--to", &to, "--wait"]).failed(1);
    assert!(failed.contains("2 of 2 runs did not succeed; `everytick run list --job "), "{failed}");
    assert!(failed.contains("runs created"), "progress lines in a pipe: {failed}");

    let _ = hourly(&server, "slow", &["--shell", "sleep 60", "--timeout", "2m"]);
    let from = ago(30);
    let args = ["job", "backfill", "slow", "--from", &from, "--to", &to, "--newest-first", "-o", "json"];
    let made = server.everytick(&args).json();
    let id = made["id"].as_str().unwrap();
    wait_for("the backfill to create a run", || (get(&server, id)["made"] == 1).then_some(()));
    let runs = server.everytick(&["job", "runs", "slow", "-o", "json"]).json();
    assert_eq!(runs["items"][0]["scheduled_at"], json!(ago(2)), "newest first, and one at a time");
    server.everytick(&["backfill", "cancel", id, "--runs"]).ok();
    let over =
        wait_for("its run to be cancelled", || Some(get(&server, id)).filter(|backfill| backfill["cancelled"] == 1));
    assert_eq!((&over["state"], &over["made"], &over["total"]), (&json!("cancelled"), &json!(1), &json!(29)));
    server.everytick(&["backfill", "get", "01a1e327-d180-8de1-92e3-d388a74d8fe4"]).failed(3);
    let refused = server.everytick(&["job", "backfill", "slow", "--from", &to, "--to", &from]).failed(1);
    assert!(refused.starts_with("error: to:"), "{refused}");
}
