//! Where jobs stand: blocks of partitions that regions have claimed, jobs that move there, and the queue in which runs wait. Partitions are held before tenants and jobs, so
//! that nobody who holds one of those waits for them.

use everytick_domain::{
    home::{BlockClaim, Homes},
    job::Job,
    partition::{PARTITIONS, PartitionSet},
    queue::lead,
};
use sqlx::Row as _;
use uuid::Uuid;

use super::{Failed, Write, horizon, rows, sql};
use crate::Result;

/// The homes that jobs of these regions are placed by. Where one of them has no block yet, every partition is held until
/// this transaction ends, so that regions claim in turn.
pub(super) async fn load(write: &mut Write, regions: &[&str]) -> Result<Homes> {
    if regions.is_empty() {
        return Ok(Homes::new(PARTITIONS, []));
    }
    let homes = read(write).await?;
    if regions.iter().all(|region| homes.knows(region)) {
        return Ok(homes);
    }
    sqlx::query(sql!("acquire_lock"))
        .bind(rows::partitions(&PartitionSet::all(PARTITIONS)))
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    read(write).await
}

async fn read(write: &mut Write) -> Result<Homes> {
    let found = sqlx::query(sql!("homes")).fetch_all(&mut *write.tx).await.failed(write.doing)?;
    let mut claimed = Vec::with_capacity(found.len());
    for row in &found {
        let partition: i16 = row.try_get("partition").failed(write.doing)?;
        claimed.push((partition.unsigned_abs(), row.try_get("home_region").failed(write.doing)?));
    }
    Ok(Homes::new(PARTITIONS, claimed))
}

pub(super) async fn claim(write: &mut Write, claim: &BlockClaim) -> Result<()> {
    sqlx::query(sql!("claim_block"))
        .bind(claim.partitions().map(rows::partition).collect::<Vec<_>>())
        .bind(&claim.region)
        .execute(&mut *write.tx)
        .await
        .failed(write.doing)?;
    Ok(())
}

/// Moves a job, whose epoch is held, to the partition that it has by now. A claim or a settlement that is under way may
/// still take a run of it from among the waiting or put one back there. So what waits is moved, which waits for the claims;
/// then the runs being worked on are held, which waits for the settlements; then what those put back is moved too. Later
/// settlements wait for us, and read where the job stands then. A `marked` backlog is moved later, in batches.
pub(super) async fn move_job(write: &mut Write, job: &Job, marked: bool) -> Result<()> {
    let doing = write.doing;
    let (id, partition) = (job.id.uuid(), rows::partition(job.partition));
    if !marked {
        sqlx::query(sql!("rehome_waiting")).bind(id).bind(partition).execute(&mut *write.tx).await.failed(doing)?;
        hold_claimed(write, id).await?;
        sqlx::query(sql!("rehome_waiting")).bind(id).bind(partition).execute(&mut *write.tx).await.failed(doing)?;
    }
    for statement in [sql!("rehome_cursor"), sql!("rehome_epoch")] {
        sqlx::query(statement).bind(id).bind(partition).execute(&mut *write.tx).await.failed(doing)?;
    }
    Ok(())
}

/// Holds the runs of a job that are being worked on, which waits for their settlements.
pub(super) async fn hold_claimed(write: &mut Write, job: Uuid) -> Result<()> {
    let doing = write.doing;
    let lowest = horizon::lowest_open_from(&mut write.tx, write.now, doing).await?;
    sqlx::query(sql!("claimed_listed_held")).bind(job).execute(&mut *write.tx).await.failed(doing)?;
    sqlx::query(sql!("claimed_held")).bind(job).bind(lowest.uuid()).execute(&mut *write.tx).await.failed(doing)?;
    Ok(())
}

/// Has the runs of a job, whose epoch is held, wait where its target is by now: in the same order as a move, for the same reasons.
/// Those that wait already stay where they are unless `waiting`.
pub(super) async fn requeue(write: &mut Write, job: &Job, waiting: bool) -> Result<()> {
    let (doing, id, queue, now) = (write.doing, job.id.uuid(), job.spec.target.queue(), write.now.millis());
    let requeue = || {
        let statement = sqlx::query(sql!("requeue_waiting")).bind(id).bind(queue);
        statement.bind(lead(job.spec.priority, false)).bind(lead(job.spec.priority, true)).bind(now)
    };
    if waiting {
        requeue().execute(&mut *write.tx).await.failed(doing)?;
        hold_claimed(write, id).await?;
        requeue().execute(&mut *write.tx).await.failed(doing)?;
    }
    let guarded = job.spec.is_guarded();
    sqlx::query(sql!("requeue_epoch"))
        .bind(id)
        .bind(queue)
        .bind(guarded)
        .execute(&mut *write.tx)
        .await
        .failed(doing)?;
    Ok(())
}
