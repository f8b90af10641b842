//! Removes old rows.

use everytick_domain::{
    ids::{JobId, RunId},
    time::DbTime,
};

use super::db::{Db, RangeRow, RunRow};
use everytick_store::{IDEMPOTENCY_KEPT, Pruned};

impl Db {
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
        self.asked.retain(|_, asked| asked.at >= before);
        let requests = self.requests.len();
        self.requests.retain(|_, row| row.at >= now.minus(IDEMPOTENCY_KEPT));
        let requests = (requests - self.requests.len()) as u64;
        Pruned { runs: gone.len() as u64, jobs: dead.len() as u64, requests }
    }
}
