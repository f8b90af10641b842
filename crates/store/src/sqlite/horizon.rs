//! Loads jobs for the scheduler: definition, epoch, cursor and open runs in one snapshot.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use everytick_domain::{
    ids::{Epoch, JobId},
    job::Job,
    partition::PartitionSet,
    time::DbTime,
};
use sqlx::{Row as _, sqlite::SqliteRow};

use super::{DbTx, Failed, SqliteStore, calendars, lease, open_runs, rows};
use crate::{Backlog, ChangedJob, Lease, LoadedJob, OpenRun, Result};

pub(super) async fn load_horizon(
    store: &SqliteStore,
    lease: &Lease,
    partitions: &PartitionSet,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<LoadedJob>> {
    const DOING: &str = "load the horizon";
    let mut read = store.read(DOING).await?;
    lease::check(&mut read, lease).await?;
    if !partitions.contains(0) {
        return Ok(Vec::new());
    }
    page(store, &mut read, until, after, limit).await
}

pub(super) async fn look_at_horizon(
    store: &SqliteStore,
    lease: &Lease,
    partitions: &PartitionSet,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<ChangedJob>> {
    const DOING: &str = "read the horizon";
    let mut read = store.read(DOING).await?;
    lease::check(&mut read, lease).await?;
    if !partitions.contains(0) {
        return Ok(Vec::new());
    }
    let (tick, job) = place(after);
    let found =
        read.fetch_all(query!("horizon/look_at_horizon", until.millis(), tick, job, rows::limit(limit))).await?;
    found.iter().map(changed).collect::<std::result::Result<_, sqlx::Error>>().failed(DOING)
}

/// The start position of a page, as the statements take it.
fn place(after: Option<(DbTime, JobId)>) -> (i64, Vec<u8>) {
    after.map_or((i64::MIN, Vec::new()), |(tick, job)| (tick.millis(), job.uuid().into_bytes().to_vec()))
}

pub(super) fn changed(row: &SqliteRow) -> std::result::Result<ChangedJob, sqlx::Error> {
    Ok(ChangedJob {
        id: rows::job_id(row, "job")?,
        epoch: Epoch::from_raw(row.try_get("epoch")?),
        cursor: rows::time(row, "next_tick")?,
    })
}

pub(super) async fn load_overdue(
    store: &SqliteStore,
    before: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<LoadedJob>> {
    const DOING: &str = "load overdue jobs";
    let mut read = store.read(DOING).await?;
    page(store, &mut read, before, after, limit).await
}

async fn page(
    store: &SqliteStore,
    tx: &mut DbTx,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<LoadedJob>> {
    let (tick, job) = place(after);
    let found = tx.fetch_all(query!("horizon/load_horizon", until.millis(), tick, job, rows::limit(limit))).await?;
    loaded(store, tx, &found).await
}

pub(super) async fn load_jobs(store: &SqliteStore, ids: &[JobId]) -> Result<Vec<LoadedJob>> {
    const DOING: &str = "load jobs";
    let mut read = store.read(DOING).await?;
    let asked = rows::job_ids(ids.iter().copied());
    let found = read.fetch_all(query!("jobs/load_jobs", asked)).await?;
    loaded(store, &mut read, &found).await
}

async fn loaded(store: &SqliteStore, tx: &mut DbTx, found: &[SqliteRow]) -> Result<Vec<LoadedJob>> {
    let mut jobs = tx.unreadable.each("jobs", found, rows::job);
    calendars::attach_all(tx, &mut jobs).await?;
    let mut last_ticks = HashMap::new();
    for row in found {
        if let Some(tick) = rows::time(row, "last_tick").failed(tx.doing)? {
            last_ticks.insert(rows::job_id(row, "id").failed(tx.doing)?, tick);
        }
    }
    open_runs::loaded(store, tx, jobs, last_ticks, &Claimed).await
}

/// This store has no cache of definitions.
pub(super) const fn note(_: &SqliteStore, _: &Arc<Job>, _: Epoch) {}

/// The number of waiting runs of these jobs, counted up to `max`.
pub(super) async fn count_waiting(tx: &mut DbTx, jobs: &[JobId], max: usize) -> Result<HashMap<JobId, usize>> {
    let mut counts = HashMap::with_capacity(jobs.len());
    for job in jobs {
        let waiting: i64 = tx.scalar(query!("waiting/count_waiting", job.uuid(), rows::limit(max))).await?;
        counts.insert(*job, usize::try_from(waiting).unwrap_or(usize::MAX));
    }
    Ok(counts)
}

/// The statement reads the lowest `open_from` itself, so the caller passes no bound.
pub(super) struct Claimed;

pub(super) async fn any_claimed(_: &mut DbTx, _: &[(JobId, usize)]) -> Result<Claimed> {
    Ok(Claimed)
}

/// The claimed runs of the jobs whose open runs are counted.
pub(super) async fn claimed_of(tx: &mut DbTx, needed: &[(JobId, usize)], _: &Claimed) -> Result<Vec<SqliteRow>> {
    let counted = needed.iter().filter(|(_, needed)| *needed > 0).map(|(job, _)| *job);
    tx.fetch_all(query!("horizon/open_runs", rows::job_ids(counted))).await
}

/// The waiting runs of jobs, up to the given number for each.
pub(super) async fn waiting_of(tx: &mut DbTx, needed: &[(JobId, usize)]) -> Result<HashMap<JobId, Backlog>> {
    let mut by_need: BTreeMap<usize, Vec<JobId>> = BTreeMap::new();
    for (job, needed) in needed {
        by_need.entry(*needed).or_default().push(*job);
    }
    let mut waiting = HashMap::new();
    for (needed, jobs) in &by_need {
        waiting.extend(waiting_up_to(tx, jobs, *needed).await?);
    }
    Ok(waiting)
}

/// The waiting runs of these jobs, up to `needed` for each. Most jobs have fewer: one statement reads those of all.
async fn waiting_up_to(tx: &mut DbTx, jobs: &[JobId], needed: usize) -> Result<HashMap<JobId, Backlog>> {
    let mut found = waiting_rows(tx, sql!("horizon/open_waiting"), jobs, needed).await?;
    let long: Vec<JobId> =
        found.iter().filter(|(_, runs)| needed > 0 && runs.len() > needed).map(|(job, _)| *job).collect();
    if !long.is_empty() {
        let mut tried = waiting_rows(tx, sql!("horizon/open_tried"), &long, needed).await?;
        for (job, mut runs) in waiting_rows(tx, sql!("horizon/open_new"), &long, needed).await? {
            runs.extend(tried.remove(&job).unwrap_or_default());
            found.insert(job, runs);
        }
        found.extend(tried);
    }
    Ok(found.into_iter().map(|(job, runs)| (job, Backlog::of(runs, needed))).collect())
}

/// Reads one run more than needed of each job, so that the caller knows whether more exist.
async fn waiting_rows(
    tx: &mut DbTx,
    statement: &'static str,
    jobs: &[JobId],
    needed: usize,
) -> Result<HashMap<JobId, Vec<OpenRun>>> {
    let asked = rows::job_ids(jobs.iter().copied());
    let most = rows::limit(needed.saturating_add(1));
    let found = tx.fetch_all(sqlx::query(statement).bind(asked).bind(most)).await?;
    open_runs::by_job(tx, &found)
}
