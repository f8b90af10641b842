//! Commands: their start, input and environment, the outcome by exit status, and that no process is left behind.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use everytick_domain::output::split;
use everytick_domain::{
    target::{Command, Outcome, Retry, ShellTarget, TargetSpec},
    time::Span,
};
use everytick_targets::{Discard, Dispatch, OUTPUT_TAIL_BYTES_MAX, Stream, Target, TargetSettings};
use tokio_util::sync::CancellationToken;

use crate::support::{LiveLines, deliver, dispatch, started, targets, within};

fn command(command: Command) -> ShellTarget {
    ShellTarget { command, env: BTreeMap::new(), workdir: None }
}

fn script(text: &str) -> Dispatch {
    dispatch(TargetSpec::Shell(command(Command::Script(text.to_owned()))))
}

fn argv(argv: &[&str]) -> Dispatch {
    let argv = argv.iter().map(|&part| part.to_owned()).collect();
    dispatch(TargetSpec::Shell(command(Command::Argv(argv))))
}

fn succeeded(output: &str) -> Outcome {
    Outcome::Succeeded { output: Some(output.to_owned()) }
}

/// Whether a process has ended. Zombies count as ended: in a container without an init process nothing reaps them.
fn is_gone(pid: &str) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}

async fn gone(pid: &str) {
    within("a process to be gone", async {
        while !is_gone(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Delivers, and cancels after the command has printed `lines` lines. Returns those lines and the outcome.
async fn cancelled_after(lines: usize, dispatch: &Dispatch) -> (Vec<String>, Outcome) {
    let (live, cancel) = (LiveLines::default(), CancellationToken::new());
    let targets = targets();
    let (outcome, lines) =
        tokio::join!(within("the end of the delivery", targets.deliver(dispatch, &live, &cancel)), async {
            let lines = live.lines(lines).await;
            cancel.cancel();
            lines
        });
    (lines, outcome)
}

#[tokio::test]
async fn arguments_are_passed_without_a_shell() {
    let sent = argv(&["printf", "[%s]", "two words", "$HOME; *", ""]);
    assert_eq!(deliver(&sent).await, succeeded("[two words][$HOME; *][]"));
}

#[tokio::test]
async fn a_script_is_executed_by_the_shell() {
    assert_eq!(deliver(&script("echo one two | wc -w; exit 0")).await, succeeded("2\n"));
}

#[tokio::test]
async fn the_environment_has_the_variables_of_job_and_run_and_none_of_the_node() {
    let mut spec = command(Command::Argv(vec!["env".to_owned()]));
    spec.env = [("REPORT".to_owned(), "daily = yes".to_owned()), ("LANG".to_owned(), "de_DE.UTF-8".to_owned())].into();
    let sent = dispatch(TargetSpec::Shell(spec));
    let Outcome::Succeeded { output: Some(output) } = deliver(&sent).await else { panic!() };
    let mut seen: BTreeMap<&str, &str> = output.lines().map(|line| line.split_once('=').unwrap()).collect();
    seen.remove("HOME");
    let run = sent.run.to_string();
    let expected = BTreeMap::from([
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("LANG", "de_DE.UTF-8"),
        ("REPORT", "daily = yes"),
        ("EVERYTICK_JOB", "nightly-report"),
        ("EVERYTICK_RUN", &run),
        ("EVERYTICK_SCHEDULED_AT", "2026-11-16T07:00:00Z"),
        ("EVERYTICK_ATTEMPT", "2"),
        ("EVERYTICK_FENCE", "41"),
        ("EVERYTICK_CAUSE", "tick"),
        ("EVERYTICK_NODE", "node-1"),
    ]);
    assert!(
        std::env::var_os("CARGO_MANIFEST_DIR").is_some(),
        "the test process has a variable that must not be passed on"
    );
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_command_runs_in_the_workdir_of_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let workdir = dir.path().canonicalize().unwrap().to_str().unwrap().to_owned();
    let mut spec = command(Command::Argv(vec!["pwd".to_owned()]));
    spec.workdir = Some(workdir.clone());
    assert_eq!(deliver(&dispatch(TargetSpec::Shell(spec))).await, succeeded(&format!("{workdir}\n")));
}

#[tokio::test]
async fn the_payload_is_written_to_stdin_which_is_then_closed() {
    assert_eq!(deliver(&argv(&["cat"])).await, succeeded(r#"{"report":"daily"}"#));
    assert_eq!(deliver(&Dispatch { payload: None, ..argv(&["cat"]) }).await, Outcome::Succeeded { output: None });
    let payload = Some("x".repeat(256 * 1024));
    assert_eq!(deliver(&Dispatch { payload, ..argv(&["wc", "-c"]) }).await, succeeded("262144\n"));
}

#[tokio::test]
async fn a_command_that_does_not_read_its_payload_succeeds() {
    let payload = Some("x".repeat(256 * 1024));
    assert_eq!(deliver(&Dispatch { payload: payload.clone(), ..script("echo done") }).await, succeeded("done\n"));
    assert_eq!(deliver(&Dispatch { payload, ..script("exec <&-; echo done") }).await, succeeded("done\n"));
}

#[tokio::test]
async fn a_command_that_prints_while_it_reads_does_not_block() {
    let payload = Some("x".repeat(256 * 1024));
    let outcome = deliver(&Dispatch { payload, ..script("tee /dev/stderr") }).await;
    let Outcome::Succeeded { output: Some(output) } = outcome else { panic!() };
    assert!(output.len() <= OUTPUT_TAIL_BYTES_MAX && split(&output).0 > 0);
}

#[tokio::test]
async fn a_failed_command_has_its_exit_code_or_signal_as_error() {
    for (text, error) in [
        ("echo why; exit 3", "exit code 3"),
        ("echo why; kill -9 $$", "killed by signal 9"),
        ("echo why; nosuchprogram 2>&-", "exit code 127"),
    ] {
        let (error, output) = (error.to_owned(), Some("why\n".to_owned()));
        assert_eq!(deliver(&script(text)).await, Outcome::Failed { error, output, retry: Retry::Allowed }, "{text}");
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_named_and_not_retried() {
    let mut elsewhere = command(Command::Argv(vec!["true".to_owned()]));
    elsewhere.workdir = Some("/no/such/place".to_owned());
    for (sent, start) in [
        (argv(&["nosuchprogram", "x"]), "could not start \"nosuchprogram\": the command does not exist in PATH (/"),
        (argv(&["/etc/passwd"]), "could not start \"/etc/passwd\": it is not executable"),
        (argv(&["/no/such/file"]), "could not start \"/no/such/file\": the file does not exist on the node"),
        (
            dispatch(TargetSpec::Shell(elsewhere)),
            "could not start \"true\": its workdir \"/no/such/place\" is not a folder on the node",
        ),
        (argv(&["echo", "a\0b"]), "command: contains a NUL byte"),
    ] {
        let outcome = deliver(&sent).await;
        let Outcome::Failed { error, output: None, retry: Retry::Never } = outcome else { panic!("{outcome:?}") };
        assert!(error.starts_with(start) && !error.contains("os error"), "{error}");
    }
}

#[tokio::test]
async fn both_streams_are_streamed_live_and_stored_together() {
    let live = LiveLines::default();
    let sent = script("echo out; echo err >&2");
    let outcome = targets().deliver(&sent, &live, &CancellationToken::new()).await;
    assert_eq!((live.text(Stream::Stdout).as_str(), live.text(Stream::Stderr).as_str()), ("out\n", "err\n"));
    let Outcome::Succeeded { output: Some(output) } = outcome else { panic!() };
    assert!(["out\nerr\n", "err\nout\n"].contains(&output.as_str()), "{output}");
}

#[tokio::test]
async fn the_end_of_a_long_output_is_kept() {
    let Outcome::Succeeded { output: Some(output) } = deliver(&script("seq 100000")).await else { panic!() };
    let (missing, end) = split(&output);
    assert!(output.len() <= OUTPUT_TAIL_BYTES_MAX && end.ends_with("\n99999\n100000\n"));
    assert_eq!(missing as usize + end.len(), 588_895, "of the bytes that it printed");
}

#[tokio::test]
async fn cancelling_sends_term_to_the_command_and_its_children() {
    let sent = script("trap 'echo bye; exit 0' TERM; sleep 1000 & echo $$; echo $!; wait");
    let (pids, outcome) = cancelled_after(2, &sent).await;
    let Outcome::Cancelled { output: Some(output) } = outcome else { panic!("{outcome:?}") };
    assert!(output.ends_with("bye\n"), "the command could still print after TERM: {output}");
    for pid in &pids {
        gone(pid).await;
    }
}

#[tokio::test]
async fn a_group_that_ignores_term_is_killed_after_the_grace_period() {
    let sent = script("trap '' TERM; echo $$; sh -c 'echo $$; exec sleep 1000' & wait; sleep 1000");
    let (pids, outcome) = cancelled_after(2, &sent).await;
    assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
    assert!(is_gone(&pids[0]), "the command has ended before the outcome is returned");
    gone(&pids[1]).await;
}

#[tokio::test]
async fn a_child_may_use_the_grace_period_after_its_parent_has_ended() {
    let child = "trap 'echo child done; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let sent = script(&format!("sh -c \"{child}\" & trap 'exit 0' TERM; wait"));
    let (_, outcome) = cancelled_after(1, &sent).await;
    let Outcome::Cancelled { output: Some(output) } = outcome else { panic!("{outcome:?}") };
    assert!(output.contains("child done"), "{output}");
}

#[tokio::test]
async fn a_command_that_exceeds_its_timeout_is_stopped_with_its_children() {
    let after = Span::millis(400);
    let sent = Dispatch { timeout: after, ..script("sleep 1000 & echo $!; wait") };
    let outcome = within("the time-out", deliver(&sent)).await;
    let Outcome::TimedOut { after: reported, output: Some(pid) } = outcome else { panic!("{outcome:?}") };
    assert_eq!(reported, after);
    gone(pid.trim()).await;
}

#[tokio::test]
async fn an_endless_output_does_not_outlive_the_timeout() {
    let after = Span::millis(400);
    let outcome = within("the time-out", deliver(&Dispatch { timeout: after, ..argv(&["yes"]) })).await;
    let Outcome::TimedOut { output: Some(output), .. } = outcome else { panic!("{outcome:?}") };
    assert!(output.len() <= OUTPUT_TAIL_BYTES_MAX && split(&output).0 > 0);
}

#[tokio::test]
async fn a_run_cancelled_before_delivery_starts_no_command() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("started");
    let sent = argv(&["touch", file.to_str().unwrap()]);
    assert_eq!(targets().deliver(&sent, &Discard, &cancel).await, Outcome::Cancelled { output: None });
    assert!(!file.exists());
}

#[tokio::test]
async fn background_processes_in_the_group_end_with_the_command() {
    for leaving in ["sleep 1000 & echo $!", "sleep 1000 >/dev/null 2>&1 & echo $!"] {
        let outcome = within("the end of the delivery although a pipe is open", deliver(&script(leaving))).await;
        let Outcome::Succeeded { output: Some(pid) } = outcome else { panic!("{outcome:?}") };
        gone(pid.trim()).await;
    }
}

#[tokio::test]
async fn a_daemon_in_its_own_session_does_not_delay_the_outcome_and_survives() {
    let dir = tempfile::tempdir().unwrap();
    let mut sent =
        script("setsid sh -c 'echo $$; touch there; exec sleep 60' & until [ -e there ]; do sleep 0.01; done");
    let TargetSpec::Shell(spec) = &mut sent.target else { panic!() };
    spec.workdir = Some(dir.path().to_str().unwrap().to_owned());
    let outcome = within("the end of the delivery although a pipe is open", deliver(&sent)).await;
    let Outcome::Succeeded { output: Some(pid) } = outcome else { panic!("{outcome:?}") };
    assert!(!is_gone(pid.trim()), "a process that leaves the group survives");
    let killed = std::process::Command::new("sh").args(["-c", "kill -9 \"$0\"", pid.trim()]).status().unwrap();
    assert!(killed.success());
}

#[tokio::test]
async fn output_of_a_child_after_the_end_of_the_command_is_kept() {
    let sent = script("(read line; echo late $line) <<EOF & \nword\nEOF\nexit 0");
    assert_eq!(deliver(&sent).await, succeeded("late word\n"));
}

#[tokio::test]
async fn dropping_the_delivery_kills_the_group() {
    let live = Arc::new(LiveLines::default());
    let task = tokio::spawn({
        let live = Arc::clone(&live);
        async move {
            let sent = script("trap '' TERM; sleep 1000 & echo $$; echo $!; wait");
            targets().deliver(&sent, &*live, &CancellationToken::new()).await
        }
    });
    let pids = live.lines(2).await;
    task.abort();
    for pid in &pids {
        gone(pid).await;
    }
}

#[tokio::test]
async fn commands_are_refused_unless_the_operator_enables_shell() {
    let without = started(TargetSettings::default());
    let outcome = without.deliver(&script("true"), &Discard, &CancellationToken::new()).await;
    let error = "shell targets are not enabled on this node; start it with --enable-shell".to_owned();
    assert_eq!(outcome, Outcome::NotHere { error, address: None });
    assert!(without.capabilities().kinds.is_empty());
}
