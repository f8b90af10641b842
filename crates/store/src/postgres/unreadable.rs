//! The table `unreadable`: rows that the nodes of this database could not decode.

use everytick_domain::time::DbTime;
use sqlx::Row as _;

use super::{DbTx, Failed, PostgresStore, rows};
use crate::tx::Tx as _;
use crate::{Result, UNREADABLE_KEPT, UnreadableRow, UnreadableRows};

const SAVING: &str = "save undecodable rows";

pub(super) async fn save(store: &PostgresStore) -> Result<u64> {
    let mut write = store.write(SAVING).await?;
    let now = write.read_clock().await?;
    let unsaved = store.unreadable.take(now);
    let saved = save_in(&mut write, &unsaved, now).await;
    let saved = write.finish(saved).await;
    if saved.is_err() {
        store.unreadable.put_back(&unsaved);
    }
    saved
}

async fn save_in(write: &mut DbTx, unsaved: &[UnreadableRow], now: DbTime) -> Result<u64> {
    if !unsaved.is_empty() {
        let texts = |of: fn(&UnreadableRow) -> &String| -> Vec<String> {
            unsaved.iter().map(|row| rows::text(of(row)).into_owned()).collect()
        };
        query!(
            "unreadable/unreadable_save",
            texts(|row| &row.table),
            texts(|row| &row.key),
            texts(|row| &row.error),
            now.millis()
        )
        .execute(&mut *write.tx)
        .await
        .failed(SAVING)?;
    }
    query!("unreadable/unreadable_forget", now.minus(UNREADABLE_KEPT).millis())
        .execute(&mut *write.tx)
        .await
        .failed(SAVING)?;
    let count = sqlx::query_scalar::<_, i64>("select count(*) from unreadable").fetch_one(&mut *write.tx).await;
    count.failed(SAVING).map(i64::unsigned_abs)
}

pub(super) async fn list(store: &PostgresStore, limit: usize) -> Result<UnreadableRows> {
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
