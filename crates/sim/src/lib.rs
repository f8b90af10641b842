//! The simulated store: the transactions of the real stores on maps in memory, for tests only.
//!
//! Faults delay or fail each call on its way to the database and back. A journal of every change is kept for the simulator's
//! checker. Each named mutant disables one rule here, and the checker must notice.

mod asks;
mod backfills;
mod calendars;
mod cancels;
mod db;
mod explain;
mod faults;
mod flows;
mod queue;
mod reads;
mod repair;
mod runs;
mod ticks;
mod tx;

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use everytick_domain::{
    calendar::Calendar,
    explain::{Facts, Question, RunFacts},
    ids::{BackfillId, Fence, IdPrefix, Incarnation, JobId, RunId, TenantId, Version},
    partition::PartitionSet,
    recovery::{Ledger, Window},
    time::{DbTime, Span},
};
use tokio::sync::oneshot;

pub use backfills::BackfillRow;
pub use db::{Db, Entry, RangeRow, RunRow};
pub use faults::{Call, Fate, Faults, NoFaults, Point, Row};

use db::Damage;
use everytick_store::tx::{calendar, cancel, create, edit, explain as explains, redrive, trigger};
use everytick_store::{
    AcceptedRun, Actor, AttemptRecord, AuditFilter, AuditRecord, Beat, Busy, CalendarPut, CalendarRecord, CancelledJob,
    CancelledRun, ChangeMark, ChangedJob, Changes, ClaimedRun, Cluster, Created, EditJob, Edited, IdempotencyKey,
    JobFilter, JobRecord, JobRef, JobTicks, KeptOutput, Lease, Limits, ListedClaims, LoadedJob, NewJob, NewRun,
    NodeInfo, Page, Pruned, PutCalendar, Raise, RangeAnswer, RangePlan, Recorded, Redrive, Redriven, Result, RunFilter,
    RunRecord, Settle, SettleAnswer, Store, StoreError, Supersede, UnreadableRows, Waiting, WaitingRun, Walked,
    WallClock,
};
use tx::SimTx;

/// One node's connection to the simulated database. Clones with [`SimStore::connect`] share the database.
pub struct SimStore {
    db: Arc<Mutex<Db>>,
    clock: Arc<dyn WallClock>,
    faults: Arc<dyn Faults>,
    partitions: u16,
    /// Set for a connection that tells its node that it owns every partition: the incarnation that joined through it.
    lied_to: Option<Arc<Mutex<Option<Incarnation>>>>,
}

impl std::fmt::Debug for SimStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimStore").finish_non_exhaustive()
    }
}

impl SimStore {
    /// A store for one process, with one partition, as SQLite is.
    #[must_use]
    pub fn new(clock: Arc<dyn WallClock>, limits: Limits) -> Self {
        Self::with(clock, limits, 1, false)
    }

    /// A store that several nodes share, with this number of partitions, as PostgreSQL is.
    #[must_use]
    pub fn shared(clock: Arc<dyn WallClock>, limits: Limits, partitions: u16) -> Self {
        Self::with(clock, limits, partitions, true)
    }

    fn with(clock: Arc<dyn WallClock>, limits: Limits, partitions: u16, shared: bool) -> Self {
        let db = Arc::new(Mutex::new(Db::new(limits, partitions, shared)));
        Self { db, clock, faults: Arc::new(NoFaults), partitions, lied_to: None }
    }

    /// Another connection to the same database, with faults of its own.
    #[must_use]
    pub fn connect(&self, faults: Arc<dyn Faults>) -> Self {
        let (db, clock) = (self.db.clone(), self.clock.clone());
        Self { db, clock, faults, partitions: self.partitions, lied_to: None }
    }

    /// Another connection to the same database, which tells its node that it is alone and owns every partition.
    #[must_use]
    pub fn connect_lying(&self, faults: Arc<dyn Faults>) -> Self {
        Self { lied_to: Some(Arc::default()), ..self.connect(faults) }
    }

