//! Loads jobs, records ticks and skip ranges, raises cursors.

use std::sync::Arc;

use everytick_domain::{
    ids::{Cause, Epoch, Incarnation, JobId, RunId},
    mutant::Mutant,
    overlap::waiting_needed,
    partition::PartitionSet,
    plan::{Fate, SkipRange, TickRow},
    run::{CauseKind, State},
    time::DbTime,
};

use super::{
    db::{Db, JobRow, RangeRow, RunRow, WaitingRow},
    journal::Entry,
};
use everytick_store::{
    Backlog, ChangeMark, ChangedJob, Changes, JobTicks, Lease, LoadedJob, OpenRun, Raise, RangeAnswer, RangePlan,
    RecordRow, Recorded, Result, RowAnswer, StoreError,
};

impl Db {
    fn loaded(&self, row: &JobRow) -> LoadedJob {
        let probed = row.cursor.filter(|_| !Mutant::RangeWithoutProbe.is_on());
        let (waiting, mut open): (Vec<_>, Vec<_>) =
            self.open_runs(row.job.id).into_iter().partition(|run| run.state == State::Waiting);
        let remaining = self.limits.waiting_per_job_max.saturating_sub(waiting.len());
        let needed = if row.job.spec.counts_open() { waiting_needed(&row.job.spec) } else { 0 };
        let Backlog { runs, unread } = Backlog::of(waiting, needed);
        open.extend(runs);
        open.sort_unstable_by_key(|run| run.id);
        LoadedJob {
            job: Arc::new(row.job.clone()),
            epoch: row.epoch,
            cursor: row.cursor,
            last_tick: probed.and_then(|cursor| self.last_tick_row(row.job.id, cursor)),
            open,
            unread,
            remaining,
        }
    }

    pub(super) fn open_runs(&self, job: JobId) -> Vec<OpenRun> {
        self.open_of(job)
            .map(|(id, run)| {
                // A delegated run counts as claimed.
                let state = if self.delegated.contains_key(&id) { State::Claimed } else { run.state };
                OpenRun { id, state, attempt: run.attempt, fence: run.fence }
            })
            .collect()
    }

    /// The jobs whose cursor is before `until`, of these partitions or of all, by cursor and id.
    pub(super) fn due_jobs(
        &self,
        partitions: Option<&PartitionSet>,
        until: DbTime,
        after: Option<(DbTime, JobId)>,
        limit: usize,
    ) -> impl Iterator<Item = &JobRow> {
        let ours = |row: &&JobRow| partitions.is_none_or(|partitions| partitions.contains(row.job.partition));
        let cursors = self.jobs.values().filter(ours).filter_map(|row| Some((row.cursor?, row.job.id)));
        let mut due: Vec<_> = cursors.filter(|due| due.0 < until && after.is_none_or(|after| *due > after)).collect();
        due.sort_unstable();
        due.truncate(limit);
        due.into_iter().filter_map(|(_, id)| self.jobs.get(&id))
    }

