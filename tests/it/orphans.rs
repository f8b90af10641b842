//! Commands that outlive a server that was killed.

use crate::support::{Server, wait_for};

#[test]
fn a_command_that_outlived_its_server_is_ended_before_the_next_attempt_runs() {
    let server = Server::builder().flags(&["--enable-shell"]).start();
    let script = "echo $$ >> pids; trap '' TERM; while :; do sleep 1; done > /dev/null 2>&1";
    let workdir = server.dir().to_str().unwrap().to_owned();
    server.everytick(&["job", "create", "long", "--shell", script, "--workdir", &workdir]).ok();
    server.everytick(&["job", "trigger", "long"]).ok();
    let pids = server.dir().join("pids");
    let read = || std::fs::read_to_string(&pids).unwrap_or_default().lines().map(ToOwned::to_owned).collect::<Vec<_>>();
    let first = wait_for("the command to start", || read().first().cloned());
    // What nobody has reaped yet has no command line any more.
    let alive = |pid: &str| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
    assert!(alive(&first));

    let server = Server::builder().flags(&["--enable-shell"]).dir(server.kill()).start();
    wait_for("the second attempt", || (read().len() == 2).then_some(()));
    assert!(!alive(&first), "the first attempt is gone when the second runs");
    // What this test leaves behind it ends itself; its folder goes with the server.
    let left = read();
    drop(server.kill());
    for pid in left {
        let _ = std::process::Command::new("kill").args(["-9", &pid]).status();
    }
}
