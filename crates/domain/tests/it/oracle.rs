//! Compares random expressions with a second implementation of the rules that shares no code with the first. It walks instants
//! one by one, takes the local time of each from jiff, and applies the rules as written.

use everytick_domain::{
    schedule::{Fold, Gap},
    time::DbTime,
};
use jiff::{
    Timestamp,
    civil::{self, DateTime},
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};
use proptest::{prelude::*, sample::select};

use crate::cron_with;

/// One item of a field, without bit sets.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Star,
    StarBy(i16),
    One(i16),
    Range(i16, i16),
    RangeBy(i16, i16, i16),
    Last,
    LastWorkday,
    Nearest(i16),
    Nth(i16, i16),
    LastOf(i16),
}

#[derive(Clone, Debug)]
pub(crate) struct Random {
    /// Second, minute, hour, day, month, weekday.
    fields: [Vec<Piece>; 6],
    seconds: bool,
    both: bool,
}

const BOUNDS: [(i16, i16); 6] = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];

impl Random {
    pub(crate) fn text(&self) -> String {
        let field = |index: usize| {
            let list = self.fields[index].iter().map(Piece::text).collect::<Vec<_>>().join(",");
            if index == 5 && self.both { format!("+{list}") } else { list }
        };
        (usize::from(!self.seconds)..6).map(field).collect::<Vec<_>>().join(" ")
    }

    fn elapsed(&self) -> bool {
        let text = self.text();
        let words: Vec<&str> = text.split(' ').collect();
        let hour = words[words.len() - 4];
        words[..words.len() - 3].iter().any(|word| word.starts_with('*')) || (hour.contains('-') && !hour.contains(','))
    }

    fn matches(&self, local: DateTime) -> bool {
        let has = |index: usize, value: i8| {
            self.fields[index].iter().any(|piece| piece.has(i16::from(value), BOUNDS[index], local.date()))
        };
        has(0, local.second())
            && has(1, local.minute())
            && has(2, local.hour())
            && has(4, local.month())
            && self.day_matches(local.date())
    }

    fn day_matches(&self, date: civil::Date) -> bool {
        let star = |index: usize| matches!(self.fields[index][..], [Piece::Star]);
        let by_day = self.fields[3].iter().any(|piece| piece.has(i16::from(date.day()), BOUNDS[3], date));
        let weekday = i16::from(date.weekday().to_sunday_zero_offset());
        let by_weekday = self.fields[5]
            .iter()
            .any(|piece| piece.has(weekday, BOUNDS[5], date) || (weekday == 0 && piece.has(7, BOUNDS[5], date)));
        match (star(3), star(5)) {
            (true, _) => by_weekday,
            (false, true) => by_day,
            (false, false) if self.both => by_day && by_weekday,
            (false, false) => by_day || by_weekday,
        }
    }
}

impl Piece {
    fn text(&self) -> String {
        match self {
            Self::Star => "*".to_owned(),
            Self::StarBy(n) => format!("*/{n}"),
            Self::One(a) => a.to_string(),
            Self::Range(a, b) => format!("{a}-{b}"),
            Self::RangeBy(a, b, n) => format!("{a}-{b}/{n}"),
            Self::Last => "L".to_owned(),
            Self::LastWorkday => "LW".to_owned(),
            Self::Nearest(day) => format!("{day}W"),
            Self::Nth(weekday, nth) => format!("{weekday}#{nth}"),
            Self::LastOf(weekday) => format!("{weekday}#L"),
        }
    }

    fn has(&self, value: i16, (min, _): (i16, i16), date: civil::Date) -> bool {
        let workday = |day: civil::Date| (1..=5).contains(&day.weekday().to_monday_one_offset());
        match *self {
            Self::Star => true,
            Self::StarBy(n) => (value - min) % n == 0,
            Self::One(a) => value == a,
            Self::Range(a, b) => (a..=b).contains(&value),
            Self::RangeBy(a, b, n) => (a..=b).contains(&value) && (value - a) % n == 0,
            Self::Last => date == date.last_of_month(),
            Self::LastWorkday => {
                let mut day = date.last_of_month();
                while !workday(day) {
                    day = day.yesterday().unwrap();
                }
                day == date
            }
            // The working day of the month that is fewest days away. Two at the same distance cannot occur.
            Self::Nearest(day) => civil::Date::new(date.year(), date.month(), day as i8).is_ok_and(|wanted| {
                (1..=date.days_in_month())
                    .filter_map(|day| civil::Date::new(date.year(), date.month(), day).ok())
                    .filter(|day| workday(*day))
                    .min_by_key(|day| (day.day() - wanted.day()).abs())
                    == Some(date)
            }),
            Self::Nth(weekday, nth) => value % 7 == weekday % 7 && i16::from((date.day() - 1) / 7) + 1 == nth,
            Self::LastOf(weekday) => value % 7 == weekday % 7 && date.day() + 7 > date.days_in_month(),
        }
    }
}

