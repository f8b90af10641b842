//! Explains why a job ran or did not run at one instant, and why a run is in its state, in words and fields. Decides from loaded
//! facts: the present job, its changes and their times, and the recorded rows.
//!
//! | file | content |
//! |---|---|
//! | `facts`, `run/facts` | the input |
//! | `edits` | the definition that each edit set |
//! | `answer`, `run` | the decisions |
//! | `outlook` | the next tick |
//! | `words`, `local` | the text |

mod answer;
mod edits;
mod facts;
mod local;
mod outlook;
mod run;
#[cfg(test)]
mod tests;
mod words;

use crate::{
    job::Job,
    plan::SkipRange,
    run::SkipReason,
    time::{DbTime, Span},
};

use self::{answer::explain_instant, local::Local};
pub use self::{
    facts::{Backfilled, Changed, Facts, Was, What},
    local::ShownIn,
    outlook::no_ticks,
    run::{
        AHEAD_COUNTED_MAX, Action, Asked, Attempt, ClaimFacts, Did, FlowFacts, FlowJob, FlowRun, Parent, QueueFacts,
        RunFacts, RunRow, explain_run,
    },
    words::reason_words,
};

/// A tick that is not recorded after this long is overdue.
pub const OVERDUE_AFTER: Span = Span::minutes(2);

/// How many backfills over one instant are listed.
pub const BACKFILLED_SHOWN_MAX: usize = 10;

/// At most this many runs in the way are listed. A run is in the way of another run if it blocks that run or is the
/// cause of its skip.
pub const IN_THE_WAY_SHOWN_MAX: usize = 5;

macro_rules! worded {
    ($($(#[$top:meta])* $enum:ident { $($(#[$doc:meta])* $name:ident = $word:literal),* $(,)? })*) => {$(
        $(#[$top])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $enum { $($(#[$doc])* $name),* }
        impl $enum {
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }
        }
    )*};
}
worded! {
    /// The kind of answer. Programs may rely on its word.
    Kind {
        /// There is a run.
        Run = "run",
        /// The tick or the request is recorded as a skip.
        Skipped = "skipped",
        NotATick = "not_a_tick",
        NoSchedule = "no_schedule",
        Paused = "paused",
        Disabled = "disabled",
        NotYetMade = "not_yet_made",
        Deleted = "deleted",
        /// Before `starts_at` or after `ends_at`.
        OutOfBounds = "out_of_bounds",
        /// Not a tick of the definition in force at that time, only of another one. Or the definition of that time is
        /// unknown.
        DefinitionChanged = "definition_changed",
        NotYetDue = "not_yet_due",
        /// A future tick that a calendar excludes.
        WillBeSkipped = "will_be_skipped",
        /// Due, but not recorded yet.
        NotYetRecorded = "not_yet_recorded",
        /// The record of that time was pruned.
        OutOfHistory = "out_of_history",
        /// The tick should be recorded but is not.
        Missing = "missing",
    }
    /// Why a run waits, or how it ended. Programs may rely on its word.
    Reason {
        /// The jitter of the schedule delays the run.
        DueLater = "due_later",
        RetryLater = "retry_later",
        /// As many runs of the job are in progress as its overlap policy allows.
        JobBusy = "job_busy",
        /// As many runs with its concurrency key are in progress as the job allows.
        KeyBusy = "key_busy",
        /// The concurrency limit of the queue is reached.
        QueueLimit = "queue_limit",
        /// The rate of the queue is used up.
        QueueRate = "queue_rate",
        /// Since the run became due, no worker has asked for the queue, and no worker is busy with another run of it.
        NoWorker = "no_worker",
        /// Since the run became due, no worker has asked for the queue: the workers are busy with other runs of it.
        WorkersBusy = "workers_busy",
        /// Other runs of the queue are claimed first.
        BehindOthers = "behind_others",
        /// The next worker that asks for the queue gets the run.
        NextClaim = "next_claim",
        /// No node owns the job's partition.
        NoNode = "no_node",
        /// The node starts the run when it has a free slot.
        WaitsForSlot = "waits_for_slot",
        /// The run is being cancelled in the background.
        BeingCancelled = "being_cancelled",
        InProgress = "in_progress",
        /// The worker that claimed the run has not sent the heartbeat that is due.
        NoHeartbeat = "no_heartbeat",
        Succeeded = "succeeded",
        /// The run failed. Whether retries were left is not known, because the job was edited since, or was pruned.
        Failed = "failed",
        /// It failed, and all its retries are used.
        AttemptsUsed = "attempts_used",
        /// It failed, and the target allowed no retry.
        NotRetried = "not_retried",
        /// The node or worker that claimed the run vanished, and the run is not delivered again.
        Lost = "lost",
        /// The run was cancelled by request.
        Cancelled = "cancelled",
        /// A newer run of the job replaced it.
        Superseded = "superseded",
    }
}

/// The explanation of one instant of a job, or of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    pub at: DbTime,
    /// The same instant in the job's zone.
    pub local: String,
    /// The zone of the job's cron expression; `None` for a job without one.
    pub zone: Option<String>,
    pub kind: Kind,
    pub reason: Option<Reason>,
    pub words: String,
    /// Further sentences: where the run comes from, what else matters, and what comes next.
    pub details: Vec<String>,
    /// Commands that show more or that help.
    pub commands: Vec<String>,
    pub record: Option<RunRow>,
    /// The runs for which the explained run waits, or because of which it was skipped.
    pub in_the_way: Vec<RunRow>,
    pub skip_reason: Option<SkipReason>,
    pub range: Option<SkipRange>,
    /// The calendar that excludes the instant.
    pub calendar: Option<String>,
    /// The queue in which the run waits.
    pub queue: Option<QueueFacts>,
    /// The author of the change that explains the answer, and when it took effect.
    pub by: Option<String>,
    pub since: Option<DbTime>,
    /// The nearest ticks of the definition in force at that time.
    pub before: Option<DbTime>,
    pub after: Option<DbTime>,
    /// The next tick that will fire.
    pub next_tick: Option<DbTime>,
    /// Backfills over the instant, in addition to the tick's own record.
    pub backfilled: Vec<Backfilled>,
}

