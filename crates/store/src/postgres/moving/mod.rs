//! The target of a move: an empty database, or a database with a part of the same installation. Each batch is a
//! transaction that also stores its position. No node may be alive here meanwhile, and a database with only a part of
//! the rows is not served ([`check_finished`]).

mod write;

use std::collections::BTreeMap;

use everytick_domain::{
    ids::{JobId, RunId},
    job::JobSpec,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, postgres::PgRow};
use uuid::Uuid;

#[cfg(feature = "conformance")]
pub(crate) use write::statement;
pub(crate) use write::write;

use super::{DbTx, Failed, PostgresOptions, PostgresStore, days, homes, open, rows};
use crate::tx::Tx as _;
use crate::{
    Limits, Result, StoreError,
    moving::{self, Begun, Heights, MoveMark, PARTS, Part, Progress},
};

const DOING: &str = "move into the database";
/// A refusal counts existing rows up to this number.
const CONTENTS_MAX: i64 = 1_000;

/// The name of the target for display: its address without user and password.
pub(crate) fn name(url: &str) -> Result<String> {
    let options = open::parse(url)?;
    let database = options.get_database().unwrap_or("postgres");
    Ok(format!("postgres://{}:{}/{database}", options.get_host(), options.get_port()))
}

/// Checks whether the marked move may use this database, and how far it is. Writes nothing, not even the schema.
pub(crate) async fn look(url: &str, mark: Option<&MoveMark>) -> Result<Option<Begun>> {
    let mut connection = open::first(&open::parse(url)?).await?;
    open::refuse_app(&mut connection).await?;
    let begin = "begin isolation level repeatable read read only; deallocate all";
    let mut read = connection.begin_with(begin).await.failed(DOING)?;
    let begun = if has_table(&mut read, "schema_steps").await? { admit(&mut read, mark).await } else { Ok(None) };
    read.rollback().await.failed(DOING)?;
    connection.close().await.failed(DOING)?;
    begun
}

/// Connects, migrates the schema, and creates the current days.
pub(crate) async fn connect(url: &str) -> Result<PostgresStore> {
    // A pooler may be in use, and its settings cost these few statements little.
    let options = PostgresOptions { connections_max: 2, transaction_pooler: true, ..PostgresOptions::default() };
    open::connect_unfinished(url, options, Limits::default()).await
}

/// Closes the target of a move that is undone: no node is alive there, and none can start from now on.
pub(crate) async fn close(url: &str, mark: &MoveMark) -> Result<()> {
    let mut connection = open::first(&open::parse(url)?).await?;
    let mut write = connection.begin().await.failed(DOING)?;
    query!("setup/migration_lock", open::MIGRATION_LOCK).execute(&mut *write).await.failed(DOING)?;
    let here = the_move(&mut write).await?.map(|row| row.try_get::<Uuid, _>("id")).transpose().failed(DOING)?;
    if here != Some(mark.id) {
        return Err(StoreError::Unusable(format!(
            "that database is not the target of the move, which is {}",
            mark.target
        )));
    }
    check_no_live_node(&mut write).await?;
    query!("move/move_reopen", mark.id).execute(&mut *write).await.failed(DOING)?;
    write.commit().await.failed(DOING)?;
    connection.close().await.failed(DOING)
}

/// Records the move, unless it is recorded, under the advisory lock that excludes a second one.
pub(crate) async fn begin(
    store: &PostgresStore,
    mark: &MoveMark,
    source: &str,
    first_run: Option<RunId>,
) -> Result<Begun> {
    let mut write = begin_write(store).await?;
    let begun = begin_in(&mut write, mark, source, first_run).await;
    write.finish(begun).await
}

