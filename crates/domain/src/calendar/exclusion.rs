//! Decides which instants calendars exclude. A date is a day in its calendar's zone. A version applies to instants after its
//! creation; the first version also applies to all instants before.

use std::sync::Arc;

use super::{CalendarSpec, MonthDay};
use crate::{
    ids::Version,
    invalid::Invalid,
    schedule::{
        date::{DAY, date_of},
        zone::Zone,
    },
    time::{DbTime, Span},
};

/// Local time differs from UTC by less than this many days. Searches for a date start this much earlier.
const OFFSET_DAYS_MAX: i64 = 2;
/// Every day of the year occurs within this many days, also 29 February (1896 to 1904, for example).
const YEARLY_DAYS_MAX: i64 = 8 * 366 + 1;

/// How many adjacent excluded periods one call merges. The next call finds the rest.
const PERIODS_MERGED_MAX: usize = 400;

/// A calendar with its kept versions, compiled for queries.
#[derive(Debug)]
pub struct Calendar {
    name: String,
    /// Sorted by version; never empty.
    versions: Vec<CalendarVersion>,
}

/// One version and when it takes effect.
#[derive(Debug)]
pub struct CalendarVersion {
    version: Version,
    /// The version applies to instants after this one.
    from: DbTime,
    zone: Arc<Zone>,
    /// First and last day (days since 1970) of each stretch, sorted and not adjacent.
    stretches: Vec<(i64, i64)>,
    /// One bit set of days for each month.
    yearly: [u32; 12],
}

impl CalendarVersion {
    pub fn new(version: Version, from: DbTime, spec: &CalendarSpec) -> Result<Self, Invalid> {
        let mut stretches: Vec<(i64, i64)> = Vec::new();
        let mut dates: Vec<_> = spec.dates.iter().map(|days| (days.first, days.last)).collect();
        dates.sort_unstable();
        for (first, last) in dates {
            match stretches.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => stretches.push((first, last)),
            }
        }
        let mut yearly = [0; 12];
        for MonthDay { month, day } in &spec.yearly {
            yearly[usize::from(*month) - 1] |= 1 << day;
        }
        Ok(Self { version, from, zone: spec.zone()?, stretches, yearly })
    }

    /// The stretch of excluded days (first, last) that contains this day.
    fn around(&self, day: i64) -> Option<(i64, i64)> {
        let next = self.stretches.partition_point(|(first, _)| *first <= day);
        let listed = next.checked_sub(1).map(|at| self.stretches[at]).filter(|(_, last)| day <= *last);
        listed.or_else(|| self.has_yearly(day).then_some((day, day)))
    }

    fn has_yearly(&self, day: i64) -> bool {
        let date = date_of(day);
        self.yearly[usize::from(date.month) - 1] & (1 << date.day) != 0
    }

    /// The first excluded day at or after this one.
    fn next_day(&self, day: i64) -> Option<i64> {
        let next = self.stretches.partition_point(|(_, last)| *last < day);
        let listed = self.stretches.get(next).map(|(first, _)| (*first).max(day));
        if self.yearly == [0; 12] {
            return listed;
        }
        let until = listed.unwrap_or(i64::MAX).min(day + YEARLY_DAYS_MAX);
        (day..until).find(|day| self.has_yearly(*day)).or(listed)
    }

    /// The first second of a local day, or of the next local day that exists in the zone.
    fn begin_of(&self, day: i64) -> i64 {
        let mut second = (day - OFFSET_DAYS_MAX) * DAY;
        loop {
            let (found, from, until) = self.day_of(second);
            if found >= day {
                return from;
            }
            second = until;
        }
    }

    /// The local day of a second. Also returns the first second and the end (exclusive) of the uninterrupted period of this day
    /// around it. A clock change can split a day into two periods.
    fn day_of(&self, second: i64) -> (i64, i64, i64) {
        let stretch = self.zone.stretch_at(second);
        let day = (second + stretch.offset).div_euclid(DAY);
        let local_day = |second: i64, offset: i64| (second + offset).div_euclid(DAY);
        let (mut begin, mut end) = (stretch, stretch);
        let from = loop {
            let midnight = day * DAY - begin.offset;
            if midnight >= begin.start || local_day(begin.start - 1, begin.before) != day {
                break midnight.max(begin.start);
            }
            begin = self.zone.stretch_at(begin.start - 1);
        };
        let until = loop {
            let midnight = (day + 1) * DAY - end.offset;
            if midnight <= end.end || local_day(end.end, end.after) != day {
                break midnight.min(end.end);
            }
            end = self.zone.stretch_at(end.end);
        };
        (day, from, until)
    }
}

