//! Commands that outlived the process that started them. A server that was killed could not end them, and the next attempt
//! must not run beside them; so every command carries its owner's mark in its environment, and the next start looks for it.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The variable that names the owner: the installation, not the process.
pub(crate) const OWNER: &str = "EVERYTICK_OWNER";

/// What the commands of this process carry: the owner, and who started them.
pub(crate) fn mark(owner: &str) -> String {
    format!("{owner} {}", std::process::id())
}

/// Whether the process that a mark names still runs, and is what we are: its commands are its own matter.
fn starter_lives(mark: &[u8]) -> bool {
    let pid = mark.rsplit(|byte| *byte == b' ').next().and_then(|pid| std::str::from_utf8(pid).ok());
    let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()).filter(|pid| *pid != std::process::id()) else {
        return false;
    };
    let name = |pid: &str| fs::read(format!("/proc/{pid}/comm")).ok();
    name(&pid.to_string()).is_some_and(|theirs| Some(theirs) == name("self"))
}

/// Kills whatever still runs with this owner's mark and whose starter is dead; gives how many processes that were. Where there
/// is no `/proc` it finds nothing.
pub fn end_orphans(owner: &str) -> usize {
    let mark = format!("{OWNER}={owner} ");
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let ours = processes.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let orphan = |variable: &[u8]| variable.starts_with(mark.as_bytes()) && !starter_lives(variable);
        environment.split(|byte| *byte == 0).any(orphan).then(|| Pid::from_raw(pid))?
    });
    ours.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
}
