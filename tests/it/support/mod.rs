//! What the tests from outside share: commands that are run, servers that are started, and a sink for webhooks. Whatever a
//! test starts dies with it.
#![allow(dead_code, unused_imports, reason = "each test uses its part")]

mod command;
mod server;
mod sink;

pub(crate) use command::{Done, everytick, everytick_command, with_stdin};
pub(crate) use server::{Server, ServerBuilder};
pub(crate) use sink::{Delivery, Sink};

use std::time::Duration;

/// How long anything may take on a busy machine before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a state that is reached: asks until there is an answer, and fails the test when none comes in time.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    const STEP: Duration = Duration::from_millis(20);
    for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
        if let Some(answer) = ask() {
            return answer;
        }
        pause(STEP);
    }
    panic!("waited {PATIENCE:?} in vain for {what}");
}

#[expect(clippy::disallowed_methods, reason = "a test from outside has no clock but the real one")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
