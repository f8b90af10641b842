//! Claims, delegation, settlements, and lost claims.

use std::collections::BTreeMap;

use everytick_domain::{
    ids::{Incarnation, JobId, RunId, TenantId},
    mutant::Mutant,
    partition::PartitionSet,
    recovery::in_turn,
    run::State,
    time::DbTime,
};

use super::{
    db::{Db, RunRow, WaitingRow},
    journal::Entry,
    nodes::LeaseRow,
    queue::{NO_NODE, WorkerClaimRow},
};
use everytick_store::{
    AcceptedRun, AttemptRecord, Busy, ClaimedRun, GoneNode, Lease, ListedClaims, Result, Settle, SettleAnswer,
    StoreError, Waiting, WaitingRun,
};

impl Db {
    pub(super) fn peek_waiting(
        &mut self,
        lease: &Lease,
        partitions: &PartitionSet,
        busy: &[Busy],
        late_after: Option<TenantId>,
        limit: usize,
        now: DbTime,
    ) -> Result<Waiting> {
        self.check_lease(lease, now)?;
        self.note_unreadable(now);
        let ours = |row: &WaitingRow| row.queue.is_none() && self.is_in(row.job, partitions);
        let mut due: Vec<_> = self
            .waiting
            .iter()
            .filter(|(id, row)| ours(row) && !self.delegated.contains_key(id))
            .filter(|(id, row)| self.call.readable_run(**id) && self.call.readable_job(row.job))
            .filter(|(_, row)| {
                let of_job = busy.iter().filter(|busy| busy.job == row.job);
                let apart = |busy: &Busy| busy.full || !(row.force || row.attempts > 0);
                row.due_at <= now && !of_job.into_iter().any(apart)
            })
            .map(|(id, row)| waiting_run(*id, row))
            .collect();
        due.sort_unstable_by_key(|run| (run.late, std::cmp::Reverse(run.priority), run.due_at, run.id));
        let late = due.split_off(due.partition_point(|run| !run.late));
        due.extend(in_turn(late, |run| run.tenant, late_after));
        due.truncate(limit);
        let next_due =
            self.waiting.values().filter(|row| ours(row)).map(|row| row.due_at).filter(|due_at| *due_at > now).min();
        Ok(Waiting { now, due, next_due })
    }

    /// Writes to the journal which due waiting runs a search skips as unreadable at `now`.
    pub(super) fn note_unreadable(&mut self, now: DbTime) {
        let due = self.waiting.iter().filter(|(_, row)| row.due_at <= now);
        let skipped = due.filter(|(id, row)| !self.call.readable_run(**id) || !self.call.readable_job(row.job));
        let new: Vec<_> =
            skipped.map(|(id, row)| (*id, row.job)).filter(|(id, _)| !self.unreadable.contains(id)).collect();
        for (run, job) in new {
            self.unreadable.insert(run);
            self.journal.push(Entry::Unreadable { run, job });
        }
    }

    fn is_in(&self, job: JobId, partitions: &PartitionSet) -> bool {
        self.jobs.get(&job).is_some_and(|row| partitions.contains(row.job.partition))
    }

    pub(super) fn delegate(
        &mut self,
        lease: &Lease,
        partitions: &PartitionSet,
        runs: &[(RunId, Incarnation)],
        now: DbTime,
    ) -> Result<Vec<RunId>> {
        self.check_lease(lease, now)?;
        let mut delegated = Vec::new();
        for (id, node) in runs {
            let takes = |row: &LeaseRow| row.incarnation == *node && !row.ended && row.info.may_own && row.until > now;
            let waits = |row: &WaitingRow| row.queue.is_none() && row.due_at <= now && self.is_in(row.job, partitions);
            let free = self.waiting.get(id).filter(|row| waits(row) && !self.delegated.contains_key(id));
            let Some(job) = free.map(|row| row.job).filter(|_| self.leases.values().any(takes)) else { continue };
            self.delegated.insert(*id, *node);
            self.journal.push(Entry::Delegated { run: *id, job });
            delegated.push(*id);
        }
        Ok(delegated)
    }

    pub(super) fn peek_delegated(
        &self,
        lease: &Lease,
        full: &[JobId],
        limit: usize,
        now: DbTime,
    ) -> Result<Vec<WaitingRun>> {
        self.check_lease(lease, now)?;
        let ours = self.delegated.iter().filter(|(_, node)| **node == lease.incarnation);
        let waiting = ours.filter_map(|(id, _)| self.waiting.get(id).map(|row| waiting_run(*id, row)));
        let found = |run: &WaitingRun| run.due_at <= now && !full.contains(&run.job) && self.call.readable_run(run.id);
        let mut found: Vec<_> = waiting.filter(found).collect();
        found.sort_unstable_by_key(|run| (run.due_at, run.id));
        found.truncate(limit);
        Ok(found)
    }