impl Explanation {
    fn new(local: Local<'_>, at: DbTime, kind: Kind, words: &str) -> Self {
        Self {
            at,
            local: local.in_job_zone(at),
            zone: local.zone().map(str::to_owned),
            kind,
            reason: None,
            words: format!("{}: {words}", local.both(at)),
            details: Vec::new(),
            commands: Vec::new(),
            record: None,
            in_the_way: Vec::new(),
            skip_reason: None,
            range: None,
            calendar: None,
            queue: None,
            by: None,
            since: None,
            before: None,
            after: None,
            next_tick: None,
            backfilled: Vec::new(),
        }
    }
}

/// What a user asks about a job: one instant, or the first tick of a period. If neither is given: the last expected
/// tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Question {
    pub at: Option<DbTime>,
    /// With `at`: the first tick from `at` to before this.
    pub until: Option<DbTime>,
}

impl Question {
    #[must_use]
    pub const fn at(at: DbTime) -> Self {
        Self { at: Some(at), until: None }
    }

    /// The instant to explain.
    #[must_use]
    pub fn instant(self, job: &Job, now: DbTime) -> DbTime {
        let Some(at) = self.at else { return expected(job, now) };
        let tick = job.schedule.as_ref().and_then(|schedule| schedule.first_from(at));
        tick.filter(|tick| self.until.is_some_and(|until| *tick < until)).unwrap_or(at)
    }
}

/// The default instant to explain: the last tick that was due by now, or the first tick if none was due.
#[must_use]
pub fn expected(job: &Job, now: DbTime) -> DbTime {
    let until = job.deleted_at.map_or(now, |deleted| deleted.min(now));
    let since = after(job.created_at);
    let Some(schedule) = &job.schedule else { return now };
    let last = schedule.last_up_to(since, until);
    last.or_else(|| schedule.next_after(until).filter(|_| job.deleted_at.is_none())).unwrap_or(now)
}

/// Explains an instant of a job. `shown_in` applies to the text, not to [`Explanation::local`].
#[must_use]
pub fn explain(facts: &Facts, question: Question, shown_in: ShownIn) -> Explanation {
    let at = question.instant(&facts.job, facts.now);
    let local = Local::of(&facts.job, shown_in);
    let mut explanation = explain_instant(facts, question, at, local);
    let is_tick = facts.job.schedule.as_ref().is_some_and(|schedule| schedule.first_from(at) == Some(at));
    // A backfill creates no run for an instant that is not a tick.
    for backfilled in facts.backfilled.iter().filter(|backfilled| is_tick || backfilled.state.is_some()) {
        if let Some(words) = words::backfilled_words(backfilled, local) {
            explanation.words += &format!("; {words}");
            explanation.backfilled.push(backfilled.clone());
        }
    }
    explanation.details.extend(first_of_many(&facts.job, question, at, local));
    words::suggest_backfill(&mut explanation, &facts.job);
    outlook::add(&mut explanation, facts, local);
    explanation
}

/// How many ticks the period has, if the answer is about the first of several.
fn first_of_many(job: &Job, question: Question, at: DbTime, local: Local<'_>) -> Option<String> {
    let (schedule, until) = (job.schedule.as_ref()?, question.until?);
    let count = schedule.count(at, before(until));
    let is_first = count > 1 && schedule.first_from(at) == Some(at);
    is_first.then(|| format!("the first of {count} ticks before {}", local.text(until)))
}

fn after(at: DbTime) -> DbTime {
    at.plus(Span::millis(1))
}

fn before(at: DbTime) -> DbTime {
    at.minus(Span::millis(1))
}
