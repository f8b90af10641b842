//! Backfills: created by users, advanced by the owner of their jobs. There is one writer at a time, so nothing that is
//! read here changes before the commit.

use async_trait::async_trait;
use everytick_domain::{
    backfill::{BACKFILL_OPEN_MAX, BACKFILLS_RUNNING_MAX, BackfillState, Order, Origin, Progress, Stretch, ticks},
    ids::{BackfillId, JobId, RunId, TenantId},
    job::Overlap,
    partition::PartitionSet,
    run::State,
    time::{DbTime, Span},
};
use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};
use uuid::Uuid;

use super::{
    Failed, SqliteStore, Write, horizon, jobs, node, range,
    record::{self, Queued},
    rows,
    rows::Hex,
    sql,
};
use crate::tx::{
    JobRow, Tx as _,
    requests::{self, Kind},
};
use crate::{
    Actor, BackfillAdvanced, BackfillPreview, BackfillRecord, BackfillStore, CancelledBackfill, EndedRuns, JobRef,
    Lease, NewBackfill, Page, Result, StoreError,
    backfills::{
        Listed, TICK_BYTES, cancelled_by, cancelled_detail, made_detail, order_of, rate_of, ticks_from_bytes,
        ticks_to_bytes, too_many,
    },
};

const CREATING: &str = "create a backfill";
const READING: &str = "read a backfill";
const ADVANCING: &str = "create runs of a backfill";

#[async_trait]
impl BackfillStore for SqliteStore {
    async fn preview_backfill(&self, tenant: TenantId, ask: &NewBackfill) -> Result<BackfillPreview> {
        let mut read = self.read(READING).await?;
        let job = jobs::find(&mut read, &self.unreadable, tenant, &ask.job, READING).await?.job;
        let now = self.clock.now();
        let ticks = ticks(&job, ask.stretch, ask.rate, now.minus(ask.kept), now).map_err(StoreError::Invalid)?;
        Ok(BackfillPreview::of((job.id, job.spec.name.clone()), &ticks))
    }

    async fn create_backfill(&self, tenant: TenantId, actor: &Actor, ask: NewBackfill) -> Result<BackfillRecord> {
        let mut write = self.write(CREATING).await?;
        let record = create(&mut write, tenant, actor, &ask).await?;
        write.commit().await?;
        Ok(record)
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
        const DOING: &str = "cancel a backfill";
        let mut write = self.write(DOING).await?;
        let was = get(&mut write.tx, tenant, id, DOING).await?;
        if was.state == BackfillState::Running {
            let now = write.now.millis();
            sqlx::query(sql!("backfill_cancel"))
                .bind(id.uuid())
                .bind(now)
                .bind(cancelled_by(actor))
                .execute(&mut *write.tx)
                .await
                .failed(DOING)?;
            let note = (id.to_string(), cancelled_detail(&was));
            write.audit(tenant, actor, "cancel_backfill", &[note]).await?;
        }
        let backfill = get(&mut write.tx, tenant, id, DOING).await?;
        let open = listed(&mut write.tx, id, DOING).await?.open;
        write.commit().await?;
        Ok(CancelledBackfill { backfill, open })
    }

    async fn load_backfills(
        &self,
        partitions: &PartitionSet,
        after: Option<BackfillId>,
        limit: usize,
    ) -> Result<Vec<BackfillId>> {
        const DOING: &str = "find backfills";
        if !partitions.contains(0) {
            return Ok(Vec::new());
        }
        let mut read = self.read(DOING).await?;
        let found: Vec<Uuid> = sqlx::query_scalar(sql!("backfill_load"))
            .bind(after.map_or(Uuid::nil(), BackfillId::uuid))
            .bind(rows::limit(limit))
            .fetch_all(&mut *read)
            .await
            .failed(DOING)?;
        Ok(found.into_iter().map(BackfillId::from_uuid).collect())
    }

    async fn advance_backfill(&self, lease: &Lease, id: BackfillId, kept: Span) -> Result<BackfillAdvanced> {
        let mut write = self.write(ADVANCING).await?;
        let now = write.now;
        node::check(&mut write.tx, lease, now, ADVANCING).await?;
        let advanced = advance(&mut write, id, kept).await?;
        write.commit().await?;
        Ok(advanced)
    }
}

