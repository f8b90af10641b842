//! The rules of everytick, as pure code: no async, no I/O, no clock. Time, randomness and ids are arguments.

pub mod access;
pub mod assignment;
pub mod backfill;
pub mod calendar;
pub mod compact;
pub mod edit;
pub mod explain;
pub mod flow;
pub mod home;
pub mod ids;
pub mod instant;
pub mod invalid;
pub mod job;
pub mod mutant;
pub mod overlap;
pub mod partition;
pub mod plan;
pub mod queue;
pub mod recovery;
pub mod redrive;
pub mod retry;
pub mod run;
pub mod schedule;
pub mod splitmix;
pub mod target;
pub mod time;
