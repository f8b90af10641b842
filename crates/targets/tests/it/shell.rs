//! Commands: their start, input and environment, the outcome by exit status, and that no process is left behind.

use std::{collections::BTreeMap, os::unix::fs::MetadataExt as _, path::PathBuf, sync::Arc, time::Duration};

use everytick_domain::output::split;
use everytick_domain::{
    target::{Command, Outcome, Retry, ShellTarget, TargetSpec},
    time::Span,
};
use everytick_targets::{
    Cgroup, CgroupPlace, CommandPolicy, CommandUser, Discard, Dispatch, Isolation, OUTPUT_TAIL_BYTES_MAX,
    ProcessLimits, ShellSettings, Stream, Target, TargetSettings, may_change_user, refused_receiver,
};
use tokio_util::sync::CancellationToken;

use crate::support::{LiveLines, deliver, dispatch, shell, started, targets, within};

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

/// A script that starts a process in a session of its own, waits until it runs, and prints its pid.
fn with_daemon(dir: &std::path::Path, then: &str) -> Dispatch {
    let started = dir.join("started").display().to_string();
    let daemon = format!("setsid sh -c 'echo $$; touch {started}; exec sleep 1000' >{started}.pid 2>&1 &");
    script(&format!("{daemon} until [ -e {started} ]; do sleep 0.01; done; cat {started}.pid; {then}"))
}

#[tokio::test]
async fn a_daemon_in_its_own_session_ends_with_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = within("the end of the delivery", deliver(&with_daemon(dir.path(), "true"))).await;
    let Outcome::Succeeded { output: Some(pid) } = outcome else { panic!("{outcome:?}") };
    assert!(is_gone(pid.trim()), "before the outcome is returned");

    let dir = tempfile::tempdir().unwrap();
    let after = Span::millis(1_500);
    let sent = Dispatch { timeout: after, ..with_daemon(dir.path(), "sleep 1000") };
    let outcome = within("the time-out", deliver(&sent)).await;
    let Outcome::TimedOut { output: Some(pid), .. } = outcome else { panic!("{outcome:?}") };
    assert!(is_gone(pid.trim()), "after a time-out");

    let dir = tempfile::tempdir().unwrap();
    let (pids, outcome) = cancelled_after(1, &with_daemon(dir.path(), "sleep 1000")).await;
    assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
    assert!(is_gone(&pids[0]), "after a cancel");
}

