//! The built binary from outside.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod client;
mod cluster;
mod cron;
mod help;
mod moving;
mod orphans;
mod readme;
mod recover;
mod settings;
mod support;
mod workers;
