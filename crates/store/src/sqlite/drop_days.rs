//! Days: a file has one table of runs, so there are no days to drop, and rows are deleted one by one.

use everytick_domain::time::DbTime;

use super::SqliteStore;
use crate::Result;

pub(super) async fn drop_before(_: &SqliteStore, _: DbTime) -> Result<u64> {
    Ok(0)
}

/// Runs from before this instant are deleted one by one.
pub(super) const fn start_of(before: DbTime) -> DbTime {
    before
}

/// The statements that delete the rows of removed jobs.
pub(super) fn rows_of_jobs() -> [&'static str; 2] {
    [sql!("prune/prune_epochs"), sql!("prune/prune_cursors")]
}

/// A file keeps the last run of a job among the others.
pub(super) const fn last_run_of_job() -> Option<&'static str> {
    None
}
