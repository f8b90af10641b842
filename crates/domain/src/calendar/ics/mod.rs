//! Imports dates from an iCalendar file (RFC 5545): events of whole days, once or by a yearly or monthly rule. Imports every event
//! that dates can represent, and returns the others with line and reason, so that no holiday is silently missing.

mod rule;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use self::rule::{Rule, Years};
use super::{CALENDAR_ENTRIES_MAX, CalendarSpec, Days, MonthDay, day_number};
use crate::{invalid::Invalid, schedule::date::date_of, time::DbTime};

/// The longest accepted duration of an event with a rule, in days. Longer events are not holidays.
const REPEATED_DAYS_MAX: i64 = 60;

/// The calendar of a file, and what could not be imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Imported {
    pub spec: CalendarSpec,
    pub left_out: Vec<LeftOut>,
}

/// An event of a file that was not imported, or only in part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LeftOut {
    /// The line of the problem.
    pub line: usize,
    /// The event's SUMMARY.
    pub event: String,
    pub reason: String,
}

impl LeftOut {
    fn invalid(&self) -> Invalid {
        Invalid::new(format!("line {}", self.line), format!("the event {:?}: {}", self.event, self.reason))
    }
}

/// Reads the calendar in an ICS file. Its zone is `timezone`, else the file's `X-WR-TIMEZONE`, else UTC. A rule without
/// an end becomes yearly days if possible; otherwise it is expanded for the years around `now`. Refuses a file that has
/// events if none of them can be imported.
pub fn from_ics(text: &str, timezone: Option<&str>, now: DbTime) -> Result<Imported, Vec<Invalid>> {
    let mut file = File::new(now);
    for line in unfolded(text) {
        file.take(&line).map_err(|message| vec![Invalid::new(format!("line {}", line.number), message)])?;
    }
    if !file.begun {
        return Err(vec![Invalid::new("", "is not an iCalendar file: it has no BEGIN:VCALENDAR")]);
    }
    if let Some(event) = file.event {
        return Err(vec![Invalid::new(format!("line {}", event.line), "the event that begins here has no END:VEVENT")]);
    }
    if let Some(line) = file.open {
        let message = "the calendar that begins here has no END:VCALENDAR: the file is not complete; get it again";
        return Err(vec![Invalid::new(format!("line {line}"), message)]);
    }
    file.add_events().map_err(|(line, message)| vec![Invalid::new(format!("line {line}"), message)])?;
    if file.dates.is_empty() && file.yearly.is_empty() && !file.left_out.is_empty() {
        return Err(file.left_out.iter().map(LeftOut::invalid).collect());
    }
    let zone = timezone.map(str::to_owned).or(file.zone).unwrap_or_else(|| "UTC".to_owned());
    Ok(Imported { spec: CalendarSpec::new(&zone, file.dates, file.yearly)?, left_out: file.left_out })
}

struct Line {
    number: usize,
    name: String,
    params: Vec<(String, String)>,
    value: String,
}

/// Joins continued lines and splits each into its parts.
fn unfolded(text: &str) -> Vec<Line> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        match (line.strip_prefix([' ', '\t']), lines.last_mut()) {
            (Some(more), Some((_, before))) => before.push_str(more),
            _ if line.trim().is_empty() => {}
            _ => lines.push((number + 1, line.to_owned())),
        }
    }
    lines.into_iter().map(|(number, line)| parts(number, &line)).collect()
}

/// Splits `NAME;PARAM=VALUE:value`. A quoted parameter may contain `;` and `:`.
fn parts(number: usize, line: &str) -> Line {
    let (mut quoted, mut cuts, mut colon) = (false, Vec::new(), line.len());
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            ';' if !quoted => cuts.push(at),
            ':' if !quoted => {
                colon = at;
                break;
            }
            _ => {}
        }
    }
    let mut pieces = Vec::new();
    let mut from = 0;
    for cut in cuts.into_iter().chain([colon]) {
        pieces.push(&line[from..cut]);
        from = cut + 1;
    }
    let param = |text: &&str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        (name.to_ascii_uppercase(), value.trim_matches('"').to_owned())
    };
    Line {
        number,
        name: pieces.first().map_or_else(String::new, |name| name.trim().to_ascii_uppercase()),
        params: pieces.iter().skip(1).map(param).collect(),
        value: line.get(colon + 1..).unwrap_or_default().trim().to_owned(),
    }
}

struct File {
    years: Years,
    begun: bool,
    /// The line on which the calendar begins that has not ended yet.
    open: Option<usize>,
    zone: Option<String>,
    event: Option<Event>,
    events: Vec<Event>,
    /// Names of enclosing components, such as alarms, whose lines are ignored.
    inside: Vec<String>,
    dates: Vec<Days>,
    yearly: Vec<MonthDay>,
    left_out: Vec<LeftOut>,
}

