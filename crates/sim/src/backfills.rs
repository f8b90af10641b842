//! Backfills on maps: create, advance, cancel, list, prune.

use std::collections::BTreeSet;

use async_trait::async_trait;
use everytick_domain::{
    backfill::{BACKFILL_OPEN_MAX, BACKFILLS_RUNNING_MAX, BackfillState, Origin, Progress, Step, Stretch, ticks},
    explain::{BACKFILLED_SHOWN_MAX, Backfilled},
    ids::{BackfillId, Fence, JobId, RunId, TenantId},
    job::Job,
    mutant::Mutant,
    partition::PartitionSet,
    queue::Rate,
    run::{CauseKind, State},
    time::{DbTime, Span},
};

use super::{
    Point, SimStore,
    db::{Db, RunRow, WaitingRow},
};
use everytick_store::tx::requests::{Kind, Made};
use everytick_store::{
    Actor, BackfillAdvanced, BackfillPreview, BackfillRecord, BackfillStore, CancelledBackfill, EndedRuns, Lease,
    NewBackfill, Page, Result, StoreError,
    shared::{
        backfills::{Listed, cancelled_by, cancelled_detail, made_detail, too_many},
        flows,
    },
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
    created_at: DbTime,
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
        let ask = ask.clone();
        self.transact(Point::Read, move |db, now, _| {
            let job = &db.find(tenant, &ask.job)?.job;
            let ticks = ticks(job, ask.stretch, ask.rate, now.minus(ask.kept), now).map_err(StoreError::Invalid)?;
            Ok(BackfillPreview::of((job.id, job.spec.name.clone()), &ticks))
        })
        .await
    }
    async fn create_backfill(&self, tenant: TenantId, actor: &Actor, ask: NewBackfill) -> Result<BackfillRecord> {
        let actor = actor.clone();
        self.transact(Point::Ask, move |db, now, _| db.create_backfill(tenant, &actor, ask, now)).await
    }
    async fn get_backfill(&self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        self.transact(Point::Read, move |db, _, _| db.get_backfill(tenant, id)).await
    }
    async fn list_backfills(
        &self,
        tenant: TenantId,
        job: JobId,
        before: Option<BackfillId>,
        limit: usize,
    ) -> Result<Page<BackfillRecord, BackfillId>> {
        self.transact(Point::Read, move |db, _, _| db.list_backfills(tenant, job, before, limit)).await
    }
    async fn cancel_backfill(&self, tenant: TenantId, actor: &Actor, id: BackfillId) -> Result<CancelledBackfill> {
        let actor = actor.clone();
        self.transact(Point::Ask, move |db, now, _| db.cancel_backfill(tenant, &actor, id, now)).await
    }
    async fn load_backfills(
        &self,
        partitions: &PartitionSet,
        after: Option<BackfillId>,
        limit: usize,
    ) -> Result<Vec<BackfillId>> {
        let partitions = *partitions;
        self.transact(Point::Load, move |db, _, _| Ok(db.load_backfills(&partitions, after, limit))).await
    }
    async fn advance_backfill(&self, lease: &Lease, id: BackfillId, kept: Span) -> Result<BackfillAdvanced> {
        let lease = lease.clone();
        if Mutant::BackfillPositionFirst.is_on() {
            let step = self.transact(Point::Record, {
                let lease = lease.clone();
                move |db, now, _| db.step_of(&lease, id, kept, now).inspect(|step| db.move_on(id, step, now))
            });
            let step = step.await?;
            return self.transact(Point::Record, move |db, now, _| Ok(db.make_runs(id, &step, now))).await;
        }
        self.transact(Point::Record, move |db, now, _| {
            let step = db.step_of(&lease, id, kept, now)?;
            db.move_on(id, &step, now);
            Ok(db.make_runs(id, &step, now))
        })
        .await
    }
}

