//! What waits, and claiming it: fence and attempt are raised by the commit that takes the run from among the waiting.

use std::collections::HashMap;

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    partition::PartitionSet,
    recovery::in_turn,
    time::DbTime,
};

use super::{Failed, PostgresStore, day_sql, node, rows, sql};
use crate::{ClaimedRun, LATE_PER_TENANT_MAX, Lease, Result, Waiting, WaitingRun};

pub(super) async fn peek_waiting(
    store: &PostgresStore,
    lease: &Lease,
    partitions: &PartitionSet,
    busy: &[JobId],
    late_after: Option<TenantId>,
    limit: usize,
) -> Result<Waiting> {
    const DOING: &str = "look at what waits";
    let partitions = rows::partition_bits(partitions);
    let mut read = store.read_many(DOING).await?;
    let now = node::check(&mut read, lease, DOING).await?;
    let found = sqlx::query(sql!("peek_waiting"))
        .bind(now.millis())
        .bind(&partitions)
        .bind(rows::job_ids(busy.iter().copied()))
        .bind(rows::limit(limit))
        .bind(rows::limit(LATE_PER_TENANT_MAX))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let mut due: Vec<WaitingRun> =
        found.iter().map(rows::waiting).collect::<std::result::Result<_, _>>().failed(DOING)?;
    let late = due.split_off(due.partition_point(|run| !run.late));
    due.extend(in_turn(late, |run| run.tenant, late_after));
    due.truncate(limit);
    let next_due: Option<i64> = sqlx::query_scalar(sql!("next_due"))
        .bind(now.millis())
        .bind(&partitions)
        .fetch_optional(&mut *read)
        .await
        .failed(DOING)?;
    Ok(Waiting { now, due, next_due: next_due.map(DbTime::from_millis) })
}

pub(super) async fn claim(
    store: &PostgresStore,
    lease: &Lease,
    partitions: &PartitionSet,
    runs: &[RunId],
) -> Result<Vec<ClaimedRun>> {
    const DOING: &str = "claim runs";
    let Some(lowest) = runs.iter().min().copied() else { return Ok(Vec::new()) };
    let mut write = store.write_batch(DOING).await?;
    let mut open_from = node::hold(&mut write, lease).await?;
    if lowest < open_from {
        // From the start, held alone: two that share the lease and then both want to change it would wait for each other.
        write.rollback().await;
        write = store.write_batch(DOING).await?;
        open_from = node::hold_alone(&mut write, lease).await?;
    }
    let now = write.now;
    let partitions = rows::partition_bits(partitions);
    let mut claimed: Vec<ClaimedRun> = Vec::with_capacity(runs.len());
    for (table, ids) in store.by_table(runs.to_vec(), |id| *id) {
        let found = sqlx::query(day_sql!("claim", &table))
            .bind(rows::run_ids(ids))
            .bind(now.millis())
            .bind(&lease.node)
            .bind(lease.incarnation.uuid())
            .bind(&partitions)
            .fetch_all(&mut *write.tx)
            .await
            .failed(DOING)?;
        for row in &found {
            claimed.push(rows::claimed(row).failed(DOING)?);
        }
    }
    if let Some(lowest) = claimed.iter().map(|run| run.id).min().filter(|lowest| *lowest < open_from) {
        node::lower_open_from(&mut write, lease, lowest).await?;
    }
    write.commit().await?;
    // As they were asked for: the caller put what is most urgent first.
    let places: HashMap<_, _> = runs.iter().enumerate().map(|(place, run)| (*run, place)).collect();
    claimed.sort_by_key(|run| places.get(&run.id).copied());
    Ok(claimed)
}
