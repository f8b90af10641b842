//! The parts of lists that differ between the databases: where a page ends, and how its filter is passed.

use futures::TryStreamExt as _;
use sqlx::Row as _;

use super::{DbRow, DbTx, Failed, db_tx::Query, rows};
use crate::{JobFilter, PAGE_BYTES_MAX, Result};

pub(super) fn list<'q>(statement: &'static str, _order: &str, _text: &str) -> Query<'q> {
    sqlx::query(statement)
}

/// The rows of a page, and whether more exist. The page ends with `limit` rows, or when the column `text` of its rows
/// has reached [`PAGE_BYTES_MAX`]; further rows are not read.
pub(super) async fn fetch(tx: &mut DbTx, list: Query<'_>, limit: usize, text: &str) -> Result<(Vec<DbRow>, bool)> {
    let doing = tx.doing;
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut list = list.fetch(&mut *tx.tx);
    while let Some(row) = list.try_next().await.failed(doing)? {
        if found.len() >= limit || bytes >= PAGE_BYTES_MAX {
            return Ok((found, true));
        }
        bytes += row.try_get::<Option<&str>, _>(text).failed(doing)?.map_or(0, str::len);
        found.push(row);
    }
    Ok((found, false))
}

/// Binds target, labels and text of a filter. SQLite lowercases only ASCII letters, so other letters must match exactly.
pub(super) fn bind_filter<'q>(list: Query<'q>, filter: &JobFilter) -> Query<'q> {
    let q = filter.q.as_ref().map(|q| q.to_ascii_lowercase());
    list.bind(&filter.target).bind(rows::json(&filter.labels)).bind(q)
}

/// A file has one table of runs, so no run outlives a table.
pub(super) const fn outlived_run() -> Option<&'static str> {
    None
}

pub(super) const fn outlived_runs(_of_job: bool) -> Option<&'static str> {
    None
}
