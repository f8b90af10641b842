//! Commands that outlived the process that started them. A server that was killed could not end them, and the next attempt
//! must not run beside them; so every command carries its owner's mark in its environment, and the next start looks for it.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The variable that names the owner: the installation, not the process.
pub(crate) const OWNER: &str = "EVERYTICK_OWNER";

/// Kills whatever still runs with this owner's mark; gives how many processes that were. Only the holder of the installation's
/// lock may call it: nobody else's commands carry the mark. Where there is no `/proc` it finds nothing.
pub fn end_orphans(owner: &str) -> usize {
    let mark = format!("{OWNER}={owner}");
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let ours = processes.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()).then(|| Pid::from_raw(pid))?
    });
    ours.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
}
