//! The answer of `explain`: why a job ran or did not run at an instant.

use everytick_domain::{
    explain::{Explanation as Domain, Kind as DomainKind},
    ids::RunId,
    run::State,
    time::DbTime,
};
use serde::Serialize;
use utoipa::ToSchema;

/// The kind of explanation.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Run,
    Skipped,
    NotATick,
    NoSchedule,
    Paused,
    Disabled,
    NotYetMade,
    Deleted,
    OutOfBounds,
    DefinitionChanged,
    NotYetDue,
    WillBeSkipped,
    NotYetRecorded,
    OutOfHistory,
    Missing,
}

same_words! {
    Kind = DomainKind {
        Run, Skipped, NotATick, NoSchedule, Paused, Disabled, NotYetMade, Deleted, OutOfBounds, DefinitionChanged, NotYetDue,
        WillBeSkipped, NotYetRecorded, OutOfHistory, Missing
    }
}

/// Why a job ran or did not run at an instant, as text and as fields.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Explanation {
    #[schema(example = "nightly-report")]
    job: String,
    #[schema(value_type = String, format = DateTime)]
    at: DbTime,
    #[schema(inline)]
    kind: Kind,
    /// The explanation as text.
    #[schema(example = "2026-12-25T02:00:00Z: skipped: calendar holidays-de excludes the date")]
    message: String,
    /// The run or skip that is recorded under this tick's id.
    #[schema(value_type = Option<String>, format = Uuid)]
    run: Option<RunId>,
    #[schema(example = "succeeded")]
    state: Option<&'static str>,
    #[schema(example = "calendar")]
    skip_reason: Option<&'static str>,
    /// The range of ticks that were skipped together with this one.
    range: Option<SkippedRange>,
    /// The calendar that excludes the instant.
    calendar: Option<String>,
    /// Who paused, deleted, created or changed the job.
    by: Option<String>,
    /// Since when that applies.
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<DbTime>,
    /// The nearest ticks of the definition that applied then, if the instant is not a tick.
    #[schema(value_type = Option<String>, format = DateTime)]
    tick_before: Option<DbTime>,
    #[schema(value_type = Option<String>, format = DateTime)]
    tick_after: Option<DbTime>,
    /// Runs that backfills created for the instant, in addition to the tick's own record. At most 10.
    backfilled: Vec<BackfilledRun>,
}

/// A run that a backfill created for an instant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BackfilledRun {
    #[schema(value_type = String, format = Uuid)]
    run: RunId,
    #[schema(example = "succeeded")]
    state: &'static str,
}

/// Ticks that were skipped together; both ends are included.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkippedRange {
    #[schema(value_type = String, format = DateTime)]
    from: DbTime,
    #[schema(value_type = String, format = DateTime)]
    to: DbTime,
    count: u64,
}

impl Explanation {
    pub(crate) fn new(job: &str, told: Domain) -> Self {
        let record = told.record.as_ref();
        let state = record.map(|record| record.state).or(told.range.map(|_| State::Skipped));
        Self {
            job: job.to_owned(),
            at: told.at,
            kind: told.kind.into(),
            message: told.words,
            run: record.map(|record| record.run),
            state: state.map(State::word),
            skip_reason: told.skip_reason.map(|reason| reason.word()),
            range: told.range.map(|range| SkippedRange { from: range.from, to: range.to, count: range.count }),
            calendar: told.calendar,
            by: told.by,
            since: told.since,
            tick_before: told.before,
            tick_after: told.after,
            backfilled: told
                .backfilled
                .iter()
                .map(|one| BackfilledRun { run: one.run, state: one.state.word() })
                .collect(),
        }
    }
}
