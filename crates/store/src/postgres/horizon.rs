//! Loads jobs for the scheduler: definition, epoch, cursor and open runs in one snapshot.

use std::{collections::HashMap, sync::Arc};

use everytick_domain::{
    ids::{Epoch, JobId, RunId},
    job::Job,
    partition::{PARTITIONS, PartitionSet},
    time::{DbTime, Span},
};
use sqlx::{Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, calendars, days, jobs, lease, open_runs, rows};
use crate::tx::{JobRow, Tx as _};
use crate::{Backlog, ChangedJob, Lease, LoadedJob, OpenRun, Result};

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
    lease::check(&mut read, lease).await?;
    let places = places(&mut read, partitions, until, after, limit).await?;
    let found = placed_rows(&mut read, &places).await?;
    loaded(store, &mut read, found).await
}

pub(super) async fn look_at_horizon(
    store: &PostgresStore,
    lease: &Lease,
    partitions: &PartitionSet,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<ChangedJob>> {
    const DOING: &str = "read the horizon";
    let mut read = store.read_many(DOING).await?;
    lease::check(&mut read, lease).await?;
    let places = places(&mut read, partitions, until, after, limit).await?;
    let jobs: Vec<JobId> = places.iter().map(|(_, job)| *job).collect();
    let epochs: HashMap<JobId, Epoch> = epochs_of(&mut read, &jobs).await?.into_iter().collect();
    let seen = |(cursor, job): (i64, JobId)| {
        let epoch = *epochs.get(&job)?;
        Some(ChangedJob { id: job, epoch, cursor: Some(DbTime::from_millis(cursor)) })
    };
    Ok(places.into_iter().filter_map(seen).collect())
}

/// The epochs of these jobs in this snapshot.
pub(super) async fn epochs_of(tx: &mut DbTx, jobs: &[JobId]) -> Result<Vec<(JobId, Epoch)>> {
    let asked = rows::job_ids(jobs.iter().copied());
    let (jobs, epochs): (Vec<Uuid>, Vec<i64>) = tx.fetch_one_as(query!("horizon/epochs_of", asked)).await?;
    Ok(jobs.into_iter().map(JobId::from_uuid).zip(epochs.into_iter().map(Epoch::from_raw)).collect())
}

pub(super) async fn load_overdue(
    store: &PostgresStore,
    before: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<LoadedJob>> {
    const DOING: &str = "load overdue jobs";
    let mut read = store.read_many(DOING).await?;
    read.read_clock().await?;
    let places = places(&mut read, &PartitionSet::all(PARTITIONS), before, after, limit).await?;
    let found = placed_rows(&mut read, &places).await?;
    loaded(store, &mut read, found).await
}

/// The first positions in the order of cursors. Each partition has its own order, so a little more than its share is
/// read from each. If some partitions have more rows, the result is complete only up to the lowest of their last rows;
/// the next round begins there.
async fn places(
    tx: &mut DbTx,
    partitions: &PartitionSet,
    until: DbTime,
    after: Option<(DbTime, JobId)>,
    limit: usize,
) -> Result<Vec<(i64, JobId)>> {
    let asked = rows::partitions(partitions);
    let mut after = after.map_or((i64::MIN, JobId::from_uuid(Uuid::nil())), |(at, job)| (at.millis(), job));
    let mut places: Vec<(i64, JobId)> = Vec::new();
    while !asked.is_empty() && places.len() < limit {
        let share = ((limit - places.len()) * 2 / asked.len() + 8).min(limit);
        let (at, ticks, jobs): (Vec<i16>, Vec<i64>, Vec<Uuid>) = tx
            .fetch_one_as(query!(
                "horizon/horizon_places",
                &asked,
                until.millis(),
                after.0,
                after.1.uuid(),
                rows::limit(share)
            ))
            .await?;
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
    let found = jobs::readable(&mut read, ids).await?;
    read.read_clock().await?;
    loaded(store, &mut read, found).await
}

/// The rows of the jobs at these positions, in their order.
async fn placed_rows(tx: &mut DbTx, places: &[(i64, JobId)]) -> Result<Vec<JobRow>> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let (cursors, jobs): (Vec<i64>, Vec<Uuid>) = places.iter().map(|(at, job)| (*at, job.uuid())).unzip();
    let found = tx.fetch_all(query!("horizon/placed_jobs", jobs, cursors)).await?;
    let mut found = tx.unreadable.each("jobs", &found, rows::job);
    calendars::attach_all(tx, &mut found).await?;
    found.sort_unstable_by_key(|row| (row.cursor, row.job.id));
    Ok(found)
}

async fn loaded(store: &PostgresStore, tx: &mut DbTx, jobs: Vec<JobRow>) -> Result<Vec<LoadedJob>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let lowest = lowest_open_from(tx, tx.now).await?;
    let Recent { last_ticks, claimed } = recent(tx, &jobs, lowest).await?;
    open_runs::loaded(store, tx, jobs, last_ticks, &Claimed { jobs: claimed, lowest }).await
}

/// Keeps a loaded definition for later claims.
pub(super) fn note(store: &PostgresStore, job: &Arc<Job>, epoch: Epoch) {
    store.definitions.note(job, epoch);
}

/// The number of waiting runs of these jobs, counted up to `max`.
pub(super) async fn count_waiting(tx: &mut DbTx, jobs: &[JobId], max: usize) -> Result<HashMap<JobId, usize>> {
    if jobs.is_empty() {
        return Ok(HashMap::new());
    }
    let count = query!("horizon/waiting_counts", rows::job_ids(jobs.iter().copied()), rows::limit(max));
    let found: Vec<(Uuid, i64)> = tx.fetch_all_as(count).await?;
    let count = |(job, count): (Uuid, i64)| (JobId::from_uuid(job), usize::try_from(count).unwrap_or(usize::MAX));
    Ok(found.into_iter().map(count).collect())
}

/// What the most recent runs of the jobs show.
#[derive(Default)]
struct Recent {
    last_ticks: HashMap<JobId, DbTime>,
    /// Jobs with a claimed run. They are few, so only their claimed runs are fetched.
    claimed: Vec<JobId>,
}

/// Reads each job's history once: the ticks from its cursor on, and the runs that may still be claimed.
async fn recent(tx: &mut DbTx, jobs: &[JobRow], lowest: RunId) -> Result<Recent> {
    // The youngest run of this snapshot. Without this bound, each of the empty days ahead would be searched for each
    // job.
    let youngest: Option<Uuid> = tx.optional_scalar(query!("horizon/youngest_run")).await?;
    let Some(youngest) = youngest else { return Ok(Recent::default()) };
    // A job without further ticks gets the highest bound, so none of its rows are read as ticks.
    let low: Vec<RunId> =
        jobs.iter().map(|row| row.cursor.map_or_else(|| RunId::floor(DbTime::MAX), RunId::floor)).collect();
    let from = low.iter().copied().min().map_or(lowest, |low| low.min(lowest));
    let jobs = rows::job_ids(jobs.iter().map(|row| row.job.id));
    let recent = query!("horizon/recent_runs", jobs, rows::run_ids(low), lowest.uuid(), from.uuid(), youngest);
    let found = tx.fetch_all(recent).await?;
    let mut recent = Recent { last_ticks: HashMap::with_capacity(found.len()), claimed: Vec::new() };
    for row in &found {
        let job = rows::job_id(row, "job").failed(tx.doing)?;
        if let Some(at) = rows::time(row, "last_tick").failed(tx.doing)? {
            recent.last_ticks.insert(job, at);
        }
        if row.try_get("claimed").failed(tx.doing)? {
            recent.claimed.push(job);
        }
    }
    Ok(recent)
}

/// Jobs that may have runs claimed by nodes, and the lowest id of such a run that `open_claims` does not list.
pub(super) struct Claimed {
    jobs: Vec<JobId>,
    lowest: RunId,
}

/// Any of these jobs may have claimed runs.
pub(super) async fn any_claimed(tx: &mut DbTx, needed: &[(JobId, usize)]) -> Result<Claimed> {
    let lowest = lowest_open_from(tx, tx.now).await?;
    Ok(Claimed { jobs: needed.iter().map(|(job, _)| *job).collect(), lowest })
}

/// The runs that nodes have claimed, and those that workers have claimed of jobs whose open runs are counted.
pub(super) async fn claimed_of(tx: &mut DbTx, needed: &[(JobId, usize)], claimed: &Claimed) -> Result<Vec<PgRow>> {
    let jobs: Vec<JobId> = needed.iter().map(|(job, _)| *job).collect();
    let mut found = claimed_rows(tx, &claimed.jobs, &jobs, claimed.lowest).await?;
    let counted = needed.iter().filter(|(_, needed)| *needed > 0).map(|(job, _)| *job);
    found.extend(tx.fetch_all(query!("horizon/open_workers", rows::job_ids(counted))).await?);
    Ok(found)
}

/// The waiting runs of jobs, up to the given number for each. Most jobs have fewer: one statement reads those of all.
pub(super) async fn waiting_of(tx: &mut DbTx, needed: &[(JobId, usize)]) -> Result<HashMap<JobId, Backlog>> {
    let of: HashMap<JobId, usize> = needed.iter().copied().collect();
    let mut found = waiting_rows(tx, sql!("horizon/open_waiting"), needed.iter().copied()).await?;
    let long = |(job, runs): (&JobId, &Vec<OpenRun>)| {
        of.get(job).filter(|needed| **needed > 0 && runs.len() > **needed).map(|needed| (*job, *needed))
    };
    let long: Vec<(JobId, usize)> = found.iter().filter_map(long).collect();
    if !long.is_empty() {
        found.extend(waiting_rows(tx, sql!("horizon/open_backlog"), long.into_iter()).await?);
    }
    let backlog = |(job, runs)| (job, Backlog::of(runs, of.get(&job).copied().unwrap_or_default()));
    Ok(found.into_iter().map(backlog).collect())
}

/// Reads one run more than needed of each job, so that the caller knows whether more exist.
async fn waiting_rows(
    tx: &mut DbTx,
    statement: &'static str,
    needed: impl Iterator<Item = (JobId, usize)>,
) -> Result<HashMap<JobId, Vec<OpenRun>>> {
    let (jobs, most): (Vec<Uuid>, Vec<i64>) =
        needed.map(|(job, needed)| (job.uuid(), rows::limit(needed.saturating_add(1)))).unzip();
    let found = tx.fetch_all(sqlx::query(statement).bind(jobs).bind(most)).await?;
    open_runs::by_job(tx, &found)
}

/// The runs of jobs that nodes have claimed.
pub(super) async fn claimed_runs(tx: &mut DbTx, jobs: &[JobId]) -> Result<Vec<(JobId, OpenRun)>> {
    let lowest = lowest_open_from(tx, tx.now).await?;
    let found = claimed_rows(tx, jobs, jobs, lowest).await?;
    tx.decode_all(&found, rows::open_run)
}

/// The claimed runs from `lowest` on of the jobs in `recent`, and those of the jobs in `listed` that `open_claims`
/// lists.
async fn claimed_rows(tx: &mut DbTx, recent: &[JobId], listed: &[JobId], lowest: RunId) -> Result<Vec<PgRow>> {
    let mut found = tx.fetch_all(query!("horizon/open_listed", rows::job_ids(listed.iter().copied()))).await?;
    if !recent.is_empty() {
        let (recent, ahead) = (rows::job_ids(recent.iter().copied()), days::ahead(tx.now).uuid());
        found.extend(tx.fetch_all(query!("horizon/open_claimed", recent, lowest.uuid(), ahead)).await?);
    }
    Ok(found)
}

/// The lowest run id that any lease may have claimed without a row in `open_claims`. Without a lease, nothing is
/// claimed.
pub(super) async fn lowest_open_from(tx: &mut DbTx, now: DbTime) -> Result<RunId> {
    let lowest: Option<Uuid> = tx.optional_scalar(query!("horizon/lowest_open_from")).await?;
    Ok(lowest.map_or_else(|| RunId::floor(now.plus(Span::days(1))), RunId::from_uuid))
}
