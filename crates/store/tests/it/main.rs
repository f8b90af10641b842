//! Tests of the stores: the conformance suite for each, and the properties that only one of them has.

#![allow(clippy::unwrap_used, reason = "only tests and their helpers")]

mod moving;
mod postgres;
mod sim;
mod sqlite;
mod suite;
mod unreadable;
