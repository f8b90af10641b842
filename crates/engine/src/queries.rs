//! Queries of users: single records and lists, read from the database. A query changes nothing and needs no loop, so a
//! node that only serves the API can answer it.

use std::{collections::BTreeMap, sync::Arc};

use everytick_domain::{
    calendar::Calendar,
    explain::{Facts, Question, RunFacts},
    ids::{BackfillId, IdPrefix, JobId, RunId, TenantId},
    time::{DbTime, Span},
};
use everytick_store::{
    AttemptRecord, AuditFilter, AuditRecord, BackfillRecord, CalendarRecord, Cluster, FlowFilter, FlowRecord, GoneNode,
    JobFilter, JobRecord, JobRef, Page, QueueRecord, Result, RunFilter, RunRecord, SecretRecord, Store, UnreadableRows,
};

use crate::audit;

/// The queries of one process. Cheap to clone.
#[derive(Clone)]
pub struct Queries {
    store: Arc<dyn Store>,
}

impl std::fmt::Debug for Queries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queries").finish_non_exhaustive()
    }
}

impl Queries {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// The database clock.
    pub async fn now(&self) -> Result<DbTime> {
        self.store.now().await
    }

    pub async fn job(&self, tenant: TenantId, job: &JobRef) -> Result<JobRecord> {
        self.store.get_job(tenant, job).await
    }

    /// The id of a job, for requests that name it. An error if there is no such job.
    pub async fn job_id(&self, tenant: TenantId, job: &JobRef) -> Result<JobId> {
        Ok(self.job(tenant, job).await?.job.id)
    }

    pub async fn jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobRecord, String>> {
        self.store.list_jobs(tenant, filter, after, limit).await
    }

    pub async fn run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        self.store.get_run(tenant, run).await
    }

    pub async fn runs(
        &self,
        tenant: TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<RunRecord, RunId>> {
        self.store.list_runs(tenant, filter, before, limit).await
    }

    /// The attempts of a run, in their order. An error if there is no such run.
    pub async fn attempts(&self, tenant: TenantId, run: RunId) -> Result<Vec<AttemptRecord>> {
        self.run(tenant, run).await?;
        self.store.list_attempts(tenant, run).await
    }

    /// The log so far of a run that a worker has claimed.
    pub async fn claim_log(&self, tenant: TenantId, run: RunId) -> Result<Option<String>> {
        self.store.claim_log(tenant, run).await
    }

    pub async fn flow(&self, tenant: TenantId, flow: RunId) -> Result<FlowRecord> {
        self.store.get_flow(tenant, flow).await
    }

    pub async fn flows(
        &self,
        tenant: TenantId,
        filter: &FlowFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Result<Page<FlowRecord, RunId>> {
        self.store.list_flows(tenant, filter, before, limit).await
    }

    pub async fn backfill(&self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        self.store.get_backfill(tenant, id).await
    }

    pub async fn backfills(
        &self,
        tenant: TenantId,
        job: JobId,
        before: Option<BackfillId>,
        limit: usize,
    ) -> Result<Page<BackfillRecord, BackfillId>> {
        self.store.list_backfills(tenant, job, before, limit).await
    }

    /// The queues from the name `from` on.
    pub async fn queues(
        &self,
        tenant: TenantId,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Page<QueueRecord, String>> {
        self.store.list_queues(tenant, from, limit).await
    }

    pub async fn calendar(&self, tenant: TenantId, name: &str) -> Result<CalendarRecord> {
        self.store.get_calendar(tenant, name).await
    }

    pub async fn calendars(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<CalendarRecord, String>> {
        self.store.list_calendars(tenant, after, limit).await
    }

    /// A secret without its value, and the names of jobs that refer to it.
    pub async fn secret(&self, tenant: TenantId, name: &str) -> Result<(SecretRecord, Vec<String>)> {
        self.store.get_secret(tenant, name).await
    }

    pub async fn secrets(
        &self,
        tenant: TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<SecretRecord, String>> {
        self.store.list_secrets(tenant, after, limit).await
    }

    /// The calendars with these names, to compute ticks.
    pub async fn load_calendars(&self, tenant: TenantId, names: &[String]) -> Result<Vec<Arc<Calendar>>> {
        self.store.load_calendars(tenant, names).await
    }

    pub async fn audit(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page<AuditRecord, i64>> {
        self.store.list_audit(tenant, filter, before, limit).await
    }

    /// The last number of the audit trail up to which an export has no gap.
    pub async fn audit_settled(&self) -> Result<i64> {
        audit::settled(self.store.as_ref()).await
    }

    /// Audit rows with numbers above `after` and up to `through`, in the order of their numbers.
    pub async fn export_audit(
        &self,
        tenant: TenantId,
        after: i64,
        through: i64,
        limit: usize,
    ) -> Result<Page<AuditRecord, i64>> {
        self.store.export_audit(Some(tenant), after, through, limit).await
    }

    /// The jobs whose ids begin with this prefix.
    pub async fn find_jobs(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Result<Vec<(JobId, String)>> {
        self.store.find_jobs(tenant, ids, limit).await
    }

    /// The backfills whose ids begin with this prefix, with the names of their jobs.
    pub async fn find_backfills(
        &self,
        tenant: TenantId,
        ids: IdPrefix,
        limit: usize,
    ) -> Result<Vec<(BackfillId, String)>> {
        self.store.find_backfills(tenant, ids, limit).await
    }

    /// The facts that explain an instant of a job.
    pub async fn facts(&self, tenant: TenantId, job: &JobRef, question: Question, history: Span) -> Result<Facts> {
        self.store.load_facts(tenant, job, question, history).await
    }

    /// The facts that explain the state of a run.
    pub async fn run_facts(&self, tenant: TenantId, run: RunId) -> Result<RunFacts> {
        self.store.load_run_facts(tenant, run).await
    }

    /// The nodes, and the owners of the partitions.
    pub async fn cluster(&self) -> Result<Cluster> {
        self.store.cluster().await
    }

    /// The nodes that have been gone for less than a day.
    pub async fn gone_nodes(&self) -> Result<Vec<GoneNode>> {
        self.store.load_gone_nodes().await
    }

    /// How many jobs with a next tick each partition has.
    pub async fn count_jobs(&self) -> Result<BTreeMap<u16, u64>> {
        self.store.count_jobs().await
    }

    /// Rows that could not be decoded, up to `limit` of them.
    pub async fn unreadable(&self, limit: usize) -> Result<UnreadableRows> {
        self.store.list_unreadable(limit).await
    }
}
