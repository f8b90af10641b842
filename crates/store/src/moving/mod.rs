//! Takes a whole installation from one SQLite file to one PostgreSQL database. The file is marked first, so that nobody serves
//! it meanwhile or afterwards; then each table goes over in batches, by key, each batch in one transaction with the mark of
//! how far it has come. Whoever is killed goes on from there. The numbers of rows are compared before the target may be served.

mod table;

use std::{fmt, path::Path, sync::Arc};

use everytick_domain::{ids::RunId, time::DbTime};
use uuid::Uuid;

pub(crate) use table::{Batch, Column, PARTS, Part, Place, Value};

use crate::{PostgresStore, Result, SqliteStore, StoreError, WallClock, postgres, sqlite};

/// How much goes over in one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveBatch {
    pub rows_max: usize,
    /// Reached by outputs and payloads before the rows are. The row that reaches it still goes along.
    pub bytes_max: usize,
}

impl Default for MoveBatch {
    fn default() -> Self {
        Self { rows_max: 1_000, bytes_max: 4 << 20 }
    }
}

/// How many rows a table has, on each side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedTable {
    pub table: String,
    pub source: u64,
    pub target: u64,
}

/// One batch that went over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveStep {
    pub table: &'static str,
    pub rows: u64,
    /// Whether that was the last of its table.
    pub done: bool,
}

/// What is known before anything is moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovePlan {
    /// What the source has; the target's numbers are what an earlier, interrupted move has brought over.
    pub tables: Vec<MovedTable>,
    /// Whether this goes on with a move that was interrupted.
    pub resumed: bool,
    /// Since when all of it has been over; then there is nothing left to do.
    pub finished_at: Option<DbTime>,
}

/// The mark in a source: where it goes, or has gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoveMark {
    pub id: Uuid,
    /// For people; without the password.
    pub target: String,
    pub started_at: DbTime,
    pub finished_at: Option<DbTime>,
}

impl MoveMark {
    /// Why a move that is finished is not undone without its target.
    fn needs_target(&self) -> StoreError {
        StoreError::Unusable(format!(
            "everything was moved to {}, and serving both would fire every job twice; give that database as --to URL, so that \
             it is checked and not served any more, or say --target-is-gone if it does not exist any more",
            self.target
        ))
    }

    /// Why the file at `path` is not to be served.
    pub(crate) fn refusal(&self, path: &Path) -> StoreError {
        let (file, target) = (path.display(), &self.target);
        StoreError::Unusable(match self.finished_at {
            Some(at) => format!(
                "{file} was moved to {target} at {at}, and serving both would fire every job twice; serve that database. To \
                 come back to this file, stop every node there and say: everytick move --from sqlite:{file} --undo --to URL"
            ),
            None => format!(
                "{file} is being moved to {target}; run the same `everytick move` again to finish it, or give it up with: \
                 everytick move --from sqlite:{file} --undo"
            ),
        })
    }
}

/// What the target has written down of a move: the same on both sides, so that nobody mixes two installations up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Begun {
    /// Runs before this have no day any more, and are the last of their jobs.
    pub days_from: RunId,
    pub finished_at: Option<DbTime>,
    /// By the order of [`PARTS`].
    pub places: Vec<Progress>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    pub place: Option<Place>,
    pub moved: u64,
    pub done: bool,
}

/// Numbers that must not fall on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heights {
    pub lease_fence: i64,
    pub partition_fence: i64,
    pub zone_data: i64,
}

/// What is known of the target when a move is undone.
#[derive(Clone, Copy, Debug)]
pub enum UndoTarget<'a> {
    /// Where it is.
    At(&'a str),
    /// It does not exist any more.
    Gone,
    Unnamed,
}

/// A source that nobody else has open, on its way to a target that is empty or has the first part of it.
pub struct Move {
    source: SqliteStore,
    target: PostgresStore,
    mark: MoveMark,
    heights: Heights,
    begun: Begun,
    batch: MoveBatch,
}

impl fmt::Debug for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Move").field("mark", &self.mark).field("begun", &self.begun).finish_non_exhaustive()
    }
}

impl Move {
    /// Looks at both sides and changes neither (but for the schema of an older release's file). What stands in the way of a
    /// move is [`StoreError::Unusable`].
    pub async fn look(from: &Path, to: &str, clock: Arc<dyn WallClock>) -> Result<MovePlan> {
        let source = sqlite::moving::open(from, clock).await?;
        let mark = sqlite::moving::mark(&source).await?;
        let begun = look(from, to, mark.as_ref()).await?;
        let plan = plan(&source, begun.as_ref()).await;
        source.close().await;
        plan
    }

    /// What people call the target: its address without user and password.
    pub fn name_of_target(to: &str) -> Result<String> {
        postgres::moving::name(to)
    }

    /// Marks the source under a new id, unless it bears one, and writes the move down in the target.
    pub async fn begin(
        from: &Path,
        to: &str,
        clock: Arc<dyn WallClock>,
        new_id: Uuid,
        batch: MoveBatch,
    ) -> Result<Self> {
        let source = sqlite::moving::open(from, clock).await?;
        let had = sqlite::moving::mark(&source).await?;
        // Before anything is written: a target that is refused must not leave a marked source.
        look(from, to, had.as_ref()).await?;
        let target = postgres::moving::connect(to).await?;
        let mark = match had {
            Some(mark) if mark.finished_at.is_some() => mark,
            had => {
                sqlite::moving::set_mark(&source, had.map_or(new_id, |mark| mark.id), &postgres::moving::name(to)?)
                    .await?
            }
        };
        let first_run = sqlite::moving::first_run_of_a_day(&source).await?;
        let begun = postgres::moving::begin(&target, &mark, &from.display().to_string(), first_run).await?;
        let heights = sqlite::moving::heights(&source).await?;
        let moving = Self { source, target, mark, heights, begun, batch };
        moving.make_days().await?;
        Ok(moving)
    }

