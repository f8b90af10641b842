//! Finds and ends every descendant of this process, which is their subreaper: whatever loses its parent becomes its child. A
//! process that forks all the time could outrun a search, so everything is stopped first, and killed when a search finds nothing
//! new.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open, pidfd_send_signal, wait},
};

/// Searches until everything is stopped. Each one stops all processes that the earlier ones did not see.
const SEARCHES_MAX: usize = 200;
/// How often the list of children is read before each search.
const CHILDREN_READ_MAX: usize = 1_000;
/// How often to try, and how long to wait for the end of killed processes in between.
const ROUNDS_MAX: usize = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// What the ended children left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    Nothing,
    Children,
}

/// Reaps every child that has ended. `ended` gets each.
pub(super) fn reap(mut ended: impl FnMut(Pid, WaitStatus)) -> Left {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) => return Left::Children,
            Err(Errno::INTR) => {}
            Err(_) => return Left::Nothing,
        }
    }
}

/// Kills all descendants and waits for their end, up to [`ROUNDS_MAX`] times [`PAUSE`]. A process that is stuck in the kernel
/// may remain.
pub(super) async fn end_all() {
    for _ in 0..ROUNDS_MAX {
        if reap(|_, _| {}) == Left::Nothing {
            return;
        }
        for process in stopped() {
            process.signal(Signal::KILL);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Stops all descendants, and returns them.
fn stopped() -> BTreeSet<Process> {
    let mut all = BTreeSet::new();
    for _ in 0..SEARCHES_MAX {
        // A process that forks and ends makes its child one of ours. Reading the list of our children is quicker than a
        // process can do that; a search of all processes is not.
        for _ in 0..CHILDREN_READ_MAX {
            if !stop_new(children(), &mut all) {
                break;
            }
        }
        if !stop_new(descendants(&processes(), own()), &mut all) {
            break;
        }
    }
    all
}

/// Stops the processes that are not in `all`, and adds them. Returns whether it found any.
fn stop_new(found: Vec<Process>, all: &mut BTreeSet<Process>) -> bool {
    let new: Vec<Process> = found.into_iter().filter(|process| !all.contains(process)).collect();
    for process in &new {
        process.signal(Signal::STOP);
        all.insert(*process);
    }
    !new.is_empty()
}

/// The living children of this process, which has one thread. Empty if the kernel has no such list.
fn children() -> Vec<Process> {
    let listed = fs::read_to_string(format!("/proc/self/task/{}/children", own())).unwrap_or_default();
    let pids = listed.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter_map(|pid| Some(read(pid)?.0)).collect()
}

fn own() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// A process, identified by its start time too: pids are used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Process {
    pid: i32,
    start: u64,
}

impl Process {
    /// Signals this process and never another one that got its pid.
    fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if read(self.pid).is_some_and(|(process, _)| process == self) {
            let _ = pidfd_send_signal(handle, signal); // fails only if it has ended
        }
    }
}

/// A living process and its parent.
fn read(pid: i32) -> Option<(Process, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any character. After it: state, parent, and 17 fields later the start time.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some((Process { pid, start }, parent))
}

/// All living processes by parent.
fn processes() -> BTreeMap<i32, Vec<Process>> {
    let mut by_parent = BTreeMap::<i32, Vec<Process>>::new();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for (process, parent) in pids.filter_map(read) {
        by_parent.entry(parent).or_default().push(process);
    }
    by_parent
}

fn descendants(by_parent: &BTreeMap<i32, Vec<Process>>, of: i32) -> Vec<Process> {
    let (mut found, mut parents) = (Vec::new(), vec![of]);
    while let Some(parent) = parents.pop() {
        let children = by_parent.get(&parent).map(Vec::as_slice).unwrap_or_default();
        found.extend_from_slice(children);
        parents.extend(children.iter().map(|child| child.pid));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descendants_of_a_process_are_found_at_every_depth_and_no_others() {
        let process = |pid| Process { pid, start: 7 };
        let by_parent = [(1, vec![10, 20]), (10, vec![11, 12]), (12, vec![13]), (20, vec![21])];
        let by_parent = by_parent.map(|(parent, of)| (parent, of.into_iter().map(process).collect())).into();
        let mut found: Vec<i32> = descendants(&by_parent, 10).iter().map(|found| found.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [11, 12, 13]);
        assert_eq!(descendants(&by_parent, 13), []);
    }

    #[test]
    fn this_process_is_found_with_its_parent() {
        let (process, parent) = read(own()).unwrap();
        let expected = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert_eq!((process.pid, parent), (own(), expected));
        assert!(processes()[&parent].contains(&process));
    }
}
