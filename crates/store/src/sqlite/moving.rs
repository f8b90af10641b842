//! The source of a move: the mark that prevents it from being served, and its rows in batches by key.

use std::{path::Path, sync::Arc};

use everytick_domain::ids::RunId;
use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Row as _, Sqlite, query::Query, sqlite::SqliteRow};
use uuid::Uuid;

use super::{Failed, SqliteStore, open, rows};
use crate::{
    Limits, Result, StoreError, WallClock,
    moving::{self, Batch, Column, Heights, MoveBatch, MoveMark, Part, Place, Value},
};

const DOING: &str = "read the rows to move";

/// Opens an existing file, marked or not.
pub(crate) async fn open(path: &Path, clock: Arc<dyn WallClock>) -> Result<SqliteStore> {
    if !path.is_file() {
        return Err(StoreError::Unusable(format!("there is no file {}", path.display())));
    }
    open::open_marked(path, clock, Limits::default()).await
}

pub(crate) async fn mark(store: &SqliteStore) -> Result<Option<MoveMark>> {
    const DOING: &str = "read the move mark of the file";
    let mut read = store.read(DOING).await?;
    let marked: i64 = read.scalar(query!("move/move_marked")).await?;
    if marked == 0 {
        return Ok(None);
    }
    let found = read.fetch_optional(query!("move/move_mark")).await?;
    let mark = |row: &SqliteRow| {
        Ok(MoveMark {
            id: row.try_get("id")?,
            target: row.try_get("target")?,
            started_at: rows::at(row, "started_at")?,
            finished_at: rows::time(row, "finished_at")?,
        })
    };
    found.as_ref().map(mark).transpose().failed(DOING)
}

/// Marks the file. From then on no process serves it.
pub(crate) async fn set_mark(store: &SqliteStore, id: Uuid, target: &str) -> Result<MoveMark> {
    const DOING: &str = "mark the file as moved";
    let mut write = store.write(DOING).await?;
    write.execute(query!("move/move_mark_table")).await?;
    write.execute(query!("move/move_set_mark", id, target, write.now.millis())).await?;
    write.commit().await?;
    mark(store).await?.ok_or(StoreError::NotFound("mark"))
}

pub(crate) async fn finish(store: &SqliteStore) -> Result<()> {
    const DOING: &str = "mark the file as moved";
    let mut write = store.write(DOING).await?;
    write.execute(query!("move/move_finish", write.now.millis())).await?;
    write.commit().await
}

pub(crate) async fn forget(store: &SqliteStore) -> Result<()> {
    const DOING: &str = "remove the move mark of the file";
    let mut write = store.write(DOING).await?;
    write.execute(query!("move/move_forget")).await?;
    write.commit().await
}

pub(crate) async fn count(store: &SqliteStore) -> Result<Vec<(String, u64)>> {
    let mut read = store.read(DOING).await?;
    let found: Vec<(String, i64)> =
        read.fetch_all_as(sqlx::query(AssertSqlSafe(moving::count(|part| part.table)))).await?;
    Ok(found.into_iter().map(|(table, count)| (table, count.unsigned_abs())).collect())
}

pub(crate) async fn heights(store: &SqliteStore) -> Result<Heights> {
    let mut read = store.read(DOING).await?;
    let row = read.fetch_one(query!("move/move_heights")).await?;
    let number = |name| row.try_get::<Option<i64>, _>(name).map(Option::unwrap_or_default).failed(DOING);
    Ok(Heights {
        lease_fence: number("lease_fence")?,
        partition_fence: number("partition_fence")?,
        zone_data: number("zone_data")?,
    })
}

/// The oldest run that needs its day's table. Older runs are only last runs, as if their days had been dropped.
pub(crate) async fn first_run_of_a_day(store: &SqliteStore) -> Result<Option<RunId>> {
    let mut read = store.read(DOING).await?;
    let found: Option<Uuid> = read.optional_scalar(query!("move/move_first_run")).await?;
    Ok(found.map(RunId::from_uuid))
}

