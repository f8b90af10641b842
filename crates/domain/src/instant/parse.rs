//! The grammar: which texts are times. Nothing here needs the present time or the caller's zone.

use std::{fmt, str::FromStr};

use jiff::civil::{Date, Time};

use super::LocalZone;
use crate::time::{DbTime, Span};

/// The forms, for error messages.
const FORMS: &str = "write a date (\"2026-11-16\"), a date and a time (\"2026-11-16 07:00\"), a time (\"07:00\"), now, today, \
                     yesterday, tomorrow, a duration (\"2h ago\", \"in 2h\"), or RFC 3339 (\"2026-11-16T07:00:00Z\")";

/// Longer texts cannot be a time. Bounds the error message, which repeats the text.
const LENGTH_MAX: usize = 100;

/// A year has four digits: `26-11-16` could be in November 2026 or in November 2016.
const YEAR_DIGITS: usize = 4;

/// Units with their milliseconds.
const UNITS: [(&[&str], u64); 6] = [
    (&["ms"], 1),
    (&["s", "sec", "secs", "second", "seconds"], 1_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000),
    (&["d", "day", "days"], 86_400_000),
    (&["w", "week", "weeks"], 604_800_000),
];

/// A time as a person typed it. Its grammar is checked; its meaning is resolved later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstantText {
    pub(super) text: String,
    pub(super) form: Form,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// RFC 3339: needs neither the present time nor a zone.
    Exact(DbTime),
    Now,
    /// A duration before or after now. Without a direction, the flag decides.
    Elapsed {
        span: Span,
        direction: Option<Direction>,
    },
    /// A date, a time, or both, in the zone named in the text, else in the caller's zone.
    Local {
        day: Option<Day>,
        time: Option<Time>,
        zone: Option<LocalZone>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Past,
    Future,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Day {
    Date(Date),
    Yesterday,
    Today,
    Tomorrow,
}

impl InstantText {
    /// Whether the text is RFC 3339, which has only one meaning.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        matches!(self.form, Form::Exact(_))
    }

    /// Whether the meaning depends on the caller's zone: a local time that names no zone.
    #[must_use]
    pub const fn needs_zone(&self) -> bool {
        matches!(self.form, Form::Local { zone: None, .. })
    }
}

impl From<DbTime> for InstantText {
    fn from(at: DbTime) -> Self {
        Self { text: at.to_string(), form: Form::Exact(at) }
    }
}

impl fmt::Display for InstantText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for InstantText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown = text.trim();
        if shown.len() > LENGTH_MAX {
            return Err(format!("a text of {} bytes is not a time; {FORMS}", shown.len()));
        }
        Ok(Self { text: shown.to_owned(), form: form(shown)? })
    }
}

fn form(text: &str) -> Result<Form, String> {
    if text.parse::<jiff::Timestamp>().is_ok() {
        return text.parse().map(Form::Exact);
    }
    let lower = text.to_ascii_lowercase();
    if lower == "now" {
        return Ok(Form::Now);
    }
    match elapsed(&lower) {
        Some(Some(form)) => Ok(form),
        Some(None) => Err(format!("{text:?} has no duration; write it like \"2h ago\" or \"in 2h\"")),
        None => local(text),
    }
}

/// `None` if the text is not a duration. `Some(None)` if it has a direction (`ago`, `in`) but no valid duration.
fn elapsed(text: &str) -> Option<Option<Form>> {
    let signed = |sign: char| text.strip_prefix(sign).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let (rest, direction) = if let Some(rest) = text.strip_suffix(" ago").or_else(|| signed('-')) {
        (rest, Some(Direction::Past))
    } else if let Some(rest) = text.strip_prefix("in ").or_else(|| signed('+')) {
        (rest, Some(Direction::Future))
    } else {
        (text, None)
    };
    match (duration(rest), direction) {
        (Some(span), direction) => Some(Some(Form::Elapsed { span, direction })),
        (None, Some(_)) => Some(None),
        (None, None) => None,
    }
}

