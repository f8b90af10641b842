//! What an incarnation has claimed: our own, and what the dead have left.

use everytick_domain::ids::{Fence, Incarnation, RunId};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{Failed, PostgresStore, node, rows, sql};
use crate::{ClaimedRun, Lease, Result};

pub(super) async fn load_claimed(store: &PostgresStore, lease: &Lease) -> Result<Vec<ClaimedRun>> {
    const DOING: &str = "load our claims";
    let mut read = store.read(DOING).await?;
    let open_from: Option<Uuid> = sqlx::query_scalar(sql!("open_from"))
        .bind(lease.incarnation.uuid())
        .fetch_optional(&mut *read)
        .await
        .failed(DOING)?;
    let Some(open_from) = open_from else { return Ok(Vec::new()) };
    claims(&mut read, lease.incarnation, RunId::from_uuid(open_from), usize::MAX, DOING).await
}

pub(super) async fn still_claimed(store: &PostgresStore, lease: &Lease, runs: &[RunId]) -> Result<Vec<(RunId, Fence)>> {
    const DOING: &str = "compare our claims";
    let mut read = store.read(DOING).await?;
    let found = sqlx::query(sql!("still_claimed"))
        .bind(lease.incarnation.uuid())
        .bind(rows::run_ids(runs.iter().copied()))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let claim = |row: &PgRow| Ok((rows::run_id(row, "id")?, Fence::from_raw(row.try_get("fence")?)));
    found.iter().map(claim).collect::<std::result::Result<_, sqlx::Error>>().failed(DOING)
}

pub(super) async fn load_lost(store: &PostgresStore, lease: &Lease, limit: usize) -> Result<Vec<ClaimedRun>> {
    const DOING: &str = "load lost claims";
    let mut write = store.write(DOING).await?;
    node::hold(&mut write, lease).await?;
    // Before anything of theirs is read; and committed, so that nobody waits for the reading, which may take long.
    node::fence_expired(&mut write, lease.incarnation).await?;
    write.commit().await?;
    let mut write = store.writing(store.begin(&store.begin.slow, DOING).await?, DOING);
    let ended = sqlx::query(sql!("lost_leases"))
        .bind(lease.incarnation.uuid())
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    let mut lost = Vec::new();
    for row in &ended {
        if lost.len() >= limit {
            break;
        }
        let incarnation = Incarnation::from_uuid(row.try_get("incarnation").failed(DOING)?);
        let open_from = rows::run_id(row, "open_from").failed(DOING)?;
        let found = claims(&mut write.tx, incarnation, open_from, limit - lost.len(), DOING).await?;
        if found.is_empty() {
            sqlx::query(sql!("forget_lease")).bind(incarnation.uuid()).execute(&mut *write.tx).await.failed(DOING)?;
        }
        lost.extend(found);
    }
    write.commit().await?;
    Ok(lost)
}

async fn claims(
    connection: &mut PgConnection,
    incarnation: Incarnation,
    open_from: RunId,
    limit: usize,
    doing: &'static str,
) -> Result<Vec<ClaimedRun>> {
    let found = sqlx::query(sql!("load_claimed"))
        .bind(incarnation.uuid())
        .bind(open_from.uuid())
        .bind(rows::limit(limit))
        .fetch_all(connection)
        .await
        .failed(doing)?;
    found.iter().map(rows::claimed).collect::<std::result::Result<_, _>>().failed(doing)
}
