//! Skips and notes rows that cannot be decoded: damaged rows, and rows of a later release that runs beside this one.
//! Each row is decoded on its own, so a bad row does not stop the others. The engine saves the notes to the table
//! `unreadable` periodically.
//!
//! A skipped run, or a run of a skipped job, stays in its queue. For about a minute it is *aside*: searches leave it
//! out, so that any number of bad rows at the head of a queue hides nothing behind them. After that, searches try it
//! again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use everytick_domain::{
    ids::{JobId, RunId},
    time::{DbTime, Span},
};
use sqlx::{Row, postgres::PgRow, sqlite::SqliteRow};
use uuid::Uuid;

use crate::{ClaimedRun, Result, StoreError};

/// One process notes at most this many rows. It skips further ones without a note.
pub const UNREADABLE_NOTED_MAX: usize = 10_000;
/// Searches leave out at most this many runs and this many jobs.
const ASIDE_MAX: usize = 10_000;
/// How long searches leave a row out before they try it again.
const ASIDE_FOR: Span = Span::minutes(1);
/// A row is removed from the table if no process has met it for this long: it was repaired or removed, or it is never
/// read.
pub const UNREADABLE_KEPT: Span = Span::days(1);
const ERROR_CHARS_MAX: usize = 500;

/// A row of the table `unreadable`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableRow {
    pub table: String,
    /// The row's key as text; `?` if the key itself cannot be decoded.
    pub key: String,
    pub error: String,
    /// When a node last met it.
    pub seen_at: DbTime,
}

/// Some of the rows, most recently met first, and the total number.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct UnreadableRows {
    pub rows: Vec<UnreadableRow>,
    pub count: u64,
}

/// The notes of a process. The handles of one store share them.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    rows: BTreeMap<(&'static str, String), Note>,
    runs: Aside<RunId>,
    jobs: Aside<JobId>,
}

#[derive(Debug)]
struct Note {
    error: String,
    /// The row was met again since the last save.
    unsaved: bool,
    saved_at: Option<DbTime>,
}

/// Each id with the time of the first save after it was put aside.
type Aside<T> = BTreeMap<T, Option<DbTime>>;

/// A row with a printable key, for a note.
pub(crate) trait Keyed {
    fn key(&self) -> String;
}

/// Columns that identify a row. The first one that the row has is used.
const KEYS: [&str; 8] = ["id", "run", "job", "incarnation", "partition", "node", "name", "subject"];

macro_rules! keyed {
    ($row:ty, $small:ty) => {
        impl Keyed for $row {
            fn key(&self) -> String {
                let text = |column: &&str| {
                    let id = self.try_get::<Uuid, _>(*column).map(|id| id.to_string());
                    let id = id.or_else(|_| self.try_get::<String, _>(*column));
                    id.or_else(|_| self.try_get::<$small, _>(*column).map(|id| id.to_string())).ok()
                };
                KEYS.iter().find_map(text).unwrap_or_else(|| "?".to_owned())
            }
        }
    };
}
keyed!(PgRow, i16);
keyed!(SqliteRow, i64);

impl Unreadable {
    /// Decodes each row on its own and skips those that cannot be decoded.
    pub(crate) fn each<R: Keyed, T>(
        &self,
        table: &'static str,
        rows: &[R],
        decode: impl Fn(&R) -> Result<T, sqlx::Error>,
    ) -> Vec<T> {
        rows.iter().filter_map(|row| self.one(table, row, &decode)).collect()
    }

    /// Decodes a row. `None`: it cannot be decoded, and is noted.
    pub(crate) fn one<R: Keyed, T>(
        &self,
        table: &'static str,
        row: &R,
        decode: impl FnOnce(&R) -> Result<T, sqlx::Error>,
    ) -> Option<T> {
        match decode(row) {
            Ok(decoded) => Some(decoded),
            Err(error) => {
                self.note(table, row.key(), &error);
                None
            }
        }
    }

    pub(crate) fn note(&self, table: &'static str, key: String, error: &dyn std::fmt::Display) {
        let mut notes = self.notes();
        match (table, Uuid::parse_str(&key)) {
            ("runs" | "waiting", Ok(run)) => put_aside(&mut notes.runs, RunId::from_uuid(run)),
            ("jobs", Ok(job)) => put_aside(&mut notes.jobs, JobId::from_uuid(job)),
            _ => {}
        }
        let error: String = error.to_string().chars().take(ERROR_CHARS_MAX).collect();
        if let Some(note) = notes.rows.get_mut(&(table, key.clone())) {
            (note.error, note.unsaved) = (error, true);
        } else if notes.rows.len() < UNREADABLE_NOTED_MAX {
            tracing::error!(
                table,
                key,
                error,
                "a row cannot be decoded: it is skipped and listed in the table unreadable"
            );
            notes.rows.insert((table, key), Note { error, unsaved: true, saved_at: None });
        }
    }

