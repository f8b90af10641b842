//! The recorded ticks, read directly from the database file after the server has stopped: independent of the product's code.

use std::{collections::BTreeMap, path::Path};

use sqlx::{Connection, Row, SqliteConnection};

/// How often each tick of each job is recorded, as a run or a skip. Skipped ranges are expanded into ticks.
pub(crate) struct Ledger {
    pub(crate) ticks: BTreeMap<(String, i64), u32>,
    pub(crate) runs: u64,
    pub(crate) skips: BTreeMap<i64, u64>,
    pub(crate) open: u64,
    pub(crate) integrity: String,
}

impl Ledger {
    /// `every` is the jobs' period in milliseconds, used to expand ranges.
    pub(crate) async fn read(dir: &Path, every: i64) -> anyhow::Result<Self> {
        let url = format!("sqlite:{}", dir.join("everytick.db").display());
        let mut db = SqliteConnection::connect(&url).await?;
        let integrity: String = sqlx::query_scalar("pragma integrity_check").fetch_one(&mut db).await?;
        let mut ledger = Self { ticks: BTreeMap::new(), runs: 0, skips: BTreeMap::new(), open: 0, integrity };
        let rows = sqlx::query(
            "select j.name, r.scheduled_at, r.state, r.skip_reason from runs r join jobs j on j.id = r.job where r.cause = 1",
        );
        for row in rows.fetch_all(&mut db).await? {
            *ledger.ticks.entry((row.try_get(0)?, row.try_get(1)?)).or_default() += 1;
            let state: i64 = row.try_get(2)?;
            ledger.open += u64::from(state < 2);
            match row.try_get::<Option<i64>, _>(3)? {
                Some(reason) => *ledger.skips.entry(reason).or_default() += 1,
                None => ledger.runs += 1,
            }
        }
        let ranges = sqlx::query(
            "select j.name, s.from_tick, s.to_tick, s.count, s.reason from skip_ranges s join jobs j on j.id = s.job",
        );
        for row in ranges.fetch_all(&mut db).await? {
            let (name, from, to): (String, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let count: i64 = row.try_get(3)?;
            anyhow::ensure!(
                count == (to - from) / every + 1,
                "a skipped range of {name} has the count {count}, which does not fit {from} to {to}"
            );
            for n in 0..count {
                *ledger.ticks.entry((name.clone(), from + n * every)).or_default() += 1;
            }
            *ledger.skips.entry(row.try_get(4)?).or_default() += count.unsigned_abs();
        }
        Ok(ledger)
    }

    pub(crate) fn doubled(&self) -> u64 {
        self.ticks.values().filter(|times| **times > 1).count() as u64
    }
}
