//! User requests on the maps: create and edit jobs, trigger and cancel runs. Also prunes old rows.

use everytick_domain::{
    edit::{self, Change, LockedJob},
    ids::{Cause, Epoch, Fence, JobId, RunId, TenantId},
    job::{self, Creation, Overlap},
    mutant::Mutant,
    overlap::{Admission, admit_trigger},
    run::{CauseKind, Request, SkipReason, State, answer},
    time::DbTime,
};

use super::db::{Db, Entry, JobRow, RangeRow, RequestRow, RunRow, Subject, WaitingRow};
use everytick_store::{
    Actor, AuditRecord, CancelledRun, Created, EditJob, Edited, IDEMPOTENCY_KEPT, IdempotencyKey, JobRef, NewJob,
    NewRun, OpenRun, Pruned, Result, RunRecord, StoreError,
    shared::{CRONS, facts, flows, is_announced},
};

impl Db {
    pub(super) fn find(&self, tenant: TenantId, job: &JobRef) -> Result<&JobRow> {
        let row = match job {
            JobRef::Id(id) => self.jobs.get(id),
            JobRef::Name(name) => self
                .jobs
                .values()
                .find(|row| row.job.tenant == tenant && row.job.deleted_at.is_none() && row.job.spec.name == *name),
        };
        row.filter(|row| row.job.tenant == tenant && row.job.deleted_at.is_none()).ok_or(StoreError::NotFound("job"))
    }

    /// Under overlap `queue`, raises the job's epoch: ticks that were planned without the new waiting run are planned again.
    pub(super) fn plan_anew(&mut self, job: JobId, now: DbTime) {
        let seq = self.next_seq();
        if let Some(row) = self.jobs.get_mut(&job).filter(|row| matches!(row.job.spec.overlap, Overlap::Queue { .. })) {
            row.epoch = row.epoch.raised(now);
            row.seq = seq;
        }
    }

    fn name_taken(&self, tenant: TenantId, name: &str, by_other_than: JobId) -> bool {
        self.find(tenant, &JobRef::Name(name.to_owned())).is_ok_and(|row| row.job.id != by_other_than)
    }

    pub(super) fn note(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        action: &str,
        subject: String,
        detail: String,
        at: DbTime,
    ) {
        let id = self.audit.last().map_or(0, |(_, last)| last.id) + 1;
        let record = AuditRecord { id, at, actor: actor.0.clone(), action: action.to_owned(), subject, detail };
        self.audit.push((tenant, record));
    }

    pub(super) fn replayed(&self, tenant: TenantId, key: Option<&IdempotencyKey>) -> Result<Option<Subject>> {
        let Some(asked) = key else { return Ok(None) };
        match self.requests.get(&(tenant, asked.key.clone())) {
            None => Ok(None),
            Some(row) if row.fingerprint == asked.fingerprint => Ok(Some(row.subject)),
            Some(_) => Err(StoreError::KeyReused),
        }
    }

    pub(super) fn remember(&mut self, tenant: TenantId, key: Option<&IdempotencyKey>, subject: Subject, at: DbTime) {
        if let Some(asked) = key {
            let row = RequestRow { fingerprint: asked.fingerprint, subject, at };
            self.requests.insert((tenant, asked.key.clone()), row);
        }
    }

    pub(super) fn create_jobs(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        jobs: Vec<NewJob>,
        idempotency: Option<&IdempotencyKey>,
        now: DbTime,
    ) -> Vec<Result<Created>> {
        let answers = everytick_store::shared::flows::each_in_order(jobs, |new| {
            self.create_job(tenant, actor, new, idempotency, now)
        });
        let made: Vec<_> = answers.iter().flatten().filter(|made| !made.replayed).map(|made| &made.job).collect();
        if !made.is_empty() {
            for (subject, detail) in facts::created(&made) {
                self.note(tenant, actor, "create", subject, detail, now);
            }
        }
        answers
    }

    fn create_job(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        mut new: NewJob,
        idempotency: Option<&IdempotencyKey>,
        now: DbTime,
    ) -> Result<Created> {
        if let Some(Subject::Job(id)) = self.replayed(tenant, idempotency)? {
            let row = self.find(tenant, &JobRef::Id(id))?;
            return Ok(Created { job: row.job.clone(), cursor: row.cursor, replayed: true });
        }
        if self.name_taken(tenant, &new.spec.name, new.id) {
            return Err(StoreError::NameTaken(new.spec.name));
        }
        let live =
            self.jobs.values().filter(|row| row.job.tenant == tenant && row.job.deleted_at.is_none()).count() as u64;
        if live >= self.limits.jobs_per_tenant_max {
            return Err(StoreError::QuotaReached(self.limits.jobs_per_tenant_max));
        }
        self.define_parents(tenant, new.id, &mut new.spec)?;
        let place = self.homes().place(new.id, new.spec.home_region.as_deref());
        let place = place.map_err(|invalid| StoreError::Invalid(vec![invalid]))?;
        let creation = Creation { id: new.id, tenant, partition: place.partition, by: actor.0.clone(), at: now };
        let known = self.calendars_named(tenant, new.spec.exclude());
        let (job, cursor) = job::create(creation, new.spec, &known, &CRONS).map_err(StoreError::Invalid)?;
        if let Some(claim) = &place.claim {
            self.claim_block(claim);
        }
        let id = job.id;
        let seq = if is_announced(cursor, now) { self.next_seq() } else { 0 };
        self.jobs.insert(id, JobRow { job: job.clone(), epoch: Epoch::from_raw(1), seq, cursor, moved_from: None });
        self.journal.push(Entry::Created { job: Box::new(job.clone()), x: now });
        self.remember(tenant, idempotency, Subject::Job(id), now);
        Ok(Created { job, cursor, replayed: false })
    }

