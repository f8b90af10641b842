//! Tests of the engine's public API. Most use the simulated store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod accepted;
mod audit_stream;
mod calls;
mod delegated;
mod detect;
mod flows;
mod harness;
mod loading;
mod names;
mod not_here;
mod promotion;
mod pulse;
mod secrets;
mod sim;
