//! The narrow table of failed runs. A list of failures reads it instead of all runs.

use everytick_domain::{ids::RunId, run::State};

use crate::{Page, RunFilter, RunRecord};

/// Equal errors have equal hashes, so failures can be grouped by error without reading the texts.
pub(crate) fn error_hash(error: &str) -> i64 {
    let hash = blake3::hash(error.as_bytes());
    hash.as_bytes().iter().take(8).fold(0, |number, byte| (number << 8) | i64::from(*byte))
}

/// How a list finds the runs that match its filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// Every run matches: the page ends when it is full.
    All,
    /// Reads the table of failures: the page ends when it is full.
    Failures,
    /// Reads the table of failures, at most `Limits::runs_searched_max` rows in a page.
    FailuresScan,
    /// Reads runs, at most `Limits::runs_searched_max` in a page.
    Scan,
}

impl Search {
    pub fn of(filter: &RunFilter) -> Self {
        match (filter.states.as_slice(), filter.is_narrow()) {
            ([], false) => Self::All,
            ([State::Failed], false) => Self::Failures,
            ([State::Failed], true) => Self::FailuresScan,
            _ => Self::Scan,
        }
    }

    pub(crate) const fn is_of_failures(self) -> bool {
        matches!(self, Self::Failures | Self::FailuresScan)
    }
}

/// Sorts the found items and makes a page of them. `end` is the id at which the search stopped early, if it did.
pub fn page(mut items: Vec<RunRecord>, end: Option<RunId>, limit: usize) -> Page<RunRecord, RunId> {
    // Other statements find ranges and runs that outlived their day; those do not stop at `end`.
    items.retain(|run| end.is_none_or(|end| run.id >= end));
    items.sort_unstable_by_key(|run| std::cmp::Reverse(run.id));
    // While a day is being dropped, its last runs are in both tables.
    items.dedup_by_key(|run| run.id);
    let more = items.len() > limit;
    items.truncate(limit);
    let next = if more { items.last().map(|run| run.id) } else { end };
    Page { items, next }
}
