//! Reads for recovery and the dead-schedule detector, and the repair of lost ticks.

use everytick_domain::{
    ids::JobId,
    recovery::{Ledger, Window},
    run::CauseKind,
    time::DbTime,
};

use super::db::Db;
use everytick_store::{Actor, JobTicks, Lease, Result, Walked, WalkedJob};

impl Db {
    pub(super) fn walk_jobs(&self, after: Option<JobId>, limit: usize) -> Walked {
        let live = self.jobs.iter().filter(|(id, row)| row.job.deleted_at.is_none() && Some(**id) > after);
        let jobs: Vec<_> = live
            .take(limit)
            .map(|(_, row)| WalkedJob { job: row.job.clone(), epoch: row.epoch, cursor: row.cursor })
            .collect();
        Walked { last: jobs.last().map(|walked| walked.job.id), jobs }
    }

    pub(super) fn load_ledgers(&self, asked: &[(JobId, Window)]) -> Vec<Ledger> {
        let ledger = |(job, window): &(JobId, Window)| {
            let rows = self.runs_of(*job).filter(|(_, run)| run.cause == CauseKind::Tick);
            let ticks = rows.map(|(_, run)| run.scheduled_at);
            let ranges = self.ranges.values().filter(|row| row.job == *job);
            let overlaps = |range: &Window| range.from <= window.to && range.to >= window.from;
            Ledger {
                ticks: ticks.filter(|tick| (window.from..=window.to).contains(tick)).collect(),
                ranges: ranges.map(|row| Window { from: row.range.from, to: row.range.to }).filter(overlaps).collect(),
            }
        };
        asked.iter().map(ledger).collect()
    }

    pub(super) fn repair(&mut self, lease: &Lease, ticks: &JobTicks, now: DbTime) -> Result<bool> {
        self.check_lease(lease, now)?;
        let Some(row) = self.jobs.get(&ticks.job).filter(|row| row.epoch == ticks.epoch) else { return Ok(false) };
        if !ticks.passed_by(row.cursor, now) {
            return Ok(false);
        }
        let (tenant, actor) = (row.job.tenant, Actor::node(&lease.node));
        for row in &ticks.rows {
            if !self.runs.contains_key(&row.tick.id) {
                self.insert_tick(ticks.job, &row.tick, None, None, now);
            }
        }
        self.raise_epoch(ticks.job, now);
        self.note(tenant, &actor, "repair", ticks.job.to_string(), ticks.repair_detail(), now);
        Ok(true)
    }
}
