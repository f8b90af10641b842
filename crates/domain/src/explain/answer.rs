//! Chooses the answer for one instant. The checks go from what is certain (a row) to what follows from the definition in force
//! at that time.

use crate::{
    flow::DependsOn,
    job,
    plan::SkipRange,
    run::SkipReason,
    schedule::{CronCache, Schedule, ScheduleSpec},
    time::DbTime,
};

use super::{
    Changed, Explanation, Facts, Kind, OVERDUE_AFTER, TickRecord, What, after, before,
    words::{author_words, reason_words, run_words},
};

pub(super) fn explain_tick(facts: &Facts, at: DbTime) -> Explanation {
    let answer = Answer { facts, at, in_force: in_force(facts, at) };
    if let Some(record) = &facts.record {
        return answer.recorded(record);
    }
    if at <= facts.job.created_at {
        return answer.not_yet_made();
    }
    if let Some(gone) = facts.job.deleted_at.filter(|gone| at > *gone) {
        let by = answer.who(|what| *what == What::Deleted, gone);
        return answer.of(Kind::Deleted, format!("the job was deleted{} at {gone}", author_words(by)), by, Some(gone));
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
        let words = format!("no tick: the job was paused{} at {since}{resumed}{note}", author_words(by));
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
                let words =
                    format!("the definition was changed{} at {x}, and the previous one is not known", author_words(by));
                self.of(Kind::DefinitionChanged, words, by, Some(x))
            }
            Some(x) => {
                let words = format!("no tick: the job had no schedule; one was added{} at {x}", author_words(by));
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
