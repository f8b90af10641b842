//! Calendars: named sets of dates, such as holidays. `CalendarSpec` is what users write, `ics` imports iCalendar files, and
//! `exclusion` decides which instants are excluded from a schedule. A calendar is a list of versions, each valid from an
//! instant on.

mod exclusion;
mod ics;

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

pub use self::{
    exclusion::{Calendar, CalendarVersion, Excluded, Exclusion},
    ics::{Imported, LeftOut, from_ics},
};
use crate::{
    invalid::Invalid,
    job::check_name,
    schedule::{
        date::{Date, date_of, first_of, month_length},
        zone::Zone,
    },
};

/// Maximum number of entries of one calendar: dates, ranges and yearly days together.
pub const CALENDAR_ENTRIES_MAX: usize = 1_000;
pub const CALENDARS_PER_TENANT_MAX: usize = 1_000;
/// How many versions are kept; older ones are deleted. Instants before the oldest kept version follow that version.
pub const CALENDAR_VERSIONS_KEPT: usize = 32;
/// How many calendars one schedule may use.
pub const EXCLUDE_MAX: usize = 8;
const YEARS: std::ops::RangeInclusive<i32> = 1970..=9999;

/// A calendar's definition, checked, in its stored form.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CalendarSpec {
    /// The zone that dates refer to, spelled as in the zone data.
    pub timezone: String,
    /// Sorted by date, without duplicates.
    #[serde(default)]
    pub dates: Vec<Days>,
    /// Days that repeat every year.
    #[serde(default)]
    pub yearly: Vec<MonthDay>,
}

impl CalendarSpec {
    /// Sorts the dates and checks zone and size.
    pub fn new(timezone: &str, mut dates: Vec<Days>, mut yearly: Vec<MonthDay>) -> Result<Self, Vec<Invalid>> {
        let zone = Zone::named(timezone).map_err(|message| vec![Invalid::new("timezone", message)])?;
        dates.sort_unstable();
        dates.dedup();
        yearly.sort_unstable();
        yearly.dedup();
        let entries = dates.len() + yearly.len();
        if entries > CALENDAR_ENTRIES_MAX {
            let message = format!("has {entries} entries; at most {CALENDAR_ENTRIES_MAX} are allowed");
            return Err(vec![Invalid::new("dates", message)]);
        }
        Ok(Self { timezone: zone.name().to_owned(), dates, yearly })
    }

    fn zone(&self) -> Result<Arc<Zone>, Invalid> {
        Zone::named(&self.timezone).map_err(|message| Invalid::new("timezone", message))
    }
}

/// Calendar names follow the rules of job names.
pub fn check_calendar_name(name: &str) -> Result<(), Invalid> {
    check_name(name).map_err(|message| Invalid::new("name", message))
}

/// The errors in a schedule's calendar names that can be found without loading the calendars.
pub(crate) fn check_exclude(names: &[String], wrong: &mut Vec<Invalid>) {
    if names.len() > EXCLUDE_MAX {
        let message = format!("names {} calendars; at most {EXCLUDE_MAX} are allowed", names.len());
        wrong.push(Invalid::new("exclude", message));
    }
    for (index, name) in names.iter().enumerate() {
        if let Err(message) = check_name(name) {
            wrong.push(Invalid::new("exclude", message));
        } else if names[..index].contains(name) {
            wrong.push(Invalid::new("exclude", format!("names {name:?} twice")));
        }
    }
}

/// A date or a range of dates, both ends included. Written as `2026-12-25` or `2026-12-27/2026-12-31`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Days {
    /// Days since 1970.
    first: i64,
    last: i64,
}

impl Days {
    fn new(first: i64, last: i64) -> Self {
        Self { first, last }
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |day| {
            let Date { year, month, day } = date_of(day);
            format!("{year:04}-{month:02}-{day:02}")
        };
        f.write_str(&show(self.first))?;
        if self.first == self.last { Ok(()) } else { write!(f, "/{}", show(self.last)) }
    }
}

impl FromStr for Days {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('/').unwrap_or((text, text));
        let days = Self::new(day(first)?, day(last)?);
        if days.last < days.first {
            return Err(format!("{text:?} ends before it begins; write the earlier date first"));
        }
        Ok(days)
    }
}

fn day(text: &str) -> Result<i64, String> {
    let wrong =
        || format!("{text:?} is not a date; write it like \"2026-12-25\", or \"2026-12-27/2026-12-31\" for several");
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if !shape {
        return Err(wrong());
    }
    let number = |from: usize, to: usize| text[from..to].parse::<i32>().map_err(|_| wrong());
    day_number(number(0, 4)?, number(5, 7)?, number(8, 10)?).ok_or_else(|| {
        format!(
            "{text:?} does not exist; write a date of the years {} to {}, like \"2026-12-25\"",
            YEARS.start(),
            YEARS.end()
        )
    })
}

