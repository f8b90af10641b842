//! Moves a whole installation from one SQLite file to one PostgreSQL database. It first marks the file, so that no
//! process serves it during or after the move. Then it copies each table in batches, by key. Each batch is one
//! transaction that also stores the position, so a killed move continues there. Row counts are compared before the
//! target may be served.

mod table;

use std::{fmt, path::Path, sync::Arc};

use everytick_domain::{ids::RunId, time::DbTime};
use uuid::Uuid;

pub(crate) use table::{Batch, Column, Kind, PARTS, Part, Place, Value, count};

use crate::{PostgresStore, Result, SqliteStore, Store as _, StoreError, WallClock, postgres, sqlite};

/// The size of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveBatch {
    pub rows_max: usize,
    /// Large outputs and payloads reach this before `rows_max`. The row that reaches it is still included.
    pub bytes_max: usize,
}

impl Default for MoveBatch {
    fn default() -> Self {
        Self { rows_max: 1_000, bytes_max: 4 << 20 }
    }
}

/// The row count of a table in source and target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedTable {
    pub table: String,
    pub source: u64,
    pub target: u64,
}

/// One copied batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveStep {
    pub table: &'static str,
    pub rows: u64,
    /// Whether it was the last batch of its table.
    pub done: bool,
}

/// The state of both sides before a move starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovePlan {
    /// The row counts of the source. The target's counts are what an earlier, interrupted move has copied.
    pub tables: Vec<MovedTable>,
    /// Whether this continues an interrupted move.
    pub resumed: bool,
    /// When an earlier move was finished; then nothing is left to do.
    pub finished_at: Option<DbTime>,
}

/// The mark in a source: the target that it moves to, or has moved to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoveMark {
    pub id: Uuid,
    /// For display, without the password.
    pub target: String,
    pub started_at: DbTime,
    pub finished_at: Option<DbTime>,
}

impl MoveMark {
    /// Why a finished move cannot be undone without its target.
    fn needs_target(&self) -> StoreError {
        StoreError::Unusable(format!(
            "everything was moved to {}, and serving both would fire every job twice; name that database with --to URL, which \
             checks it and closes it, or pass --target-is-gone if it no longer exists",
            self.target
        ))
    }

    /// Why the file at `path` must not be served.
    pub(crate) fn refusal(&self, path: &Path) -> StoreError {
        let (file, target) = (path.display(), &self.target);
        StoreError::Unusable(match self.finished_at {
            Some(at) => format!(
                "{file} was moved to {target} at {at}, and serving both would fire every job twice; serve that database. To \
                 return to this file, stop every node there and run: everytick move --from sqlite:{file} --undo --to URL"
            ),
            None => format!(
                "{file} is being moved to {target}; run the same `everytick move` again to finish it, or abandon it with: \
                 everytick move --from sqlite:{file} --undo"
            ),
        })
    }
}

/// The target's record of a move. It has the same id as the source's mark, so that two installations cannot be mixed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Begun {
    /// Runs before this id have no day table. Only the last run of each job remains of them.
    pub days_from: RunId,
    pub finished_at: Option<DbTime>,
    /// In the order of [`PARTS`].
    pub places: Vec<Progress>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    pub place: Option<Place>,
    pub moved: u64,
    pub done: bool,
}

/// Numbers that must not decrease in the move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Heights {
    pub lease_fence: i64,
    pub partition_fence: i64,
    pub zone_data: i64,
}

/// The caller's statement about the target when a move is undone.
#[derive(Clone, Copy, Debug)]
pub enum UndoTarget<'a> {
    /// Its URL.
    At(&'a str),
    /// It no longer exists.
    Gone,
    Unnamed,
}

/// A move in progress: a source that no other process has open, and a target that is empty or has a part of the
/// source's rows.
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
    /// Inspects both sides and changes neither, except that it migrates the schema of an older file. Returns
    /// [`StoreError::Unusable`] if the move is not possible.
    pub async fn look(from: &Path, to: &str, clock: Arc<dyn WallClock>) -> Result<MovePlan> {
        let source = sqlite::moving::open(from, clock).await?;
        let mark = sqlite::moving::mark(&source).await?;
        let begun = look(from, to, mark.as_ref()).await?;
        let plan = plan(&source, begun.as_ref()).await;
        source.close().await;
        plan
    }

    /// The name of the target for display: its address without user and password.
    pub fn name_of_target(to: &str) -> Result<String> {
        postgres::moving::name(to)
    }

    /// Marks the source under a new id, or keeps the id that it has, and records the move in the target.
    pub async fn begin(
        from: &Path,
        to: &str,
        clock: Arc<dyn WallClock>,
        new_id: Uuid,
        batch: MoveBatch,
    ) -> Result<Self> {
        let source = sqlite::moving::open(from, clock).await?;
        let had = sqlite::moving::mark(&source).await?;
        // Checked before any write: a refused target must not leave a marked source.
        look(from, to, had.as_ref()).await?;
        let target = postgres::moving::connect(to).await?;
        // The marks of long backlogs are not copied: without them, cancelled runs would start in the target.
        while source.advance_backlog().await?.job.is_some() {}
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

    /// The current progress.
    pub async fn plan(&self) -> Result<MovePlan> {
        plan(&self.source, Some(&self.begun)).await
    }

    /// Copies one batch in one transaction; `None` if nothing is left.
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

    /// Compares the row counts. If they are equal, the target may be served from now on and the source may not. If they
    /// differ, the move stays unfinished, and the returned counts show the difference.
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
        // The target of a move that was finished before may have been served since, so the recorded counts are used.
        let target = match self.begun.finished_at {
            None => postgres::moving::count(&self.target).await?,
            Some(_) => moved(&self.begun),
        };
        Ok(side_by_side(source, &target))
    }

    /// Creates the table of every day that has a run in the source.
    async fn make_days(&self) -> Result<()> {
        let mut from = self.begun.days_from;
        while let Some(run) = sqlite::moving::run_after(&self.source, from).await? {
            from = postgres::moving::make_day_of(&self.target, run).await?;
        }
        postgres::moving::look_at_days(&self.target).await
    }

    /// Removes the mark from a source, so that it can be served again, and returns the mark. If the move is finished,
    /// the target may be in use: it is closed first, which is refused while a node is alive there.
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

/// Reads the target's record of the move. Refuses a source that was moved to another target.
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

/// The copied rows by table, as recorded in the target.
fn moved(begun: &Begun) -> Counts {
    PARTS.iter().zip(&begun.places).map(|(part, progress)| (part.table.to_owned(), progress.moved)).collect()
}

fn side_by_side(source: Counts, target: &Counts) -> Vec<MovedTable> {
    let of = |name: &str| target.iter().filter(|(table, _)| table == name).map(|(_, count)| count).sum();
    source.into_iter().map(|(table, source)| MovedTable { source, target: of(&table), table }).collect()
}
