//! The rules of everytick. Pure: no async, no I/O, no clock; time, randomness and ids arrive as arguments.

pub mod ids;
pub mod invalid;
pub mod schedule;
pub mod target;
pub mod time;
