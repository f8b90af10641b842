//! Tests of the built binary from outside.
#![allow(clippy::unwrap_used, reason = "a panic is the right failure of a test")]

mod accepted;
mod access;
mod backfills;
mod bad_inputs;
mod bench;
mod bulk;
mod calendars;
mod client;
mod cluster;
mod connections;
mod cron;
mod definitions;
mod docs;
mod explain;
mod first_day;
mod flows;
mod help;
mod listeners;
mod lists;
mod locks;
mod moving;
mod orphans;
mod output;
mod policies;
mod process;
mod readme;
mod recover;
mod secrets;
mod settings;
mod support;
mod times;
mod tls;
mod triggers;
mod unreadable;
mod workers;
