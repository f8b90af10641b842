//! Reports of receivers and workers on the result of their work. A report is settled like any other outcome, under the fence
//! of the claim. A repeated report gets the same answer as the first, so a caller that lost the answer can retry.
//!
//! Reports of success on claims of workers cost one call of the store, all other reports on such claims two. A single report
//! also reads its run, for the answer.

use std::collections::{HashMap, HashSet};

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    job::Job,
    mutant::Mutant,
    run::{Claim, State, Verdict},
    secret::Scrubber,
};
use everytick_store::{LoadedClaim, Result, RunRecord, Settle, SettleAnswer, StoreError, Success};
use metrics::counter;

use super::Commands;
use crate::settle::{
    conclude::{EndedAttempt, conclude, count},
    report::Report,
};

/// Reported runs that are settled, each with its new state.
type Settled = HashMap<RunId, State>;

impl Commands {
    /// Returns the run after the settlement, or `None` if the fence is old: nothing was changed (I7).
    pub async fn report_result(&self, tenant: TenantId, run: RunId, report: Report) -> Result<Option<RunRecord>> {
        let report = self.scrubbed(tenant, run, report).await?;
        let reports = [(run, report)];
        let settled = self.settle_reports(tenant, &reports).await?.contains_key(&run);
        self.answer(tenant, run, &reports[0].1, settled).await
    }

    /// The report without the secrets that the receiver got.
    async fn scrubbed(&self, tenant: TenantId, run: RunId, report: Report) -> Result<Report> {
        if report.output.is_none() && report.error.is_none() {
            return Ok(report);
        }
        let Some(forms) = self.secrets_of_run(tenant, run).await? else { return Ok(report) };
        let clean = |text: Option<String>| text.map(|text| Scrubber::scrub(&forms, &text));
        Ok(Report { output: clean(report.output), error: clean(report.error), ..report })
    }

    /// Settles many reports, those on claims of workers in one transaction. Each is answered as if it came alone, with the new
    /// state of its run.
    pub async fn report_results(
        &self,
        tenant: TenantId,
        reports: Vec<(RunId, Report)>,
    ) -> Result<Vec<Result<Option<State>>>> {
        let mut settled = self.settle_reports(tenant, &reports).await?;
        let mut answers = Vec::with_capacity(reports.len());
        for (run, report) in &reports {
            // If a run is named twice, the first report settled it. The second is judged by the run's state after that.
            answers.push(match settled.remove(run) {
                Some(state) => Ok(Some(state)),
                None => self.answer(tenant, *run, report, false).await.map(|record| record.map(|record| record.state)),
            });
        }
        Ok(answers)
    }

    /// Settles the reports whose fence is current: first those on claims of workers and receivers, then those on runs that a
    /// node still claims, because the receiver reported before the commit that transfers the claim to it.
    async fn settle_reports(&self, tenant: TenantId, reports: &[(RunId, Report)]) -> Result<Settled> {
        let ids: HashSet<RunId> = reports.iter().map(|(run, _)| *run).collect();
        let mut settled = Settled::new();
        if ids.len() == reports.len() && reports.iter().all(|(_, report)| report.succeeded) {
            settled = self.succeed(tenant, reports).await?;
        }
        let rest: Vec<_> = reports.iter().filter(|(run, _)| !settled.contains_key(run)).collect();
        if rest.is_empty() {
            return Ok(settled);
        }
        settled.extend(self.settle_worker_claims(tenant, &rest).await?);
        for (run, report) in rest {
            if settled.contains_key(run) {
                continue;
            }
            match self.settle_node_claim(tenant, *run, report).await {
                // The caller answers this report on its own. A single report on a run whose job cannot be read is not
                // stale, so its error is returned: the worker may report again.
                Err(StoreError::NotFound(what)) if what == "run" || reports.len() > 1 => {}
                state => settled.extend(state?.map(|state| (*run, state))),
            }
        }
        Ok(settled)
    }

    /// The path for most batches: all reports are successes, each of a different run.
    async fn succeed(&self, tenant: TenantId, reports: &[(RunId, Report)]) -> Result<Settled> {
        let done =
            |(run, report): &(RunId, Report)| Success { run: *run, fence: report.fence, output: report.output.clone() };
        let done: Vec<Success> = reports.iter().map(done).collect();
        let ended = self.store.succeed(tenant, &done).await?;
        let ended: Vec<(RunId, JobId)> =
            done.iter().zip(ended).filter_map(|(done, job)| Some((done.run, job?))).collect();
        if ended.is_empty() {
            return Ok(Settled::new());
        }
        let runs = ended.len() as u64;
        counter!("everytick_attempts_total", "target" => "queue", "outcome" => "succeeded").increment(runs);
        count(Verdict::Succeeded, runs);
        for (run, job) in &ended {
            self.hints.runs_ended(*job, [*run]);
        }
        self.hints.run_waits();
        self.notify_flows();
        Ok(ended.into_iter().map(|(run, _)| (run, State::Succeeded)).collect())
    }

