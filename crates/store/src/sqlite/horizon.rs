//! Loads jobs for the scheduler: definition, epoch, cursor and open runs in one snapshot.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use everytick_domain::{
    ids::{Epoch, JobId},
    job::Job,
    overlap::waiting_needed,
    partition::PartitionSet,
    time::DbTime,
};
use sqlx::{Row as _, sqlite::SqliteRow};

use super::{DbTx, Failed, SqliteStore, calendars, lease, rows};
use crate::{Backlog, ChangedJob, Lease, LoadedJob, OpenRun, Result, Unread};

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
    let mut jobs = store.unreadable.each("jobs", found, rows::job);
    calendars::attach_all(tx, &mut jobs).await?;
    let mut last_ticks = HashMap::new();
    for row in found {
        if let Some(tick) = rows::time(row, "last_tick").failed(tx.doing)? {
            last_ticks.insert(rows::job_id(row, "id").failed(tx.doing)?, tick);
        }
    }
    let needed: Vec<(JobId, usize)> = jobs.iter().map(|row| needed(&row.job)).collect();
    let mut open = open_of(tx, &needed).await?;
    let max = store.limits.waiting_per_job_max;
    let mut loaded = Vec::with_capacity(jobs.len());
    for row in jobs {
        let OpenOf { runs: open, unread, mut waiting } = open.remove(&row.job.id).unwrap_or_default();
        if unread.waiting {
            waiting = count_waiting(tx, row.job.id, max).await?;
        }
        let last_tick = last_ticks.remove(&row.job.id);
        let remaining = max.saturating_sub(waiting);
        loaded.push(LoadedJob {
            job: Arc::new(row.job),
            epoch: row.epoch,
            cursor: row.cursor,
            last_tick,
            open,
            unread,
            remaining,
        });
    }
    Ok(loaded)
}

/// How many waiting runs of a job are read. None for a queue job whose runs any number of workers may claim.
fn needed(job: &Job) -> (JobId, usize) {
    (job.id, if job.spec.counts_open() { waiting_needed(&job.spec) } else { 0 })
}

/// The number of waiting runs of a job, counted up to `max`.
pub(super) async fn count_waiting(tx: &mut DbTx, job: JobId, max: usize) -> Result<usize> {
    let waiting: i64 = tx.scalar(query!("waiting/count_waiting", job.uuid(), rows::limit(max))).await?;
    Ok(usize::try_from(waiting).unwrap_or(usize::MAX))
}

/// The open runs of a job: the claimed ones, and as many waiting ones as requested.
#[derive(Default)]
struct OpenOf {
    runs: Vec<OpenRun>,
    unread: Unread,
    /// How many of them wait.
    waiting: usize,
}

/// The open runs of these jobs, by id. Of the waiting ones, only as many as the overlap policy needs for its decision.
pub(super) async fn open_runs<'j>(
    tx: &mut DbTx,
    jobs: impl IntoIterator<Item = &'j Job>,
) -> Result<HashMap<JobId, Vec<OpenRun>>> {
    let needed: Vec<(JobId, usize)> = jobs.into_iter().map(|job| (job.id, waiting_needed(&job.spec))).collect();
    let open = open_of(tx, &needed).await?;
    Ok(open.into_iter().map(|(job, open)| (job, open.runs)).collect())
}

/// The waiting runs of jobs, up to the given number for each, and the claimed runs, by id.
async fn open_of(tx: &mut DbTx, needed: &[(JobId, usize)]) -> Result<HashMap<JobId, OpenOf>> {
    let mut open: HashMap<JobId, OpenOf> = HashMap::new();
    let mut by_need: BTreeMap<usize, Vec<JobId>> = BTreeMap::new();
    for (job, needed) in needed {
        by_need.entry(*needed).or_default().push(*job);
    }
    for (needed, jobs) in &by_need {
        for (job, Backlog { runs, unread }) in waiting_of(tx, jobs, *needed).await? {
            open.insert(job, OpenOf { waiting: runs.len(), runs, unread });
        }
    }
    let counted = needed.iter().filter(|(_, needed)| *needed > 0).map(|(job, _)| *job);
    let asked = rows::job_ids(counted);
    let found = tx.fetch_all(query!("horizon/open_runs", asked)).await?;
    for row in &found {
        let (job, run) = rows::open_run(row).failed(tx.doing)?;
        open.entry(job).or_default().runs.push(run);
    }
    for OpenOf { runs, .. } in open.values_mut() {
        runs.sort_unstable_by_key(|run| run.id);
    }
    Ok(open)
}

/// The waiting runs of these jobs, up to `needed` for each. Most jobs have fewer: one statement reads those of all.
async fn waiting_of(tx: &mut DbTx, jobs: &[JobId], needed: usize) -> Result<HashMap<JobId, Backlog>> {
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
    let found = sqlx::query(statement).bind(asked).bind(most).fetch_all(&mut *tx.tx).await.failed(tx.doing)?;
    let mut open: HashMap<JobId, Vec<OpenRun>> = HashMap::new();
    for row in &found {
        let (job, run) = rows::open_run(row).failed(tx.doing)?;
        open.entry(job).or_default().push(run);
    }
    Ok(open)
}
