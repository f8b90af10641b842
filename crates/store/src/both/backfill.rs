//! The transactions and verbs of backfills. The scripts are in `crate::tx::backfill`.

use async_trait::async_trait;
use everytick_domain::{
    backfill::{BACKFILL_OPEN_MAX, BackfillState, Order, Step, Stretch},
    ids::{BackfillId, JobId, RunId, TenantId},
    job::Job,
    partition::PartitionSet,
    time::{DbTime, Span},
};
use uuid::Uuid;

use super::{DbStore, DbTx, Failed, rows, verbs};
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
impl BackfillStore for DbStore {
    async fn preview_backfill(&self, tenant: TenantId, ask: &NewBackfill) -> Result<BackfillPreview> {
        in_read!(self.of(tenant), "read a backfill", tx => backfill::preview(tx, tenant, ask))
    }
    async fn create_backfill(&self, tenant: TenantId, actor: &Actor, ask: NewBackfill) -> Result<BackfillRecord> {
        in_tx!(self.of(tenant), "create a backfill", tx => backfill::create(tx, tenant, actor, &ask))
    }
    async fn get_backfill(&self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        in_read!(self.of(tenant), "read a backfill", tx => tx.get_backfill(tenant, id))
    }
    async fn list_backfills(
        &self,
        tenant: TenantId,
        job: JobId,
        before: Option<BackfillId>,
        limit: usize,
    ) -> Result<Page<BackfillRecord, BackfillId>> {
        in_read!(self.of(tenant), "read a backfill", tx => list(tx, tenant, job, before, limit))
    }
    async fn cancel_backfill(&self, tenant: TenantId, actor: &Actor, id: BackfillId) -> Result<CancelledBackfill> {
        in_tx!(self.of(tenant), "cancel a backfill", tx => backfill::cancel(tx, tenant, actor, id))
    }
    async fn load_backfills(
        &self,
        partitions: &PartitionSet,
        after: Option<BackfillId>,
        limit: usize,
    ) -> Result<Vec<BackfillId>> {
        in_read!(self, "find backfills", tx => load(tx, partitions, after, limit))
    }
    async fn advance_backfill(&self, lease: &Lease, id: BackfillId, kept: Span) -> Result<BackfillAdvanced> {
        in_tx!(self, "create runs of a backfill", tx => backfill::advance(tx, lease, id, kept))
    }
}

async fn list(
    tx: &mut DbTx,
    tenant: TenantId,
    job: JobId,
    before: Option<BackfillId>,
    limit: usize,
) -> Result<Page<BackfillRecord, BackfillId>> {
    let before = before.map_or(Uuid::max(), BackfillId::uuid);
    let one_more = rows::limit(limit.saturating_add(1));
    let found = tx.fetch_all(query!("backfills/backfill_list", tenant.raw(), job.uuid(), before, one_more)).await?;
    Ok(Page::cut(tx.unreadable.each("backfills", &found, rows::backfill), limit, |backfill| backfill.id))
}

async fn load(
    tx: &mut DbTx,
    partitions: &PartitionSet,
    after: Option<BackfillId>,
    limit: usize,
) -> Result<Vec<BackfillId>> {
    let after = after.map_or(Uuid::nil(), BackfillId::uuid);
    let load = query!("backfills/backfill_load", rows::partition_filter(partitions), after, rows::limit(limit));
    let found: Vec<Uuid> = tx.scalars(load).await?;
    Ok(found.into_iter().map(BackfillId::from_uuid).collect())
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
            ask.rate.map(|rate| rows::int(rate.count)),
            ask.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX)),
            rows::text_of(ask.payload.as_ref()),
            ticks_to_bytes(ticks),
            rows::int(ticks.len()),
            self.now.millis(),
            rows::text(&actor.name)
        ))
        .await?;
        Ok(())
    }
    async fn set_backfill_cancelled(&mut self, id: BackfillId, note: &str) -> Result<()> {
        self.execute(query!("backfills/backfill_cancel", id.uuid(), self.now.millis(), rows::text(note))).await?;
        Ok(())
    }
    async fn load_progress(&mut self, id: BackfillId) -> Result<StoredProgress> {
        let bytes = rows::int(BACKFILL_OPEN_MAX * TICK_BYTES);
        let row = self.fetch_optional(query!("backfills/backfill_progress", id.uuid(), bytes)).await?;
        rows::progress(id, &row.ok_or(StoreError::NotFound("backfill"))?).failed(self.doing)
    }
    async fn listed_runs(&mut self, id: BackfillId) -> Result<Listed> {
        self.fetch_decoded(query!("backfills/backfill_listed_runs", id.uuid()), rows::listed_run).await
    }
    async fn insert_backfilled(&mut self, row: &StoredProgress, job: &Job, ticks: &[DbTime]) -> Result<()> {
        verbs::insert_backfilled(self, row, job, ticks).await
    }
    async fn unlist_runs(&mut self, _: BackfillId, runs: &[RunId]) -> Result<()> {
        if !runs.is_empty() {
            self.execute(query!("backfills/backfill_runs_over", rows::run_ids(runs))).await?;
        }
        Ok(())
    }
    async fn update_backfill(&mut self, id: BackfillId, step: &Step, listed: &Listed) -> Result<()> {
        self.execute(query!(
            "backfills/backfill_move_on",
            id.uuid(),
            rows::int(step.make.len()),
            step.spent_until,
            rows::int(listed.ended.succeeded),
            rows::int(listed.ended.failed),
            rows::int(listed.ended.cancelled),
            step.state.code(),
            step.active,
            (step.state != BackfillState::Running).then_some(self.now.millis()),
            &step.note
        ))
        .await?;
        Ok(())
    }
}
