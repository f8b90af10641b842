//! Dates as numbers: days since 1970-01-01 in the proleptic Gregorian calendar. The search uses this because jiff's checked
//! types cost more than the search itself.

pub(crate) const DAY: i64 = 86_400;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Date {
    pub(crate) year: i32,
    pub(crate) month: u8,
    pub(crate) day: u8,
}

/// The date of a day number, after Howard Hinnant's `civil_from_days`.
pub(crate) fn date_of(days: i64) -> Date {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Date { year: year as i32, month: month as u8, day: day as u8 }
}

/// The day number of a month's first day.
pub(crate) fn first_of(year: i32, month: u8) -> i64 {
    let year = i64::from(year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = i64::from(month);
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// 0 is Sunday.
pub(crate) fn weekday_of(days: i64) -> u8 {
    (days + 4).rem_euclid(7) as u8
}

pub(crate) fn month_length(year: i32, month: u8) -> u8 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_agree_with_jiff_on_every_day_from_1900_to_2400() {
        let mut day = jiff::civil::date(1900, 1, 1);
        let mut number = -25_567;
        while day.year() < 2400 {
            let date = Date { year: i32::from(day.year()), month: day.month() as u8, day: day.day() as u8 };
            assert_eq!(date_of(number), date);
            assert_eq!(first_of(date.year, date.month) + i64::from(date.day) - 1, number);
            assert_eq!(i64::from(weekday_of(number)), i64::from(day.weekday().to_sunday_zero_offset()));
            assert_eq!(i64::from(month_length(date.year, date.month)), i64::from(day.days_in_month()));
            day = day.tomorrow().unwrap();
            number += 1;
        }
    }
}
