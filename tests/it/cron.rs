//! `everytick cron` from outside, without a server.

use std::process::Stdio;

use crate::support::{everytick, everytick_command};

#[test]
fn explain_describes_the_expression_in_english_and_notes_clock_changes() {
    let text = everytick(&[
        "cron",
        "explain",
        "30 2 * * *",
        "--tz",
        "America/New_York",
        "--from",
        "2026-03-07T00:00:00Z",
        "-n",
        "3",
    ])
    .ok();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("02:30") && lines[0].contains("America/New_York"), "{text}");
    assert_eq!(lines[1], "");
    assert!(lines[2].starts_with("UTC") && lines[2].contains("LOCAL") && lines[2].ends_with("NOTE"), "{text}");
    assert_eq!(lines[3], "2026-03-07T07:30:00Z  2026-03-07T02:30:00-05:00", "{text}");
    let shifted =
        "2026-03-08T07:00:00Z  2026-03-08T03:00:00-04:00  02:30 does not exist, fires at 03:00; clocks go forward";
    assert!(lines[4].starts_with(shifted), "{text}");
    assert_eq!(lines[5], "2026-03-09T06:30:00Z  2026-03-09T02:30:00-04:00", "{text}");
    assert_eq!(lines.len(), 6);
}

#[test]
fn gap_and_fold_flags_change_the_ticks() {
    let next = |args: &[&str]| everytick(&[&["cron", "next", "30 2 * * *", "-n", "1"], args].concat()).ok();
    let spring = ["--tz", "America/New_York", "--from", "2026-03-08T00:00:00Z"];
    assert!(next(&[&spring[..], &["--gap", "skip"]].concat()).contains("2026-03-09T06:30:00Z"));
    let autumn = ["--tz", "Europe/Paris", "--from", "2026-10-25T00:00:00Z"];
    assert!(next(&[&autumn[..], &["--fold", "first"]].concat()).contains("2026-10-25T00:30:00Z"));
    assert!(next(&[&autumn[..], &["--fold", "last"]].concat()).contains("2026-10-25T01:30:00Z"));
}

#[test]
fn a_day_without_a_tick_is_a_row_between_the_ticks() {
    let from = ["--tz", "America/New_York", "--from", "2026-03-07T00:00:00Z"];
    let args = [&["cron", "next", "30 2 * * *", "--gap", "skip", "-n", "2"], &from[..]].concat();
    let text = everytick(&args).ok();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "2026-03-07T07:30:00Z  2026-03-07T02:30:00-05:00", "{text}");
    assert!(lines[2].starts_with("-  "), "{text}");
    assert!(
        lines[2].contains("  2026-03-08T02:30:00  ") && lines[2].contains("does not exist, does not fire"),
        "{text}"
    );
    assert_eq!(lines[3], "2026-03-09T06:30:00Z  2026-03-09T02:30:00-04:00", "{text}");
    let preview = everytick(&[&args[..], &["-o", "json"]].concat()).json();
    assert_eq!(preview["ticks"].as_array().unwrap().len(), 2, "a row without a tick is not among the ticks");
    let absent = &preview["nonexistent"][0];
    assert_eq!((&absent["at"], &absent["local"]), (&"2026-03-08T07:00:00Z".into(), &"2026-03-08T02:30:00".into()));
}

#[test]
fn the_note_of_a_time_that_comes_twice_is_in_its_own_row() {
    let from = ["--tz", "America/New_York", "--from", "2026-10-31T00:00:00Z"];
    let text = everytick(&[&["cron", "next", "30 1 * * *", "-n", "3"], &from[..]].concat()).ok();
    let noted: Vec<&str> = text.lines().filter(|line| line.contains("comes twice")).collect();
    assert_eq!(noted.len(), 1, "{text}");
    let row = "2026-11-01T05:30:00Z  2026-11-01T01:30:00-04:00  01:30 comes twice, fires at the first pass";
    assert!(noted[0].starts_with(row), "{text}");
}

#[test]
fn next_in_json_is_the_preview_of_the_api() {
    let preview =
        everytick(&["cron", "next", "@daily", "-n", "2", "--from", "2026-11-16T07:00:00Z", "-o", "json"]).json();
    assert!(preview["description"].as_str().unwrap().contains("00:00"), "{preview}");
    assert_eq!(preview["ticks"][0]["at"], "2026-11-17T00:00:00Z");
    assert_eq!(preview["ticks"][1]["at"], "2026-11-18T00:00:00Z");
    assert_eq!(preview["ticks"][0]["note"], serde_json::Value::Null);
}

#[test]
fn without_from_the_ticks_start_now() {
    let text = everytick(&["cron", "next", "* * * * *", "-n", "3"]).ok();
    assert_eq!(text.lines().count(), 4, "{text}");
}

#[test]
fn the_value_of_h_depends_on_the_job_name() {
    let next = |name| {
        everytick(&["cron", "next", "H H * * *", "--name", name, "--from", "2026-01-01T00:00:00Z", "-n", "1"]).ok()
    };
    assert_eq!(next("a"), next("a"));
    assert_ne!(next("a"), next("b"));
}

#[test]
fn an_invalid_argument_is_named_and_exits_with_2() {
    for (args, expected) in [
        (&["61 * * * *"][..], "cron: minute"),
        (&["0 0 30 2 *"], "never fires"),
        (&["* * * * *", "--tz", "EST"], "timezone"),
        (&["* * * * *", "--from", "soon"], "RFC 3339"),
        (&["* * * * *", "-n", "0"], "1 to 1000"),
        (&["@reboot"], "cron"),
        (&[], "<EXPR>"),
    ] {
        let message = everytick(&[&["cron", "next"], args].concat()).failed(2);
        assert!(message.starts_with("error: ") && message.contains(expected), "{args:?}: {message}");
    }
    let message = everytick(&["cron", "explain", "61 * * * *", "--tz", "Mars/Base"]).failed(2);
    assert!(message.contains("\n  cron: ") && message.contains("\n  timezone: "), "{message}");
}

#[test]
fn an_expression_without_further_ticks_exits_with_1() {
    let message = everytick(&["cron", "next", "0 0 0 1 1 * 2020", "--from", "2026-01-01T00:00:00Z"]).failed(1);
    assert!(message.contains("no further ticks"), "{message}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["cron", "next", "* * * * *", "-n", "1000"][..], &["completions", "bash"], &["--help"]] {
        let mut child =
            everytick_command(dir.path()).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
        assert!(output.status.success(), "{args:?}: {:?}", output.status);
    }
}

#[test]
fn output_to_a_pipe_has_no_colour() {
    let dir = tempfile::tempdir().unwrap();
    let output =
        everytick_command(dir.path()).args(["cron", "next", "@daily"]).env("TERM", "xterm-256color").output().unwrap();
    assert!(!output.stdout.contains(&0x1b));
}
