//! Pull queues on maps: claims of workers, heartbeats, logs, overdue claims, and queue limits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use everytick_domain::{
    explain::{AHEAD_COUNTED_MAX, Asked, QueueFacts},
    ids::{Fence, Incarnation, JobId, RunId, TenantId},
    job::Overlap,
    mutant::Mutant,
    output::LogPart,
    overlap::{JobRuns, Open},
    queue::{CLAIM_RUNS_MAX, Candidate, JobLoad, QueueLimits, choose},
    run::State,
    time::{DbTime, Span},
};

use super::{
    Point, SimStore,
    call::{call, script},
    db::{Db, JobRow, WaitingRow},
    runs::claimed_run,
    tx::SimTx,
};
use everytick_store::{
    Actor, ClaimBeat, ClaimQueue, LoadedClaim, OverdueClaim, Page, QueueClaims, QueueLook, QueueRecord, QueueStore,
    Result, SettleAnswer, StoreError, Success, WorkerClaim,
    tx::queue::{self, QueueTx},
};

/// A worker's claim on a run.
#[derive(Clone, Debug)]
pub(super) struct WorkerClaimRow {
    pub tenant: TenantId,
    pub queue: String,
    pub worker: String,
    pub fence: Fence,
    pub until: DbTime,
    pub timeout_at: DbTime,
    pub key: Option<String>,
    pub log: Option<String>,
    /// When the run was due before the claim, and whether it was late.
    pub due_at: DbTime,
    pub late: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueRow {
    pub limits: QueueLimits,
    pub spent_until: i64,
}

/// The incarnation in the row of a run that a worker, not a node, has claimed.
pub(super) const NO_NODE: Incarnation = Incarnation::from_uuid(uuid::Uuid::nil());

#[async_trait]
impl QueueStore for SimStore {
    async fn claim_queue(&self, ask: &ClaimQueue) -> Result<QueueClaims> {
        call!(self, Claim, [ask], |db, now| Ok(db.claim_queue(&ask, now)))
    }
    async fn beat_claim(&self, tenant: TenantId, run: RunId, fence: Fence, lease: Span) -> Result<ClaimBeat> {
        script!(self, Renew, "extend a worker's claim", [], |tx| queue::beat_claim(tx, tenant, run, fence, lease))
    }
    async fn log_claim(&self, tenant: TenantId, run: RunId, fence: Fence, part: LogPart<'_>) -> Result<bool> {
        let LogPart { missing, text } = part;
        script!(self, Renew, "append to a worker's log", [text], |tx| {
            queue::log_claim(tx, tenant, run, fence, LogPart { missing, text: &text })
        })
    }
    async fn claim_log(&self, tenant: TenantId, run: RunId) -> Result<Option<String>> {
        call!(self, Read, [], |db, _| {
            Ok(db.worker_claims.get(&run).filter(|claim| claim.tenant == tenant).and_then(|claim| claim.log.clone()))
        })
    }
    async fn load_claims(&self, tenant: TenantId, runs: &[RunId]) -> Result<Vec<LoadedClaim>> {
        call!(self, Load, [runs], |db, now| {
            let ours = |run: &RunId| db.worker_claims.get(run).filter(|claim| claim.tenant == tenant);
            Ok(runs.iter().filter_map(|run| db.loaded_claim(*run, ours(run)?, now)).collect())
        })
    }
    async fn succeed(&self, tenant: TenantId, done: &[Success]) -> Result<Vec<Option<JobId>>> {
        call!(self, Settle, [done], |db, now| Ok(done.iter().map(|done| db.succeed(tenant, done, now)).collect()))
    }
    async fn load_overdue_claims(&self, grace: Span, limit: usize) -> Result<Vec<OverdueClaim>> {
        call!(self, Load, [], |db, now| Ok(db.overdue_claims(now, grace, limit)))
    }
    async fn supersede_in_queues(&self, limit: usize) -> Result<Vec<RunId>> {
        call!(self, Claim, [], |db, now| Ok(db.supersede_in_queues(limit, now)))
    }
    async fn look_at_queues(&self, queues: &[(TenantId, String)]) -> Result<QueueLook> {
        call!(self, Peek, [queues], |db, now| Ok(db.look_at_queues(&queues, now)))
    }
    async fn list_queues(
        &self,
        tenant: TenantId,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Page<QueueRecord, String>> {
        let from = from.unwrap_or_default();
        call!(self, Read, [from], |db, now| Ok(db.list_queues(tenant, &from, limit, now)))
    }
    async fn note_asked(&self, tenant: TenantId, queue: &str, worker: &str) -> Result<bool> {
        // Not through `call!`, so no fault applies. The note changes no run, so a seed gives the same history with and without it.
        let (key, mut db) = ((tenant, queue.to_owned()), self.lock());
        let exists = db.has_queue(&key);
        if exists {
            db.asked.insert(key, Asked { at: self.clock.now(), worker: worker.to_owned() });
        }
        Ok(exists)
    }
    async fn set_queue(&self, tenant: TenantId, actor: &Actor, name: &str, limits: QueueLimits) -> Result<()> {
        script!(self, Ask, "set queue limits", [actor, name], |tx| queue::set_queue(tx, tenant, &actor, &name, limits))
    }
}

#[async_trait]
impl QueueTx for SimTx<'_> {
    async fn extend_claim(&mut self, tenant: TenantId, run: RunId, fence: Fence, until: DbTime) -> Result<bool> {
        let Some(claim) = self.db.worker_claim(tenant, run, fence) else { return Ok(false) };
        if !claim.queue.is_empty() {
            claim.until = until;
        }
        Ok(true)
    }
    async fn lock_log(&mut self, tenant: TenantId, run: RunId, fence: Fence) -> Result<Option<Option<String>>> {
        Ok(self.db.worker_claim(tenant, run, fence).map(|claim| claim.log.clone()))
    }
    async fn set_log(&mut self, run: RunId, log: &str) -> Result<()> {
        if let Some(claim) = self.db.worker_claims.get_mut(&run) {
            claim.log = Some(log.to_owned());
        }
        Ok(())
    }
    async fn set_limits(&mut self, tenant: TenantId, name: &str, limits: QueueLimits) -> Result<()> {
        let row = self.db.queues.entry((tenant, name.to_owned())).or_default();
        if row.limits.rate != limits.rate {
            row.spent_until = 0;
        }
        row.limits = limits;
        Ok(())
    }
}

impl Db {
    fn queue_of<'a>(&'a self, tenant: TenantId, queue: &'a str) -> impl Iterator<Item = (&'a RunId, &'a WaitingRow)> {
        let here = move |row: &WaitingRow| row.tenant == tenant && row.queue.as_deref() == Some(queue);
        self.waiting.iter().filter(move |(_, row)| here(row))
    }

