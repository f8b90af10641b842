//! The keepers' tests: the conformance suite for each, and what is only true of one.

mod sim;
mod sqlite;
mod suite;
