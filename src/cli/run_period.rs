//! What `--from` and `--to` of a list of runs mean: they select by the time at which a run is listed. That is its tick or request.
//! Runs of a backfill are listed one hour before its creation, so that a page of the list reads a bounded part of the history. The
//! notes here explain this when it affects the list.

use everytick_domain::{job::LATE_AFTER_MAX, time::DbTime};
use serde::Deserialize;

use super::run::RunView;
use crate::{
    client::{Client, Page},
    failure::is_not_found,
    output::{self, Output},
};

/// How many of the newest backfills of a job are compared with the period, and how many the notes name.
const BACKFILLS_READ: usize = 100;
const BACKFILLS_NAMED: usize = 3;

/// The bounds of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub(super) from: Option<DbTime>,
    pub(super) to: Option<DbTime>,
}

#[derive(Debug, Deserialize)]
struct BackfillView {
    id: String,
    from: DbTime,
    to: DbTime,
    created_at: DbTime,
}

impl BackfillView {
    /// Approximates the time at which its runs are listed; see `everytick_domain::backfill::Origin::run`.
    fn listed_at(&self) -> DbTime {
        self.created_at.minus(LATE_AFTER_MAX)
    }
}

impl Period {
    const fn is_all(self) -> bool {
        self.from.is_none() && self.to.is_none()
    }

    fn contains(self, at: DbTime) -> bool {
        self.from.is_none_or(|from| at >= from) && self.to.is_none_or(|to| at < to)
    }

    fn overlaps(self, from: DbTime, to: DbTime) -> bool {
        self.from.is_none_or(|begin| to > begin) && self.to.is_none_or(|end| from < end)
    }

    /// Writes a note for runs in the list that are scheduled outside of the period. Also notes backfills with runs for the
    /// period that are listed outside of it.
    pub(super) async fn note(self, client: &Client, out: Output, job: Option<&str>, list: &Page) -> anyhow::Result<()> {
        if self.is_all() {
            return Ok(());
        }
        let runs: Vec<RunView> = list.read()?;
        let is_elsewhere = |run: &RunView| run.scheduled_at.parse().is_ok_and(|at| !self.contains(at));
        if runs.iter().any(is_elsewhere) {
            output::note_line(
                "--from and --to select by the time at which a run is listed; runs of a backfill are listed one hour before its \
                 creation, not at SCHEDULED",
            );
        }
        let Some(job) = job else { return Ok(()) };
        for backfill in self.backfills(client, job).await? {
            let BackfillView { id, created_at, .. } = backfill;
            output::note_line(&format!(
                "backfill {id} has runs for this period, which are listed one hour before its creation at {}: \
                 `everytick run list --job {job} --cause backfill`",
                out.time(created_at)
            ));
        }
        Ok(())
    }

    /// Backfills over the period whose runs are listed at another time.
    async fn backfills(self, client: &Client, job: &str) -> anyhow::Result<Vec<BackfillView>> {
        let page = match client.get(&["jobs", job, "backfills"]).list(BACKFILLS_READ, None).await {
            Err(error) if is_not_found(&error) => return Ok(Vec::new()),
            page => page?,
        };
        let all: Vec<BackfillView> = page.read()?;
        let elsewhere = |view: &BackfillView| self.overlaps(view.from, view.to) && !self.contains(view.listed_at());
        Ok(all.into_iter().filter(elsewhere).take(BACKFILLS_NAMED).collect())
    }
}
