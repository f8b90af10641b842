//! What waits, and claiming it: fence and attempt are raised by the commit that takes the run from among the waiting.

use std::collections::HashMap;

use everytick_domain::{
    ids::{JobId, RunId},
    partition::PartitionSet,
    time::DbTime,
};

use super::{Failed, SqliteStore, node, rows, sql};
use crate::{ClaimedRun, Lease, Result, Waiting};

pub(super) async fn peek_waiting(
    store: &SqliteStore,
    lease: &Lease,
    partitions: &PartitionSet,
    busy: &[JobId],
    limit: usize,
) -> Result<Waiting> {
    const DOING: &str = "look at what waits";
    let mut read = store.read(DOING).await?;
    let now = store.clock.now();
    node::check(&mut read, lease, now, DOING).await?;
    if !partitions.contains(0) {
        return Ok(Waiting { now, due: Vec::new(), next_due: None });
    }
    let found = sqlx::query(sql!("peek_waiting"))
        .bind(now.millis())
        .bind(rows::job_ids(busy.iter().copied()).failed(DOING)?)
        .bind(rows::limit(limit))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let due = found.iter().map(rows::waiting).collect::<std::result::Result<_, _>>().failed(DOING)?;
    let next_due: Option<i64> =
        sqlx::query_scalar(sql!("next_due")).bind(now.millis()).fetch_one(&mut *read).await.failed(DOING)?;
    Ok(Waiting { now, due, next_due: next_due.map(DbTime::from_millis) })
}

pub(super) async fn claim(store: &SqliteStore, lease: &Lease, runs: &[RunId]) -> Result<Vec<ClaimedRun>> {
    const DOING: &str = "claim runs";
    let mut write = store.write(DOING).await?;
    let now = write.now;
    let open_from = node::check(&mut write.tx, lease, now, DOING).await?;
    let found = sqlx::query(sql!("claim"))
        .bind(rows::run_ids(runs.iter().copied()).failed(DOING)?)
        .bind(now.millis())
        .bind(&lease.node)
        .bind(lease.incarnation.uuid())
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    let mut claimed: Vec<ClaimedRun> =
        found.iter().map(rows::claimed).collect::<std::result::Result<_, _>>().failed(DOING)?;
    let Some(lowest) = claimed.iter().map(|run| run.id).min() else { return Ok(claimed) };
    sqlx::query(sql!("dequeue"))
        .bind(rows::run_ids(claimed.iter().map(|run| run.id)).failed(DOING)?)
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    if lowest < open_from {
        node::lower_open_from(&mut write, lease, lowest).await?;
    }
    write.commit().await?;
    // As they were asked for: the caller put what is most urgent first.
    let places: HashMap<_, _> = runs.iter().enumerate().map(|(place, run)| (*run, place)).collect();
    claimed.sort_by_key(|run| places.get(&run.id).copied());
    Ok(claimed)
}