    /// Makes every load that includes the job fail, until called with `fails = false`.
    pub fn fail_loads_of(&self, job: JobId, fails: bool) {
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        if fails {
            db.unloadable.insert(job)
        } else {
            db.unloadable.remove(&job)
        };
    }

    /// Reads the database directly, without faults, for checkers.
    pub fn inspect<T>(&self, look: impl FnOnce(&Db) -> T) -> T {
        look(&self.db.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Simulates the promotion of a standby that lacks the settlement of this run: the run is claimed again.
    /// Returns whether the run had ended.
    pub fn lose_settlement(&self, run: RunId) -> bool {
        self.db.lock().unwrap_or_else(PoisonError::into_inner).lose_settlement(run)
    }

    /// Makes every advance of this flow fail from now on.
    pub fn break_flow(&self, flow: RunId) {
        self.db.lock().unwrap_or_else(PoisonError::into_inner).broken_flows.insert(flow);
    }

    /// Runs a script of `everytick_store::tx` as one transaction.
    async fn in_tx<T: Send + 'static>(
        &self,
        point: Point,
        doing: &'static str,
        script: impl AsyncFnOnce(&mut SimTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.transact(point, move |db, now, sent_at| tx::execute(db, doing, now, sent_at, script)).await
    }

    /// Runs one transaction: delays the request, executes the body at one instant, delays the reply. A caller that stops waiting
    /// does not stop the transaction. The body gets `now` and `sent_at`, the clock at the call, which only mutants use.
    async fn transact<T: Send + 'static>(
        &self,
        point: Point,
        body: impl FnOnce(&mut Db, DbTime, DbTime) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let sent_at = self.clock.now();
        let Some(call) = self.faults.call(point) else {
            let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.now();
            db.damage = Damage { faults: self.faults.clone(), now };
            return body(&mut db, now, sent_at);
        };
        let (db, clock, faults) = (self.db.clone(), self.clock.clone(), self.faults.clone());
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(call.travel).await;
            if call.fate == Fate::FailedBefore {
                let _ =
                    reply.send(Err(StoreError::Failed { doing: point.word(), source: "refused by a fault".into() }));
                return;
            }
            let result = {
                let mut db = db.lock().unwrap_or_else(PoisonError::into_inner);
                let now = clock.now();
                db.damage = Damage { faults, now };
                body(&mut db, now, sent_at)
            };
            if !call.back.is_zero() {
                tokio::time::sleep(call.back).await;
            }
            let _ = reply.send(match call.fate {
                Fate::ReplyLost => Err(StoreError::Unsure { doing: point.word(), source: "the reply was lost".into() }),
                Fate::Done | Fate::FailedBefore => result,
            });
        });
        answer.await.unwrap_or_else(|_| Err(StoreError::Unsure { doing: point.word(), source: "no reply".into() }))
    }
}