impl Calendar {
    /// Builds a calendar from its versions in any order; `None` without versions.
    #[must_use]
    pub fn new(name: &str, mut versions: Vec<CalendarVersion>) -> Option<Self> {
        versions.sort_by_key(|version| version.version);
        (!versions.is_empty()).then(|| Self { name: name.to_owned(), versions })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version that applies at an instant, and the first and last instant to which it applies.
    fn version_at(&self, at: DbTime) -> (&CalendarVersion, DbTime, DbTime) {
        let next =
            self.versions.iter().skip(1).position(|version| at <= version.from).map_or(self.versions.len(), |n| n + 1);
        let from = if next == 1 { DbTime::EPOCH } else { after(self.versions[next - 1].from) };
        let until = self.versions.get(next).map_or(DbTime::MAX, |version| version.from);
        (&self.versions[next - 1], from, until)
    }

    /// The period around an instant in which one version applies: one local day, or one range of excluded days.
    /// `excluded` is the version if it excludes the period.
    fn piece(&self, at: DbTime) -> Piece {
        let (version, from, until) = self.version_at(at);
        let (day, mut begins, mut ends) = version.day_of(at.millis().div_euclid(1_000));
        let millis = |second: i64| DbTime::from_millis(second.saturating_mul(1_000));
        let around = version.around(day);
        if let Some((first, last)) = around.filter(|(first, last)| first < last) {
            // Handle many days at once: a calendar may exclude a century.
            (begins, ends) = (begins.min(version.begin_of(first)), ends.max(version.begin_of(last + 1)));
        }
        Piece {
            excluded: around.map(|_| version.version),
            from: from.max(millis(begins)),
            to: until.min(before(millis(ends))),
        }
    }

    /// The first excluded instant in `from..=to`.
    fn next_from(&self, mut from: DbTime, to: DbTime) -> Option<DbTime> {
        while from <= to {
            let piece = self.piece(from);
            if piece.excluded.is_some() {
                return Some(from);
            }
            let (version, _, until) = self.version_at(from);
            let (day, ..) = version.day_of(from.millis().div_euclid(1_000));
            // Jump to shortly before the next excluded date, then continue day by day.
            let near = version
                .next_day(day + 1)
                .map_or(DbTime::MAX, |next| DbTime::from_millis((next - OFFSET_DAYS_MAX).saturating_mul(DAY * 1_000)));
            from = after(piece.to).max(near.min(after(until)));
        }
        None
    }
}

struct Piece {
    excluded: Option<Version>,
    from: DbTime,
    to: DbTime,
}

/// The calendars of a schedule; most schedules have none. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Exclusion(Option<Arc<[Arc<Calendar>]>>);

/// The calendar that excludes an instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Excluded<'a> {
    pub calendar: &'a str,
    /// The version that applied at that instant.
    pub version: Version,
}

impl Exclusion {
    #[must_use]
    pub fn new(calendars: Vec<Arc<Calendar>>) -> Self {
        Self((!calendars.is_empty()).then(|| calendars.into()))
    }

