//! Tests of the targets from outside: real requests to a receiver on loopback, real processes.

#![allow(clippy::unwrap_used, reason = "clippy excuses tests, but not the helpers beside them")]

mod dns;
mod http;
mod shell;
mod support;
