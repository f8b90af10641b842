//! What an explanation is made from. The store loads it.

use std::sync::Arc;

use crate::{
    calendar::Calendar,
    ids::RunId,
    job::Job,
    plan::SkipRange,
    run::{SkipReason, State},
    schedule::ScheduleSpec,
    time::DbTime,
};

/// The facts about one job and one instant.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The present job, or its state when it was deleted.
    pub job: Job,
    pub cursor: Option<DbTime>,
    pub now: DbTime,
    /// Runs that ended before this may have been pruned.
    pub kept_from: DbTime,
    /// Oldest first.
    pub changes: Vec<Changed>,
    /// The calendars that past definitions use.
    pub calendars: Vec<Arc<Calendar>>,
    /// The row with the tick's id.
    pub record: Option<TickRecord>,
    /// The range of skips that contains the instant.
    pub range: Option<SkipRange>,
    /// Runs that backfills created for the instant. They do not count as the record of the tick.
    pub backfilled: Vec<Backfilled>,
}

/// A run that a backfill created for an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backfilled {
    pub run: RunId,
    pub state: State,
}

/// One change of the job, from the audit trail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The old state applies up to this instant.
    pub effective_at: DbTime,
    pub by: String,
    pub what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    Created,
    Paused,
    Resumed,
    Deleted,
    /// With the previous definition, if it is known.
    Edited(Option<Was>),
}

/// The part of a definition that determines its ticks.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Was {
    pub enabled: bool,
    pub schedule: Option<ScheduleSpec>,
}

impl Was {
    #[must_use]
    pub fn of(job: &Job) -> Self {
        Self { enabled: job.spec.enabled, schedule: job.spec.schedule.clone() }
    }
}

/// The row of a tick.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TickRecord {
    pub run: RunId,
    pub state: State,
    pub skip_reason: Option<SkipReason>,
    pub due_at: DbTime,
    pub started_at: Option<DbTime>,
    pub finished_at: Option<DbTime>,
    pub attempt: u32,
    pub node: Option<String>,
    pub error: Option<String>,
}
