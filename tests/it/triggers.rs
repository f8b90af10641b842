//! Runs that a command starts: the id alone on stdout, the exit code of a skipped run, and `--wait`.

use crate::support::{Server, wait_for};

fn with_shell() -> Server {
    Server::builder().flags(&["--enable-shell", "--auth", "open"]).start()
}

/// Whether the text is one line with a whole id.
fn is_id(text: &str) -> bool {
    let id = text.strip_suffix('\n').unwrap_or_default();
    id.len() == 36 && id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

fn state(server: &Server, run: &str) -> String {
    server.everytick(&["run", "get", run, "-o", "json"]).json()["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_trigger_prints_the_id_alone_on_stdout_and_a_skipped_one_exits_with_4() {
    let server = with_shell();
    server.everytick(&["job", "create", "long", "--", "sleep", "600"]).ok();
    let first = server.everytick(&["job", "trigger", "long"]);
    assert!(is_id(&first.stdout) && first.stderr.contains("long: the run is waiting"), "{first:?}");
    let first = first.ok().trim().to_owned();
    wait_for("the run to start", || (state(&server, &first) == "claimed").then_some(()));

    let skipped = server.everytick(&["job", "trigger", "long"]);
    assert!(is_id(&skipped.stdout), "{skipped:?}");
    let id = skipped.stdout.trim().to_owned();
    let message = skipped.failed(4);
    for part in ["long: skipped (overlap)", "still open", "--force"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(state(&server, &id), "skipped");
    let json = server.everytick(&["job", "trigger", "long", "-o", "json"]);
    assert!(json.stdout.contains("\"skip_reason\":\"overlap\""), "{json:?}");
    json.failed(4);
    server.everytick(&["run", "cancel", &first]).ok();
    server.everytick(&["run", "rerun", &first]).ok();
    assert!(server.everytick(&["run", "rerun", &first]).failed(4).contains("skipped (overlap)"));
}

#[test]
fn a_trigger_with_wait_exits_with_0_only_if_the_run_succeeded() {
    let server = with_shell();
    server.everytick(&["job", "create", "good", "--", "true"]).ok();
    server.everytick(&["job", "create", "bad", "--", "false"]).ok();
    let good = server.everytick(&["job", "trigger", "good", "--wait"]);
    assert!(is_id(&good.stdout) && good.stderr.contains("good: succeeded"), "{good:?}");
    assert_eq!(state(&server, good.ok().trim()), "succeeded");
    let run = server.everytick(&["job", "trigger", "good", "--wait", "-o", "json"]).json();
    assert_eq!(run["state"], "succeeded");

    let bad = server.everytick(&["job", "trigger", "bad", "--wait"]);
    assert!(is_id(&bad.stdout), "{bad:?}");
    let id = bad.stdout.trim().to_owned();
    assert!(bad.failed(1).contains("bad: the run failed: "));
    let again = server.everytick(&["run", "rerun", &id, "--wait"]);
    assert!(is_id(&again.stdout) && again.stdout.trim() != id, "{again:?}");
    again.failed(1);
    // The exit code is the same if the run has ended before the command begins to wait.
    let key = ["job", "trigger", "bad", "--idempotency-key", "k"];
    let run = server.everytick(&key).ok();
    wait_for("the run to fail", || (state(&server, run.trim()) == "failed").then_some(()));
    server.everytick(&[&key[..], &["--wait"]].concat()).failed(1);
}