    pub(super) fn edit_job(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        mut ask: EditJob,
        now: DbTime,
        sent_at: DbTime,
    ) -> Result<Edited> {
        let row = self.find(tenant, &ask.job)?;
        let (id, cursor, has) = (row.job.id, row.cursor, row.job.version);
        if let Some(wanted) = ask.if_match.filter(|wanted| *wanted != has) {
            return Err(StoreError::VersionMismatch { has, wanted });
        }
        if let Change::Replace(spec) = &ask.change
            && self.name_taken(tenant, &spec.name, id)
        {
            return Err(StoreError::NameTaken(spec.name.clone()));
        }
        self.check_edges(tenant, id, &mut ask.change)?;
        let row = self.find(tenant, &ask.job)?;
        let unlocked = Mutant::EditInstantBeforeLock.is_on();
        let standing = LockedJob {
            job: row.job.clone(),
            cursor,
            now: if unlocked { sent_at } else { now },
            last_recorded: if unlocked { None } else { self.last_tick_row(id, cursor.map_or(now, |at| at.min(now))) },
            open: OpenRun::count(&self.open_runs(id)),
            calendars: match &ask.change {
                Change::Replace(spec) => self.calendars_named(tenant, spec.exclude()),
                _ => Vec::new(),
            },
        };
        let action = ask.change.word();
        let mut edited = match edit::edit(&standing, ask.change, &CRONS).map_err(StoreError::Invalid)? {
            None => Edited { job: standing.job, cursor, effective_at: None, cancelled: Vec::new(), backlog: false },
            Some(mut edit) => {
                let new = edit.rows.iter().filter(|tick| !self.runs.contains_key(&tick.id));
                let new: Vec<_> = new.cloned().collect();
                // The mutant plans ticks that are already recorded, so the check would fail.
                if !unlocked {
                    facts::check_inserted(&edit, &new.iter().map(|tick| tick.id).collect(), "edit the job")?;
                }
                let was = standing.job.partition;
                if edit.job.spec.home_region != standing.job.spec.home_region {
                    let place = self.homes().place(id, edit.job.spec.home_region.as_deref());
                    let place = place.map_err(|invalid| StoreError::Invalid(vec![invalid]))?;
                    edit.job.partition = place.partition;
                    if let Some(claim) = &place.claim {
                        self.claim_block(claim);
                    }
                }
                for tick in &new {
                    self.insert_tick(id, tick, None, None, standing.job.spec.priority, now);
                }
                for range in &edit.ranges {
                    self.insert_range(id, *range, None, now);
                }
                let seq = self.next_seq();
                if let Some(row) = self.jobs.get_mut(&id) {
                    if edit.job.partition != was {
                        row.moved_from = Some(was);
                    }
                    row.job = edit.job.clone();
                    row.cursor = edit.cursor;
                    row.epoch = row.epoch.raised(now);
                    row.seq = seq;
                }
                self.requeue(id, now)?;
                self.journal.push(Entry::Edited {
                    job: Box::new(edit.job.clone()),
                    x: edit.effective_at,
                    at: standing.now,
                });
                let detail = facts::edit_detail(action, &standing.job, &edit);
                self.note(tenant, actor, action, id.to_string(), detail, now);
                Edited {
                    job: edit.job,
                    cursor: edit.cursor,
                    effective_at: Some(edit.effective_at),
                    cancelled: Vec::new(),
                    backlog: false,
                }
            }
        };
        if ask.cancel {
            for open in self.open_runs(id) {
                self.cancel(open.id, None, now);
                self.note(tenant, actor, "cancel", open.id.to_string(), "{}".into(), now);
                if open.state == State::Claimed {
                    edited.cancelled.push(open.id);
                }
            }
        }
        Ok(edited)
    }

