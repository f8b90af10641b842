//! Reports of receivers and workers about work they took. Each ends in the same settlement as any other outcome, under the
//! fence of the claim. A repeated report gets the same answer as the first, so a caller that lost the answer can retry.

use std::collections::{HashMap, HashSet};

use everytick_domain::{
    ids::{Fence, JobId, RunId, TenantId},
    job::Job,
    mutant::Mutant,
    run::{Claim, Policy, State, Verdict, kept},
    target::{Outcome, Retry},
    time::DbTime,
};
use everytick_store::{AttemptRecord, HeldClaim, Result, RunRecord, Settle, SettleAnswer, StoreError, Success};
use metrics::counter;

use super::Commands;

/// A reported result.
#[derive(Clone, Debug)]
pub struct Report {
    pub fence: Fence,
    pub succeeded: bool,
    /// If absent, the log of the worker is stored.
    pub output: Option<String>,
    pub error: Option<String>,
    pub retry: bool,
}

impl Report {
    fn error(&self) -> Option<String> {
        let error = || self.error.clone().unwrap_or_else(|| "reported as failed".to_owned());
        (!self.succeeded).then(error)
    }

    fn outcome(&self, log: Option<String>) -> Outcome {
        let output = self.output.clone().or(log);
        match self.error() {
            None => Outcome::Succeeded { output },
            Some(error) => {
                let retry = if self.retry { Retry::Allowed } else { Retry::Never };
                Outcome::Failed { error, output, retry }
            }
        }
    }

    /// Whether this report ended the attempt. A report without output may have stored the log instead.
    fn is_told_by(&self, attempt: &AttemptRecord) -> bool {
        let outcome = if self.succeeded { "succeeded" } else { "failed" };
        let (output, error) = kept(self.output.clone(), self.error());
        attempt.fence == self.fence
            && attempt.outcome.as_deref() == Some(outcome)
            && attempt.error == error
            && (output.is_none() || attempt.output == output)
    }
}

impl Commands {
    /// Returns the run after the settlement, or `None` if the fence is old: nothing was changed (I7).
    pub async fn report_result(&self, tenant: TenantId, run: RunId, report: Report) -> Result<Option<RunRecord>> {
        let held = self.store.held_claims(tenant, &[run]).await?.into_iter().next();
        let settled = match held.filter(|held| held.run.fence == report.fence || Mutant::UnfencedSettle.is_on()) {
            Some(held) => self.settle_held(&[(held, report.clone())]).await?.remove(0).is_some(),
            None => self.settle_claimed(tenant, run, &report).await?.is_some(),
        };
        self.answer(tenant, run, &report, settled).await
    }

    /// Settles many reports, those on claims of workers in one transaction. Each is answered as if it came alone, with the new
    /// state of its run.
    pub async fn report_results(
        &self,
        tenant: TenantId,
        reports: Vec<(RunId, Report)>,
    ) -> Result<Vec<Result<Option<State>>>> {
        let ids: HashSet<RunId> = reports.iter().map(|(run, _)| *run).collect();
        let mut brought = if ids.len() == reports.len() && reports.iter().all(|(_, report)| report.succeeded) {
            self.succeed(tenant, &reports).await?
        } else {
            self.settle_reported(tenant, &reports).await?
        };
        self.settle_others(tenant, &reports, &mut brought).await?;
        let mut answers = Vec::with_capacity(reports.len());
        for (run, report) in &reports {
            // If a run is named twice, the first report settled it. The second is judged by the run's state after that.
            answers.push(match brought.remove(run) {
                Some(state) => Ok(Some(state)),
                None => self.answer(tenant, *run, report, false).await.map(|record| record.map(|record| record.state)),
            });
        }
        Ok(answers)
    }

    /// Settles the reports that ended no claim of a worker: on runs that a receiver accepted, and on runs that a node still
    /// claims, because the receiver reported before the commit that transfers the claim to it.
    async fn settle_others(
        &self,
        tenant: TenantId,
        reports: &[(RunId, Report)],
        brought: &mut HashMap<RunId, State>,
    ) -> Result<()> {
        let left: Vec<_> = reports.iter().filter(|(run, _)| !brought.contains_key(run)).cloned().collect();
        if left.is_empty() {
            return Ok(());
        }
        brought.extend(self.settle_reported(tenant, &left).await?);
        for (run, report) in left.iter().filter(|(run, _)| !brought.contains_key(run)).cloned().collect::<Vec<_>>() {
            match self.settle_claimed(tenant, run, &report).await {
                // The caller answers this report on its own.
                Err(StoreError::NotFound(_)) => {}
                settled => brought.extend(settled?.map(|verdict| (run, verdict.state()))),
            }
        }
        Ok(())
    }

    /// The path for most batches: all reports are successes, each of a different run.
    async fn succeed(&self, tenant: TenantId, reports: &[(RunId, Report)]) -> Result<HashMap<RunId, State>> {
        let done =
            |(run, report): &(RunId, Report)| Success { run: *run, fence: report.fence, output: report.output.clone() };
        let done: Vec<Success> = reports.iter().map(done).collect();
        let ended = self.store.succeed(tenant, &done).await?;
        let ended: Vec<(RunId, JobId)> =
            done.iter().zip(ended).filter_map(|(done, job)| Some((done.run, job?))).collect();
        if ended.is_empty() {
            return Ok(HashMap::new());
        }
        let count = ended.len() as u64;
        counter!("everytick_attempts_total", "target" => "queue", "outcome" => "succeeded").increment(count);
        crate::settle::batch::count(Verdict::Succeeded, count);
        for (run, job) in &ended {
            self.hints.runs_ended(*job, [*run]);
        }
        self.hints.run_waits();
        self.notify_flows();
        Ok(ended.into_iter().map(|(run, _)| (run, State::Succeeded)).collect())
    }

