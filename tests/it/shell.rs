//! Commands that the section `[shell]` isolates: another user, limits, allowed programs, and no process that survives. As root,
//! the commands get a user of their own. Without root, the tests that need one say so and check nothing.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    process::Stdio,
};

use crate::support::{Done, Server, everytick_command, pause, wait_for};

/// Whether this process may change users. Prints why a test checks nothing.
fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("{test}: skipped, because only root can start commands as another user");
    }
    root
}

/// A server with this section `[shell]`. Other users may enter its folder, but not its data.
fn serve(section: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.path().join("everytick.toml"), format!("[shell]\n{section}\n")).unwrap();
    Server::builder().flags(&["--enable-shell"]).dir(dir).start()
}

/// Runs `serve` with this section, which must refuse to start.
fn refused(section: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("everytick.toml"), format!("[shell]\n{section}\n")).unwrap();
    let mut serve = everytick_command(dir.path());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--enable-shell"]);
    Done::from(serve.stdin(Stdio::null()).output().unwrap()).failed(2)
}

/// Creates and triggers a job, and returns its run.
fn triggered(server: &Server, flags: &[&str]) -> String {
    let jobs = server.everytick(&["job", "list", "-o", "json"]).json()["items"].as_array().unwrap().len();
    let name = format!("job-{jobs}");
    server.everytick(&[&["job", "create", &name], flags].concat()).ok();
    server.everytick(&["job", "trigger", &name]).ok().trim().to_owned()
}

/// Waits for the end of a run: its state, and its output or error.
fn ended(server: &Server, run: &str) -> (String, String, String) {
    wait_for("the end of a run", || {
        let run = server.everytick(&["run", "get", run, "-o", "json"]).json();
        let text = |field: &str| run[field].as_str().unwrap_or_default().to_owned();
        (!["waiting", "claimed"].contains(&text("state").as_str()))
            .then(|| (text("state"), text("output"), text("error")))
    })
}

/// Whether a process has ended. A zombie, which is not reaped yet, has an empty command line.
fn is_gone(pid: &str) -> bool {
    !fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// The number of processes of a user.
fn processes_of(uid: u32) -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let theirs = all.filter(|entry| entry.metadata().is_ok_and(|found| found.uid() == uid));
    let names = theirs.filter_map(|entry| entry.file_name().to_str().map(str::to_owned));
    names.filter(|name| name.parse::<u32>().is_ok() && !is_gone(name)).count()
}

#[test]
fn commands_of_another_user_cannot_read_or_harm_the_server() {
    if !is_root("commands_of_another_user_cannot_read_or_harm_the_server") {
        return;
    }
    let server = serve("user = \"nobody\"");
    assert!(!server.log().contains("commands run as the user of this server"), "{}", server.log());
    let (pid, data) = (server.pid(), server.dir().join("data").display().to_string());
    let other = triggered(&server, &["--shell", "echo other; sleep 1000"]);
    let supervisor = wait_for("the other command", || {
        let found = fs::read_dir("/proc").unwrap().flatten().find(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("exec-command") && line.contains(&other)
        });
        found.map(|entry| entry.file_name().to_str().unwrap().to_owned())
    });
    let script = format!(
        "id -u; id -G; pwd; \
         for file in {data}/everytick.db /proc/{pid}/environ /proc/{pid}/fd/0 /proc/{pid}/mem /proc/$PPID/environ \
         /proc/$PPID/mem /proc/{supervisor}/environ /proc/{supervisor}/fd/1 /proc/{supervisor}/mem; do \
         cat $file >/dev/null 2>&1 && echo read $file; done; \
         for process in {pid} $PPID {supervisor}; do kill -9 $process 2>/dev/null && echo killed $process; done; \
         grep -E '^(CapEff|CapPrm|CapAmb|NoNewPrivs)' /proc/self/status; env | sort"
    );
    let run = triggered(&server, &["--shell", &script]);
    let (state, output, error) = ended(&server, &run);
    assert_eq!(state, "succeeded", "{error} {output}");
    assert!(output.starts_with("65534\n65534\n/\n"), "{output}");
    assert!(!output.contains("read ") && !output.contains("killed "), "{output}");
    for line in
        ["CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"]
    {
        assert!(output.contains(line), "{line}: {output}");
    }
    assert!(output.contains("\nUSER=nobody\n") && output.contains("\nHOME="), "{output}");
    let owner = output.lines().find_map(|line| line.strip_prefix("EVERYTICK_OWNER=")).unwrap();
    assert!(!owner.contains('/') && !owner.contains("everytick"), "opaque: {owner}");
    server.everytick(&["run", "cancel", &other]).ok();
    assert_eq!(ended(&server, &other).0, "cancelled");
}

