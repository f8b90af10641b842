//! Claims: which waiting runs start on this node, and which worker gets a run of a queue.

pub(crate) mod asked;
pub(crate) mod choose;
mod delegate;
mod pace;
pub(crate) mod supersede;
pub(crate) mod waiters;
