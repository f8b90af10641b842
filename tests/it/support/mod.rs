//! Shared by the tests from outside: running commands, starting servers, and a sink for webhooks. Every process that a test
//! starts ends with the test.
#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]

mod ca;
mod command;
mod server;
mod sink;

pub(crate) use ca::{Ca, Pair};
pub(crate) use command::{Done, everytick, everytick_command, with_stdin};
pub(crate) use server::{Server, ServerBuilder};
pub(crate) use sink::{Delivery, Sink};

use std::time::Duration;

/// Limit for each wait of a test, long enough for a busy machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

/// Polls `condition` until it returns a value. Fails the test after [`WAIT_MAX`].
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    const STEP: Duration = Duration::from_millis(20);
    for _ in 0..WAIT_MAX.as_millis() / STEP.as_millis() {
        if let Some(answer) = condition() {
            return answer;
        }
        pause(STEP);
    }
    panic!("waited {WAIT_MAX:?} without success for {what}");
}

#[expect(clippy::disallowed_methods, reason = "a test from outside can only use the real clock")]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
