//! What people ask of flows.

use everytick_domain::ids::{RunId, TenantId};
use everytick_store::{Actor, CancelledFlow, FlowRecord, IdempotencyKey, RerunFlow, Result};

use super::{Commands, run_now::count_cancelled};

impl Commands {
    /// Cancels what is open of a flow, so that it reaches the work; it starts nothing more.
    pub async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, flow: RunId) -> Result<CancelledFlow> {
        let cancelled = self.store.cancel_flow(tenant, actor, flow).await?;
        count_cancelled(cancelled.cancelled.len());
        for (job, run) in &cancelled.claimed {
            self.hints.runs_ended(*job, [*run]);
        }
        self.tell_steps();
        Ok(cancelled)
    }

    /// One new flow of the jobs named, or of all that failed or were cancelled, and of what follows them.
    pub async fn rerun_flow(
        &self,
        tenant: TenantId,
        actor: &Actor,
        flow: RunId,
        from: Vec<String>,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<FlowRecord> {
        let key = self.key_of(idempotency.as_ref());
        let made = self.store.rerun_flow(tenant, actor, RerunFlow { flow, from, key, idempotency }).await?;
        self.hints.run_waits();
        self.tell_steps();
        Ok(made)
    }

    /// Runs have ended: where a flow may follow, its loop need not wait for its poll.
    pub(super) fn tell_steps(&self) {
        if self.store.left_steps() {
            self.hints.flow_steps();
        }
    }

    /// A key that the request brings, or a fresh one.
    pub(super) fn key_of(&self, idempotency: Option<&IdempotencyKey>) -> Vec<u8> {
        match idempotency {
            Some(idempotency) => idempotency.key.clone().into_bytes(),
            None => {
                let mut random = vec![0; 16];
                self.entropy.fill(&mut random);
                random
            }
        }
    }
}
