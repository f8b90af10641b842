//! Commands that outlive a killed server.

use crate::support::{Server, wait_for};

#[test]
fn a_command_that_outlived_its_server_is_killed_before_the_next_attempt_starts() {
    let server = Server::builder().flags(&["--enable-shell"]).start();
    let script = "echo $$ >> pids; trap '' TERM; while :; do sleep 1; done > /dev/null 2>&1";
    let workdir = server.dir().to_str().unwrap().to_owned();
    server.everytick(&["job", "create", "long", "--shell", script, "--workdir", &workdir]).ok();
    server.everytick(&["job", "trigger", "long"]).ok();
    let pids = server.dir().join("pids");
    let read = || std::fs::read_to_string(&pids).unwrap_or_default().lines().map(ToOwned::to_owned).collect::<Vec<_>>();
    let first = wait_for("the command to start", || read().first().cloned());
    // A zombie, which is not reaped yet, has an empty command line.
    let alive = |pid: &str| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    assert!(alive(&first));

    let server = Server::builder().flags(&["--enable-shell"]).dir(server.kill()).start();
    wait_for("the second attempt", || (read().len() == 2).then_some(()));
    assert!(!alive(&first), "the process of the first attempt has ended when the second runs");
    // Kill the remaining commands. The directory is removed with the server.
    let left = read();
    drop(server.kill());
    for pid in left {
        let _ = std::process::Command::new("kill").args(["-9", &pid]).status();
    }
}
