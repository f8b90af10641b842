//! Instants on the database clock (RFC 3339) and durations (`1h30m`), with their text forms.

use std::{fmt, str::FromStr, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// An instant on the database clock, in milliseconds. It decides ticks, due times and leases; sleeping uses monotonic time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DbTime(i64);

impl DbTime {
    pub const EPOCH: Self = Self(0);
    /// The last instant accepted: 26 hours before the end of year 9999, so that its local time in every zone is valid RFC 3339.
    pub const MAX: Self = Self(253_402_207_200_000 - 1);

    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    #[must_use]
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add_unsigned(span.0))
    }

    #[must_use]
    pub const fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub_unsigned(span.0))
    }

    /// How long after `earlier` this is; zero if it is not later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The instant as a jiff timestamp, clamped to jiff's range.
    #[must_use]
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_millisecond(self.0).unwrap_or(if self.0 < 0 { Timestamp::MIN } else { Timestamp::MAX })
    }
}

/// Rounds up to the next millisecond, so that nothing fires early.
impl From<Timestamp> for DbTime {
    fn from(at: Timestamp) -> Self {
        let floor = at.as_nanosecond().div_euclid(1_000_000);
        let rest = at.as_nanosecond().rem_euclid(1_000_000);
        Self(i64::try_from(floor + i128::from(rest > 0)).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for DbTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.timestamp().fmt(f)
    }
}

impl FromStr for DbTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let outside = || format!("{text:?} is outside {} to {}", Self::EPOCH, Self::MAX);
        let at: Timestamp = text.parse().map_err(|_| {
            if is_instant(text) {
                return outside();
            }
            format!("{text:?} is not an instant; write RFC 3339, such as \"2026-11-16T07:00:00Z\"")
        })?;
        if offset_hours(text) > OFFSET_HOURS_MAX {
            return Err(format!(
                "{text:?} has an offset of more than {OFFSET_HOURS_MAX} hours, which no place has; write one such as +02:00"
            ));
        }
        let at = Self::from(at);
        if (Self::EPOCH..=Self::MAX).contains(&at) { Ok(at) } else { Err(outside()) }
    }
}

/// No place on earth was ever further from UTC. A larger offset is a typing error that would move the instant by a day.
const OFFSET_HOURS_MAX: u32 = 16;

/// The whole hours of the offset that a text names.
fn offset_hours(text: &str) -> u32 {
    let pieces = jiff::fmt::temporal::Pieces::parse(text).ok();
    let offset = pieces.and_then(|pieces| pieces.to_numeric_offset());
    offset.map_or(0, |offset| offset.seconds().unsigned_abs().div_ceil(3_600))
}

/// Whether a text has the form of an instant, also one beyond the range of a timestamp.
fn is_instant(text: &str) -> bool {
    let pieces = jiff::fmt::temporal::Pieces::parse(text);
    pieces.is_ok_and(|pieces| pieces.time().is_some() && pieces.offset().is_some())
}

impl Serialize for DbTime {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DbTime {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A duration in milliseconds. Written as `90s`, `15m`, `1h30m`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(u64);

/// Units from largest to smallest. Weeks and months are left out, because their abbreviations are ambiguous.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Span {
    pub const ZERO: Self = Self(0);
    /// The longest span that can be parsed: 100 years. Sums of a few spans cannot overflow.
    pub const MAX: Self = Self::days(36_525);

    #[must_use]
    pub const fn millis(millis: u64) -> Self {
        Self(millis)
    }
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1_000)
    }
    #[must_use]
    pub const fn minutes(minutes: u64) -> Self {
        Self(minutes * 60_000)
    }
    #[must_use]
    pub const fn hours(hours: u64) -> Self {
        Self(hours * 3_600_000)
    }
    #[must_use]
    pub const fn days(days: u64) -> Self {
        Self(days * 86_400_000)
    }
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_millis(span.0)
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, millis) in UNITS {
            if rest >= millis {
                write!(f, "{}{unit}", rest / millis)?;
                rest %= millis;
            }
        }
        Ok(())
    }
}

impl FromStr for Span {
    type Err = String;

