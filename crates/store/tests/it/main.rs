//! The keepers' tests: the conformance suite for each, and what is only true of one.

#![allow(clippy::unwrap_used, reason = "these are tests, and so are their helpers")]

mod postgres;
mod sim;
mod sqlite;
mod suite;
mod unreadable;
