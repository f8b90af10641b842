//! The simulator: the real engine on a simulated store, targets and clock, under seeded faults. One seed always gives the same
//! history. The checker then verifies the invariants in it.

mod actor;
mod backfills;
mod calendars;
mod checker;
mod faults;
mod flows;
mod mutants;
mod node;
mod operator;
mod overlap;
mod owners;
mod pace;
mod process;
mod random;
mod seeds;
mod target;
mod worker;
mod world;
