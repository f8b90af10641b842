//! The calls of [`Store`]. `reads`, `writes` and `slow` limit the time of a call, where the database is remote.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    explain::{Facts, Question, RunFacts},
    ids::{BackfillId, Fence, IdPrefix, Incarnation, JobId, RunId, TenantId, Version},
    partition::PartitionSet,
    recovery::{Ledger, Window},
    time::{DbTime, Span},
};

use super::{
    DbStore, PARTITIONS, accept, backlog, calendars, cancel, changes, claim, cursors, history, horizon, lease, ledgers,
    lost, node, prune, range, read, record, repair, settle, unreadable,
};
use crate::tx::{calendar, cancel as cancels, create, explain as explains, in_read, in_tx, redrive, trigger};
use crate::{
    AcceptedRun, Actor, AttemptRecord, AuditFilter, AuditRecord, BacklogStep, Beat, Busy, CalendarPut, CalendarRecord,
    CancelledJob, CancelledRun, ChangeMark, ChangedJob, Changes, ClaimedRun, Cluster, Created, EditJob, Edited,
    GoneNode, IdempotencyKey, JobFilter, JobRecord, JobRef, JobTicks, KeptOutput, Lease, ListedClaims, LoadedJob,
    NewJob, NewRun, NodeInfo, Page, Pruned, PutCalendar, Raise, RangeAnswer, RangePlan, Recorded, Redrive, Redriven,
    Result, RunFilter, RunRecord, Settle, SettleAnswer, Store, Supersede, UnreadableRows, Waiting, WaitingRun, Walked,
};

#[async_trait]
impl Store for DbStore {
    fn partitions(&self) -> u16 {
        PARTITIONS
    }
    async fn now(&self) -> Result<DbTime> {
        self.reads(lease::now(self)).await
    }
    async fn join(&self, node: &NodeInfo, incarnation: Incarnation, ttl: Span) -> Result<(Lease, DbTime)> {
        self.writes(node::join(self, node, incarnation, ttl)).await
    }
    async fn renew(&self, lease: &Lease, ttl: Span, beat: &Beat) -> Result<DbTime> {
        self.writes(node::renew(self, lease, ttl, beat)).await
    }
    async fn raise_fence(&self, lease: &Lease) -> Result<Lease> {
        self.writes(node::raise_fence(self, lease)).await
    }
    async fn retire(&self, lease: &Lease) -> Result<()> {
        self.writes(node::retire(self, lease)).await
    }
    async fn leave(&self, lease: &Lease) -> Result<()> {
        self.writes(node::leave(self, lease)).await
    }
    async fn cluster(&self) -> Result<Cluster> {
        self.reads(node::cluster(self)).await
    }
    async fn load_gone_nodes(&self) -> Result<Vec<GoneNode>> {
        self.reads(node::gone_nodes(self)).await
    }
    async fn count_jobs(&self) -> Result<BTreeMap<u16, u64>> {
        self.reads(node::count_jobs(self)).await
    }
    async fn acquire(&self, lease: &Lease, partitions: &PartitionSet) -> Result<PartitionSet> {
        self.writes(node::acquire(self, lease, partitions)).await
    }
    async fn release(&self, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
        self.writes(node::release(self, lease, partitions)).await
    }

    async fn load_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>> {
        self.reads(horizon::load_horizon(self, lease, partitions, until, after, limit)).await
    }
    async fn look_at_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<ChangedJob>> {
        self.reads(horizon::look_at_horizon(self, lease, partitions, until, after, limit)).await
    }
    async fn load_jobs(&self, ids: &[JobId]) -> Result<Vec<LoadedJob>> {
        self.reads(horizon::load_jobs(self, ids)).await
    }
    async fn changes(&self, partitions: &PartitionSet, since: ChangeMark, limit: usize) -> Result<Changes> {
        self.reads(changes::changes(self, partitions, since, limit)).await
    }
    async fn record(&self, lease: &Lease, batch: &[JobTicks]) -> Result<Recorded> {
        self.writes(record::record(self, lease, batch)).await
    }
    async fn record_range(&self, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
        self.writes(range::record_range(self, lease, plan)).await
    }
    async fn raise_cursors(&self, raises: &[Raise]) -> Result<Vec<JobId>> {
        self.writes(cursors::raise_cursors(self, raises)).await
    }

