//! Jobs as the scheduler loads them: definition, epoch, cursor and open runs in one snapshot.

use std::collections::HashMap;

use everytick_domain::{
    ids::{Epoch, JobId, RunId},
    partition::{PARTITIONS, PartitionSet},
    time::{DbTime, Span},
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{Failed, PostgresStore, days, node, rows, rows::JobRow, sql};
use crate::{ChangeMark, ChangedJob, Changes, Lease, LoadedJob, OpenRun, Result};

pub(super) async fn load_horizon(
    store: &PostgresStore,
    lease: &Lease,
    partitions: &PartitionSet,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<LoadedJob>> {
    const DOING: &str = "load the horizon";
    let mut read = store.read(DOING).await?;
    let now = node::check(&mut read, lease, DOING).await?;
    let places = places(&mut read, partitions, until, after, limit, DOING).await?;
    let jobs: Vec<JobId> = places.into_iter().map(|(_, job)| job).collect();
    let found = job_rows(&mut read, &jobs, DOING).await?;
    loaded(&mut read, found, now, DOING).await
}

pub(super) async fn load_overdue(
    store: &PostgresStore,
    before: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<LoadedJob>> {
    const DOING: &str = "load what is overdue";
    let mut read = store.read(DOING).await?;
    let now = sqlx::query_scalar(sql!("now")).fetch_one(&mut *read).await.failed(DOING)?;
    let places = places(&mut read, &PartitionSet::all(PARTITIONS), before, after, limit, DOING).await?;
    let jobs: Vec<JobId> = places.into_iter().map(|(_, job)| job).collect();
    let found = job_rows(&mut read, &jobs, DOING).await?;
    loaded(&mut read, found, DbTime::from_millis(now), DOING).await
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
        let found = sqlx::query(sql!("horizon_places"))
            .bind(&asked)
            .bind(until.millis())
            .bind(after.0)
            .bind(after.1.uuid())
            .bind(rows::limit(share))
            .fetch_all(&mut *read)
            .await
            .failed(doing)?;
        let mut counted: HashMap<i16, (usize, (i64, JobId))> = HashMap::new();
        let mut round = Vec::with_capacity(found.len());
        for row in &found {
            let partition: i16 = row.try_get("partition").failed(doing)?;
            let place = (row.try_get("next_tick").failed(doing)?, rows::job_id(row, "job").failed(doing)?);
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
    let mut read = store.read(DOING).await?;
    let found = job_rows(&mut read, ids, DOING).await?;
    let now = sqlx::query_scalar(sql!("now")).fetch_one(&mut *read).await.failed(DOING)?;
    loaded(&mut read, found, DbTime::from_millis(now), DOING).await
}

/// The rows of these jobs, in this order.
pub(super) async fn job_rows(connection: &mut PgConnection, ids: &[JobId], doing: &'static str) -> Result<Vec<JobRow>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let asked = rows::job_ids(ids.iter().copied());
    let found = sqlx::query(sql!("load_jobs")).bind(asked).fetch_all(connection).await.failed(doing)?;
    Ok(rows::readable_jobs(&found))
}

/// The changes of the last minute come again: a commit may come later than one with a higher number, but not by that much.
const OVERLAP_MS: i64 = 60_000;
/// `seq` counts so many to the millisecond, in steps of two. An odd mark says that there was more to read at once.
const SEQ_PER_MS: i64 = 2_097_152;

pub(super) async fn changes(
    store: &PostgresStore,
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
    let reached = since.0 & !1;
    let from = if since.0 & 1 == 1 { reached } else { reached.saturating_sub(OVERLAP_MS * SEQ_PER_MS).max(0) };
    let mut found = sqlx::query(sql!("changes"))
        .bind(from)
        .bind(rows::limit(limit.saturating_add(1)))
        .bind(rows::partitions(partitions))
        .fetch_all(&mut *read)
        .await
        .failed(DOING)?;
    let more = found.len() > limit;
    found.truncate(limit);
    let changed = |row: &PgRow| {
        let job = ChangedJob {
            id: rows::job_id(row, "job")?,
            epoch: Epoch::from_raw(row.try_get("epoch")?),
            cursor: rows::time(row, "next_tick")?,
        };
        Ok((job, row.try_get::<i64, _>("seq")?))
    };
    let changed: Vec<_> = found.iter().map(changed).collect::<std::result::Result<_, sqlx::Error>>().failed(DOING)?;
    let last = changed.last().map_or(reached, |(_, seq)| *seq);
    let mark = if more {
        last | 1
    } else {
        // What is older than the overlap is not read again for want of news. A clock that was set back is followed.
        let now: i64 = sqlx::query_scalar(sql!("now")).fetch_one(&mut *read).await.failed(DOING)?;
        let found = changed.last().map_or(0, |(_, seq)| *seq);
        found.max(now.saturating_mul(SEQ_PER_MS)) & !1
    };
    Ok(Changes { jobs: changed.into_iter().map(|(job, _)| job).collect(), mark: ChangeMark(mark), more })
}

async fn loaded(
    read: &mut PgConnection,
    jobs: Vec<JobRow>,
    now: DbTime,
    doing: &'static str,
) -> Result<Vec<LoadedJob>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let mut last_ticks = last_ticks(read, &jobs, now, doing).await?;
    let ids: Vec<JobId> = jobs.iter().map(|row| row.job.id).collect();
    let mut open = open_runs(read, &ids, now, doing).await?;
    let loaded = jobs.into_iter().map(|row| {
        let open = open.remove(&row.job.id).unwrap_or_default();
        let last_tick = last_ticks.remove(&row.job.id);
        LoadedJob { job: row.job, epoch: row.epoch, cursor: row.cursor, last_tick, open }
    });
    Ok(loaded.collect())
}

async fn last_ticks(
    read: &mut PgConnection,
    jobs: &[JobRow],
    now: DbTime,
    doing: &'static str,
) -> Result<HashMap<JobId, DbTime>> {
    let low: Vec<(JobId, RunId)> =
        jobs.iter().filter_map(|row| row.cursor.map(|cursor| (row.job.id, RunId::floor(cursor)))).collect();
    // A cursor that lies ahead has no ticks behind it, unless the clock went back.
    let Some(lowest) = low.iter().map(|(_, low)| *low).min() else { return Ok(HashMap::new()) };
    let found = sqlx::query(sql!("last_ticks"))
        .bind(rows::job_ids(low.iter().map(|(job, _)| *job)))
        .bind(rows::run_ids(low.iter().map(|(_, low)| *low)))
        .bind(lowest.uuid())
        .bind(days::ahead(now).uuid())
        .fetch_all(read)
        .await
        .failed(doing)?;
    let mut last = HashMap::with_capacity(found.len());
    for row in &found {
        last.insert(rows::job_id(row, "job").failed(doing)?, rows::at(row, "scheduled_at").failed(doing)?);
    }
    Ok(last)
}

/// The open runs of these jobs, by id.
pub(super) async fn open_runs(
    connection: &mut PgConnection,
    jobs: &[JobId],
    now: DbTime,
    doing: &'static str,
) -> Result<HashMap<JobId, Vec<OpenRun>>> {
    let asked = rows::job_ids(jobs.iter().copied());
    let lowest = lowest_open_from(connection, now, doing).await?;
    let mut found = sqlx::query(sql!("open_waiting")).bind(&asked).fetch_all(&mut *connection).await.failed(doing)?;
    found.extend(
        sqlx::query(sql!("open_claimed"))
            .bind(&asked)
            .bind(lowest.uuid())
            .bind(days::ahead(now).uuid())
            .fetch_all(&mut *connection)
            .await
            .failed(doing)?,
    );
    found.extend(sqlx::query(sql!("open_workers")).bind(&asked).fetch_all(&mut *connection).await.failed(doing)?);
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