    pub(super) fn load<'d>(&'d self, rows: impl Iterator<Item = &'d JobRow>) -> Result<Vec<LoadedJob>> {
        let load = |row: &JobRow| match self.unloadable.contains(&row.job.id) {
            true => Err(StoreError::Failed { doing: "load jobs", source: "the job cannot be read".into() }),
            false => Ok(self.loaded(row)),
        };
        rows.filter(|row| self.call.readable_job(row.job.id)).map(load).collect()
    }

    pub(super) fn changes(&self, partitions: &PartitionSet, since: ChangeMark, limit: usize) -> Changes {
        if limit == 0 {
            return Changes { jobs: Vec::new(), mark: ChangeMark(self.seq), more: false };
        }
        let here = |row: &JobRow| {
            partitions.contains(row.job.partition) || row.moved_from.is_some_and(|from| partitions.contains(from))
        };
        let ours = |row: &&JobRow| row.seq > since.0 && here(row);
        let mut changed: Vec<_> = self.jobs.values().filter(ours).collect();
        changed.sort_unstable_by_key(|row| row.seq);
        let more = changed.len() > limit;
        changed.truncate(limit);
        let mark = changed.last().map_or(since, |row| ChangeMark(row.seq));
        Changes { jobs: changed.into_iter().map(self::changed).collect(), mark, more }
    }

    pub(super) fn record(&mut self, lease: &Lease, batch: &[JobTicks], now: DbTime) -> Result<Recorded> {
        self.check_lease(lease, now)?;
        let jobs = batch
            .iter()
            .map(|ticks| ticks.rows.iter().map(|row| self.record_row(lease, ticks, row, now)).collect())
            .collect();
        Ok(Recorded { now, jobs })
    }

    fn record_row(&mut self, lease: &Lease, ticks: &JobTicks, row: &RecordRow, now: DbTime) -> RowAnswer {
        let sound = self
            .jobs
            .get(&ticks.job)
            .is_some_and(|job| job.epoch == ticks.epoch && job.cursor.is_some_and(|cursor| row.tick.at >= cursor));
        if !sound && !Mutant::NoEpochCheck.is_on() {
            return RowAnswer::Stale;
        }
        if row.tick.at > now && !Mutant::NoClockCheck.is_on() {
            return RowAnswer::Early;
        }
        if self.runs.contains_key(&row.tick.id) {
            return RowAnswer::Existed;
        }
        let born = row.born_claimed.then_some(lease);
        self.insert_tick(ticks.job, &row.tick, Some(lease.incarnation), born, now);
        RowAnswer::Inserted
    }

    /// `by` is the node that records the tick; `None` for an edit. `born` is the lease of a run that is born claimed.
    pub(super) fn insert_tick(
        &mut self,
        job: JobId,
        tick: &TickRow,
        by: Option<Incarnation>,
        born: Option<&Lease>,
        now: DbTime,
    ) {
        let Some((tenant, spec)) = self.jobs.get(&job).map(|row| (row.job.tenant, row.job.spec.clone())) else {
            return;
        };
        let mut row = RunRow::waiting((job, tenant), CauseKind::Tick, tick.at, tick.due_at);
        match (tick.fate, born) {
            (Fate::Skip(reason), _) => row.skip(reason, now),
            (Fate::Run | Fate::Late, Some(lease)) => {
                row.claim(lease.incarnation, Mutant::RetryKeepsFence, now);
                row.node = Some(lease.node.clone());
            }
            (Fate::Run | Fate::Late, None) => {
                let (late, key) = (tick.fate == Fate::Late, spec.key_of(None));
                let waiting = WaitingRow { late, key, ..WaitingRow::of(&row, spec.priority) };
                return self.insert_waiting(tick.id, row, waiting, by, now);
            }
        }
        self.insert_run(tick.id, row, by, now);
    }

    pub(super) fn record_range(&mut self, lease: &Lease, plan: &RangePlan, now: DbTime) -> Result<RangeAnswer> {
        self.check_lease(lease, now)?;
        let Some(row) = self.jobs.get(&plan.job) else { return Ok(RangeAnswer::Stale) };
        let same_epoch = row.epoch == plan.epoch;
        let same_cursor = row.cursor == Some(plan.cursor_was);
        // A range needs the planned epoch and cursor. One mutant drops both checks, another only the epoch check.
        let unchanged = match (Mutant::RangeWithoutCompareAndSet.is_on(), Mutant::NoEpochCheck.is_on()) {
            (true, _) => true,
            (false, true) => same_cursor,
            (false, false) => same_epoch && same_cursor,
        };
        let inside = |run: &RunRow| {
            run.cause == CauseKind::Tick && (plan.range.from..=plan.range.to).contains(&run.scheduled_at)
        };
        let occupied = self.runs_of(plan.job).any(|(_, run)| inside(run));
        if !unchanged || plan.range.to > now || (occupied && !Mutant::RangeWithoutProbe.is_on()) {
            return Ok(RangeAnswer::Stale);
        }
        self.insert_range(plan.job, plan.range, Some(lease.incarnation), now);
        if let Some(row) = self.jobs.get_mut(&plan.job) {
            row.cursor = plan.cursor;
        }
        Ok(self.raise_epoch(plan.job, now).map_or(RangeAnswer::Stale, |epoch| RangeAnswer::Recorded { epoch }))
    }

    /// Raises a job's epoch and announces the change.
    pub(super) fn raise_epoch(&mut self, job: JobId, now: DbTime) -> Option<Epoch> {
        let seq = self.next_seq();
        let row = self.jobs.get_mut(&job)?;
        row.epoch = row.epoch.raised(now);
        row.seq = seq;
        Some(row.epoch)
    }

    pub(super) fn insert_range(&mut self, job: JobId, range: SkipRange, by: Option<Incarnation>, now: DbTime) {
        let Some(tenant) = self.jobs.get(&job).map(|row| row.job.tenant) else { return };
        self.journal.push(Entry::RangeRecorded { job, from: range.from, to: range.to, reason: range.reason, by });
        let id = RunId::of(job, Cause::Range { from: range.from });
        self.ranges.insert(id, RangeRow { job, tenant, range, recorded_at: now });
    }

    /// The job's last tick at or after `from` that has a row or lies in a skip range.
    pub(super) fn last_tick_row(&self, job: JobId, from: DbTime) -> Option<DbTime> {
        let row = self
            .runs_of(job)
            .rev()
            .take_while(|(id, _)| *id >= RunId::floor(from))
            .find(|(_, run)| run.cause == CauseKind::Tick)
            .map(|(_, run)| run.scheduled_at);
        let range =
            self.ranges.values().filter(|row| row.job == job && row.range.to >= from).map(|row| row.range.to).max();
        row.max(range)
    }

    pub(super) fn raise_cursors(&mut self, raises: &[Raise]) -> Vec<JobId> {
        let mut raised = Vec::new();
        for raise in raises {
            let Some(row) = self.jobs.get_mut(&raise.job) else { continue };
            if row.epoch != raise.epoch && !Mutant::RaiseWithoutEpoch.is_on() {
                continue;
            }
            if rises(row.cursor, raise.cursor) {
                row.cursor = raise.cursor;
            }
            raised.push(raise.job);
        }
        raised
    }
}

pub(super) fn changed(row: &JobRow) -> ChangedJob {
    ChangedJob { id: row.job.id, epoch: row.epoch, cursor: row.cursor }
}

/// Whether the cursor rises. `None` lies after every instant: the schedule has no more ticks.
fn rises(from: Option<DbTime>, to: Option<DbTime>) -> bool {
    match (from, to) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(from), Some(to)) => to > from,
    }
}