#[derive(Default)]
struct Event {
    line: usize,
    /// Events with the same UID are a series and its changed occurrences.
    uid: String,
    /// The day of the occurrence of the series that this event replaces.
    replaces: Option<i64>,
    summary: String,
    first: Option<i64>,
    /// Exclusive.
    end: Option<i64>,
    /// DTSTART is midnight, not a date. Such an event lasts whole days only if it has an end.
    at_midnight: bool,
    length: Option<i64>,
    /// The RRULE and its line.
    rule: Option<(usize, String)>,
    more: Vec<i64>,
    except: Vec<i64>,
    cancelled: bool,
    /// Why the event cannot be imported: the line of the first problem, and the reason.
    wrong: Option<(usize, String)>,
}

impl File {
    fn new(now: DbTime) -> Self {
        let (events, inside, dates, yearly, left_out) = Default::default();
        let years = Years::around(now);
        Self { years, begun: false, open: None, zone: None, event: None, events, inside, dates, yearly, left_out }
    }

    fn take(&mut self, line: &Line) -> Result<(), String> {
        match (line.name.as_str(), line.value.to_ascii_uppercase().as_str()) {
            ("BEGIN", "VCALENDAR") => (self.begun, self.open) = (true, Some(line.number)),
            ("END", "VCALENDAR") => self.open = None,
            ("BEGIN", "VEVENT") if self.inside.is_empty() => {
                if self.event.is_some() {
                    return Err("an event begins inside another".to_owned());
                }
                self.event = Some(Event { line: line.number, ..Event::default() });
            }
            ("BEGIN", other) => self.inside.push(other.to_owned()),
            ("END", "VEVENT") if self.inside.is_empty() => {
                self.events.push(self.event.take().ok_or("END:VEVENT without BEGIN:VEVENT")?);
            }
            ("END", other) if self.inside.last().is_some_and(|inside| inside == other) => _ = self.inside.pop(),
            ("X-WR-TIMEZONE", _) if self.event.is_none() => self.zone = Some(line.value.clone()),
            _ => {
                if let Some(event) = self.event.as_mut().filter(|_| self.inside.is_empty())
                    && let Err(reason) = event.take(line)
                {
                    event.wrong.get_or_insert((line.number, reason));
                }
            }
        }
        Ok(())
    }

    /// Adds the events. A changed occurrence may come before its series, so this needs all of them.
    fn add_events(&mut self) -> Result<(), (usize, String)> {
        let (events, none) = (std::mem::take(&mut self.events), BTreeSet::new());
        let mut replaced: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for event in events.iter().filter(|event| !event.uid.is_empty()) {
            replaced.entry(&event.uid).or_default().extend(event.replaces);
        }
        for event in &events {
            let replaced = replaced.get(event.uid.as_str()).filter(|_| event.replaces.is_none());
            self.add_event(event, replaced.unwrap_or(&none)).map_err(|message| (event.line, message))?;
        }
        Ok(())
    }

    fn add_event(&mut self, event: &Event, replaced: &BTreeSet<i64>) -> Result<(), String> {
        if event.cancelled {
            return Ok(());
        }
        let left_out = match event.wrong() {
            Some(wrong) => Some(wrong),
            None => self.add(event, replaced).unwrap_or_else(Some),
        };
        self.left_out.extend(left_out.map(|(line, reason)| LeftOut { line, event: event.summary.clone(), reason }));
        if self.dates.len() + self.yearly.len() > 2 * CALENDAR_ENTRIES_MAX {
            return Err(format!("has more than {CALENDAR_ENTRIES_MAX} entries, the most that a calendar may have"));
        }
        Ok(())
    }

    /// Adds the dates of an event, without the `replaced` occurrences. If the event is imported only in part, returns
    /// the line and the reason.
    fn add(&mut self, event: &Event, replaced: &BTreeSet<i64>) -> Result<Option<(usize, String)>, (usize, String)> {
        let (first, end) = event.days().map_err(|reason| (event.line, reason))?;
        let lasts = end - first;
        let mut through = None;
        let starts = match &event.rule {
            None => vec![first],
            Some((line, _)) if lasts > REPEATED_DAYS_MAX => {
                let reason = format!("repeats and lasts {lasts} days; at most {REPEATED_DAYS_MAX} are supported");
                return Err((*line, reason));
            }
            Some((line, rule)) => match Rule::read(rule, first).map_err(|reason| (*line, reason))? {
                rule if rule.is_yearly() && event.except.is_empty() && replaced.is_empty() => {
                    let days = (first..end).map(date_of);
                    self.yearly.extend(days.map(|date| MonthDay { month: date.month, day: date.day }));
                    Vec::new()
                }
                rule => {
                    through = rule.is_endless().then_some((*line, self.years.last));
                    rule.starts(self.years)
                }
            },
        };
        let is_left = |start: &i64| !event.except.contains(start) && !replaced.contains(start);
        let starts = starts.into_iter().chain(event.more.iter().copied()).filter(is_left);
        self.dates.extend(starts.map(|start| Days::new(start, start + lasts - 1)));
        Ok(through.map(|(line, year)| {
            (line, format!("repeats without an end; its dates through {year} are imported, later ones are not"))
        }))
    }
}