fn day_number(year: i32, month: i32, day: i32) -> Option<i64> {
    let (month, day) = (u8::try_from(month).ok()?, u8::try_from(day).ok()?);
    let sound = YEARS.contains(&year) && (1..=12).contains(&month) && (1..=month_length(year, month)).contains(&day);
    sound.then(|| first_of(year, month) + i64::from(day) - 1)
}

/// A day of every year, written as `12-25`. `02-29` applies to leap years only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MonthDay {
    month: u8,
    day: u8,
}

impl fmt::Display for MonthDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}-{:02}", self.month, self.day)
    }
}

impl FromStr for MonthDay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a day of the year; write month and day, like \"12-25\"");
        let (month, day) = text.split_once('-').ok_or_else(wrong)?;
        let number = |text: &str| {
            let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            if digits { text.parse::<u8>().ok() } else { None }
        };
        let (month, day) = (number(month).ok_or_else(wrong)?, number(day).ok_or_else(wrong)?);
        let sound = (1..=12).contains(&month) && (1..=month_length(2000, month)).contains(&day);
        if sound { Ok(Self { month, day }) } else { Err(wrong()) }
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}
as_text!(Days, MonthDay);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_parse_and_print_in_their_text_form() {
        for text in ["2026-12-25", "2026-12-27/2027-01-03", "1970-01-01", "2024-02-29"] {
            assert_eq!(text.parse::<Days>().unwrap().to_string(), text);
        }
        assert_eq!("2026-12-25/2026-12-25".parse::<Days>().unwrap().to_string(), "2026-12-25");
        for text in ["12-25", "02-29", "01-01"] {
            assert_eq!(text.parse::<MonthDay>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_invalid_date_is_refused_with_a_valid_example() {
        for text in ["", "2026-12", "25.12.2026", "2026-1-1", "2026-12-25T00:00:00Z", "2026-12-25/", "٢٠٢٦-12-25"] {
            assert!(text.parse::<Days>().unwrap_err().contains("2026-12-25"), "{text}");
        }
        for text in ["2026-02-29", "2026-13-01", "2026-00-10", "1969-12-31"] {
            assert!(text.parse::<Days>().unwrap_err().contains("1970 to 9999"), "{text}");
        }
        assert!("2026-12-31/2026-12-01".parse::<Days>().unwrap_err().contains("earlier date first"));
        for text in ["", "1-1", "13-01", "02-30", "12-25-01", "2026-12-25"] {
            assert!(text.parse::<MonthDay>().unwrap_err().contains("12-25"), "{text}");
        }
    }

    #[test]
    fn a_calendar_is_stored_sorted_with_its_canonical_zone_and_a_size_limit() {
        let days = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Days>>();
        let spec =
            CalendarSpec::new("europe/berlin", days(&["2027-01-01", "2026-12-25", "2027-01-01"]), vec![]).unwrap();
        assert_eq!((spec.timezone.as_str(), spec.dates.len()), ("Europe/Berlin", 2));
        assert_eq!(spec.dates[0].to_string(), "2026-12-25");
        let stored = serde_json::to_string(&spec).unwrap();
        assert_eq!(stored, r#"{"timezone":"Europe/Berlin","dates":["2026-12-25","2027-01-01"],"yearly":[]}"#);
        assert_eq!(serde_json::from_str::<CalendarSpec>(&stored).unwrap(), spec);
        let wrong = CalendarSpec::new("CET", vec![], vec![]).unwrap_err();
        assert!(wrong[0].field == "timezone" && wrong[0].message.contains("Europe/Paris"));
        let many = (0..=CALENDAR_ENTRIES_MAX as i64).map(|n| Days::new(n * 2, n * 2)).collect();
        assert!(CalendarSpec::new("UTC", many, vec![]).unwrap_err()[0].message.contains("1001 entries"));
    }

    #[test]
    fn a_schedule_uses_at_most_eight_calendars_each_once() {
        let check = |names: &[&str]| {
            let mut wrong = Vec::new();
            check_exclude(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), &mut wrong);
            wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(check(&["a", "b"]), "");
        assert!(check(&["a", "a"]).contains("\"a\" twice"));
        assert!(check(&["no name"]).contains("exclude: \"no name\""));
        assert!(check(&["1", "2", "3", "4", "5", "6", "7", "8", "9"]).contains("names 9 calendars"));
    }
}
