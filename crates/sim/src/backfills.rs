//! Backfills on maps: create, advance, cancel, list, prune.

use std::collections::BTreeSet;

use async_trait::async_trait;
use everytick_domain::{
    backfill::{BACKFILL_OPEN_MAX, BackfillState, Origin, Step, Stretch},
    explain::{BACKFILLED_SHOWN_MAX, Backfilled},
    ids::{BackfillId, JobId, RunId, TenantId},
    job::Job,
    mutant::Mutant,
    partition::PartitionSet,
    queue::Rate,
    run::CauseKind,
    time::{DbTime, Span},
};

use super::{
    Point, SimStore,
    call::{call, script},
    db::{Db, RunRow, WaitingRow},
    tx::SimTx,
};
use everytick_store::{
    Actor, BackfillAdvanced, BackfillPreview, BackfillRecord, BackfillStore, CancelledBackfill, EndedRuns, Lease,
    NewBackfill, Page, Result, StoreError,
    shared::backfills::Listed,
    tx::backfill::{self, BackfillTx, StoredProgress},
};

#[derive(Clone, Debug)]
pub struct BackfillRow {
    pub tenant: TenantId,
    pub job: JobId,
    pub stretch: Stretch,
    pub rate: Option<Rate>,
    pub payload: Option<String>,
    /// In the order in which they get runs.
    pub ticks: Vec<DbTime>,
    pub position: usize,
    pub state: BackfillState,
    spent_until: i64,
    /// Its runs whose end is not counted in `ended` yet.
    listed: BTreeSet<RunId>,
    ended: EndedRuns,
    active: bool,
    pub created_at: DbTime,
    created_by: String,
    finished_at: Option<DbTime>,
    note: Option<String>,
}

impl BackfillRow {
    /// The values from which the ids of its runs are derived.
    #[must_use]
    pub const fn origin(&self, backfill: BackfillId) -> Origin {
        Origin { backfill, created_at: self.created_at, stretch: self.stretch }
    }
}

#[async_trait]
impl BackfillStore for SimStore {
    async fn preview_backfill(&self, tenant: TenantId, ask: &NewBackfill) -> Result<BackfillPreview> {
        script!(self, Read, "read a backfill", [ask], |tx| backfill::preview(tx, tenant, &ask))
    }
    async fn create_backfill(&self, tenant: TenantId, actor: &Actor, ask: NewBackfill) -> Result<BackfillRecord> {
        script!(self, Ask, "create a backfill", [actor], |tx| backfill::create(tx, tenant, &actor, &ask))
    }
    async fn get_backfill(&self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        call!(self, Read, [], |db, _| db.get_backfill(tenant, id))
    }
    async fn list_backfills(
        &self,
        tenant: TenantId,
        job: JobId,
        before: Option<BackfillId>,
        limit: usize,
    ) -> Result<Page<BackfillRecord, BackfillId>> {
        call!(self, Read, [], |db, _| db.list_backfills(tenant, job, before, limit))
    }
    async fn cancel_backfill(&self, tenant: TenantId, actor: &Actor, id: BackfillId) -> Result<CancelledBackfill> {
        script!(self, Ask, "cancel a backfill", [actor], |tx| backfill::cancel(tx, tenant, &actor, id))
    }
    async fn load_backfills(
        &self,
        partitions: &PartitionSet,
        after: Option<BackfillId>,
        limit: usize,
    ) -> Result<Vec<BackfillId>> {
        call!(self, Load, [partitions], |db, _| Ok(db.load_backfills(&partitions, after, limit)))
    }
    async fn advance_backfill(&self, lease: &Lease, id: BackfillId, kept: Span) -> Result<BackfillAdvanced> {
        let (advanced, deferred) = script!(self, Record, "create runs of a backfill", [lease], |tx| async {
            let advanced = backfill::advance(tx, &lease, id, kept).await?;
            Ok((advanced, std::mem::take(&mut tx.deferred)))
        })?;
        // A mutant creates the runs in a transaction after the one that moves the position.
        if !deferred.is_empty() {
            call!(self, Record, [], |db, now| {
                for Deferred { row, job, ticks } in deferred {
                    db.insert_backfilled(&row, &job, &ticks, now);
                }
                Ok(())
            })?;
        }
        Ok(advanced)
    }
}

