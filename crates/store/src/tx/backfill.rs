//! Backfills: created by users, advanced by the owners of their jobs. Advancing locks the backfill, then its job as a
//! request for a run does. What was read before these locks is read again.

use async_trait::async_trait;
use everytick_domain::{
    backfill::{BACKFILLS_RUNNING_MAX, BackfillState, Origin, Progress, Step, ticks},
    flow,
    ids::{BackfillId, JobId, RunId, TenantId},
    job::Job,
    queue::Rate,
    time::{DbTime, Span},
};

use super::{
    JobLock, Tx, audit_one, invalid, lock_for_request, lock_job,
    requests::{self, Kind},
};
use crate::{
    Actor, BackfillAdvanced, BackfillPreview, BackfillRecord, CancelledBackfill, JobRef, Lease, NewBackfill, Result,
    StoreError,
    backfills::{Listed, cancelled_by, cancelled_detail, made_detail, too_many},
};

/// The stored progress of a backfill.
#[derive(Clone, Debug)]
pub struct StoredProgress {
    pub origin: Origin,
    pub tenant: TenantId,
    pub job: JobId,
    pub state: BackfillState,
    /// Ticks without a run yet.
    pub left: usize,
    pub rate: Option<Rate>,
    pub spent_until: i64,
    pub payload: Option<String>,
    /// The next ticks, as many as may be open at once.
    pub next: Vec<DbTime>,
}

/// The verbs of backfills.
#[async_trait]
pub trait BackfillTx: Tx {
    async fn get_backfill(&mut self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord>;
    async fn count_running_backfills(&mut self, job: JobId) -> Result<usize>;
    async fn insert_backfill(&mut self, actor: &Actor, job: &Job, ask: &NewBackfill, ticks: &[DbTime]) -> Result<()>;
    async fn set_backfill_cancelled(&mut self, id: BackfillId, note: &str) -> Result<()>;
    async fn load_progress(&mut self, id: BackfillId) -> Result<StoredProgress>;
    /// Its runs whose end is not counted yet.
    async fn listed_runs(&mut self, id: BackfillId) -> Result<Listed>;
    /// Inserts waiting, late runs for these ticks, and lists them. Runs that exist stay.
    async fn insert_backfilled(&mut self, row: &StoredProgress, job: &Job, ticks: &[DbTime]) -> Result<()>;
    /// Removes runs from the list: their end is counted.
    async fn unlist_runs(&mut self, id: BackfillId, runs: &[RunId]) -> Result<()>;
    /// Moves the position by the step, and adds to the counts of ended runs.
    async fn update_backfill(&mut self, id: BackfillId, step: &Step, listed: &Listed) -> Result<()>;
}

pub async fn preview<T: BackfillTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    ask: &NewBackfill,
) -> Result<BackfillPreview> {
    let job = tx.find_job(tenant, &ask.job).await?.job;
    let now = tx.read_clock().await?;
    let ticks = ticks(&job, ask.stretch, ask.rate, now.minus(ask.kept), now).map_err(StoreError::Invalid)?;
    Ok(BackfillPreview::of((job.id, job.spec.name.clone()), &ticks))
}

pub async fn create<T: BackfillTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    ask: &NewBackfill,
) -> Result<BackfillRecord> {
    let key = ask.idempotency.as_ref();
    requests::lock(tx, tenant, key).await?;
    if let Some(made) = requests::replayed(tx, tenant, key, Kind::Backfill).await? {
        return tx.get_backfill(tenant, BackfillId::from_uuid(made)).await;
    }
    let job = lock_job(tx, JobLock::Requests, tenant, &ask.job).await?.job;
    flow::check_outside(&job.spec, ask.payload.as_deref()).map_err(invalid)?;
    let now = tx.now();
    let ticks = ticks(&job, ask.stretch, ask.rate, now.minus(ask.kept), now).map_err(StoreError::Invalid)?;
    let running = tx.count_running_backfills(job.id).await?;
    if running >= BACKFILLS_RUNNING_MAX {
        return Err(too_many(running));
    }
    tx.insert_backfill(actor, &job, ask, &ticks).await?;
    let detail = made_detail(&job.spec.name, ask, ticks.len());
    audit_one(tx, tenant, actor, "backfill", ask.id.to_string(), detail).await?;
    requests::remember(tx, tenant, key, Kind::Backfill, ask.id.uuid()).await?;
    tx.get_backfill(tenant, ask.id).await
}