/// `2h`, `1h30m`, `2 hours`, `1 day 6 hours`: whole numbers, each with a unit.
fn duration(text: &str) -> Option<Span> {
    let mut rest = text.trim();
    let mut total: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let tail = tail.trim_start();
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let (_, millis) = UNITS.iter().find(|(names, _)| names.contains(&unit))?;
        total = number.parse::<u64>().ok()?.checked_mul(*millis).and_then(|part| total.checked_add(part))?;
        rest = tail.trim_start();
    }
    (total <= Span::MAX.as_millis()).then(|| Span::millis(total))
}

/// A day, a time, or both, then perhaps a zone.
fn local(text: &str) -> Result<Form, String> {
    let wrong = || format!("{text:?} is not a time; {FORMS}");
    let mut words: Vec<&str> = text.split_whitespace().collect();
    if let [date_and_time] = words.as_slice()
        && let Some((date, time)) = date_and_time.split_once(['T', 't'])
        && date.starts_with(|c: char| c.is_ascii_digit())
    {
        words = vec![date, time];
    }
    let day = words.first().map_or(Ok(None), |word| day(text, word))?;
    let rest = &words[usize::from(day.is_some())..];
    let time = rest.first().map_or(Ok(None), |word| time(text, word))?;
    let rest = &rest[usize::from(time.is_some())..];
    if day.is_none() && time.is_none() {
        return Err(wrong());
    }
    match rest {
        [] => Ok(Form::Local { day, time, zone: None }),
        [name] if name.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            let zone =
                LocalZone::named(name).map_err(|hint| format!("the time zone of {text:?} is not valid: {hint}"))?;
            Ok(Form::Local { day, time, zone: Some(zone) })
        }
        _ => Err(wrong()),
    }
}

fn day(text: &str, word: &str) -> Result<Option<Day>, String> {
    match word.to_ascii_lowercase().as_str() {
        "yesterday" => return Ok(Some(Day::Yesterday)),
        "today" => return Ok(Some(Day::Today)),
        "tomorrow" => return Ok(Some(Day::Tomorrow)),
        _ => {}
    }
    let Some([year, month, day]) = numbers(word, '-').filter(|_| word.find('-') == Some(YEAR_DIGITS)) else {
        return Ok(None);
    };
    let wrong = |why: String| Err(format!("{text:?} is not a date: {why}; write it like \"2026-11-16\""));
    let small = |number: u32| i8::try_from(number).unwrap_or(i8::MAX);
    let Ok(first) = Date::new(i16::try_from(year).unwrap_or(i16::MAX), small(month), 1) else {
        return wrong(format!("there is no month {month}"));
    };
    match first.with().day(small(day)).build() {
        Ok(date) => Ok(Some(Day::Date(date))),
        Err(_) => wrong(format!("{year:04}-{month:02} has {} days", first.days_in_month())),
    }
}

fn time(text: &str, word: &str) -> Result<Option<Time>, String> {
    let Some(parts) = numbers::<2>(word, ':').map(|[h, m]| [h, m, 0]).or_else(|| numbers::<3>(word, ':')) else {
        return Ok(None);
    };
    let [hour, minute, second] = parts.map(|part| i8::try_from(part).unwrap_or(i8::MAX));
    match Time::new(hour, minute, second, 0) {
        Ok(time) => Ok(Some(time)),
        Err(_) if parts == [24, 0, 0] => Err(format!("{text:?} is not a time of day; write \"00:00\" of the next day")),
        Err(_) => Err(format!("{text:?} is not a time of day; write it like \"07:00\", from 00:00 to 23:59")),
    }
}

/// Exactly `N` numbers of ASCII digits with this separator.
fn numbers<const N: usize>(word: &str, separator: char) -> Option<[u32; N]> {
    let parts: Vec<&str> = word.split(separator).collect();
    let digits = |part: &&str| part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !parts.iter().all(digits) {
        return None;
    }
    let values: Vec<u32> = parts.iter().map_while(|part| part.parse().ok()).collect();
    values.try_into().ok()
}
