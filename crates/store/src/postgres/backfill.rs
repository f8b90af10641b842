//! Backfills: created by users, advanced by the owners of their jobs. Advancing locks the backfill's row, then its job
//! as a request for a run does. What was read before these locks is read again.

use async_trait::async_trait;
use everytick_domain::{
    backfill::{
        BACKFILL_OPEN_MAX, BACKFILLS_RUNNING_MAX, BackfillState, Order, Origin, Progress, Step, Stretch, ticks,
    },
    ids::{BackfillId, JobId, TenantId},
    job::{Job, Overlap},
    partition::PartitionSet,
    queue::{Rate, lead},
    run::State,
    time::{DbTime, Span},
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{Failed, PostgresStore, Write, horizon, jobs, node, range, rows, sql};
use crate::{
    Actor, BackfillAdvanced, BackfillPreview, BackfillRecord, BackfillStore, CancelledBackfill, EndedRuns, JobRef,
    Lease, NewBackfill, Page, Result, StoreError,
    backfills::{
        Listed, TICK_BYTES, cancelled_by, cancelled_detail, made_detail, order_of, rate_of, ticks_from_bytes,
        ticks_to_bytes, too_many,
    },
    tx::{
        JobLock, Tx as _, lock_for_request, lock_job,
        requests::{self, Kind},
    },
};

const CREATING: &str = "create a backfill";
const READING: &str = "read a backfill";
const ADVANCING: &str = "create runs of a backfill";
const CANCELLING: &str = "cancel a backfill";

#[async_trait]
impl BackfillStore for PostgresStore {
    async fn preview_backfill(&self, tenant: TenantId, ask: &NewBackfill) -> Result<BackfillPreview> {
        let mut read = self.read(READING).await?;
        let job = jobs::find(&mut read, &self.unreadable, tenant, &ask.job, READING).await?.job;
        let now = sqlx::query_scalar(sql!("now")).fetch_one(&mut *read).await.failed(READING)?;
        let now = DbTime::from_millis(now);
        let ticks = ticks(&job, ask.stretch, ask.rate, now.minus(ask.kept), now).map_err(StoreError::Invalid)?;
        Ok(BackfillPreview::of((job.id, job.spec.name.clone()), &ticks))
    }

    async fn create_backfill(&self, tenant: TenantId, actor: &Actor, ask: NewBackfill) -> Result<BackfillRecord> {
        let mut write = self.write(CREATING).await?;
        let done = create(&mut write, tenant, actor, &ask).await;
        write.finish(done).await
    }

    async fn get_backfill(&self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        let mut read = self.read(READING).await?;
        get(&mut read, tenant, id, READING).await
    }

    async fn list_backfills(
        &self,
        tenant: TenantId,
        job: JobId,
        before: Option<BackfillId>,
        limit: usize,
    ) -> Result<Page<BackfillRecord, BackfillId>> {
        let mut read = self.read(READING).await?;
        let found = sqlx::query(sql!("backfill_list"))
            .bind(tenant.raw())
            .bind(job.uuid())
            .bind(before.map_or(Uuid::max(), BackfillId::uuid))
            .bind(rows::limit(limit.saturating_add(1)))
            .fetch_all(&mut *read)
            .await
            .failed(READING)?;
        let mut items = self.unreadable.each("backfills", &found, backfill);
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().map(|backfill: &BackfillRecord| backfill.id).filter(|_| more);
        Ok(Page { items, next })
    }

    async fn cancel_backfill(&self, tenant: TenantId, actor: &Actor, id: BackfillId) -> Result<CancelledBackfill> {
        let mut write = self.write(CANCELLING).await?;
        let done = cancel(&mut write, tenant, actor, id).await;
        write.finish(done).await
    }

    async fn load_backfills(
        &self,
        partitions: &PartitionSet,
        after: Option<BackfillId>,
        limit: usize,
    ) -> Result<Vec<BackfillId>> {
        const DOING: &str = "find backfills";
        let mut read = self.read(DOING).await?;
        let found: Vec<Uuid> = sqlx::query_scalar(sql!("backfill_load"))
            .bind(rows::partition_bits(partitions))
            .bind(after.map_or(Uuid::nil(), BackfillId::uuid))
            .bind(rows::limit(limit))
            .fetch_all(&mut *read)
            .await
            .failed(DOING)?;
        Ok(found.into_iter().map(BackfillId::from_uuid).collect())
    }

    async fn advance_backfill(&self, lease: &Lease, id: BackfillId, kept: Span) -> Result<BackfillAdvanced> {
        let mut write = self.write(ADVANCING).await?;
        let done = advance(&mut write, lease, id, kept).await;
        write.finish(done).await
    }
}

async fn create(write: &mut Write, tenant: TenantId, actor: &Actor, ask: &NewBackfill) -> Result<BackfillRecord> {
    requests::lock(write, tenant, ask.idempotency.as_ref()).await?;
    if let Some(made) = requests::replayed(write, tenant, ask.idempotency.as_ref(), Kind::Backfill).await? {
        return get(&mut write.tx, tenant, BackfillId::from_uuid(made), CREATING).await;
    }
    let job = lock_job(write, JobLock::Requests, tenant, &ask.job).await?.job;
    crate::flows::check_outside(&job.spec, ask.payload.as_deref())?;
    let now = write.now;
    let ticks = ticks(&job, ask.stretch, ask.rate, now.minus(ask.kept), now).map_err(StoreError::Invalid)?;
    let running: i64 = sqlx::query_scalar(sql!("backfill_running"))
        .bind(job.id.uuid())
        .fetch_one(&mut *write.tx)
        .await
        .failed(CREATING)?;
    let running = usize::try_from(running).unwrap_or(usize::MAX);
    if running >= BACKFILLS_RUNNING_MAX {
        return Err(too_many(running));
    }
    let Stretch { from, to, order } = ask.stretch;
    sqlx::query(sql!("backfill_create"))
        .bind(ask.id.uuid())
        .bind(tenant.raw())
        .bind(job.id.uuid())
        .bind(from.millis())
        .bind(to.millis())
        .bind(order == Order::Newest)
        .bind(ask.rate.map(|rate| i32::try_from(rate.count).unwrap_or(i32::MAX)))
        .bind(ask.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX)))
        .bind(rows::texts(ask.payload.as_ref()))
        .bind(ticks_to_bytes(&ticks))
        .bind(count(ticks.len()))
        .bind(now.millis())
        .bind(&*rows::text(&actor.0))
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(CREATING)?;
    let note = (ask.id.to_string(), made_detail(&job.spec.name, ask, ticks.len()));
    write.audit(tenant, actor, "backfill", &[note]).await?;
    requests::remember(write, tenant, ask.idempotency.as_ref(), Kind::Backfill, ask.id.uuid()).await?;
    get(&mut write.tx, tenant, ask.id, CREATING).await
}

