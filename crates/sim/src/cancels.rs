//! Cancels and supersedes runs, stores the output of cancelled runs, and redrives failed runs.

use everytick_domain::{
    ids::{Fence, RunId, TenantId},
    invalid::Invalid,
    mutant::Mutant,
    overlap,
    run::{CauseKind, State},
    time::DbTime,
};

use super::db::{Db, Entry, RunRow, WaitingRow};
use everytick_store::{
    Actor, CancelledJob, CancelledRuns, JobRef, KeptOutput, Lease, Redrive, Redriven, Result, StoreError, Supersede,
};

impl Db {
    /// Cancels an open run; `to` is the newer run that supersedes it.
    pub(super) fn cancel(&mut self, id: RunId, to: Option<RunId>, now: DbTime) {
        self.waiting.remove(&id);
        self.delegated.remove(&id);
        let log = self.worker_claims.remove(&id).and_then(|claim| claim.log);
        let Some(run) = self.runs.get_mut(&id) else { return };
        let was = run.state;
        run.state = State::Cancelled;
        if !Mutant::CancelKeepsFence.is_on() {
            run.fence = run.fence.raised(now);
        }
        run.finished_at = Some(now);
        run.output = run.output.take().or(log);
        run.error = to.map(overlap::superseded_error).or(run.error.take());
        self.open.remove(&(run.job, id));
        self.journal.push(Entry::Cancelled { run: id, job: run.job, was, fence: run.fence, to });
        self.leave_step(id);
    }

    pub(super) fn supersede(&mut self, lease: &Lease, runs: &[Supersede], now: DbTime) -> Result<Vec<RunId>> {
        self.held(lease, now)?;
        let is_open = |given: &&Supersede| self.runs.get(&given.run).is_some_and(|run| run.state.is_open());
        let open: Vec<_> = runs.iter().filter(is_open).copied().collect();
        for given in &open {
            self.cancel(given.run, Some(given.to), now);
        }
        Ok(open.iter().map(|given| given.run).collect())
    }

    pub(super) fn keep_outputs(&mut self, outputs: &[KeptOutput]) {
        for kept in outputs {
            let ours = |run: &&mut RunRow| {
                run.state == State::Cancelled && run.attempt == kept.attempt && run.output.is_none()
            };
            if let Some(run) = self.runs.get_mut(&kept.run).filter(ours) {
                run.output = Some(kept.output.clone());
            }
        }
    }

    pub(super) fn cancel_job(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        job: &JobRef,
        now: DbTime,
    ) -> Result<CancelledJob> {
        let row = self.find(tenant, job)?;
        let (job, job_name) = (row.job.id, row.job.spec.name.clone());
        let mut runs = CancelledRuns::default();
        for open in self.open_runs(job) {
            self.cancel(open.id, None, now);
            self.note(tenant, actor, "cancel", open.id.to_string(), "{}".into(), now);
            let of = if open.state == State::Claimed { &mut runs.claimed } else { &mut runs.waited };
            of.push(open.id);
        }
        Ok(CancelledJob { job, job_name, runs })
    }

    pub(super) fn redrive(&mut self, tenant: TenantId, actor: &Actor, ask: &Redrive, now: DbTime) -> Result<Redriven> {
        let row = self.find(tenant, &ask.job)?;
        let (job, spec, name) = (row.job.id, row.job.spec.clone(), row.job.spec.name.clone());
        let (from, to) = ask.ids();
        let failed: Vec<_> = self
            .runs_of(job)
            .filter(|(id, run)| (from..to).contains(id) && run.state == State::Failed)
            .map(|(id, _)| self.get_run(tenant, id))
            .map(|run| run.map(|run| everytick_store::RunRecord { output: None, payload: None, ..run }))
            .take(ask.limit + 1)
            .collect::<Result<_>>()?;
        let waits = self.waiting.values().filter(|row| row.job == job).count() as u64;
        let max = self.limits.open_requests_per_job_max;
        let state = |run: RunId| self.runs.get(&run).map(|run| run.state);
        let (room, full) = Redriven::room(&spec, self.open_of(job).count(), waits, max);
        let redriven = Redriven::plan((job, name), ask, failed, room, state);
        if redriven.runs.is_empty() && redriven.next_since.is_some() {
            return Err(StoreError::Invalid(vec![Invalid::new("job", full)]));
        }
        for (failed, id) in redriven.to_make() {
            let Some(old) = self.runs.get(&failed).cloned() else { continue };
            let due_at = now.max(old.scheduled_at);
            let mut row = WaitingRow {
                job,
                tenant,
                priority: spec.priority,
                due_at,
                late: true,
                force: false,
                attempts: 0,
                queue: None,
                rank: 0,
                key: spec.key_of(old.payload.as_deref()),
            };
            row.place(&spec, now);
            self.waiting.insert(id, row);
            let run = RunRow {
                cause: CauseKind::Request,
                due_at,
                state: State::Waiting,
                attempt: 0,
                lost: 0,
                fence: Fence::default(),
                node: None,
                incarnation: None,
                started_at: None,
                finished_at: None,
                error: None,
                output: None,
                flow: None,
                ..old
            };
            self.insert_run(id, run, None, now);
            self.plan_anew(job, now);
        }
        for (subject, detail) in redriven.audit() {
            self.note(tenant, actor, "redrive", subject, detail, now);
        }
        Ok(redriven)
    }
}
