//! The table `unreadable`: rows that this process could not decode.

use sqlx::Row as _;

use super::{DbTx, Failed, SqliteStore, rows, rows::Text};
use crate::{Result, UNREADABLE_KEPT, UnreadableRow, UnreadableRows};

const SAVING: &str = "save undecodable rows";

pub(super) async fn save(store: &SqliteStore) -> Result<u64> {
    let mut write = store.write(SAVING).await?;
    let unsaved = store.unreadable.take(write.now);
    let saved = match save_in(&mut write, &unsaved).await {
        Ok(count) => write.commit().await.map(|()| count),
        Err(error) => Err(error),
    };
    if saved.is_err() {
        store.unreadable.put_back(&unsaved);
    }
    saved
}

async fn save_in(write: &mut DbTx, unsaved: &[UnreadableRow]) -> Result<u64> {
    let now = write.now;
    if !unsaved.is_empty() {
        let noted: Vec<_> = unsaved.iter().map(|row| (&row.table, Text(&row.key), Text(&row.error))).collect();
        let save = query!("unreadable/unreadable_save", rows::json(&noted), now.millis());
        save.execute(&mut *write.tx).await.failed(SAVING)?;
    }
    query!("unreadable/unreadable_forget", now.minus(UNREADABLE_KEPT).millis())
        .execute(&mut *write.tx)
        .await
        .failed(SAVING)?;
    let count = sqlx::query_scalar::<_, i64>("select count(*) from unreadable").fetch_one(&mut *write.tx).await;
    count.failed(SAVING).map(i64::unsigned_abs)
}

pub(super) async fn list(store: &SqliteStore, limit: usize) -> Result<UnreadableRows> {
    const DOING: &str = "list undecodable rows";
    let mut read = store.read(DOING).await?;
    let list = query!("unreadable/unreadable_list", rows::limit(limit));
    let mut listed = UnreadableRows::default();
    for row in list.fetch_all(&mut *read).await.failed(DOING)? {
        listed.count = row.try_get::<i64, _>("count").failed(DOING)?.unsigned_abs();
        listed.rows.push(UnreadableRow {
            table: row.try_get("relation").failed(DOING)?,
            key: row.try_get("key").failed(DOING)?,
            error: row.try_get("error").failed(DOING)?,
            seen_at: rows::at(&row, "seen_at").failed(DOING)?,
        });
    }
    Ok(listed)
}
