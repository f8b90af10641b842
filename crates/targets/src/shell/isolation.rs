//! What separates commands from their server and from each other: the operator's settings, and whether this process has the
//! rights that they need.

use std::{fmt, path::PathBuf};

use rustix::{
    process::geteuid,
    thread::{CapabilitySet, capabilities},
};
use serde::{Deserialize, Serialize};

/// The operator's rules for the processes of commands. The default changes neither user nor limits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Isolation {
    /// The user of commands. `None`: the user of the server.
    pub user: Option<CommandUser>,
    /// `HOME`, and the working directory of commands that name none. `None`: the home of `user`, if it is set.
    pub home: Option<PathBuf>,
    pub limits: ProcessLimits,
    pub cgroup: Option<Cgroup>,
}

impl Isolation {
    pub(super) fn home(&self) -> Option<&PathBuf> {
        self.home.as_ref().or(self.user.as_ref().map(|user| &user.home))
    }
}

/// A user of this host, as its ids: names are resolved once, at the start of the server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommandUser {
    /// For messages, `USER` and `LOGNAME`.
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
    pub home: PathBuf,
}

/// Limits of one process (`setrlimit`). `None`: as the server has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Processes of the user, not only of one command.
    pub nproc: Option<u64>,
    /// Open files.
    pub nofile: Option<u64>,
    /// Bytes of a file that a process writes.
    pub fsize: Option<u64>,
    /// Bytes of address space.
    pub memory: Option<u64>,
    /// Seconds of CPU time.
    pub cpu: Option<u64>,
    /// Bytes of a core file.
    pub core: Option<u64>,
}

/// A control group for each command, with limits for all its processes together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cgroup {
    pub place: CgroupPlace,
    pub memory_max: Option<u64>,
    pub pids_max: Option<u64>,
    /// Percent of one CPU.
    pub cpu_max: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CgroupPlace {
    /// A directory of cgroup v2 that is delegated to the server, in which each command gets its own.
    Directory(PathBuf),
    /// systemd creates a scope for each command.
    SystemdRun,
}

/// Why this process cannot run commands as another user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingRights(String);

impl fmt::Display for MissingRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether this process may start commands as another user, and end them.
pub fn may_change_user() -> Result<(), MissingRights> {
    let needed = [
        (CapabilitySet::SETUID, "CAP_SETUID"),
        (CapabilitySet::SETGID, "CAP_SETGID"),
        (CapabilitySet::KILL, "CAP_KILL"),
    ];
    let has = capabilities(None).map(|sets| sets.effective).unwrap_or(CapabilitySet::empty());
    let missing: Vec<&str> = needed.iter().filter(|(one, _)| !has.contains(*one)).map(|(_, name)| *name).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(MissingRights(format!(
            "the server runs as the user with the id {} without {}; start it as root or with these capabilities",
            geteuid().as_raw(),
            missing.join(", ")
        ))),
    }
}
