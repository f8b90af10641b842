//! Reads for the detector of dead schedules, and the repair of lost ticks.

use everytick_domain::{
    ids::{JobId, RunId},
    recovery::{Ledger, Window},
    time::{DbTime, Span},
};
use sqlx::Row as _;

use super::{Failed, SqliteStore, calendars, node, range, record, rows};
use crate::tx::{JobRow, Tx as _};
use crate::{Actor, JobTicks, Lease, RANGES_PER_LEDGER_MAX, Result, Walked, WalkedJob};

pub(super) async fn walk_jobs(store: &SqliteStore, after: Option<JobId>, limit: usize) -> Result<Walked> {
    const DOING: &str = "page through the jobs";
    let mut read = store.read(DOING).await?;
    let found = read
        .fetch_all(query!(
            "repair/walk_jobs",
            after.map_or_else(Vec::new, |after| after.uuid().into_bytes().to_vec()),
            rows::limit(limit)
        ))
        .await?;
    let last = found.last().map(|row| rows::job_id(row, "id")).transpose().failed(DOING)?;
    let walked = |row: JobRow| WalkedJob { job: row.job, epoch: row.epoch, cursor: row.cursor };
    let mut jobs = store.unreadable.each("jobs", &found, rows::job);
    calendars::attach_all(&mut read, &mut jobs).await?;
    Ok(Walked { jobs: jobs.into_iter().map(walked).collect(), last })
}

pub(super) async fn load_ledgers(store: &SqliteStore, asked: &[(JobId, Window)]) -> Result<Vec<Ledger>> {
    const DOING: &str = "read recorded ticks";
    let mut read = store.read(DOING).await?;
    let mut ledgers = Vec::with_capacity(asked.len());
    for (job, window) in asked {
        let behind = RunId::floor(window.to.plus(Span::millis(1)));
        let ticks: Vec<i64> = read
            .scalars(query!("repair/ledger_ticks", job.uuid(), RunId::floor(window.from).uuid(), behind.uuid()))
            .await?;
        let found = read
            .fetch_all(query!("repair/ledger_ranges", job.uuid(), behind.uuid(), rows::limit(RANGES_PER_LEDGER_MAX)))
            .await?;
        let mut ledger = Ledger { ticks: ticks.into_iter().map(DbTime::from_millis).collect(), ranges: Vec::new() };
        for row in &found {
            let (from, to) = (row.try_get("from_tick").failed(DOING)?, row.try_get("to_tick").failed(DOING)?);
            let range = Window { from: DbTime::from_millis(from), to: DbTime::from_millis(to) };
            ledger.ranges.extend((range.to >= window.from).then_some(range));
        }
        ledgers.push(ledger);
    }
    Ok(ledgers)
}

pub(super) async fn repair(store: &SqliteStore, lease: &Lease, ticks: &JobTicks) -> Result<bool> {
    const DOING: &str = "record lost ticks";
    let mut write = store.write(DOING).await?;
    node::lock_lease(&mut write, lease).await?;
    let stands = write.fetch_optional(query!("repair/repair_cursor", ticks.job.uuid(), ticks.epoch.raw())).await?;
    let Some(stands) = stands else { return Ok(false) };
    let (tenant, cursor) = (rows::tenant(&stands).failed(DOING)?, rows::time(&stands, "next_tick").failed(DOING)?);
    if !ticks.passed_by(cursor, write.now) {
        return Ok(false);
    }
    record::insert_edited(&mut write, ticks).await?;
    range::move_on(&mut write, ticks.job, cursor).await?;
    let actor = Actor(format!("node {}", lease.node));
    write.audit(tenant, &actor, "repair", &[(ticks.job.to_string(), ticks.repair_detail())]).await?;
    write.commit().await?;
    Ok(true)
}