    /// Notes a run that a transaction cannot process although its row may be decodable: for example, a number in it may
    /// be too large for arithmetic.
    pub(crate) fn note_run(&self, run: RunId, error: &StoreError) {
        self.note("runs", run.to_string(), &detail(error));
    }

    pub(crate) fn aside_count(&self) -> usize {
        let notes = self.notes();
        notes.runs.len() + notes.jobs.len()
    }

    /// Runs that searches leave out for now.
    pub(crate) fn runs_aside(&self) -> Vec<RunId> {
        self.notes().runs.keys().copied().collect()
    }

    /// Jobs whose runs searches leave out for now.
    pub(crate) fn jobs_aside(&self) -> Vec<JobId> {
        self.notes().jobs.keys().copied().collect()
    }

    /// The rows met since the last call, which the caller saves. Also ends the exclusion of rows that have been aside
    /// for [`ASIDE_FOR`].
    pub(crate) fn take(&self, now: DbTime) -> Vec<UnreadableRow> {
        let mut notes = self.notes();
        let Notes { rows, runs, jobs } = &mut *notes;
        end_aside(runs, now);
        end_aside(jobs, now);
        rows.retain(|_, note| note.unsaved || note.saved_at.is_some_and(|at| at.plus(UNREADABLE_KEPT) > now));
        let unsaved = rows.iter_mut().filter(|(_, note)| note.unsaved).map(|((table, key), note)| {
            (note.unsaved, note.saved_at) = (false, Some(now));
            UnreadableRow { table: (*table).to_owned(), key: key.clone(), error: note.error.clone(), seen_at: now }
        });
        unsaved.collect()
    }

