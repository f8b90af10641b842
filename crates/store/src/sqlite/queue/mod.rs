//! The transactions of workers: how they claim runs from queues, keep claims alive, and lose them. There is one writer
//! at a time, so what a claim reads does not change before its commit.

mod claim;
#[path = "../../both/queue/open_claims.rs"]
mod open_claims;
mod previous;
#[path = "../../both/queue/store.rs"]
mod store;
mod succeed;
#[path = "../../both/queue/superseded.rs"]
mod superseded;
mod worker_claims;

pub(super) use store::limits;

use everytick_domain::{job::Job, queue::lead};

use super::DbTx;
use crate::Result;

/// Moves the waiting runs of a job to the queue of its new target.
pub(super) async fn requeue(write: &mut DbTx, job: &Job) -> Result<()> {
    let queue = job.spec.target.queue();
    write
        .execute(query!(
            "waiting/requeue_waiting",
            job.id.uuid(),
            queue,
            lead(job.spec.priority, false),
            lead(job.spec.priority, true),
            write.now.millis()
        ))
        .await?;
    write.execute(query!("epochs/requeue_epoch", job.id.uuid(), queue)).await?;
    Ok(())
}
