//! What may happen to a transaction between its caller and the database.

use std::time::Duration;

use everytick_domain::{
    ids::{JobId, RunId},
    time::DbTime,
};

/// Where a call is made: the simulator aims delays and losses by these names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Point {
    Now,
    Join,
    Renew,
    RaiseFence,
    Leave,
    Cluster,
    Acquire,
    Release,
    Load,
    Record,
    Range,
    Raise,
    Peek,
    Claim,
    Settle,
    Advance,
    Ask,
    Edit,
    Read,
    Prune,
}

impl Point {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Now => "read the clock",
            Self::Join => "join",
            Self::Renew => "renew the lease",
            Self::RaiseFence => "raise the fence",
            Self::Leave => "leave",
            Self::Cluster => "read the cluster",
            Self::Acquire => "acquire partitions",
            Self::Release => "release partitions",
            Self::Load => "load jobs",
            Self::Record => "record ticks",
            Self::Range => "record a range",
            Self::Raise => "raise cursors",
            Self::Peek => "look at what waits",
            Self::Claim => "claim runs",
            Self::Settle => "settle runs",
            Self::Advance => "advance a flow",
            Self::Ask => "do what was asked",
            Self::Edit => "edit a job",
            Self::Read => "read",
            Self::Prune => "prune",
        }
    }
}

/// How one call goes: how long it travels, what becomes of it, how long the answer travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    pub travel: Duration,
    pub fate: Fate,
    pub back: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Done,
    /// Failed before it was committed, and the caller knows.
    FailedBefore,
    /// Committed, but the caller does not learn it.
    ReplyLost,
}

/// A row, as far as it can be damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    Job(JobId),
    Run(RunId),
}

/// Decides how each call goes. `None` is at once and well.
pub trait Faults: Send + Sync + 'static {
    fn call(&self, point: Point) -> Option<Call>;
    /// Whether this row cannot be decoded at the moment.
    fn damages(&self, _row: Row, _now: DbTime) -> bool {
        false
    }
    /// Whether another session has locked this run's row.
    fn locks(&self, _run: RunId, _now: DbTime) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug)]
pub struct NoFaults;

impl Faults for NoFaults {
    fn call(&self, _: Point) -> Option<Call> {
        None
    }
}
