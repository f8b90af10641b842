//! Removes old data. Never removes an open run, a live job's last run, or a tick that its job's cursor has not passed:
//! without its row, the tick would be recorded again (I17).

use everytick_domain::{
    ids::{JobId, RunId},
    time::DbTime,
};
use uuid::Uuid;

use super::{DbTx, Failed, SqliteStore, rows};
use crate::{IDEMPOTENCY_KEPT, Pruned, Result};

const DOING: &str = "prune";

pub(super) async fn prune_audit(store: &SqliteStore, before: DbTime, limit: usize) -> Result<u64> {
    const DOING: &str = "prune the audit trail";
    let mut write = store.write(DOING).await?;
    let gone = write.execute(query!("audit/prune_audit", before.millis(), rows::limit(limit))).await?;
    write.commit().await?;
    Ok(gone)
}

pub(super) async fn prune(store: &SqliteStore, before: DbTime, limit: usize) -> Result<Pruned> {
    let mut write = store.write(DOING).await?;
    let old = |statement| {
        sqlx::query_scalar::<_, Uuid>(statement)
            .bind(before.millis())
            .bind(RunId::floor(before).uuid())
            .bind(rows::limit(limit))
    };
    let runs = old(sql!("prune/prune_runs")).fetch_all(&mut *write.tx).await.failed(DOING)?;
    if !runs.is_empty() {
        let gone = rows::run_ids(runs.iter().copied().map(RunId::from_uuid));
        for statement in [sql!("prune/prune_attempts"), sql!("prune/prune_failures")] {
            sqlx::query(statement).bind(&gone).execute(&mut *write.tx).await.failed(DOING)?;
        }
    }
    old(sql!("prune/prune_ranges")).fetch_all(&mut *write.tx).await.failed(DOING)?;
    let jobs: Vec<Uuid> = write.scalars(query!("prune/prune_jobs", before.millis(), rows::limit(limit))).await?;
    if !jobs.is_empty() {
        let gone = rows::job_ids(jobs.iter().copied().map(JobId::from_uuid));
        for statement in [sql!("prune/prune_epochs"), sql!("prune/prune_cursors")] {
            sqlx::query(statement).bind(&gone).execute(&mut *write.tx).await.failed(DOING)?;
        }
    }
    write.execute(query!("prune/prune_backfills", before.millis(), rows::limit(limit))).await?;
    prune_flows(&mut write, RunId::floor(before), limit).await?;
    let requests = write
        .execute(query!("requests/prune_requests", write.now.minus(IDEMPOTENCY_KEPT).millis(), rows::limit(limit)))
        .await?;
    write.commit().await?;
    Ok(Pruned { runs: runs.len() as u64, jobs: jobs.len() as u64, requests })
}

/// Removes about `limit` flows that have no runs left. Continues page by page after flows that must stay.
async fn prune_flows(write: &mut DbTx, before: RunId, limit: usize) -> Result<()> {
    let (mut gone, mut after) = (0, Uuid::nil());
    loop {
        let page: Vec<Uuid> =
            write.scalars(query!("prune/flow_prune_page", before.uuid(), after, rows::limit(limit))).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = *last;
        let full = page.len() >= limit;
        let ids = rows::run_ids(page.iter().copied().map(RunId::from_uuid));
        let pruned = write.execute(query!("prune/flow_prune", ids)).await?;
        gone += usize::try_from(pruned).unwrap_or(usize::MAX);
        if !full || gone >= limit {
            return Ok(());
        }
    }
}
