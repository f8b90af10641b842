//! The supervisor of one command: adopts all its descendants, forwards signals, reports the end, and then kills whatever is
//! left. It keeps the user of the server, so a command of another user cannot harm it.

use std::{
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream as StdUnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use rustix::{
    io::{fcntl_dupfd_cloexec, write},
    process::{
        DumpableBehavior, Pid, Signal, WaitStatus, getpid, kill_process_group, set_child_subreaper,
        set_dumpable_behavior,
    },
    stdio::{dup2_stderr, dup2_stdout, stdin},
    thread::set_name,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::sleep,
};
use zeroize::Zeroizing;

use super::{
    CONTROL_FD_MIN, Charge, EXEC_COMMAND, REPORT_BYTES_MAX, Report, START, Step,
    cgroup::{self, Group},
    descendants::{Left, end_all, reap},
    payload_frame, read_bytes, read_frame, report, why_not,
};
use crate::shell::isolation::{Cgroup, CgroupPlace};

/// After the end of a command, its other processes are killed when the server closes the socket, and after this long at the
/// latest.
const LEFT_MAX: Duration = Duration::from_secs(30);
/// Signals that are forwarded to the process group of the command.
const FORWARDED: [(SignalKind, Signal); 6] = [
    (SignalKind::terminate(), Signal::TERM),
    (SignalKind::interrupt(), Signal::INT),
    (SignalKind::hangup(), Signal::HUP),
    (SignalKind::quit(), Signal::QUIT),
    (SignalKind::user_defined1(), Signal::USR1),
    (SignalKind::user_defined2(), Signal::USR2),
];
const FORWARDED_WAITING_MAX: usize = 16;

pub(super) fn run() -> ExitCode {
    let supervised =
        Builder::new_current_thread().enable_all().build().and_then(|runtime| runtime.block_on(supervise()));
    match supervised {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or_default();
            report(&Report::Refused { step: Step::Isolation, errno, what: why_not("supervise the command", &error) });
            ExitCode::FAILURE
        }
    }
}

async fn supervise() -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_name(c"everytick-run")?;
    let mut control = StdUnixStream::from(fcntl_dupfd_cloexec(stdin(), CONTROL_FD_MIN)?);
    let charge: Charge = read_frame(&mut control)?;
    let order = Zeroizing::new([payload_frame(read_bytes(&mut control)?), payload_frame(read_bytes(&mut control)?)]);
    control.set_nonblocking(true)?;
    let mut control = UnixStream::from_std(control)?;

    let group = Group::create(charge.cgroup.as_ref(), &charge.name)?;
    // Before the start, so that no signal and no end is missed.
    let mut child_ended = signal(SignalKind::child())?;
    let mut forwarded = forwarded()?;
    let (command, orders) = start(&charge, group.as_ref())?;
    silence()?;
    let mut started = tokio::spawn(give(orders, order));

    // Runs from the end of the command.
    let left = sleep(LEFT_MAX);
    tokio::pin!(left);
    let mut has_ended = false;
    let mut unexpected = [0];
    loop {
        tokio::select! {
            _ = child_ended.recv() => {
                let mut status = None;
                let remain = reap(|pid, ended| if pid == command { status = Some(ended) });
                if let Some(status) = status {
                    // Empty if the starter became the command.
                    match (&mut started).await {
                        Ok(refused) if !refused.is_empty() => drop(write(stdin(), &refused)), // the server may be gone
                        _ => report(&ended(status)),
                    }
                    has_ended = true;
                    left.set(sleep(LEFT_MAX));
                }
                if has_ended && remain == Left::Nothing {
                    break;
                }
            }
            Some(signal) = forwarded.recv() => drop(kill_process_group(command, signal)), // fails only if it has ended
            // The server closes the socket to end everything. It sends nothing more.
            _ = control.read(&mut unexpected) => break,
            () = &mut left, if has_ended => break,
        }
    }
    if let Some(group) = &group {
        group.kill();
    }
    end_all().await;
    Ok(())
}

/// Gives the starter its orders. Returns what it reports if it does not become the command.
async fn give(mut starter: UnixStream, orders: Zeroizing<[Vec<u8>; 2]>) -> Vec<u8> {
    let mut reported = Vec::new();
    for frame in orders.iter() {
        if starter.write_all(frame).await.is_err() {
            return reported;
        }
    }
    drop(orders);
    let _ = starter.take(REPORT_BYTES_MAX as u64).read_to_end(&mut reported).await;
    reported
}

fn ended(status: WaitStatus) -> Report {
    Report::Ended { code: status.exit_status(), signal: status.terminating_signal() }
}

/// Starts the starter, in a process group of its own: the command may signal its whole group. Also returns the socket for its
/// orders.
fn start(charge: &Charge, group: Option<&Group>) -> io::Result<(Pid, UnixStream)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut command = match &charge.cgroup {
        Some(cgroup @ Cgroup { place: CgroupPlace::SystemdRun, .. }) => in_scope(cgroup, &charge.name)?,
        _ => Command::new("/proc/self/exe"),
    };
    command.args([EXEC_COMMAND, START]);
    if let Some(group) = group {
        command.env(cgroup::JOIN, group.path());
    }
    let child = command.stdin(OwnedFd::from(theirs)).process_group(0).spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    Ok((pid, UnixStream::from_std(ours)?))
}

/// `systemd-run --scope` moves itself into a new scope and then becomes the starter.
fn in_scope(cgroup: &Cgroup, name: &str) -> io::Result<Command> {
    let mut command = Command::new("systemd-run");
    command.args(scope_args(cgroup, name, rustix::process::geteuid().is_root()));
    command.arg(std::env::current_exe()?);
    Ok(command)
}

fn scope_args(cgroup: &Cgroup, name: &str, is_root: bool) -> Vec<String> {
    let mut args = vec!["--scope".to_owned(), "--quiet".to_owned(), "--collect".to_owned(), format!("--unit={name}")];
    if !is_root {
        args.push("--user".to_owned());
    }
    let limits = [
        cgroup.memory_max.map(|bytes| format!("MemoryMax={bytes}")),
        cgroup.pids_max.map(|count| format!("TasksMax={count}")),
        cgroup.cpu_max.map(|percent| format!("CPUQuota={percent}%")),
    ];
    args.extend(limits.into_iter().flatten().map(|limit| format!("--property={limit}")));
    args.push("--".to_owned());
    args
}

/// Closes the pipes of the command in this process, so that they end with the command.
fn silence() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open(Path::new("/dev/null"))?;
    dup2_stdout(&nothing)?;
    dup2_stderr(&nothing)?;
    Ok(())
}

/// Receives the signals to forward.
fn forwarded() -> io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(FORWARDED_WAITING_MAX);
    for (kind, named) in FORWARDED {
        let (mut received, sender) = (signal(kind)?, sender.clone());
        tokio::spawn(async move { while received.recv().await.is_some() && sender.send(named).await.is_ok() {} });
    }
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_the_limits_of_the_operator() {
        let cgroup =
            Cgroup { place: CgroupPlace::SystemdRun, memory_max: Some(1 << 20), pids_max: Some(9), cpu_max: Some(150) };
        let args = scope_args(&cgroup, "everytick-a-1", true).join(" ");
        assert_eq!(
            args,
            "--scope --quiet --collect --unit=everytick-a-1 --property=MemoryMax=1048576 --property=TasksMax=9 \
             --property=CPUQuota=150% --"
        );
        assert!(scope_args(&cgroup, "a", false).contains(&"--user".to_owned()));
    }
}