async fn cancel(write: &mut Write, tenant: TenantId, actor: &Actor, id: BackfillId) -> Result<CancelledBackfill> {
    hold(write, id).await?;
    let now = write.read_clock().await?;
    let was = get(&mut write.tx, tenant, id, CANCELLING).await?;
    if was.state == BackfillState::Running {
        sqlx::query(sql!("backfill_cancel"))
            .bind(id.uuid())
            .bind(now.millis())
            .bind(&*rows::text(&cancelled_by(actor)))
            .execute(&mut *write.tx)
            .await
            .failed(CANCELLING)?;
        let note = (id.to_string(), cancelled_detail(&was));
        write.audit(tenant, actor, "cancel_backfill", &[note]).await?;
    }
    let backfill = get(&mut write.tx, tenant, id, CANCELLING).await?;
    Ok(CancelledBackfill { backfill, open: listed(&mut write.tx, id, CANCELLING).await?.open })
}

async fn hold(write: &mut Write, id: BackfillId) -> Result<()> {
    sqlx::query(sql!("backfill_held")).bind(id.uuid()).execute(&mut *write.tx).await.failed(write.doing)?;
    Ok(())
}

async fn get(
    connection: &mut PgConnection,
    tenant: TenantId,
    id: BackfillId,
    doing: &'static str,
) -> Result<BackfillRecord> {
    let query = sqlx::query(sql!("backfill_get")).bind(tenant.raw()).bind(id.uuid());
    let row = query.fetch_optional(connection).await.failed(doing)?.ok_or(StoreError::NotFound("backfill"))?;
    backfill(&row).failed_or_refused(doing)
}

