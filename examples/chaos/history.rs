//! Everything that was seen: what the record says, what arrived, what was answered. Data only; `check` judges it.

use crate::oracle::{Answered, Held, Kind};

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

/// The codes that are stored.
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

/// Ticks that were skipped together.
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
    /// On the campaign's clock.
    pub(crate) arrived_at: i64,
    /// What it was answered, once it was.
    pub(crate) status: Option<u16>,
}

/// A settlement with an old fence that the campaign sent; only 409 is right.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) run: String,
    pub(crate) fence: i64,
    /// `None`: nobody answered.
    pub(crate) status: Option<u16>,
}

/// A job, and which definition held when.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) held: Vec<Held>,
    pub(crate) asked: Vec<&'static str>,
    pub(crate) answered: Vec<Answered>,
    /// The X of every change that the audit has.
    pub(crate) audited: Vec<(String, i64)>,
    pub(crate) made: bool,
    pub(crate) created_at: Option<i64>,
}

/// How far the database's clock is ahead of ours, at least and at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offset {
    pub(crate) low: i64,
    pub(crate) high: i64,
}

/// A fault, or several at once, from its beginning until everything due was done again.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Fault {
    pub(crate) what: String,
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) began_at: i64,
    /// From when catching up counts: the heal, or for a killed node the kill.
    pub(crate) counts_from: i64,
    pub(crate) caught_up_at: Option<i64>,
    /// Whether ticks may be late by it at all.
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