impl Event {
    /// Why the event cannot be imported: the line and the reason.
    fn wrong(&self) -> Option<(usize, String)> {
        let nameless = self.replaces.is_some() && self.uid.is_empty();
        let no_uid = || (self.line, "has a RECURRENCE-ID and no UID, so its series is not known".to_owned());
        self.wrong.clone().or_else(|| nameless.then(no_uid))
    }

    /// Its first day, and the day after its last.
    fn days(&self) -> Result<(i64, i64), String> {
        let first = self.first.ok_or("has no DTSTART")?;
        let end = match (self.end, self.length) {
            (Some(end), _) => end,
            (None, Some(length)) => first + length,
            (None, None) if self.at_midnight => {
                return Err("begins at midnight and has no DTEND or DURATION".to_owned());
            }
            (None, None) => first + 1,
        };
        if end > first { Ok((first, end)) } else { Err("ends before it begins".to_owned()) }
    }

    fn take(&mut self, line: &Line) -> Result<(), String> {
        match line.name.as_str() {
            "UID" => self.uid.clone_from(&line.value),
            "RECURRENCE-ID" if line.params.iter().any(|(name, _)| name == "RANGE") => {
                return Err("RECURRENCE-ID: RANGE=THISANDFUTURE is not supported; write a second event".to_owned());
            }
            "RECURRENCE-ID" => self.replaces = Some(date(line)?),
            "SUMMARY" => self.summary = line.value.chars().take(100).collect(),
            "DTSTART" => {
                self.first = Some(date(line)?);
                self.at_midnight = line.value.contains('T');
            }
            "DTEND" => self.end = Some(date(line)?),
            "DURATION" => self.length = Some(whole_days(&line.value)?),
            "RRULE" if self.rule.is_some() => return Err("has a second RRULE; only one is supported".to_owned()),
            "RRULE" => self.rule = Some((line.number, line.value.to_ascii_uppercase())),
            "RDATE" => self.more.extend(dates(line)?),
            "EXDATE" => self.except.extend(dates(line)?),
            "EXRULE" => return Err("EXRULE is not supported; write EXDATE".to_owned()),
            "STATUS" => self.cancelled = line.value.eq_ignore_ascii_case("CANCELLED"),
            _ => {}
        }
        Ok(())
    }
}

fn date(line: &Line) -> Result<i64, String> {
    one_date(&line.name, &line.value)
}

fn dates(line: &Line) -> Result<Vec<i64>, String> {
    if line.params.iter().any(|(name, value)| name == "VALUE" && value.eq_ignore_ascii_case("PERIOD")) {
        return Err(format!("{}: periods are not supported; only whole days are", line.name));
    }
    line.value.split(',').map(|value| one_date(&line.name, value.trim())).collect()
}

fn with_time(name: &str, value: &str) -> String {
    format!("{name}: {value:?} has a time of day; only whole days are imported, such as {name};VALUE=DATE:20261225")
}

/// A date, or midnight in the zone of the calendar, which some programs write for events of whole days.
fn one_date(name: &str, value: &str) -> Result<i64, String> {
    let value = match value.get(8..9) {
        Some("T") if value.get(8..) == Some("T000000") => &value[..8],
        Some("T") => return Err(with_time(name, value)),
        _ => value,
    };
    let number = |from: usize, to: usize| value.get(from..to).and_then(|digits| digits.parse::<i32>().ok());
    let sound = value.len() == 8 && value.bytes().all(|byte| byte.is_ascii_digit());
    let read = || day_number(number(0, 4)?, number(4, 6)?, number(6, 8)?);
    read().filter(|_| sound).ok_or_else(|| format!("{name}: {value:?} is not a date; write it like 20261225"))
}

/// `P1D` or `P2W`.
fn whole_days(text: &str) -> Result<i64, String> {
    let wrong = || format!("DURATION: {text:?} is not a number of whole days, such as P1D");
    let inner = text.strip_prefix('P').ok_or_else(wrong)?;
    let (digits, days) = match (inner.strip_suffix('D'), inner.strip_suffix('W')) {
        (Some(digits), _) => (digits, 1),
        (None, Some(digits)) => (digits, 7),
        (None, None) => return Err(wrong()),
    };
    let number: i64 = digits.parse().map_err(|_| wrong())?;
    if (1..=3_660).contains(&number) { Ok(number * days) } else { Err(wrong()) }
}