#[tokio::test]
async fn processes_that_fork_all_the_time_end_with_the_command() {
    // Each generation starts the next one in a new session and ends. No search sees all of them.
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("forks");
    std::fs::write(&program, "#!/bin/sh\necho x >>$1\nsetsid $0 $1 &\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let count = dir.path().join("count");
    let (program, count) = (program.display(), count.display());
    let sent = script(&format!("{program} {count} & until [ \"$(wc -l <{count})\" -gt 9 ]; do sleep 0.01; done"));
    let outcome = within("the end of the delivery", deliver(&sent)).await;
    assert!(matches!(outcome, Outcome::Succeeded { .. }), "{outcome:?}");
    let forked = || std::fs::metadata(dir.path().join("count")).unwrap().len();
    let before = forked();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(forked(), before, "nothing forks any more");
}

#[tokio::test]
async fn a_command_cannot_gain_privileges_and_sees_no_socket_of_its_supervisor() {
    let outcome = deliver(&script("grep NoNewPrivs /proc/self/status; ls -l /proc/self/fd | grep -c socket")).await;
    let Outcome::Failed { output: Some(output), error, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((output.as_str(), error.as_str()), ("NoNewPrivs:\t1\n0\n", "exit code 1"), "grep found nothing");
}

#[tokio::test]
async fn variables_of_a_job_do_not_reach_the_supervisor() {
    let mut sent = script("cat /proc/$PPID/environ | tr '\\0' '\\n'; echo; tr '\\0' ' ' </proc/$PPID/cmdline");
    let TargetSpec::Shell(spec) = &mut sent.target else { panic!() };
    spec.env = [("REPORT".to_owned(), "hunter2".to_owned())].into();
    let Outcome::Succeeded { output: Some(output) } = deliver(&sent).await else { panic!() };
    assert!(output.contains("everytick exec-command supervise"), "{output}");
    assert!(!output.contains("hunter2") && !output.contains("REPORT"), "{output}");
}

#[tokio::test]
async fn limits_apply_to_the_command_and_cannot_be_raised() {
    let limits = ProcessLimits { nofile: Some(64), fsize: Some(4096), core: Some(0), ..ProcessLimits::default() };
    let isolation = Isolation { limits, ..Isolation::default() };
    let shell = Some(ShellSettings { isolation, ..shell() });
    let targets = started(TargetSettings { shell, ..TargetSettings::default() });
    let sent = script("ulimit -n; ulimit -c; ulimit -H -n; head -c 9000 /dev/zero >big; echo $?");
    let dir = tempfile::tempdir().unwrap();
    let mut sent = sent;
    let TargetSpec::Shell(spec) = &mut sent.target else { panic!() };
    spec.workdir = Some(dir.path().display().to_string());
    let outcome = targets.deliver(&sent, &Discard, &CancellationToken::new()).await;
    let Outcome::Succeeded { output: Some(output) } = outcome else { panic!("{outcome:?}") };
    // `head` is killed by a signal, or fails if that signal is ignored.
    assert!(output.starts_with("64\n0\n64\n") && !output.ends_with("\n0\n"), "{output}");
    assert_eq!(std::fs::metadata(dir.path().join("big")).unwrap().len(), 4096);
}

/// Commands of another user; `None` if this process may not start them. Prints why a test checks nothing.
fn of_user(test: &str, uid: u32, limits: ProcessLimits) -> Option<ShellSettings> {
    if may_change_user().is_err() {
        eprintln!("{test}: skipped, because only root can start commands as another user");
        return None;
    }
    let user =
        CommandUser { name: "job".to_owned(), uid, gid: uid, groups: vec![uid + 1], home: "/nonexistent".into() };
    Some(ShellSettings { isolation: Isolation { user: Some(user), limits, ..Isolation::default() }, ..shell() })
}

#[tokio::test]
async fn a_command_of_another_user_has_no_rights_of_the_server() {
    const UID: u32 = 63_101;
    let Some(shell) = of_user("a_command_of_another_user_has_no_rights_of_the_server", UID, Default::default()) else {
        return;
    };
    assert_eq!(shell.probe().await, Ok(()));
    let private = tempfile::tempdir().unwrap();
    let secret = private.path().join("secret");
    std::fs::write(&secret, "hunter2").unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (secret, server) = (secret.display(), std::process::id());
    let sent = script(&format!(
        "id -u; id -g; id -G; pwd; echo $USER $HOME; \
         for file in {secret} /proc/{server}/environ /proc/$PPID/environ /proc/$PPID/mem /proc/$PPID/fd/0; do \
         cat $file >/dev/null 2>&1 && echo read $file; done; \
         for process in {server} $PPID; do kill -9 $process 2>/dev/null && echo killed $process; done; \
         grep -c -E '^Cap(Inh|Prm|Eff|Amb):.0000000000000000$' /proc/self/status; \
         grep NoNewPrivs /proc/self/status"
    ));
    let targets = started(TargetSettings { shell: Some(shell), ..TargetSettings::default() });
    let outcome = targets.deliver(&sent, &Discard, &CancellationToken::new()).await;
    let Outcome::Succeeded { output: Some(output) } = outcome else { panic!("{outcome:?}") };
    let expected = format!("{UID}\n{UID}\n{UID} {}\n/\njob /nonexistent\n4\nNoNewPrivs:\t1\n", UID + 1);
    assert_eq!(output, expected);
}

#[tokio::test]
async fn a_fork_bomb_stays_within_its_limit_and_ends_with_the_command() {
    // A user of its own, because the limit counts all processes of a user.
    const UID: u32 = 63_103;
    let limits = ProcessLimits { nproc: Some(30), ..ProcessLimits::default() };
    let Some(shell) = of_user("a_fork_bomb_stays_within_its_limit_and_ends_with_the_command", UID, limits) else {
        return;
    };
    let targets = started(TargetSettings { shell: Some(shell), ..TargetSettings::default() });
    let sent = script("while :; do sleep 1000 & done");
    let count = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let theirs = all.filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == UID));
        let pids = theirs.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| !is_gone(&pid.to_string())).count()
    };
    let ended = CancellationToken::new();
    let (outcome, most) = tokio::join!(
        async {
            let outcome = targets.deliver(&sent, &Discard, &CancellationToken::new()).await;
            ended.cancel();
            outcome
        },
        async {
            let mut most = 0;
            while !ended.is_cancelled() {
                most = most.max(count());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            most
        }
    );
    // The shell ends when the kernel refuses a process. Without the limit it would continue until the time-out.
    let Outcome::Failed { output: Some(output), .. } = outcome else { panic!("{outcome:?}") };
    assert!(output.to_lowercase().contains("fork"), "{output}");
    assert!(most <= 30, "{most} processes at once");
    within("the end of all processes", async {
        while count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_command_ends_with_its_supervisor() {
    // Without a user of its own, a command can kill its supervisor.
    let outcome = within("the end", deliver(&script("echo $$; kill -9 $PPID; sleep 1000"))).await;
    let Outcome::Failed { error, output: Some(pid), retry: Retry::Allowed } = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("the process that supervises the command ended early"), "{error}");
    gone(pid.trim()).await;
}

/// A folder of a cgroup v2 hierarchy in which this process may create groups.
fn cgroup() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let mut points = mounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(fields[1]))
    });
    let parent = points.next()?.join(format!("everytick-targets-{}", std::process::id()));
    std::fs::create_dir(&parent).ok()?;
    Some(parent)
}

