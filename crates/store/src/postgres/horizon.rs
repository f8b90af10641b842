//! Jobs as the scheduler loads them: definition, epoch, cursor and open runs in one snapshot.

use std::{collections::HashMap, sync::Arc};

use everytick_domain::{
    ids::{Epoch, JobId, RunId},
    partition::{PARTITIONS, PartitionSet},
    time::{DbTime, Span},
};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use super::{Failed, PostgresStore, calendars, days, node, rows, rows::JobRow, sql};
use crate::{ChangedJob, Lease, LoadedJob, OpenRun, Result};

pub(super) async fn load_horizon(
    store: &PostgresStore,
    lease: &Lease,
    partitions: &PartitionSet,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<LoadedJob>> {
    const DOING: &str = "load the horizon";
    let mut read = store.read_many(DOING).await?;
    let now = node::check(&mut read, lease, DOING).await?;
    let places = places(&mut read, partitions, until, after, limit, DOING).await?;
    let found = placed_rows(&mut read, &places, DOING).await?;
    loaded(store, &mut read, found, now, DOING).await
}

pub(super) async fn look_at_horizon(
    store: &PostgresStore,
    lease: &Lease,
    partitions: &PartitionSet,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<ChangedJob>> {
    const DOING: &str = "look at the horizon";
    let mut read = store.read_many(DOING).await?;
    node::check(&mut read, lease, DOING).await?;
    let places = places(&mut read, partitions, until, after, limit, DOING).await?;
    let jobs: Vec<JobId> = places.iter().map(|(_, job)| *job).collect();
    let epochs: HashMap<JobId, Epoch> = epochs_of(&mut read, &jobs, DOING).await?.into_iter().collect();
    let seen = |(cursor, job): (i64, JobId)| {
        let epoch = *epochs.get(&job)?;
        Some(ChangedJob { id: job, epoch, cursor: Some(DbTime::from_millis(cursor)) })
    };
    Ok(places.into_iter().filter_map(seen).collect())
}

/// The epochs of these jobs, as this snapshot has them.
pub(super) async fn epochs_of(
    connection: &mut PgConnection,
    jobs: &[JobId],
    doing: &'static str,
) -> Result<Vec<(JobId, Epoch)>> {
    let asked = rows::job_ids(jobs.iter().copied());
    let (jobs, epochs): (Vec<Uuid>, Vec<i64>) =
        sqlx::query_as(sql!("epochs_of")).bind(asked).fetch_one(connection).await.failed(doing)?;
    Ok(jobs.into_iter().map(JobId::from_uuid).zip(epochs.into_iter().map(Epoch::from_raw)).collect())
}

pub(super) async fn load_overdue(
    store: &PostgresStore,
    before: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<LoadedJob>> {
    const DOING: &str = "load what is overdue";
    let mut read = store.read_many(DOING).await?;
    let now = sqlx::query_scalar(sql!("now")).fetch_one(&mut *read).await.failed(DOING)?;
    let places = places(&mut read, &PartitionSet::all(PARTITIONS), before, after, limit, DOING).await?;
    let found = placed_rows(&mut read, &places, DOING).await?;
    loaded(store, &mut read, found, DbTime::from_millis(now), DOING).await
}

/// The first places in the order of cursors. Each partition has an order of its own, so a little more than its share is read
/// of each; beyond the first partition that had more than that, nothing is known yet, and the next round begins there.
async fn places(
    read: &mut PgConnection,
    partitions: &PartitionSet,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
    doing: &'static str,
) -> Result<Vec<(i64, JobId)>> {
    let asked = rows::partitions(partitions);
    let mut after = after.map_or((i64::MIN, JobId::from_uuid(Uuid::nil())), |(at, job)| (at.millis(), job));
    let mut places: Vec<(i64, JobId)> = Vec::new();
    while !asked.is_empty() && places.len() < limit {
        let share = ((limit - places.len()) * 2 / asked.len() + 8).min(limit);
        let (at, ticks, jobs): (Vec<i16>, Vec<i64>, Vec<Uuid>) = sqlx::query_as(sql!("horizon_places"))
            .bind(&asked)
            .bind(until.millis())
            .bind(after.0)
            .bind(after.1.uuid())
            .bind(rows::limit(share))
            .fetch_one(&mut *read)
            .await
            .failed(doing)?;
        let mut counted: HashMap<i16, (usize, (i64, JobId))> = HashMap::new();
        let mut round = Vec::with_capacity(jobs.len());
        let found = at.into_iter().zip(ticks.into_iter().zip(jobs.into_iter().map(JobId::from_uuid)));
        for (partition, place) in found {
            let count = counted.entry(partition).or_insert((0, place));
            *count = (count.0 + 1, count.1.max(place));
            round.push(place);
        }
        round.sort_unstable();
        let known = counted.values().filter(|(count, _)| *count >= share).map(|(_, last)| *last).min();
        match known {
            None => {
                places.extend(round);
                break;
            }
            Some(known) => {
                places.extend(round.into_iter().filter(|place| *place <= known));
                after = known;
            }
        }
    }
    places.truncate(limit);
    Ok(places)
}

pub(super) async fn load_jobs(store: &PostgresStore, ids: &[JobId]) -> Result<Vec<LoadedJob>> {
    const DOING: &str = "load jobs";
    let mut read = store.read_many(DOING).await?;
    let found = job_rows(&mut read, ids, DOING).await?;
    let now = sqlx::query_scalar(sql!("now")).fetch_one(&mut *read).await.failed(DOING)?;
    loaded(store, &mut read, found, DbTime::from_millis(now), DOING).await
}

/// The rows of these jobs, in this order.
pub(super) async fn job_rows(connection: &mut PgConnection, ids: &[JobId], doing: &'static str) -> Result<Vec<JobRow>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let asked = rows::job_ids(ids.iter().copied());
    let found = sqlx::query(sql!("load_jobs")).bind(asked).fetch_all(&mut *connection).await.failed(doing)?;
    let mut jobs = rows::readable_jobs(&found);
    calendars::give(connection, &mut jobs, doing).await?;
    Ok(jobs)
}

/// The rows of the jobs at these places, in their order.
async fn placed_rows(read: &mut PgConnection, places: &[(i64, JobId)], doing: &'static str) -> Result<Vec<JobRow>> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let (cursors, jobs): (Vec<i64>, Vec<Uuid>) = places.iter().map(|(at, job)| (*at, job.uuid())).unzip();
    let found = sqlx::query(sql!("placed_jobs")).bind(jobs).bind(cursors).fetch_all(&mut *read).await.failed(doing)?;
    let mut found = rows::readable_jobs(&found);
    calendars::give(read, &mut found, doing).await?;
    found.sort_unstable_by_key(|row| (row.cursor, row.job.id));
    Ok(found)
}

async fn loaded(
    store: &PostgresStore,
    read: &mut PgConnection,
    jobs: Vec<JobRow>,
    now: DbTime,
    doing: &'static str,
) -> Result<Vec<LoadedJob>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let lowest = lowest_open_from(read, now, doing).await?;
    let Recent { mut last_ticks, claimed } = recent(read, &jobs, lowest, doing).await?;
    // What waits in a queue may be much, and is of no matter to a node.
    let ids: Vec<JobId> = jobs.iter().filter(|row| row.job.spec.counts_open()).map(|row| row.job.id).collect();
    let mut open = open_of(read, &ids, &claimed, lowest, now, doing).await?;
    let loaded = jobs.into_iter().map(|row| {
        let open = open.remove(&row.job.id).unwrap_or_default();
        let last_tick = last_ticks.remove(&row.job.id);
        let job = Arc::new(row.job);
        store.definitions.note(&job, row.epoch);
        LoadedJob { job, epoch: row.epoch, cursor: row.cursor, last_tick, open }
    });
    Ok(loaded.collect())
}

/// What the youngest runs of jobs tell.
#[derive(Default)]
struct Recent {
    last_ticks: HashMap<JobId, DbTime>,
    /// Those with a claimed run: few, so only theirs are fetched.
    claimed: Vec<JobId>,
}

/// One look at each job's history: the ticks from its cursor on, and the runs that somebody may still be working on.
async fn recent(read: &mut PgConnection, jobs: &[JobRow], lowest: RunId, doing: &'static str) -> Result<Recent> {
    // What this snapshot has no younger run than. The days ahead are empty, and each would be looked into for each job.
    let youngest: Option<Uuid> =
        sqlx::query_scalar(sql!("youngest_run")).fetch_optional(&mut *read).await.failed(doing)?;
    let Some(youngest) = youngest else { return Ok(Recent::default()) };
    // Where there are no more ticks, nothing lies from there on.
    let low: Vec<RunId> =
        jobs.iter().map(|row| row.cursor.map_or_else(|| RunId::floor(DbTime::MAX), RunId::floor)).collect();
    let from = low.iter().copied().min().map_or(lowest, |low| low.min(lowest));
    let found = sqlx::query(sql!("recent_runs"))
        .bind(rows::job_ids(jobs.iter().map(|row| row.job.id)))
        .bind(rows::run_ids(low))
        .bind(lowest.uuid())
        .bind(from.uuid())
        .bind(youngest)
        .fetch_all(read)
        .await
        .failed(doing)?;
    let mut recent = Recent { last_ticks: HashMap::with_capacity(found.len()), claimed: Vec::new() };
    for row in &found {
        let job = rows::job_id(row, "job").failed(doing)?;
        if let Some(at) = rows::time(row, "last_tick").failed(doing)? {
            recent.last_ticks.insert(job, at);
        }
        if row.try_get("claimed").failed(doing)? {
            recent.claimed.push(job);
        }
    }
    Ok(recent)
}

/// The open runs of these jobs, by id.
pub(super) async fn open_runs(
    connection: &mut PgConnection,
    jobs: &[JobId],
    now: DbTime,
    doing: &'static str,
) -> Result<HashMap<JobId, Vec<OpenRun>>> {
    let lowest = lowest_open_from(connection, now, doing).await?;
    open_of(connection, jobs, jobs, lowest, now, doing).await
}

/// The waiting runs of `jobs` and the claimed ones of `claimed`, by id.
async fn open_of(
    connection: &mut PgConnection,
    jobs: &[JobId],
    claimed: &[JobId],
    lowest: RunId,
    now: DbTime,
    doing: &'static str,
) -> Result<HashMap<JobId, Vec<OpenRun>>> {
    let waiting = sqlx::query(sql!("open_waiting")).bind(rows::job_ids(jobs.iter().copied()));
    let mut found = waiting.fetch_all(&mut *connection).await.failed(doing)?;
    if !claimed.is_empty() {
        found.extend(
            sqlx::query(sql!("open_claimed"))
                .bind(rows::job_ids(claimed.iter().copied()))
                .bind(lowest.uuid())
                .bind(days::ahead(now).uuid())
                .fetch_all(&mut *connection)
                .await
                .failed(doing)?,
        );
    }
    let workers = sqlx::query(sql!("open_workers")).bind(rows::job_ids(jobs.iter().copied()));
    found.extend(workers.fetch_all(&mut *connection).await.failed(doing)?);
    let mut open: HashMap<JobId, Vec<OpenRun>> = HashMap::new();
    for row in &found {
        let (job, run) = rows::open_run(row).failed(doing)?;
        open.entry(job).or_default().push(run);
    }
    for runs in open.values_mut() {
        runs.sort_unstable_by_key(|run| run.id);
        // A claim that committed between the two looks is in both.
        runs.dedup_by_key(|run| run.id);
    }
    Ok(open)
}

/// The lowest id that any lease may have claimed; where there is no lease, nothing is claimed.
pub(super) async fn lowest_open_from(connection: &mut PgConnection, now: DbTime, doing: &'static str) -> Result<RunId> {
    let lowest: Option<Uuid> =
        sqlx::query_scalar(sql!("lowest_open_from")).fetch_optional(connection).await.failed(doing)?;
    Ok(lowest.map_or_else(|| RunId::floor(now.plus(Span::days(1))), RunId::from_uuid))
}
