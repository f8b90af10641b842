//! The narrow table of failed runs, which a list of failures reads instead of all runs.

use everytick_domain::{ids::RunId, run::State};

use crate::{Page, RunFilter, RunRecord};

/// Equal errors have equal hashes, so that failures can be grouped by error without reading the texts.
pub(crate) fn error_hash(error: &str) -> i64 {
    let hash = blake3::hash(error.as_bytes());
    hash.as_bytes().iter().take(8).fold(0, |number, byte| (number << 8) | i64::from(*byte))
}

/// How a list finds the runs that its filter wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Search {
    /// Every run is wanted: the page ends when it is full.
    All,
    /// From the table of failures.
    Failures,
    /// By reading runs, no more than a page may read.
    Scan,
}

impl Search {
    pub(crate) fn of(filter: &RunFilter) -> Self {
        match filter.states.as_slice() {
            [] => Self::All,
            [State::Failed] => Self::Failures,
            _ => Self::Scan,
        }
    }
}

/// A page of the items found down to `end`, where the search stopped, if it did. Items are sorted here.
pub(crate) fn page(mut items: Vec<RunRecord>, end: Option<RunId>, limit: usize) -> Page<RunRecord, RunId> {
    // Ranges and runs that outlived their day are found by other statements, which know no end.
    items.retain(|run| end.is_none_or(|end| run.id >= end));
    items.sort_unstable_by_key(|run| std::cmp::Reverse(run.id));
    // A day that is being dropped has its last runs in both places.
    items.dedup_by_key(|run| run.id);
    let more = items.len() > limit;
    items.truncate(limit);
    let next = if more { items.last().map(|run| run.id) } else { end };
    Page { items, next }
}
