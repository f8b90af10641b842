//! The parts of lists that differ between the databases: where a page ends, and how its filter is passed.

use sqlx::{AssertSqlSafe, Row as _};

use super::{DbRow, DbTx, Failed, db_tx::Query, rows};
use crate::{JobFilter, PAGE_BYTES_MAX, Result};

/// A list ordered by `order` that ends when the column `text` of its rows has reached [`PAGE_BYTES_MAX`]. The server
/// knows the length of a text without reading it. `listed` counts the rows before the cut.
pub(super) fn list<'q>(statement: &str, order: &str, text: &str) -> Query<'q> {
    let list = statement.trim_end().trim_end_matches(';');
    let size = format!("coalesce(octet_length(l.{text}), 0)");
    sqlx::query(AssertSqlSafe(format!(
        "select * from (select l.*, count(*) over () as listed, sum({size}) over (order by l.{order}) - {size} as before \
           from ({list}) l) p where before < {PAGE_BYTES_MAX} order by {order}"
    )))
}

/// The rows of a page, and whether more exist. The list asks for one row more than `limit`.
pub(super) async fn fetch(tx: &mut DbTx, list: Query<'_>, limit: usize, _: &str) -> Result<(Vec<DbRow>, bool)> {
    let mut found = tx.fetch_all(list).await?;
    let listed = found.first().map_or(Ok(0), |row| row.try_get::<i64, _>("listed")).failed(tx.doing)?;
    found.truncate(limit);
    let more = listed > rows::limit(found.len());
    Ok((found, more))
}

/// Binds target, labels and text of a filter.
pub(super) fn bind_filter<'q>(list: Query<'q>, filter: &JobFilter) -> Query<'q> {
    list.bind(rows::texts(filter.target.as_ref()))
        .bind(filter.labels.iter().map(|(key, _)| rows::text(key).into_owned()).collect::<Vec<_>>())
        .bind(filter.labels.iter().map(|(_, value)| rows::texts(value.as_ref())).collect::<Vec<_>>())
        .bind(filter.q.as_ref().map(|q| rows::text(&q.to_lowercase()).into_owned()))
}

/// Reads a run that outlived its day's table.
pub(super) fn outlived_run() -> Option<&'static str> {
    Some(sql!("reads/get_last_run"))
}

/// Lists runs that outlived their day's table.
pub(super) fn outlived_runs(of_job: bool) -> Option<&'static str> {
    Some(if of_job { sql!("reads/list_job_last_runs") } else { sql!("reads/list_last_runs") })
}
