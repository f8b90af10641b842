//! Kills commands that outlived the server that started them. The supervisor of a command ends it when its server is gone. This
//! is for commands whose supervisor was killed too: the next attempt must not run beside them. So every command carries its
//! owner's mark in its environment, and the next start searches for that mark.

use std::fs;

use everytick_domain::ids::RunId;
use rustix::process::{Pid, Signal, kill_process};

/// The environment variable that names the owner: the installation, not the process.
pub(crate) const OWNER: &str = "EVERYTICK_OWNER";
/// The environment variable with the id of the run, among the facts of a dispatch.
const RUN: &str = "EVERYTICK_RUN";
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
    pid.and_then(|pid| pid.parse().ok()).is_some_and(lives)
}

/// Whether another process of this id runs and has our process name.
pub(super) fn lives(pid: u32) -> bool {
    if pid == std::process::id() {
        return false;
    }
    let name = |pid: &str| fs::read(format!("/proc/{pid}/comm")).ok();
    name(&pid.to_string()).is_some_and(|theirs| Some(theirs) == name("self"))
}

/// Kills every process that carries this owner's mark and whose server is dead; returns their number. Without `/proc` it finds
/// none.
pub fn end_orphans(owner: &str) -> usize {
    // The previous release wrote the name of the owner.
    let marks = [id(owner), owner.to_owned()].map(|owner| format!("{OWNER}={owner} "));
    let is_ours = |variable: &[u8]| marks.iter().any(|mark| variable.starts_with(mark.as_bytes()));
    kill_with(|mut variables| variables.any(|variable| is_ours(variable) && !starter_lives(variable)))
}

/// Kills what is left of a run of this process whose supervisor was killed. Otherwise the next attempt could run beside it.
pub(super) fn end_run(owner: &str, run: RunId) -> usize {
    let (owner, run) = (format!("{OWNER}={}", mark(owner)), format!("{RUN}={run}"));
    kill_with(|variables| {
        let has = |wanted: &str| variables.clone().any(|variable| variable == wanted.as_bytes());
        has(&owner) && has(&run)
    })
}

/// Kills every process whose environment meets the condition; returns their number. Without `/proc` it finds none.
fn kill_with(is_meant: impl Fn(Variables<'_>) -> bool) -> usize {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let found = processes.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        is_meant(environment.split(is_nul as fn(&u8) -> bool)).then(|| Pid::from_raw(pid))?
    });
    found.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
}

type Variables<'a> = std::slice::Split<'a, u8, fn(&u8) -> bool>;

fn is_nul(byte: &u8) -> bool {
    *byte == 0
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
