//! Reads which jobs were created or edited since a mark.

use everytick_domain::partition::PartitionSet;
use sqlx::Row as _;

use super::{DbRow, SqliteStore, horizon::changed, rows};
use crate::{ChangeMark, Changes, Result};

pub(super) async fn changes(
    store: &SqliteStore,
    partitions: &PartitionSet,
    since: ChangeMark,
    limit: usize,
) -> Result<Changes> {
    let mut tx = store.read("read changed jobs").await?;
    if limit == 0 {
        let mark = tx.scalar(query!("horizon/present_mark")).await?;
        return Ok(Changes { jobs: Vec::new(), mark: ChangeMark(mark), more: false });
    }
    let mut found = tx.fetch_all(query!("horizon/changes", since.0, rows::limit(limit.saturating_add(1)))).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let numbered = |row: &DbRow| Ok((changed(row)?, row.try_get::<i64, _>("seq")?));
    let changed: Vec<_> = tx.decode_all(&found, numbered)?;
    let mark = changed.last().map_or(since, |(_, seq)| ChangeMark(*seq));
    let changed = if !partitions.contains(0) { Vec::new() } else { changed };
    Ok(Changes { jobs: changed.into_iter().map(|(job, _)| job).collect(), mark, more })
}
