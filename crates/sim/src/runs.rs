//! Claims, settlements, and what was lost.

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    mutant::Mutant,
    partition::PartitionSet,
    recovery::in_turn,
    run::{State, Verdict},
    time::DbTime,
};

use super::db::{Db, Entry, RunRow, WaitingRow};
use everytick_store::{AttemptRecord, ClaimedRun, Lease, Result, Settle, SettleAnswer, Waiting, WaitingRun};

impl Db {
    pub(super) fn peek_waiting(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        busy: &[JobId],
        late_after: Option<TenantId>,
        limit: usize,
        now: DbTime,
    ) -> Result<Waiting> {
        self.held(lease, now)?;
        let ours = |row: &WaitingRow| row.queue.is_none() && self.stands_in(row.job, partitions);
        let mut due: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, row)| ours(row))
            .filter(|(_, row)| row.due_at <= now && (row.force || row.attempts > 0 || !busy.contains(&row.job)))
            .map(|(id, row)| WaitingRun {
                id: *id,
                job: row.job,
                tenant: row.tenant,
                priority: row.priority,
                due_at: row.due_at,
                late: row.late,
                force: row.force,
                attempts: row.attempts,
            })
            .collect();
        due.sort_unstable_by_key(|run| (run.late, std::cmp::Reverse(run.priority), run.due_at, run.id));
        let late = due.split_off(due.partition_point(|run| !run.late));
        due.extend(in_turn(late, |run| run.tenant, late_after));
        due.truncate(limit);
        let next_due =
            self.waiting.values().filter(|row| ours(row)).map(|row| row.due_at).filter(|due_at| *due_at > now).min();
        Ok(Waiting { now, due, next_due })
    }

    fn stands_in(&self, job: JobId, partitions: &PartitionSet) -> bool {
        self.jobs.get(&job).is_some_and(|row| partitions.contains(row.job.partition))
    }

    pub(super) fn claim(
        &mut self,
        lease: &Lease,
        partitions: &PartitionSet,
        runs: &[RunId],
        now: DbTime,
    ) -> Result<Vec<ClaimedRun>> {
        self.held(lease, now)?;
        let mut claimed = Vec::new();
        for id in runs {
            let there =
                |row: &&WaitingRow| row.queue.is_none() && row.due_at <= now && self.stands_in(row.job, partitions);
            let Some(late) = self.waiting.get(id).filter(there).map(|row| row.late) else { continue };
            self.waiting.remove(id);
            let Some(run) = self.runs.get_mut(id) else { continue };
            run.state = State::Claimed;
            if run.attempt == 0 || !Mutant::RetryKeepsFence.is_on() {
                run.fence = run.fence.raised(now);
            }
            run.attempt += 1;
            run.node = Some(lease.node.clone());
            run.incarnation = Some(lease.incarnation);
            run.started_at = Some(now);
            let (job, attempt, fence) = (run.job, run.attempt, run.fence);
            let entry = Entry::Claimed { run: *id, job, attempt, fence, late, by: lease.incarnation };
            claimed.push(claimed_run(*id, run));
            self.journal.push(entry);
        }
        Ok(claimed)
    }

    pub(super) fn settle(&mut self, settles: &[Settle], now: DbTime) -> Vec<SettleAnswer> {
        settles.iter().map(|settle| self.settle_one(settle, now)).collect()
    }

    fn settle_one(&mut self, settle: &Settle, now: DbTime) -> SettleAnswer {
        let said = &settle.settlement;
        let Some(run) = self.runs.get_mut(&said.run) else { return SettleAnswer::Stale };
        let held = run.state == State::Claimed && run.fence == said.fence;
        if !(held || Mutant::UnfencedSettle.is_on()) {
            return SettleAnswer::Stale;
        }
        let entry = Entry::Settled {
            run: said.run,
            job: run.job,
            fence: said.fence,
            held: run.fence,
            was: run.state,
            verdict: said.verdict,
            at: now,
        };
        let ended = AttemptRecord {
            run: said.run,
            attempt: run.attempt,
            fence: run.fence,
            node: run.node.clone(),
            worker: run.worker.clone(),
            started_at: settle.started_at.or(run.started_at),
            finished_at: Some(settle.ended_at),
            outcome: None,
            error: said.error.clone(),
            output: said.output.clone(),
        };
        let waits = match said.verdict {
            Verdict::Succeeded | Verdict::Failed | Verdict::Cancelled => {
                run.state = match said.verdict {
                    Verdict::Succeeded => State::Succeeded,
                    Verdict::Failed => State::Failed,
                    _ => State::Cancelled,
                };
                run.started_at = ended.started_at;
                run.finished_at = ended.finished_at;
                run.error.clone_from(&said.error);
                run.output.clone_from(&said.output);
                self.open.remove(&(run.job, said.run));
                None
            }
            Verdict::Retry { due_at } => {
                let ended = AttemptRecord { outcome: Some("failed".into()), ..ended };
                self.attempts.insert((said.run, run.attempt), ended);
                Some(due_at)
            }
            Verdict::Redeliver => {
                let ended = AttemptRecord { outcome: Some("lost".into()), ..ended };
                self.attempts.insert((said.run, run.attempt), ended);
                run.lost += 1;
                Some(now)
            }
            Verdict::HandBack => {
                run.attempt = run.attempt.saturating_sub(1);
                Some(now)
            }
        };
        let worked = self.worker_claims.remove(&said.run);
        if let Some(due_at) = waits {
            run.state = State::Waiting;
            run.node = None;
            run.worker = None;
            run.incarnation = None;
            run.started_at = None;
            let mut row = WaitingRow {
                job: run.job,
                tenant: run.tenant,
                priority: settle.priority,
                due_at,
                late: false,
                force: false,
                attempts: run.attempt,
                queue: None,
                rank: 0,
                key: worked.and_then(|claim| claim.key),
            };
            if let Some(job) = self.jobs.get(&row.job) {
                row.place(&job.job.spec, due_at);
            }
            self.waiting.insert(said.run, row);
        }
        self.journal.push(entry);
        if said.verdict.is_terminal() {
            self.leave_step(said.run);
        }
        SettleAnswer::Settled
    }

    pub(super) fn load_claimed(&self, lease: &Lease) -> Vec<ClaimedRun> {
        let ours = |run: &RunRow| run.state == State::Claimed && run.incarnation == Some(lease.incarnation);
        self.all_open().filter(|(_, run)| ours(run)).map(|(id, run)| claimed_run(id, run)).collect()
    }

    pub(super) fn load_lost(&mut self, lease: &Lease, limit: usize, now: DbTime) -> Result<Vec<ClaimedRun>> {
        self.held(lease, now)?;
        self.fence_expired(lease.incarnation, now);
        let ended = self.leases.values().filter(|row| row.ended && row.incarnation != lease.incarnation);
        let dead: Vec<_> = ended.map(|row| row.incarnation).collect();
        let lost = |run: &RunRow| run.state == State::Claimed && run.incarnation.is_some_and(|inc| dead.contains(&inc));
        let found: Vec<_> =
            self.all_open().filter(|(_, run)| lost(run)).take(limit).map(|(id, run)| claimed_run(id, run)).collect();
        if found.is_empty() {
            self.leases.retain(|_, row| !dead.contains(&row.incarnation));
        }
        Ok(found)
    }
}

pub(super) fn claimed_run(id: RunId, run: &RunRow) -> ClaimedRun {
    ClaimedRun {
        id,
        job: run.job,
        tenant: run.tenant,
        cause: run.cause,
        scheduled_at: run.scheduled_at,
        fence: run.fence,
        attempt: run.attempt,
        lost: run.lost,
        payload: run.payload.clone(),
    }
}
