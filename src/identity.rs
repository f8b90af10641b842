//! The identity that a process stores in its node's lease, and the check whether the process of another lease still runs.
//! A process is identified by pid, start time, boot id and pid namespace. A pid alone is not enough: pids are reused, and
//! containers on one host each count from 1.

use std::{
    fs, io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use everytick_store::NodeProcess;
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use crate::config::host_name;

pub(crate) fn own() -> NodeProcess {
    let pid = std::process::id();
    let mark = match (pid_space(), ProcEntry::read(pid)) {
        (Some(space), Ok(entry)) => format!("{space} {}", entry.start),
        _ => String::new(),
    };
    NodeProcess { host: host_name(), pid, mark }
}

/// Whether the process runs. `None` if unknown: it is on another host or in another container, or there is no /proc.
pub(crate) fn lives(process: &NodeProcess) -> Option<bool> {
    let (its_space, start) = process.mark.rsplit_once(' ')?;
    if its_space != pid_space()? {
        return None;
    }
    match ProcEntry::read(process.pid) {
        Ok(entry) => Some(entry.start == start && !entry.ended),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // /proc may hide processes of other users; signal 0 finds them.
            let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
            (test_kill_process(pid) == Err(Errno::SRCH)).then_some(false)
        }
        Err(_) => None,
    }
}

/// The addresses that reach a listener on `address`: all addresses of the host if it is the unspecified address.
pub(crate) fn listening(address: SocketAddr) -> Vec<SocketAddr> {
    let mut addresses = vec![address];
    if address.ip().is_unspecified() {
        addresses.extend(local_addresses().into_iter().map(|ip| SocketAddr::new(ip, address.port())));
    }
    addresses
}

/// The addresses of this host, as the kernel lists them. Loopback may be missing.
fn local_addresses() -> Vec<IpAddr> {
    let (v4, v6) = (fs::read_to_string("/proc/net/fib_trie"), fs::read_to_string("/proc/net/if_inet6"));
    let mut addresses: Vec<IpAddr> = Vec::new();
    // The file has "|-- 10.0.0.5" and on the next line "/32 host LOCAL".
    let mut last = None;
    for line in v4.unwrap_or_default().lines().map(str::trim) {
        match line.strip_prefix("|-- ") {
            Some(address) => last = address.parse().ok(),
            None if line == "/32 host LOCAL" => addresses.extend(last.map(IpAddr::V4)),
            None => {}
        }
    }
    let v6 = v6.unwrap_or_default();
    let hex = v6.lines().filter_map(|line| u128::from_str_radix(line.split_ascii_whitespace().next()?, 16).ok());
    addresses.extend(hex.map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))));
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The space in which a pid is unique: one boot of one kernel, and one pid namespace.
fn pid_space() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// The entry of a process in /proc.
struct ProcEntry {
    start: String,
    /// A zombie, which no longer executes.
    ended: bool,
}

impl ProcEntry {
    fn read(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may contain any character. The state follows it; the start time is 19 fields after the state.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next().unwrap_or_default();
        let start = fields.nth(18).ok_or(io::ErrorKind::InvalidData)?.to_owned();
        Ok(Self { start, ended: matches!(state, "Z" | "X") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_pid_start_time_and_pid_namespace() {
        let own = own();
        assert_eq!(lives(&own), Some(true));
        let (space, _) = own.mark.rsplit_once(' ').unwrap();
        let other_start = NodeProcess { mark: format!("{space} 1"), ..own.clone() };
        assert_eq!(lives(&other_start), Some(false), "the pid was reused");
        let elsewhere = NodeProcess { mark: "another-boot pid:[1] 1".into(), ..own.clone() };
        assert_eq!(lives(&elsewhere), None);
        assert_eq!(lives(&NodeProcess { mark: String::new(), ..own }), None);
    }

    #[test]
    fn a_listener_on_the_unspecified_address_is_reachable_at_every_address() {
        let one: SocketAddr = "127.0.0.1:8640".parse().unwrap();
        assert_eq!(listening(one), [one]);
        let all = listening("0.0.0.0:8640".parse().unwrap());
        assert!(all.contains(&one), "{all:?}");
    }

    #[test]
    fn a_killed_process_is_reported_as_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = ProcEntry::read(child.id()).unwrap().start;
        let process = NodeProcess { pid: child.id(), mark: format!("{} {start}", pid_space().unwrap()), ..own() };
        assert_eq!(lives(&process), Some(true));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lives(&process), Some(false));
    }
}