    pub(super) fn trigger(&mut self, tenant: TenantId, actor: &Actor, ask: NewRun, now: DbTime) -> Result<RunRecord> {
        if let Some(Subject::Run(id)) = self.replayed(tenant, ask.idempotency.as_ref())? {
            return self.get_run(tenant, id);
        }
        let row = self.find(tenant, &ask.job)?;
        let (job, spec) = (row.job.id, row.job.spec.clone());
        flows::check_outside(&spec, ask.payload.as_deref())?;
        let open = OpenRun::count(&self.open_runs(job));
        let waits = self.waiting.values().filter(|row| row.job == job).count() as u64;
        if waits >= self.limits.open_requests_per_job_max {
            return Err(StoreError::BacklogFull(self.limits.open_requests_per_job_max));
        }
        let id = RunId::of(job, Cause::Request { at: now, key: &ask.key });
        let skipped = admit_trigger(&spec, ask.force, open) == Admission::Skip;
        let run = RunRow {
            job,
            tenant,
            cause: CauseKind::Request,
            scheduled_at: now,
            due_at: now,
            state: if skipped { State::Skipped } else { State::Waiting },
            attempt: 0,
            lost: 0,
            fence: Fence::default(),
            node: None,
            worker: None,
            incarnation: None,
            started_at: None,
            finished_at: skipped.then_some(now),
            error: None,
            output: None,
            skip_reason: skipped.then_some(SkipReason::Overlap),
            payload: ask.payload,
            flow: None,
        };
        if !skipped {
            let mut row = WaitingRow {
                job,
                tenant,
                priority: spec.priority,
                due_at: now,
                late: false,
                force: ask.force,
                attempts: 0,
                queue: None,
                rank: 0,
                key: spec.key_of(run.payload.as_deref()),
            };
            row.place(&spec, now);
            self.waiting.insert(id, row);
            if !Mutant::RequestKeepsEpoch.is_on() {
                self.plan_anew(job, now);
            }
        }
        self.insert_run(id, run, None, now);
        self.note(tenant, actor, "trigger", id.to_string(), "{}".into(), now);
        self.remember(tenant, ask.idempotency.as_ref(), Subject::Run(id), now);
        self.get_run(tenant, id)
    }

    pub(super) fn cancel_run(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        id: RunId,
        now: DbTime,
    ) -> Result<CancelledRun> {
        let state = self.get_run(tenant, id)?.state;
        answer(state, Request::Cancel)
            .map_err(|rejected| StoreError::Rejected { state: rejected.state, request: rejected.request })?;
        self.cancel(id, None, now);
        self.note(tenant, actor, "cancel", id.to_string(), "{}".into(), now);
        Ok(CancelledRun { run: self.get_run(tenant, id)?, was_claimed: state == State::Claimed })
    }

    pub(super) fn prune_audit(&mut self, before: DbTime, limit: usize) -> u64 {
        let (mut seen, count) = (0, self.audit.len());
        self.audit.retain(|(_, record)| {
            seen += 1;
            seen > limit || record.at >= before
        });
        (count - self.audit.len()) as u64
    }

    pub(super) fn prune(&mut self, before: DbTime, limit: usize, now: DbTime) -> Pruned {
        let old = |id: &RunId, run: &RunRow| {
            let passed =
                self.jobs.get(&run.job).is_none_or(|row| row.cursor.is_none_or(|cursor| run.scheduled_at < cursor));
            let lives = self.jobs.get(&run.job).is_some_and(|row| row.job.deleted_at.is_none());
            let last = lives && self.runs_of(run.job).next_back().map(|(id, _)| id) == Some(*id);
            let works = self.flow_works(run.flow.unwrap_or(*id));
            !run.state.is_open() && run.finished_at.is_some_and(|at| at < before) && passed && !last && !works
        };
        let gone: Vec<_> = self.runs.iter().filter(|(id, run)| old(id, run)).map(|(id, _)| *id).take(limit).collect();
        for id in &gone {
            if let Some(run) = self.runs.remove(id) {
                self.history.remove(&(run.job, *id));
            }
            self.attempts.retain(|(run, _), _| run != id);
        }
        let passed = |row: &RangeRow| {
            self.jobs.get(&row.job).is_none_or(|job| job.cursor.is_none_or(|cursor| row.range.to < cursor))
        };
        let old = self.ranges.iter().filter(|(_, row)| row.recorded_at < before && passed(row));
        let ranges: Vec<_> = old.map(|(id, _)| *id).take(limit).collect();
        for id in &ranges {
            self.ranges.remove(id);
        }
        self.prune_flows(before);
        let empty = |job: JobId| self.runs_of(job).next().is_none() && !self.ranges.values().any(|row| row.job == job);
        let dead: Vec<_> = self
            .jobs
            .iter()
            .filter(|(id, row)| row.job.deleted_at.is_some_and(|at| at < before) && empty(**id))
            .map(|(id, _)| *id)
            .take(limit)
            .collect();
        for id in &dead {
            self.jobs.remove(id);
        }
        self.prune_backfills(before);
        let requests = self.requests.len();
        self.requests.retain(|_, row| row.at >= now.minus(IDEMPOTENCY_KEPT));
        let requests = (requests - self.requests.len()) as u64;
        Pruned { runs: gone.len() as u64, jobs: dead.len() as u64, requests }
    }
}
