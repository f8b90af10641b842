//! A cron expression compiled to bit sets, and the search over them. Works in civil time only: seconds since 1970 on a clock
//! that never changes. `search` applies the zone.

use super::{
    date::{DAY, date_of, first_of, month_length, weekday_of},
    parse::{Days, Expression, Item, Unit, unrestricted},
};

/// No search goes beyond this year, so every search ends.
const YEAR_MAX: i32 = 9999;

#[derive(Clone, Debug)]
pub(super) struct Pattern {
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    /// The matching days of a month, by its length (28 to 31) and the weekday of its first day. Bit n is day n.
    days: [[u32; 7]; 4],
    /// `None` means every year.
    years: Option<Box<Years>>,
    /// Follows elapsed time across clock changes instead of naming fixed times.
    pub(super) elapsed: bool,
}

type Years = [u64; YEAR_MAX as usize / 64 + 1];

impl Pattern {
    pub(super) fn compile(expression: &Expression) -> Self {
        let bits = |unit| bits(unit, expression.field(unit));
        let years = expression.field(Unit::Year);
        Self {
            seconds: bits(Unit::Second),
            minutes: bits(Unit::Minute),
            hours: bits(Unit::Hour),
            months: bits(Unit::Month),
            days: std::array::from_fn(|longer| {
                std::array::from_fn(|first| month_days(expression, first as u32, 28 + longer as u32))
            }),
            years: (!unrestricted(years)).then(|| {
                let mut set = Box::new([0; YEAR_MAX as usize / 64 + 1]);
                for year in years.iter().flat_map(|item| values(Unit::Year, item)) {
                    set[usize::from(year) / 64] |= 1 << (year % 64);
                }
                set
            }),
            elapsed: elapsed(expression),
        }
    }

    /// The first match at or after `at`.
    #[inline]
    pub(super) fn first_from(&self, at: i64) -> Option<i64> {
        let (day, second) = (at.div_euclid(DAY), at.rem_euclid(DAY));
        let date = date_of(day);
        if self.days_of(date.year, date.month) & (1 << date.day) != 0
            && let Some(time) = self.time_from(second as u32)
        {
            return Some(day * DAY + i64::from(time));
        }
        let day = self.day_after(date.year, date.month, date.day)?;
        Some(day * DAY + i64::from(self.time_from(0)?))
    }

    /// How many matches lie in `from..until`.
    pub(super) fn count(&self, from: i64, until: i64) -> u64 {
        if from >= until {
            return 0;
        }
        let (first, last) = (from.div_euclid(DAY), until.div_euclid(DAY));
        let (start, stop) = (from.rem_euclid(DAY) as u32, until.rem_euclid(DAY) as u32);
        let whole = u64::from(self.times_before(DAY as u32));
        if first == last {
            return u64::from(self.day_matches(first)) * u64::from(self.times_before(stop) - self.times_before(start));
        }
        u64::from(self.day_matches(first)) * (whole - u64::from(self.times_before(start)))
            + self.count_days(first + 1, last) * whole
            + u64::from(self.day_matches(last)) * u64::from(self.times_before(stop))
    }

    pub(super) fn matches_any_date(&self) -> bool {
        self.day_after(0, 12, 31).is_some()
    }

    /// The matching days of one month; none outside the pattern's months and years.
    #[inline]
    fn days_of(&self, year: i32, month: u8) -> u32 {
        if self.months & (1 << month) == 0 || !self.year_matches(year) {
            return 0;
        }
        self.days_of_any(year, month)
    }

    #[inline]
    fn days_of_any(&self, year: i32, month: u8) -> u32 {
        let longer = usize::from(month_length(year, month) - 28);
        self.days[longer][usize::from(weekday_of(first_of(year, month)))]
    }

    #[inline]
    fn year_matches(&self, year: i32) -> bool {
        match &self.years {
            None => true,
            Some(years) => usize::try_from(year)
                .is_ok_and(|year| years.get(year / 64).is_some_and(|word| word & (1 << (year % 64)) != 0)),
        }
    }

    fn next_year(&self, from: i32) -> Option<i32> {
        let Some(years) = &self.years else {
            return (from <= YEAR_MAX).then_some(from);
        };
        let from = usize::try_from(from).ok()?;
        let head = years.get(from / 64)? & (!0 << (from % 64));
        let (word, bits) = if head != 0 {
            (from / 64, head)
        } else {
            let rest = years[from / 64 + 1..].iter().position(|word| *word != 0)?;
            (from / 64 + 1 + rest, years[from / 64 + 1 + rest])
        };
        i32::try_from(word * 64 + bits.trailing_zeros() as usize).ok()
    }

    /// The first matching day after the given one, by skipping whole months and years.
    fn day_after(&self, year: i32, month: u8, day: u8) -> Option<i64> {
        let here = self.days_of(year, month) & (!1_u32).checked_shl(u32::from(day)).unwrap_or(0);
        if here != 0 {
            return Some(first_of(year, month) + i64::from(here.trailing_zeros()) - 1);
        }
        let (mut year, mut month) = (year, month + 1);
        loop {
            if !self.year_matches(year) {
                month = 1;
            }
            year = self.next_year(year)?;
            while let Some(found) = next_bit(self.months, u32::from(month)) {
                month = found as u8;
                let days = self.days_of_any(year, month);
                if days != 0 {
                    return Some(first_of(year, month) + i64::from(days.trailing_zeros()) - 1);
                }
                month += 1;
            }
            (year, month) = (year + 1, 1);
        }
    }