async fn create(write: &mut Write, tenant: TenantId, actor: &Actor, ask: &NewBackfill) -> Result<BackfillRecord> {
    let now = write.now;
    if let Some(made) = requests::replayed(write, tenant, ask.idempotency.as_ref(), Kind::Backfill).await? {
        return get(&mut write.tx, tenant, BackfillId::from_uuid(made), CREATING).await;
    }
    let job = jobs::find(&mut write.tx, &write.unreadable, tenant, &ask.job, CREATING).await?.job;
    crate::flows::check_outside(&job.spec, ask.payload.as_deref())?;
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
        .bind(ask.rate.map(|rate| rate.count))
        .bind(ask.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX)))
        .bind(&ask.payload)
        .bind(ticks_to_bytes(&ticks))
        .bind(rows::limit(ticks.len()))
        .bind(now.millis())
        .bind(&actor.0)
        .execute(&mut *write.tx)
        .await
        .failed_or_refused(CREATING)?;
    let note = (ask.id.to_string(), made_detail(&job.spec.name, ask, ticks.len()));
    write.audit(tenant, actor, "backfill", &[note]).await?;
    requests::remember(write, tenant, ask.idempotency.as_ref(), Kind::Backfill, ask.id.uuid()).await?;
    get(&mut write.tx, tenant, ask.id, CREATING).await
}

async fn get(
    connection: &mut SqliteConnection,
    tenant: TenantId,
    id: BackfillId,
    doing: &'static str,
) -> Result<BackfillRecord> {
    let query = sqlx::query(sql!("backfill_get")).bind(tenant.raw()).bind(id.uuid());
    let row = query.fetch_optional(connection).await.failed(doing)?.ok_or(StoreError::NotFound("backfill"))?;
    backfill(&row).failed(doing)
}

fn backfill(row: &SqliteRow) -> std::result::Result<BackfillRecord, sqlx::Error> {
    Ok(BackfillRecord {
        id: BackfillId::from_uuid(row.try_get("id")?),
        tenant: rows::tenant(row)?,
        job: rows::job_id(row, "job")?,
        job_name: row.try_get::<Option<String>, _>("job_name")?.unwrap_or_default(),
        stretch: stretch(row)?,
        rate: rate_of(row.try_get("rate_count")?, row.try_get("rate_ms")?),
        payload: row.try_get("payload")?,
        state: state(row)?,
        total: row.try_get("total")?,
        made: row.try_get("position")?,
        ended: EndedRuns {
            succeeded: row.try_get("succeeded")?,
            failed: row.try_get("failed")?,
            cancelled: row.try_get("cancelled")?,
        },
        created_at: rows::at(row, "created_at")?,
        created_by: row.try_get("created_by")?,
        finished_at: rows::time(row, "finished_at")?,
        note: row.try_get("note")?,
    })
}

fn stretch(row: &SqliteRow) -> std::result::Result<Stretch, sqlx::Error> {
    let order = order_of(row.try_get("newest_first")?);
    Ok(Stretch { from: rows::at(row, "from_at")?, to: rows::at(row, "to_at")?, order })
}

/// The data from which the ids of its runs are derived.
pub(super) fn origin(backfill: BackfillId, row: &SqliteRow) -> std::result::Result<Origin, sqlx::Error> {
    Ok(Origin { backfill, created_at: rows::at(row, "created_at")?, stretch: stretch(row)? })
}

fn state(row: &SqliteRow) -> std::result::Result<BackfillState, sqlx::Error> {
    row.try_get("state").map(BackfillState::from_code)
}

async fn listed(connection: &mut SqliteConnection, id: BackfillId, doing: &'static str) -> Result<Listed> {
    let found = sqlx::query(sql!("backfill_runs_stand")).bind(id.uuid()).fetch_all(connection).await.failed(doing)?;
    let run = |row: &SqliteRow| {
        let state: Option<i16> = row.try_get("state")?;
        Ok((rows::run_id(row, "run")?, state.map(State::from_code)))
    };
    let found: Vec<_> = found.iter().map(run).collect::<std::result::Result<_, sqlx::Error>>().failed(doing)?;
    Ok(found.into_iter().collect())
}

