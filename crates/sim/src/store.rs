//! The store's transactions. Each method is one call to the simulated database.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    explain::{Facts, Question, RunFacts},
    ids::{BackfillId, Fence, IdPrefix, Incarnation, JobId, RunId, TenantId, Version},
    partition::PartitionSet,
    recovery::{Ledger, Window},
    time::{DbTime, Span},
};
use everytick_store::{
    AcceptedRun, Actor, AttemptRecord, AuditFilter, AuditRecord, Beat, Busy, CalendarPut, CalendarRecord, CancelledJob,
    CancelledRun, ChangeMark, ChangedJob, Changes, ClaimedRun, Cluster, Created, EditJob, Edited, GoneNode,
    IdempotencyKey, JobFilter, JobRecord, JobRef, JobTicks, KeptOutput, Lease, ListedClaims, LoadedJob, NewJob, NewRun,
    NodeInfo, Page, Pruned, PutCalendar, Raise, RangeAnswer, RangePlan, Recorded, Redrive, Redriven, Result, RunFilter,
    RunRecord, Settle, SettleAnswer, Store, Supersede, UnreadableRows, Waiting, WaitingRun, Walked,
    tx::{calendar, cancel, create, edit, explain, redrive, trigger},
};

use super::{
    Point, SimStore,
    call::{call, script},
    tx::{self, SimTx},
};

#[async_trait]
impl Store for SimStore {
    fn partitions(&self) -> u16 {
        self.partitions
    }
    async fn now(&self) -> Result<DbTime> {
        call!(self, Now, [], |_, now| Ok(now))
    }
    async fn join(&self, node: &NodeInfo, incarnation: Incarnation, ttl: Span) -> Result<(Lease, DbTime)> {
        if let Some(joined) = &self.lied_to {
            *joined.lock().unwrap_or_else(PoisonError::into_inner) = Some(incarnation);
        }
        call!(self, Join, [node], |db, now| Ok((db.join(&node, incarnation, ttl, now)?, now)))
    }
    async fn renew(&self, lease: &Lease, ttl: Span, beat: &Beat) -> Result<DbTime> {
        call!(self, Renew, [lease, beat], |db, now| db.renew(&lease, ttl, &beat, now))
    }
    async fn raise_fence(&self, lease: &Lease) -> Result<Lease> {
        call!(self, RaiseFence, [lease], |db, now| db.raise_fence(&lease, now))
    }
    async fn retire(&self, lease: &Lease) -> Result<()> {
        call!(self, Release, [lease], |db, now| db.retire(&lease, now))
    }
    async fn leave(&self, lease: &Lease) -> Result<()> {
        call!(self, Leave, [lease], |db, now| db.leave(&lease, now))
    }
    async fn cluster(&self) -> Result<Cluster> {
        let joined = self.lied_to.as_ref().map(|joined| *joined.lock().unwrap_or_else(PoisonError::into_inner));
        call!(self, Cluster, [], |db, now| Ok(match joined {
            None => db.cluster(now),
            Some(joined) => all_owned_by(db.cluster(now), joined),
        }))
    }
    async fn load_gone_nodes(&self) -> Result<Vec<GoneNode>> {
        call!(self, Read, [], |db, now| Ok(db.gone_nodes(now)))
    }
    async fn count_jobs(&self) -> Result<BTreeMap<u16, u64>> {
        call!(self, Read, [], |db, _now| Ok(db.count_jobs()))
    }
    async fn acquire(&self, lease: &Lease, partitions: &PartitionSet) -> Result<PartitionSet> {
        let lies = self.lied_to.is_some();
        call!(self, Acquire, [lease, partitions], |db, now| match lies {
            true => db.check_lease(&lease, now).map(|()| partitions),
            false => db.acquire(&lease, &partitions, now),
        })
    }
    async fn release(&self, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
        call!(self, Release, [lease, partitions], |db, now| db.release(&lease, &partitions, now))
    }

    async fn load_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>> {
        call!(self, Load, [lease, partitions], |db, now| {
            db.check_lease(&lease, now)?;
            db.load(db.due_jobs(Some(&partitions), until, after, limit))
        })
    }
    async fn look_at_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<ChangedJob>> {
        call!(self, Load, [lease, partitions], |db, now| {
            db.check_lease(&lease, now)?;
            Ok(db.due_jobs(Some(&partitions), until, after, limit).map(super::ticks::changed).collect())
        })
    }
    async fn load_jobs(&self, ids: &[JobId]) -> Result<Vec<LoadedJob>> {
        call!(self, Load, [ids], |db, _| db.load(ids.iter().filter_map(|id| db.jobs.get(id))))
    }
    async fn changes(&self, partitions: &PartitionSet, since: ChangeMark, limit: usize) -> Result<Changes> {
        call!(self, Load, [partitions], |db, _| Ok(db.changes(&partitions, since, limit)))
    }
    async fn record(&self, lease: &Lease, batch: &[JobTicks]) -> Result<Recorded> {
        call!(self, Record, [lease, batch], |db, now| db.record(&lease, &batch, now))
    }
    async fn record_range(&self, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
        call!(self, Range, [lease, plan], |db, now| db.record_range(&lease, &plan, now))
    }
    async fn raise_cursors(&self, raises: &[Raise]) -> Result<Vec<JobId>> {
        call!(self, Raise, [raises], |db, _| Ok(db.raise_cursors(&raises)))
    }