impl Db {
    fn create_backfill(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        ask: NewBackfill,
        now: DbTime,
    ) -> Result<BackfillRecord> {
        match self.replayed(tenant, ask.idempotency.as_ref())? {
            Some(Made { kind: Kind::Backfill, id }) => return self.get_backfill(tenant, BackfillId::from_uuid(id)),
            Some(_) => return Err(StoreError::KeyReused),
            None => {}
        }
        let job = self.find(tenant, &ask.job)?.job.clone();
        flows::check_outside(&job.spec, ask.payload.as_deref())?;
        let ticks = ticks(&job, ask.stretch, ask.rate, now.minus(ask.kept), now).map_err(StoreError::Invalid)?;
        let running = |row: &&BackfillRow| row.job == job.id && row.state == BackfillState::Running;
        let running = self.backfills.values().filter(running).count();
        if running >= BACKFILLS_RUNNING_MAX {
            return Err(too_many(running));
        }
        let detail = made_detail(&job.spec.name, &ask, ticks.len());
        self.note(tenant, actor, "backfill", ask.id.to_string(), detail, now);
        self.remember(tenant, ask.idempotency.as_ref(), Made { kind: Kind::Backfill, id: ask.id.uuid() }, now);
        let row = BackfillRow {
            tenant,
            job: job.id,
            stretch: ask.stretch,
            rate: ask.rate,
            payload: ask.payload,
            ticks,
            position: 0,
            state: BackfillState::Running,
            spent_until: 0,
            listed: BTreeSet::new(),
            ended: EndedRuns::default(),
            active: true,
            created_at: now,
            created_by: actor.0.clone(),
            finished_at: None,
            note: None,
        };
        self.backfills.insert(ask.id, row);
        self.get_backfill(tenant, ask.id)
    }

    fn listed(&self, row: &BackfillRow) -> Listed {
        row.listed.iter().map(|id| (*id, self.runs.get(id).map(|run| run.state))).collect()
    }