async fn begin_in(write: &mut DbTx, mark: &MoveMark, source: &str, first_run: Option<RunId>) -> Result<Begun> {
    write.execute(query!("setup/migration_lock", open::MIGRATION_LOCK)).await?;
    if let Some(begun) = admit(&mut write.tx, Some(mark)).await? {
        return Ok(begun);
    }
    sqlx::raw_sql(sql!("move/move_tables")).execute(&mut *write.tx).await.failed(DOING)?;
    open::protect_new(&mut write.tx).await?;
    // The tables of the days before and after now exist in any case.
    let days_from = days::first_kept(write.read_clock().await?, first_run);
    write
        .execute(query!(
            "move/move_begin",
            mark.id,
            source,
            days_from.uuid(),
            PARTS.iter().map(|part| part.name.to_owned()).collect::<Vec<_>>()
        ))
        .await?;
    admit(&mut write.tx, Some(mark)).await?.ok_or(StoreError::NotFound("move"))
}

/// The progress of the marked move in this database; `None` if the database is empty. Refuses a database with any other
/// content.
async fn admit(read: &mut PgConnection, mark: Option<&MoveMark>) -> Result<Option<Begun>> {
    if let Some(row) = &the_move(read).await? {
        let (id, source): (Uuid, String) = (row.try_get("id").failed(DOING)?, row.try_get("source").failed(DOING)?);
        if mark.is_none_or(|mark| mark.id != id) {
            return Err(StoreError::Unusable(format!(
                "the target has the copy of another move, which came from {source} and may have been undone; drop the database \
                 and create it again, or use another one"
            )));
        }
        let begun = Begun {
            days_from: rows::run_id(row, "days_from").failed(DOING)?,
            finished_at: rows::time(row, "finished_at").failed(DOING)?,
            places: places(read, id).await?,
        };
        if begun.finished_at.is_none() {
            check_no_live_node(read).await?;
        }
        return Ok(Some(begun));
    }
    check_no_live_node(read).await?;
    let found: Vec<(String, i64)> =
        sqlx::query_as(sql!("move/move_contents")).bind(CONTENTS_MAX).fetch_all(&mut *read).await.failed(DOING)?;
    let some = |(what, count): &(String, i64)| match *count {
        0 => None,
        count if count < CONTENTS_MAX => Some(format!("{count} {what}")),
        count => Some(format!("{count} or more {what}")),
    };
    let found: Vec<String> = found.iter().filter_map(some).collect();
    if !found.is_empty() {
        return Err(StoreError::Unusable(format!(
            "the target is not empty: it has {}; use an empty database",
            found.join(", ")
        )));
    }
    Ok(None)
}

async fn the_move(read: &mut PgConnection) -> Result<Option<PgRow>> {
    if !has_table(read, "moves").await? {
        return Ok(None);
    }
    query!("move/moves").fetch_optional(read).await.failed(DOING)
}

async fn has_table(read: &mut PgConnection, table: &str) -> Result<bool> {
    sqlx::query_scalar(sql!("move/move_has_table")).bind(table).fetch_one(read).await.failed(DOING)
}

async fn places(read: &mut PgConnection, id: Uuid) -> Result<Vec<Progress>> {
    let found = query!("move/move_parts", id).fetch_all(read).await.failed(DOING)?;
    let mut places = BTreeMap::new();
    for row in &found {
        let place: Option<String> = row.try_get("place").failed(DOING)?;
        let place = place.map(|place| serde_json::from_str(&place)).transpose();
        let progress = Progress {
            place: place.map_err(|error| StoreError::Failed { doing: DOING, source: error.into() })?,
            moved: row.try_get::<i64, _>("moved").failed(DOING)?.unsigned_abs(),
            done: row.try_get("done").failed(DOING)?,
        };
        places.insert(row.try_get::<String, _>("part").failed(DOING)?, progress);
    }
    let of = |part: &Part| {
        places.remove(part.name).ok_or_else(|| {
            StoreError::Unusable("the move was started by another release; continue with that one".to_owned())
        })
    };
    PARTS.iter().map(of).collect()
}

