//! Commands on several jobs: selection, dry run, confirmation, partial failure.

use serde_json::Value;

use crate::support::{Server, wait_for};

fn with_jobs(names: &[(&str, &str)]) -> Server {
    let server = Server::builder().flags(&["--enable-shell", "--auth", "open"]).start();
    for (name, team) in names {
        let label = format!("team={team}");
        server.everytick(&["job", "create", name, "--every", "1h", "--label", &label, "--queue", "q"]).ok();
    }
    server
}

/// The names of the paused jobs.
fn paused(server: &Server) -> Vec<String> {
    let list = server.everytick(&["job", "list", "--paused", "-o", "json"]).json();
    list["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn several_jobs_are_paused_and_resumed_by_name_label_or_all() {
    let server = with_jobs(&[("a", "x"), ("b", "x"), ("c", "y")]);
    let done = server.everytick(&["job", "pause", "a", "b", "--yes", "--note", "moving"]);
    assert!(done.stderr.contains("2 paused, 0 failed"), "{done:?}");
    let text = done.ok();
    assert!(text.starts_with("a paused") && text.contains("\nb paused"), "{text}");
    assert_eq!(paused(&server), ["a", "b"]);
    server.everytick(&["job", "resume", "--label", "team=x", "--yes"]).ok();
    assert!(paused(&server).is_empty());
    server.everytick(&["job", "pause", "--label", "team=y", "--yes"]).ok();
    assert_eq!(paused(&server), ["c"]);

    // `--all` changes only the jobs that are not paused yet.
    let report = server.everytick(&["job", "pause", "--all", "--yes", "-o", "json"]).json();
    assert_eq!((&report["done"], &report["failed"]), (&Value::from(2), &Value::from(0)));
    assert_eq!((&report["items"][0]["job"], &report["items"][0]["answer"]["paused"]), (&"a".into(), &true.into()));
    let none = server.everytick(&["job", "pause", "--all", "--yes"]);
    assert!(none.stderr.contains("no job matches"), "{none:?}");
    none.ok();
}

#[test]
fn a_dry_run_lists_the_jobs_and_changes_nothing() {
    let server = with_jobs(&[("a", "x"), ("b", "x"), ("c", "y")]);
    let dry = server.everytick(&["job", "pause", "--label", "team=x", "--dry-run"]);
    assert!(dry.stderr.contains("dry run: would pause 2 jobs; nothing was changed"), "{dry:?}");
    let text = dry.ok();
    assert!(text.contains("a  ") && text.contains("b  ") && !text.contains("c  "), "{text}");
    let json = server.everytick(&["job", "delete", "a", "--dry-run", "-o", "json"]).json();
    assert_eq!((&json["dry_run"], &json["items"][0]["name"]), (&true.into(), &"a".into()));
    server.everytick(&["job", "delete", "a", "missing", "--dry-run"]).failed(3);
    assert!(paused(&server).is_empty());
    assert_eq!(server.everytick(&["job", "list", "-o", "json"]).json()["items"].as_array().unwrap().len(), 3);

    // Only jobs with open runs are listed for a cancel.
    server.everytick(&["job", "trigger", "b"]).ok();
    let dry = server.everytick(&["job", "cancel", "--all", "--dry-run"]);
    assert!(dry.stderr.contains("would cancel the open runs of 1 job;"), "{dry:?}");
    assert!(dry.stdout.contains("OPEN RUNS") && dry.stdout.contains("b  "), "{dry:?}");
    let text = server.everytick(&["job", "cancel", "--all", "--yes"]).ok();
    assert!(text.contains("b: 1 run cancelled") && text.contains("a: no open runs"), "{text}");
}

#[test]
fn a_pause_with_cancel_also_cancels_the_runs_of_paused_jobs() {
    let server = with_jobs(&[("a", "x"), ("b", "x")]);
    let run = server.everytick(&["job", "trigger", "a"]).ok().trim().to_owned();
    server.everytick(&["job", "pause", "a"]).ok();
    let pause = |flag: &str| server.everytick(&["job", "pause", "--label", "team=x", "--cancel", flag]);
    let dry = pause("--dry-run");
    assert!(dry.stderr.contains("would pause and cancel the open runs of 2 jobs; nothing was changed"), "{dry:?}");
    let state = || server.everytick(&["run", "get", &run, "-o", "json"]).json()["state"].clone();
    assert_eq!(state(), "waiting");
    let done = pause("--yes");
    assert!(done.stderr.contains("2 paused, 0 failed"), "{done:?}");
    assert_eq!(state(), "cancelled");
}

#[test]
fn a_dry_run_of_a_redrive_counts_the_runs_that_the_redrive_creates() {
    let server = Server::builder().flags(&["--enable-shell", "--auth", "open"]).start();
    for name in ["a", "b"] {
        server.everytick(&["job", "create", name, "--overlap", "cancel_previous", "--", "false"]).ok();
        for _ in 0..3 {
            server.everytick(&["job", "trigger", name, "--wait"]).failed(1);
        }
    }
    let more = "; there are more, repeat the command when the new runs have ended\n";
    let redrive = |flag: &str| server.everytick(&["run", "redrive", "--all", "--since", "1h ago", flag]).ok();
    assert_eq!(redrive("--dry-run"), format!("a: 1 run would be created{more}b: 1 run would be created{more}"));
    assert_eq!(redrive("--yes"), format!("a: 1 run created{more}b: 1 run created{more}"));
}

#[test]
fn without_a_terminal_a_command_on_several_jobs_needs_yes() {
    let server = with_jobs(&[("a", "x"), ("b", "x")]);
    for args in [&["job", "pause", "a", "b"][..], &["job", "delete", "--all"], &["job", "cancel", "--label", "team"]] {
        let refused = server.everytick(args).failed(2);
        for part in ["2 jobs (a, b)", "nothing was changed", "--yes", "--dry-run"] {
            assert!(refused.contains(part), "{args:?} {part}: {refused}");
        }
    }
    assert!(paused(&server).is_empty());
    server.everytick(&["job", "pause", "a"]).ok();
    server.everytick(&["job", "pause"]).failed(2);
    server.everytick(&["job", "pause", "a", "--all"]).failed(2);
    assert!(server.everytick(&["job", "delete", "a", "b", "--if-version", "1"]).failed(2).contains("--if-version"));
}

#[test]
fn a_job_that_fails_does_not_stop_the_others_and_the_command_exits_with_1() {
    let server = with_jobs(&[("a", "x"), ("b", "x")]);
    let done = server.everytick(&["job", "pause", "a", "missing", "b", "--yes"]);
    assert!(done.stderr.contains("missing: ") && done.stderr.contains("2 paused, 1 failed"), "{done:?}");
    assert!(done.failed(1).contains("1 of 3 jobs failed"));
    assert_eq!(paused(&server), ["a", "b"]);
    let json = server.everytick(&["job", "resume", "a", "missing", "--yes", "-o", "json"]);
    let report: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&report["done"], &report["failed"], &report["items"][1]["done"]),
        (&1.into(), &1.into(), &false.into())
    );
    assert!(report["items"][1]["error"].as_str().unwrap().contains("job"), "{report}");
    json.failed(1);
}