pub(crate) async fn run_after(store: &SqliteStore, after: RunId) -> Result<Option<RunId>> {
    let mut read = store.read(DOING).await?;
    let found: Option<Uuid> = read.optional_scalar(query!("move/move_run_after", after.uuid())).await?;
    Ok(found.map(RunId::from_uuid))
}

/// The rows after a position, as many as fit.
pub(crate) async fn read(
    store: &SqliteStore,
    part: &'static Part,
    from: &Place,
    days_from: RunId,
    most: MoveBatch,
) -> Result<Batch> {
    let rows_max = most.rows_max.max(1);
    let mut read = store.read(DOING).await?;
    let mut query = sqlx::query(AssertSqlSafe(part.read())).bind(rows::limit(rows_max));
    for value in from {
        query = bind(query, value);
    }
    if part.is_bounded() {
        query = query.bind(days_from.uuid());
    }
    let mut batch =
        Batch { columns: part.columns.iter().map(|(_, kind)| Column::new(*kind)).collect(), ..Batch::default() };
    let mut bytes = 0;
    let mut found = query.fetch(&mut *read);
    while bytes < most.bytes_max
        && let Some(row) = found.try_next().await.failed(DOING)?
    {
        for (column, (name, _)) in batch.columns.iter_mut().zip(part.columns) {
            bytes += push(column, &row, name).failed(DOING)?;
        }
        batch.rows += 1;
    }
    drop(found);
    batch.is_last = batch.rows < rows_max && bytes < most.bytes_max;
    batch.last = batch.columns.iter().take(part.key).map(Column::last).collect::<Option<Place>>();
    Ok(batch)
}

fn bind<'q>(
    query: Query<'q, Sqlite, sqlx::sqlite::SqliteArguments>,
    value: &'q Value,
) -> Query<'q, Sqlite, sqlx::sqlite::SqliteArguments> {
    match value {
        Value::Id(id) => query.bind(id),
        Value::Number(number) => query.bind(number),
        Value::Text(text) => query.bind(text),
    }
}

/// Appends a row's value to a column; returns its approximate size in bytes.
fn push(column: &mut Column, row: &SqliteRow, name: &str) -> std::result::Result<usize, sqlx::Error> {
    fn narrow<T: TryFrom<i64>>(row: &SqliteRow, name: &str) -> std::result::Result<Option<T>, sqlx::Error>
    where
        T::Error: std::error::Error + Send + Sync + 'static,
    {
        let wide: Option<i64> = row.try_get(name)?;
        let wrong = |error: T::Error| sqlx::Error::ColumnDecode { index: name.to_owned(), source: error.into() };
        wide.map(T::try_from).transpose().map_err(wrong)
    }
    Ok(match column {
        Column::Id(ids) => {
            ids.push(row.try_get(name)?);
            size_of::<Uuid>()
        }
        Column::Long(numbers) => {
            numbers.push(row.try_get(name)?);
            size_of::<i64>()
        }
        Column::Word(numbers) => {
            numbers.push(narrow(row, name)?);
            size_of::<i32>()
        }
        Column::Short(numbers) => {
            numbers.push(narrow(row, name)?);
            size_of::<i16>()
        }
        Column::Flag(flags) => {
            flags.push(row.try_get::<Option<i64>, _>(name)?.map(|flag| flag != 0));
            1
        }
        Column::Text(texts) => {
            let text: Option<String> = row.try_get(name)?;
            let bytes = text.as_ref().map_or(0, String::len);
            texts.push(text);
            bytes
        }
        Column::Bytes(blobs) => {
            let blob: Option<Vec<u8>> = row.try_get(name)?;
            let bytes = blob.as_ref().map_or(0, Vec::len);
            blobs.push(blob);
            bytes
        }
    })
}
