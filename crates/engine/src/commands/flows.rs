//! Cancels and reruns flows.

use everytick_domain::ids::{RunId, TenantId};
use everytick_store::{Actor, CancelledFlow, FlowRecord, IdempotencyKey, RerunFlow, Result};

use super::{Commands, trigger::count_cancelled};

impl Commands {
    /// Cancels the open runs of a flow, including work in progress. The flow starts no more runs.
    pub async fn cancel_flow(&self, tenant: TenantId, actor: &Actor, flow: RunId) -> Result<CancelledFlow> {
        let cancelled = self.store.cancel_flow(tenant, actor, flow).await?;
        count_cancelled(cancelled.cancelled.len());
        for (job, run) in &cancelled.claimed {
            self.hints.runs_ended(*job, [*run]);
        }
        self.notify_flows();
        Ok(cancelled)
    }

    /// Creates one new flow from the named jobs, or from all jobs that failed or were cancelled, and the jobs that depend on
    /// them.
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
        self.notify_flows();
        Ok(made)
    }

    /// Called after runs have ended. Wakes the flows loop if the store has recorded flow steps, so that the loop does
    /// not wait for its poll.
    pub(super) fn notify_flows(&self) {
        if self.store.take_steps_written() {
            self.hints.flow_steps();
        }
    }

    /// The key of the request, or a random one.
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