#[test]
fn jobs_that_others_follow_are_deleted_after_them() {
    let server = with_jobs(&[("a", "x")]);
    for (name, parent) in [("b", "a"), ("c", "b"), ("d", "c")] {
        server.everytick(&["job", "create", name, "--after", parent, "--queue", "q", "--label", "team=x"]).ok();
    }
    let refused = server.everytick(&["job", "delete", "a", "b", "--yes"]);
    assert!(refused.stderr.contains("a: ") && refused.stderr.contains("b: "), "{refused:?}");
    refused.failed(1);
    let done = server.everytick(&["job", "delete", "--label", "team=x", "--yes"]);
    assert!(done.stderr.contains("4 deleted, 0 failed"), "{done:?}");
    done.ok();
    assert!(server.everytick(&["job", "list", "-o", "json"]).json()["items"].as_array().unwrap().is_empty());
}

#[test]
fn the_failed_runs_of_several_jobs_are_redriven() {
    let server = Server::builder().flags(&["--enable-shell", "--auth", "open"]).start();
    for (name, team, command) in [("a", "x", "false"), ("b", "x", "false"), ("c", "y", "false"), ("good", "x", "true")]
    {
        server.everytick(&["job", "create", name, "--label", &format!("team={team}"), "--", command]).ok();
        server.everytick(&["job", "trigger", name, "--wait"]);
    }
    let since = ["--since", "1h ago"];
    let redrive = |args: &[&str]| server.everytick(&[&["run", "redrive"], args, &since].concat());
    let dry = redrive(&["--label", "team=x", "--dry-run"]);
    assert_eq!(dry.stdout, "a: 1 run would be created\nb: 1 run would be created\n", "{dry:?}");
    assert!(redrive(&["--all"]).failed(2).contains("3 jobs (a, b, c)"));
    let done = redrive(&["--label", "team=x", "--yes"]);
    assert!(done.stdout.contains("a: 1 run created") && done.stderr.contains("2 redriven, 0 failed"), "{done:?}");
    let failed = |job: &str| {
        let runs = server.everytick(&["job", "runs", job, "--status", "failed", "-o", "json"]).json();
        runs["items"].as_array().unwrap().len()
    };
    wait_for("the new runs to fail", || (failed("a") == 2 && failed("b") == 2).then_some(()));
    assert_eq!(failed("c"), 1);
    let report = redrive(&["a", "missing", "--yes", "-o", "json"]);
    assert!(report.stdout.contains("\"failed\":1"), "{report:?}");
    report.failed(1);
    // A dry run of one job lists each run, also with --job.
    assert!(redrive(&["--job", "c", "--dry-run"]).ok().contains("would be created"));
}