    fn get_backfill(&self, tenant: TenantId, id: BackfillId) -> Result<BackfillRecord> {
        let found = self.backfills.get(&id).filter(|row| row.tenant == tenant);
        let row = found.ok_or(StoreError::NotFound("backfill"))?;
        let more = self.listed(row).ended;
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(BackfillRecord {
            id,
            tenant,
            job: row.job,
            job_name: self.jobs.get(&row.job).map_or_else(String::new, |row| row.job.spec.name.clone()),
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
        let mut ids: Vec<_> = self.backfills.iter().rev().filter(of_job).map(|(id, _)| *id).take(limit + 1).collect();
        let more = ids.len() > limit;
        ids.truncate(limit);
        let next = ids.last().copied().filter(|_| more);
        Ok(Page { items: ids.into_iter().map(|id| self.get_backfill(tenant, id)).collect::<Result<_>>()?, next })
    }

    fn cancel_backfill(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        id: BackfillId,
        now: DbTime,
    ) -> Result<CancelledBackfill> {
        let was = self.get_backfill(tenant, id)?;
        if let Some(row) = self.backfills.get_mut(&id).filter(|row| row.state == BackfillState::Running) {
            row.state = BackfillState::Cancelled;
            row.finished_at = Some(now);
            row.note = Some(cancelled_by(actor));
            self.note(tenant, actor, "cancel_backfill", id.to_string(), cancelled_detail(&was), now);
        }
        let open = self.backfills.get(&id).map(|row| self.listed(row).open).unwrap_or_default();
        Ok(CancelledBackfill { backfill: self.get_backfill(tenant, id)?, open })
    }

    fn load_backfills(&self, partitions: &PartitionSet, after: Option<BackfillId>, limit: usize) -> Vec<BackfillId> {
        let stands = |job: JobId| self.jobs.get(&job).is_some_and(|row| partitions.contains(row.job.partition));
        let ours = |(id, row): &(&BackfillId, &BackfillRow)| {
            row.active && after.is_none_or(|after| **id > after) && stands(row.job)
        };
        self.backfills.iter().filter(ours).map(|(id, _)| *id).take(limit).collect()
    }

    fn step_of(&self, lease: &Lease, id: BackfillId, kept: Span, now: DbTime) -> Result<Step> {
        self.held(lease, now)?;
        let row = self.backfills.get(&id).ok_or(StoreError::NotFound("backfill"))?;
        let job = self.jobs.get(&row.job).map(|row| &row.job).filter(|job| job.deleted_at.is_none());
        let next = &row.ticks[row.position..];
        let standing = Progress {
            state: row.state,
            next: &next[..next.len().min(BACKFILL_OPEN_MAX)],
            left: next.len(),
            rate: row.rate,
            spent_until: row.spent_until,
            open: self.listed(row).open.len(),
            job: job.map(|job| &*job.spec),
            job_open: self.open_of(row.job).count(),
            origin: row.origin(id),
            kept,
            now,
        };
        Ok(standing.step())
    }

    fn move_on(&mut self, id: BackfillId, step: &Step, now: DbTime) {
        let Some(listed) = self.backfills.get(&id).map(|row| self.listed(row)) else { return };
        let Some(row) = self.backfills.get_mut(&id) else { return };
        row.listed.retain(|run| !listed.over.contains(run));
        row.ended.succeeded += listed.ended.succeeded;
        row.ended.failed += listed.ended.failed;
        row.ended.cancelled += listed.ended.cancelled;
        row.position += step.make.len();
        row.spent_until = step.spent_until;
        row.state = step.state;
        row.active = step.active;
        row.note = row.note.take().or_else(|| step.note.clone());
        if step.state != BackfillState::Running {
            row.finished_at = row.finished_at.or(Some(now));
        }
    }

    fn make_runs(&mut self, id: BackfillId, step: &Step, now: DbTime) -> BackfillAdvanced {
        let found = self.backfills.get(&id).and_then(|row| {
            let job = self.jobs.get(&row.job)?.job.clone();
            Some((job, row.origin(id), row.payload.clone()))
        });
        if let Some((job, origin, payload)) = found.filter(|_| !step.make.is_empty()) {
            for tick in &step.make {
                let run = origin.run(job.id, *tick);
                if !self.runs.contains_key(&run) {
                    self.make_run(&job, run, *tick, payload.clone(), now);
                    self.backfills.entry(id).and_modify(|row| _ = row.listed.insert(run));
                }
            }
            self.plan_anew(job.id, now);
        }
        BackfillAdvanced { state: step.state, made: step.make.len() }
    }

    fn make_run(&mut self, job: &Job, id: RunId, tick: DbTime, payload: Option<String>, now: DbTime) {
        let spec = &job.spec;
        let mut row = WaitingRow {
            job: job.id,
            tenant: job.tenant,
            priority: spec.priority,
            due_at: now,
            late: true,
            force: false,
            attempts: 0,
            queue: None,
            rank: 0,
            key: spec.key_of(payload.as_deref()),
        };
        row.place(spec, now);
        self.waiting.insert(id, row);
        let run = RunRow {
            job: job.id,
            tenant: job.tenant,
            cause: CauseKind::Backfill,
            scheduled_at: tick,
            due_at: now,
            state: State::Waiting,
            attempt: 0,
            lost: 0,
            fence: Fence::default(),
            node: None,
            worker: None,
            incarnation: None,
            started_at: None,
            finished_at: None,
            error: None,
            output: None,
            skip_reason: None,
            payload,
            flow: None,
        };
        self.insert_run(id, run, None, now);
    }

    /// The runs that the newest backfills created for this tick of a job.
    pub(super) fn backfilled(&self, job: JobId, at: DbTime) -> Vec<Backfilled> {
        let covers = |row: &BackfillRow| row.job == job && (row.stretch.from..=row.stretch.to).contains(&at);
        let newest = self.backfills.iter().rev().filter(|(_, row)| covers(row)).take(BACKFILLED_SHOWN_MAX);
        let runs = newest.map(|(id, row)| row.origin(*id).run(job, at));
        runs.filter_map(|run| Some(Backfilled { run, state: self.runs.get(&run)?.state })).collect()
    }

    pub(super) fn prune_backfills(&mut self, before: DbTime) {
        self.backfills.retain(|_, row| row.active || row.finished_at.is_none_or(|at| at >= before));
    }
}
