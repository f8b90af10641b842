//! Tests of the targets from outside: real requests to a receiver on loopback, real processes.

#![allow(clippy::unwrap_used, reason = "clippy allows it in test functions, but not in their helpers")]

mod dns;
mod egress;
mod http;
mod post;
mod proxy;
mod secrets;
mod shell;
mod support;
