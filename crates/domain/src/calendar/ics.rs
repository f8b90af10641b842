//! Imports dates from an iCalendar file (RFC 5545): all-day events, once or every year. An event that dates cannot represent is
//! refused with its line number, so that no holiday is silently missing.

use super::{CALENDAR_ENTRIES_MAX, CalendarSpec, Days, MonthDay, day_number};
use crate::{
    invalid::Invalid,
    schedule::date::{date_of, month_length},
};

/// The longest yearly event that is accepted, in days. Longer events are not holidays.
const YEARLY_DAYS_MAX: i64 = 60;

/// Reads the calendar in an ICS file. Its zone is `timezone`, else the file's `X-WR-TIMEZONE`, else UTC.
pub fn from_ics(text: &str, timezone: Option<&str>) -> Result<CalendarSpec, Vec<Invalid>> {
    let mut file = File::default();
    for line in unfolded(text) {
        file.take(&line).map_err(|message| vec![Invalid::new(format!("line {}", line.number), message)])?;
    }
    if !file.begun {
        return Err(vec![Invalid::new("", "is not an iCalendar file: it has no BEGIN:VCALENDAR")]);
    }
    if let Some(event) = file.event {
        return Err(vec![Invalid::new(format!("line {}", event.line), "the event that begins here has no END:VEVENT")]);
    }
    let zone = timezone.map(str::to_owned).or(file.zone).unwrap_or_else(|| "UTC".to_owned());
    CalendarSpec::new(&zone, file.dates, file.yearly)
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

#[derive(Default)]
struct File {
    begun: bool,
    zone: Option<String>,
    event: Option<Event>,
    /// Names of enclosing components, such as alarms, whose lines are ignored.
    inside: Vec<String>,
    dates: Vec<Days>,
    yearly: Vec<MonthDay>,
}

#[derive(Default)]
struct Event {
    line: usize,
    summary: String,
    first: Option<i64>,
    /// Exclusive.
    end: Option<i64>,
    length: Option<i64>,
    rule: Option<String>,
    more: Vec<i64>,
    except: Vec<i64>,
    cancelled: bool,
}

impl File {
    fn take(&mut self, line: &Line) -> Result<(), String> {
        match (line.name.as_str(), line.value.to_ascii_uppercase().as_str()) {
            ("BEGIN", "VCALENDAR") => self.begun = true,
            ("BEGIN", "VEVENT") if self.inside.is_empty() => {
                if self.event.is_some() {
                    return Err("an event begins inside another".to_owned());
                }
                self.event = Some(Event { line: line.number, ..Event::default() });
            }
            ("BEGIN", other) => self.inside.push(other.to_owned()),
            ("END", "VEVENT") if self.inside.is_empty() => {
                let event = self.event.take().ok_or("END:VEVENT without BEGIN:VEVENT")?;
                self.add(&event)?;
            }
            ("END", other) if self.inside.last().is_some_and(|inside| inside == other) => _ = self.inside.pop(),
            ("X-WR-TIMEZONE", _) if self.event.is_none() => self.zone = Some(line.value.clone()),
            _ => {
                if let Some(event) = self.event.as_mut().filter(|_| self.inside.is_empty()) {
                    event.take(line)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, event: &Event) -> Result<(), String> {
        if event.cancelled {
            return Ok(());
        }
        let named = |message: String| format!("the event {:?}: {message}", event.summary);
        let first = event.first.ok_or_else(|| named("has no DTSTART".to_owned()))?;
        let end = match (event.end, event.length) {
            (Some(end), _) => end,
            (None, Some(length)) => first + length,
            (None, None) => first + 1,
        };
        if end <= first {
            return Err(named("ends before it begins".to_owned()));
        }
        let lasts = end - first;
        let starts = match &event.rule {
            None => vec![first],
            Some(rule) => match Rule::read(rule, first).map_err(named)? {
                Rule::Dates(starts) => starts,
                Rule::Yearly => {
                    if lasts > YEARLY_DAYS_MAX || !event.except.is_empty() {
                        let why = "a yearly event of more than 60 days, or with an EXDATE, is not supported";
                        return Err(named(why.to_owned()));
                    }
                    let days = (first..end).map(date_of);
                    self.yearly.extend(days.map(|date| MonthDay { month: date.month, day: date.day }));
                    Vec::new()
                }
            },
        };
        let starts = starts.into_iter().chain(event.more.iter().copied()).filter(|start| !event.except.contains(start));
        self.dates.extend(starts.map(|start| Days::new(start, start + lasts - 1)));
        if self.dates.len() + self.yearly.len() > 2 * CALENDAR_ENTRIES_MAX {
            return Err(format!("has more than {CALENDAR_ENTRIES_MAX} entries, the most that a calendar may have"));
        }
        Ok(())
    }
}

impl Event {
    fn take(&mut self, line: &Line) -> Result<(), String> {
        match line.name.as_str() {
            "SUMMARY" => self.summary = line.value.chars().take(100).collect(),
            "DTSTART" => self.first = Some(date(line)?),
            "DTEND" => self.end = Some(date(line)?),
            "DURATION" => self.length = Some(whole_days(&line.value)?),
            "RRULE" if self.rule.is_some() => return Err("has a second RRULE; only one is supported".to_owned()),
            "RRULE" => self.rule = Some(line.value.to_ascii_uppercase()),
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

fn one_date(name: &str, value: &str) -> Result<i64, String> {
    if value.len() > 8 && value.as_bytes().get(8) == Some(&b'T') {
        return Err(format!(
            "{name}: {value:?} has a time of day; only all-day events are supported, such as {name};VALUE=DATE:20261225"
        ));
    }
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

enum Rule {
    /// Every year without an end.
    Yearly,
    /// A rule with an end: on these days.
    Dates(Vec<i64>),
}

impl Rule {
    fn read(text: &str, first: i64) -> Result<Self, String> {
        let begins = date_of(first);
        let (mut interval, mut count, mut until) = (1_i32, None, None);
        let mut yearly = false;
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let not_kept = || {
                format!(
                    "RRULE: {part:?} is not supported; only FREQ=YEARLY on the day of DTSTART is, with INTERVAL, COUNT and UNTIL"
                )
            };
            match name {
                "FREQ" if value == "YEARLY" => yearly = true,
                "INTERVAL" => interval = value.parse().ok().filter(|n| (1..=1_000).contains(n)).ok_or_else(not_kept)?,
                "COUNT" => {
                    count = Some(
                        value
                            .parse::<usize>()
                            .ok()
                            .filter(|n| (1..=CALENDAR_ENTRIES_MAX).contains(n))
                            .ok_or_else(not_kept)?,
                    );
                }
                "UNTIL" => until = Some(one_date("UNTIL", value.get(..8).unwrap_or(value))?),
                "BYMONTH" if value.parse() == Ok(begins.month) => {}
                "BYMONTHDAY" if value.parse() == Ok(begins.day) => {}
                "WKST" => {}
                _ => return Err(not_kept()),
            }
        }
        if !yearly {
            return Err(format!("RRULE: {text:?} has no FREQ=YEARLY, the only supported frequency"));
        }
        if count.is_none() && until.is_none() {
            return if interval == 1 {
                Ok(Self::Yearly)
            } else {
                Err("RRULE: INTERVAL needs an end; add COUNT or UNTIL".to_owned())
            };
        }
        let years = (0..)
            .map(|n: i32| begins.year.saturating_add(n.saturating_mul(interval)))
            .take_while(|year| *year <= 9_999);
        // 29 February exists only in leap years, and only those count.
        let starts = years
            .filter(|year| begins.day <= month_length(*year, begins.month))
            .filter_map(|year| day_number(year, begins.month.into(), begins.day.into()))
            .take_while(|day| until.is_none_or(|until| *day <= until))
            .take(count.unwrap_or(CALENDAR_ENTRIES_MAX + 1));
        Ok(Self::Dates(starts.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(events: &str) -> String {
        format!(
            "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nX-WR-TIMEZONE:Europe/Berlin\r\n{}END:VCALENDAR\r\n",
            events.replace('\n', "\r\n")
        )
    }

    fn event(lines: &str) -> String {
        file(&format!("BEGIN:VEVENT\nSUMMARY:Day\n{lines}\nEND:VEVENT\n"))
    }

    fn read(lines: &str) -> String {
        let spec = from_ics(&event(lines), None).unwrap();
        let dates = spec.dates.iter().map(ToString::to_string);
        dates.chain(spec.yearly.iter().map(ToString::to_string)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn all_day_events_are_dates() {
        for (lines, dates) in [
            ("DTSTART;VALUE=DATE:20261225", "2026-12-25"),
            ("DTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261226", "2026-12-25"),
            ("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227", "2026-12-24/2026-12-26"),
            ("DTSTART;VALUE=DATE:20261224\nDURATION:P3D", "2026-12-24/2026-12-26"),
            ("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY", "12-25"),
            ("DTSTART;VALUE=DATE:20261231\nDTEND;VALUE=DATE:20270102\nRRULE:FREQ=YEARLY;INTERVAL=1", "01-01 12-31"),
            ("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=25;WKST=MO", "12-25"),
            ("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;COUNT=3", "2026-12-25 2027-12-25 2028-12-25"),
            ("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;INTERVAL=2;UNTIL=20301224", "2026-12-25 2028-12-25"),
            ("DTSTART;VALUE=DATE:20240229\nRRULE:FREQ=YEARLY;COUNT=2", "2024-02-29 2028-02-29"),
            (
                "DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;COUNT=3\nEXDATE;VALUE=DATE:20271225",
                "2026-12-25 2028-12-25",
            ),
            ("DTSTART;VALUE=DATE:20261225\nRDATE;VALUE=DATE:20270101,20270106", "2026-12-25 2027-01-01 2027-01-06"),
            ("DTSTART;VALUE=DATE:20261225\nSTATUS:CANCELLED", ""),
            ("DTSTART;VALUE=DA\n TE:2026\n 1225", "2026-12-25"),
            (
                "DTSTART;X-A=\"a;b:c\";VALUE=DATE:20261225\nBEGIN:VALARM\nTRIGGER:-PT1H\nDTSTART:20260101T000000Z\nEND:VALARM",
                "2026-12-25",
            ),
        ] {
            assert_eq!(read(lines), dates, "{lines}");
        }
    }

    proptest::proptest! {
        /// Any file is read or refused, without a panic.
        #[test]
        fn no_sequence_of_lines_panics(lines in proptest::collection::vec(proptest::sample::select(vec![
            "BEGIN:VCALENDAR", "BEGIN:VEVENT", "END:VEVENT", "BEGIN:VALARM", "END:VALARM", "DTSTART;VALUE=DATE:20261225", "DTSTART:é",
            "DTEND:99991231", "DTEND:19700101", "RRULE:FREQ=YEARLY", "RRULE:FREQ=YEARLY;INTERVAL=1000;COUNT=1000", "RRULE:;=;",
            "RRULE:FREQ=YEARLY;UNTIL=é9991231", "EXDATE:20261225,20271225", "RDATE;VALUE=PERIOD:x", "DURATION:P3660W", "DURATION:PéD",
            " folded", "X\";:;\":", "SUMMARY", ";;:::", "DTSTART:20240229", "STATUS:CANCELLED",
        ]), 0..14)) {
            let _ = from_ics(&format!("BEGIN:VCALENDAR\n{}", lines.join("\n")), None);
        }

        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = from_ics(&text, None);
        }
    }

    #[test]
    fn the_requested_zone_overrides_the_zone_of_the_file() {
        let text = event("DTSTART;VALUE=DATE:20261225");
        assert_eq!(from_ics(&text, None).unwrap().timezone, "Europe/Berlin");
        assert_eq!(from_ics(&text, Some("Asia/Tokyo")).unwrap().timezone, "Asia/Tokyo");
        assert_eq!(from_ics("BEGIN:VCALENDAR\nEND:VCALENDAR\n", None).unwrap().timezone, "UTC");
    }

    #[test]
    fn an_unsupported_event_is_refused_with_its_line() {
        for (lines, message) in [
            ("DTSTART:20261225T100000Z", "line 6: DTSTART: \"20261225T100000Z\" has a time of day"),
            ("DTSTART;VALUE=DATE:2026-12-25", "is not a date; write it like 20261225"),
            ("DTSTART;VALUE=DATE:20260230", "is not a date"),
            ("DTSTART;VALUE=DATE:20261126\nRRULE:FREQ=YEARLY;BYDAY=4TH", "\"BYDAY=4TH\" is not supported"),
            ("DTSTART;VALUE=DATE:20261126\nRRULE:FREQ=WEEKLY", "\"FREQ=WEEKLY\" is not supported"),
            ("DTSTART;VALUE=DATE:20261126\nRRULE:INTERVAL=1", "FREQ=YEARLY"),
            ("DTSTART;VALUE=DATE:20261126\nRRULE:FREQ=YEARLY;INTERVAL=2", "add COUNT or UNTIL"),
            ("DTSTART;VALUE=DATE:20261126\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20271126", "EXDATE"),
            ("DTSTART;VALUE=DATE:20261126\nDTEND;VALUE=DATE:20261126", "ends before it begins"),
            ("DTSTART;VALUE=DATE:20261126\nDURATION:PT3H", "whole days"),
            ("DESCRIPTION:nothing", "the event \"Day\": has no DTSTART"),
        ] {
            let wrong = from_ics(&event(lines), None).unwrap_err();
            assert!(wrong[0].to_string().contains(message), "{lines}: {}", wrong[0]);
        }
        assert!(from_ics("hello", None).unwrap_err()[0].message.contains("BEGIN:VCALENDAR"));
        let open = from_ics("BEGIN:VCALENDAR\nBEGIN:VEVENT\n", None).unwrap_err();
        assert!(open[0].to_string().contains("line 2"), "{}", open[0]);
    }
}
