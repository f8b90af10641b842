//! Signals to the processes that this campaign started, and only to those.

use std::{fs, time::Duration};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

pub(crate) fn pid(child: &Child) -> anyhow::Result<Pid> {
    let raw = child.id().context("the process has exited")?;
    Pid::from_raw(i32::try_from(raw)?).context("no process id")
}

pub(crate) fn signal(child: &Child, signal: Signal) -> anyhow::Result<()> {
    kill_process(pid(child)?, signal).context("could not signal")
}

/// The live children of `parent`, including those in their own process groups, as PostgreSQL's are.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| parent_of(*pid) == Some(parent.as_raw_nonzero().get()))
        .filter_map(Pid::from_raw)
        .collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name is in parentheses and may contain anything.
    let rest = stat.rsplit_once(')')?.1;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Stops a process and its children. Stops the parent first, so that it starts no more children.
pub(crate) fn stop_family(child: &Child) -> anyhow::Result<Vec<Pid>> {
    let parent = pid(child)?;
    kill_process(parent, Signal::STOP).context("could not stop")?;
    let family = children(parent);
    for member in &family {
        // It may have exited just now.
        let _ = kill_process(*member, Signal::STOP);
    }
    Ok(family)
}

pub(crate) fn continue_family(child: &Child, family: &[Pid]) -> anyhow::Result<()> {
    for member in family {
        let _ = kill_process(*member, Signal::CONT);
    }
    signal(child, Signal::CONT)
}

pub(crate) async fn kill_family(child: &mut Child) -> anyhow::Result<()> {
    let family = stop_family(child)?;
    for member in family {
        let _ = kill_process(member, Signal::KILL);
    }
    child.kill().await.context("could not kill")
}

/// Signals a process and waits. Returns whether it exited in time; kills it if not.
pub(crate) async fn end(child: &mut Child, how: Signal, within: Duration) -> anyhow::Result<bool> {
    signal(child, how)?;
    match tokio::time::timeout(within, child.wait()).await {
        Ok(ended) => {
            ended?;
            Ok(true)
        }
        Err(_) => {
            child.kill().await?;
            Ok(false)
        }
    }
}