#[tokio::test]
async fn a_command_has_a_control_group_that_ends_with_it() {
    let Some(parent) = cgroup() else {
        eprintln!("a_command_has_a_control_group_that_ends_with_it: skipped, because no cgroup v2 can be created here");
        return;
    };
    let controllers = std::fs::read_to_string(parent.join("cgroup.controllers")).unwrap();
    let pids_max = controllers.split_whitespace().any(|name| name == "pids").then_some(20);
    let cgroup = Cgroup { place: CgroupPlace::Directory(parent.clone()), memory_max: None, pids_max, cpu_max: None };
    let isolation = Isolation { cgroup: Some(cgroup), ..Isolation::default() };
    let shell = ShellSettings { isolation, ..shell() };
    // A killed server leaves its groups behind. Those of a server that lives stay; it has the name of this process.
    std::fs::create_dir(parent.join("everytick-4194304-left")).unwrap();
    assert_eq!(shell.probe().await, Ok(()));
    let groups = || std::fs::read_dir(&parent).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    // The check removes what a dead server left. Its own group goes with its supervisor, which may still be ending.
    while groups() > 0 {
        tokio::task::yield_now().await;
    }
    let targets = started(TargetSettings { shell: Some(shell), ..TargetSettings::default() });
    let sent = script("setsid sleep 1000 >/dev/null 2>&1 & grep ^0:: /proc/self/cgroup");
    let outcome = targets.deliver(&sent, &Discard, &CancellationToken::new()).await;
    let Outcome::Succeeded { output: Some(output) } = outcome else { panic!("{outcome:?}") };
    assert!(output.contains(&format!("/everytick-{}-{}-41", std::process::id(), sent.run)), "{output}");
    while groups() > 0 {
        tokio::task::yield_now().await;
    }
    std::fs::remove_dir(&parent).unwrap();
}

/// The command itself ends with its supervisor. What it started must end too, or the next attempt could run beside it.
#[tokio::test]
async fn what_a_killed_supervisor_leaves_ends_with_the_attempt() {
    let shell = ShellSettings { owner: Some("a killed supervisor".to_owned()), ..shell() };
    let targets = started(TargetSettings { shell: Some(shell), ..TargetSettings::default() });
    let sent = script("setsid sleep 1000 >/dev/null 2>&1 & echo $!; kill -9 $PPID; sleep 1000");
    let outcome = targets.deliver(&sent, &Discard, &CancellationToken::new()).await;
    let Outcome::Failed { error, output: Some(output), .. } = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("the process that supervises"), "{error}");
    let environment = format!("/proc/{}/environ", output.trim());
    // The environment of a process that has ended is empty.
    while std::fs::read(&environment).is_ok_and(|found| !found.is_empty()) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_program_that_the_operator_does_not_allow_is_refused_at_the_definition_and_fails_a_delivery() {
    let commands = CommandPolicy { allow: Some(vec!["/usr/bin/*".parse().unwrap()]), scripts: false };
    let settings = TargetSettings { shell: Some(shell()), commands, ..TargetSettings::default() };
    let targets = started(settings.clone());
    let send = async |sent: &Dispatch| targets.deliver(sent, &Discard, &CancellationToken::new()).await;
    let echo = argv(&["echo", "hello"]);
    assert_eq!(send(&echo).await, succeeded("hello\n"));
    assert!(refused_receiver(&echo.target, &settings).is_empty());
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("mine");
    std::fs::copy("/bin/true", &mine).unwrap();
    for (sent, why) in [
        (argv(&[mine.to_str().unwrap()]), "is not a program that the operator allows"),
        (script("echo hello"), "is a script, which the operator does not allow"),
    ] {
        let found = refused_receiver(&sent.target, &settings);
        assert_eq!((found.len(), found[0].field.as_str()), (1, "target.shell.command"));
        assert!(found[0].message.contains(why), "{}", found[0]);
        let outcome = send(&sent).await;
        let Outcome::Failed { error, retry: Retry::Never, .. } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn the_check_at_the_start_finds_what_commands_lack() {
    assert_eq!(shell().probe().await, Ok(()));
    let place = CgroupPlace::Directory("/nonexistent/group".into());
    let cgroup = Some(Cgroup { place, memory_max: None, pids_max: None, cpu_max: None });
    let isolation = Isolation { cgroup, ..Isolation::default() };
    let error = ShellSettings { isolation, ..shell() }.probe().await.unwrap_err();
    assert!(error.contains("could not supervise the command: "), "{error}");
    let launcher = "/nonexistent/everytick".into();
    assert!(ShellSettings { launcher, ..shell() }.probe().await.is_err());
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
