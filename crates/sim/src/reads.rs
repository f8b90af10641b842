//! Reads for users: jobs, runs, attempts and audit rows.

use everytick_domain::{
    ids::{BackfillId, IdPrefix, JobId, RunId, TenantId},
    run::State,
    time::DbTime,
};

use super::db::{Db, JobRow, RangeRow, RunRow};
use everytick_store::{
    Actor, AttemptRecord, AuditFilter, AuditRecord, AuditResult, JobFilter, JobRecord, JobRef, PAGE_BYTES_MAX, Page,
    Result, RunFilter, RunRecord, StoreError,
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
        JobRecord { job: row.job.clone(), cursor: row.cursor, last_run, now, backlog: None, followers: Vec::new() }
    }

    fn cancelled_by(&self, id: RunId, run: &RunRow) -> Option<String> {
        let (subject, mut trail) = (id.to_string(), self.audit.iter().rev().map(|(_, row)| row));
        let row = || trail.find(|row| row.action == "cancel" && row.subject == subject);
        (run.state == State::Cancelled).then(row).flatten().map(|row| row.actor.clone())
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
            cancelled_by: self.cancelled_by(id, run),
            range: None,
        }
    }

    fn range_record(&self, id: RunId, row: &RangeRow) -> RunRecord {
        RunRecord::of_range(id, (row.job, self.job_name(row.job)), row.tenant, row.range, row.recorded_at)
    }

    pub(super) fn get_job(&self, tenant: TenantId, job: &JobRef, now: DbTime) -> Result<JobRecord> {
        let row = self.find(tenant, job)?;
        let follows = |row: &&JobRow, name: &str| row.job.spec.depends_on.iter().any(|parent| parent.job == name);
        let live = self.jobs.values().filter(|other| other.job.tenant == tenant && other.job.deleted_at.is_none());
        let followers =
            live.filter(|other| follows(other, &row.job.spec.name)).map(|other| other.job.spec.name.clone());
        let followers: std::collections::BTreeSet<String> = followers.collect();
        Ok(JobRecord { followers: followers.into_iter().collect(), ..self.job_record(row, now) })
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
        let (low, high) = filter.bounds(before);
        let mut found: Vec<_> = runs
            .chain(ranges)
            .filter(|record| {
                record.tenant == tenant
                    && end.is_none_or(|end| record.id >= end)
                    && record.id >= low
                    && high.is_none_or(|high| record.id < high)
                    && self.matches(filter, record)
            })
            .collect();
        for record in &mut found {
            record.output = None;
            record.payload = None;
        }
        page_of_runs(found, end, limit)
    }

    /// Whether the record matches the filter, apart from its bounds.
    fn matches(&self, filter: &RunFilter, record: &RunRecord) -> bool {
        let labels = self.jobs.get(&record.job).map(|row| &row.job.spec.labels);
        let has = |(key, value): &(String, Option<String>)| {
            let own = labels.and_then(|labels| labels.get(key));
            own.is_some_and(|own| value.as_ref().is_none_or(|value| value == own))
        };
        filter.job.is_none_or(|job| record.job == job)
            && (filter.states.is_empty() || filter.states.contains(&record.state))
            && (filter.causes.is_empty() || filter.causes.contains(&record.cause))
            && filter.flow.is_none_or(|flow| record.flow == Some(flow) || record.id == flow)
            && filter.labels.iter().all(has)
    }

    /// The lowest run that a list reads, if the limit of runs per search ends it.
    fn search_end(&self, filter: &RunFilter, before: Option<RunId>) -> Option<RunId> {
        let search = Search::of(filter);
        let failed = search == Search::FailuresScan;
        if !failed && search != Search::Scan {
            return None;
        }
        let (low, high) = filter.bounds(before);
        let asked = self.runs.iter().filter(|(id, run)| {
            **id >= low
                && high.is_none_or(|high| **id < high)
                && filter.job.is_none_or(|job| run.job == job)
                && (!failed || run.state == State::Failed)
        });
        let mut ids: Vec<RunId> = asked.map(|(id, _)| *id).collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.get(self.limits.runs_searched_max.saturating_sub(1)).copied()
    }

    pub(super) fn find_backfills(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Vec<(BackfillId, String)> {
        let own = self.backfills.iter().filter(|(id, row)| row.tenant == tenant && ids.contains(id.uuid()));
        own.map(|(id, row)| (*id, self.job_name(row.job))).take(limit).collect()
    }

    pub(super) fn find_jobs(&self, tenant: TenantId, ids: IdPrefix, limit: usize) -> Vec<(JobId, String)> {
        let live = self.jobs.iter().filter(|(_, row)| row.job.tenant == tenant && row.job.deleted_at.is_none());
        let mut found: Vec<_> =
            live.filter(|(id, _)| ids.contains(id.uuid())).map(|(id, row)| (*id, row.job.spec.name.clone())).collect();
        found.sort_unstable();
        found.truncate(limit);
        found
    }

    pub(super) fn list_attempts(&self, tenant: TenantId, id: RunId) -> Result<Vec<AttemptRecord>> {
        let run = self.runs.get(&id).filter(|run| run.tenant == tenant).ok_or(StoreError::NotFound("run"))?;
        let stored = self.attempts.range((id, 0)..=(id, u32::MAX)).map(|(_, attempt)| attempt.clone()).collect();
        Ok(AttemptRecord::all_of(self.run_record(id, run), stored))
    }

    pub(super) fn list_audit(
        &self,
        tenant: TenantId,
        filter: &AuditFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Page<AuditRecord, i64> {
        let end = self.audit_search_end(tenant, filter, before);
        let wanted = |row: &&AuditRecord| {
            before.is_none_or(|before| row.id < before)
                && end.is_none_or(|end| row.id >= end)
                && filter.actor.as_ref().is_none_or(|actor| row.actor == *actor)
                && filter.action.as_ref().is_none_or(|action| row.action == *action)
                && filter.result.as_ref().is_none_or(|result| row.result == *result)
                && (filter.subjects.is_empty() || filter.subjects.contains(&row.subject))
                && filter.from.is_none_or(|from| row.at >= from)
                && filter.to.is_none_or(|to| row.at < to)
        };
        let own = self.audit.iter().rev().filter(|(of, _)| *of == tenant).map(|(_, row)| row);
        let mut found: Vec<_> = own.filter(wanted).cloned().collect();
        let more = found.len() > limit;
        found.truncate(limit);
        Page { next: if more { found.last().map(|record| record.id) } else { end }, items: found }
    }

    /// The lowest row that a search by actor or action reads, if the limit of rows per search ends it.
    fn audit_search_end(&self, tenant: TenantId, filter: &AuditFilter, before: Option<i64>) -> Option<i64> {
        if filter.actor.is_none() && filter.action.is_none() && filter.result.is_none() {
            return None;
        }
        let most = self.limits.runs_searched_max.saturating_sub(1);
        let own = self.audit.iter().rev().filter(|(of, _)| *of == tenant).map(|(_, row)| row);
        let own = own.filter(|row| before.is_none_or(|before| row.id < before)).collect::<Vec<_>>();
        let of = |subject: Option<&String>| {
            own.iter().filter(|row| subject.is_none_or(|subject| row.subject == *subject)).nth(most).map(|row| row.id)
        };
        if filter.subjects.is_empty() { of(None) } else { filter.subjects.iter().filter_map(|one| of(Some(one))).max() }
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
        self.note_result(tenant, actor, action, (subject, detail), AuditResult::Ok, at);
    }

    pub(super) fn note_result(
        &mut self,
        tenant: TenantId,
        actor: &Actor,
        action: &str,
        (subject, detail): (String, String),
        result: AuditResult,
        at: DbTime,
    ) {
        self.audit_given += 1;
        let id = self.audit_given;
        let record = AuditRecord {
            id,
            at,
            actor: actor.name.clone(),
            actor_kind: actor.kind.word().to_owned(),
            token: actor.token,
            ip: actor.ip.map(|ip| ip.to_canonical().to_string()),
            request: actor.request.clone(),
            action: action.to_owned(),
            subject,
            result: result.word().to_owned(),
            detail,
        };
        self.audit.push((tenant, record));
    }
}