    fn claimed_of(&self, tenant: TenantId, queue: &str) -> usize {
        self.worker_claims.values().filter(|claim| claim.tenant == tenant && claim.queue == queue).count()
    }

    fn claim_queue(&mut self, ask: &ClaimQueue, now: DbTime) -> QueueClaims {
        let due = self.queue_of(ask.tenant, &ask.queue).filter(|(_, row)| row.due_at <= now);
        let jobs: BTreeSet<JobId> = due.map(|(_, row)| row.job).collect();
        for job in jobs {
            self.supersede_in_queue(job, now);
        }
        self.note_unreadable(now);
        let mut due: Vec<_> = self
            .queue_of(ask.tenant, &ask.queue)
            .filter(|(_, row)| row.due_at <= now)
            .filter(|(id, row)| self.call.readable_run(**id) && self.call.readable_job(row.job))
            .map(|(id, row)| (*id, row))
            .collect();
        due.sort_unstable_by_key(|(id, row)| (row.rank, *id));
        let candidates: Vec<_> = due
            .into_iter()
            .map(|(run, row)| Candidate {
                run,
                job: row.job,
                force: row.force,
                attempts: row.attempts,
                key: row.key.clone(),
            })
            .collect();
        let jobs: BTreeSet<JobId> = candidates.iter().map(|candidate| candidate.job).collect();
        let mut loads: BTreeMap<JobId, JobLoad> = jobs.into_iter().filter_map(|job| self.load_of(job)).collect();
        let limited = self.queues.get(&(ask.tenant, ask.queue.clone())).copied().unwrap_or_default();
        let wanted = ask.limit.min(CLAIM_RUNS_MAX);
        let claimed = self.claimed_of(ask.tenant, &ask.queue);
        let remaining = limited.limits.claimable(wanted, claimed, limited.spent_until, now);
        let chosen = choose(&candidates, &mut loads, remaining);
        let claims: Vec<_> = chosen.into_iter().filter_map(|run| self.claim_for_worker(run, ask, now)).collect();
        if let (Some(rate), Some(row)) = (limited.limits.rate, self.queues.get_mut(&(ask.tenant, ask.queue.clone()))) {
            row.spent_until = rate.spend(row.spent_until, now, claims.len());
        }
        QueueClaims { now, claims }
    }

