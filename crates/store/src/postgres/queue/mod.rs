//! The transactions of workers: how they claim runs from queues, keep claims alive, and lose them. Lock order of a
//! claim: the queue's limits, its jobs in order, the waiting rows, the runs. A settlement locks the run, then the
//! claim.

include!("../../both/queue/mod.rs");

mod claim;
pub(super) mod line;
mod previous;
mod succeed;
mod take;
mod worker_claims;

pub(super) use store::limits;
