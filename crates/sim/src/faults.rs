//! Faults of the simulated database: delays, failures, lost replies, damaged rows, locked rows. The simulator decides them.

use std::time::Duration;

use everytick_domain::{
    ids::{JobId, RunId},
    time::DbTime,
};

/// The kind of a call. The simulator chooses by it which calls to delay or lose.
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
            Self::Range => "record a range of skips",
            Self::Raise => "raise cursors",
            Self::Peek => "read waiting runs",
            Self::Claim => "claim runs",
            Self::Settle => "settle runs",
            Self::Advance => "advance a flow",
            Self::Ask => "execute a request",
            Self::Edit => "edit a job",
            Self::Read => "read",
            Self::Prune => "prune",
        }
    }
}

/// The course of one call: delay of the request, result, delay of the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    pub travel: Duration,
    pub fate: Fate,
    pub back: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Done,
    /// It failed before the commit, and the caller knows it.
    FailedBefore,
    /// It was committed, but the reply is lost.
    ReplyLost,
}

/// A row that can be damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    Job(JobId),
    Run(RunId),
}

/// Decides the course of each call. `None`: it succeeds without delay.
pub trait Faults: Send + Sync + 'static {
    fn call(&self, point: Point) -> Option<Call>;
    /// Whether this row cannot be decoded at `now`.
    fn damages(&self, _row: Row, _now: DbTime) -> bool {
        false
    }
    /// Whether another session has locked the row of this run at `now`.
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