async fn advance(write: &mut Write, id: BackfillId, kept: Span) -> Result<BackfillAdvanced> {
    let now = write.now;
    let row = sqlx::query(sql!("backfill_stands"))
        .bind(id.uuid())
        .bind(rows::limit(BACKFILL_OPEN_MAX * TICK_BYTES))
        .fetch_optional(&mut *write.tx)
        .await
        .failed(ADVANCING)?
        .ok_or(StoreError::NotFound("backfill"))?;
    let was = state(&row).failed(ADVANCING)?;
    let tenant = rows::tenant(&row).failed(ADVANCING)?;
    let job_id = rows::job_id(&row, "job").failed(ADVANCING)?;
    let (total, position): (u32, u32) =
        (row.try_get("total").failed(ADVANCING)?, row.try_get("position").failed(ADVANCING)?);
    let spent_until: i64 = row.try_get("spent_until").failed(ADVANCING)?;
    let payload: Option<String> = row.try_get("payload").failed(ADVANCING)?;
    let next = ticks_from_bytes(&row.try_get::<Vec<u8>, _>("next").failed(ADVANCING)?);
    let job = match jobs::find(&mut write.tx, &write.unreadable, tenant, &JobRef::Id(job_id), ADVANCING).await {
        Err(StoreError::NotFound(_)) => None,
        found => Some(found?),
    };
    let listed = listed(&mut write.tx, id, ADVANCING).await?;
    let limited = job.as_ref().map(|row| &row.job).filter(|job| job.spec.in_progress_max().is_some());
    let open = horizon::open_runs(&mut write.tx, limited, ADVANCING).await?;
    let job_open = open.get(&job_id).map_or(0, Vec::len);
    let standing = Progress {
        state: was,
        next: &next,
        left: total.saturating_sub(position) as usize,
        rate: rate_of(row.try_get("rate_count").failed(ADVANCING)?, row.try_get("rate_ms").failed(ADVANCING)?),
        spent_until,
        open: listed.open.len(),
        job: job.as_ref().map(|row| &*row.job.spec),
        job_open,
        origin: origin(id, &row).failed(ADVANCING)?,
        kept,
        now,
    };
    let step = standing.step();
    if let (Some(job), false) = (&job, step.make.is_empty()) {
        make(write, &standing.origin, job, &step.make, payload.as_deref()).await?;
    }
    let over = rows::run_ids(listed.over).failed(ADVANCING)?;
    sqlx::query(sql!("backfill_runs_over")).bind(over).execute(&mut *write.tx).await.failed(ADVANCING)?;
    sqlx::query(sql!("backfill_move_on"))
        .bind(id.uuid())
        .bind(rows::limit(step.make.len()))
        .bind(step.spent_until)
        .bind(listed.ended.succeeded)
        .bind(listed.ended.failed)
        .bind(listed.ended.cancelled)
        .bind(step.state.code())
        .bind(step.active)
        .bind((step.state != BackfillState::Running).then_some(now.millis()))
        .bind(&step.note)
        .execute(&mut *write.tx)
        .await
        .failed(ADVANCING)?;
    Ok(BackfillAdvanced { state: step.state, made: step.make.len() })
}

async fn make(write: &mut Write, origin: &Origin, row: &JobRow, ticks: &[DbTime], payload: Option<&str>) -> Result<()> {
    let (job, spec) = (&row.job, &row.job.spec);
    let runs: Vec<_> = ticks.iter().map(|tick| (Hex(origin.run(job.id, *tick).uuid()), tick.millis())).collect();
    let made: Vec<Uuid> = sqlx::query_scalar(sql!("backfill_make"))
        .bind(rows::json(&runs).failed(ADVANCING)?)
        .bind(job.tenant.raw())
        .bind(job.id.uuid())
        .bind(write.now.millis())
        .bind(payload)
        .fetch_all(&mut *write.tx)
        .await
        .failed_or_refused(ADVANCING)?;
    let made: Vec<_> = made.into_iter().map(RunId::from_uuid).collect();
    let key = spec.key_of(payload);
    let queued = |run: &RunId| Queued { run: *run, priority: spec.priority, late: true, key: key.as_deref() };
    record::wait(write, &made.iter().map(queued).collect::<Vec<_>>(), ADVANCING).await?;
    sqlx::query(sql!("backfill_runs_add"))
        .bind(rows::run_ids(made).failed(ADVANCING)?)
        .bind(origin.backfill.uuid())
        .execute(&mut *write.tx)
        .await
        .failed(ADVANCING)?;
    if matches!(spec.overlap, Overlap::Queue { .. }) {
        range::raise_epoch(write, job.id).await?;
    }
    Ok(())
}
