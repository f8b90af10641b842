//! The starter: takes on the user, the limits and the control group of a command, and then becomes the command. It gives up its
//! rights before it looks at anything that a job chose, such as the working directory.

use std::{
    convert::Infallible,
    env,
    ffi::OsString,
    fs::File,
    io::{self, Seek as _, Write as _},
    os::unix::{ffi::OsStringExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::fcntl_dupfd_cloexec,
    process::{
        Gid, Resource, Rlimit, Signal, Uid, geteuid, getrlimit, getuid, set_parent_process_death_signal, setrlimit,
    },
    stdio::stdin,
    thread::{
        CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
        set_thread_groups, set_thread_res_gid, set_thread_res_uid, set_thread_uid,
    },
};

use super::{CONTROL_FD_MIN, Order, Report, Step, cgroup, read_bytes, read_frame, why_not};
use crate::shell::isolation::{CommandUser, Isolation, ProcessLimits};

pub(super) fn run() -> ExitCode {
    // `exec` replaces stdin, and a failure must still be reported. The command does not inherit this descriptor.
    let Ok(control) = fcntl_dupfd_cloexec(stdin(), CONTROL_FD_MIN) else { return ExitCode::FAILURE };
    let mut control = File::from(control);
    let Err(report) = start(&mut control);
    if let Ok(mut line) = serde_json::to_vec(&report) {
        line.push(b'\n');
        // The server may be gone.
        let _ = control.write_all(&line);
    }
    if report == Report::Ready { ExitCode::SUCCESS } else { ExitCode::from(127) }
}

fn refused<E: Into<io::Error>>(step: Step, what: impl Into<String>) -> impl FnOnce(E) -> Report {
    let what = what.into();
    move |error| {
        let error = error.into();
        Report::Refused { step, errno: error.raw_os_error().unwrap_or_default(), what: why_not(&what, &error) }
    }
}

fn isolate<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Report {
    refused(Step::Isolation, what)
}

fn start(control: &mut File) -> Result<Infallible, Report> {
    let order: Order = read_frame(control).map_err(isolate("read the order"))?;
    let payload = read_bytes(control).map_err(isolate("read the payload"))?;
    let mut command = Command::new(&order.program);
    command.arg0(&order.arg0).args(&order.args).env_clear();
    command.envs(order.env.into_iter().map(|(name, value)| (name, OsString::from_vec(value))));
    command.stdin(input(payload.as_deref()).map_err(isolate("store the payload"))?);

    cgroup::join().map_err(isolate("join the control group"))?;
    let Isolation { user, limits, .. } = &order.isolation;
    if let Some(user) = user {
        become_user(user).map_err(isolate(format!("become the user {}", user.name)))?;
    }
    // The kernel forgets this with the change of the user.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(isolate("follow the supervisor"))?;
    enter(order.workdir.as_deref(), &order.isolation).map_err(refused(Step::Workdir, "enter the workdir"))?;
    set_no_new_privs(true).map_err(isolate("forbid new privileges"))?;
    limit(limits).map_err(isolate("set the limits"))?;
    if order.probe {
        return Err(Report::Ready);
    }
    Err(refused(Step::Program, "start")(command.exec()))
}

/// The payload as a file in memory, which the command can read without a process that feeds it.
fn input(payload: Option<&[u8]>) -> io::Result<Stdio> {
    let Some(payload) = payload else { return Ok(Stdio::null()) };
    let mut file = File::from(memfd_create("payload", MemfdFlags::CLOEXEC)?);
    file.write_all(payload)?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

/// Changes groups and ids, drops every capability, and proves that there is no way back.
fn become_user(user: &CommandUser) -> io::Result<()> {
    let groups: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    // A server that is not root keeps its capabilities across the change, and ambient ones would survive `exec`.
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    let is_back = set_thread_uid(Uid::ROOT).is_ok();
    match is_back || getuid() != uid || geteuid() != uid {
        true => Err(io::Error::other("the change of the user can be undone")),
        false => Ok(()),
    }
}

/// Without a workdir, a command of another user starts in its home, or at the root if the home does not exist: the folder of the
/// server is not for this user.
fn enter(workdir: Option<&Path>, isolation: &Isolation) -> io::Result<()> {
    match (workdir, isolation.home()) {
        (Some(workdir), _) => env::set_current_dir(workdir),
        (None, Some(home)) => env::set_current_dir(home).or_else(|_| env::set_current_dir("/")),
        (None, None) => Ok(()),
    }
}

/// Limits only ever become stricter.
fn limit(limits: &ProcessLimits) -> io::Result<()> {
    let all = [
        (Resource::Nproc, limits.nproc),
        (Resource::Nofile, limits.nofile),
        (Resource::Fsize, limits.fsize),
        (Resource::Core, limits.core),
        (Resource::Cpu, limits.cpu),
        // The last one: this process itself may be larger.
        (Resource::As, limits.memory),
    ];
    for (resource, wanted) in all {
        let Some(wanted) = wanted else { continue };
        let most = getrlimit(resource).maximum.map_or(wanted, |most| most.min(wanted));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}