    /// Puts back rows that could not be saved: the next call of [`Unreadable::take`] returns them again.
    pub(crate) fn put_back(&self, unsaved: &[UnreadableRow]) {
        let mut notes = self.notes();
        for ((table, key), note) in &mut notes.rows {
            note.unsaved |= unsaved.iter().any(|row| row.table == *table && row.key == *key);
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put_aside<T: Ord>(aside: &mut Aside<T>, id: T) {
    if aside.len() < ASIDE_MAX {
        aside.entry(id).or_default();
    }
}

fn end_aside<T: Ord>(aside: &mut Aside<T>, now: DbTime) {
    aside.retain(|_, since| since.get_or_insert(now).plus(ASIDE_FOR) > now);
}

/// A batch of claims, in parts. If one run makes a part fail, the part is halved until that run is found. The run is
/// noted and left out.
pub(crate) struct Parts<'r> {
    parts: Vec<&'r [RunId]>,
    claimed: Vec<ClaimedRun>,
}

impl<'r> Parts<'r> {
    pub(crate) fn of(runs: &'r [RunId]) -> Self {
        Self { parts: if runs.is_empty() { Vec::new() } else { vec![runs] }, claimed: Vec::new() }
    }

    /// The part to claim next, in a transaction of its own.
    pub(crate) fn next(&mut self) -> Option<&'r [RunId]> {
        self.parts.pop()
    }

    /// Applies the result of a part.
    pub(crate) fn done(
        &mut self,
        unreadable: &Unreadable,
        part: &'r [RunId],
        done: Result<Vec<ClaimedRun>>,
    ) -> Result<()> {
        match (done, part) {
            (Ok(found), _) => self.claimed.extend(found),
            (Err(error), [run]) if error.is_for_its_data() => unreadable.note_run(*run, &error),
            (Err(error), part) if error.is_for_its_data() => {
                let (first, second) = part.split_at(part.len() / 2);
                self.parts.extend([second, first]);
            }
            (Err(error), _) if self.claimed.is_empty() => return Err(error),
            // Some parts are claimed, but the caller does not get them: it has to compare its claims with the database.
            (Err(error), _) => return Err(StoreError::Unsure { doing: "claim runs", source: detail(&error).into() }),
        }
        Ok(())
    }

    pub(crate) fn claimed(self) -> Vec<ClaimedRun> {
        self.claimed
    }
}

fn detail(error: &StoreError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("{error}{}", source.unwrap_or_default())
}

pub(crate) fn is_undecodable(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: i64) -> DbTime {
        DbTime::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_row_is_saved_once_until_it_is_met_again() {
        let unreadable = Unreadable::default();
        unreadable.note("runs", "a".into(), &"first");
        let saved = unreadable.take(s(1));
        assert_eq!(saved.iter().map(|row| (&*row.key, &*row.error)).collect::<Vec<_>>(), [("a", "first")]);
        assert!(unreadable.take(s(2)).is_empty());
        unreadable.note("runs", "a".into(), &"second");
        assert_eq!(unreadable.take(s(3)).len(), 1);
        unreadable.put_back(&saved);
        assert_eq!(unreadable.take(s(4))[0].error, "second", "a row that could not be saved is returned again");
    }

    #[test]
    fn a_run_is_left_out_for_a_minute_and_then_tried_again() {
        let (unreadable, run) = (Unreadable::default(), Uuid::from_u128(7));
        unreadable.note("runs", run.to_string(), &"why");
        unreadable.note("jobs", run.to_string(), &"why");
        unreadable.take(s(100));
        unreadable.take(s(159));
        assert_eq!((unreadable.runs_aside().len(), unreadable.jobs_aside().len()), (1, 1));
        unreadable.take(s(160));
        assert_eq!((unreadable.runs_aside().len(), unreadable.jobs_aside().len()), (0, 0));
    }

    fn failed() -> StoreError {
        StoreError::Failed { doing: "claim runs", source: "away".into() }
    }

    /// Claims 16 runs of which some are bad. Returns the claimed runs, the runs put aside, and the number of
    /// transactions.
    fn claim(bad: &[u128], fails_at: Option<usize>) -> (Result<Vec<u128>>, Vec<RunId>, usize) {
        let runs: Vec<RunId> = (0..16).map(|n| RunId::from_uuid(Uuid::from_u128(n))).collect();
        let (unreadable, mut parts, mut transactions) = (Unreadable::default(), Parts::of(&runs), 0);
        while let Some(part) = parts.next() {
            transactions += 1;
            let answer = if fails_at == Some(transactions) {
                Err(failed())
            } else if part.iter().any(|run| bad.contains(&run.uuid().as_u128())) {
                Err(StoreError::Refused { doing: "claim runs", source: "too large".into() })
            } else {
                Ok(part.iter().map(|run| claimed(*run)).collect())
            };
            if let Err(error) = parts.done(&unreadable, part, answer) {
                return (Err(error), unreadable.runs_aside(), transactions);
            }
        }
        let claimed = parts.claimed().iter().map(|run| run.id.uuid().as_u128()).collect();
        (Ok(claimed), unreadable.runs_aside(), transactions)
    }

    fn claimed(id: RunId) -> ClaimedRun {
        ClaimedRun {
            id,
            job: JobId::from_uuid(Uuid::nil()),
            tenant: everytick_domain::ids::TenantId::from_raw(1),
            cause: everytick_domain::run::CauseKind::Tick,
            scheduled_at: s(0),
            fence: everytick_domain::ids::Fence::default(),
            attempt: 1,
            lost: 0,
            payload: None,
        }
    }

    #[test]
    fn halving_finds_a_bad_run_and_claims_all_others() {
        let (all, aside, transactions) = claim(&[], None);
        assert_eq!((all.unwrap(), aside.len(), transactions), ((0..16).collect(), 0, 1));
        let (others, aside, transactions) = claim(&[5], None);
        assert_eq!(others.unwrap(), (0..16).filter(|n| *n != 5).collect::<Vec<_>>(), "in batch order");
        assert_eq!((aside.len(), transactions), (1, 9));
        let (none, aside, _) = claim(&(0..16).collect::<Vec<_>>(), None);
        assert_eq!((none.unwrap(), aside.len()), (vec![], 16));
    }

    #[test]
    fn an_error_after_a_part_was_claimed_is_unsure() {
        assert!(matches!(claim(&[], Some(1)).0, Err(StoreError::Failed { .. })), "nothing was claimed");
        assert!(matches!(claim(&[15], Some(3)).0, Err(StoreError::Unsure { .. })), "the first half was claimed");
    }

    #[test]
    fn notes_are_bounded_and_end_after_a_day() {
        let unreadable = Unreadable::default();
        for n in 0..=UNREADABLE_NOTED_MAX {
            unreadable.note("audit", n.to_string(), &"why");
        }
        assert_eq!(unreadable.take(s(0)).len(), UNREADABLE_NOTED_MAX);
        unreadable.take(s(86_400));
        assert!(unreadable.notes().rows.is_empty());
    }
}
