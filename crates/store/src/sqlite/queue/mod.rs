//! The transactions of workers: how they claim runs from queues, keep claims alive, and lose them. There is one writer
//! at a time, so what a claim reads does not change before its commit.

include!("../../both/queue/mod.rs");

mod claim;
mod previous;
mod succeed;
mod worker_claims;

pub(super) use store::limits;

use everytick_domain::{job::Job, queue::lead};

use super::DbTx;
use crate::Result;

/// Changes the queue of a job to that of its new target. With `waiting`, its waiting runs move there too.
pub(super) async fn requeue(write: &mut DbTx, job: &Job, waiting: bool) -> Result<()> {
    let (queue, priority, now) = (job.spec.target.queue(), job.spec.priority, write.now.millis());
    if waiting {
        let (on_time, late) = (lead(priority, false), lead(priority, true));
        write.execute(query!("waiting/requeue_waiting", job.id.uuid(), queue, on_time, late, now)).await?;
    }
    write.execute(query!("epochs/requeue_epoch", job.id.uuid(), queue)).await?;
    Ok(())
}