#[test]
fn a_process_in_its_own_session_is_gone_after_success_timeout_cancel_and_kill() {
    let daemon =
        "setsid sh -c 'echo $$ >pid; exec sleep 1000' >/dev/null 2>&1 & until [ -s pid ]; do sleep 0.01; done;";
    let sections: &[&str] = if rustix::process::geteuid().is_root() { &["", "user = \"nobody\""] } else { &[""] };
    for section in sections {
        let server = serve(section);
        let folder = |name: &str| {
            let path = server.dir().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            path
        };
        let pid = |folder: &Path| {
            wait_for("the pid", || fs::read_to_string(folder.join("pid")).ok().filter(|pid| pid.ends_with('\n')))
        };
        let start = |name: &str, then: &str, flags: &[&str]| {
            let folder = folder(name);
            let script = format!("{daemon} {then}");
            let common = ["--shell", script.as_str(), "--workdir", folder.to_str().unwrap()];
            (triggered(&server, &[&common, flags].concat()), folder.clone())
        };
        let (run, at) = start("succeeds", "true", &[]);
        assert_eq!(ended(&server, &run).0, "succeeded");
        assert!(is_gone(pid(&at).trim()), "after success");
        let (run, at) = start("times-out", "sleep 1000", &["--timeout", "2s", "--max-retries", "0"]);
        assert_eq!(ended(&server, &run).0, "failed");
        assert!(is_gone(pid(&at).trim()), "after a time-out");
        let (run, at) = start("is-cancelled", "sleep 1000", &[]);
        let started = pid(&at);
        server.everytick(&["run", "cancel", &run]).ok();
        assert_eq!(ended(&server, &run).0, "cancelled");
        wait_for("the end after a cancel", || is_gone(started.trim()).then_some(()));
        let (_, at) = start("is-killed", "sleep 1000", &[]);
        let started = pid(&at);
        assert!(!is_gone(started.trim()));
        drop(server.kill());
        wait_for("the end after the server was killed", || is_gone(started.trim()).then_some(()));
    }
}

#[test]
fn a_fork_bomb_stays_within_its_limit_and_ends_with_its_run() {
    if !is_root("a_fork_bomb_stays_within_its_limit_and_ends_with_its_run") {
        return;
    }
    // A user of its own, because the limit counts all processes of a user.
    const UID: u32 = 63_217;
    let server = serve(&format!("user = {UID}\ngroups = [{UID}]\nlimits = {{ nproc = 30 }}"));
    let bomb = "bomb() { bomb | bomb & }; bomb; sleep 1000";
    let run = triggered(&server, &["--shell", bomb, "--timeout", "4s", "--max-retries", "0"]);
    let mut most = 0;
    let (state, ..) = loop {
        most = most.max(processes_of(UID));
        let now = server.everytick(&["run", "get", &run, "-o", "json"]).json();
        if !["waiting", "claimed"].contains(&now["state"].as_str().unwrap()) {
            break ended(&server, &run);
        }
        pause(std::time::Duration::from_millis(20));
    };
    assert_eq!(state, "failed");
    // A shell that cannot fork may end before the first look.
    assert!(most <= 30, "{most} processes at once");
    wait_for("the end of the bomb", || (processes_of(UID) == 0).then_some(()));
}

/// A program below a folder that the operator allows.
fn program(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, "#!/bin/sh\necho mine $1\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn only_allowed_programs_are_accepted_and_started() {
    let jobs = tempfile::tempdir().unwrap();
    let folder = jobs.path().canonicalize().unwrap();
    let mine = program(&folder, "mine");
    let server = serve(&format!("allow = [\"{}/*\"]", folder.display()));
    let create = |name: &str, flags: &[&str]| server.everytick(&[&["job", "create", name], flags].concat());
    let mine = mine.to_str().unwrap();
    create("mine", &["--", mine, "hello"]).ok();
    for (flags, expected) in [
        (&["--", "/bin/sh", "-c", "true"][..], "is not a program that the operator allows"),
        (&["--shell", "true"], "is a script, which the operator does not allow"),
        (&["--env", "LD_PRELOAD=/tmp/x.so", "--", mine], "can make an allowed program run other code"),
    ] {
        let message = create("other", flags).failed(1);
        assert!(message.contains(expected) && message.contains("target.shell."), "{message}");
    }
    let message = server.everytick(&["job", "update", "mine", "--", "/bin/echo"]).failed(1);
    assert!(message.contains("is not a program that the operator allows"), "{message}");
    let run = server.everytick(&["job", "trigger", "mine"]).ok();
    assert_eq!(ended(&server, run.trim()).1, "mine hello\n");
    // The file changes after the definition.
    fs::remove_file(mine).unwrap();
    symlink("/bin/echo", mine).unwrap();
    let run = server.everytick(&["job", "trigger", "mine"]).ok();
    let (state, output, error) = ended(&server, run.trim());
    assert_eq!((state.as_str(), output.as_str()), ("failed", ""));
    assert!(error.contains("is not a program that the operator allows"), "{error}");
}

