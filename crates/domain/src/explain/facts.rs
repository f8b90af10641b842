//! What an explanation of an instant is made from. The store loads it.

use std::sync::Arc;

use crate::{
    calendar::Calendar,
    ids::{BackfillId, RunId},
    job::Job,
    plan::SkipRange,
    run::State,
    schedule::ScheduleSpec,
    time::DbTime,
};

use super::{Parent, RunFacts};

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
    /// The run or skip with the tick's id.
    pub run: Option<Box<RunFacts>>,
    /// The range of skips that contains the instant.
    pub range: Option<SkipRange>,
    /// Backfills over the instant. Their runs do not count as the record of the tick.
    pub backfilled: Vec<Backfilled>,
    /// The newest run of a job without a schedule.
    pub last: Option<Box<RunFacts>>,
    /// The parents of a job without a schedule, each with its newest run.
    pub parents: Vec<Parent>,
}

/// A backfill over an instant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backfilled {
    pub backfill: BackfillId,
    pub by: String,
    pub created_at: DbTime,
    /// Its run for the instant, whether it exists or not.
    pub run: RunId,
    /// `None` if the run does not exist.
    pub state: Option<State>,
    /// The backfill still creates runs.
    pub is_running: bool,
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
    /// Contains the previous definition, if it is known.
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
