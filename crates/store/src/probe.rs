//! What a benchmark asks of a keeper beyond what a node does: what plain inserts cost here and now, what jobs take on disk, a
//! reader that does not end. Everything it touches lies in a place of its own, which nobody serves.

use async_trait::async_trait;
use everytick_domain::{
    ids::{JobId, RunId},
    time::DbTime,
};

use crate::Result;

/// How the name of every place begins that a benchmark makes; only there may it remove what stands.
pub const BENCH_PLACE: &str = "everytick_bench";

/// A tick as a plain insert writes it.
#[derive(Clone, Copy, Debug)]
pub struct PlainTick {
    pub run: RunId,
    pub job: JobId,
    pub tick: DbTime,
}

/// What registered jobs take on disk, tables and indexes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobBytes {
    /// Of their definitions, epochs and cursors.
    pub jobs: u64,
    /// Of the audit rows of their creation.
    pub audit: u64,
}

/// A snapshot that another session keeps open, until this is dropped.
pub struct OpenSnapshot {
    _session: Box<dyn Send + Sync>,
}

impl OpenSnapshot {
    pub(crate) fn new(session: impl Send + Sync + 'static) -> Self {
        Self { _session: Box::new(session) }
    }
}

impl std::fmt::Debug for OpenSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenSnapshot").finish_non_exhaustive()
    }
}

#[async_trait]
pub trait Probe: Send + Sync {
    /// Makes an empty table like the one that ticks are recorded in, with the same indexes, for [`Probe::insert_plainly`].
    async fn begin_limit(&self) -> Result<()>;
    /// Inserts these rows in one transaction, with no lease, no epoch, no cursor and no clock: what they cost at the least.
    async fn insert_plainly(&self, ticks: &[PlainTick]) -> Result<()>;
    async fn end_limit(&self) -> Result<()>;
    /// Brings the tables into the state of those that have been there for a while: statistics, visibility, nothing to write back.
    async fn tidy(&self) -> Result<()>;
    async fn job_bytes(&self) -> Result<JobBytes>;
    async fn hold_snapshot(&self) -> Result<OpenSnapshot>;
    /// Ends a measurement: jobs due before `until` have no more ticks, and no run, claim or lease is left.
    async fn forget_runs(&self, until: DbTime) -> Result<()>;
}