#[async_trait]
impl Store for SimStore {
    fn partitions(&self) -> u16 {
        self.partitions
    }
    async fn now(&self) -> Result<DbTime> {
        self.transact(Point::Now, |_, now, _| Ok(now)).await
    }
    async fn join(&self, node: &NodeInfo, incarnation: Incarnation, ttl: Span) -> Result<(Lease, DbTime)> {
        let node = node.clone();
        if let Some(told) = &self.lied_to {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(incarnation);
        }
        self.transact(Point::Join, move |db, now, _| Ok((db.join(&node, incarnation, ttl, now)?, now))).await
    }
    async fn renew(&self, lease: &Lease, ttl: Span, beat: &Beat) -> Result<DbTime> {
        let (lease, beat) = (lease.clone(), beat.clone());
        self.transact(Point::Renew, move |db, now, _| db.renew(&lease, ttl, &beat, now)).await
    }
    async fn raise_fence(&self, lease: &Lease) -> Result<Lease> {
        let lease = lease.clone();
        self.transact(Point::RaiseFence, move |db, now, _| db.raise_fence(&lease, now)).await
    }
    async fn retire(&self, lease: &Lease) -> Result<()> {
        let lease = lease.clone();
        self.transact(Point::Release, move |db, now, _| db.retire(&lease, now)).await
    }
    async fn leave(&self, lease: &Lease) -> Result<()> {
        let lease = lease.clone();
        self.transact(Point::Leave, move |db, now, _| db.leave(&lease, now)).await
    }
    async fn cluster(&self) -> Result<Cluster> {
        let told = self.lied_to.as_ref().map(|told| *told.lock().unwrap_or_else(PoisonError::into_inner));
        self.transact(Point::Cluster, move |db, now, _| {
            let cluster = db.cluster(now);
            Ok(match told {
                None => cluster,
                Some(told) => all_owned_by(cluster, told),
            })
        })
        .await
    }
    async fn acquire(&self, lease: &Lease, partitions: &PartitionSet) -> Result<PartitionSet> {
        let (lease, partitions, lies) = (lease.clone(), *partitions, self.lied_to.is_some());
        self.transact(Point::Acquire, move |db, now, _| {
            if lies { db.check_lease(&lease, now).map(|()| partitions) } else { db.acquire(&lease, &partitions, now) }
        })
        .await
    }
    async fn release(&self, lease: &Lease, partitions: &PartitionSet) -> Result<()> {
        let (lease, partitions) = (lease.clone(), *partitions);
        self.transact(Point::Release, move |db, now, _| db.release(&lease, &partitions, now)).await
    }

