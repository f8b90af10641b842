//! The verbs of backfills. The transactions that use them are in `crate::tx::backfill`.

use async_trait::async_trait;
use everytick_domain::{
    backfill::{BACKFILL_OPEN_MAX, BackfillState, Order, Step, Stretch},
    ids::{BackfillId, JobId, RunId, TenantId},
    job::Job,
    partition::PartitionSet,
    queue::lead,
    time::{DbTime, Span},
};
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, rows};
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
impl BackfillStore for PostgresStore {
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
        let mut read = self.read(DOING).await?;
        let found: Vec<Uuid> = read
            .scalars(query!(
                "backfills/backfill_load",
                rows::partition_bits(partitions),
                after.map_or(Uuid::nil(), BackfillId::uuid),
                rows::limit(limit)
            ))
            .await?;
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
        rows::backfill(&row.ok_or(StoreError::NotFound("backfill"))?).failed_or_refused(self.doing)
    }
    async fn lock_backfill(&mut self, id: BackfillId) -> Result<()> {
        self.execute(query!("backfills/lock_backfill", id.uuid())).await?;
        Ok(())
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
            ask.rate.map(|rate| i32::try_from(rate.count).unwrap_or(i32::MAX)),
            ask.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX)),
            rows::texts(ask.payload.as_ref()),
            ticks_to_bytes(ticks),
            count(ticks.len()),
            self.now.millis(),
            &*rows::text(&actor.0)
        ))
        .await?;
        Ok(())
    }
    async fn set_backfill_cancelled(&mut self, id: BackfillId, note: &str) -> Result<()> {
        self.execute(query!("backfills/backfill_cancel", id.uuid(), self.now.millis(), &*rows::text(note))).await?;
        Ok(())
    }
    async fn load_progress(&mut self, id: BackfillId) -> Result<StoredProgress> {
        let row = self
            .fetch_optional(query!("backfills/backfill_progress", id.uuid(), count(BACKFILL_OPEN_MAX * TICK_BYTES)))
            .await?;
        let row = row.ok_or(StoreError::NotFound("backfill"))?;
        rows::progress(id, &row).failed_or_refused(self.doing)
    }
    async fn listed_runs(&mut self, id: BackfillId) -> Result<Listed> {
        let found = self.fetch_all(query!("backfills/backfill_listed_runs", id.uuid())).await?;
        found.iter().map(rows::listed_run).collect::<std::result::Result<_, _>>().failed_or_refused(self.doing)
    }
    async fn insert_backfilled(&mut self, row: &StoredProgress, job: &Job, ticks: &[DbTime]) -> Result<()> {
        let (spec, now, queue) = (&job.spec, self.now.millis(), job.spec.target.queue());
        let payload = row.payload.as_deref();
        self.execute_or_refuse(query!(
            "backfills/backfill_make",
            rows::run_ids(ticks.iter().map(|tick| row.origin.run(job.id, *tick))),
            ticks.iter().map(|tick| tick.millis()).collect::<Vec<_>>(),
            job.tenant.raw(),
            job.id.uuid(),
            now,
            payload,
            rows::partition(job.partition),
            i16::from(spec.priority),
            queue,
            queue.map(|_| now - lead(spec.priority, true)),
            spec.key_of(payload),
            row.origin.backfill.uuid()
        ))
        .await?;
        Ok(())
    }
    async fn unlist_runs(&mut self, _: BackfillId, runs: &[RunId]) -> Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        self.execute(query!("backfills/backfill_runs_over", rows::run_ids(runs.iter().copied()))).await?;
        Ok(())
    }
    async fn update_backfill(&mut self, id: BackfillId, step: &Step, listed: &Listed) -> Result<()> {
        let ended = listed.ended;
        let ended = [ended.succeeded, ended.failed, ended.cancelled].map(|n| i32::try_from(n).unwrap_or(i32::MAX));
        self.execute(query!(
            "backfills/backfill_move_on",
            id.uuid(),
            count(step.make.len()),
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

fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