    async fn settle_reported(&self, tenant: TenantId, reports: &[(RunId, Report)]) -> Result<HashMap<RunId, State>> {
        let ids: Vec<RunId> = reports.iter().map(|(run, _)| *run).collect();
        let held: HashMap<RunId, HeldClaim> =
            self.store.held_claims(tenant, &ids).await?.into_iter().map(|held| (held.run.id, held)).collect();
        let sound = |(run, report): &(RunId, Report)| {
            let held = held.get(run).filter(|held| held.run.fence == report.fence)?;
            Some((held.clone(), report.clone()))
        };
        let batch: Vec<_> = reports.iter().filter_map(sound).collect();
        let settled = if batch.is_empty() { Vec::new() } else { self.settle_held(&batch).await? };
        let mut brought: HashMap<RunId, State> = HashMap::new();
        for ((held, _), state) in batch.iter().zip(settled) {
            brought.extend(state.map(|state| (held.run.id, state)));
        }
        Ok(brought)
    }

    async fn answer(&self, tenant: TenantId, run: RunId, report: &Report, settled: bool) -> Result<Option<RunRecord>> {
        let record = self.store.get_run(tenant, run).await?;
        if settled {
            return Ok(Some(record));
        }
        let attempts = self.store.list_attempts(tenant, run).await?;
        if attempts.iter().any(|attempt| report.is_told_by(attempt)) {
            return Ok(Some(record));
        }
        counter!("everytick_settles_refused_total").increment(1);
        Ok(None)
    }

    /// Settles claims of workers. Returns the new state of each run, if it was settled.
    async fn settle_held(&self, batch: &[(HeldClaim, Report)]) -> Result<Vec<Option<State>>> {
        let now = self.store.now().await?;
        let settles: Vec<_> = batch
            .iter()
            .filter_map(|(held, report)| {
                let claim =
                    Claim { run: held.run.id, fence: held.run.fence, attempt: held.run.attempt, lost: held.run.lost };
                let outcome = report.outcome(held.log.clone());
                self.settlement(claim, outcome, &held.job, held.run.tenant, held.started_at, now)
            })
            .collect();
        let answers = self.store.settle(&settles).await?;
        for ((held, report), (settle, answer)) in batch.iter().zip(settles.iter().zip(&answers)) {
            if *answer == SettleAnswer::Settled {
                self.tell(&held.job, held.run.id, report, settle.settlement.verdict);
            }
        }
        if answers.contains(&SettleAnswer::Locked) {
            return Err(locked());
        }
        let brought = |(settle, answer): (&Settle, &SettleAnswer)| {
            (*answer == SettleAnswer::Settled).then(|| settle.settlement.verdict.state())
        };
        Ok(settles.iter().zip(&answers).map(brought).collect())
    }

    /// Settles a run that a node has claimed and whose receiver took the work.
    async fn settle_claimed(&self, tenant: TenantId, run: RunId, report: &Report) -> Result<Option<Verdict>> {
        let record = self.store.get_run(tenant, run).await?;
        let held = record.fence == report.fence || Mutant::UnfencedSettle.is_on();
        if record.state != State::Claimed || !held {
            return Ok(None);
        }
        let now = self.store.now().await?;
        let loaded = self.store.load_jobs(&[record.job]).await?.into_iter().next();
        let job = loaded.ok_or(StoreError::NotFound("job"))?.job;
        let claim = Claim { run, fence: report.fence, attempt: record.attempt, lost: record.lost };
        let Some(settle) = self.settlement(claim, report.outcome(None), &job, tenant, record.started_at, now) else {
            return Ok(None);
        };
        let verdict = settle.settlement.verdict;
        match self.store.settle(&[settle]).await?.first() {
            Some(SettleAnswer::Settled) => {}
            Some(SettleAnswer::Locked) => return Err(locked()),
            Some(SettleAnswer::Stale) | None => return Ok(None),
        }
        self.tell(&job, run, report, verdict);
        Ok(Some(verdict))
    }

    fn settlement(
        &self,
        claim: Claim,
        outcome: Outcome,
        job: &Job,
        tenant: TenantId,
        started_at: Option<DbTime>,
        now: DbTime,
    ) -> Option<Settle> {
        let policy = Policy { retry: job.spec.retry, on_lost: job.spec.on_lost };
        let settlement = claim.settle(outcome, policy, now, self.entropy.u64())?;
        let (partition, priority) = (job.partition, job.spec.priority);
        Some(Settle { settlement, job: job.id, tenant, partition, priority, started_at, ended_at: now })
    }

    fn tell(&self, job: &Job, run: RunId, report: &Report, verdict: Verdict) {
        let outcome = if report.succeeded { "succeeded" } else { "failed" };
        counter!("everytick_attempts_total", "target" => job.spec.target.kind(), "outcome" => outcome).increment(1);
        crate::settle::batch::count(verdict, 1);
        self.hints.runs_ended(job.id, [run]);
        self.hints.run_waits();
        self.notify_flows();
    }
}

/// The caller retries the report. If the run was settled meanwhile, the retry gets that answer.
fn locked() -> StoreError {
    StoreError::Failed { doing: "settle runs", source: "another session has locked the run".into() }
}