    async fn load_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>> {
        let (lease, partitions) = (lease.clone(), *partitions);
        self.transact(Point::Load, move |db, now, _| db.load_horizon(&lease, &partitions, until, after, limit, now))
            .await
    }
    async fn look_at_horizon(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<ChangedJob>> {
        let (lease, partitions) = (lease.clone(), *partitions);
        self.transact(Point::Load, move |db, now, _| db.look_at_horizon(&lease, &partitions, until, after, limit, now))
            .await
    }
    async fn load_jobs(&self, ids: &[JobId]) -> Result<Vec<LoadedJob>> {
        let ids = ids.to_vec();
        self.transact(Point::Load, move |db, _, _| db.load_jobs(&ids)).await
    }
    async fn changes(&self, partitions: &PartitionSet, since: ChangeMark, limit: usize) -> Result<Changes> {
        let partitions = *partitions;
        self.transact(Point::Load, move |db, _, _| Ok(db.changes(&partitions, since, limit))).await
    }
    async fn record(&self, lease: &Lease, batch: &[JobTicks]) -> Result<Recorded> {
        let (lease, batch) = (lease.clone(), batch.to_vec());
        self.transact(Point::Record, move |db, now, _| db.record(&lease, &batch, now)).await
    }
    async fn record_range(&self, lease: &Lease, plan: &RangePlan) -> Result<RangeAnswer> {
        let (lease, plan) = (lease.clone(), plan.clone());
        self.transact(Point::Range, move |db, now, _| db.record_range(&lease, &plan, now)).await
    }
    async fn raise_cursors(&self, raises: &[Raise]) -> Result<Vec<JobId>> {
        let raises = raises.to_vec();
        self.transact(Point::Raise, move |db, _, _| Ok(db.raise_cursors(&raises))).await
    }

    async fn load_overdue(
        &self,
        before: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> Result<Vec<LoadedJob>> {
        self.transact(Point::Load, move |db, _, _| db.load_overdue(before, after, limit)).await
    }
    async fn walk_jobs(&self, after: Option<JobId>, limit: usize) -> Result<Walked> {
        self.transact(Point::Load, move |db, _, _| Ok(db.walk_jobs(after, limit))).await
    }
    async fn load_ledgers(&self, asked: &[(JobId, Window)]) -> Result<Vec<Ledger>> {
        let asked = asked.to_vec();
        self.transact(Point::Load, move |db, _, _| Ok(db.load_ledgers(&asked))).await
    }
    async fn repair(&self, lease: &Lease, ticks: &JobTicks) -> Result<bool> {
        let (lease, ticks) = (lease.clone(), ticks.clone());
        self.transact(Point::Record, move |db, now, _| db.repair(&lease, &ticks, now)).await
    }

    async fn peek_waiting(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        busy: &[Busy],
        late_after: Option<TenantId>,
        limit: usize,
    ) -> Result<Waiting> {
        let (lease, partitions, busy) = (lease.clone(), *partitions, busy.to_vec());
        self.transact(Point::Peek, move |db, now, _| {
            db.peek_waiting(&lease, &partitions, &busy, late_after, limit, now)
        })
        .await
    }
    async fn claim(&self, lease: &Lease, partitions: &PartitionSet, runs: &[RunId]) -> Result<Vec<ClaimedRun>> {
        let (lease, partitions, runs) = (lease.clone(), *partitions, runs.to_vec());
        self.transact(Point::Claim, move |db, now, _| db.claim(&lease, Some(&partitions), &runs, now)).await
    }
    async fn delegate(
        &self,
        lease: &Lease,
        partitions: &PartitionSet,
        runs: &[(RunId, Incarnation)],
    ) -> Result<Vec<RunId>> {
        let (lease, partitions, runs) = (lease.clone(), *partitions, runs.to_vec());
        self.transact(Point::Claim, move |db, now, _| db.delegate(&lease, &partitions, &runs, now)).await
    }
    async fn peek_delegated(&self, lease: &Lease, full: &[JobId], limit: usize) -> Result<Vec<WaitingRun>> {
        let (lease, full) = (lease.clone(), full.to_vec());
        self.transact(Point::Peek, move |db, now, _| db.peek_delegated(&lease, &full, limit, now)).await
    }
    async fn claim_delegated(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<ClaimedRun>> {
        let (lease, runs) = (lease.clone(), runs.to_vec());
        self.transact(Point::Claim, move |db, now, _| db.claim(&lease, None, &runs, now)).await
    }
    async fn settle(&self, settles: &[Settle]) -> Result<Vec<SettleAnswer>> {
        let (settles, faults) = (settles.to_vec(), self.faults.clone());
        self.transact(Point::Settle, move |db, now, _| db.settle(&settles, now, |run| faults.locks(run, now))).await
    }
    async fn accept(&self, lease: &Lease, runs: &[AcceptedRun]) -> Result<Vec<SettleAnswer>> {
        let (lease, runs, faults) = (lease.clone(), runs.to_vec(), self.faults.clone());
        self.transact(Point::Settle, move |db, now, _| db.accept(&lease, &runs, now, |run| faults.locks(run, now)))
            .await
    }
    async fn supersede(&self, lease: &Lease, runs: &[Supersede]) -> Result<Vec<RunId>> {
        let (lease, runs) = (lease.clone(), runs.to_vec());
        self.transact(Point::Claim, move |db, now, _| db.supersede(&lease, &runs, now)).await
    }
    async fn keep_outputs(&self, outputs: &[KeptOutput]) -> Result<()> {
        let outputs = outputs.to_vec();
        self.transact(Point::Settle, move |db, _, _| {
            db.keep_outputs(&outputs);
            Ok(())
        })
        .await
    }
    async fn listed_claims(&self, lease: &Lease, after: Option<RunId>, limit: usize) -> Result<ListedClaims> {
        let lease = lease.clone();
        self.transact(Point::Load, move |db, _, _| Ok(db.listed_claims(&lease, after, limit))).await
    }
    async fn list_old_claims(&self, lease: &Lease, to: RunId) -> Result<RunId> {
        let lease = lease.clone();
        self.transact(Point::Renew, move |db, now, _| db.list_old_claims(&lease, to, now)).await
    }
    async fn claims_between(&self, lease: &Lease, from: RunId, to: RunId) -> Result<Vec<ClaimedRun>> {
        let by = lease.incarnation;
        let between = move |run: &ClaimedRun| (from..to).contains(&run.id);
        self.transact(Point::Load, move |db, _, _| {
            Ok(db.claims_of(by).filter(between).filter(|run| db.damage.readable_run(run.id)).collect())
        })
        .await
    }
    async fn still_claimed(&self, lease: &Lease, runs: &[RunId]) -> Result<Vec<(RunId, Fence)>> {
        let (by, runs) = (lease.incarnation, runs.to_vec());
        let among = move |run: ClaimedRun| runs.contains(&run.id).then_some((run.id, run.fence));
        self.transact(Point::Load, move |db, _, _| Ok(db.claims_of(by).filter_map(&among).collect())).await
    }
    async fn load_lost(&self, lease: &Lease, limit: usize) -> Result<Vec<ClaimedRun>> {
        let lease = lease.clone();
        self.transact(Point::Load, move |db, now, _| db.load_lost(&lease, limit, now)).await
    }

    async fn create_jobs(
        &self,
        tenant: TenantId,
        actor: &Actor,
        jobs: Vec<NewJob>,
        idempotency: Option<&IdempotencyKey>,
    ) -> Result<Vec<Result<Created>>> {
        let (actor, key) = (actor.clone(), idempotency.cloned());
        let script = async move |tx: &mut SimTx<'_>| create::create_jobs(tx, tenant, &actor, jobs, key.as_ref()).await;
        self.in_tx(Point::Ask, "create jobs", script).await
    }
    async fn edit_job(&self, tenant: TenantId, actor: &Actor, edit: EditJob) -> Result<Edited> {
        let actor = actor.clone();
        let script = async move |tx: &mut SimTx<'_>| edit::edit_job(tx, tenant, &actor, edit).await;
        self.in_tx(Point::Edit, tx::EDIT, script).await
    }
    async fn trigger(&self, tenant: TenantId, actor: &Actor, run: NewRun) -> Result<RunRecord> {
        let actor = actor.clone();
        let script = async move |tx: &mut SimTx<'_>| trigger::trigger(tx, tenant, &actor, run).await;
        self.in_tx(Point::Ask, tx::TRIGGER, script).await
    }
    async fn cancel_run(&self, tenant: TenantId, actor: &Actor, run: RunId) -> Result<CancelledRun> {
        let actor = actor.clone();
        let script = async move |tx: &mut SimTx<'_>| cancel::cancel_run(tx, tenant, &actor, run).await;
        self.in_tx(Point::Ask, "cancel a run", script).await
    }
    async fn cancel_job(&self, tenant: TenantId, actor: &Actor, job: &JobRef) -> Result<CancelledJob> {
        let (actor, job) = (actor.clone(), job.clone());
        let script = async move |tx: &mut SimTx<'_>| cancel::cancel_job(tx, tenant, &actor, &job).await;
        self.in_tx(Point::Ask, "cancel the runs of a job", script).await
    }
    async fn redrive(&self, tenant: TenantId, actor: &Actor, ask: &Redrive) -> Result<Redriven> {
        let (actor, ask) = (actor.clone(), ask.clone());
        let script = async move |tx: &mut SimTx<'_>| redrive::redrive(tx, tenant, &actor, &ask).await;
        self.in_tx(Point::Ask, "redrive failed runs", script).await
    }

    async fn put_calendar(&self, tenant: TenantId, actor: &Actor, put: PutCalendar) -> Result<CalendarPut> {
        let actor = actor.clone();
        let script = async move |tx: &mut SimTx<'_>| calendar::put_calendar(tx, tenant, &actor, put).await;
        self.in_tx(Point::Edit, "write the calendar", script).await
    }
    async fn delete_calendar(
        &self,
        tenant: TenantId,
        actor: &Actor,
        name: &str,
        if_match: Option<Version>,
    ) -> Result<CalendarRecord> {
        let (actor, name) = (actor.clone(), name.to_owned());
        let script =
            async move |tx: &mut SimTx<'_>| calendar::delete_calendar(tx, tenant, &actor, &name, if_match).await;
        self.in_tx(Point::Edit, "delete the calendar", script).await
    }
    async fn get_calendar(&self, tenant: TenantId, name: &str) -> Result<CalendarRecord> {
        let name = name.to_owned();
        let script = async move |tx: &mut SimTx<'_>| calendar::get_calendar(tx, tenant, &name).await;
        self.in_tx(Point::Read, "read the calendar", script).await
    }
    async fn list_calendars(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<CalendarRecord, String>> {
        let after = after.map(str::to_owned);
        self.transact(Point::Read, move |db, _, _| Ok(db.list_calendars(tenant, after.as_deref(), limit))).await
    }
    async fn load_calendars(&self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        let names = names.to_vec();
        self.transact(Point::Read, move |db, _, _| Ok(db.calendars_named(tenant, &names))).await
    }

    async fn get_job(&self, tenant: TenantId, job: &JobRef) -> Result<JobRecord> {
        let job = job.clone();
        self.transact(Point::Read, move |db, now, _| db.get_job(tenant, &job, now)).await
    }
    async fn list_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobRecord, String>> {
        let (filter, after) = (filter.clone(), after.map(str::to_owned));
        self.transact(Point::Read, move |db, now, _| Ok(db.list_jobs(tenant, &filter, after.as_deref(), limit, now)))
            .await
    }
    async fn load_facts(&self, tenant: TenantId, job: &JobRef, question: Question, kept: Span) -> Result<Facts> {
        let job = job.clone();
        let script = async move |tx: &mut SimTx<'_>| explains::load_facts(tx, tenant, &job, question, kept).await;
        self.in_tx(Point::Read, "read the facts about a tick", script).await
    }
    async fn load_run_facts(&self, tenant: TenantId, run: RunId) -> Result<RunFacts> {
        let script = async move |tx: &mut SimTx<'_>| explains::load_run_facts(tx, tenant, run).await;
        self.in_tx(Point::Read, "read the facts about a run", script).await
    }
    async fn get_run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        self.transact(Point::Read, move |db, _, _| db.get_run(tenant, run)).await
    }
    async fn list_runs(
        &self,
        tenant: TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunRecord, RunId>> {
        let filter = filter.clone();
        self.transact(Point::Read, move |db, _, _| Ok(db.list_runs(tenant, &filter, before, limit))).await
    }
    async fn list_attempts(&self, tenant: TenantId, run: RunId) -> Result<Vec<AttemptRecord>> {
        self.transact(Point::Read, move |db, _, _| db.list_attempts(tenant, run)).await
    }
    async fn list_audit(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRecord, i64>> {
        let filter = filter.clone();
        self.transact(Point::Read, move |db, _, _| Ok(db.list_audit(tenant, &filter, before, limit))).await
    }
    async fn find_jobs(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Result<Vec<(JobId, String)>> {
        self.transact(Point::Read, move |db, _, _| Ok(db.find_jobs(tenant, ids, limit))).await
    }
    async fn find_backfills(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Result<Vec<(BackfillId, String)>> {
        self.transact(Point::Read, move |db, _, _| Ok(db.find_backfills(tenant, ids, limit))).await
    }

    async fn prune(&self, before: DbTime, limit: usize) -> Result<Pruned> {
        self.transact(Point::Prune, move |db, now, _| Ok(db.prune(before, limit, now))).await
    }
    async fn save_unreadable(&self) -> Result<u64> {
        Ok(0)
    }
    async fn list_unreadable(&self, _: usize) -> Result<UnreadableRows> {
        Ok(UnreadableRows::default())
    }
    async fn prune_audit(&self, before: DbTime, limit: usize) -> Result<u64> {
        self.transact(Point::Prune, move |db, _, _| Ok(db.prune_audit(before, limit))).await
    }
}

/// The false answer of a lying connection: no other node exists, and this node owns every partition.
fn all_owned_by(mut cluster: Cluster, told: Option<Incarnation>) -> Cluster {
    cluster.nodes.retain(|node| Some(node.incarnation) == told);
    for row in &mut cluster.partitions {
        row.owner = told;
    }
    cluster
}
