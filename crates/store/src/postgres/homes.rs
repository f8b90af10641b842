//! The location of jobs: blocks of partitions that regions have claimed, jobs that move there, and the queue in which
//! runs wait. Lock order: partitions before tenants and jobs, to avoid deadlocks.

use everytick_domain::{
    home::{BlockClaim, Homes},
    job::Job,
    partition::{PARTITIONS, PartitionSet},
    queue::lead,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{DbTx, Failed, horizon, rows};
use crate::Result;

/// The blocks by which jobs of these regions are placed. If one of the regions has no block yet, locks every partition
/// until this transaction ends, so that regions claim blocks one after another.
pub(super) async fn load(write: &mut DbTx, regions: &[&str]) -> Result<Homes> {
    if regions.is_empty() {
        return Ok(Homes::new(PARTITIONS, []));
    }
    let homes = read(write).await?;
    if regions.iter().all(|region| homes.knows(region)) {
        return Ok(homes);
    }
    write.execute(query!("partitions/lock_partitions", rows::partitions(&PartitionSet::all(PARTITIONS)))).await?;
    read(write).await
}

async fn read(write: &mut DbTx) -> Result<Homes> {
    let found = write.fetch_all(query!("partitions/homes")).await?;
    let mut claimed = Vec::with_capacity(found.len());
    for row in &found {
        let partition: i16 = row.try_get("partition").failed(write.doing)?;
        claimed.push((partition.unsigned_abs(), row.try_get("home_region").failed(write.doing)?));
    }
    Ok(Homes::new(PARTITIONS, claimed))
}

pub(super) async fn claim(write: &mut DbTx, claim: &BlockClaim) -> Result<()> {
    write
        .execute(query!(
            "partitions/claim_block",
            claim.partitions().map(rows::partition).collect::<Vec<_>>(),
            &claim.region
        ))
        .await?;
    Ok(())
}

/// Moves a job to its new partition. The caller has the job's epoch locked. A claim or settlement in progress may still
/// dequeue a run of the job or put one back. So it moves the waiting runs, which waits for the claims; then locks the
/// claimed runs, which waits for the settlements; then moves the runs that those put back. Later settlements wait for
/// this transaction and read the job's new partition. A `marked` backlog is moved later, in batches.
pub(super) async fn move_job(write: &mut DbTx, job: &Job, marked: bool) -> Result<()> {
    let doing = write.doing;
    let (id, partition) = (job.id.uuid(), rows::partition(job.partition));
    if !marked {
        write.execute(query!("waiting/rehome_waiting", id, partition)).await?;
        lock_claimed(write, id).await?;
        write.execute(query!("waiting/rehome_waiting", id, partition)).await?;
    }
    for statement in [sql!("cursors/rehome_cursor"), sql!("epochs/rehome_epoch")] {
        sqlx::query(statement).bind(id).bind(partition).execute(&mut *write.tx).await.failed(doing)?;
    }
    Ok(())
}

/// Locks the claimed runs of a job, which waits for their settlements.
pub(super) async fn lock_claimed(write: &mut DbTx, job: Uuid) -> Result<()> {
    let lowest = horizon::lowest_open_from(write, write.now).await?;
    write.execute(query!("runs/lock_claimed_listed", job)).await?;
    write.execute(query!("runs/lock_claimed", job, lowest.uuid())).await?;
    Ok(())
}

/// Moves the waiting runs of a job to the queue of its new target, in the same order as [`move_job`] and for the same
/// reasons. The caller has the job's epoch locked. Runs that already wait stay unless `waiting` is set.
pub(super) async fn requeue(write: &mut DbTx, job: &Job, waiting: bool) -> Result<()> {
    let (doing, id, queue, now) = (write.doing, job.id.uuid(), job.spec.target.queue(), write.now.millis());
    let requeue = || {
        query!("waiting/requeue_waiting", id, queue, lead(job.spec.priority, false), lead(job.spec.priority, true), now)
    };
    if waiting {
        requeue().execute(&mut *write.tx).await.failed(doing)?;
        lock_claimed(write, id).await?;
        requeue().execute(&mut *write.tx).await.failed(doing)?;
    }
    let guarded = job.spec.is_guarded();
    write.execute(query!("epochs/requeue_epoch", id, queue, guarded)).await?;
    Ok(())
}
