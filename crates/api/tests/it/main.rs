//! Tests of the API from outside: every refusal with its status and field, and the answers to valid requests.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod access;
mod backfills;
mod batch;
mod busy;
#[path = "../../../../tests/it/support/ca.rs"]
mod ca;
mod calendars;
mod calls;
mod connections;
mod document;
mod flows;
mod guard;
mod jobs;
mod lists;
mod queues;
mod redrive;
mod refusals;
mod runs;
mod secrets;
mod support;
mod tenants;
mod tls;
mod warnings;
