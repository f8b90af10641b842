//! Claims: which waiting runs start on this node, and which worker gets a run of a queue.

pub(crate) mod choose;
pub(crate) mod waiters;
