//! Jobs and their ticks: loads jobs into memory, records due ticks, and raises cursors behind recorded ticks.

pub(crate) mod load;
pub(crate) mod raise;
pub(crate) mod tick;
