//! Reads recorded ticks for the detector of dead schedules.

use everytick_domain::{
    ids::{JobId, RunId},
    recovery::{Ledger, Window},
    time::{DbTime, Span},
};
use sqlx::Row as _;

use super::{Failed, SqliteStore, rows};
use crate::{RANGES_PER_LEDGER_MAX, Result};

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
