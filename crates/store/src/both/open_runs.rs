//! The open runs of jobs, for the scheduler and for requests. `horizon.rs` of each database has the statements.

use std::{collections::HashMap, sync::Arc};

use everytick_domain::{ids::JobId, job::Job, overlap::waiting_needed, time::DbTime};

use super::{
    DbRow, DbStore, DbTx, Failed,
    horizon::{self, Claimed},
    rows,
};
use crate::tx::JobRow;
use crate::{Backlog, LoadedJob, OpenRun, Result, Unread};

/// The open runs of a job: the claimed ones, and as many waiting ones as requested.
#[derive(Default)]
pub(super) struct OpenOf {
    runs: Vec<OpenRun>,
    pub unread: Unread,
    /// How many of them wait.
    waiting: usize,
}

/// The open runs of these jobs, by id. Of the waiting ones, only as many as the overlap policy needs for its decision.
pub(super) async fn open_runs<'j>(
    tx: &mut DbTx,
    jobs: impl IntoIterator<Item = &'j Job>,
) -> Result<HashMap<JobId, Vec<OpenRun>>> {
    let needed: Vec<(JobId, usize)> = jobs.into_iter().map(|job| (job.id, waiting_needed(&job.spec))).collect();
    let claimed = horizon::any_claimed(tx, &needed).await?;
    let open = open_of(tx, &needed, &claimed).await?;
    Ok(open.into_iter().map(|(job, open)| (job, open.runs)).collect())
}

/// The waiting runs of jobs, up to the given number for each, and the claimed runs, by id.
async fn open_of(tx: &mut DbTx, needed: &[(JobId, usize)], claimed: &Claimed) -> Result<HashMap<JobId, OpenOf>> {
    // Reads the waiting runs first: a run that is claimed between the statements is found twice, not missed.
    let waiting = horizon::waiting_of(tx, needed).await?;
    let found = horizon::claimed_of(tx, needed, claimed).await?;
    let mut open: HashMap<JobId, OpenOf> = HashMap::new();
    for (job, Backlog { runs, unread }) in waiting {
        open.insert(job, OpenOf { waiting: runs.len(), runs, unread });
    }
    for (job, run) in tx.decode_all(&found, rows::open_run)? {
        open.entry(job).or_default().runs.push(run);
    }
    for OpenOf { runs, .. } in open.values_mut() {
        runs.sort_by_key(|run| run.id);
        // A claim that committed between the two statements is in both.
        runs.dedup_by_key(|run| run.id);
    }
    Ok(open)
}

/// The open runs of these rows, by job.
pub(super) fn by_job(tx: &DbTx, found: &[DbRow]) -> Result<HashMap<JobId, Vec<OpenRun>>> {
    let mut open: HashMap<JobId, Vec<OpenRun>> = HashMap::new();
    for row in found {
        let (job, run) = rows::open_run(row).failed(tx.doing)?;
        open.entry(job).or_default().push(run);
    }
    Ok(open)
}

/// These jobs as the scheduler loads them.
pub(super) async fn loaded(
    store: &DbStore,
    tx: &mut DbTx,
    jobs: Vec<JobRow>,
    mut last_ticks: HashMap<JobId, DbTime>,
    claimed: &Claimed,
) -> Result<Vec<LoadedJob>> {
    // None for a queue job whose runs any number of workers may claim.
    let needed = |job: &Job| (job.id, if job.spec.counts_open() { waiting_needed(&job.spec) } else { 0 });
    let needed: Vec<(JobId, usize)> = jobs.iter().map(|row| needed(&row.job)).collect();
    let mut open = open_of(tx, &needed, claimed).await?;
    let max = store.limits.waiting_per_job_max;
    let unread: Vec<JobId> = open.iter().filter(|(_, open)| open.unread.waiting).map(|(job, _)| *job).collect();
    let counts = horizon::count_waiting(tx, &unread, max).await?;
    let loaded = jobs.into_iter().map(|row| {
        let OpenOf { runs: open, unread, waiting } = open.remove(&row.job.id).unwrap_or_default();
        let remaining = max.saturating_sub(counts.get(&row.job.id).copied().unwrap_or(waiting));
        let last_tick = last_ticks.remove(&row.job.id);
        let job = Arc::new(row.job);
        horizon::note(store, &job, row.epoch);
        LoadedJob { job, epoch: row.epoch, cursor: row.cursor, last_tick, open, unread, remaining }
    });
    Ok(loaded.collect())
}
