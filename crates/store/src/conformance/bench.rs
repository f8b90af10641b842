//! A store under test, and steps that most rules need.

use std::{any::Any, fmt, sync::Arc};

use everytick_domain::{
    edit::Change,
    ids::{Epoch, JobId, RunId, TenantId, Version},
    job::{Job, JobSpec},
    partition::PartitionSet,
    plan::Fate,
    run::Verdict,
    time::{DbTime, Span},
};

use super::{LIMITS, START, TENANT, actor, born, by_name, change, incarnation, job_id, s, settle, tick, ticks};
use crate::{
    AuditFilter, ClaimedRun, Created, Edited, JobTicks, Lease, Limits, LoadedJob, ManualClock, NewJob, NewRun,
    NodeInfo, Raise, RangeAnswer, RangePlan, Result, RowAnswer, RunRecord, SettleAnswer, Store, TakeOver, Waiting,
    WallClock,
};

/// An empty store, its clock, and helpers for steps that most rules need.
pub struct Bench {
    pub store: Arc<dyn Store>,
    pub clock: Arc<ManualClock>,
    _kept: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").finish_non_exhaustive()
    }
}

impl Bench {
    /// Opens an empty store at [`START`].
    pub async fn open<F, G>(open: F) -> Self
    where
        F: FnOnce(Arc<dyn WallClock>, Limits) -> G,
        G: Future<Output = (Arc<dyn Store>, Box<dyn Any + Send + Sync>)>,
    {
        let clock = Arc::new(ManualClock::at(START));
        let (store, kept) = open(clock.clone(), LIMITS).await;
        Self { store, clock, _kept: kept }
    }

    /// Sets the clock to `seconds` after [`START`].
    pub fn go(&self, seconds: i64) {
        self.clock.set(s(seconds));
    }

    /// Every partition of the store.
    #[must_use]
    pub fn all(&self) -> PartitionSet {
        PartitionSet::all(self.store.partitions())
    }

    /// Joins a node with a lease that outlasts every rule. It replaces a live process of the same name.
    pub async fn join(&self, node: &str, n: u128) -> Lease {
        let info = NodeInfo { takes_over: TakeOver::Any, ..NodeInfo::named(node) };
        self.store.join(&info, incarnation(n), Span::days(365)).await.unwrap().0
    }

    pub async fn create(&self, spec: JobSpec) -> Job {
        self.created(TENANT, spec).await.unwrap().job
    }

    pub async fn created(&self, tenant: TenantId, spec: JobSpec) -> Result<Created> {
        let job = NewJob { id: job_id(tenant, &spec.name), spec };
        self.store.create_jobs(tenant, &actor(), vec![job], None).await.unwrap().remove(0)
    }

    pub async fn record(&self, lease: &Lease, batch: JobTicks) -> Vec<RowAnswer> {
        self.store.record(lease, &[batch]).await.unwrap().jobs.remove(0)
    }

    /// Records one run of the job as born claimed and returns the claim.
    pub async fn claimed(&self, lease: &Lease, job: &Job, seconds: i64) -> ClaimedRun {
        let row = born(job, seconds);
        let id = row.tick.id;
        assert_eq!(self.record(lease, ticks(job, self.epoch(job).await, vec![row])).await, [RowAnswer::Inserted]);
        let found = self.store.load_claimed(lease).await.unwrap();
        found.into_iter().find(|run| run.id == id).expect("the run was born claimed")
    }

    /// Lists the old claims of a lease and raises the bound below which claims are listed.
    pub async fn pass_claims(&self, lease: &Lease, bound: RunId) {
        while self.store.list_old_claims(lease, bound).await.unwrap() < bound {}
        let beat = crate::Beat::of(bound);
        self.store.renew(lease, Span::days(9), &beat).await.unwrap();
    }

    /// Records one waiting run of the job.
    pub async fn waiting(&self, lease: &Lease, job: &Job, seconds: i64) -> RunId {
        let row = tick(job, seconds, Fate::Run);
        let id = row.tick.id;
        assert_eq!(self.record(lease, ticks(job, self.epoch(job).await, vec![row])).await, [RowAnswer::Inserted]);
        id
    }

    pub async fn range(&self, lease: &Lease, plan: &RangePlan) -> RangeAnswer {
        self.store.record_range(lease, plan).await.unwrap()
    }

    pub async fn raise(&self, job: &Job, epoch: i64, cursor: Option<DbTime>) -> Vec<JobId> {
        let raise = Raise { job: job.id, epoch: Epoch::from_raw(epoch), cursor };
        self.store.raise_cursors(&[raise]).await.unwrap()
    }

    pub async fn peek(&self, lease: &Lease) -> Waiting {
        self.store.peek_waiting(lease, &self.all(), &[], None, 100).await.unwrap()
    }

    pub async fn due(&self, lease: &Lease) -> Vec<RunId> {
        self.peek(lease).await.due.into_iter().map(|run| run.id).collect()
    }

    pub async fn claim(&self, lease: &Lease, run: RunId) -> ClaimedRun {
        let mut claimed = self.store.claim(lease, &self.all(), &[run]).await.unwrap();
        assert_eq!(claimed.len(), 1, "the run is claimed");
        claimed.remove(0)
    }

    pub async fn settle(&self, run: &ClaimedRun, verdict: Verdict) -> SettleAnswer {
        self.store.settle(&[settle(run, verdict)]).await.unwrap().remove(0)
    }

    pub async fn load(&self, job: &Job) -> LoadedJob {
        self.store.load_jobs(&[job.id]).await.unwrap().remove(0)
    }

    pub async fn epoch(&self, job: &Job) -> i64 {
        self.load(job).await.epoch.raw()
    }

    pub async fn cursor(&self, job: &Job) -> Option<DbTime> {
        self.load(job).await.cursor
    }

    pub async fn run(&self, id: RunId) -> RunRecord {
        self.store.get_run(TENANT, id).await.unwrap()
    }

    /// The job's runs and ranges, oldest first.
    pub async fn history(&self, job: &Job) -> Vec<RunRecord> {
        let filter = crate::RunFilter { job: Some(job.id), ..Default::default() };
        let mut items = self.store.list_runs(TENANT, &filter, None, 10_000).await.unwrap().items;
        items.reverse();
        items
    }

    pub async fn edit(&self, job: &str, change_to: Change) -> Edited {
        self.store.edit_job(TENANT, &actor(), change(job, change_to)).await.unwrap()
    }

    pub async fn trigger(&self, run: NewRun) -> RunRecord {
        self.store.trigger(TENANT, &actor(), run).await.unwrap()
    }

    pub async fn version(&self, job: &str) -> Version {
        self.store.get_job(TENANT, &by_name(job)).await.unwrap().job.version
    }

    /// The audit trail, oldest first.
    pub async fn audit(&self) -> Vec<crate::AuditRecord> {
        let mut items = self.store.list_audit(TENANT, &AuditFilter::default(), None, 1_000).await.unwrap().items;
        items.reverse();
        items
    }
}