    /// Settles the reports on claims of workers, and on claims that receivers accepted.
    async fn settle_worker_claims(&self, tenant: TenantId, reports: &[&(RunId, Report)]) -> Result<Settled> {
        let ids: Vec<RunId> = reports.iter().map(|(run, _)| *run).collect();
        let claims: HashMap<RunId, LoadedClaim> =
            self.store.load_claims(tenant, &ids).await?.into_iter().map(|claim| (claim.run.id, claim)).collect();
        let is_current =
            |claim: &LoadedClaim, report: &Report| claim.run.fence == report.fence || Mutant::UnfencedSettle.is_on();
        let batch: Vec<(&LoadedClaim, &Report)> = reports
            .iter()
            .filter_map(|(run, report)| Some((claims.get(run).filter(|claim| is_current(claim, report))?, report)))
            .collect();
        if batch.is_empty() {
            return Ok(Settled::new());
        }
        let settle = |(claim, report): &(&LoadedClaim, &Report)| {
            conclude(EndedAttempt::of(claim), report.outcome(), claim.now, self.entropy.as_ref())
        };
        let settles: Vec<Settle> = batch.iter().filter_map(settle).collect();
        let answers = self.store.settle(&settles).await?;
        let mut settled = Settled::new();
        for ((claim, report), (settle, answer)) in batch.iter().zip(settles.iter().zip(&answers)) {
            if *answer == SettleAnswer::Settled {
                let verdict = settle.settlement.verdict;
                self.announce(&claim.job, claim.run.id, report, verdict);
                settled.insert(claim.run.id, verdict.state());
            }
        }
        if answers.contains(&SettleAnswer::Locked) {
            return Err(locked());
        }
        Ok(settled)
    }

    /// Settles a run that a node has claimed and whose receiver accepted the work.
    async fn settle_node_claim(&self, tenant: TenantId, run: RunId, report: &Report) -> Result<Option<State>> {
        let record = self.store.get_run(tenant, run).await?;
        let current = record.fence == report.fence || Mutant::UnfencedSettle.is_on();
        if record.state != State::Claimed || !current {
            return Ok(None);
        }
        let now = self.store.now().await?;
        let loaded = self.store.load_jobs(&[record.job]).await?.into_iter().next();
        let job = loaded.ok_or(StoreError::NotFound("job"))?.job;
        let claim = Claim { run, fence: report.fence, attempt: record.attempt, lost: record.lost };
        let started_at = record.started_at;
        let attempt = EndedAttempt { claim, job: &job, tenant, started_at, ended_at: now, log: None };
        let Some(settle) = conclude(attempt, report.outcome(), now, self.entropy.as_ref()) else { return Ok(None) };
        let verdict = settle.settlement.verdict;
        match self.store.settle(&[settle]).await?.first() {
            Some(SettleAnswer::Settled) => {}
            Some(SettleAnswer::Locked) => return Err(locked()),
            Some(SettleAnswer::Stale) | None => return Ok(None),
        }
        self.announce(&job, run, report, verdict);
        Ok(Some(verdict.state()))
    }

    /// The answer to a report: the run, if this report settled it now or earlier; otherwise `None`.
    async fn answer(&self, tenant: TenantId, run: RunId, report: &Report, settled: bool) -> Result<Option<RunRecord>> {
        let record = self.store.get_run(tenant, run).await?;
        if settled {
            return Ok(Some(record));
        }
        let attempts = self.store.list_attempts(tenant, run).await?;
        if attempts.iter().any(|attempt| report.has_ended(attempt)) {
            return Ok(Some(record));
        }
        counter!("everytick_settles_refused_total").increment(1);
        Ok(None)
    }

    /// Counts a settled report, and wakes the loops that wait for its run.
    fn announce(&self, job: &Job, run: RunId, report: &Report, verdict: Verdict) {
        let (target, outcome) = (job.spec.target.kind(), report.word());
        counter!("everytick_attempts_total", "target" => target, "outcome" => outcome).increment(1);
        count(verdict, 1);
        self.hints.runs_ended(job.id, [run]);
        self.hints.run_waits();
        self.notify_flows();
    }
}

/// The caller retries the report. If the run was settled meanwhile, the retry gets that answer.
pub(super) fn locked() -> StoreError {
    StoreError::Failed { doing: "settle runs", source: "another session has locked the run".into() }
}
