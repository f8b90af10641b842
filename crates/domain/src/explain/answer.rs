//! Chooses the answer for one instant. The recorded row is checked first, because it is certain. The definition in force at
//! that time is checked last.

use crate::{
    flow::DependsOn,
    job,
    plan::SkipRange,
    run::SkipReason,
    schedule::{CronCache, Nonexistent, Schedule, ScheduleSpec},
    time::DbTime,
};

use super::{
    Changed, Explanation, Facts, Kind, OVERDUE_AFTER, Question, RunFacts, What, after, before,
    edits::{Edits, edits_from},
    explain_run,
    local::{Local, about},
    outlook::disabled_since,
    run::parent_words,
    words::{author_words, late_words, reason_words, state_words},
};

pub(super) fn explain_instant(facts: &Facts, question: Question, at: DbTime, local: Local<'_>) -> Explanation {
    let answer = Answer { facts, question, at, in_force: in_force(facts, at), local };
    if let Some(run) = &facts.run {
        return answer.recorded(run);
    }
    if let Some(open) = answer.newest_open_run() {
        return open;
    }
    if at <= facts.job.created_at {
        return answer.not_yet_made();
    }
    if let Some(gone) = facts.job.deleted_at.filter(|gone| at > *gone) {
        return answer.and_newest_run(answer.deleted(gone));
    }
    if let Some(pause) = answer.pause() {
        return answer.and_newest_run(answer.paused(pause));
    }
    if !answer.in_force.enabled {
        return answer.and_newest_run(answer.disabled());
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

/// A pause that contains the instant.
struct Pause<'a> {
    since: DbTime,
    by: Option<&'a str>,
    /// `None` if it still lasts.
    until: Option<DbTime>,
}

struct Answer<'a> {
    facts: &'a Facts,
    question: Question,
    at: DbTime,
    in_force: InForce,
    local: Local<'a>,
}

