//! Recurrence rules (RRULE) of events: every year or every month, on a day of the month or on its n-th weekday.

use std::str::FromStr;

use super::one_date;
use crate::{
    calendar::{CALENDAR_ENTRIES_MAX, day_number},
    schedule::date::{DAY, Date, date_of, first_of, month_length, weekday_of},
    time::DbTime,
};

/// The years in which a rule without an end is expanded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Years {
    pub(super) first: i32,
    pub(super) last: i32,
}

/// A rule without an end is expanded up to this many years after the present year.
const YEARS_AHEAD: i32 = 20;

impl Years {
    /// Begins with last year, because ticks of last year may still be recorded.
    pub(super) fn around(now: DbTime) -> Self {
        let year = date_of(now.millis().div_euclid(DAY * 1_000)).year;
        Self { first: year - 1, last: year + YEARS_AHEAD }
    }
}

const YEAR_MAX: i32 = 9_999;
const WEEKDAYS: [&str; 7] = ["SU", "MO", "TU", "WE", "TH", "FR", "SA"];

/// Which day of a month.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Day {
    Number(u8),
    /// The n-th weekday of the month; from its end if n is negative.
    Weekday {
        nth: i8,
        weekday: u8,
    },
}

/// A rule that dates can represent.
#[derive(Debug)]
pub(super) struct Rule {
    begins: i64,
    frequency_months: u32,
    interval: u32,
    month: Option<u8>,
    day: Day,
    count: Option<usize>,
    until: Option<i64>,
}

impl Rule {
    /// Reads the rule of an event that begins on the day `begins`.
    pub(super) fn read(text: &str, begins: i64) -> Result<Self, String> {
        let own_day = Day::Number(date_of(begins).day);
        let (month, count, until) = (None, None, None);
        let mut rule = Self { begins, frequency_months: 0, interval: 1, month, day: own_day, count, until };
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            rule.set(name, value).ok_or_else(|| not_supported(part))?;
        }
        match rule.frequency_months {
            0 => Err(format!("RRULE: {text:?} has no FREQ; FREQ=YEARLY and FREQ=MONTHLY are supported")),
            12 if rule.month.is_none() && rule.day != own_day => {
                Err("RRULE: FREQ=YEARLY with BYDAY or BYMONTHDAY is supported only with BYMONTH".to_owned())
            }
            1 if rule.month.is_some() => Err(not_supported("BYMONTH with FREQ=MONTHLY")),
            _ => Ok(rule),
        }
    }

    /// Sets one part of the rule. `None` if it is not supported.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "FREQ" if value == "YEARLY" => self.frequency_months = 12,
            "FREQ" if value == "MONTHLY" => self.frequency_months = 1,
            "INTERVAL" => self.interval = number(value, 1_000)?,
            "COUNT" => self.count = Some(number(value, CALENDAR_ENTRIES_MAX)?),
            "UNTIL" => self.until = Some(one_date("UNTIL", value.get(..8)?).ok()?),
            "BYMONTH" => self.month = Some(number(value, 12)?),
            "BYMONTHDAY" => self.day = Day::Number(number(value, 31)?),
            "BYDAY" => self.day = weekday(value)?,
            "WKST" => {}
            _ => return None,
        }
        Some(())
    }

    /// Whether the rule has no end.
    pub(super) const fn is_endless(&self) -> bool {
        self.count.is_none() && self.until.is_none()
    }

    /// Whether the rule names the same day of every year and has no end. A calendar stores such a rule as one yearly
    /// entry.
    pub(super) fn is_yearly(&self) -> bool {
        let Date { month, day, .. } = date_of(self.begins);
        let own_month = self.month.is_none_or(|own| own == month);
        self.is_endless() && self.frequency_months * self.interval == 12 && own_month && self.day == Day::Number(day)
    }

    /// The first day of each occurrence. For a rule without an end: only the occurrences in `years`.
    pub(super) fn starts(&self, years: Years) -> Vec<i64> {
        let Date { year, month, .. } = date_of(self.begins);
        let first = i64::from(year) * 12 + i64::from(self.month.unwrap_or(month)) - 1;
        let step = i64::from(self.frequency_months * self.interval);
        let last_year = if self.is_endless() { years.last } else { YEAR_MAX };
        let months = (0_i64..).map(|n| first + n * step).map(|month| (month / 12, month % 12 + 1));
        let months = months.take_while(|(year, _)| *year <= i64::from(last_year));
        let days = months.filter_map(|(year, month)| self.day.of(year as i32, month as u8));
        let days = days.filter(|day| *day >= self.begins);
        let days = days.take_while(|day| self.until.is_none_or(|until| *day <= until));
        let days = days.take(self.count.unwrap_or(usize::MAX));
        let shown = days.filter(|day| !self.is_endless() || date_of(*day).year >= years.first);
        shown.take(CALENDAR_ENTRIES_MAX + 1).collect()
    }
}

impl Day {
    /// The day number in this month, if the month has the day.
    fn of(self, year: i32, month: u8) -> Option<i64> {
        let length = i64::from(month_length(year, month));
        let day = match self {
            Self::Number(day) => i64::from(day),
            Self::Weekday { nth, weekday } if nth > 0 => {
                let first = i64::from(weekday_of(first_of(year, month)));
                1 + (i64::from(weekday) - first).rem_euclid(7) + 7 * (i64::from(nth) - 1)
            }
            Self::Weekday { nth, weekday } => {
                let last = i64::from(weekday_of(first_of(year, month) + length - 1));
                length - (last - i64::from(weekday)).rem_euclid(7) + 7 * (i64::from(nth) + 1)
            }
        };
        (1..=length).contains(&day).then(|| day_number(year, month.into(), day as i32))?
    }
}

fn not_supported(part: &str) -> String {
    format!(
        "RRULE: {part:?} is not supported; supported are FREQ=YEARLY and FREQ=MONTHLY with one BYMONTH, one BYMONTHDAY, one \
         BYDAY such as 4TH or -1MO, INTERVAL, COUNT and UNTIL"
    )
}

fn number<T: FromStr + PartialOrd + From<u8>>(text: &str, max: T) -> Option<T> {
    text.parse().ok().filter(|number| T::from(1) <= *number && *number <= max)
}

/// `4TH`, `+1MO` or `-1MO`.
fn weekday(text: &str) -> Option<Day> {
    let (nth, name) = text.split_at_checked(text.len().checked_sub(2)?)?;
    let weekday = WEEKDAYS.iter().position(|known| *known == name)?;
    let nth: i8 = nth.parse().ok().filter(|nth: &i8| (1..=5).contains(&nth.unsigned_abs()))?;
    Some(Day::Weekday { nth, weekday: weekday as u8 })
}
