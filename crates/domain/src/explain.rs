//! Explains why a job ran or did not run at one instant, in words and fields. Decides from loaded facts: the present job, its
//! changes and their times, and the recorded rows.

use std::sync::Arc;

use crate::{
    calendar::Calendar,
    flow::DependsOn,
    ids::RunId,
    job::{self, Job},
    plan::SkipRange,
    run::{SkipReason, State},
    schedule::{CronCache, Schedule, ScheduleSpec},
    time::{DbTime, Span},
};

/// A tick that is not recorded after this long is overdue.
pub const OVERDUE_AFTER: Span = Span::minutes(2);

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
pub const BACKFILLED_TOLD_MAX: usize = 10;

/// The default instant to explain: the last tick that the schedule should have had by now.
#[must_use]
pub fn expected(job: &Job, now: DbTime) -> DbTime {
    let until = job.deleted_at.map_or(now, |deleted| deleted.min(now));
    let since = after(job.created_at);
    job.schedule.as_ref().and_then(|schedule| schedule.last_up_to(since, until)).unwrap_or(now)
}

#[must_use]
pub fn explain(facts: &Facts, at: DbTime) -> Explanation {
    let mut told = explain_tick(facts, at);
    for Backfilled { run, state } in &facts.backfilled {
        told.words += &format!("; backfilled: run {run} {}", state_words(*state));
    }
    told.backfilled.clone_from(&facts.backfilled);
    told
}

const fn state_words(state: State) -> &'static str {
    match state {
        State::Waiting => "waits",
        State::Claimed => "is in progress",
        State::Succeeded => "succeeded",
        State::Failed => "failed",
        State::Cancelled => "was cancelled",
        State::Skipped => "was skipped",
        State::Unknown(_) => "is in a state that only a later release knows",
    }
}

fn explain_tick(facts: &Facts, at: DbTime) -> Explanation {
    let answer = Answer { facts, at, in_force: in_force(facts, at) };
    if let Some(record) = &facts.record {
        return answer.recorded(record);
    }
    if at <= facts.job.created_at {
        return answer.not_yet_made();
    }
    if let Some(gone) = facts.job.deleted_at.filter(|gone| at > *gone) {
        let by = answer.who(|what| *what == What::Deleted, gone);
        return answer.of(Kind::Deleted, format!("the job was deleted{} at {gone}", told(by)), by, Some(gone));
    }
    if let Some(pause) = answer.pause() {
        return pause;
    }
    if !answer.in_force.enabled {
        return answer.disabled();
    }
    let Some(schedule) = &answer.in_force.schedule else { return answer.without_schedule() };
    if schedule.first_from(at) != Some(at) {
        return answer.not_a_tick(schedule);
    }
    answer.tick(schedule)
}

/// The definition in force at an instant.
struct InForce {
    enabled: bool,
    spec: Option<ScheduleSpec>,
    schedule: Option<Schedule>,
    /// The edit that replaced it; `None` for the present definition.
    ended: Option<Changed>,
    known: bool,
}

fn in_force(facts: &Facts, at: DbTime) -> InForce {
    let later = |changed: &&Changed| changed.effective_at >= at && matches!(changed.what, What::Edited(_));
    let Some(ended) = facts.changes.iter().find(later) else {
        let (spec, schedule) = (facts.job.spec.schedule.clone(), facts.job.schedule.clone());
        return InForce { enabled: facts.job.spec.enabled, spec, schedule, ended: None, known: true };
    };
    let ended = ended.clone();
    let What::Edited(Some(was)) = ended.what.clone() else {
        return InForce { enabled: true, spec: None, schedule: None, ended: Some(ended), known: false };
    };
    let mut spec = (*facts.job.spec).clone();
    spec.schedule.clone_from(&was.schedule);
    // A calendar that was deleted since cannot be applied any more, so it excludes nothing here.
    let schedule = job::compile(&spec, &facts.calendars, &CronCache::default())
        .unwrap_or_else(|_| was.schedule.as_ref().and_then(|schedule| Schedule::compile(schedule).ok()));
    let known = schedule.is_some() == was.schedule.is_some();
    InForce { enabled: was.enabled, spec: was.schedule, schedule, ended: Some(ended), known }
}

struct Answer<'a> {
    facts: &'a Facts,
    at: DbTime,
    in_force: InForce,
}