impl Answer<'_> {
    fn of(&self, kind: Kind, words: &str) -> Explanation {
        Explanation::new(self.local, self.at, kind, words)
    }

    /// An answer with the change that explains it: the author, and when the change took effect.
    fn since(&self, kind: Kind, words: &str, by: Option<&str>, since: DbTime) -> Explanation {
        Explanation { by: by.map(str::to_owned), since: Some(since), ..self.of(kind, words) }
    }

    fn text(&self, at: DbTime) -> String {
        self.local.text(at)
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

    fn recorded(&self, run: &RunFacts) -> Explanation {
        let mut answer = explain_run(run, self.local.shown_in());
        if answer.skip_reason == Some(SkipReason::Calendar)
            && let Some(calendar) = self.excluded_by()
        {
            let words = format!("skipped: {}", reason_words(SkipReason::Calendar, Some(&calendar)));
            answer.words = self.of(Kind::Skipped, &words).words;
            answer.calendar = Some(calendar);
        }
        answer.details.extend(self.clock_note());
        answer
    }

    fn excluded_by(&self) -> Option<String> {
        let excluded = self.in_force.schedule.as_ref().and_then(|schedule| schedule.excluded(self.at));
        excluded.map(|excluded| excluded.calendar.to_owned())
    }

    /// What a clock change does to the tick.
    fn clock_note(&self) -> Option<String> {
        self.in_force.schedule.as_ref().and_then(|schedule| schedule.clock_note(self.at))
    }

    fn skipped_range(&self, range: SkipRange) -> Explanation {
        let calendar = self.excluded_by().filter(|_| range.reason == SkipReason::Calendar);
        let words = format!(
            "skipped: {}{}; it is one of the {} ticks from {} to {} that were skipped as one range",
            reason_words(range.reason, calendar.as_deref()),
            late_words(range.reason, Some(&self.facts.job)),
            range.count,
            self.text(range.from),
            self.text(range.to)
        );
        let answer = self.of(Kind::Skipped, &words);
        Explanation { skip_reason: Some(range.reason), range: Some(range), calendar, ..answer }
    }

    fn not_yet_made(&self) -> Explanation {
        let made = self.facts.job.created_at;
        let by = self.facts.job.created_by.as_str();
        let words = format!("the job did not exist yet; {by} created it at {}", self.text(made));
        self.since(Kind::NotYetMade, &words, Some(by), made)
    }

    fn deleted(&self, gone: DbTime) -> Explanation {
        let by = self.who(|what| *what == What::Deleted, gone);
        self.since(Kind::Deleted, &self.deleted_words(gone), by, gone)
    }

    fn deleted_words(&self, gone: DbTime) -> String {
        let by = self.who(|what| *what == What::Deleted, gone);
        format!("the job was deleted{} at {}", author_words(by), self.text(gone))
    }

    /// The newest run of a job without a schedule, if no instant was asked for.
    fn newest_run(&self) -> Option<&RunFacts> {
        let has_no_schedule = self.in_force.known && self.in_force.schedule.is_none();
        self.facts.last.as_deref().filter(|_| has_no_schedule && self.question.at.is_none())
    }

    /// The newest run of a job without a schedule while it is open. It does not end with a pause, a disabling or the deletion of
    /// the job, so these are only details of the answer.
    fn newest_open_run(&self) -> Option<Explanation> {
        let last = self.newest_run().filter(|last| last.run.state.is_open())?;
        let stopped = match (self.facts.job.deleted_at, self.pause()) {
            (Some(gone), _) => self.deleted_words(gone),
            (None, Some(pause)) => self.pause_words(&pause),
            (None, None) if !self.in_force.enabled => "the job is disabled (`enabled` is false)".to_owned(),
            (None, None) => return None,
        };
        let mut answer = explain_run(last, self.local.shown_in());
        answer.details.push(format!("{stopped}; this does not end its open runs"));
        Some(answer)
    }

    /// Adds how the newest run of a job without a schedule ended.
    fn and_newest_run(&self, mut answer: Explanation) -> Explanation {
        if let Some(last) = self.newest_run() {
            let at = last.run.finished_at.map(|at| format!(" at {}", self.text(at))).unwrap_or_default();
            let (run, state) = (last.run.run, state_words(last.run.state));
            answer.details.push(format!("its newest run, {run}, {state}{at}"));
            answer.commands.push(format!("everytick run explain {run}"));
        }
        answer
    }

    /// The pause that contains the instant, if any.
    fn pause(&self) -> Option<Pause<'_>> {
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
        let resumed =
            self.facts.changes.iter().find(|changed| {
                changed.effective_at >= self.at && matches!(changed.what, What::Resumed | What::Deleted)
            });
        Some(Pause { since, by: by.map(String::as_str), until: resumed.map(|changed| changed.effective_at) })
    }

    fn pause_words(&self, pause: &Pause<'_>) -> String {
        let until =
            pause.until.map_or_else(|| " and still is".to_owned(), |until| format!(" until {}", self.text(until)));
        let present = self.facts.job.paused.as_ref().filter(|paused| paused.at == pause.since);
        let note = present.and_then(|paused| paused.note.as_ref()).map(|note| format!(" ({note})")).unwrap_or_default();
        format!("the job was paused{} at {}{until}{note}", author_words(pause.by), self.text(pause.since))
    }

    fn paused(&self, pause: Pause<'_>) -> Explanation {
        let words = format!("no tick: {}", self.pause_words(&pause));
        let mut answer = self.since(Kind::Paused, &words, pause.by, pause.since);
        if pause.until.is_none() {
            answer.commands.push(format!("everytick job resume {}", self.facts.job.spec.name));
        }
        answer
    }

    /// The edits since the instant.
    fn edits(&self) -> Edits<'_> {
        edits_from(self.facts, self.at)
    }

    fn disabled(&self) -> Explanation {
        let edits = self.edits();
        if let Some(edit) = edits.first(|edit| edit.result.enabled) {
            let (by, at) = (&edit.changed.by, self.text(edit.changed.effective_at));
            return self.of(Kind::Disabled, &format!("no tick: the job was disabled; {by} enabled it at {at}"));
        }
        if !edits.are_known {
            return self.of(Kind::Disabled, "no tick: the job was disabled");
        }
        let words = "no tick: the job is disabled (`enabled` is false)";
        let mut answer = match disabled_since(&self.facts.changes) {
            None => self.of(Kind::Disabled, words),
            Some((by, since)) => {
                let words = format!("{words}; {by} disabled it at {}", self.text(since));
                self.since(Kind::Disabled, &words, Some(by), since)
            }
        };
        answer.commands.push(format!("everytick job update {} --enabled", self.facts.job.spec.name));
        answer
    }

    fn without_schedule(&self) -> Explanation {
        match &self.in_force.ended {
            Some(ended) if !self.in_force.known => {
                let at = self.text(ended.effective_at);
                let words =
                    format!("the definition was changed by {} at {at}, and the previous one is not known", ended.by);
                self.since(Kind::DefinitionChanged, &words, Some(&ended.by), ended.effective_at)
            }
            _ => self.no_schedule_yet(),
        }
    }

    /// A job that had no schedule at the instant.
    fn no_schedule_yet(&self) -> Explanation {
        let edits = self.edits();
        match edits.first(|edit| edit.result.schedule.is_some()) {
            Some(edit) => {
                let (by, at) = (&edit.changed.by, edit.changed.effective_at);
                let words = format!("no tick: the job had no schedule; one was added by {by} at {}", self.text(at));
                self.since(Kind::NoSchedule, &words, Some(by), at)
            }
            None if edits.are_known => self.never_ticks(),
            None => self.of(Kind::NoSchedule, "no tick: the job had no schedule"),
        }
    }

    /// A job that other jobs or requests start. Unless an instant was asked for, its newest run is the answer.
    fn never_ticks(&self) -> Explanation {
        let starts = format!("the job has no schedule; it runs when {}it is triggered", self.followed());
        let last = self.facts.last.as_ref().filter(|_| self.question.at.is_none());
        let mut answer = match last {
            Some(last) => {
                let mut answer = explain_run(last, self.local.shown_in());
                answer.details.push(starts);
                answer
            }
            None if self.question.at.is_none() => self.of(Kind::NoSchedule, &format!("it has not run yet: {starts}")),
            None => self.of(Kind::NoSchedule, &format!("no tick: {starts}")),
        };
        let is_newer = |run| last.is_none_or(|last| run > last.run.run);
        let parents =
            self.facts.parents.iter().filter(|parent| parent.run.as_ref().is_none_or(|run| is_newer(run.run)));
        answer.details.extend(parents.map(|parent| parent_words(parent, self.local)));
        answer
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
        let (before, following) = (schedule.last_up_to(since, before(self.at)), schedule.next_after(self.at));
        let mut answer = self.no_tick(schedule, before, following);
        if answer.kind == Kind::OutOfBounds {
            answer.details.extend(before.map(|tick| format!("the last tick was {}", self.local.both(tick))));
        }
        Explanation { before, after: following, ..answer }
    }

    fn no_tick(&self, schedule: &Schedule, before: Option<DbTime>, following: Option<DbTime>) -> Explanation {
        let spec = self.in_force.spec.as_ref();
        if let Some(starts) = spec.and_then(|spec| spec.starts_at).filter(|starts| self.at < *starts) {
            let words = format!("no tick: the schedule starts at {}", self.text(starts));
            return self.since(Kind::OutOfBounds, &words, None, starts);
        }
        if let Some(ends) = spec.and_then(|spec| spec.ends_at).filter(|ends| self.at > *ends) {
            let ended = if ends > self.facts.now { "ends" } else { "ended" };
            let words = format!("no tick: the schedule {ended} at {} (ends_at)", self.text(ends));
            return self.since(Kind::OutOfBounds, &words, None, ends);
        }
        let near = self.near(before, following);
        if let Some(absent) = self.nonexistent(schedule) {
            return self.of(Kind::NotATick, &format!("no tick: {}; {near}", absent.note));
        }
        if let Some((tick, note)) = schedule.other_pass(self.at).filter(|_| self.question.until.is_none()) {
            return self
                .of(Kind::NotATick, &format!("not a tick of the schedule: {note}; that tick is {}", self.text(tick)));
        }
        self.replaced(&near).unwrap_or_else(|| match self.question.until {
            Some(until) => {
                let words = format!("no tick from here to before {}; {near}", self.text(until));
                self.of(Kind::NotATick, &words)
            }
            None => self.of(Kind::NotATick, &format!("not a tick of the schedule; {near}")),
        })
    }

    /// The answer for an instant that is not a tick of the schedule in force then, if an edit has replaced that
    /// schedule since. `None` if no edit has.
    fn replaced(&self, near: &str) -> Option<Explanation> {
        let edits = self.edits();
        let is_tick = self.facts.job.schedule.as_ref().is_some_and(|now| now.first_from(self.at) == Some(self.at));
        if let Some(edit) = edits.last_of_schedule().filter(|_| is_tick) {
            let (by, at) = (&edit.changed.by, edit.changed.effective_at);
            let words = format!(
                "not a tick of the definition in force then, only of the definition that {by} set at {}; in the former, \
                 {near}",
                self.text(at)
            );
            return Some(self.since(Kind::DefinitionChanged, &words, Some(by), at));
        }
        let when = match edits.end_of(self.in_force.spec.as_ref()) {
            Some(end) => format!("until {}", self.text(end)),
            None if edits.are_known => return None,
            None => "then".to_owned(),
        };
        let words = format!("not a tick of the definition in force {when}; in that definition, {near}");
        Some(self.of(Kind::NotATick, &words))
    }

    fn near(&self, before: Option<DbTime>, following: Option<DbTime>) -> String {
        match (before, following) {
            (Some(before), Some(following)) => {
                format!("the nearest ticks are {} and {}", self.text(before), self.text(following))
            }
            (Some(before), None) => format!("the last tick was {}", self.text(before)),
            (None, Some(following)) => format!("the first tick is {}", self.text(following)),
            (None, None) => "it has no ticks".to_owned(),
        }
    }

    /// The times of the schedule that do not exist because of a clock change at the instant, or in the period.
    fn nonexistent(&self, schedule: &Schedule) -> Option<Nonexistent> {
        let Some(until) = self.question.until else { return schedule.nonexistent_at(self.at) };
        let absent = schedule.preview(before(self.at), 1).nonexistent;
        absent.into_iter().find(|absent| absent.at < until)
    }

    /// Answers for a tick of the definition in force at that time that has no row of its own.
    fn tick(&self, schedule: &Schedule) -> Explanation {
        let now = self.facts.now;
        if let Some(range) = self.facts.range {
            return self.skipped_range(range);
        }
        if self.at > now {
            return self.future(schedule);
        }
        if self.at < self.facts.kept_from {
            let kept = self.text(self.facts.kept_from);
            let words = format!("the record of that time has been pruned; history goes back to {kept}");
            return self.since(Kind::OutOfHistory, &words, None, self.facts.kept_from);
        }
        let passed = self.in_force.ended.is_some() || self.facts.cursor.is_none_or(|cursor| self.at < cursor);
        if passed {
            let words = "a tick that should be recorded but is not. This should not happen: please report it";
            return self.of(Kind::Missing, words);
        }
        let late = now.since(self.at);
        if late <= OVERDUE_AFTER {
            return self.of(Kind::NotYetRecorded, "due, but not recorded yet");
        }
        let words = format!("due for {}, but no node has recorded it: is a node running?", about(late));
        let mut answer = self.of(Kind::NotYetRecorded, &words);
        answer.commands.push("everytick cluster".to_owned());
        answer
    }

    fn future(&self, schedule: &Schedule) -> Explanation {
        let wait = about(self.at.since(self.facts.now));
        let mut answer = match self.excluded_by() {
            Some(calendar) => {
                let words = format!("a tick that will be skipped: calendar {calendar} excludes it");
                Explanation { calendar: Some(calendar), ..self.of(Kind::WillBeSkipped, &words) }
            }
            None => {
                let is_first = schedule.last_up_to(after(self.facts.job.created_at), self.facts.now).is_none()
                    && schedule.next_after(self.facts.now) == Some(self.at);
                let first = if is_first { "the first tick; " } else { "" };
                self.of(Kind::NotYetDue, &format!("{first}not yet due: it will run in {wait}"))
            }
        };
        answer.details.extend(self.clock_note());
        answer.details.push(format!("the database time is {}", self.local.both(self.facts.now)));
        answer
    }
}
