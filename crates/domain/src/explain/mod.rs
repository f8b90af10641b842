//! Explains why a job ran or did not run at one instant, in words and fields. Decides from loaded facts: the present job, its
//! changes and their times, and the recorded rows. `facts` has the input, `answer` the decision, `words` the text.

mod answer;
mod facts;
#[cfg(test)]
mod tests;
mod words;

use crate::{
    job::Job,
    plan::SkipRange,
    run::SkipReason,
    time::{DbTime, Span},
};

use self::{answer::explain_tick, words::state_words};
pub use self::{
    facts::{Backfilled, Changed, Facts, TickRecord, Was, What},
    words::reason_words,
};

/// A tick that is not recorded after this long is overdue.
pub const OVERDUE_AFTER: Span = Span::minutes(2);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $word:literal),* $(,)?) => {
        /// The kind of answer. Programs may rely on its word.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Kind { $($(#[$doc])* $name),* }
        impl Kind {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }
        }
    };
}
kinds! {
    /// The tick has a run.
    Run = "run",
    /// The tick is recorded as a skip.
    Skipped = "skipped",
    NotATick = "not_a_tick",
    NoSchedule = "no_schedule",
    Paused = "paused",
    Disabled = "disabled",
    NotYetMade = "not_yet_made",
    Deleted = "deleted",
    /// Before `starts_at` or after `ends_at`.
    OutOfBounds = "out_of_bounds",
    /// A tick of another definition than the one in force at that time, or that definition is unknown.
    DefinitionChanged = "definition_changed",
    NotYetDue = "not_yet_due",
    /// In the future, and a calendar excludes it.
    WillBeSkipped = "will_be_skipped",
    /// Due, but not recorded yet.
    NotYetRecorded = "not_yet_recorded",
    /// The record of that time was pruned.
    OutOfHistory = "out_of_history",
    /// It should be recorded but is not.
    Missing = "missing",
}

/// The explanation of one instant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    pub at: DbTime,
    pub kind: Kind,
    pub words: String,
    pub record: Option<TickRecord>,
    pub skip_reason: Option<SkipReason>,
    pub range: Option<SkipRange>,
    /// The calendar that excludes the instant.
    pub calendar: Option<String>,
    /// The author of the change that explains the answer, and when it took effect.
    pub by: Option<String>,
    pub since: Option<DbTime>,
    /// The nearest ticks of the definition in force at that time.
    pub before: Option<DbTime>,
    pub after: Option<DbTime>,
    /// Backfilled runs of the instant, in addition to the tick's own record.
    pub backfilled: Vec<Backfilled>,
}

/// How many backfilled runs of one instant are listed.
pub const BACKFILLED_SHOWN_MAX: usize = 10;

/// The default instant to explain: the last tick that the schedule should have had by now.
#[must_use]
pub fn expected(job: &Job, now: DbTime) -> DbTime {
    let until = job.deleted_at.map_or(now, |deleted| deleted.min(now));
    let since = after(job.created_at);
    job.schedule.as_ref().and_then(|schedule| schedule.last_up_to(since, until)).unwrap_or(now)
}

#[must_use]
pub fn explain(facts: &Facts, at: DbTime) -> Explanation {
    let mut explanation = explain_tick(facts, at);
    for Backfilled { run, state } in &facts.backfilled {
        explanation.words += &format!("; backfilled: run {run} {}", state_words(*state));
    }
    explanation.backfilled.clone_from(&facts.backfilled);
    explanation
}

fn after(at: DbTime) -> DbTime {
    at.plus(Span::millis(1))
}

fn before(at: DbTime) -> DbTime {
    at.minus(Span::millis(1))
}
