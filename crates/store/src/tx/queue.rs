//! Queues: the limits that operators set, and the heartbeats and logs of workers.

use async_trait::async_trait;
use everytick_domain::{
    ids::{Fence, RunId, TenantId},
    output::{LogPart, append},
    queue::QueueLimits,
    run::State,
    time::{DbTime, Span},
};

use super::{Tx, audit_one};
use crate::{Actor, ClaimBeat, Result, queues::limits_detail};

/// The verbs of queues.
#[async_trait]
pub trait QueueTx: Tx {
    /// Extends a worker's claim under this fence. Returns whether the worker still has it. A claim that a receiver has
    /// accepted lives until its timeout, so it is not extended.
    async fn extend_claim(&mut self, tenant: TenantId, run: RunId, fence: Fence, until: DbTime) -> Result<bool>;
    /// Locks a worker's claim under this fence and returns its log. `None` if the worker no longer has the claim.
    async fn lock_log(&mut self, tenant: TenantId, run: RunId, fence: Fence) -> Result<Option<Option<String>>>;
    /// Replaces the log of a locked claim.
    async fn set_log(&mut self, run: RunId, log: &str) -> Result<()>;
    /// Writes the limits of a queue. With another rate, nothing counts as spent.
    async fn set_limits(&mut self, tenant: TenantId, name: &str, limits: QueueLimits) -> Result<()>;
}

pub async fn beat_claim<T: QueueTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    run: RunId,
    fence: Fence,
    lease: Span,
) -> Result<ClaimBeat> {
    let until = tx.read_clock().await?.plus(lease);
    if tx.extend_claim(tenant, run, fence, until).await? {
        return Ok(ClaimBeat::Extended { until });
    }
    let state = tx.get_run(tenant, run).await?.state;
    Ok(if state == State::Cancelled { ClaimBeat::Cancelled } else { ClaimBeat::Stale })
}

pub async fn log_claim<T: QueueTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    run: RunId,
    fence: Fence,
    part: LogPart<'_>,
) -> Result<bool> {
    let Some(log) = tx.lock_log(tenant, run, fence).await? else {
        // Returns "not found" for an unknown run.
        tx.get_run(tenant, run).await?;
        return Ok(false);
    };
    // PostgreSQL text cannot contain NUL.
    let text = part.text.replace('\0', "\u{fffd}");
    tx.set_log(run, &append(log.as_deref(), LogPart { text: &text, ..part })).await?;
    Ok(true)
}

pub async fn set_queue<T: QueueTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    name: &str,
    limits: QueueLimits,
) -> Result<()> {
    tx.set_limits(tenant, name, limits).await?;
    tx.read_clock().await?;
    audit_one(tx, tenant, actor, "limit", format!("queue {name}"), limits_detail(&limits)).await?;
    tx.notify_owners().await
}