fn backfill(row: &PgRow) -> std::result::Result<BackfillRecord, sqlx::Error> {
    let number = |column| row.try_get::<i32, _>(column).map(i32::unsigned_abs);
    Ok(BackfillRecord {
        id: BackfillId::from_uuid(row.try_get("id")?),
        tenant: rows::tenant(row)?,
        job: rows::job_id(row, "job")?,
        job_name: row.try_get::<Option<String>, _>("job_name")?.unwrap_or_default(),
        stretch: stretch(row)?,
        rate: rate(row)?,
        payload: row.try_get("payload")?,
        state: state(row)?,
        total: number("total")?,
        made: number("position")?,
        ended: EndedRuns {
            succeeded: number("succeeded")?,
            failed: number("failed")?,
            cancelled: number("cancelled")?,
        },
        created_at: rows::at(row, "created_at")?,
        created_by: row.try_get("created_by")?,
        finished_at: rows::time(row, "finished_at")?,
        note: row.try_get("note")?,
    })
}

fn stretch(row: &PgRow) -> std::result::Result<Stretch, sqlx::Error> {
    let order = order_of(row.try_get("newest_first")?);
    Ok(Stretch { from: rows::at(row, "from_at")?, to: rows::at(row, "to_at")?, order })
}

/// The data from which the ids of its runs are derived.
pub(super) fn origin(backfill: BackfillId, row: &PgRow) -> std::result::Result<Origin, sqlx::Error> {
    Ok(Origin { backfill, created_at: rows::at(row, "created_at")?, stretch: stretch(row)? })
}

fn rate(row: &PgRow) -> std::result::Result<Option<Rate>, sqlx::Error> {
    let count: Option<i32> = row.try_get("rate_count")?;
    Ok(rate_of(count.map(i64::from), row.try_get("rate_ms")?))
}

fn state(row: &PgRow) -> std::result::Result<BackfillState, sqlx::Error> {
    row.try_get("state").map(BackfillState::from_code)
}

fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

async fn listed(connection: &mut PgConnection, id: BackfillId, doing: &'static str) -> Result<Listed> {
    let found = sqlx::query(sql!("backfill_runs_stand")).bind(id.uuid()).fetch_all(connection).await.failed(doing)?;
    let run = |row: &PgRow| {
        let state: Option<i16> = row.try_get("state")?;
        Ok((rows::run_id(row, "run")?, state.map(State::from_code)))
    };
    let found: Vec<_> = found.iter().map(run).collect::<std::result::Result<_, _>>().failed_or_refused(doing)?;
    Ok(found.into_iter().collect())
}

async fn advance(write: &mut Write, lease: &Lease, id: BackfillId, kept: Span) -> Result<BackfillAdvanced> {
    node::hold(write, lease).await?;
    hold(write, id).await?;
    let mut row = Row::load(write, id).await?;
    let mut step = row.standing(write.now, kept).step();
    if !step.make.is_empty() {
        // Only if runs are created: under `queue` this lock blocks the recording of ticks.
        there(lock_for_request(write, row.tenant, &row.job_ref()).await)?;
        row = Row::load(write, id).await?;
        step = row.standing(write.now, kept).step();
    }
    if let Some(job) = row.job.as_ref().filter(|_| !step.make.is_empty()) {
        make(write, &row.origin, job, &step.make, row.payload.as_deref()).await?;
    }
    if !row.listed.over.is_empty() {
        sqlx::query(sql!("backfill_runs_over"))
            .bind(rows::run_ids(row.listed.over.iter().copied()))
            .execute(&mut *write.tx)
            .await
            .failed(ADVANCING)?;
    }
    if row.is_changed_by(&step) {
        let ended = row.listed.ended;
        let ended = [ended.succeeded, ended.failed, ended.cancelled].map(|n| i32::try_from(n).unwrap_or(i32::MAX));
        sqlx::query(sql!("backfill_move_on"))
            .bind(id.uuid())
            .bind(count(step.make.len()))
            .bind(step.spent_until)
            .bind(ended[0])
            .bind(ended[1])
            .bind(ended[2])
            .bind(step.state.code())
            .bind(step.active)
            .bind((step.state != BackfillState::Running).then_some(write.now.millis()))
            .bind(&step.note)
            .execute(&mut *write.tx)
            .await
            .failed(ADVANCING)?;
    }
    Ok(BackfillAdvanced { state: step.state, made: step.make.len() })
}

