//! Reads for the detector of dead schedules, and the repair of lost ticks.

use everytick_domain::{
    ids::{JobId, RunId},
    recovery::{Ledger, Window},
    time::Span,
};
use sqlx::{Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{DbTx, Failed, PostgresStore, horizon, node, range, record, rows};
use crate::tx::{JobRow, Tx as _};
use crate::{Actor, JobTicks, Lease, RANGES_PER_LEDGER_MAX, Result, Walked, WalkedJob};

pub(super) async fn walk_jobs(store: &PostgresStore, after: Option<JobId>, limit: usize) -> Result<Walked> {
    const DOING: &str = "page through the jobs";
    let mut read = store.read(DOING).await?;
    let ids: Vec<Uuid> =
        read.scalars(query!("repair/walk_jobs", after.map_or_else(Uuid::nil, JobId::uuid), rows::limit(limit))).await?;
    let ids: Vec<JobId> = ids.into_iter().map(JobId::from_uuid).collect();
    let found = horizon::readable_job_rows(&mut read, &ids).await?;
    let walked = |row: JobRow| WalkedJob { job: row.job, epoch: row.epoch, cursor: row.cursor };
    Ok(Walked { jobs: found.into_iter().map(walked).collect(), last: ids.last().copied() })
}

pub(super) async fn load_ledgers(store: &PostgresStore, asked: &[(JobId, Window)]) -> Result<Vec<Ledger>> {
    const DOING: &str = "read recorded ticks";
    let mut ledgers = vec![Ledger::default(); asked.len()];
    let low: Vec<RunId> = asked.iter().map(|(_, window)| RunId::floor(window.from)).collect();
    let high: Vec<RunId> = asked.iter().map(|(_, window)| RunId::floor(window.to.plus(Span::millis(1)))).collect();
    let (Some(lowest), Some(highest)) = (low.iter().min(), high.iter().max()) else { return Ok(ledgers) };
    let jobs = rows::job_ids(asked.iter().map(|(job, _)| *job));
    let mut read = store.read(DOING).await?;
    let ticks = read
        .fetch_all(query!(
            "repair/ledger_ticks",
            &jobs,
            rows::run_ids(low.iter().copied()),
            rows::run_ids(high.iter().copied()),
            lowest.uuid(),
            highest.uuid()
        ))
        .await?;
    for row in &ticks {
        if let Some(ledger) = ledgers.get_mut(place(row).failed(DOING)?) {
            ledger.ticks.push(rows::at(row, "scheduled_at").failed(DOING)?);
        }
    }
    let ranges = read
        .fetch_all(query!(
            "repair/ledger_ranges",
            &jobs,
            rows::run_ids(high.iter().copied()),
            rows::limit(RANGES_PER_LEDGER_MAX)
        ))
        .await?;
    for row in &ranges {
        let place = place(row).failed(DOING)?;
        let range =
            Window { from: rows::at(row, "from_tick").failed(DOING)?, to: rows::at(row, "to_tick").failed(DOING)? };
        if let Some(ledger) = ledgers.get_mut(place).filter(|_| range.to >= asked[place].1.from) {
            ledger.ranges.push(range);
        }
    }
    for ledger in &mut ledgers {
        ledger.ticks.sort_unstable();
    }
    Ok(ledgers)
}

/// The index of the requested window, counted from 0.
fn place(row: &PgRow) -> std::result::Result<usize, sqlx::Error> {
    let place: i64 = row.try_get("place")?;
    Ok(usize::try_from(place - 1).unwrap_or(usize::MAX))
}

pub(super) async fn repair(store: &PostgresStore, lease: &Lease, ticks: &JobTicks) -> Result<bool> {
    const DOING: &str = "record lost ticks";
    let mut write = store.write(DOING).await?;
    let done = write_repair(&mut write, lease, ticks).await;
    write.finish(done).await
}

async fn write_repair(write: &mut DbTx, lease: &Lease, ticks: &JobTicks) -> Result<bool> {
    node::lock_lease(write, lease).await?;
    let Some((tenant, cursor)) = range::lock(write, ticks.job, ticks.epoch).await? else { return Ok(false) };
    if !ticks.passed_by(cursor, write.now) {
        return Ok(false);
    }
    let found = horizon::job_rows(write, &[ticks.job]).await?;
    let queue = found.first().and_then(|row| row.job.spec.target.queue().map(str::to_owned));
    record::insert_edited(write, ticks, queue.as_deref()).await?;
    range::move_on(write, ticks.job, cursor).await?;
    range::notify(write).await?;
    let actor = Actor(format!("node {}", lease.node));
    write.audit(tenant, &actor, "repair", &[(ticks.job.to_string(), ticks.repair_detail())]).await?;
    Ok(true)
}