impl Answer<'_> {
    fn of(&self, kind: Kind, words: String, by: Option<&str>, since: Option<DbTime>) -> Explanation {
        Explanation {
            at: self.at,
            kind,
            words: format!("{}: {words}", self.at),
            record: None,
            skip_reason: None,
            range: None,
            calendar: None,
            by: by.map(str::to_owned),
            since,
            before: None,
            after: None,
            backfilled: Vec::new(),
        }
    }

    /// The author of the change of this kind that took effect at `x`.
    fn who(&self, kind: impl Fn(&What) -> bool, x: DbTime) -> Option<&str> {
        self.facts
            .changes
            .iter()
            .rev()
            .find(|changed| changed.effective_at == x && kind(&changed.what))
            .map(|changed| changed.by.as_str())
    }

    fn recorded(&self, record: &TickRecord) -> Explanation {
        let mut answer = match record.skip_reason {
            Some(reason) => self.skip(reason, None),
            None => self.of(Kind::Run, run_words(record), None, None),
        };
        answer.record = Some(record.clone());
        answer
    }

    fn skip(&self, reason: SkipReason, range: Option<SkipRange>) -> Explanation {
        let excluded = self.in_force.schedule.as_ref().and_then(|schedule| schedule.excluded(self.at));
        let calendar = excluded.filter(|_| reason == SkipReason::Calendar).map(|excluded| excluded.calendar.to_owned());
        let within = range.map(|range| {
            format!(
                "; it is one of the {} ticks from {} to {} that were skipped as one range",
                range.count, range.from, range.to
            )
        });
        let words = format!("skipped: {}{}", reason_words(reason, calendar.as_deref()), within.unwrap_or_default());
        let answer = self.of(Kind::Skipped, words, None, None);
        Explanation { skip_reason: Some(reason), range, calendar, ..answer }
    }

    fn not_yet_made(&self) -> Explanation {
        let made = self.facts.job.created_at;
        let by = self.facts.job.created_by.as_str();
        let words = format!("the job did not exist yet; {by} created it at {made}");
        self.of(Kind::NotYetMade, words, Some(by), Some(made))
    }

    /// The pause that contains the instant, if any.
    fn pause(&self) -> Option<Explanation> {
        let before =
            |changed: &&Changed| changed.effective_at < self.at && matches!(changed.what, What::Paused | What::Resumed);
        let last = self.facts.changes.iter().rfind(before);
        let by_trail = last
            .filter(|changed| changed.what == What::Paused)
            .map(|changed| (changed.effective_at, Some(&changed.by)));
        // If the audit trail does not reach back far enough, use the job's own pause.
        let by_job =
            self.facts.job.paused.as_ref().filter(|paused| paused.at < self.at).map(|paused| (paused.at, None));
        let (since, by) = by_trail.or(by_job)?;
        let resumed = self
            .facts
            .changes
            .iter()
            .find(|changed| changed.effective_at >= self.at && matches!(changed.what, What::Resumed | What::Deleted))
            .map_or_else(|| " and still is".to_owned(), |changed| format!(" until {}", changed.effective_at));
        let note =
            self.facts.job.paused.as_ref().filter(|paused| paused.at == since).and_then(|paused| paused.note.as_ref());
        let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
        let by = by.map(String::as_str);
        let words = format!("no tick: the job was paused{} at {since}{resumed}{note}", told(by));
        Some(self.of(Kind::Paused, words, by, Some(since)))
    }

    fn disabled(&self) -> Explanation {
        let words = match &self.in_force.ended {
            Some(ended) => format!("no tick: the job was disabled; {} enabled it at {}", ended.by, ended.effective_at),
            None => "no tick: the job is disabled (`enabled` is false)".to_owned(),
        };
        self.of(Kind::Disabled, words, None, None)
    }

    fn without_schedule(&self) -> Explanation {
        let (by, x) = (
            self.in_force.ended.as_ref().map(|ended| ended.by.as_str()),
            self.in_force.ended.as_ref().map(|ended| ended.effective_at),
        );
        match x {
            Some(x) if !self.in_force.known => {
                let words = format!("the definition was changed{} at {x}, and the previous one is not known", told(by));
                self.of(Kind::DefinitionChanged, words, by, Some(x))
            }
            Some(x) => {
                let words = format!("no tick: the job had no schedule; one was added{} at {x}", told(by));
                self.of(Kind::NoSchedule, words, by, Some(x))
            }
            None => self.of(
                Kind::NoSchedule,
                format!("no tick: the job has no schedule; it runs when {}it is triggered", self.followed()),
                None,
                None,
            ),
        }
    }

    /// The parent jobs that start it, as text.
    fn followed(&self) -> String {
        let parents = &self.facts.job.spec.depends_on;
        let parent = |parent: &DependsOn| format!("{} has {}", parent.job, parent.when.word());
        if parents.is_empty() {
            return String::new();
        }
        format!("{}, or when ", parents.iter().map(parent).collect::<Vec<_>>().join(" and "))
    }

    fn not_a_tick(&self, schedule: &Schedule) -> Explanation {
        let since = after(self.facts.job.created_at);
        let (before, behind) = (schedule.last_up_to(since, before(self.at)), schedule.next_after(self.at));
        let answer = self.no_tick_words(before, behind);
        Explanation { before, after: behind, ..answer }
    }

    fn no_tick_words(&self, before: Option<DbTime>, behind: Option<DbTime>) -> Explanation {
        let spec = self.in_force.spec.as_ref();
        if let Some(starts) = spec.and_then(|spec| spec.starts_at).filter(|starts| self.at < *starts) {
            return self.of(Kind::OutOfBounds, format!("no tick: the schedule starts at {starts}"), None, Some(starts));
        }
        if let Some(ends) = spec.and_then(|spec| spec.ends_at).filter(|ends| self.at > *ends) {
            return self.of(Kind::OutOfBounds, format!("no tick: the schedule ended at {ends}"), None, Some(ends));
        }
        let near = match (before, behind) {
            (Some(before), Some(behind)) => format!("the nearest ticks are {before} and {behind}"),
            (Some(before), None) => format!("the last tick was {before}"),
            (None, Some(behind)) => format!("the first tick is {behind}"),
            (None, None) => "it has no ticks".to_owned(),
        };
        let is_now = self.facts.job.schedule.as_ref().is_some_and(|now| now.first_from(self.at) == Some(self.at));
        match &self.in_force.ended {
            Some(ended) if is_now => {
                let words = format!(
                    "not a tick of the definition in force then, only of the one that {} set at {}; in the former, {near}",
                    ended.by, ended.effective_at
                );
                self.of(Kind::DefinitionChanged, words, Some(&ended.by), Some(ended.effective_at))
            }
            Some(ended) => {
                let words = format!(
                    "not a tick of the definition in force until {}; in that definition, {near}",
                    ended.effective_at
                );
                self.of(Kind::NotATick, words, None, None)
            }
            None => self.of(Kind::NotATick, format!("not a tick of the schedule; {near}"), None, None),
        }
    }

    /// A tick of the definition in force then, without a row of its own.
    fn tick(&self, schedule: &Schedule) -> Explanation {
        let now = self.facts.now;
        if let Some(range) = self.facts.range {
            return self.skip(range.reason, Some(range));
        }
        if self.at > now {
            if let Some(excluded) = schedule.excluded(self.at) {
                let words = format!("a tick that will be skipped: calendar {} excludes it", excluded.calendar);
                let answer = self.of(Kind::WillBeSkipped, words, None, None);
                return Explanation { calendar: Some(excluded.calendar.to_owned()), ..answer };
            }
            let words = format!("not yet due: the database time is {now}");
            return self.of(Kind::NotYetDue, words, None, None);
        }
        if self.at < self.facts.kept_from {
            let words =
                format!("the record of that time has been pruned; history goes back to {}", self.facts.kept_from);
            return self.of(Kind::OutOfHistory, words, None, Some(self.facts.kept_from));
        }
        let passed = self.in_force.ended.is_some() || self.facts.cursor.is_none_or(|cursor| self.at < cursor);
        if passed {
            let words =
                "a tick that should be recorded but is not. This should not happen: please report it".to_owned();
            return self.of(Kind::Missing, words, None, None);
        }
        let overdue =
            if now.since(self.at) > OVERDUE_AFTER { "; no node has recorded it: is a node running?" } else { "" };
        self.of(Kind::NotYetRecorded, format!("due, but not recorded yet{overdue}"), None, None)
    }
}