    /// Takes back the runs that are delegated to nodes that have ended or are stopping: they wait for their owner again.
    pub(super) fn undelegate(&mut self) {
        let takes = |node: &Incarnation| {
            self.leases.values().any(|row| row.incarnation == *node && !row.ended && row.info.may_own)
        };
        let back: Vec<_> = self.delegated.iter().filter(|(_, node)| !takes(node)).map(|(run, _)| *run).collect();
        for run in back {
            self.delegated.remove(&run);
            let waits = self.waiting.get(&run);
            self.journal.extend(waits.map(|row| Entry::Undelegated { run, job: row.job }));
        }
    }

    /// Claims due waiting runs of these partitions; with `None`, runs that are delegated to this node.
    pub(super) fn claim(
        &mut self,
        lease: &Lease,
        partitions: Option<&PartitionSet>,
        runs: &[RunId],
        now: DbTime,
    ) -> Result<Vec<ClaimedRun>> {
        self.check_lease(lease, now)?;
        self.note_unreadable(now);
        let mut claimed = Vec::new();
        for id in runs.iter().filter(|id| self.call.readable_run(**id)).copied().collect::<Vec<_>>() {
            let id = &id;
            let ours = |row: &WaitingRow| match partitions {
                Some(partitions) => self.is_in(row.job, partitions) && !self.delegated.contains_key(id),
                None => self.delegated.get(id) == Some(&lease.incarnation),
            };
            let waits = |row: &&WaitingRow| row.queue.is_none() && row.due_at <= now && ours(row);
            let Some(late) = self.waiting.get(id).filter(waits).map(|row| row.late) else { continue };
            self.waiting.remove(id);
            let delegated = self.delegated.remove(id).is_some();
            let Some(run) = self.runs.get_mut(id) else { continue };
            run.claim(lease.incarnation, Mutant::RetryKeepsFence, now);
            run.node = Some(lease.node.clone());
            claimed.push(claimed_run(*id, run));
            self.journal.extend(run.claimed_entry(*id, late, delegated));
            self.list_claim(*id, lease.incarnation);
        }
        Ok(claimed)
    }

    pub(super) fn settle(&mut self, settles: &[Settle], now: DbTime) -> Result<Vec<SettleAnswer>> {
        // A retry stores the attempt with values of the run's row, so the row must be readable. A terminal one does not.
        let needs = |settle: &&Settle| !settle.settlement.verdict.is_terminal();
        if settles.iter().filter(needs).any(|settle| !self.call.readable_run(settle.settlement.run)) {
            return Err(StoreError::Unreadable { doing: "settle runs", source: "a run cannot be decoded".into() });
        }
        let answer = |settle: &Settle| match self.call.is_locked(settle.settlement.run) {
            true => SettleAnswer::Locked,
            false => self.settle_one(settle, now),
        };
        Ok(settles.iter().map(answer).collect())
    }

    pub(super) fn settle_one(&mut self, settle: &Settle, now: DbTime) -> SettleAnswer {
        let settlement = &settle.settlement;
        let Some(run) = self.runs.get_mut(&settlement.run) else { return SettleAnswer::Stale };
        let is_current = run.state == State::Claimed && run.fence == settlement.fence;
        if !(is_current || Mutant::UnfencedSettle.is_on()) {
            return SettleAnswer::Stale;
        }
        self.journal.push(Entry::Settled {
            run: settlement.run,
            job: run.job,
            fence: settlement.fence,
            run_fence: run.fence,
            was: run.state,
            verdict: settlement.verdict,
            at: now,
        });
        let started_at = settle.started_at.or(run.started_at);
        let worked = self.worker_claims.remove(&settlement.run);
        let Some(requeue) = settlement.verdict.requeue(now) else {
            run.state = settlement.verdict.state();
            run.started_at = started_at;
            run.finished_at = Some(settle.ended_at);
            run.error.clone_from(&settlement.error);
            run.output.clone_from(&settlement.output);
            self.open.remove(&(run.job, settlement.run));
            self.leave_step(settlement.run);
            return SettleAnswer::Settled;
        };
        match requeue.attempt {
            Some(outcome) => {
                let ended = AttemptRecord {
                    run: settlement.run,
                    attempt: run.attempt,
                    fence: run.fence,
                    node: run.node.take(),
                    worker: run.worker.take(),
                    started_at,
                    finished_at: Some(settle.ended_at),
                    outcome: Some(outcome.into()),
                    error: settlement.error.clone(),
                    output: settlement.output.clone(),
                };
                self.attempts.insert((settlement.run, run.attempt), ended);
            }
            None => run.attempt = run.attempt.saturating_sub(1),
        }
        run.lost += u32::from(requeue.is_lost);
        run.state = State::Waiting;
        (run.node, run.worker, run.incarnation, run.started_at) = (None, None, None, None);
        let (was_due, late) = worked.as_ref().map_or((run.due_at, false), |claim| (claim.due_at, claim.late));
        let key = worked.and_then(|claim| claim.key);
        let due_at = requeue.due_at.unwrap_or(was_due);
        let row = WaitingRow { due_at, late, key, ..WaitingRow::of(run, settle.priority) };
        self.enqueue(settlement.run, row, now);
        SettleAnswer::Settled
    }