    fn load_of(&self, id: JobId) -> Option<(JobId, JobLoad)> {
        let spec = &self.jobs.get(&id)?.job.spec;
        if !spec.is_guarded() {
            return None;
        }
        let mut load = JobLoad::of(spec);
        for (run, row) in self.open_of(id) {
            if row.state == State::Claimed {
                load.claimed.insert(run, self.worker_claims.get(&run).and_then(|claim| claim.key.clone()));
            } else if row.attempt > 0 {
                load.between.insert(run);
            }
        }
        Some((id, load))
    }

    fn claim_for_worker(&mut self, id: RunId, ask: &ClaimQueue, now: DbTime) -> Option<WorkerClaim> {
        let waited = self.waiting.remove(&id)?;
        self.delegated.remove(&id);
        let job = Arc::new(self.jobs.get(&waited.job)?.job.clone());
        let run = self.runs.get_mut(&id)?;
        run.claim(NO_NODE, Mutant::QueueClaimKeepsFence, now);
        run.node = None;
        run.worker = Some(ask.worker.clone());
        let (until, timeout_at) = (now.plus(ask.lease), now.plus(job.spec.timeout));
        let row = WorkerClaimRow {
            tenant: run.tenant,
            queue: ask.queue.clone(),
            worker: ask.worker.clone(),
            fence: run.fence,
            until,
            timeout_at,
            key: waited.key,
            log: None,
            due_at: waited.due_at,
            late: waited.late,
        };
        self.worker_claims.insert(id, row);
        self.journal.extend(run.claimed_entry(id, waited.late, false));
        Some(WorkerClaim { run: claimed_run(id, run), job, until, timeout_at })
    }

    fn worker_claim(&mut self, tenant: TenantId, run: RunId, fence: Fence) -> Option<&mut WorkerClaimRow> {
        self.worker_claims.get_mut(&run).filter(|claim| claim.tenant == tenant && claim.fence == fence)
    }

    fn overdue_claims(&self, now: DbTime, grace: Span, limit: usize) -> Vec<OverdueClaim> {
        let before = now.minus(grace);
        let mut overdue: Vec<_> =
            self.worker_claims.iter().filter(|(_, claim)| claim.until.min(claim.timeout_at) <= before).collect();
        let readable = |run: &RunId| {
            let job = self.runs.get(run).map(|row| row.job);
            self.call.readable_run(*run) && job.is_none_or(|job| self.call.readable_job(job))
        };
        overdue.retain(|(run, _)| readable(run));
        overdue.sort_unstable_by_key(|(run, claim)| (claim.until, **run));
        overdue.truncate(limit);
        let found = overdue.into_iter().filter_map(|(run, claim)| {
            let (worker, timed_out) = (claim.worker.clone(), claim.timeout_at <= before);
            Some(OverdueClaim { claim: self.loaded_claim(*run, claim, now)?, worker, timed_out })
        });
        found.collect()
    }

    fn loaded_claim(&self, run: RunId, claim: &WorkerClaimRow, now: DbTime) -> Option<LoadedClaim> {
        let row = self.runs.get(&run)?;
        let job = Arc::new(self.jobs.get(&row.job)?.job.clone());
        let (log, accepted) = (claim.log.clone(), claim.queue.is_empty());
        Some(LoadedClaim { run: claimed_run(run, row), job, started_at: row.started_at, log, accepted, now })
    }

    fn succeed(&mut self, tenant: TenantId, done: &Success, now: DbTime) -> Option<JobId> {
        let claim = self.worker_claims.get(&done.run).filter(|claim| claim.tenant == tenant)?;
        let loaded = self.loaded_claim(done.run, claim, now)?;
        let settled = self.settle_one(&loaded.success(done, now)?, now) == SettleAnswer::Settled;
        settled.then_some(loaded.job.id)
    }

    fn look_at_queues(&self, queues: &[(TenantId, String)], now: DbTime) -> QueueLook {
        let mut look = QueueLook { now, due: Vec::new(), next_due: None };
        for (tenant, name) in queues {
            let (due, later): (Vec<_>, Vec<_>) = self.queue_of(*tenant, name).partition(|(_, row)| row.due_at <= now);
            if !due.is_empty() {
                look.due.push((*tenant, name.clone()));
            }
            look.next_due = look.next_due.into_iter().chain(later.into_iter().map(|(_, row)| row.due_at)).min();
        }
        look
    }