/// Runs that a mutant creates too late.
#[derive(Debug)]
pub(super) struct Deferred {
    row: StoredProgress,
    job: Job,
    ticks: Vec<DbTime>,
}

#[async_trait]
impl BackfillTx for SimTx<'_> {
    async fn get_backfill(&mut self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        self.db.get_backfill(tenant, id)
    }
    async fn count_running_backfills(&mut self, job: JobId) -> Result<usize> {
        let running = |row: &&BackfillRow| row.job == job && row.state == BackfillState::Running;
        Ok(self.db.backfills.values().filter(running).count())
    }
    async fn insert_backfill(&mut self, actor: &Actor, job: &Job, ask: &NewBackfill, ticks: &[DbTime]) -> Result<()> {
        let row = BackfillRow {
            tenant: job.tenant,
            job: job.id,
            stretch: ask.stretch,
            rate: ask.rate,
            payload: ask.payload.clone(),
            ticks: ticks.to_vec(),
            position: 0,
            state: BackfillState::Running,
            spent_until: 0,
            listed: BTreeSet::new(),
            ended: EndedRuns::default(),
            active: true,
            created_at: self.at,
            created_by: actor.name.clone(),
            finished_at: None,
            note: None,
        };
        self.db.backfills.insert(ask.id, row);
        Ok(())
    }
    async fn set_backfill_cancelled(&mut self, id: BackfillId, note: &str) -> Result<()> {
        let at = self.at;
        if let Some(row) = self.db.backfills.get_mut(&id) {
            row.state = BackfillState::Cancelled;
            row.finished_at = Some(at);
            row.note = Some(note.to_owned());
        }
        Ok(())
    }
    async fn load_progress(&mut self, id: BackfillId) -> Result<StoredProgress> {
        let row = self.db.backfills.get(&id).ok_or(StoreError::NotFound("backfill"))?;
        let next = &row.ticks[row.position..];
        Ok(StoredProgress {
            origin: row.origin(id),
            tenant: row.tenant,
            job: row.job,
            state: row.state,
            left: next.len(),
            rate: row.rate,
            spent_until: row.spent_until,
            payload: row.payload.clone(),
            next: next[..next.len().min(BACKFILL_OPEN_MAX)].to_vec(),
        })
    }
    async fn listed_runs(&mut self, id: BackfillId) -> Result<Listed> {
        Ok(self.db.backfills.get(&id).map(|row| self.db.listed(row)).unwrap_or_default())
    }
    async fn insert_backfilled(&mut self, row: &StoredProgress, job: &Job, ticks: &[DbTime]) -> Result<()> {
        if Mutant::BackfillPositionFirst.is_on() {
            self.deferred.push(Deferred { row: row.clone(), job: job.clone(), ticks: ticks.to_vec() });
        } else {
            self.db.insert_backfilled(row, job, ticks, self.at);
        }
        Ok(())
    }
    async fn unlist_runs(&mut self, id: BackfillId, runs: &[RunId]) -> Result<()> {
        if let Some(row) = self.db.backfills.get_mut(&id) {
            row.listed.retain(|run| !runs.contains(run));
        }
        Ok(())
    }
    async fn update_backfill(&mut self, id: BackfillId, step: &Step, listed: &Listed) -> Result<()> {
        let at = self.at;
        let Some(row) = self.db.backfills.get_mut(&id) else { return Ok(()) };
        row.ended.succeeded += listed.ended.succeeded;
        row.ended.failed += listed.ended.failed;
        row.ended.cancelled += listed.ended.cancelled;
        row.position += step.make.len();
        row.spent_until = step.spent_until;
        row.state = step.state;
        row.active = step.active;
        row.note = row.note.take().or_else(|| step.note.clone());
        if step.state != BackfillState::Running {
            row.finished_at = row.finished_at.or(Some(at));
        }
        Ok(())
    }
}