fn plain((min, max): (i16, i16)) -> BoxedStrategy<Piece> {
    prop_oneof![
        3 => (min..=max).prop_map(Piece::One),
        1 => (1..=max).prop_map(Piece::StarBy),
        2 => (min..=max, min..=max).prop_map(|(a, b)| Piece::Range(a.min(b), a.max(b))),
        1 => (min..=max, min..=max, 1..=max).prop_map(|(a, b, n)| Piece::RangeBy(a.min(b), a.max(b), n)),
    ]
    .boxed()
}

fn field(bounds: (i16, i16), stars: u32, special: Option<BoxedStrategy<Piece>>) -> BoxedStrategy<Vec<Piece>> {
    let listed = prop::collection::vec(plain(bounds), 1..=3);
    let star = Just(vec![Piece::Star]);
    match special {
        None => prop_oneof![stars => star, 4 => listed].boxed(),
        Some(special) => prop_oneof![stars => star, 3 => listed, 2 => special.prop_map(|piece| vec![piece])].boxed(),
    }
}

pub(crate) fn expressions(seconds: bool) -> impl Strategy<Value = Random> {
    let special_day =
        prop_oneof![Just(Piece::Last), Just(Piece::LastWorkday), (1..=31_i16).prop_map(Piece::Nearest)].boxed();
    let special_weekday =
        prop_oneof![(0..=6_i16, 1..=5_i16).prop_map(|(w, n)| Piece::Nth(w, n)), (0..=6_i16).prop_map(Piece::LastOf)]
            .boxed();
    let second = if seconds { field(BOUNDS[0], 1, None) } else { Just(vec![Piece::One(0)]).boxed() };
    let hour = prop_oneof![2 => field((0, 23), 2, None), 1 => prop::collection::vec(plain((0, 3)), 1..=3)];
    (
        second,
        field(BOUNDS[1], 2, None),
        hour,
        field(BOUNDS[3], 6, Some(special_day)),
        field(BOUNDS[4], 12, None),
        field(BOUNDS[5], 6, Some(special_weekday)),
        prop::bool::weighted(0.2),
    )
        .prop_map(move |(second, minute, hour, day, month, weekday, both)| Random {
            fields: [second, minute, hour, day, month, weekday],
            seconds,
            both,
        })
}

