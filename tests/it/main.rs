//! The built binary from outside.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod backfills;
mod bench;
mod calendars;
mod client;
mod cluster;
mod cron;
mod explain;
mod flows;
mod help;
mod moving;
mod orphans;
mod policies;
mod readme;
mod recover;
mod settings;
mod support;
mod workers;
