//! The verbs of backfills. The transactions that use them are in `crate::tx::backfill`.

use async_trait::async_trait;
use everytick_domain::{
    backfill::{BACKFILL_OPEN_MAX, BackfillState, Order, Step, Stretch},
    ids::{BackfillId, JobId, RunId, TenantId},
    job::Job,
    partition::PartitionSet,
    time::{DbTime, Span},
};
use uuid::Uuid;

use super::{
    DbTx, Failed, SqliteStore,
    record::{self, Queued},
    rows::{self, Hex},
};
use crate::{
    Actor, BackfillAdvanced, BackfillPreview, BackfillRecord, BackfillStore, CancelledBackfill, Lease, NewBackfill,
    Page, Result, StoreError,
    backfills::{Listed, TICK_BYTES, ticks_to_bytes},
    tx::{
        backfill::{self, BackfillTx, StoredProgress},
        in_read, in_tx,
    },
};

#[async_trait]
impl BackfillStore for SqliteStore {
    async fn preview_backfill(&self, tenant: TenantId, ask: &NewBackfill) -> Result<BackfillPreview> {
        in_read!(self, "read a backfill", tx => backfill::preview(tx, tenant, ask))
    }
    async fn create_backfill(&self, tenant: TenantId, actor: &Actor, ask: NewBackfill) -> Result<BackfillRecord> {
        in_tx!(self, "create a backfill", tx => backfill::create(tx, tenant, actor, &ask))
    }
    async fn get_backfill(&self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        in_read!(self, "read a backfill", tx => tx.get_backfill(tenant, id))
    }
    async fn list_backfills(
        &self,
        tenant: TenantId,
        job: JobId,
        before: Option<BackfillId>,
        limit: usize,
    ) -> Result<Page<BackfillRecord, BackfillId>> {
        const DOING: &str = "read a backfill";
        let mut read = self.read(DOING).await?;
        let found = read
            .fetch_all(query!(
                "backfills/backfill_list",
                tenant.raw(),
                job.uuid(),
                before.map_or(Uuid::max(), BackfillId::uuid),
                rows::limit(limit.saturating_add(1))
            ))
            .await?;
        let items = self.unreadable.each("backfills", &found, rows::backfill);
        Ok(Page::cut(items, limit, |backfill: &BackfillRecord| backfill.id))
    }
    async fn cancel_backfill(&self, tenant: TenantId, actor: &Actor, id: BackfillId) -> Result<CancelledBackfill> {
        in_tx!(self, "cancel a backfill", tx => backfill::cancel(tx, tenant, actor, id))
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
        let found =
            sqlx::query_scalar(sql!("backfills/backfill_load")).bind(after.map_or(Uuid::nil(), BackfillId::uuid));
        let found = found.bind(rows::limit(limit));
        let found: Vec<Uuid> = found.fetch_all(&mut *read).await.failed(DOING)?;
        Ok(found.into_iter().map(BackfillId::from_uuid).collect())
    }
    async fn advance_backfill(&self, lease: &Lease, id: BackfillId, kept: Span) -> Result<BackfillAdvanced> {
        in_tx!(self, "create runs of a backfill", tx => backfill::advance(tx, lease, id, kept))
    }
}

#[async_trait]
impl BackfillTx for DbTx {
    async fn get_backfill(&mut self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        let row = self.fetch_optional(query!("backfills/backfill_get", tenant.raw(), id.uuid())).await?;
        rows::backfill(&row.ok_or(StoreError::NotFound("backfill"))?).failed(self.doing)
    }
    async fn count_running_backfills(&mut self, job: JobId) -> Result<usize> {
        let running: i64 = self.scalar(query!("backfills/backfill_running", job.uuid())).await?;
        Ok(usize::try_from(running).unwrap_or(usize::MAX))
    }
    async fn insert_backfill(&mut self, actor: &Actor, job: &Job, ask: &NewBackfill, ticks: &[DbTime]) -> Result<()> {
        let Stretch { from, to, order } = ask.stretch;
        self.execute_or_refuse(query!(
            "backfills/backfill_create",
            ask.id.uuid(),
            job.tenant.raw(),
            job.id.uuid(),
            from.millis(),
            to.millis(),
            order == Order::Newest,
            ask.rate.map(|rate| rate.count),
            ask.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX)),
            &ask.payload,
            ticks_to_bytes(ticks),
            rows::limit(ticks.len()),
            self.now.millis(),
            &actor.0
        ))
        .await?;
        Ok(())
    }
    async fn set_backfill_cancelled(&mut self, id: BackfillId, note: &str) -> Result<()> {
        self.execute(query!("backfills/backfill_cancel", id.uuid(), self.now.millis(), note)).await?;
        Ok(())
    }
    async fn load_progress(&mut self, id: BackfillId) -> Result<StoredProgress> {
        let row = self
            .fetch_optional(query!(
                "backfills/backfill_progress",
                id.uuid(),
                rows::limit(BACKFILL_OPEN_MAX * TICK_BYTES)
            ))
            .await?;
        let row = row.ok_or(StoreError::NotFound("backfill"))?;
        rows::progress(id, &row).failed(self.doing)
    }
    async fn listed_runs(&mut self, id: BackfillId) -> Result<Listed> {
        let found = self.fetch_all(query!("backfills/backfill_listed_runs", id.uuid())).await?;
        found.iter().map(rows::listed_run).collect::<std::result::Result<_, _>>().failed(self.doing)
    }
    async fn insert_backfilled(&mut self, row: &StoredProgress, job: &Job, ticks: &[DbTime]) -> Result<()> {
        let (spec, payload) = (&job.spec, row.payload.as_deref());
        let runs = ticks.iter().map(|tick| (Hex(row.origin.run(job.id, *tick).uuid()), tick.millis()));
        let made: Vec<Uuid> = sqlx::query_scalar(sql!("backfills/backfill_make"))
            .bind(rows::json(&runs.collect::<Vec<_>>()))
            .bind(job.tenant.raw())
            .bind(job.id.uuid())
            .bind(self.now.millis())
            .bind(payload)
            .fetch_all(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        let made: Vec<_> = made.into_iter().map(RunId::from_uuid).collect();
        let key = spec.key_of(payload);
        let queued = |run: &RunId| Queued { run: *run, priority: spec.priority, key: key.as_deref() };
        record::wait(self, &made.iter().map(queued).collect::<Vec<_>>()).await?;
        self.execute(query!("backfills/backfill_runs_add", rows::run_ids(made), row.origin.backfill.uuid())).await?;
        Ok(())
    }
    async fn unlist_runs(&mut self, _: BackfillId, runs: &[RunId]) -> Result<()> {
        let over = rows::run_ids(runs.iter().copied());
        self.execute(query!("backfills/backfill_runs_over", over)).await?;
        Ok(())
    }
    async fn update_backfill(&mut self, id: BackfillId, step: &Step, listed: &Listed) -> Result<()> {
        let ended = listed.ended;
        let ended = [ended.succeeded, ended.failed, ended.cancelled];
        self.execute(query!(
            "backfills/backfill_move_on",
            id.uuid(),
            rows::limit(step.make.len()),
            step.spent_until,
            ended[0],
            ended[1],
            ended[2],
            step.state.code(),
            step.active,
            (step.state != BackfillState::Running).then_some(self.now.millis()),
            &step.note
        ))
        .await?;
        Ok(())
    }
}
