//! Kills commands that outlived the server that started them. The supervisor of a command ends it when its server is gone. This
//! is for commands whose supervisor was killed too: the next attempt must not run beside them. So every command carries its
//! owner's mark in its environment, and the next start searches for that mark.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The environment variable that names the owner: the installation, not the process.
pub(crate) const OWNER: &str = "EVERYTICK_OWNER";
const ID_CONTEXT: &str = "everytick owner of commands v1";
/// Enough that two installations of one host never have the same id.
const ID_BYTES: usize = 16;

/// An opaque id of the owner: its name is the path or the URL of the database, which commands need not know.
pub(super) fn id(owner: &str) -> String {
    blake3::derive_key(ID_CONTEXT, owner.as_bytes())[..ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The mark of this process's commands: the id of the owner, and the pid of the server that started them.
pub(crate) fn mark(owner: &str) -> String {
    format!("{} {}", id(owner), std::process::id())
}

/// Whether the server that a mark names still runs and has our process name. Then it manages its commands itself.
fn starter_lives(mark: &[u8]) -> bool {
    let pid = mark.rsplit(|byte| *byte == b' ').next().and_then(|pid| std::str::from_utf8(pid).ok());
    let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()).filter(|pid| *pid != std::process::id()) else {
        return false;
    };
    let name = |pid: &str| fs::read(format!("/proc/{pid}/comm")).ok();
    name(&pid.to_string()).is_some_and(|theirs| Some(theirs) == name("self"))
}

/// Kills every process that carries this owner's mark and whose server is dead; returns their number. Without `/proc` it finds
/// none.
pub fn end_orphans(owner: &str) -> usize {
    // The previous release wrote the name of the owner.
    let marks = [id(owner), owner.to_owned()].map(|owner| format!("{OWNER}={owner} "));
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let ours = processes.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let is_ours = |variable: &[u8]| marks.iter().any(|mark| variable.starts_with(mark.as_bytes()));
        let orphan = |variable: &[u8]| is_ours(variable) && !starter_lives(variable);
        environment.split(|byte| *byte == 0).any(orphan).then(|| Pid::from_raw(pid))?
    });
    ours.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_does_not_name_the_database() {
        let mark = mark("postgres://everytick@db.example.org/everytick node-1");
        assert!(!mark.contains("postgres") && !mark.contains("node-1"), "{mark}");
        assert_ne!(id("a"), id("b"));
        assert_eq!(id("/var/lib/everytick/everytick.db"), id("/var/lib/everytick/everytick.db"));
    }
}