    async fn load_overdue(
        &self,
        before: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>> {
        call!(self, Load, [], |db, _| db.load(db.due_jobs(None, before, after, limit)))
    }
    async fn walk_jobs(&self, after: Option<JobId>, limit: usize) -> Result<Walked> {
        call!(self, Load, [], |db, _| Ok(db.walk_jobs(after, limit)))
    }
    async fn load_ledgers(&self, asked: &[(JobId, Window)]) -> Result<Vec<Ledger>> {
        call!(self, Load, [asked], |db, _| Ok(db.load_ledgers(&asked)))
    }
    async fn repair(&self, lease: &Lease, ticks: &JobTicks) -> Result<bool> {
        call!(self, Record, [lease, ticks], |db, now| db.repair(&lease, &ticks, now))
    }

    async fn peek_waiting(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        busy: &[Busy],
        late_after: Option<TenantId>,
        limit: usize,
    ) -> Result<Waiting> {
        call!(self, Peek, [lease, partitions, busy], |db, now| {
            db.peek_waiting(&lease, &partitions, &busy, late_after, limit, now)
        })
    }
    async fn claim(&self, lease: &Lease, partitions: &PartitionSet, runs: &[RunId]) -> Result<Vec<ClaimedRun>> {
        call!(self, Claim, [lease, partitions, runs], |db, now| db.claim(&lease, Some(&partitions), &runs, now))
    }
    async fn delegate(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        runs: &[(RunId, Incarnation)],
    ) -> Result<Vec<RunId>> {
        call!(self, Claim, [lease, partitions, runs], |db, now| db.delegate(&lease, &partitions, &runs, now))
    }
    async fn peek_delegated(&self, lease: &Lease, full: &[JobId], limit: usize) -> Result<Vec<WaitingRun>> {
        call!(self, Peek, [lease, full], |db, now| db.peek_delegated(&lease, &full, limit, now))
    }
    async fn claim_delegated(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<ClaimedRun>> {
        call!(self, Claim, [lease, runs], |db, now| db.claim(&lease, None, &runs, now))
    }
    async fn settle(&self, settles: &[Settle]) -> Result<Vec<SettleAnswer>> {
        call!(self, Settle, [settles], |db, now| db.settle(&settles, now))
    }
    async fn accept(&self, lease: &Lease, runs: &[AcceptedRun]) -> Result<Vec<SettleAnswer>> {
        call!(self, Settle, [lease, runs], |db, now| db.accept(&lease, &runs, now))
    }
    async fn supersede(&self, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>> {
        call!(self, Claim, [lease, runs], |db, now| db.supersede(&lease, &runs, now))
    }
    async fn keep_outputs(&self, outputs: &[KeptOutput]) -> Result<()> {
        call!(self, Settle, [outputs], |db, _| {
            db.keep_outputs(&outputs);
            Ok(())
        })
    }
    async fn listed_claims(&self, lease: &Lease, after: Option<RunId>, limit: usize) -> Result<ListedClaims> {
        call!(self, Load, [lease], |db, _| Ok(db.listed_claims(&lease, after, limit)))
    }
    async fn list_old_claims(&self, lease: &Lease, to: RunId) -> Result<RunId> {
        call!(self, Renew, [lease], |db, now| db.list_old_claims(&lease, to, now))
    }
    async fn claims_between(&self, lease: &Lease, from: RunId, to: RunId) -> Result<Vec<ClaimedRun>> {
        let by = lease.incarnation;
        let between = move |run: &ClaimedRun| (from..to).contains(&run.id);
        call!(self, Load, [], |db, _| {
            Ok(db.claims_of(by).filter(between).filter(|run| db.call.readable_run(run.id)).collect())
        })
    }
    async fn still_claimed(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<(RunId, Fence)>> {
        let by = lease.incarnation;
        call!(self, Load, [runs], |db, _| {
            let among = |run: ClaimedRun| runs.contains(&run.id).then_some((run.id, run.fence));
            Ok(db.claims_of(by).filter_map(among).collect())
        })
    }
    async fn load_lost(&self, lease: &Lease, limit: usize) -> Result<Vec<ClaimedRun>> {
        call!(self, Load, [lease], |db, now| db.load_lost(&lease, limit, now))
    }

    async fn create_jobs(
        &self,
        tenant: TenantId,
        actor: &Actor,
        jobs: Vec<NewJob>,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Vec<Result<Created>>> {
        let key = idempotency.cloned();
        script!(self, Ask, "create jobs", [actor], |tx| create::create_jobs(tx, tenant, &actor, jobs, key.as_ref()))
    }
    async fn edit_job(&self, tenant: TenantId, actor: &Actor, edit: EditJob) -> Result<Edited> {
        script!(self, Edit, tx::EDIT, [actor], |tx| edit::edit_job(tx, tenant, &actor, edit))
    }
    async fn trigger(&self, tenant: TenantId, actor: &Actor, run: NewRun) -> Result<RunRecord> {
        script!(self, Ask, tx::TRIGGER, [actor], |tx| trigger::trigger(tx, tenant, &actor, run))
    }
    async fn cancel_run(&self, tenant: TenantId, actor: &Actor, run: RunId) -> Result<CancelledRun> {
        script!(self, Ask, "cancel a run", [actor], |tx| cancel::cancel_run(tx, tenant, &actor, run))
    }
    async fn cancel_job(&self, tenant: TenantId, actor: &Actor, job: &JobRef) -> Result<CancelledJob> {
        script!(self, Ask, "cancel the runs of a job", [actor, job], |tx| cancel::cancel_job(tx, tenant, &actor, &job))
    }
    async fn redrive(&self, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven> {
        script!(self, Ask, "redrive failed runs", [actor, ask], |tx| redrive::redrive(tx, tenant, &actor, &ask))
    }

    async fn put_calendar(&self, tenant: TenantId, actor: &Actor, put: PutCalendar) -> Result<CalendarPut> {
        script!(self, Edit, "write the calendar", [actor], |tx| calendar::put_calendar(tx, tenant, &actor, put))
    }
    async fn delete_calendar(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
    ) -> Result<CalendarRecord> {
        script!(self, Edit, "delete the calendar", [actor, name], |tx| {
            calendar::delete_calendar(tx, tenant, &actor, &name, if_match)
        })
    }
    async fn get_calendar(&self, tenant: TenantId, name: &str) -> Result<CalendarRecord> {
        script!(self, Read, "read the calendar", [name], |tx| calendar::get_calendar(tx, tenant, &name))
    }
    async fn list_calendars(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<CalendarRecord, String>> {
        let after = after.map(str::to_owned);
        call!(self, Read, [], |db, _| Ok(db.list_calendars(tenant, after.as_deref(), limit)))
    }
    async fn load_calendars(&self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        call!(self, Read, [names], |db, _| Ok(db.calendars_named(tenant, &names)))
    }

    async fn get_job(&self, tenant: TenantId, job: &JobRef) -> Result<JobRecord> {
        call!(self, Read, [job], |db, now| db.get_job(tenant, &job, now))
    }
    async fn list_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobRecord, String>> {
        let after = after.map(str::to_owned);
        call!(self, Read, [filter], |db, now| Ok(db.list_jobs(tenant, &filter, after.as_deref(), limit, now)))
    }
    async fn load_facts(&self, tenant: TenantId, job: &JobRef, question: Question, kept: Span) -> Result<Facts> {
        script!(self, Read, "read the facts about a tick", [job], |tx| {
            explain::load_facts(tx, tenant, &job, question, kept)
        })
    }
    async fn load_run_facts(&self, tenant: TenantId, run: RunId) -> Result<RunFacts> {
        script!(self, Read, "read the facts about a run", [], |tx| explain::load_run_facts(tx, tenant, run))
    }
    async fn get_run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        call!(self, Read, [], |db, _| db.get_run(tenant, run))
    }
    async fn list_runs(
        &self,
        tenant: TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunRecord, RunId>> {
        call!(self, Read, [filter], |db, _| Ok(db.list_runs(tenant, &filter, before, limit)))
    }
    async fn list_attempts(&self, tenant: TenantId, run: RunId) -> Result<Vec<AttemptRecord>> {
        call!(self, Read, [], |db, _| db.list_attempts(tenant, run))
    }
    async fn list_audit(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRecord, i64>> {
        call!(self, Read, [filter], |db, _| Ok(db.list_audit(tenant, &filter, before, limit)))
    }
    async fn find_jobs(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Result<Vec<(JobId, String)>> {
        call!(self, Read, [], |db, _| Ok(db.find_jobs(tenant, ids, limit)))
    }
    async fn find_backfills(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Result<Vec<(BackfillId, String)>> {
        call!(self, Read, [], |db, _| Ok(db.find_backfills(tenant, ids, limit)))
    }

    async fn prune(&self, before: DbTime, limit: usize) -> Result<Pruned> {
        call!(self, Prune, [], |db, now| Ok(db.prune(before, limit, now)))
    }
    async fn save_unreadable(&self) -> Result<u64> {
        Ok(0)
    }
    async fn list_unreadable(&self, _: usize) -> Result<UnreadableRows> {
        Ok(UnreadableRows::default())
    }
    async fn prune_audit(&self, before: DbTime, limit: usize) -> Result<u64> {
        call!(self, Prune, [], |db, _| Ok(db.prune_audit(before, limit)))
    }
}

/// A false answer: no other node exists, and this node owns every partition.
fn all_owned_by(mut cluster: Cluster, joined: Option<Incarnation>) -> Cluster {
    cluster.nodes.retain(|node| Some(node.incarnation) == joined);
    for row in &mut cluster.partitions {
        row.owner = joined;
    }
    cluster
}
