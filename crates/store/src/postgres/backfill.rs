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

use super::{Failed, PostgresStore, Write, rows, sql};
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
        let found = sqlx::query(sql!("backfills/backfill_list")).bind(tenant.raw()).bind(job.uuid());
        let found = found.bind(before.map_or(Uuid::max(), BackfillId::uuid)).bind(rows::limit(limit.saturating_add(1)));
        let found = found.fetch_all(&mut *read).await.failed(DOING)?;
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
        let found = sqlx::query_scalar(sql!("backfills/backfill_load")).bind(rows::partition_bits(partitions));
        let found = found.bind(after.map_or(Uuid::nil(), BackfillId::uuid)).bind(rows::limit(limit));
        let found: Vec<Uuid> = found.fetch_all(&mut *read).await.failed(DOING)?;
        Ok(found.into_iter().map(BackfillId::from_uuid).collect())
    }
    async fn advance_backfill(&self, lease: &Lease, id: BackfillId, kept: Span) -> Result<BackfillAdvanced> {
        in_tx!(self, "create runs of a backfill", tx => backfill::advance(tx, lease, id, kept))
    }
}

#[async_trait]
impl BackfillTx for Write {
    async fn get_backfill(&mut self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        let row = sqlx::query(sql!("backfills/backfill_get")).bind(tenant.raw()).bind(id.uuid());
        let row = row.fetch_optional(&mut *self.tx).await.failed(self.doing)?;
        rows::backfill(&row.ok_or(StoreError::NotFound("backfill"))?).failed_or_refused(self.doing)
    }
    async fn lock_backfill(&mut self, id: BackfillId) -> Result<()> {
        sqlx::query(sql!("backfills/lock_backfill")).bind(id.uuid()).execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn count_running_backfills(&mut self, job: JobId) -> Result<usize> {
        let running = sqlx::query_scalar(sql!("backfills/backfill_running")).bind(job.uuid());
        let running: i64 = running.fetch_one(&mut *self.tx).await.failed(self.doing)?;
        Ok(usize::try_from(running).unwrap_or(usize::MAX))
    }
    async fn insert_backfill(&mut self, actor: &Actor, job: &Job, ask: &NewBackfill, ticks: &[DbTime]) -> Result<()> {
        let Stretch { from, to, order } = ask.stretch;
        sqlx::query(sql!("backfills/backfill_create"))
            .bind(ask.id.uuid())
            .bind(job.tenant.raw())
            .bind(job.id.uuid())
            .bind(from.millis())
            .bind(to.millis())
            .bind(order == Order::Newest)
            .bind(ask.rate.map(|rate| i32::try_from(rate.count).unwrap_or(i32::MAX)))
            .bind(ask.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX)))
            .bind(rows::texts(ask.payload.as_ref()))
            .bind(ticks_to_bytes(ticks))
            .bind(count(ticks.len()))
            .bind(self.now.millis())
            .bind(&*rows::text(&actor.0))
            .execute(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        Ok(())
    }
    async fn set_backfill_cancelled(&mut self, id: BackfillId, note: &str) -> Result<()> {
        let cancel = sqlx::query(sql!("backfills/backfill_cancel")).bind(id.uuid()).bind(self.now.millis());
        cancel.bind(&*rows::text(note)).execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn load_progress(&mut self, id: BackfillId) -> Result<StoredProgress> {
        let row = sqlx::query(sql!("backfills/backfill_progress")).bind(id.uuid());
        let row = row.bind(count(BACKFILL_OPEN_MAX * TICK_BYTES));
        let row = row.fetch_optional(&mut *self.tx).await.failed(self.doing)?;
        let row = row.ok_or(StoreError::NotFound("backfill"))?;
        rows::progress(id, &row).failed_or_refused(self.doing)
    }
    async fn listed_runs(&mut self, id: BackfillId) -> Result<Listed> {
        let found = sqlx::query(sql!("backfills/backfill_listed_runs")).bind(id.uuid());
        let found = found.fetch_all(&mut *self.tx).await.failed(self.doing)?;
        found.iter().map(rows::listed_run).collect::<std::result::Result<_, _>>().failed_or_refused(self.doing)
    }
    async fn insert_backfilled(&mut self, row: &StoredProgress, job: &Job, ticks: &[DbTime]) -> Result<()> {
        let (spec, now, queue) = (&job.spec, self.now.millis(), job.spec.target.queue());
        let payload = row.payload.as_deref();
        sqlx::query(sql!("backfills/backfill_make"))
            .bind(rows::run_ids(ticks.iter().map(|tick| row.origin.run(job.id, *tick))))
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
            .bind(row.origin.backfill.uuid())
            .execute(&mut *self.tx)
            .await
            .failed_or_refused(self.doing)?;
        Ok(())
    }
    async fn unlist_runs(&mut self, _: BackfillId, runs: &[RunId]) -> Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        let unlist = sqlx::query(sql!("backfills/backfill_runs_over")).bind(rows::run_ids(runs.iter().copied()));
        unlist.execute(&mut *self.tx).await.failed(self.doing)?;
        Ok(())
    }
    async fn update_backfill(&mut self, id: BackfillId, step: &Step, listed: &Listed) -> Result<()> {
        let ended = listed.ended;
        let ended = [ended.succeeded, ended.failed, ended.cancelled].map(|n| i32::try_from(n).unwrap_or(i32::MAX));
        sqlx::query(sql!("backfills/backfill_move_on"))
            .bind(id.uuid())
            .bind(count(step.make.len()))
            .bind(step.spent_until)
            .bind(ended[0])
            .bind(ended[1])
            .bind(ended[2])
            .bind(step.state.code())
            .bind(step.active)
            .bind((step.state != BackfillState::Running).then_some(self.now.millis()))
            .bind(&step.note)
            .execute(&mut *self.tx)
            .await
            .failed(self.doing)?;
        Ok(())
    }
}

fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
