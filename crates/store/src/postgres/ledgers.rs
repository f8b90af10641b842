//! Reads recorded ticks for the detector of dead schedules.

use everytick_domain::{
    ids::{JobId, RunId},
    recovery::{Ledger, Window},
    time::Span,
};
use sqlx::{Row as _, postgres::PgRow};

use super::{Failed, PostgresStore, rows};
use crate::{RANGES_PER_LEDGER_MAX, Result};

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
