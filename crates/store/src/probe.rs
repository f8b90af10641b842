//! Operations that only benchmarks need: the cost of plain inserts, the size of jobs on disk, and a long-lived reader.
//! They use a schema or file of their own, which no node serves.

use async_trait::async_trait;
use everytick_domain::{
    ids::{JobId, RunId},
    time::DbTime,
};

use crate::Result;

/// The prefix of every PostgreSQL schema that a benchmark creates. A benchmark deletes data only in such a schema.
pub const BENCH_PLACE: &str = "everytick_bench";

/// A tick as a plain insert writes it.
#[derive(Clone, Copy, Debug)]
pub struct PlainTick {
    pub run: RunId,
    pub job: JobId,
    pub tick: DbTime,
}

/// The disk space of registered jobs, tables and indexes together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobBytes {
    /// Definitions, epochs and cursors.
    pub jobs: u64,
    /// The audit rows of their creation.
    pub audit: u64,
}

/// A snapshot that another session keeps open until this is dropped.
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
    /// Creates an empty table like the one that ticks are recorded in, with the same indexes, for
    /// [`Probe::insert_plainly`].
    async fn begin_limit(&self) -> Result<()>;
    /// Inserts these rows in one transaction, without lease, epoch, cursor or clock: the minimum cost.
    async fn insert_plainly(&self, ticks: &[PlainTick]) -> Result<()>;
    async fn end_limit(&self) -> Result<()>;
    /// Brings the tables into the state of older ones: fresh statistics and visibility map, no dirty pages.
    async fn tidy(&self) -> Result<()>;
    async fn job_bytes(&self) -> Result<JobBytes>;
    async fn hold_snapshot(&self) -> Result<OpenSnapshot>;
    /// Ends a measurement: jobs due before `until` get no more ticks, and all runs, claims and leases are removed.
    async fn forget_runs(&self, until: DbTime) -> Result<()>;
}
