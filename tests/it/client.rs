//! The client commands against a real server.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use crate::support::{Server, Sink, everytick_command, wait_for};

fn with_shell() -> Server {
    Server::builder().flags(&["--enable-shell", "--auth", "open", "--allow-webhook-range", "127.0.0.0/8"]).start()
}

/// Waits until a job has `count` runs in this state, and returns them.
fn runs(server: &Server, job: &str, state: &str, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} runs of {job} to be {state}"), || {
        let list = server.everytick(&["job", "runs", job, "--status", state, "-o", "json"]).json();
        list["items"].as_array().filter(|items| items.len() >= count).cloned()
    })
}

/// Triggers a job and returns the id of the run.
fn trigger(server: &Server, args: &[&str]) -> String {
    server.everytick(&[&["job", "trigger"], args].concat()).ok().trim().to_owned()
}

#[test]
fn the_example_of_the_readme_works() {
    let (server, sink) = (with_shell(), Sink::start());
    let created = server.everytick(&["job", "create", "hello", "--every", "1s", "--url", &sink.url()]).ok();
    assert!(created.starts_with("hello created; next tick 20"), "{created}");
    let deliveries = sink.wait_for(2);
    assert_ne!(deliveries[0].headers["webhook-id"], deliveries[1].headers["webhook-id"]);
    runs(&server, "hello", "succeeded", 2);
    let list = server.everytick(&["run", "list"]).ok();
    let mut lines = list.lines();
    let header: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["ID", "JOB", "STATE", "SCHEDULED", "UTC", "TOOK", "NOTE"]);
    let first = lines.next().unwrap();
    assert!(first.contains("hello"), "{list}");
}

#[test]
fn a_job_is_created_shown_changed_and_deleted() {
    let server = Server::start();
    server
        .everytick(&[
            "job",
            "create",
            "nightly",
            "--cron",
            "0 2 * * *",
            "--tz",
            "Europe/Paris",
            "--url",
            "https://example.org/hook",
            "--label",
            "team=billing",
            "--payload",
            r#"{"b": 1.50, "a": [1]}"#,
            "--header",
            "X-Team: billing",
            "--timeout",
            "10s",
        ])
        .ok();

    let job = server.everytick(&["job", "get", "nightly", "-o", "json"]).json();
    assert_eq!(job["schedule"]["timezone"], "Europe/Paris");
    assert_eq!(job["target"]["http"]["headers"], json!({"X-Team": "billing"}));
    assert_eq!(job["labels"], json!({"team": "billing"}));
    assert_eq!((&job["timeout"], &job["version"]), (&json!("10s"), &json!(1)));
    let text = server.everytick(&["job", "get", "nightly"]).ok();
    for expected in [
        "0 2 * * * Europe/Paris",
        "POST https://example.org/hook",
        r#"{"b": 1.50, "a": [1]}"#,
        "team=billing",
        "enabled",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }

    let list = server.everytick(&["job", "list", "--label", "team=billing", "--target", "http", "-q", "night"]).ok();
    assert!(list.contains("nightly") && list.contains("enabled"), "{list}");
    assert!(!server.everytick(&["job", "list", "--label", "team=other"]).ok().contains("nightly"));
    assert!(!server.everytick(&["job", "list", "--paused"]).ok().contains("nightly"));

    server
        .everytick(&["job", "update", "nightly", "--every", "5m", "--remove-label", "team", "--max-retries", "9"])
        .ok();
    let job = server.everytick(&["job", "get", "nightly", "-o", "json"]).json();
    assert_eq!((&job["schedule"]["every"], &job["schedule"]["cron"]), (&json!("5m"), &Value::Null));
    assert_eq!((&job["labels"], &job["retry"]["max_retries"]), (&json!({}), &json!(9)));
    assert_eq!(job["target"]["http"]["headers"], json!({"X-Team": "billing"}), "fields without a flag do not change");

    let next = server.everytick(&["job", "next", "nightly", "-n", "3", "-o", "json"]).json();
    assert_eq!(next["ticks"].as_array().unwrap().len(), 3);

    let paused = server.everytick(&["job", "pause", "nightly", "--note", "the move"]).ok();
    assert!(paused.starts_with("nightly paused"), "{paused}");
    let text = server.everytick(&["job", "get", "nightly"]).ok();
    assert!(text.contains("paused") && text.contains("the move"), "{text}");
    assert!(server.everytick(&["job", "resume", "nightly"]).ok().contains("; next tick 20"));
    assert_eq!(server.everytick(&["job", "resume", "nightly"]).ok(), "nightly is not paused; nothing was changed\n");

    server.everytick(&["job", "delete", "nightly", "--if-version", "1"]).failed(4);
    assert!(server.everytick(&["job", "delete", "nightly"]).ok().starts_with("nightly deleted"));
    let message = server.everytick(&["job", "get", "nightly"]).failed(3);
    assert_eq!(message, "error: no job is named \"nightly\"; `everytick job list` lists the jobs\n");
}

