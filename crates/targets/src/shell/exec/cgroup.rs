//! The control group of one command, a directory below the operator's one. All processes of a command are in it, whatever
//! sessions they create, and one write kills them all.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use super::super::isolation::{Cgroup, CgroupPlace};

/// The variable in which the supervisor names the group to the starter. The command does not inherit it.
pub(super) const JOIN: &str = "EVERYTICK_JOIN_CGROUP";
/// Controllers that the limits need.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// How often the removal of a group is tried, and the pause in between: half a second in all.
const REMOVALS_MAX: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);
/// Period of the CPU limit, in microseconds.
const CPU_PERIOD: u64 = 100_000;

/// The group of one command. Dropping it kills its processes and removes it.
#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    /// `None` unless the operator named a directory.
    pub(super) fn create(cgroup: Option<&Cgroup>, name: &str) -> io::Result<Option<Self>> {
        let Some(Cgroup { place: CgroupPlace::Directory(parent), memory_max, pids_max, cpu_max }) = cgroup else {
            return Ok(None);
        };
        let group = Self(parent.join(name));
        fs::create_dir(&group.0)?;
        let limits = [
            ("memory.max", memory_max.map(|bytes| bytes.to_string())),
            ("pids.max", pids_max.map(|count| count.to_string())),
            ("cpu.max", cpu_max.map(|percent| format!("{} {CPU_PERIOD}", u64::from(percent) * CPU_PERIOD / 100))),
        ];
        let needed: Vec<&str> = CONTROLLERS
            .into_iter()
            .zip(&limits)
            .filter_map(|(name, (_, limit))| limit.as_ref().map(|_| name))
            .collect();
        enable(parent, &needed)?;
        for (file, limit) in limits {
            if let Some(limit) = limit {
                fs::write(group.0.join(file), limit)?;
            }
        }
        Ok(Some(group))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Kills every process of the group.
    pub(super) fn kill(&self) {
        // The kernel before 5.14 has no such file. The search for descendants then ends the processes.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }
}

impl Drop for Group {
    #[expect(clippy::disallowed_methods, reason = "a supervisor is a process of its own, and has nothing else to do")]
    fn drop(&mut self) {
        self.kill();
        // The kernel refuses while a killed process is still ending. A group that remains is removed by the next start.
        for _ in 0..REMOVALS_MAX {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(REMOVAL_PAUSE),
                _ => return,
            }
        }
    }
}

fn enable(parent: &Path, controllers: &[&str]) -> io::Result<()> {
    let control = parent.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&control)?;
    let missing: Vec<String> = controllers
        .iter()
        .filter(|name| !enabled.split_ascii_whitespace().any(|known| known == **name))
        .map(|name| format!("+{name}"))
        .collect();
    if missing.is_empty() { Ok(()) } else { fs::write(control, missing.join(" ")) }
}

/// Moves this process into the group that the supervisor named.
pub(super) fn join() -> io::Result<()> {
    match env::var_os(JOIN) {
        Some(group) => fs::write(Path::new(&group).join("cgroup.procs"), "0"),
        None => Ok(()),
    }
}

/// Kills and removes the groups of this prefix that a killed server left behind. A name continues with the process id of its
/// server; `lives` says whether that one still runs, and manages its groups itself.
pub(in super::super) fn leftovers(parent: &Path, prefix: &str, lives: impl Fn(u32) -> bool) {
    let Ok(groups) = fs::read_dir(parent) else { return };
    let ours = |name: &str| {
        let Some(rest) = name.strip_prefix(prefix) else { return false };
        !rest.split('-').next().and_then(|pid| pid.parse().ok()).is_some_and(&lives)
    };
    for group in groups.flatten().filter(|group| group.file_name().to_str().is_some_and(ours)) {
        drop(Group(group.path()));
    }
}
