//! The transactions of workers: how they claim runs from queues, keep claims alive, and lose them. Lock order of a
//! claim: the queue's limits, its jobs in order, the waiting rows, the runs. A settlement locks the run, then the
//! claim.

mod claim;
pub(super) mod line;
#[path = "../../both/queue/open_claims.rs"]
mod open_claims;
mod previous;
#[path = "../../both/queue/store.rs"]
mod store;
mod succeed;
#[path = "../../both/queue/superseded.rs"]
mod superseded;
mod take;
mod worker_claims;

pub(super) use store::limits;