#[test]
fn a_refusal_of_the_server_is_printed_field_by_field() {
    let server = Server::start();
    let message = server
        .everytick(&[
            "job",
            "create",
            "bad",
            "--cron",
            "61 * * * *",
            "--url",
            "ftp://h/",
            "--priority",
            "99",
            "--max-retries",
            "1000",
        ])
        .failed(1);
    for field in ["schedule.cron: ", "target.http.url: ", "priority: ", "retry.max_retries: "] {
        assert!(message.contains(&format!("\n  {field}")), "{field}: {message}");
    }
    let message = server.everytick(&["job", "create", "cmd", "--", "date"]).failed(1);
    assert!(message.contains("--enable-shell"), "{message}");

    server.everytick(&["job", "create", "taken", "--url", "https://example.org/"]).ok();
    let message = server.everytick(&["job", "create", "taken", "--url", "https://example.org/"]).failed(4);
    assert!(message.starts_with("error: name: "), "{message}");
    server.everytick(&["job", "update", "taken", "--priority", "1", "--if-version", "7"]).failed(4);
    server.everytick(&["job", "update", "taken", "--priority", "1", "--if-version", "1"]).ok();
    server.everytick(&["job", "trigger", "missing"]).failed(3);
    server.everytick(&["run", "get", "01a1e327-d180-8de1-92e3-d388a74d8fe4"]).failed(3);
}

#[test]
fn a_job_is_read_from_a_file_and_flags_override_the_file() {
    let server = Server::start();
    let definition =
        json!({"name": "a", "target": {"http": {"url": "https://example.org/"}}, "priority": 1, "timeout": "5s"});
    fs::write(server.dir().join("job.json"), definition.to_string()).unwrap();
    server.everytick(&["job", "create", "-f", "job.json", "--priority", "7"]).ok();
    let job = server.everytick(&["job", "get", "a", "-o", "json"]).ok();
    // The answer of the server is valid input under another name.
    server.everytick_with_stdin(&["job", "create", "b", "-f", "-"], &job).ok();
    let job = server.everytick(&["job", "get", "b", "-o", "json"]).json();
    assert_eq!((&job["priority"], &job["timeout"]), (&json!(7), &json!("5s")));
}

#[test]
fn a_batch_creates_the_valid_jobs_and_lists_the_errors_of_the_others() {
    let server = Server::start();
    let job = |name: &str| json!({"name": name, "target": {"http": {"url": "https://example.org/"}}}).to_string();
    let lines = [job("a"), "{".to_owned(), job("b"), job("a b")].join("\n");
    let done = server.everytick_with_stdin(&["job", "create", "--batch", "-"], &lines);
    assert_eq!(done.stdout, "2 created, 2 refused\n");
    assert!(done.stderr.contains("line 2: ") && done.stderr.contains("line 4 (a b): name: "), "{}", done.stderr);
    done.failed(1);
    let list = server.everytick(&["job", "list", "-o", "json"]).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    fs::write(server.dir().join("jobs.ndjson"), job("c")).unwrap();
    let lines = server.everytick(&["job", "create", "--batch", "jobs.ndjson", "-o", "json"]).json();
    assert_eq!(lines["status"], 201);
}