/// Maps "not found" to `None`.
fn there<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(StoreError::NotFound(_)) => Ok(None),
        found => found.map(Some),
    }
}

/// A backfill's row and the data that decide its next step.
struct Row {
    origin: Origin,
    tenant: TenantId,
    job_id: JobId,
    state: BackfillState,
    left: usize,
    rate: Option<Rate>,
    spent_until: i64,
    payload: Option<String>,
    next: Vec<DbTime>,
    /// `None` if the job was deleted.
    job: Option<Job>,
    job_open: usize,
    listed: Listed,
}

impl Row {
    async fn load(write: &mut Write, id: BackfillId) -> Result<Self> {
        let row = sqlx::query(sql!("backfill_stands"))
            .bind(id.uuid())
            .bind(count(BACKFILL_OPEN_MAX * TICK_BYTES))
            .fetch_optional(&mut *write.tx)
            .await
            .failed(ADVANCING)?
            .ok_or(StoreError::NotFound("backfill"))?;
        let mut row = Self::read(id, &row).failed_or_refused(ADVANCING)?;
        row.job = there(jobs::find(&mut write.tx, &write.unreadable, row.tenant, &row.job_ref(), ADVANCING).await)?
            .map(|row| row.job);
        row.listed = listed(&mut write.tx, id, ADVANCING).await?;
        if let Some(job) = row.job.as_ref().filter(|job| job.spec.in_progress_max().is_some()) {
            let open = horizon::open_runs(&mut write.tx, [job], write.now, ADVANCING).await?;
            row.job_open = open.get(&row.job_id).map_or(0, Vec::len);
        }
        Ok(row)
    }

    fn read(id: BackfillId, row: &PgRow) -> std::result::Result<Self, sqlx::Error> {
        let (total, position): (i32, i32) = (row.try_get("total")?, row.try_get("position")?);
        Ok(Self {
            origin: origin(id, row)?,
            tenant: rows::tenant(row)?,
            job_id: rows::job_id(row, "job")?,
            state: state(row)?,
            left: usize::try_from(total - position).unwrap_or(0),
            rate: rate(row)?,
            spent_until: row.try_get("spent_until")?,
            payload: row.try_get("payload")?,
            next: ticks_from_bytes(&row.try_get::<Vec<u8>, _>("next")?),
            job: None,
            job_open: 0,
            listed: Listed::default(),
        })
    }

    const fn job_ref(&self) -> JobRef {
        JobRef::Id(self.job_id)
    }

    fn standing(&self, now: DbTime, kept: Span) -> Progress<'_> {
        Progress {
            state: self.state,
            next: &self.next,
            left: self.left,
            rate: self.rate,
            spent_until: self.spent_until,
            open: self.listed.open.len(),
            job: self.job.as_ref().map(|job| &*job.spec),
            job_open: self.job_open,
            origin: self.origin,
            kept,
            now,
        }
    }

    /// Whether the step changes the row. An unchanged row is not rewritten.
    fn is_changed_by(&self, step: &Step) -> bool {
        !step.make.is_empty() || !self.listed.over.is_empty() || step.state != self.state || !step.active
    }
}

async fn make(write: &mut Write, origin: &Origin, job: &Job, ticks: &[DbTime], payload: Option<&str>) -> Result<()> {
    let (spec, now, queue) = (&job.spec, write.now.millis(), job.spec.target.queue());
    sqlx::query(sql!("backfill_make"))
        .bind(rows::run_ids(ticks.iter().map(|tick| origin.run(job.id, *tick))))
        .bind(ticks.iter().map(|tick| tick.millis()).collect::<Vec<_>>())
        .bind(job.tenant.raw())
        .bind(job.id.uuid())
        .bind(now)
        .bind(payload)
        .bind(rows::partition(job.partition))
        .bind(i16::from(spec.priority))
        .bind(queue)
        .bind(queue.map(|_| now - lead(spec.priority, true)))
        .bind(spec.key_of(payload))
        .bind(origin.backfill.uuid())
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(ADVANCING)?;
    if matches!(spec.overlap, Overlap::Queue { .. }) {
        range::raise_epoch(write, job.id).await?;
    }
    range::notify(write).await
}
