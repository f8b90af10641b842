//! Removes old data. Never removes an open run, a live job's last run, or a tick that its job's cursor has not passed:
//! without its row, the tick would be recorded again (I17).

use everytick_domain::{
    ids::{JobId, RunId},
    time::DbTime,
};
use uuid::Uuid;

use super::{Failed, SqliteStore, Write, rows, sql};
use crate::{IDEMPOTENCY_KEPT, Pruned, Result};

const DOING: &str = "prune";

pub(super) async fn prune_audit(store: &SqliteStore, before: DbTime, limit: usize) -> Result<u64> {
    const DOING: &str = "prune the audit trail";
    let mut write = store.write(DOING).await?;
    let gone = sqlx::query(sql!("audit/prune_audit"))
        .bind(before.millis())
        .bind(rows::limit(limit))
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    write.commit().await?;
    Ok(gone.rows_affected())
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
        let gone = rows::run_ids(runs.iter().copied().map(RunId::from_uuid)).failed(DOING)?;
        for statement in [sql!("prune/prune_attempts"), sql!("prune/prune_failures")] {
            sqlx::query(statement).bind(gone.as_str()).execute(&mut *write.tx).await.failed(DOING)?;
        }
    }
    old(sql!("prune/prune_ranges")).fetch_all(&mut *write.tx).await.failed(DOING)?;
    let jobs: Vec<Uuid> = sqlx::query_scalar(sql!("prune/prune_jobs"))
        .bind(before.millis())
        .bind(rows::limit(limit))
        .fetch_all(&mut *write.tx)
        .await
        .failed(DOING)?;
    if !jobs.is_empty() {
        let gone = rows::job_ids(jobs.iter().copied().map(JobId::from_uuid)).failed(DOING)?;
        for statement in [sql!("prune/prune_epochs"), sql!("prune/prune_cursors")] {
            sqlx::query(statement).bind(gone.as_str()).execute(&mut *write.tx).await.failed(DOING)?;
        }
    }
    sqlx::query(sql!("prune/prune_backfills"))
        .bind(before.millis())
        .bind(rows::limit(limit))
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?;
    prune_flows(&mut write, RunId::floor(before), limit).await?;
    let requests = sqlx::query(sql!("requests/prune_requests"))
        .bind(write.now.minus(IDEMPOTENCY_KEPT).millis())
        .bind(rows::limit(limit))
        .execute(&mut *write.tx)
        .await
        .failed(DOING)?
        .rows_affected();
    write.commit().await?;
    Ok(Pruned { runs: runs.len() as u64, jobs: jobs.len() as u64, requests })
}

/// Removes about `limit` flows that have no runs left. Continues page by page after flows that must stay.
async fn prune_flows(write: &mut Write, before: RunId, limit: usize) -> Result<()> {
    let (mut gone, mut after) = (0, Uuid::nil());
    loop {
        let page: Vec<Uuid> = sqlx::query_scalar(sql!("prune/flow_prune_page"))
            .bind(before.uuid())
            .bind(after)
            .bind(rows::limit(limit))
            .fetch_all(&mut *write.tx)
            .await
            .failed(DOING)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = *last;
        let full = page.len() >= limit;
        let ids = rows::run_ids(page.iter().copied().map(RunId::from_uuid)).failed(DOING)?;
        let pruned = sqlx::query(sql!("prune/flow_prune")).bind(ids).execute(&mut *write.tx).await.failed(DOING)?;
        gone += usize::try_from(pruned.rows_affected()).unwrap_or(usize::MAX);
        if !full || gone >= limit {
            return Ok(());
        }
    }
}
