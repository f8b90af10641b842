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

const OBSERVE_EVERY: Duration = Duration::from_secs(1);
/// The engine checks its loops once a second. If this many observations in a row see no new check, the runtime is stuck. The
/// limit counts observations, not time: a process that was stopped (SIGSTOP) makes none, and must not end when it continues.
const WITHOUT_CHECK_MAX: u32 = 60;

/// Observes the engine until the returned sender is dropped. A failed node has `stop_max` to stop.
pub(crate) fn start(engine: Arc<Engine>, stop_max: Duration) -> io::Result<mpsc::Sender<()>> {
    let (keep_alive, ended) = mpsc::channel();
    let broken_max = u32::try_from(stop_max.as_secs() / OBSERVE_EVERY.as_secs()).unwrap_or(u32::MAX);
    thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
        let mut watchdog = Watchdog::default();
        while ended.recv_timeout(OBSERVE_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            let observation =
                Observation { checks: engine.checks(), stopping: engine.is_stopping(), broken: engine.broken_by() };
            if let Some(reason) = watchdog.reason_to_end(&observation, broken_max) {
                failure::last_line(&reason);
                std::process::exit(Exit::Failed as i32);
            }
        }
    })?;
    Ok(keep_alive)
}

struct Observation {
    /// How many checks the engine has made since its start.
    checks: u64,
    stopping: bool,
    /// Why the engine failed. Empty if it did not.
    broken: String,
}

#[derive(Default)]
struct Watchdog {
    /// The checks of the last observation.
    checks: u64,
    /// Observations in a row without a new check.
    without_check: u32,
    /// Observations in a row of a failed engine.
    broken: u32,
}

impl Watchdog {
    fn reason_to_end(&mut self, observation: &Observation, broken_max: u32) -> Option<String> {
        self.without_check = if observation.checks == self.checks { self.without_check + 1 } else { 0 };
        self.checks = observation.checks;
        self.broken = if observation.broken.is_empty() { 0 } else { self.broken + 1 };
        if self.broken > broken_max {
            return Some(format!("{}; the node did not stop in time", observation.broken));
        }
        // A stopping node makes no checks; `serve` limits how long it may take.
        let stuck = self.without_check >= WITHOUT_CHECK_MAX && !observation.stopping;
        stuck.then(|| format!("the runtime is stuck: no task has run for {WITHOUT_CHECK_MAX} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(checks: u64, stopping: bool, broken: &str) -> Observation {
        Observation { checks, stopping, broken: broken.to_owned() }
    }

    /// The number of the first observation that ends the process, and the reason.
    fn end(mut observe: impl FnMut(u64) -> Observation) -> Option<(u64, String)> {
        let mut watchdog = Watchdog::default();
        (1..1_000).find_map(|n| Some((n, watchdog.reason_to_end(&observe(n), 30)?)))
    }

    #[test]
    fn a_runtime_without_checks_is_stuck_unless_the_node_is_stopping() {
        assert_eq!(end(|n| observation(n, false, "")), None);
        assert_eq!(end(|_| observation(0, true, "")), None);
        let (n, reason) = end(|n| observation(n.min(9), false, "")).unwrap();
        assert_eq!(n, 69);
        assert!(reason.contains("the runtime is stuck"), "{reason}");
    }

    #[test]
    fn a_failed_node_must_stop_within_the_limit() {
        let (n, reason) = end(|n| observation(n, true, "the loop \"tick\" panicked")).unwrap();
        assert_eq!((n, reason.as_str()), (31, "the loop \"tick\" panicked; the node did not stop in time"));
    }
}
