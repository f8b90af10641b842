//! Jobs as the scheduler loads them: definition, epoch, cursor and open runs in one snapshot.

use std::{collections::HashMap, sync::Arc};

use everytick_domain::{
    ids::{Epoch, JobId},
    partition::PartitionSet,
    time::DbTime,
};
use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};

use super::{Failed, SqliteStore, calendars, node, rows, sql};
use crate::{ChangeMark, ChangedJob, Changes, Lease, LoadedJob, OpenRun, Result};

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
    node::check(&mut read, lease, store.clock.now(), DOING).await?;
    if !partitions.contains(0) {
        return Ok(Vec::new());
    }
    page(&mut read, until, after, limit, DOING).await
}

pub(super) async fn look_at_horizon(
    store: &SqliteStore,
    lease: &Lease,
    partitions: &PartitionSet,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<ChangedJob>> {
    const DOING: &str = "look at the horizon";
    let mut read = store.read(DOING).await?;
    node::check(&mut read, lease, store.clock.now(), DOING).await?;
    if !partitions.contains(0) {
        return Ok(Vec::new());
    }
    let (tick, job) = place(after);
    let found = sqlx::query(sql!("look_at_horizon"))
        .bind(until.millis())
        .bind(tick)
        .bind(job)
        .bind(rows::limit(limit))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    found.iter().map(changed).collect::<std::result::Result<_, sqlx::Error>>().failed(DOING)
}

/// Where a page begins, as the statements take it.
fn place(after: Option<(DbTime, JobId)>) -> (i64, Vec<u8>) {
    after.map_or((i64::MIN, Vec::new()), |(tick, job)| (tick.millis(), job.uuid().into_bytes().to_vec()))
}

fn changed(row: &SqliteRow) -> std::result::Result<ChangedJob, sqlx::Error> {
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
    const DOING: &str = "load what is overdue";
    let mut read = store.read(DOING).await?;
    page(&mut read, before, after, limit, DOING).await
}

async fn page(
    read: &mut SqliteConnection,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
    doing: &'static str,
) -> Result<Vec<LoadedJob>> {
    let (tick, job) = place(after);
    let found = sqlx::query(sql!("load_horizon"))
        .bind(until.millis())
        .bind(tick)
        .bind(job)
        .bind(rows::limit(limit))
        .fetch_all(&mut *read)
        .await
        .failed(doing)?;
    loaded(read, &found, doing).await
}

pub(super) async fn load_jobs(store: &SqliteStore, ids: &[JobId]) -> Result<Vec<LoadedJob>> {
    const DOING: &str = "load jobs";
    let mut read = store.read(DOING).await?;
    let asked = rows::job_ids(ids.iter().copied()).failed(DOING)?;
    let found = sqlx::query(sql!("load_jobs")).bind(asked).fetch_all(&mut *read).await.failed(DOING)?;
    loaded(&mut read, &found, DOING).await
}

pub(super) async fn changes(
    store: &SqliteStore,
    partitions: &PartitionSet,
    since: ChangeMark,
    limit: usize,
) -> Result<Changes> {
    const DOING: &str = "read what changed";
    let mut read = store.read(DOING).await?;
    if limit == 0 {
        let mark = sqlx::query_scalar(sql!("present_mark")).fetch_one(&mut *read).await.failed(DOING)?;
        return Ok(Changes { jobs: Vec::new(), mark: ChangeMark(mark), more: false });
    }
    let mut found = sqlx::query(sql!("changes"))
        .bind(since.0)
        .bind(rows::limit(limit.saturating_add(1)))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let more = found.len() > limit;
    found.truncate(limit);
    let numbered = |row: &SqliteRow| Ok((changed(row)?, row.try_get::<i64, _>("seq")?));
    let changed: Vec<_> = found.iter().map(numbered).collect::<std::result::Result<_, sqlx::Error>>().failed(DOING)?;
    let mark = changed.last().map_or(since, |(_, seq)| ChangeMark(*seq));
    let changed = if !partitions.contains(0) { Vec::new() } else { changed };
    Ok(Changes { jobs: changed.into_iter().map(|(job, _)| job).collect(), mark, more })
}

async fn loaded(read: &mut SqliteConnection, found: &[SqliteRow], doing: &'static str) -> Result<Vec<LoadedJob>> {
    let mut jobs = rows::readable_jobs(found);
    calendars::give(read, &mut jobs, doing).await?;
    let mut last_ticks = HashMap::new();
    for row in found {
        if let Some(tick) = rows::time(row, "last_tick").failed(doing)? {
            last_ticks.insert(rows::job_id(row, "id").failed(doing)?, tick);
        }
    }
    // What waits in a queue may be much, and is of no matter to a node.
    let counted = jobs.iter().filter(|row| row.job.spec.counts_open()).map(|row| row.job.id);
    let mut open = open_runs(read, counted, doing).await?;
    let loaded = jobs.into_iter().map(|row| {
        let open = open.remove(&row.job.id).unwrap_or_default();
        let last_tick = last_ticks.remove(&row.job.id);
        LoadedJob { job: Arc::new(row.job), epoch: row.epoch, cursor: row.cursor, last_tick, open }
    });
    Ok(loaded.collect())
}

/// The open runs of these jobs, by id.
pub(super) async fn open_runs(
    connection: &mut SqliteConnection,
    jobs: impl Iterator<Item = JobId>,
    doing: &'static str,
) -> Result<HashMap<JobId, Vec<OpenRun>>> {
    let asked = rows::job_ids(jobs).failed(doing)?;
    let found = sqlx::query(sql!("open_runs")).bind(asked).fetch_all(connection).await.failed(doing)?;
    let mut open: HashMap<JobId, Vec<OpenRun>> = HashMap::new();
    for row in &found {
        let (job, run) = rows::open_run(row).failed(doing)?;
        open.entry(job).or_default().push(run);
    }
    for runs in open.values_mut() {
        runs.sort_unstable_by_key(|run| run.id);
    }
    Ok(open)
}