fn told(by: Option<&str>) -> String {
    by.map(|by| format!(" by {by}")).unwrap_or_default()
}

fn run_words(record: &TickRecord) -> String {
    let run = record.run;
    let at = |at: Option<DbTime>| at.map(|at| format!(" at {at}")).unwrap_or_default();
    let why = record.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    match record.state {
        State::Waiting if record.attempt > 0 => {
            format!("run {run} waits for its next attempt, due at {}{why}", record.due_at)
        }
        State::Waiting => format!("run {run} waits to be started; it was due at {}", record.due_at),
        State::Claimed => {
            let node = record.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
            format!("run {run} is in progress{node}, attempt {}", record.attempt)
        }
        State::Succeeded => format!("run {run} succeeded{}", at(record.finished_at)),
        State::Failed => format!("run {run} failed{}{why}", at(record.finished_at)),
        State::Cancelled => format!("run {run} was cancelled{}", at(record.finished_at)),
        State::Skipped => format!("run {run} was skipped"),
        State::Unknown(code) => format!("run {run} is in state {code}, which only a later release knows"),
    }
}

/// Why there is no run, as text for users.
#[must_use]
pub fn reason_words(reason: SkipReason, calendar: Option<&str>) -> String {
    match reason {
        SkipReason::Overlap => {
            "as many runs of the job as its overlap policy allows were still open, or a newer tick was due as well"
                .to_owned()
        }
        SkipReason::Misfire => "it was recorded too late to fire: it was older than the job's grace".to_owned(),
        SkipReason::CatchUp => "it was late and catch-up did not choose it".to_owned(),
        SkipReason::Calendar => match calendar {
            Some(calendar) => format!("calendar {calendar} excludes the date"),
            None => "a calendar excluded the date".to_owned(),
        },
        SkipReason::Quota => "too many runs of the job were already waiting".to_owned(),
        SkipReason::Error => "the database rejected it, and the job was paused".to_owned(),
        SkipReason::Parent => "a parent did not end as depends_on requires".to_owned(),
        SkipReason::Paused => "the job was paused when the flow reached it".to_owned(),
        SkipReason::Unknown(code) => format!("the reason has code {code}, which only a later release knows"),
    }
}