impl Db {
    fn listed(&self, row: &BackfillRow) -> Listed {
        row.listed.iter().map(|id| (*id, self.runs.get(id).map(|run| run.state))).collect()
    }

    fn get_backfill(&self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        let found = self.backfills.get(&id).filter(|row| row.tenant == tenant);
        let row = found.ok_or(StoreError::NotFound("backfill"))?;
        let more = self.listed(row).ended;
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(BackfillRecord {
            id,
            tenant,
            job: row.job,
            job_name: self.job_name(row.job),
            stretch: row.stretch,
            rate: row.rate,
            payload: row.payload.clone(),
            state: row.state,
            total: number(row.ticks.len()),
            made: number(row.position),
            ended: EndedRuns {
                succeeded: row.ended.succeeded + more.succeeded,
                failed: row.ended.failed + more.failed,
                cancelled: row.ended.cancelled + more.cancelled,
            },
            created_at: row.created_at,
            created_by: row.created_by.clone(),
            finished_at: row.finished_at,
            note: row.note.clone(),
        })
    }

    fn list_backfills(
        &self,
        tenant: TenantId,
        job: JobId,
        before: Option<BackfillId>,
        limit: usize,
    ) -> Result<Page<BackfillRecord, BackfillId>> {
        let of_job = |(id, row): &(&BackfillId, &BackfillRow)| {
            row.job == job && row.tenant == tenant && before.is_none_or(|before| **id < before)
        };
        let newest = self.backfills.iter().rev().filter(of_job).take(limit + 1);
        let found = newest.map(|(id, _)| self.get_backfill(tenant, *id)).collect::<Result<_>>()?;
        Ok(Page::cut(found, limit, |backfill| backfill.id))
    }

    fn load_backfills(&self, partitions: &PartitionSet, after: Option<BackfillId>, limit: usize) -> Vec<BackfillId> {
        let is_owned = |job: JobId| self.jobs.get(&job).is_some_and(|row| partitions.contains(row.job.partition));
        let ours = |(id, row): &(&BackfillId, &BackfillRow)| {
            row.active && after.is_none_or(|after| **id > after) && is_owned(row.job)
        };
        self.backfills.iter().filter(ours).map(|(id, _)| *id).take(limit).collect()
    }

    fn insert_backfilled(&mut self, row: &StoredProgress, job: &Job, ticks: &[DbTime], now: DbTime) {
        for tick in ticks {
            let run = row.origin.run(job.id, *tick);
            if !self.runs.contains_key(&run) {
                self.insert_late(job, run, *tick, row.payload.clone(), now);
                self.backfills.entry(row.origin.backfill).and_modify(|row| _ = row.listed.insert(run));
            }
        }
    }

    fn insert_late(&mut self, job: &Job, id: RunId, tick: DbTime, payload: Option<String>, now: DbTime) {
        let key = job.spec.key_of(payload.as_deref());
        let run = RunRow { payload, ..RunRow::waiting((job.id, job.tenant), CauseKind::Backfill, tick, now) };
        let waiting = WaitingRow { late: true, key, ..WaitingRow::of(&run, job.spec.priority) };
        self.insert_waiting(id, run, waiting, None, now);
    }

    /// The newest backfills over this tick of a job.
    pub(super) fn backfills_over(&self, job: JobId, at: DbTime) -> Vec<Backfilled> {
        let covers = |row: &BackfillRow| row.job == job && (row.stretch.from..=row.stretch.to).contains(&at);
        let newest = self.backfills.iter().rev().filter(|(_, row)| covers(row)).take(BACKFILLED_SHOWN_MAX);
        let backfilled = |(id, row): (&BackfillId, &BackfillRow)| Backfilled {
            backfill: *id,
            by: row.created_by.clone(),
            created_at: row.created_at,
            run: row.origin(*id).run(job, at),
            state: None,
            is_running: row.state == BackfillState::Running && at < row.stretch.to,
        };
        newest.map(backfilled).collect()
    }

    pub(super) fn prune_backfills(&mut self, before: DbTime) {
        self.backfills.retain(|_, row| row.active || row.finished_at.is_none_or(|at| at >= before));
    }
}