    async fn load_overdue(
        &self,
        before: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>> {
        self.reads(horizon::load_overdue(self, before, after, limit)).await
    }
    async fn walk_jobs(&self, after: Option<JobId>, limit: usize) -> Result<Walked> {
        self.reads(repair::walk_jobs(self, after, limit)).await
    }
    async fn load_ledgers(&self, asked: &[(JobId, Window)]) -> Result<Vec<Ledger>> {
        self.reads(ledgers::load_ledgers(self, asked)).await
    }
    async fn repair(&self, lease: &Lease, ticks: &JobTicks) -> Result<bool> {
        self.writes(repair::repair(self, lease, ticks)).await
    }

    async fn peek_waiting(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        busy: &[Busy],
        late_after: Option<TenantId>,
        limit: usize,
    ) -> Result<Waiting> {
        self.reads(claim::peek_waiting(self, lease, partitions, busy, late_after, limit)).await
    }
    async fn claim(&self, lease: &Lease, partitions: &PartitionSet, runs: &[RunId]) -> Result<Vec<ClaimedRun>> {
        self.writes(claim::claim(self, lease, partitions, runs, false)).await
    }
    async fn delegate(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        runs: &[(RunId, Incarnation)],
    ) -> Result<Vec<RunId>> {
        self.writes(claim::delegate(self, lease, partitions, runs)).await
    }
    async fn peek_delegated(&self, lease: &Lease, full: &[JobId], limit: usize) -> Result<Vec<WaitingRun>> {
        self.reads(claim::peek_delegated(self, lease, full, limit)).await
    }
    async fn claim_delegated(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<ClaimedRun>> {
        self.writes(claim::claim(self, lease, &PartitionSet::all(PARTITIONS), runs, true)).await
    }
    async fn settle(&self, settles: &[Settle]) -> Result<Vec<SettleAnswer>> {
        self.writes(settle::settle(self, settles)).await
    }
    async fn accept(&self, lease: &Lease, runs: &[AcceptedRun]) -> Result<Vec<SettleAnswer>> {
        self.writes(accept::accept(self, lease, runs)).await
    }
    async fn supersede(&self, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>> {
        self.writes(cancel::supersede(self, lease, runs)).await
    }
    async fn keep_outputs(&self, outputs: &[KeptOutput]) -> Result<()> {
        self.writes(cancel::keep_outputs(self, outputs)).await
    }
    async fn listed_claims(&self, lease: &Lease, after: Option<RunId>, limit: usize) -> Result<ListedClaims> {
        self.reads(lost::listed_claims(self, lease, after, limit)).await
    }
    async fn list_old_claims(&self, lease: &Lease, to: RunId) -> Result<RunId> {
        self.writes(lost::list_old_claims(self, lease, to)).await
    }
    async fn claims_between(&self, lease: &Lease, from: RunId, to: RunId) -> Result<Vec<ClaimedRun>> {
        self.reads(lost::claims_between(self, lease, from, to)).await
    }
    async fn still_claimed(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<(RunId, Fence)>> {
        self.reads(lost::still_claimed(self, lease, runs)).await
    }
    async fn load_lost(&self, lease: &Lease, limit: usize) -> Result<Vec<ClaimedRun>> {
        self.slow(lost::load_lost(self, lease, limit)).await
    }

    async fn create_jobs(
        &self,
        tenant: TenantId,
        actor: &Actor,
        jobs: Vec<NewJob>,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Vec<Result<Created>>> {
        in_tx!(self.of(tenant), "create jobs", tx => create::create_jobs(tx, tenant, actor, jobs, idempotency))
    }
    async fn edit_job(&self, tenant: TenantId, actor: &Actor, edit: EditJob) -> Result<Edited> {
        self.writes(backlog::edit_job(self, tenant, actor, edit)).await
    }
    async fn trigger(&self, tenant: TenantId, actor: &Actor, run: NewRun) -> Result<RunRecord> {
        in_tx!(self.of(tenant), "create a run", tx => trigger::trigger(tx, tenant, actor, run))
    }
    async fn cancel_run(&self, tenant: TenantId, actor: &Actor, run: RunId) -> Result<CancelledRun> {
        in_tx!(self.of(tenant), "cancel a run", tx => cancels::cancel_run(tx, tenant, actor, run))
    }
    async fn cancel_job(&self, tenant: TenantId, actor: &Actor, job: &JobRef) -> Result<CancelledJob> {
        self.writes(backlog::cancel_job(self, tenant, actor, job)).await
    }
    async fn advance_backlog(&self) -> Result<BacklogStep> {
        self.writes(backlog::advance(self)).await
    }
    async fn redrive(&self, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven> {
        in_tx!(self.of(tenant), "redrive failed runs", tx => redrive::redrive(tx, tenant, actor, ask))
    }

    async fn put_calendar(&self, tenant: TenantId, actor: &Actor, put: PutCalendar) -> Result<CalendarPut> {
        in_tx!(self.of(tenant), "write the calendar", tx => calendar::put_calendar(tx, tenant, actor, put))
    }
    async fn delete_calendar(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
    ) -> Result<CalendarRecord> {
        in_tx!(self.of(tenant), "delete the calendar", tx => calendar::delete_calendar(tx, tenant, actor, name, if_match))
    }
    async fn get_calendar(&self, tenant: TenantId, name: &str) -> Result<CalendarRecord> {
        in_read!(self.of(tenant), "read the calendar", tx => calendar::get_calendar(tx, tenant, name))
    }
    async fn list_calendars(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<CalendarRecord, String>> {
        self.reads(calendars::list_calendars(self, tenant, after, limit)).await
    }
    async fn load_calendars(&self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        self.reads(calendars::load_calendars(self, tenant, names)).await
    }

    async fn get_job(&self, tenant: TenantId, job: &JobRef) -> Result<JobRecord> {
        self.reads(read::get_job(self, tenant, job)).await
    }
    async fn list_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobRecord, String>> {
        self.reads(read::list_jobs(self, tenant, filter, after, limit)).await
    }
    async fn load_facts(&self, tenant: TenantId, job: &JobRef, question: Question, kept: Span) -> Result<Facts> {
        in_read!(self.of(tenant), "read the facts about a tick", tx => explains::load_facts(tx, tenant, job, question, kept))
    }
    async fn load_run_facts(&self, tenant: TenantId, run: RunId) -> Result<RunFacts> {
        in_read!(self.of(tenant), "read the facts about a run", tx => explains::load_run_facts(tx, tenant, run))
    }
    async fn get_run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        self.reads(read::get_run(self, tenant, run)).await
    }
    async fn list_runs(
        &self,
        tenant: TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunRecord, RunId>> {
        self.reads(history::list_runs(self, tenant, filter, before, limit)).await
    }
    async fn list_attempts(&self, tenant: TenantId, run: RunId) -> Result<Vec<AttemptRecord>> {
        self.reads(history::list_attempts(self, tenant, run)).await
    }
    async fn list_audit(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRecord, i64>> {
        self.reads(history::list_audit(self, tenant, filter, before, limit)).await
    }
    async fn find_jobs(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Result<Vec<(JobId, String)>> {
        self.reads(history::find_jobs(self, tenant, ids, limit)).await
    }
    async fn find_backfills(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Result<Vec<(BackfillId, String)>> {
        self.reads(history::find_backfills(self, tenant, ids, limit)).await
    }

    async fn prune(&self, before: DbTime, limit: usize) -> Result<Pruned> {
        self.slow(prune::prune(self, before, limit)).await
    }
    async fn prune_audit(&self, before: DbTime, limit: usize) -> Result<u64> {
        self.writes(prune::prune_audit(self, before, limit)).await
    }
    async fn save_unreadable(&self) -> Result<u64> {
        self.writes(unreadable::save(self)).await
    }
    async fn list_unreadable(&self, limit: usize) -> Result<UnreadableRows> {
        self.reads(unreadable::list(self, limit)).await
    }
}