    /// Finds the calendars of these names. Returns an error for each unknown name.
    pub fn named(names: &[String], known: &[Arc<Calendar>]) -> Result<Self, Vec<Invalid>> {
        let (mut calendars, mut wrong) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            match known.iter().find(|calendar| calendar.name == *name) {
                Some(calendar) => calendars.push(Arc::clone(calendar)),
                None => wrong.push(Invalid::new(
                    "exclude",
                    format!(
                        "there is no calendar {name:?}; create it first, with PUT /api/v1/calendars/{name} or \
                             `everytick calendar set {name}`"
                    ),
                )),
            }
        }
        if wrong.is_empty() { Ok(Self::new(calendars)) } else { Err(wrong) }
    }

    fn calendars(&self) -> &[Arc<Calendar>] {
        self.0.as_deref().unwrap_or_default()
    }

    /// The first calendar that excludes an instant.
    #[must_use]
    pub fn of(&self, at: DbTime) -> Option<Excluded<'_>> {
        self.calendars()
            .iter()
            .find_map(|calendar| Some(Excluded { calendar: &calendar.name, version: calendar.piece(at).excluded? }))
    }

    /// The first excluded instant in `from..=to`.
    pub(crate) fn next_from(&self, from: DbTime, to: DbTime) -> Option<DbTime> {
        self.calendars().iter().filter_map(|calendar| calendar.next_from(from, to)).min()
    }

    fn piece(&self, at: DbTime) -> Option<Piece> {
        self.calendars().iter().map(|calendar| calendar.piece(at)).find(|piece| piece.excluded.is_some())
    }

    /// The last instant of the excluded period that starts at `at`, at most `to`; `None` if `at` is not excluded. If very many
    /// periods are adjacent, the instant after the result may be excluded too.
    pub(crate) fn excluded_through(&self, at: DbTime, to: DbTime) -> Option<DbTime> {
        let mut end = self.piece(at)?.to;
        for _ in 0..PERIODS_MERGED_MAX {
            match self.piece(after(end)).filter(|_| end < to) {
                Some(piece) => end = piece.to,
                None => break,
            }
        }
        Some(end.min(to))
    }

    /// The first instant of the excluded period that ends at `at`, at least `from`; `None` if `at` is not excluded.
    pub(crate) fn excluded_since(&self, at: DbTime, from: DbTime) -> Option<DbTime> {
        let mut begin = self.piece(at)?.from;
        for _ in 0..PERIODS_MERGED_MAX {
            match self.piece(before(begin)).filter(|_| begin > from) {
                Some(piece) => begin = piece.from,
                None => break,
            }
        }
        Some(begin.max(from))
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

    fn at(text: &str) -> DbTime {
        text.parse().unwrap()
    }

    fn version(version: i64, from: &str, zone: &str, dates: &[&str], yearly: &[&str]) -> CalendarVersion {
        let dates = dates.iter().map(|text| text.parse().unwrap()).collect();
        let yearly = yearly.iter().map(|text| text.parse().unwrap()).collect();
        CalendarVersion::new(Version::from_raw(version), at(from), &CalendarSpec::new(zone, dates, yearly).unwrap())
            .unwrap()
    }

    fn calendar(zone: &str, dates: &[&str], yearly: &[&str]) -> Exclusion {
        let versions = vec![version(1, "2026-01-01T00:00:00Z", zone, dates, yearly)];
        Exclusion::new(vec![Arc::new(Calendar::new("holidays", versions).unwrap())])
    }

    #[test]
    fn a_date_is_a_day_in_the_calendars_zone() {
        let berlin = calendar("Europe/Berlin", &["2026-12-25"], &[]);
        for (instant, excluded) in [
            ("2026-12-24T22:59:59.999Z", false),
            ("2026-12-24T23:00:00Z", true),
            ("2026-12-25T22:59:59.999Z", true),
            ("2026-12-25T23:00:00Z", false),
        ] {
            assert_eq!(berlin.of(at(instant)).is_some(), excluded, "{instant}");
        }
        assert_eq!(
            berlin.excluded_through(at("2026-12-25T10:00:00Z"), DbTime::MAX),
            Some(at("2026-12-25T22:59:59.999Z"))
        );
        assert_eq!(berlin.excluded_since(at("2026-12-25T10:00:00Z"), DbTime::EPOCH), Some(at("2026-12-24T23:00:00Z")));
        assert_eq!(berlin.excluded_through(at("2026-12-26T10:00:00Z"), DbTime::MAX), None);
    }

    #[test]
    fn days_are_shorter_or_longer_when_clocks_change() {
        for (zone, date, from, to) in [
            ("Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z", "2026-03-29T21:59:59.999Z"),
            ("Europe/Berlin", "2026-10-25", "2026-10-24T22:00:00Z", "2026-10-25T22:59:59.999Z"),
            // Clocks go forward at midnight, so the day begins at 01:00.
            ("Africa/Cairo", "2026-04-24", "2026-04-23T22:00:00Z", "2026-04-24T20:59:59.999Z"),
            ("Pacific/Auckland", "2026-09-27", "2026-09-26T12:00:00Z", "2026-09-27T10:59:59.999Z"),
        ] {
            let days = calendar(zone, &[date], &[]);
            assert_eq!(days.next_from(DbTime::EPOCH, DbTime::MAX), Some(at(from)), "{zone} {date}");
            assert_eq!(days.excluded_through(at(from), DbTime::MAX), Some(at(to)), "{zone} {date}");
            assert_eq!(days.excluded_since(at(to), DbTime::EPOCH), Some(at(from)), "{zone} {date}");
        }
    }

    #[test]
    fn a_date_that_the_zone_skipped_excludes_nothing() {
        let samoa = calendar("Pacific/Apia", &["2011-12-30"], &[]);
        assert_eq!(samoa.next_from(DbTime::EPOCH, DbTime::MAX), None);
        assert!(calendar("Pacific/Apia", &["2011-12-31"], &[]).of(at("2011-12-30T10:00:00Z")).is_some());
    }

    #[test]
    fn yearly_days_repeat_and_february_29_applies_to_leap_years() {
        let days = calendar("UTC", &[], &["12-25", "02-29"]);
        for (instant, excluded) in [
            ("2026-12-25T00:00:00Z", true),
            ("2093-12-25T12:00:00Z", true),
            ("2026-02-28T12:00:00Z", false),
            ("2028-02-29T12:00:00Z", true),
        ] {
            assert_eq!(days.of(at(instant)).is_some(), excluded, "{instant}");
        }
        let leap = calendar("UTC", &[], &["02-29"]);
        assert_eq!(leap.next_from(at("2096-03-01T00:00:00Z"), DbTime::MAX), Some(at("2104-02-29T00:00:00Z")));
        assert_eq!(leap.next_from(at("2026-03-01T00:00:00Z"), at("2028-02-28T23:00:00Z")), None);
    }

    #[test]
    fn adjacent_dates_are_excluded_as_one_stretch() {
        let days = calendar("UTC", &["2026-12-24", "2026-12-26/2026-12-28"], &["12-25", "12-31"]);
        assert_eq!(
            days.excluded_through(at("2026-12-24T12:00:00Z"), DbTime::MAX),
            Some(at("2026-12-28T23:59:59.999Z"))
        );
        assert_eq!(
            days.excluded_through(at("2026-12-24T12:00:00Z"), at("2026-12-26T00:00:00Z")),
            Some(at("2026-12-26T00:00:00Z"))
        );
        assert_eq!(days.excluded_since(at("2026-12-28T12:00:00Z"), DbTime::EPOCH), Some(at("2026-12-24T00:00:00Z")));
    }

    #[test]
    fn a_version_applies_after_its_creation_and_the_first_also_before() {
        let versions = vec![
            version(3, "2026-06-10T12:00:00Z", "UTC", &["2026-06-20"], &[]),
            version(2, "2026-06-01T12:00:00Z", "UTC", &["2026-06-01", "2026-06-10", "2026-06-20"], &[]),
            version(1, "2026-05-01T00:00:00Z", "UTC", &["2026-04-01", "2026-06-01"], &[]),
        ];
        let days = Exclusion::new(vec![Arc::new(Calendar::new("holidays", versions).unwrap())]);
        let version = |text| days.of(at(text)).map(|excluded| excluded.version.raw());
        for (instant, by) in [
            ("2026-04-01T09:00:00Z", Some(1)),
            ("2026-06-01T12:00:00Z", Some(1)),
            ("2026-06-01T12:00:00.001Z", Some(2)),
            ("2026-06-10T12:00:00Z", Some(2)),
            ("2026-06-10T12:00:00.001Z", None),
            ("2026-06-20T12:00:00Z", Some(3)),
        ] {
            assert_eq!(version(instant), by, "{instant}");
        }
        assert_eq!(
            days.excluded_through(at("2026-06-01T09:00:00Z"), DbTime::MAX),
            Some(at("2026-06-01T23:59:59.999Z"))
        );
        assert_eq!(days.excluded_through(at("2026-06-10T09:00:00Z"), DbTime::MAX), Some(at("2026-06-10T12:00:00Z")));
        assert_eq!(days.next_from(at("2026-06-10T12:00:00.001Z"), DbTime::MAX), Some(at("2026-06-20T00:00:00Z")));
    }

    #[test]
    fn the_first_calendar_that_excludes_an_instant_is_named() {
        let one = |name, zone, date| {
            Arc::new(Calendar::new(name, vec![version(1, "2026-01-01T00:00:00Z", zone, &[date], &[])]).unwrap())
        };
        let both = [one("tokyo", "Asia/Tokyo", "2026-12-25"), one("la", "America/Los_Angeles", "2026-12-24")];
        let days = Exclusion::named(&["la".into(), "tokyo".into()], &both).unwrap();
        assert_eq!(days.of(at("2026-12-24T16:00:00Z")).unwrap().calendar, "la");
        assert_eq!(days.of(at("2026-12-25T10:00:00Z")).unwrap().calendar, "tokyo");
        assert_eq!(
            days.excluded_through(at("2026-12-24T09:00:00Z"), DbTime::MAX),
            Some(at("2026-12-25T14:59:59.999Z"))
        );
        let wrong = Exclusion::named(&["la".into(), "mars".into()], &both).unwrap_err();
        assert_eq!((wrong.len(), wrong[0].field.as_str()), (1, "exclude"));
        assert!(wrong[0].message.contains("\"mars\""));
    }

    #[test]
    fn a_calendar_that_excludes_everything_is_searched_in_bounded_time() {
        let century = calendar("Europe/Berlin", &["2020-01-01/2119-12-31"], &[]);
        let end = at("2119-12-31T22:59:59.999Z");
        assert_eq!(century.excluded_through(at("2026-06-01T00:00:00Z"), DbTime::MAX), Some(end));
        assert_eq!(century.excluded_since(end, DbTime::EPOCH), Some(at("2019-12-31T23:00:00Z")));
        let all: Vec<String> = (1..=12).flat_map(|m| (1..=31).map(move |d| format!("{m:02}-{d:02}"))).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).filter(|text| text.parse::<MonthDay>().is_ok()).collect();
        let ever = calendar("UTC", &[], &all);
        let through = ever.excluded_through(at("2026-06-01T00:00:00Z"), DbTime::MAX).unwrap();
        assert!(through > at("2027-06-01T00:00:00Z") && through < at("2028-06-01T00:00:00Z"), "{through}");
    }

    /// Compares each search with one query per instant, which is slow but simple.
    #[test]
    fn searches_agree_with_queries_instant_by_instant() {
        let days = calendar("Australia/Lord_Howe", &["2026-04-05", "2026-04-07/2026-04-09"], &["04-11", "10-04"]);
        let (from, hours) = (at("2026-04-01T00:00:00Z"), 24 * 240);
        let hour = |n: i64| DbTime::from_millis(from.millis() + n * 1_800_000);
        let mut expected = None;
        for n in (0..hours).rev() {
            if days.of(hour(n)).is_some() {
                expected = Some(n);
            }
            let found = days.next_from(hour(n), hour(hours - 1));
            match expected {
                Some(first) => {
                    let found = found.unwrap();
                    assert!(found <= hour(first) && (first == n || found > hour(first - 1)), "{}", hour(n));
                }
                None => assert_eq!(found, None),
            }
        }
    }
}