    /// Whether a job uses the queue, or it has limits.
    fn has_queue(&self, key: &(TenantId, String)) -> bool {
        let uses = |row: &JobRow| row.job.tenant == key.0 && row.job.spec.target.queue() == Some(&key.1);
        self.queues.contains_key(key) || self.jobs.values().any(uses)
    }

    fn list_queues(&self, tenant: TenantId, from: &str, limit: usize, now: DbTime) -> Page<QueueRecord, String> {
        let used = self.jobs.values().filter(|row| row.job.tenant == tenant);
        let used = used.filter_map(|row| row.job.spec.target.queue().map(str::to_owned));
        let limited = self.queues.keys().filter(|(of, _)| *of == tenant).map(|(_, name)| name.clone());
        let mut names: Vec<_> = used.chain(limited).filter(|name| name.as_str() >= from).collect();
        names.sort_unstable();
        names.dedup();
        let next = names.split_off(limit.min(names.len())).into_iter().next();
        let record = |name: String| {
            let (due, later): (Vec<_>, Vec<_>) = self.queue_of(tenant, &name).partition(|(_, row)| row.due_at <= now);
            QueueRecord {
                limits: self.queues.get(&(tenant, name.clone())).map_or_else(QueueLimits::default, |row| row.limits),
                due: due.len() as u64,
                later: later.len() as u64,
                oldest: due.into_iter().chain(later).map(|(_, row)| row.due_at).min(),
                claimed: self.claimed_of(tenant, &name) as u64,
                asked_at: self.asked.get(&(tenant, name.clone())).map(|asked| asked.at),
                name,
            }
        };
        Page { items: names.into_iter().map(record).collect(), next }
    }

    pub(super) fn queue_facts(&self, tenant: TenantId, queue: &str, run: RunId, now: DbTime) -> QueueFacts {
        let key = (tenant, queue.to_owned());
        let row = self.queues.get(&key).copied().unwrap_or_default();
        let own = self.waiting.get(&run).map(|row| (row.rank, run));
        let ahead =
            |(id, row): &(&RunId, &WaitingRow)| own.is_some_and(|own| (row.rank, **id) < own) && row.due_at <= now;
        QueueFacts {
            name: queue.to_owned(),
            limits: row.limits,
            spent_until: row.spent_until,
            claimed: self.claimed_of(tenant, queue) as u64,
            ahead: self.queue_of(tenant, queue).filter(ahead).take(AHEAD_COUNTED_MAX).count() as u64,
            asked: self.asked.get(&key).cloned(),
        }
    }

    fn supersede_in_queues(&mut self, limit: usize, now: DbTime) -> Vec<RunId> {
        let jobs: BTreeSet<JobId> =
            self.worker_claims.keys().filter_map(|run| self.runs.get(run)).map(|run| run.job).collect();
        let mut gone = Vec::new();
        let mut looked = 0;
        for job in jobs {
            let given = self.supersede_in_queue(job, now);
            looked += usize::from(!given.is_empty());
            gone.extend(given);
            if looked >= limit {
                break;
            }
        }
        gone
    }

    fn supersede_in_queue(&mut self, job: JobId, now: DbTime) -> Vec<RunId> {
        let Some(spec) = self.jobs.get(&job).map(|row| row.job.spec.clone()) else { return Vec::new() };
        if spec.overlap != Overlap::CancelPrevious {
            return Vec::new();
        }
        let mut runs = JobRuns::default();
        for (run, row) in self.open_of(job) {
            runs.open.insert(run, Open { claimed: row.state == State::Claimed, attempts: row.attempt });
            let Some(waiting) = self.waiting.get(&run) else { continue };
            if waiting.due_at <= now {
                runs.due.insert(run);
            }
            if waiting.force {
                runs.forced.insert(run);
            }
        }
        let Some((older, to)) = runs.supersede(&spec) else { return Vec::new() };
        for run in &older {
            self.cancel(*run, Some(to), now);
        }
        older
    }

    /// Moves the waiting runs of a job to the queue of its current target.
    pub(super) fn requeue(&mut self, job: JobId, now: DbTime) -> Result<()> {
        let spec = self.jobs.get(&job).ok_or(StoreError::NotFound("job"))?.job.spec.clone();
        for row in self.waiting.values_mut().filter(|row| row.job == job) {
            row.place(&spec, now);
        }
        Ok(())
    }
}