fn after(at: DbTime) -> DbTime {
    at.plus(Span::millis(1))
}

fn before(at: DbTime) -> DbTime {
    at.minus(Span::millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        calendar::{CalendarSpec, CalendarVersion},
        ids::{Cause, Version},
        plan::tests::{job, spec},
        schedule::Timing,
    };

    const DAY: i64 = 86_400;
    /// 2026-11-16T00:00:00Z; the job ticks at every full minute.
    const BEGIN: i64 = 1_794_787_200;

    fn s(seconds: i64) -> DbTime {
        DbTime::from_millis((BEGIN + seconds) * 1_000)
    }

    /// A job that fires each minute, created 100 days ago, with nothing recorded.
    fn facts() -> Facts {
        let mut job = job(spec(Span::minutes(1)));
        job.created_at = s(-100 * DAY);
        Facts {
            job,
            cursor: Some(s(3_660)),
            now: s(3_630),
            kept_from: s(-90 * DAY),
            changes: vec![changed(-100 * DAY, What::Created)],
            calendars: Vec::new(),
            record: None,
            range: None,
            backfilled: Vec::new(),
        }
    }

    fn changed(x: i64, what: What) -> Changed {
        Changed { effective_at: s(x), by: "ann".into(), what }
    }

    fn record(state: State, skip_reason: Option<SkipReason>) -> TickRecord {
        TickRecord {
            run: RunId::floor(s(60)),
            state,
            skip_reason,
            due_at: s(60),
            started_at: None,
            finished_at: Some(s(61)),
            attempt: 1,
            node: Some("a".into()),
            error: (state == State::Failed).then(|| "404".into()),
        }
    }

    fn every(seconds: u64) -> Was {
        Was { enabled: true, schedule: Some(Timing::Every { every: Span::seconds(seconds) }.into()) }
    }

    fn calendar(date: &str) -> Arc<Calendar> {
        let spec = CalendarSpec::new("UTC", vec![date.parse().unwrap()], vec![]).unwrap();
        let version = CalendarVersion::new(Version::from_raw(1), s(-100 * DAY), &spec).unwrap();
        Arc::new(Calendar::new("holidays", vec![version]).unwrap())
    }

    fn naming(facts: &mut Facts, date: &str) {
        let mut named = (*facts.job.spec).clone();
        named.schedule.as_mut().unwrap().exclude = vec!["holidays".into()];
        facts.calendars = vec![calendar(date)];
        facts.job.schedule = job::compile(&named, &facts.calendars, &CronCache::default()).unwrap();
        facts.job.spec = Arc::new(named);
    }

    type Case = (&'static str, i64, fn(&mut Facts), Kind, &'static [&'static str]);

    /// Situation, instant, change of the facts, the kind of the answer, and what its text must contain.
    const CASES: &[Case] = &[
        (
            "a run that succeeded",
            60,
            |f| f.record = Some(record(State::Succeeded, None)),
            Kind::Run,
            &["succeeded", "2026-11-16T00:01:01Z"],
        ),
        ("a run that failed", 60, |f| f.record = Some(record(State::Failed, None)), Kind::Run, &["failed", "404"]),
        (
            "a run in progress",
            60,
            |f| f.record = Some(record(State::Claimed, None)),
            Kind::Run,
            &["is in progress on a"],
        ),
        (
            "a run that waits",
            60,
            |f| f.record = Some(TickRecord { attempt: 0, ..record(State::Waiting, None) }),
            Kind::Run,
            &["waits to be started"],
        ),
        (
            "an overlap",
            60,
            |f| f.record = Some(record(State::Skipped, Some(SkipReason::Overlap))),
            Kind::Skipped,
            &["overlap policy", "still open"],
        ),
        (
            "a misfire in a range",
            60,
            |f| f.range = Some(SkipRange { from: s(0), to: s(3_000), count: 51, reason: SkipReason::Misfire }),
            Kind::Skipped,
            &["older than the job's grace", "51 ticks from 2026-11-16T00:00:00Z"],
        ),
        (
            "a recorded holiday",
            60,
            |f| {
                naming(f, "2026-11-16");
                f.record = Some(record(State::Skipped, Some(SkipReason::Calendar)));
            },
            Kind::Skipped,
            &["calendar holidays excludes the date"],
        ),
        ("a future holiday", 40 * DAY, |f| naming(f, "2026-12-26"), Kind::WillBeSkipped, &["calendar holidays"]),
        ("not a tick", 90, |_| (), Kind::NotATick, &["2026-11-16T00:01:00Z", "2026-11-16T00:02:00Z"]),
        ("not yet due", 3_720, |_| (), Kind::NotYetDue, &["2026-11-16T01:00:30Z"]),
        (
            "before it was created",
            -101 * DAY,
            |_| (),
            Kind::NotYetMade,
            &["did not exist yet", "created it at 2026-08-08"],
        ),
        (
            "after it was deleted",
            120,
            |f| {
                f.job.deleted_at = Some(s(90));
                f.changes.push(changed(90, What::Deleted));
            },
            Kind::Deleted,
            &["deleted by ann at 2026-11-16T00:01:30Z"],
        ),
        (
            "in an earlier pause",
            120,
            |f| f.changes.extend([changed(90, What::Paused), changed(200, What::Resumed)]),
            Kind::Paused,
            &["paused by ann at 2026-11-16T00:01:30Z", "until 2026-11-16T00:03:20Z"],
        ),
        (
            "in the present pause",
            120,
            |f| {
                f.job.paused = Some(job::Paused { at: s(90), note: Some("moving".into()) });
                f.changes.push(changed(90, What::Paused));
            },
            Kind::Paused,
            &["paused by ann", "still is", "(moving)"],
        ),
        (
            "while it is disabled",
            120,
            |f| {
                let mut disabled = (*f.job.spec).clone();
                disabled.enabled = false;
                f.job.spec = Arc::new(disabled);
            },
            Kind::Disabled,
            &["disabled"],
        ),
        (
            "a tick of the new definition only",
            120,
            |f| f.changes.push(changed(150, What::Edited(Some(every(7_200))))),
            Kind::DefinitionChanged,
            &["in force then", "ann set at 2026-11-16T00:02:30Z"],
        ),
        (
            "an unknown definition",
            120,
            |f| f.changes.push(changed(150, What::Edited(None))),
            Kind::DefinitionChanged,
            &["not known"],
        ),
        (
            "no tick of the old definition either",
            121,
            |f| f.changes.push(changed(150, What::Edited(Some(every(10))))),
            Kind::NotATick,
            &["in force until 2026-11-16T00:02:30Z", "00:02:00Z and 2026-11-16T00:02:10Z"],
        ),
        (
            "before it starts",
            120,
            |f| {
                let mut bounded = (*f.job.spec).clone();
                bounded.schedule.as_mut().unwrap().starts_at = Some(s(180));
                f.job.schedule = job::compile(&bounded, &[], &CronCache::default()).unwrap();
                f.job.spec = Arc::new(bounded);
            },
            Kind::OutOfBounds,
            &["starts at 2026-11-16T00:03:00Z"],
        ),
        (
            "after it ended",
            120,
            |f| {
                let mut bounded = (*f.job.spec).clone();
                bounded.schedule.as_mut().unwrap().ends_at = Some(s(60));
                f.job.schedule = job::compile(&bounded, &[], &CronCache::default()).unwrap();
                f.job.spec = Arc::new(bounded);
            },
            Kind::OutOfBounds,
            &["ended at 2026-11-16T00:01:00Z"],
        ),
        (
            "without a schedule",
            120,
            |f| {
                let mut manual = (*f.job.spec).clone();
                manual.schedule = None;
                f.job.schedule = None;
                f.job.spec = Arc::new(manual);
            },
            Kind::NoSchedule,
            &["runs when it is triggered"],
        ),
        (
            "without a schedule, with a parent",
            120,
            |f| {
                let mut child = (*f.job.spec).clone();
                child.schedule = None;
                child.depends_on = vec![DependsOn { job: "a".into(), when: crate::flow::When::Finished }];
                f.job.schedule = None;
                f.job.spec = Arc::new(child);
            },
            Kind::NoSchedule,
            &["runs when a has finished, or when it is triggered"],
        ),
        ("pruned history", -95 * DAY, |_| (), Kind::OutOfHistory, &["has been pruned", "goes back to 2026-08-18"]),
        ("a missing tick", 120, |_| (), Kind::Missing, &["should not happen"]),
        (
            "a due tick that is being recorded",
            3_600,
            |f| f.cursor = Some(s(3_600)),
            Kind::NotYetRecorded,
            &["not recorded yet"],
        ),
        ("an overdue tick", 120, |f| f.cursor = Some(s(60)), Kind::NotYetRecorded, &["is a node running?"]),
    ];

    #[test]
    fn every_situation_is_explained() {
        assert!(CASES.len() >= 15);
        for (situation, at, stand, kind, says) in CASES {
            let mut facts = facts();
            stand(&mut facts);
            let answer = explain(&facts, s(*at));
            assert_eq!(answer.kind, *kind, "{situation}: {}", answer.words);
            assert!(answer.words.starts_with(&s(*at).to_string()), "{situation}: {}", answer.words);
            for word in *says {
                assert!(answer.words.contains(word), "{situation}: {} does not contain {word:?}", answer.words);
            }
        }
        for kind in Kind::ALL {
            assert!(CASES.iter().any(|case| case.3 == *kind), "{kind:?} is not in the table");
        }
    }

    #[test]
    fn the_fields_agree_with_the_text() {
        let mut facts = facts();
        naming(&mut facts, "2026-11-16");
        facts.range = Some(SkipRange { from: s(60), to: s(1_800), count: 30, reason: SkipReason::Calendar });
        let answer = explain(&facts, s(60));
        assert_eq!((answer.skip_reason, answer.calendar.as_deref()), (Some(SkipReason::Calendar), Some("holidays")));
        assert_eq!(answer.range, facts.range);
        let answer = explain(&facts, s(61));
        assert_eq!((answer.before, answer.after), (Some(s(60)), Some(s(120))), "a range contains only ticks");
    }

    #[test]
    fn the_default_instant_is_the_last_expected_tick() {
        let mut facts = facts();
        assert_eq!(expected(&facts.job, facts.now), s(3_600));
        facts.job.deleted_at = Some(s(150));
        assert_eq!(expected(&facts.job, facts.now), s(120));
        facts.job.schedule = None;
        assert_eq!(expected(&facts.job, facts.now), facts.now);
    }

    #[test]
    fn the_id_of_a_tick_contains_its_instant() {
        let facts = facts();
        assert_eq!(RunId::of(facts.job.id, Cause::Tick(s(60))).time(), s(60));
    }

    #[test]
    fn backfilled_runs_are_listed_besides_the_record_of_the_tick() {
        let run = RunId::floor(DbTime::from_millis(7));
        let told = |state| {
            let facts = Facts { backfilled: vec![Backfilled { run, state }], ..facts() };
            explain(&facts, facts.job.created_at)
        };
        let alone = explain(&facts(), facts().job.created_at);
        let beside = told(State::Failed);
        assert_eq!((beside.kind, &beside.record), (alone.kind, &alone.record));
        assert_eq!(beside.words, format!("{}; backfilled: run {run} failed", alone.words));
        assert_eq!(beside.backfilled, [Backfilled { run, state: State::Failed }]);
        for (state, words) in [(State::Waiting, "waits"), (State::Claimed, "is in progress")] {
            assert!(told(state).words.ends_with(words));
        }
    }
}