#[test]
fn long_lists_are_read_page_by_page() {
    let server = Server::start();
    let lines: Vec<String> = (0..1_500)
        .map(|n| {
            json!({"name": format!("job-{n:04}"), "target": {"http": {"url": "https://example.org/"}}}).to_string()
        })
        .collect();
    server.everytick_with_stdin(&["job", "create", "--batch", "-"], &lines.join("\n")).ok();
    let all = server.everytick(&["job", "list", "--limit", "5000", "-o", "json"]).json();
    assert_eq!(all["items"].as_array().unwrap().len(), 1_500);
    assert_eq!(all["next_cursor"], Value::Null);
    let page = server.everytick(&["job", "list", "--limit", "10"]);
    assert!(page.stderr.contains("--cursor "), "{}", page.stderr);
    let cursor = page.stderr.trim().rsplit(' ').next().unwrap().to_owned();
    let next = server.everytick(&["job", "list", "--limit", "1", "--cursor", &cursor]).ok();
    assert!(next.contains("job-0010"), "{next}");
    // A closed pipe is not an error.
    let mut child = server
        .command(&["job", "list", "--limit", "5000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn the_output_of_a_command_is_stored() {
    let server = with_shell();
    server
        .everytick(&["job", "create", "greet", "--env", "WHO=world", "--shell", "echo hello $WHO; echo oops >&2"])
        .ok();
    let id = trigger(&server, &["greet"]);
    runs(&server, "greet", "succeeded", 1);
    let log = server.everytick(&["run", "log", &id]).ok();
    assert!(log.contains("hello world\n") && log.contains("oops"), "{log}");
    let run = server.everytick(&["run", "get", &id]).ok();
    assert!(run.contains("request") && run.contains("hello world"), "{run}");
    let attempts = server.everytick(&["run", "attempts", &id, "-o", "json"]).json();
    assert_eq!(attempts["items"][0]["outcome"], "succeeded");
    assert!(server.everytick(&["run", "attempts", &id]).ok().contains("succeeded"));

    let again = server.everytick(&["run", "rerun", &id]).ok();
    assert_ne!(again.trim(), id);
    runs(&server, "greet", "succeeded", 2);
    server.everytick(&["run", "cancel", &id]).failed(4);
}

#[test]
fn a_log_is_followed_while_the_run_is_in_progress() {
    let server = with_shell();
    server
        .everytick(&[
            "job",
            "create",
            "slow",
            "--shell",
            "echo one; until [ -e \"$GO\" ]; do sleep 0.05; done; echo two",
            "--env",
            &format!("GO={}", server.dir().join("go").display()),
        ])
        .ok();
    let id = trigger(&server, &["slow"]);
    runs(&server, "slow", "claimed", 1);
    let follower = server.command(&["run", "log", &id]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    fs::write(server.dir().join("go"), "").unwrap();
    let output = follower.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n", "{output:?}");
    runs(&server, "slow", "succeeded", 1);
}

#[test]
fn run_log_of_a_waiting_run_shows_when_it_is_due() {
    let server = with_shell();
    server.everytick(&["job", "create", "flaky", "--max-retries", "3", "--base-delay", "1h", "--", "false"]).ok();
    let id = trigger(&server, &["flaky"]);
    runs(&server, "flaky", "waiting", 1);
    wait_for("the first attempt", || {
        let attempts = server.everytick(&["run", "attempts", &id, "-o", "json"]).json();
        attempts["items"].as_array().filter(|items| items.iter().any(|item| item["outcome"] == "failed")).map(Vec::len)
    });
    let done = server.everytick(&["run", "log", &id]);
    assert!(done.stderr.contains("the run is waiting; it is due at 20"), "{done:?}");
    done.ok();
}

#[test]
fn a_run_in_progress_is_cancelled_and_an_idempotency_key_creates_one_run() {
    let server = with_shell();
    server.everytick(&["job", "create", "long", "--", "sleep", "600"]).ok();
    let id = trigger(&server, &["long", "--idempotency-key", "k1"]);
    assert_eq!(trigger(&server, &["long", "--idempotency-key", "k1"]), id);
    runs(&server, "long", "claimed", 1);
    server.everytick(&["job", "trigger", "long"]).failed(4);
    server.everytick(&["run", "rerun", &id]).failed(4);
    assert_eq!(server.everytick(&["run", "cancel", &id]).ok(), format!("{id} cancelled\n"));
    runs(&server, "long", "cancelled", 1);
}

#[test]
fn the_payload_of_a_trigger_replaces_the_payload_of_the_job() {
    let (server, sink) = (with_shell(), Sink::start());
    server.everytick(&["job", "create", "pay", "--url", &sink.url(), "--payload", r#"{"a": 1.0}"#]).ok();
    trigger(&server, &["pay"]);
    assert_eq!(sink.wait_for(1)[0].body, br#"{"a": 1.0}"#);
    runs(&server, "pay", "succeeded", 1);
    trigger(&server, &["pay", "--payload", "[2]"]);
    assert_eq!(sink.wait_for(2)[1].body, b"[2]");
}

#[test]
fn resuming_a_disabled_job_is_refused_and_names_the_command_that_enables_it() {
    let server = Server::start();
    server.everytick(&["job", "create", "off", "--every", "1h", "--disabled", "--url", "https://example.org/"]).ok();
    let refused = server.everytick(&["job", "resume", "off"]).failed(4);
    assert!(refused.contains("off is disabled and not paused"), "{refused}");
    assert!(refused.contains("everytick job update off --enabled"), "{refused}");
    server.everytick(&["job", "pause", "off"]).ok();
    assert_eq!(server.everytick(&["job", "pause", "off"]).ok(), "off is paused already; nothing was changed\n");
    let resumed = server.everytick(&["job", "resume", "off"]);
    assert!(resumed.stderr.contains("off is disabled, so it has no ticks"), "{resumed:?}");
    assert!(resumed.ok().starts_with("off resumed"));
    server.everytick(&["job", "update", "off", "--enabled"]).ok();
    server.everytick(&["job", "resume", "off"]).ok();
}

/// The commands of the banner succeed on a server without any flag, and so does the run that they create.
#[test]
fn the_first_steps_of_the_banner_lead_to_a_run_that_succeeds() {
    let server = Server::start();
    let banner = server.banner();
    let steps: Vec<&str> = banner.lines().filter_map(|line| line.strip_prefix("    everytick ")).collect();
    assert_eq!(steps.len(), 3, "{banner}");
    let dir = server.dir();
    let command = |line: &str| {
        let mut command = everytick_command(dir);
        command.args(line.split(' ')).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    assert!(command(steps[0]).status().unwrap().success());
    server.everytick(&["job", "trigger", "hello"]);
    let mut worker = command(steps[1]).spawn().unwrap();
    let run = runs(&server, "hello", "succeeded", 1).remove(0);
    worker.kill().unwrap();
    worker.wait().unwrap();
    let log = server.everytick(&["run", "log", run["id"].as_str().unwrap()]).ok();
    assert_eq!(log, "hello\n");
    assert!(command(steps[2]).status().unwrap().success());
}

#[test]
fn the_banner_lists_the_next_ticks_of_near_and_far_jobs() {
    let server = Server::start();
    for (name, every) in [("soon", "10s"), ("later", "1h"), ("last", "1d")] {
        server.everytick(&["job", "create", name, "--every", every, "--queue", "q"]).ok();
    }
    server.everytick(&["job", "create", "paused", "--every", "1m", "--queue", "q"]).ok();
    server.everytick(&["job", "pause", "paused"]).ok();
    let (dir, ..) = server.stop();
    let banner = Server::builder().dir(dir).start().banner();
    let listed: Vec<&str> = banner.lines().filter(|line| line.starts_with("    20")).collect();
    let names: Vec<&str> = listed.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names, ["soon", "later", "last"], "{banner}");
}

#[test]
fn serve_prints_its_banner_stops_on_sigterm_and_refuses_a_second_process() {
    let server = Server::start();
    server.everytick(&["job", "create", "nightly", "--cron", "0 2 * * *", "--url", "https://example.org/"]).ok();
    let (dir, status, log) = server.stop();
    assert!(status.success(), "{status}: {log}");
    assert!(log.contains("TERM: stopping"), "{log}");
    let server = Server::builder().dir(dir).start();
    assert!(server.banner().contains("T02:00:00Z  nightly"), "{}", server.banner());
    assert!(server.banner().contains("data in data/everytick.db"), "{}", server.banner());
    // Only one process may open the file.
    let second = server.command(&["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another everytick process"), "{second:?}");
}

#[test]
fn a_second_signal_stops_at_once() {
    let mut server = with_shell();
    server.everytick(&["job", "create", "long", "--", "sleep", "600"]).ok();
    trigger(&server, &["long"]);
    runs(&server, "long", "claimed", 1);
    server.signal("TERM");
    wait_for("the server to be stopping", || server.log().contains("stopping").then_some(()));
    server.signal("INT");
    assert_eq!(server.ended().code(), Some(1));
    server.wait_for_log("stopped at once");
}

#[test]
fn a_server_that_is_not_everytick_is_reported() {
    let (server, sink) = (Server::start(), Sink::answering(|_| "404 Nope".to_owned()));
    let message = server.everytick(&["--server", sink.url().trim_end_matches("/hook"), "job", "list"]).failed(1);
    assert!(message.contains("is not everytick"), "{message}");
}

#[test]
fn queue_set_changes_nothing_when_it_cannot_read_the_present_limits() {
    let (server, sink) = (Server::start(), Sink::answering(|_| "503 Busy".to_owned()));
    let url = sink.url();
    let set = ["--server", url.trim_end_matches("/hook"), "queue", "set", "mail", "--rate", "5/1s"];
    server.everytick(&set).failed(1);
    assert!(sink.deliveries().iter().all(|request| request.method == "GET"), "{:?}", sink.deliveries());
}
