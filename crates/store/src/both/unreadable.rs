//! The table `unreadable`: rows that a process could not decode.

use sqlx::Row as _;

use super::{DbRow, DbStore, DbTx, Failed, rows};
use crate::tx::Tx as _;
use crate::{Result, UNREADABLE_KEPT, UnreadableRow, UnreadableRows};

pub(super) async fn save(store: &DbStore) -> Result<u64> {
    let mut tx = store.write("save undecodable rows").await?;
    let now = tx.read_clock().await?;
    let unsaved = store.unreadable.take(now);
    let saved = save_in(&mut tx, &unsaved).await;
    let saved = tx.finish(saved).await;
    if saved.is_err() {
        store.unreadable.put_back(&unsaved);
    }
    saved
}

async fn save_in(tx: &mut DbTx, unsaved: &[UnreadableRow]) -> Result<u64> {
    let now = tx.now;
    if !unsaved.is_empty() {
        let save =
            batch!("unreadable/unreadable_save", [now.millis()], unsaved, |row| (&row.table, &row.key, &row.error));
        tx.execute(save).await?;
    }
    tx.execute(query!("unreadable/unreadable_forget", now.minus(UNREADABLE_KEPT).millis())).await?;
    let count: i64 = tx.scalar(sqlx::query("select count(*) from unreadable")).await?;
    Ok(count.unsigned_abs())
}

pub(super) async fn list(store: &DbStore, limit: usize) -> Result<UnreadableRows> {
    let mut tx = store.read("list undecodable rows").await?;
    let found = tx.fetch_all(query!("unreadable/unreadable_list", rows::limit(limit))).await?;
    let note = |row: &DbRow| {
        Ok(UnreadableRow {
            table: row.try_get("relation")?,
            key: row.try_get("key")?,
            error: row.try_get("error")?,
            seen_at: rows::at(row, "seen_at")?,
        })
    };
    let count = found.first().map_or(Ok(0), |row| row.try_get::<i64, _>("count")).failed(tx.doing)?;
    let rows = tx.decode_all(&found, note)?;
    Ok(UnreadableRows { count: count.unsigned_abs(), rows })
}
