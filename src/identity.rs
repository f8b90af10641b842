//! This process, as it publishes itself in its node's lease, and whether a process that published itself still runs.
//! A process is known by its number together with its start, its boot and its pid namespace: numbers are used again, and
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
    let mark = match (space(), Seen::of(pid)) {
        (Some(space), Ok(seen)) => format!("{space} {}", seen.start),
        _ => String::new(),
    };
    NodeProcess { host: host_name(), pid, mark }
}

/// `None` where it cannot be known: on another host, in another container, or without /proc.
pub(crate) fn lives(process: &NodeProcess) -> Option<bool> {
    let (theirs, start) = process.mark.rsplit_once(' ')?;
    if theirs != space()? {
        return None;
    }
    match Seen::of(process.pid) {
        Ok(seen) => Some(seen.start == start && !seen.ended),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // /proc may hide processes of other users; the kernel does not.
            let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
            (test_kill_process(pid) == Err(Errno::SRCH)).then_some(false)
        }
        Err(_) => None,
    }
}

/// Where a listener on this address hears: on the unspecified one, every address of the host.
pub(crate) fn listening(address: SocketAddr) -> Vec<SocketAddr> {
    let mut heard = vec![address];
    if address.ip().is_unspecified() {
        heard.extend(local_addresses().into_iter().map(|ip| SocketAddr::new(ip, address.port())));
    }
    heard
}

/// The addresses of this host, as the kernel lists them. Loopback need not be among them.
fn local_addresses() -> Vec<IpAddr> {
    let (v4, v6) = (fs::read_to_string("/proc/net/fib_trie"), fs::read_to_string("/proc/net/if_inet6"));
    let mut addresses: Vec<IpAddr> = Vec::new();
    // "|-- 10.0.0.5", and below it "/32 host LOCAL".
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

/// Where process numbers mean the same: one boot of one kernel, and one pid namespace.
fn space() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// What /proc says of a process.
struct Seen {
    start: String,
    /// A zombie: it does nothing any more.
    ended: bool,
}

impl Seen {
    fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name, in parentheses, may hold anything; the state follows it, and the start is the 20th field from there.
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
    fn a_process_is_known_by_number_start_and_place() {
        let own = own();
        assert_eq!(lives(&own), Some(true));
        let (place, _) = own.mark.rsplit_once(' ').unwrap();
        let other_start = NodeProcess { mark: format!("{place} 1"), ..own.clone() };
        assert_eq!(lives(&other_start), Some(false), "the number was used again");
        let elsewhere = NodeProcess { mark: "another-boot pid:[1] 1".into(), ..own.clone() };
        assert_eq!(lives(&elsewhere), None);
        assert_eq!(lives(&NodeProcess { mark: String::new(), ..own }), None);
    }

    #[test]
    fn a_listener_on_every_address_is_heard_on_each_of_them() {
        let one: SocketAddr = "127.0.0.1:8640".parse().unwrap();
        assert_eq!(listening(one), [one]);
        let all = listening("0.0.0.0:8640".parse().unwrap());
        assert!(all.contains(&one), "{all:?}");
    }

    #[test]
    fn a_process_that_has_ended_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = Seen::of(child.id()).unwrap().start;
        let process = NodeProcess { pid: child.id(), mark: format!("{} {start}", space().unwrap()), ..own() };
        assert_eq!(lives(&process), Some(true));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lives(&process), Some(false));
    }
}
