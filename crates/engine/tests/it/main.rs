//! The engine from outside, on the simulated store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod detect;
mod sim;