    /// How far it is.
    pub async fn plan(&self) -> Result<MovePlan> {
        plan(&self.source, Some(&self.begun)).await
    }

    /// Moves one batch, in one transaction; `None` when there is no more.
    pub async fn step(&mut self) -> Result<Option<MoveStep>> {
        let next = self.begun.places.iter().position(|progress| !progress.done);
        let Some((index, part)) = next.and_then(|index| PARTS.get(index).map(|part| (index, part))) else {
            return Ok(None);
        };
        let progress = &self.begun.places[index];
        let from = progress.place.clone().unwrap_or_else(|| part.start(self.begun.days_from));
        let batch = sqlite::moving::read(&self.source, part, &from, self.begun.days_from, self.batch).await?;
        let after = Progress {
            place: batch.last.clone().or_else(|| progress.place.clone()),
            moved: progress.moved + batch.rows as u64,
            done: batch.is_last,
        };
        let step = MoveStep { table: part.table, rows: batch.rows as u64, done: batch.is_last };
        postgres::moving::write(&self.target, self.mark.id, part, batch, self.heights, (progress, &after)).await?;
        self.begun.places[index] = after;
        Ok(Some(step))
    }

    /// Compares the numbers of rows. Where they are the same the target may be served from here on, and the source may not;
    /// where they differ the move stays unfinished, and the answer says so by its numbers.
    pub async fn finish(self) -> Result<Vec<MovedTable>> {
        let tables = self.compare().await?;
        if tables.iter().all(|table| table.source == table.target) {
            if self.begun.finished_at.is_none() {
                postgres::moving::finish(&self.target, self.mark.id, self.heights).await?;
            }
            sqlite::moving::finish(&self.source).await?;
        }
        self.target.close().await;
        self.source.close().await;
        Ok(tables)
    }

    async fn compare(&self) -> Result<Vec<MovedTable>> {
        let source = sqlite::moving::count(&self.source).await?;
        // A target that was finished before may have been served since: then what was written down counts.
        let target = match self.begun.finished_at {
            None => postgres::moving::count(&self.target).await?,
            Some(_) => moved(&self.begun),
        };
        Ok(side_by_side(source, &target))
    }

    /// Every day that a run of the source lies in.
    async fn make_days(&self) -> Result<()> {
        let mut from = self.begun.days_from;
        while let Some(run) = sqlite::moving::run_after(&self.source, from).await? {
            from = postgres::moving::make_day_of(&self.target, run).await?;
        }
        postgres::moving::look_at_days(&self.target).await
    }

    /// Takes the mark off a source, so that it can be served again; answers the mark that it had. The target of a move that is
    /// finished may be served: it is closed first, and refused while a node lives there.
    pub async fn undo(from: &Path, target: UndoTarget<'_>, clock: Arc<dyn WallClock>) -> Result<Option<MoveMark>> {
        let source = sqlite::moving::open(from, clock).await?;
        let mark = sqlite::moving::mark(&source).await?;
        if let Some(mark) = &mark {
            match target {
                UndoTarget::At(url) => postgres::moving::close(url, mark).await?,
                UndoTarget::Unnamed if mark.finished_at.is_some() => return Err(mark.needs_target()),
                UndoTarget::Unnamed | UndoTarget::Gone => {}
            }
            sqlite::moving::forget(&source).await?;
        }
        source.close().await;
        Ok(mark)
    }
}

/// What has come to the target. A source that has gone elsewhere does not come here too.
async fn look(from: &Path, to: &str, mark: Option<&MoveMark>) -> Result<Option<Begun>> {
    let begun = postgres::moving::look(to, mark).await?;
    match mark.filter(|mark| mark.finished_at.is_some()) {
        Some(gone) if begun.as_ref().is_none_or(|begun| begun.finished_at.is_none()) => Err(gone.refusal(from)),
        _ => Ok(begun),
    }
}

async fn plan(source: &SqliteStore, begun: Option<&Begun>) -> Result<MovePlan> {
    let counts = sqlite::moving::count(source).await?;
    Ok(MovePlan {
        tables: side_by_side(counts, &begun.map(moved).unwrap_or_default()),
        resumed: begun.is_some_and(|begun| begun.places.iter().any(|progress| progress.moved > 0)),
        finished_at: begun.and_then(|begun| begun.finished_at),
    })
}

type Counts = Vec<(String, u64)>;

/// What has come over by the marks, by table.
fn moved(begun: &Begun) -> Counts {
    PARTS.iter().zip(&begun.places).map(|(part, progress)| (part.table.to_owned(), progress.moved)).collect()
}

fn side_by_side(source: Counts, target: &Counts) -> Vec<MovedTable> {
    let of = |name: &str| target.iter().filter(|(table, _)| table == name).map(|(_, count)| count).sum();
    source.into_iter().map(|(table, source)| MovedTable { source, target: of(&table), table }).collect()
}
