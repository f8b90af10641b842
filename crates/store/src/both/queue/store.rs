//! The transactions of workers. Claims and successes are hot, and each database has its own; the scripts of the others
//! are in `crate::tx::queue`.

use async_trait::async_trait;
use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    output::LogPart,
    queue::{QueueLimits, Rate},
    time::{DbTime, Span},
};
use sqlx::Row as _;

use super::{
    super::{DbRow, DbStore, DbTx, Failed, asked, rows},
    claim, open_claims, previous, succeed, worker_claims,
};
use crate::{
    Actor, ClaimBeat, ClaimQueue, DEPTH_COUNTED_MAX, LoadedClaim, OverdueClaim, Page, QueueClaims, QueueLook,
    QueueRecord, QueueStore, Result, Success,
    tx::{
        Tx as _, in_read, in_tx,
        queue::{self, QueueTx},
    },
};

#[async_trait]
impl QueueStore for DbStore {
    async fn claim_queue(&self, ask: &ClaimQueue) -> Result<QueueClaims> {
        self.writes(claim::claim_queue(self, ask)).await
    }
    async fn beat_claim(&self, tenant: TenantId, run: RunId, fence: Fence, lease: Span) -> Result<ClaimBeat> {
        in_tx!(self.of(tenant), "extend a worker's claim", tx => queue::beat_claim(tx, tenant, run, fence, lease))
    }
    async fn log_claim(&self, tenant: TenantId, run: RunId, fence: Fence, part: LogPart<'_>) -> Result<bool> {
        in_tx!(self.of(tenant), "append to a worker's log", tx => queue::log_claim(tx, tenant, run, fence, part))
    }
    async fn claim_log(&self, tenant: TenantId, run: RunId) -> Result<Option<String>> {
        in_read!(self.of(tenant), "read a worker's log", tx => claim_log(tx, tenant, run))
    }
    async fn load_claims(&self, tenant: TenantId, runs: &[RunId]) -> Result<Vec<LoadedClaim>> {
        in_read!(self.of(tenant), "read workers' claims", tx => open_claims::load_claims(self, tx, tenant, runs))
    }
    async fn succeed(&self, tenant: TenantId, done: &[Success]) -> Result<Vec<Option<JobId>>> {
        self.writes(succeed::succeed(self, tenant, done)).await
    }
    async fn load_overdue_claims(&self, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
        self.writes(worker_claims::load_overdue(self, grace, limit)).await
    }
    async fn look_at_queues(&self, queues: &[(TenantId, String)]) -> Result<QueueLook> {
        in_read!(self, "read the queues", tx => look_at_queues(tx, queues))
    }
    async fn list_queues(
        &self,
        tenant: TenantId,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Page<QueueRecord, String>> {
        in_read!(self.of(tenant), "list queues", tx => list_queues(tx, tenant, from, limit))
    }
    async fn note_asked(&self, tenant: TenantId, queue: &str, worker: &str) -> Result<bool> {
        in_tx!(self.of(tenant), "note that a worker asked", tx => asked::note(tx, tenant, queue, worker))
    }
    async fn set_queue(&self, tenant: TenantId, actor: &Actor, name: &str, limits: QueueLimits) -> Result<()> {
        in_tx!(self.of(tenant), "set queue limits", tx => queue::set_queue(tx, tenant, actor, name, limits))
    }
    async fn supersede_in_queues(&self, limit: usize) -> Result<Vec<RunId>> {
        self.writes(previous::supersede_in_queues(self, limit)).await
    }
}

#[async_trait]
impl QueueTx for DbTx {
    async fn extend_claim(&mut self, tenant: TenantId, run: RunId, fence: Fence, until: DbTime) -> Result<bool> {
        let beat = query!("worker_claims/worker_beat", tenant.raw(), run.uuid(), fence.raw(), until.millis());
        Ok(self.execute(beat).await? > 0)
    }
    async fn lock_log(&mut self, tenant: TenantId, run: RunId, fence: Fence) -> Result<Option<Option<String>>> {
        self.optional_scalar(query!("worker_claims/worker_log_lock", tenant.raw(), run.uuid(), fence.raw())).await
    }
    async fn set_log(&mut self, run: RunId, log: &str) -> Result<()> {
        self.execute_or_refuse(query!("worker_claims/worker_log", run.uuid(), log)).await.map(drop)
    }
    async fn set_limits(&mut self, tenant: TenantId, name: &str, limits: QueueLimits) -> Result<()> {
        self.execute_or_refuse(query!(
            "queue/queues_set",
            tenant.raw(),
            name,
            limits.concurrency.map(rows::int),
            limits.rate.map(|rate| rows::int(rate.count)),
            limits.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX))
        ))
        .await?;
        Ok(())
    }
}

async fn claim_log(tx: &mut DbTx, tenant: TenantId, run: RunId) -> Result<Option<String>> {
    let log: Option<Option<String>> =
        tx.optional_scalar(query!("worker_claims/worker_log_get", tenant.raw(), run.uuid())).await?;
    Ok(log.flatten())
}

async fn look_at_queues(tx: &mut DbTx, queues: &[(TenantId, String)]) -> Result<QueueLook> {
    let now = tx.read_clock().await?;
    let found = tx.fetch_all(worker_claims::look(queues, now)).await?;
    let mut look = QueueLook { now, due: Vec::new(), next_due: None };
    for row in &found {
        if row.try_get("due").failed(tx.doing)? {
            look.due.push((rows::tenant(row).failed(tx.doing)?, row.try_get("name").failed(tx.doing)?));
        }
        look.next_due = look.next_due.into_iter().chain(rows::time(row, "next_due").failed(tx.doing)?).min();
    }
    Ok(look)
}

async fn list_queues(
    tx: &mut DbTx,
    tenant: TenantId,
    from: Option<&str>,
    limit: usize,
) -> Result<Page<QueueRecord, String>> {
    let now = tx.read_clock().await?.millis();
    let (one_more, counted) = (rows::limit(limit.saturating_add(1)), rows::limit(DEPTH_COUNTED_MAX));
    let list = query!("queue/queues_list", tenant.raw(), from.unwrap_or_default(), one_more, now, counted);
    let found = tx.fetch_all(list).await?;
    let mut items: Vec<QueueRecord> = tx.unreadable.each("queues", &found, record);
    let next = items.split_off(limit.min(items.len())).into_iter().next().map(|queue| queue.name);
    Ok(Page { items, next })
}

fn record(row: &DbRow) -> rows::Decoded<QueueRecord> {
    let count = |name| row.try_get::<i64, _>(name).map(i64::unsigned_abs);
    Ok(QueueRecord {
        name: row.try_get("name")?,
        limits: limits(row)?,
        due: count("due")?,
        later: count("later")?,
        oldest: rows::time(row, "oldest")?,
        claimed: count("claimed")?,
        asked_at: rows::time(row, "asked_at")?,
    })
}

pub(in super::super) fn limits(row: &DbRow) -> rows::Decoded<QueueLimits> {
    let number = |name| rows::optional_int(row, name).map(|number| number.and_then(|n| u32::try_from(n).ok()));
    let per = row.try_get::<Option<i64>, _>("rate_ms")?.map(|ms| Span::millis(ms.unsigned_abs()));
    let rate = number("rate_count")?.zip(per).map(|(count, per)| Rate { count, per });
    Ok(QueueLimits { concurrency: number("concurrency")?, rate })
}