/// Clock changes in zones with unusual rules.
const CHANGES: [(&str, &str); 16] = [
    ("UTC", "2025-03-09T07:00:00Z"),
    ("America/New_York", "2025-03-09T07:00:00Z"),
    ("America/New_York", "2025-11-02T06:00:00Z"),
    ("Europe/London", "2025-10-26T01:00:00Z"),
    ("Australia/Lord_Howe", "2025-04-05T15:00:00Z"),
    ("Australia/Lord_Howe", "2025-10-04T15:30:00Z"),
    ("America/St_Johns", "2010-03-14T03:31:00Z"),
    ("America/St_Johns", "2010-11-07T02:31:00Z"),
    ("Africa/Casablanca", "2024-03-10T02:00:00Z"),
    ("Africa/Casablanca", "2024-04-14T02:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Africa/Cairo", "2024-04-25T22:00:00Z"),
    ("Africa/Cairo", "2024-10-31T21:00:00Z"),
    ("America/Santiago", "2024-09-08T04:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
    ("Asia/Kathmandu", "1985-12-31T18:30:00Z"),
];

/// The ticks in `from..=to`, in seconds, found by a walk in steps.
fn walk(random: &Random, zone: &TimeZone, gap: Gap, fold: Fold, from: i64, to: i64, step: i64) -> Vec<i64> {
    let elapsed = random.elapsed();
    let offset = |second: i64| i64::from(zone.to_offset(Timestamp::from_second(second).unwrap()).seconds());
    let mut ticks = Vec::new();
    let mut second = from;
    while second <= to {
        let local = zone.to_datetime(Timestamp::from_second(second).unwrap());
        let mut fires = random.matches(local) && (elapsed || right_pass(zone, local, second, fold));
        let jump = offset(second) - offset(second - step);
        if !elapsed && gap == Gap::Shift && jump > 0 && jump <= 3 * 3_600 {
            let steps = jump / step;
            fires |= (1..=steps).any(|n| random.matches(local - jiff::SignedDuration::from_secs(n * step)));
        }
        if fires {
            ticks.push(second);
        }
        second += step;
    }
    ticks
}

fn right_pass(zone: &TimeZone, local: DateTime, second: i64, fold: Fold) -> bool {
    match (zone.to_ambiguous_timestamp(local).offset(), fold) {
        (AmbiguousOffset::Fold { before, .. }, Fold::First) => {
            before.to_timestamp(local).unwrap().as_second() == second
        }
        (AmbiguousOffset::Fold { after, .. }, Fold::Last) => after.to_timestamp(local).unwrap().as_second() == second,
        _ => true,
    }
}

fn compare(
    random: &Random,
    zone: &str,
    gap: Gap,
    fold: Fold,
    from: i64,
    to: i64,
    step: i64,
) -> Result<(), TestCaseError> {
    let text = random.text();
    let Ok(schedule) = cron_with(&text, zone, gap, fold) else {
        // A generated expression may be refused only if no date matches.
        let never = (0..366 * 28).all(|day| {
            let date = civil::date(2000, 1, 1) + jiff::Span::new().days(day);
            !random.day_matches(date)
                || !random.fields[4].iter().any(|p| p.has(i16::from(date.month()), BOUNDS[4], date))
        });
        prop_assert!(never, "{text} was refused");
        return Ok(());
    };
    let jiff_zone = TimeZoneDatabase::bundled().get(zone).unwrap();
    let expected = walk(random, &jiff_zone, gap, fold, from, to, step);
    let (from, to) = (DbTime::from_millis(from * 1_000), DbTime::from_millis(to * 1_000));
    let ticks: Vec<_> = schedule.ticks(from, to).collect();
    let expected: Vec<_> = expected.into_iter().map(|second| DbTime::from_millis(second * 1_000)).collect();
    prop_assert_eq!(&ticks, &expected, "{} in {} {:?} {:?}", text, zone, gap, fold);
    prop_assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]));
    prop_assert_eq!(schedule.count(from, to), ticks.len() as u64, "{} in {} {:?} {:?}", text, zone, gap, fold);
    prop_assert_eq!(schedule.last_up_to(from, to), ticks.last().copied());
    prop_assert_eq!(&schedule.newest(from, to, 3)[..], &ticks[ticks.len().saturating_sub(3)..]);
    Ok(())
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn minutes_around_clock_changes_follow_the_rules(
        random in expressions(false),
        (zone, change) in select(&CHANGES[..]),
        gap in select(&[Gap::Shift, Gap::Skip][..]),
        fold in select(&[Fold::First, Fold::Last, Fold::Both][..]),
        before in 0..2_880_i64,
    ) {
        let from = change.parse::<Timestamp>().unwrap().as_second() - before * 60;
        compare(&random, zone, gap, fold, from, from + 3 * 86_400, 60)?;
    }

    #[test]
    fn seconds_around_clock_changes_follow_the_rules(
        random in expressions(true),
        (zone, change) in select(&CHANGES[..]),
        gap in select(&[Gap::Shift, Gap::Skip][..]),
        fold in select(&[Fold::First, Fold::Last, Fold::Both][..]),
        before in 0..5_400_i64,
    ) {
        let from = change.parse::<Timestamp>().unwrap().as_second() - before;
        compare(&random, zone, gap, fold, from, from + 7_500, 1)?;
    }

    /// Sparse schedules skip clock changes. Their ticks must agree with a walk by days.
    #[test]
    fn days_over_years_follow_the_rules(
        mut random in expressions(false),
        hour in 0..=3_i16,
        minute in select(&[0_i16, 15, 30, 59][..]),
        (zone, change) in select(&CHANGES[..]),
    ) {
        random.fields[1] = vec![Piece::One(minute)];
        random.fields[2] = vec![Piece::One(hour)];
        let Ok(schedule) = cron_with(&random.text(), zone, Gap::Shift, Fold::First) else { return Ok(()) };
        let jiff_zone = TimeZoneDatabase::bundled().get(zone).unwrap();
        let from = change.parse::<Timestamp>().unwrap();
        let start = jiff_zone.to_datetime(from).date();
        let expected: Vec<_> = (-2..6 * 365)
            .map(|day| start + jiff::Span::new().days(day))
            .filter(|date| random.matches(date.at(hour as i8, minute as i8, 0, 0)))
            .filter_map(|date| {
                let local = date.at(hour as i8, minute as i8, 0, 0);
                match jiff_zone.to_ambiguous_timestamp(local).offset() {
                    AmbiguousOffset::Unambiguous { offset } => Some(offset.to_timestamp(local).unwrap()),
                    AmbiguousOffset::Fold { before, .. } => Some(before.to_timestamp(local).unwrap()),
                    AmbiguousOffset::Gap { before, after } => {
                        let skipped = after.seconds() - before.seconds();
                        let late = before.to_timestamp(local).unwrap();
                        let change = jiff_zone.preceding(late + jiff::SignedDuration::from_secs(1)).next().unwrap();
                        (skipped <= 3 * 3_600).then(|| change.timestamp())
                    }
                }
            })
            .filter(|tick| *tick > from)
            .map(DbTime::from)
            .take(8)
            .collect();
        let from = DbTime::from(from);
        let ticks: Vec<_> = std::iter::successors(schedule.next_after(from), |tick| schedule.next_after(*tick))
            .take(expected.len())
            .collect();
        prop_assert_eq!(&ticks, &expected, "{} in {}", random.text(), zone);
        if let Some(last) = ticks.last() {
            prop_assert_eq!(schedule.count(DbTime::from_millis(from.millis() + 1), *last), ticks.len() as u64);
        }
    }
}
