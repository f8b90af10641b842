//! Removes old data. Never removes an open run, a live job's last run, or a tick that its job's cursor has not passed:
//! without its row, the tick would be recorded again (I17).

use everytick_domain::{ids::RunId, time::DbTime};
use uuid::Uuid;

use super::{DbStore, DbTx, drop_days, rows, verbs};
use crate::tx::Tx as _;
use crate::{IDEMPOTENCY_KEPT, Pruned, Result};

pub(super) async fn prune_audit(store: &DbStore, before: DbTime, limit: usize) -> Result<u64> {
    let mut tx = store.write("prune the audit trail").await?;
    let gone = verbs::prune_audit(&mut tx, before, limit).await?;
    tx.commit().await?;
    Ok(gone)
}

pub(super) async fn prune(store: &DbStore, before: DbTime, limit: usize) -> Result<Pruned> {
    let dropped = drop_days::drop_before(store, before).await?;
    let mut tx = store.write("prune").await?;
    let now = tx.read_clock().await?;
    let ids_before = RunId::floor(drop_days::start_of(before)).uuid();
    let runs: Vec<Uuid> =
        tx.scalars(query!("prune/prune_runs", before.millis(), ids_before, rows::limit(limit))).await?;
    let gone = rows::ids(runs.iter().copied());
    delete(&mut tx, &[sql!("prune/prune_attempts"), sql!("prune/prune_failures")], &gone, runs.len()).await?;
    let ranges_before = RunId::floor(before);
    tx.fetch_all(query!("prune/prune_ranges", before.millis(), ranges_before.uuid(), rows::limit(limit))).await?;
    let jobs: Vec<Uuid> = tx.scalars(query!("prune/prune_jobs", before.millis(), rows::limit(limit))).await?;
    let gone = rows::ids(jobs.iter().copied());
    delete(&mut tx, &drop_days::rows_of_jobs(), &gone, jobs.len()).await?;
    tx.execute(query!("prune/prune_backfills", before.millis(), rows::limit(limit))).await?;
    tx.execute(query!("prune/prune_asks", before.millis(), rows::limit(limit))).await?;
    prune_flows(&mut tx, ranges_before, limit).await?;
    let used_before = now.minus(IDEMPOTENCY_KEPT).millis();
    let requests = tx.execute(query!("requests/prune_requests", used_before, rows::limit(limit))).await?;
    tx.commit().await?;
    Ok(Pruned { runs: dropped + runs.len() as u64, jobs: jobs.len() as u64, requests })
}

/// Deletes the rows that belong to removed runs or jobs.
async fn delete(tx: &mut DbTx, statements: &[&'static str], gone: &rows::Ids, count: usize) -> Result<()> {
    for statement in statements.iter().filter(|_| count > 0) {
        tx.execute(sqlx::query(*statement).bind(gone)).await?;
    }
    Ok(())
}

/// Removes about `limit` flows that have no runs left. Continues page by page after flows that must stay.
async fn prune_flows(tx: &mut DbTx, before: RunId, limit: usize) -> Result<()> {
    let (mut gone, mut after) = (0, Uuid::nil());
    loop {
        let page: Vec<Uuid> =
            tx.scalars(query!("prune/flow_prune_page", before.uuid(), after, rows::limit(limit))).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = *last;
        let full = page.len() >= limit;
        let pruned = tx.execute(query!("prune/flow_prune", rows::ids(page))).await?;
        gone += usize::try_from(pruned).unwrap_or(usize::MAX);
        if !full || gone >= limit {
            return Ok(());
        }
    }
}