async fn check_no_live_node(read: &mut PgConnection) -> Result<()> {
    let nodes: Vec<String> = sqlx::query_scalar(sql!("move/move_live")).fetch_all(read).await.failed(DOING)?;
    if nodes.is_empty() {
        return Ok(());
    }
    Err(StoreError::Unusable(format!("the target is being served by {}; stop it first", nodes.join(", "))))
}

/// Refuses a database that has only a part of an installation: ticks whose rows are not copied yet would fire again.
pub(super) async fn check_finished(store: &PostgresStore) -> Result<()> {
    let mut read = store.read(DOING).await?;
    let Some(row) = the_move(&mut read).await? else { return Ok(()) };
    if rows::time(&row, "finished_at").failed(DOING)?.is_some() {
        return Ok(());
    }
    let source: String = row.try_get("source").failed(DOING)?;
    Err(StoreError::Unusable(format!(
        "the move of {source} into this database is not finished, or it was undone; if it was undone, serve {source}, and drop \
         this database before you move again; otherwise run the same `everytick move` again"
    )))
}

/// Creates the day's table of a run if it is missing. Returns the first id of the next day.
pub(crate) async fn make_day_of(store: &PostgresStore, run: RunId) -> Result<RunId> {
    days::make_day_of(store, run).await
}

pub(crate) async fn look_at_days(store: &PostgresStore) -> Result<()> {
    days::look(store).await.map(drop)
}

pub(crate) async fn count(store: &PostgresStore) -> Result<Vec<(String, u64)>> {
    let mut read = begin_write(store).await?;
    let found: Vec<(String, i64)> =
        read.fetch_all_as(sqlx::query(AssertSqlSafe(moving::count(|part| part.name)))).await?;
    read.rollback().await;
    Ok(found.into_iter().map(|(table, count)| (table, count.unsigned_abs())).collect())
}

/// Marks the move as finished. From then on the database may be served.
pub(crate) async fn finish(store: &PostgresStore, id: Uuid, heights: Heights) -> Result<()> {
    let mut write = begin_write(store).await?;
    let finished = finish_in(&mut write, id, heights).await;
    write.finish(finished).await
}

async fn finish_in(write: &mut DbTx, id: Uuid, heights: Heights) -> Result<()> {
    check_no_live_node(&mut write.tx).await?;
    settle_homes(write).await?;
    write.execute(query!("move/move_heights", heights.lease_fence, heights.partition_fence, heights.zone_data)).await?;
    let finished = write.execute(query!("move/move_finish", id)).await?;
    if finished == 1 { Ok(()) } else { Err(StoreError::NotFound("move with all parts copied")) }
}

/// Moves jobs with a home region to the region's block of partitions: a SQLite file has no blocks.
async fn settle_homes(write: &mut DbTx) -> Result<()> {
    let found: Vec<(Uuid, String)> = write.fetch_all_as(query!("move/move_homed")).await?;
    // A definition that cannot be decoded is copied as it is.
    let homed: Vec<(Uuid, String)> = found
        .into_iter()
        .filter_map(|(id, spec)| Some((id, serde_json::from_str::<JobSpec>(&spec).ok()?.home_region?)))
        .collect();
    let regions: Vec<&str> = homed.iter().map(|(_, region)| region.as_str()).collect();
    let mut homes = homes::load(write, &regions).await?;
    for (id, region) in &homed {
        let place =
            homes.place(JobId::from_uuid(*id), Some(region)).map_err(|wrong| StoreError::Invalid(vec![wrong]))?;
        if let Some(claim) = &place.claim {
            homes::claim(write, claim).await?;
            homes.claim(claim);
        }
        for statement in [sql!("waiting/rehome_waiting"), sql!("cursors/rehome_cursor"), sql!("epochs/rehome_epoch")] {
            let partition = rows::partition(place.partition);
            sqlx::query(statement).bind(id).bind(partition).execute(&mut *write.tx).await.failed(DOING)?;
        }
    }
    Ok(())
}

/// With a timeout long enough for a large batch or a count.
async fn begin_write(store: &PostgresStore) -> Result<DbTx> {
    store.write_slow(DOING).await
}