pub async fn cancel<T: BackfillTx + ?Sized>(
    tx: &mut T,
    tenant: TenantId,
    actor: &Actor,
    id: BackfillId,
) -> Result<CancelledBackfill> {
    tx.lock_backfill(id).await?;
    tx.read_clock().await?;
    let was = tx.get_backfill(tenant, id).await?;
    if was.state == BackfillState::Running {
        tx.set_backfill_cancelled(id, &cancelled_by(actor)).await?;
        audit_one(tx, tenant, actor, "cancel_backfill", id.to_string(), cancelled_detail(&was)).await?;
    }
    let backfill = tx.get_backfill(tenant, id).await?;
    Ok(CancelledBackfill { backfill, open: tx.listed_runs(id).await?.open })
}

pub async fn advance<T: BackfillTx + ?Sized>(
    tx: &mut T,
    lease: &Lease,
    id: BackfillId,
    kept: Span,
) -> Result<BackfillAdvanced> {
    tx.lock_lease(lease).await?;
    tx.lock_backfill(id).await?;
    let mut loaded = Loaded::load(tx, id).await?;
    let mut step = loaded.step(tx.now(), kept);
    if !step.make.is_empty() {
        // Only if runs are created: under `queue` this lock blocks the recording of ticks.
        found(lock_for_request(tx, loaded.row.tenant, &JobRef::Id(loaded.row.job)).await)?;
        loaded = Loaded::load(tx, id).await?;
        step = loaded.step(tx.now(), kept);
    }
    if let Some(job) = loaded.job.as_ref().filter(|_| !step.make.is_empty()) {
        tx.insert_backfilled(&loaded.row, job, &step.make).await?;
        if job.spec.overlap.is_queue() {
            tx.raise_epoch(job.id).await?;
        }
        tx.notify_owners().await?;
    }
    if loaded.is_changed_by(&step) {
        tx.unlist_runs(id, &loaded.listed.over).await?;
        tx.update_backfill(id, &step, &loaded.listed).await?;
    }
    Ok(BackfillAdvanced { state: step.state, made: step.make.len() })
}

/// Maps "not found" to `None`.
fn found<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(StoreError::NotFound(_)) => Ok(None),
        found => found.map(Some),
    }
}

/// A backfill and the data that decide its next step.
struct Loaded {
    row: StoredProgress,
    listed: Listed,
    /// `None` if the job was deleted.
    job: Option<Job>,
    job_open: usize,
}

impl Loaded {
    async fn load<T: BackfillTx + ?Sized>(tx: &mut T, id: BackfillId) -> Result<Self> {
        let row = tx.load_progress(id).await?;
        let job = found(tx.find_job(row.tenant, &JobRef::Id(row.job)).await)?.map(|row| row.job);
        let listed = tx.listed_runs(id).await?;
        let job_open = match job.as_ref().filter(|job| job.spec.in_progress_max().is_some()) {
            None => 0,
            Some(job) => tx.open_runs(&[job]).await?.get(&job.id).map_or(0, Vec::len),
        };
        Ok(Self { row, listed, job, job_open })
    }

    fn step(&self, now: DbTime, kept: Span) -> Step {
        let progress = Progress {
            state: self.row.state,
            next: &self.row.next,
            left: self.row.left,
            rate: self.row.rate,
            spent_until: self.row.spent_until,
            open: self.listed.open.len(),
            job: self.job.as_ref().map(|job| &*job.spec),
            job_open: self.job_open,
            origin: self.row.origin,
            kept,
            now,
        };
        progress.step()
    }

    /// Whether the step changes the row. An unchanged row is not rewritten.
    fn is_changed_by(&self, step: &Step) -> bool {
        !step.make.is_empty() || !self.listed.over.is_empty() || step.state != self.row.state || !step.active
    }
}
