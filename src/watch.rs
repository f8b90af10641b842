//! The watchdog of a node. It ends the process if the runtime no longer runs tasks, or if a failed node does not stop in
//! time; a supervisor then restarts it. It has its own thread, because a stuck runtime cannot run the engine's own checks.

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use everytick_engine::Engine;

use crate::failure::{self, Exit};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The engine checks its loops once a second. If this many looks in a row see no new check, the runtime is stuck. This counts
/// looks, not time: a process that was stopped (SIGSTOP) makes no looks, and must not end when it continues.
const LOOKS_WITHOUT_CHECK_MAX: u32 = 60;

/// Watches until the returned sender is dropped. A failed node has `stop_max` to stop.
pub(crate) fn start(engine: Arc<Engine>, stop_max: Duration) -> io::Result<mpsc::Sender<()>> {
    let (watched, over) = mpsc::channel();
    let stop_looks = u32::try_from(stop_max.as_secs() / LOOK_EVERY.as_secs()).unwrap_or(u32::MAX);
    thread::Builder::new().name("watch".to_owned()).spawn(move || {
        let mut seen = Seen::default();
        while over.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            let look = Look { checks: engine.checks(), stopping: engine.is_stopping(), broken: engine.broken_by() };
            if let Some(reason) = seen.wrong(&look, stop_looks) {
                failure::last_line(&reason);
                std::process::exit(Exit::Failed as i32);
            }
        }
    })?;
    Ok(watched)
}

struct Look {
    checks: u64,
    stopping: bool,
    broken: String,
}

#[derive(Default)]
struct Seen {
    checks: u64,
    without_check: u32,
    broken: u32,
}

impl Seen {
    fn wrong(&mut self, look: &Look, stop_looks: u32) -> Option<String> {
        self.without_check = if look.checks == self.checks { self.without_check + 1 } else { 0 };
        self.checks = look.checks;
        self.broken = if look.broken.is_empty() { 0 } else { self.broken + 1 };
        if self.broken > stop_looks {
            return Some(format!("{}; the node did not stop in time", look.broken));
        }
        // A stopping node makes no checks; `serve` limits how long it may take.
        let stuck = self.without_check >= LOOKS_WITHOUT_CHECK_MAX && !look.stopping;
        stuck.then(|| format!("the runtime is stuck: no task has run for {LOOKS_WITHOUT_CHECK_MAX} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(checks: u64, stopping: bool, broken: &str) -> Look {
        Look { checks, stopping, broken: broken.to_owned() }
    }

    fn first_wrong(mut looks: impl FnMut(u64) -> Look) -> Option<(u64, String)> {
        let mut seen = Seen::default();
        (1..1_000).find_map(|n| Some((n, seen.wrong(&looks(n), 30)?)))
    }

    #[test]
    fn a_runtime_without_checks_is_stuck_unless_the_node_is_stopping() {
        assert_eq!(first_wrong(|n| look(n, false, "")), None);
        assert_eq!(first_wrong(|_| look(0, true, "")), None);
        let (n, reason) = first_wrong(|n| look(n.min(9), false, "")).unwrap();
        assert_eq!(n, 69);
        assert!(reason.contains("the runtime is stuck"), "{reason}");
    }

    #[test]
    fn a_failed_node_must_stop_within_the_limit() {
        let (n, reason) = first_wrong(|n| look(n, true, "the loop \"tick\" panicked")).unwrap();
        assert_eq!((n, reason.as_str()), (31, "the loop \"tick\" panicked; the node did not stop in time"));
    }
}