#[test]
fn a_server_that_cannot_isolate_commands_refuses_to_start() {
    for (section, expected) in [
        ("user = \"no-such-user\"", "line 1: shell: user: \"no-such-user\" is not a user of this host"),
        ("user = \"root\"", "is root"),
        ("pids_max = 7", "pids_max has no effect without cgroup"),
        ("cgroup = \"/nonexistent/group\"", "commands cannot be isolated: could not supervise the command"),
    ] {
        let message = refused(section);
        assert!(message.contains(expected), "{section}: {message}");
    }
}

#[test]
fn a_server_without_the_rights_to_change_the_user_refuses_to_start() {
    const NOBODY: u32 = 65_534;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = dir.path().join("everytick");
    fs::copy(env!("CARGO_BIN_EXE_everytick"), &binary).unwrap();
    fs::write(dir.path().join("everytick.toml"), "[shell]\nuser = \"daemon\"\n").unwrap();
    let mut serve = std::process::Command::new(&binary);
    serve.args(["serve", "--listen", "127.0.0.1:0", "--enable-shell"]).env_clear().current_dir(dir.path());
    if rustix::process::geteuid().is_root() {
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        chown(dir.path().join("everytick.toml"), Some(NOBODY), Some(NOBODY)).unwrap();
        std::os::unix::process::CommandExt::uid(&mut serve, NOBODY);
    }
    let message = Done::from(serve.stdin(Stdio::null()).output().unwrap()).failed(2);
    assert!(message.contains("commands cannot run as daemon") && message.contains("CAP_SETUID"), "{message}");
}

#[test]
fn without_a_user_the_log_warns_that_commands_can_read_the_database() {
    let server = Server::builder().flags(&["--enable-shell"]).start();
    server.wait_for_log("commands run as the user of this server and can read the database file");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("everytick.toml"), "[shell]\nscripts = false\n").unwrap();
    let server = Server::builder().dir(dir).start();
    server.wait_for_log("the section [shell] starts no commands");
}

/// The mount point of a cgroup v2 hierarchy in which this process may create groups.
fn cgroup() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mut points = mounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields.get(2) == Some(&"cgroup2")).then(|| PathBuf::from(fields[1]))
    });
    let parent = points.next()?.join(format!("everytick-test-{}", std::process::id()));
    fs::create_dir(&parent).ok()?;
    Some(parent)
}

#[test]
fn a_command_has_a_control_group_that_is_removed_with_it() {
    let Some(parent) = cgroup() else {
        eprintln!(
            "a_command_has_a_control_group_that_is_removed_with_it: skipped, because no cgroup v2 can be created here"
        );
        return;
    };
    let controllers = fs::read_to_string(parent.join("cgroup.controllers")).unwrap();
    let has_pids = controllers.split_whitespace().any(|name| name == "pids");
    let limit = if has_pids { "\npids_max = 20" } else { "" };
    let server = serve(&format!("cgroup = \"{}\"{limit}", parent.display()));
    let script = "setsid sleep 1000 >/dev/null 2>&1 & grep ^0:: /proc/self/cgroup";
    let run = triggered(&server, &["--shell", script]);
    let (state, output, error) = ended(&server, &run);
    assert_eq!(state, "succeeded", "{error}");
    assert!(output.contains("/everytick-") && output.contains(&run), "{output}");
    let groups = || fs::read_dir(&parent).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    wait_for("the end of the group", || (groups() == 0).then_some(()));
    // A killed server leaves its groups to the next one.
    fs::create_dir(parent.join(output.trim().rsplit('/').next().unwrap())).unwrap();
    let server = Server::builder().flags(&["--enable-shell"]).dir(server.kill()).start();
    assert_eq!(groups(), 0, "removed at the start");
    drop(server);
    fs::remove_dir(&parent).unwrap();
}

#[test]
fn a_command_can_run_in_a_scope_of_systemd() {
    let works =
        std::process::Command::new("systemd-run").args(["--scope", "--quiet", "true"]).stdin(Stdio::null()).output();
    if works.is_ok_and(|done| done.status.success()) {
        let server = serve("systemd_run = true\npids_max = 50");
        let run = triggered(&server, &["--shell", "cat /proc/self/cgroup"]);
        let (state, output, error) = ended(&server, &run);
        assert_eq!(state, "succeeded", "{error}");
        assert!(output.contains(".scope"), "{output}");
    } else {
        // Without systemd as the init process, the check at the start must say so.
        let message = refused("systemd_run = true");
        assert!(message.contains("commands cannot be isolated: "), "{message}");
    }
}