    #[inline]
    fn time_from(&self, second: u32) -> Option<u32> {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        if self.hours & (1 << hour) != 0 {
            if self.minutes & (1 << minute) != 0
                && let Some(second) = next_bit(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = next_bit(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + self.seconds.trailing_zeros());
            }
        }
        let hour = next_bit(self.hours, hour + 1)?;
        Some(hour * 3_600 + self.minutes.trailing_zeros() * 60 + self.seconds.trailing_zeros())
    }

    /// How many times of day before `second` match; for `DAY`, all that match.
    fn times_before(&self, second: u32) -> u32 {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let (minutes, seconds) = (self.minutes.count_ones(), self.seconds.count_ones());
        let mut times = below(self.hours, hour) * minutes * seconds;
        if self.hours & (1 << hour) != 0 {
            times += below(self.minutes, minute) * seconds;
            if self.minutes & (1 << minute) != 0 {
                times += below(self.seconds, second);
            }
        }
        times
    }

    fn day_matches(&self, day: i64) -> bool {
        let date = date_of(day);
        self.days_of(date.year, date.month) & (1 << date.day) != 0
    }

    /// Matching days in `from..until`, a month at a time.
    fn count_days(&self, from: i64, until: i64) -> u64 {
        if from >= until {
            return 0;
        }
        let (first, last) = (date_of(from), date_of(until - 1));
        let mut days = 0;
        let (mut year, mut month) = (first.year, first.month);
        while (year, month) <= (last.year, last.month) {
            let mut matching = self.days_of(year, month);
            if (year, month) == (first.year, first.month) {
                matching &= !0 << first.day;
            }
            if (year, month) == (last.year, last.month) {
                matching &= !0 >> (31 - last.day);
            }
            days += u64::from(matching.count_ones());
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        }
        days
    }
}

/// The smallest member at or above `from`.
#[inline]
fn next_bit(set: u64, from: u32) -> Option<u32> {
    let rest = set & (!0_u64).checked_shl(from).unwrap_or(0);
    (rest != 0).then(|| rest.trailing_zeros())
}

/// How many members are below `limit`.
fn below(set: u64, limit: u32) -> u32 {
    (set & !(!0_u64).checked_shl(limit).unwrap_or(0)).count_ones()
}

/// Whether the second, minute or hour field begins with a star, or the hour is a range. A list names fixed times.
fn elapsed(expression: &Expression) -> bool {
    let star = |unit| matches!(expression.field(unit), [Item::All | Item::AllBy(_), ..]);
    star(Unit::Second)
        || star(Unit::Minute)
        || star(Unit::Hour)
        || matches!(expression.field(Unit::Hour), [Item::Range { .. }])
}

fn bits(unit: Unit, field: &[Item]) -> u64 {
    field.iter().flat_map(|item| values(unit, item)).fold(0, |set, value| set | 1 << value)
}

/// The plain values of an item; empty for items that depend on the month.
fn values(unit: Unit, item: &Item) -> impl Iterator<Item = u16> {
    let (first, last) = unit.whole();
    let (from, to, step) = match *item {
        Item::All => (first, last, 1),
        Item::AllBy(step) => (first, last, step),
        Item::One(value) => (value, value, 1),
        Item::Range { from, to, step } => (from, to, step),
        _ => (1, 0, 1),
    };
    (from..=to).step_by(usize::from(step.max(1)))
}

/// The matching days of a month with this length that begins on weekday `first`.
fn month_days(expression: &Expression, first: u32, length: u32) -> u32 {
    let (days, weekdays) = (expression.field(Unit::Day), expression.field(Unit::Weekday));
    let all = u32::MAX >> (31 - length) & !1;
    let by_day = days.iter().fold(0, |set, item| set | by_day(item, first, length)) & all;
    let by_weekday = weekdays.iter().fold(0, |set, item| set | by_weekday(item, first, length)) & all;
    match (unrestricted(days), unrestricted(weekdays)) {
        (true, true) => all,
        (true, false) => by_weekday,
        (false, true) => by_day,
        (false, false) => match expression.days {
            Days::Either => by_day | by_weekday,
            Days::Both => by_day & by_weekday,
        },
    }
}

fn by_day(item: &Item, first: u32, length: u32) -> u32 {
    let weekday = |day: u32| (first + day - 1) % 7;
    match *item {
        Item::LastDay => 1 << length,
        Item::LastWorkday => match weekday(length) {
            0 => 1 << (length - 2),
            6 => 1 << (length - 1),
            _ => 1 << length,
        },
        Item::NearestWorkday(day) if u32::from(day) > length => 0,
        Item::NearestWorkday(day) => {
            let day = u32::from(day);
            match weekday(day) {
                6 if day == 1 => 1 << 3,
                6 => 1 << (day - 1),
                0 if day == length => 1 << (day - 2),
                0 => 1 << (day + 1),
                _ => 1 << day,
            }
        }
        _ => values(Unit::Day, item).fold(0, |set, day| set | 1 << day),
    }
}

fn by_weekday(item: &Item, first: u32, length: u32) -> u32 {
    // Days 1 to 7 contain each weekday once, and it repeats every seven days.
    let first_day = |weekday: u16| 1 + (u32::from(weekday % 7) + 7 - first) % 7;
    match *item {
        Item::Nth { weekday, nth } => {
            let day = first_day(weekday) + 7 * (u32::from(nth) - 1);
            if day <= length { 1 << day } else { 0 }
        }
        Item::LastOf(weekday) => {
            let day = first_day(weekday);
            1 << (day + (length - day) / 7 * 7)
        }
        _ => values(Unit::Weekday, item)
            .flat_map(|weekday| (first_day(weekday)..=length).step_by(7))
            .fold(0, |set, day| set | 1 << day),
    }
}
