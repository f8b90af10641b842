//! Everything observed: the record, the deliveries, the answers. Data only; `check` has the rules.

use crate::oracle::{Answered, InForce, Kind};

/// A row of `runs` whose cause is a tick.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) job: String,
    pub(crate) tick: i64,
    pub(crate) due_at: i64,
    pub(crate) state: State,
    pub(crate) skip_reason: Option<i16>,
    pub(crate) attempt: u32,
    pub(crate) fence: i64,
    pub(crate) started_at: Option<i64>,
    pub(crate) finished_at: Option<i64>,
}

/// The state codes of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Waiting,
    Claimed,
    Succeeded,
    Failed,
    Cancelled,
    Skipped,
}

impl State {
    pub(crate) const fn from_code(code: i16) -> Option<Self> {
        Some(match code {
            0 => Self::Waiting,
            1 => Self::Claimed,
            2 => Self::Succeeded,
            3 => Self::Failed,
            4 => Self::Cancelled,
            5 => Self::Skipped,
            _ => return None,
        })
    }
    pub(crate) const fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Claimed)
    }
}

pub(crate) const OVERLAP: i16 = 1;

pub(crate) const fn reason_word(code: i16) -> &'static str {
    match code {
        OVERLAP => "overlap",
        2 => "misfire",
        3 => "catch_up",
        4 => "calendar",
        5 => "quota",
        6 => "error",
        _ => "unknown",
    }
}

/// A range of skipped ticks.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) job: String,
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) count: i64,
    pub(crate) reason: i16,
}

/// One request at the sink.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) run: String,
    pub(crate) job: String,
    pub(crate) attempt: u32,
    pub(crate) fence: i64,
    pub(crate) scheduled_at: i64,
    pub(crate) node: String,
    /// Time on the clock of the campaign.
    pub(crate) arrived_at: i64,
    /// The status of the answer; `None` before the answer.
    pub(crate) status: Option<u16>,
}

/// A settlement with an old fence, sent by the campaign. Only 409 is right.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) run: String,
    pub(crate) fence: i64,
    /// `None`: no answer.
    pub(crate) status: Option<u16>,
}

/// A job, and when each of its definitions applied.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) in_force: Vec<InForce>,
    /// The changes that were requested, answered or not.
    pub(crate) requested: Vec<&'static str>,
    pub(crate) answered: Vec<Answered>,
    /// Action and `effective_at` of every row of the audit trail.
    pub(crate) audited: Vec<(String, i64)>,
    /// Whether its creation was answered.
    pub(crate) created: bool,
    pub(crate) created_at: Option<i64>,
}

/// Lower and upper bound of how far the database clock is ahead of the campaign's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offset {
    pub(crate) low: i64,
    pub(crate) high: i64,
}

/// A fault, or two at once, from its start until everything due was done again.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Fault {
    pub(crate) what: String,
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) began_at: i64,
    /// The start of the time to catch up: the end of the fault, or the kill of a node.
    pub(crate) counts_from: i64,
    pub(crate) caught_up_at: Option<i64>,
    /// Whether the fault may delay ticks.
    pub(crate) touches: bool,
}

impl Fault {
    pub(crate) fn catch_up_ms(&self) -> Option<i64> {
        self.caught_up_at.map(|at| at - self.counts_from)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) jobs: Vec<Job>,
    pub(crate) rows: Vec<Row>,
    pub(crate) ranges: Vec<Range>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) probes: Vec<Probe>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) offset: Offset,
}
