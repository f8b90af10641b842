//! What a receiver reports later of work that it took: the same settlement as any other, under the fence it was handed.

use everytick_domain::{
    ids::{Fence, RunId, TenantId},
    mutant::Mutant,
    run::{Claim, Policy, State},
    target::{Outcome, Retry},
};
use everytick_store::{Result, RunRecord, Settle, SettleAnswer, StoreError};

use super::Commands;

/// A result as a receiver reports it.
#[derive(Clone, Debug)]
pub struct Report {
    pub fence: Fence,
    pub succeeded: bool,
    pub output: Option<String>,
    pub error: Option<String>,
    pub retry: bool,
}

impl Commands {
    /// The run as it then stands, or `None` when the fence is old: nothing was changed (I7).
    pub async fn report_result(&self, tenant: TenantId, run: RunId, report: Report) -> Result<Option<RunRecord>> {
        let record = self.store.get_run(tenant, run).await?;
        let held = record.fence == report.fence || Mutant::UnfencedSettle.is_on();
        if record.state != State::Claimed || !held {
            return Ok(None);
        }
        let now = self.store.now().await?;
        let loaded = self.store.load_jobs(&[record.job]).await?.into_iter().next();
        let job = loaded.ok_or(StoreError::NotFound("job"))?.job;
        let report_succeeded = report.succeeded;
        let outcome = if report.succeeded {
            Outcome::Succeeded { output: report.output }
        } else {
            Outcome::Failed {
                error: report.error.unwrap_or_else(|| "reported as failed".to_owned()),
                output: report.output,
                retry: if report.retry { Retry::Allowed } else { Retry::Never },
            }
        };
        let claim = Claim { run, fence: report.fence, attempt: record.attempt, lost: record.lost };
        let policy = Policy { retry: job.spec.retry, on_lost: job.spec.on_lost };
        let Some(settlement) = claim.settle(outcome, policy, now, self.entropy.u64()) else { return Ok(None) };
        let verdict = settlement.verdict;
        let settle = Settle {
            settlement,
            job: job.id,
            tenant,
            partition: job.partition,
            priority: job.spec.priority,
            started_at: record.started_at,
            ended_at: now,
        };
        let answers = self.store.settle(&[settle]).await?;
        if answers.first() != Some(&SettleAnswer::Settled) {
            return Ok(None);
        }
        let state = if report_succeeded { "succeeded" } else { "failed" };
        metrics::counter!("everytick_attempts_total", "target" => job.spec.target.kind(), "outcome" => state)
            .increment(1);
        crate::loops::settle::count(verdict);
        self.hints.runs_ended(job.id, [run]);
        self.hints.run_waits();
        self.store.get_run(tenant, run).await.map(Some)
    }
}