    pub(super) fn accept(&mut self, lease: &Lease, runs: &[AcceptedRun], now: DbTime) -> Result<Vec<SettleAnswer>> {
        self.check_lease(lease, now)?;
        let answer = |run: &AcceptedRun| match self.call.is_locked(run.run) {
            true => SettleAnswer::Locked,
            false => self.accept_one(lease, run),
        };
        Ok(runs.iter().map(answer).collect())
    }

    fn accept_one(&mut self, lease: &Lease, accepted: &AcceptedRun) -> SettleAnswer {
        let ours = |run: &&mut RunRow| {
            run.state == State::Claimed && run.fence == accepted.fence && run.incarnation == Some(lease.incarnation)
        };
        let Some(run) = self.runs.get_mut(&accepted.run).filter(ours) else { return SettleAnswer::Stale };
        (run.incarnation, run.worker) = (Some(NO_NODE), Some(accepted.worker.clone()));
        let claim = WorkerClaimRow {
            tenant: run.tenant,
            queue: String::new(),
            worker: accepted.worker.clone(),
            fence: accepted.fence,
            until: accepted.timeout_at,
            timeout_at: accepted.timeout_at,
            key: None,
            log: None,
            due_at: run.due_at,
            late: false,
        };
        self.worker_claims.insert(accepted.run, claim);
        SettleAnswer::Settled
    }

    pub(super) fn lose_settlement(&mut self, id: RunId) -> bool {
        let Some(run) = self.runs.get_mut(&id).filter(|run| !run.state.is_open() && run.incarnation.is_some()) else {
            return false;
        };
        run.state = State::Claimed;
        (run.finished_at, run.output, run.error) = (None, None, None);
        self.open.insert((run.job, id));
        self.steps.remove(&id);
        true
    }

    /// The claims of an incarnation, without payloads, in order of run.
    pub(super) fn claims_of(&self, incarnation: Incarnation) -> impl Iterator<Item = ClaimedRun> {
        let ours = move |run: &RunRow| run.state == State::Claimed && run.incarnation == Some(incarnation);
        let narrow = |(id, run)| ClaimedRun { payload: None, ..claimed_run(id, run) };
        self.all_open().filter(move |(_, run)| ours(run)).map(narrow)
    }

    pub(super) fn list_old_claims(&mut self, lease: &Lease, to: RunId, now: DbTime) -> Result<RunId> {
        self.check_lease(lease, now)?;
        let old: Vec<_> = self.claims_of(lease.incarnation).map(|run| run.id).filter(|run| *run < to).collect();
        self.listed.extend(old.into_iter().map(|run| (run, lease.incarnation)));
        if let Some(row) = self.leases.get_mut(&lease.node) {
            row.compared_to = row.compared_to.max(to);
        }
        Ok(to)
    }

    pub(super) fn listed_claims(&self, lease: &Lease, after: Option<RunId>, limit: usize) -> ListedClaims {
        let open_from = self.open_from(lease.incarnation);
        let behind = |run: &ClaimedRun| after.is_none_or(|after| run.id > after);
        let listed = self.claims_of(lease.incarnation).filter(|run| self.is_listed(run.id, lease.incarnation));
        let readable = listed.filter(|run| self.call.readable_run(run.id));
        let claims: Vec<_> = readable.filter(behind).take(limit).collect();
        let next = claims.last().filter(|_| claims.len() >= limit).map(|run| run.id);
        ListedClaims { open_from, claims, next }
    }

    pub(super) fn load_lost(&mut self, lease: &Lease, limit: usize, now: DbTime) -> Result<Vec<ClaimedRun>> {
        self.check_lease(lease, now)?;
        self.fence_expired(lease.incarnation, now);
        self.undelegate();
        let ended = self.leases.values().filter(|row| row.ended && row.incarnation != lease.incarnation);
        let dead: Vec<_> = ended.map(|row| row.incarnation).collect();
        let found = |run: &ClaimedRun, by| {
            self.is_listed(run.id, by) || self.open_from(by).is_none_or(|open_from| run.id >= open_from)
        };
        let lost = dead.iter().flat_map(|by| self.claims_of(*by).filter(|run| found(run, *by)));
        let lost: BTreeMap<_, _> = lost.map(|run| (run.id, run)).collect();
        let all = lost.len();
        let readable = |run: &ClaimedRun| self.call.readable_run(run.id) && self.call.readable_job(run.job);
        let found: Vec<_> = lost.into_values().filter(readable).take(limit).collect();
        if all == 0 {
            let forgotten = self.leases.extract_if(.., |_, row| dead.contains(&row.incarnation));
            let forgotten: Vec<_> = forgotten.map(|(_, row)| row.as_gone()).collect();
            self.gone.extend(forgotten);
            self.gone.retain(|node| node.gone_since >= now.minus(GoneNode::LISTED_FOR));
        }
        Ok(found)
    }
}

fn waiting_run(id: RunId, row: &WaitingRow) -> WaitingRun {
    WaitingRun {
        id,
        job: row.job,
        tenant: row.tenant,
        priority: row.priority,
        due_at: row.due_at,
        late: row.late,
        force: row.force,
        attempts: row.attempts,
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
