//! Reads for users: jobs, runs, attempts and audit rows.

use everytick_domain::{
    ids::{JobId, RunId, TenantId},
    time::DbTime,
};

use super::db::{Db, JobRow, RangeRow, RunRow};
use everytick_store::{
    Actor, AttemptRecord, AuditRecord, JobFilter, JobRecord, JobRef, PAGE_BYTES_MAX, Page, Result, RunFilter,
    RunRecord, StoreError,
    shared::{Search, page_of_runs},
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

    pub(super) fn job_record(&self, row: &JobRow, now: DbTime) -> JobRecord {
        let last_run = self.runs_of(row.job.id).next_back().map(|(id, run)| self.run_record(id, run));
        JobRecord { job: row.job.clone(), cursor: row.cursor, last_run, now, backlog: None }
    }

    pub(super) fn job_name(&self, job: JobId) -> String {
        self.jobs.get(&job).map_or_else(String::new, |row| row.job.spec.name.clone())
    }

    pub(super) fn run_record(&self, id: RunId, run: &RunRow) -> RunRecord {
        RunRecord {
            id,
            job: run.job,
            job_name: self.job_name(run.job),
            tenant: run.tenant,
            cause: run.cause,
            scheduled_at: run.scheduled_at,
            // The row keeps its first due time, which the checker reads; a retry is due when its waiting row is.
            due_at: self.waiting.get(&id).map_or(run.due_at, |row| row.due_at),
            state: run.state,
            attempt: run.attempt,
            lost: run.lost,
            fence: run.fence,
            node: run.node.clone(),
            worker: run.worker.clone(),
            started_at: run.started_at,
            finished_at: run.finished_at,
            error: run.error.clone(),
            output: run.output.clone(),
            skip_reason: run.skip_reason,
            payload: run.payload.clone(),
            flow: self.flow_of(id, run),
            range: None,
        }
    }

    fn range_record(&self, id: RunId, row: &RangeRow) -> RunRecord {
        RunRecord::of_range(id, (row.job, self.job_name(row.job)), row.tenant, row.range, row.recorded_at)
    }

    pub(super) fn list_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        after: Option<&str>,
        limit: usize,
        now: DbTime,
    ) -> Page<JobRecord, String> {
        let q = filter.q.as_ref().map(|q| q.to_lowercase());
        let wanted = |row: &&JobRow| {
            let (job, spec) = (&row.job, &row.job.spec);
            job.tenant == tenant
                && job.deleted_at.is_none()
                && after.is_none_or(|after| spec.name.as_str() > after)
                && filter.enabled.is_none_or(|enabled| spec.enabled == enabled)
                && filter.paused.is_none_or(|paused| job.paused.is_some() == paused)
                && filter.target.as_ref().is_none_or(|kind| spec.target.kind() == kind)
                && filter.labels.iter().all(|(key, value)| {
                    spec.labels.get(key).is_some_and(|has| value.as_ref().is_none_or(|value| value == has))
                })
                && q.as_ref()
                    .is_none_or(|q| spec.name.to_lowercase().contains(q) || spec.description.to_lowercase().contains(q))
        };
        let mut rows: Vec<_> = self.jobs.values().filter(wanted).collect();
        rows.sort_unstable_by(|a, b| a.job.spec.name.cmp(&b.job.spec.name));
        // Counts only payload bytes: a definition is at least as long as its payload.
        let mut bytes = 0;
        let within = |row: &&&JobRow| {
            let before = bytes;
            bytes += row.job.spec.payload.as_ref().map_or(0, String::len);
            before < PAGE_BYTES_MAX
        };
        let items: Vec<_> = rows.iter().take(limit).take_while(within).map(|row| self.job_record(row, now)).collect();
        let next =
            if rows.len() > items.len() { items.last().map(|record| record.job.spec.name.clone()) } else { None };
        Page { items, next }
    }

    pub(super) fn get_run(&self, tenant: TenantId, id: RunId) -> Result<RunRecord> {
        let run = self.runs.get(&id).filter(|run| run.tenant == tenant).map(|run| self.run_record(id, run));
        let range = || self.ranges.get(&id).filter(|row| row.tenant == tenant).map(|row| self.range_record(id, row));
        run.or_else(range).ok_or(StoreError::NotFound("run"))
    }

    pub(super) fn list_runs(
        &self,
        tenant: TenantId,
        filter: &RunFilter,
        before: Option<RunId>,
        limit: usize,
    ) -> Page<RunRecord, RunId> {
        let end = self.search_end(filter, before);
        let runs = self.runs.iter().map(|(id, run)| self.run_record(*id, run));
        let ranges = self.ranges.iter().map(|(id, row)| self.range_record(*id, row));
        let mut found: Vec<_> = runs
            .chain(ranges)
            .filter(|record| {
                record.tenant == tenant
                    && end.is_none_or(|end| record.id >= end)
                    && before.is_none_or(|before| record.id < before)
                    && filter.job.is_none_or(|job| record.job == job)
                    && filter.from.is_none_or(|from| record.id >= RunId::floor(from))
                    && filter.to.is_none_or(|to| record.id < RunId::floor(to))
                    && (filter.states.is_empty() || filter.states.contains(&record.state))
            })
            .collect();
        for record in &mut found {
            record.output = None;
            record.payload = None;
        }
        page_of_runs(found, end, limit)
    }

    /// The lowest run that a list filtered by state reads, if the limit of runs per search ends it.
    fn search_end(&self, filter: &RunFilter, before: Option<RunId>) -> Option<RunId> {
        if Search::of(filter) != Search::Scan {
            return None;
        }
        let asked = self.runs.iter().filter(|(id, run)| {
            before.is_none_or(|before| **id < before)
                && filter.job.is_none_or(|job| run.job == job)
                && filter.from.is_none_or(|from| **id >= RunId::floor(from))
                && filter.to.is_none_or(|to| **id < RunId::floor(to))
        });
        let mut ids: Vec<RunId> = asked.map(|(id, _)| *id).collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.get(self.limits.runs_searched_max.saturating_sub(1)).copied()
    }

    pub(super) fn list_attempts(&self, tenant: TenantId, id: RunId) -> Result<Vec<AttemptRecord>> {
        let run = self.runs.get(&id).filter(|run| run.tenant == tenant).ok_or(StoreError::NotFound("run"))?;
        let stored = self.attempts.range((id, 0)..=(id, u32::MAX)).map(|(_, attempt)| attempt.clone()).collect();
        Ok(AttemptRecord::all_of(self.run_record(id, run), stored))
    }

    pub(super) fn list_audit(&self, tenant: TenantId, before: Option<i64>, limit: usize) -> Page<AuditRecord, i64> {
        let wanted = |record: &&AuditRecord| before.is_none_or(|before| record.id < before);
        let ours = self.audit.iter().rev().filter(|(of, _)| *of == tenant).map(|(_, record)| record);
        Page::cut(ours.filter(wanted).take(limit.saturating_add(1)).cloned().collect(), limit, |record| record.id)
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
}