    /// Parses whole numbers with units, each unit at most once and larger units first: `1h30m`, never `30m1h` or `1.5h`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration; write it like \"90s\", \"15m\", \"1h30m\" or \"7d\"");
        let mut rest = text;
        let mut units = UNITS.iter();
        let mut total: u64 = 0;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, tail) = rest.split_at(digits);
            let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
            let (unit, tail) = tail.split_at(letters);
            let number: u64 = number.parse().map_err(|_| wrong())?;
            let (_, millis) = units.find(|(name, _)| *name == unit).ok_or_else(wrong)?;
            total = number.checked_mul(*millis).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
            rest = tail;
        }
        if total > Self::MAX.0 {
            return Err(format!("{text:?} is longer than a hundred years"));
        }
        Ok(Self(total))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_no_place_has_is_refused() {
        for text in ["2027-11-17T02:00:00+25:00", "2027-11-17T02:00:00-17:00", "2027-11-17T02:00:00+16:01"] {
            let error = text.parse::<DbTime>().unwrap_err();
            assert!(error.contains(text) && error.contains("16 hours"), "{error}");
        }
        for text in ["2027-11-17T02:00:00+14:00", "2027-11-17T02:00:00-12:00", "2027-11-17T02:00:00Z"] {
            assert!(text.parse::<DbTime>().is_ok(), "{text}");
        }
    }

    #[test]
    fn spans_parse_and_print_in_their_text_form() {
        for (text, millis) in
            [("90s", 90_000), ("15m", 900_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("500ms", 500), ("0s", 0)]
        {
            assert_eq!(text.parse::<Span>().unwrap().as_millis(), millis, "{text}");
        }
        for (text, printed) in [("90s", "1m30s"), ("1d24h", "2d"), ("1h30m", "1h30m"), ("0m", "0s"), ("1s5ms", "1s5ms")]
        {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), printed);
        }
    }

    #[test]
    fn bad_spans_are_refused_with_an_example_of_a_right_one() {
        for text in ["", "5", "s", "1.5h", "30m1h", "1h1h", "-5s", "5 s", "5w", "99999999999999999999s", "1h30", "٣s"]
        {
            let message = text.parse::<Span>().unwrap_err();
            assert!(message.contains("90s"), "{text}: {message}");
        }
        assert!("36526d".parse::<Span>().unwrap_err().contains("hundred years"));
    }

    #[test]
    fn instants_round_up_to_the_millisecond_so_that_nothing_is_early() {
        let at: DbTime = "2026-11-16T07:00:00.0001Z".parse().unwrap();
        assert_eq!(at.to_string(), "2026-11-16T07:00:00.001Z");
        assert_eq!("2026-11-16T02:00:00-05:00".parse::<DbTime>().unwrap().to_string(), "2026-11-16T07:00:00Z");
    }

    #[test]
    fn an_instant_out_of_range_is_refused_with_the_range() {
        for text in
            ["9999-12-31T23:59:59Z", "9999-12-30T22:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59+02:00"]
        {
            let refused = text.parse::<DbTime>().unwrap_err();
            assert!(refused.ends_with("is outside 1970-01-01T00:00:00Z to 9999-12-30T21:59:59.999Z"), "{refused}");
        }
        assert_eq!("9999-12-30T21:59:59.999Z".parse(), Ok(DbTime::MAX));
        for text in ["9999-12-31", "9999-12-31T23:59:59", "9999-13-31T23:59:59Z", "9999-12-31T23:59:59Z[UTC]x"] {
            let refused = text.parse::<DbTime>().unwrap_err();
            assert!(refused.contains("is not an instant"), "{refused}");
        }
    }

    #[test]
    fn bad_instants_are_refused_with_an_example_of_a_right_one() {
        for text in ["", "tomorrow", "2026-11-16", "2026-11-16T07:00:00", "2026-13-01T00:00:00Z"] {
            assert!(text.parse::<DbTime>().unwrap_err().contains("RFC 3339"), "{text}");
        }
        assert!("1969-12-31T00:00:00Z".parse::<DbTime>().unwrap_err().contains("1970"));
    }
}
