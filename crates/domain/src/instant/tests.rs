use proptest::prelude::*;

use super::*;
use crate::time::{DbTime, Span};

/// 13:30 in Paris and 12:30 in London.
const NOW: &str = "2026-11-16T12:30:00Z";

fn resolve(text: &str, now: &str, zone: &str, lean: Lean) -> Result<Resolved, String> {
    text.parse::<InstantText>()?.resolve(now.parse().unwrap(), &LocalZone::named(zone).unwrap(), lean)
}

fn at(text: &str, lean: Lean) -> String {
    let resolved = resolve(text, NOW, "Europe/Paris", lean).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
    LocalZone::named("Europe/Paris").unwrap().show(resolved.at)
}

#[test]
fn each_form_has_its_meaning_in_the_zone() {
    for (text, past, future, either) in [
        ("2026-10-20", "2026-10-20T00:00:00+02:00", "", ""),
        ("2026-11-17 02:00", "2026-11-17T02:00:00+01:00", "", ""),
        ("2026-11-17T02:00", "2026-11-17T02:00:00+01:00", "", ""),
        ("2026-11-17t02:00:05", "2026-11-17T02:00:05+01:00", "", ""),
        ("  2026-11-17   2:00 ", "2026-11-17T02:00:00+01:00", "", ""),
        ("2026-11-17 02:00 UTC", "2026-11-17T03:00:00+01:00", "", ""),
        ("2026-11-17 02:00 america/new_york", "2026-11-17T08:00:00+01:00", "", ""),
        ("2026-11-17T02:00:00Z", "2026-11-17T03:00:00+01:00", "", ""),
        ("2026-11-17 02:00:00+05:30", "2026-11-16T21:30:00+01:00", "", ""),
        ("2026-11-17T02:00:00.25-05:00", "2026-11-17T08:00:00.25+01:00", "", ""),
        ("now", "2026-11-16T13:30:00+01:00", "", ""),
        ("NOW", "2026-11-16T13:30:00+01:00", "", ""),
        ("today", "2026-11-16T00:00:00+01:00", "", ""),
        ("yesterday", "2026-11-15T00:00:00+01:00", "", ""),
        ("Tomorrow", "2026-11-17T00:00:00+01:00", "", ""),
        ("yesterday 22:15", "2026-11-15T22:15:00+01:00", "", ""),
        ("tomorrow 02:00 UTC", "2026-11-17T03:00:00+01:00", "", ""),
        ("02:00", "2026-11-16T02:00:00+01:00", "2026-11-17T02:00:00+01:00", "2026-11-16T02:00:00+01:00"),
        ("22:00", "2026-11-15T22:00:00+01:00", "2026-11-16T22:00:00+01:00", "2026-11-16T22:00:00+01:00"),
        ("13:30", "2026-11-16T13:30:00+01:00", "2026-11-17T13:30:00+01:00", "2026-11-16T13:30:00+01:00"),
        ("2h", "2026-11-16T11:30:00+01:00", "2026-11-16T15:30:00+01:00", "2026-11-16T11:30:00+01:00"),
        ("1h30m", "2026-11-16T12:00:00+01:00", "2026-11-16T15:00:00+01:00", "2026-11-16T12:00:00+01:00"),
        ("2h ago", "2026-11-16T11:30:00+01:00", "", ""),
        ("-2h", "2026-11-16T11:30:00+01:00", "", ""),
        ("in 2h", "2026-11-16T15:30:00+01:00", "", ""),
        ("+2h", "2026-11-16T15:30:00+01:00", "", ""),
        ("90 minutes ago", "2026-11-16T12:00:00+01:00", "", ""),
        ("1 day 1 hour ago", "2026-11-15T12:30:00+01:00", "", ""),
        ("in 1 week", "2026-11-23T13:30:00+01:00", "", ""),
        // Durations are elapsed time: the clocks went back between the two instants.
        ("30d ago", "2026-10-17T14:30:00+02:00", "", ""),
    ] {
        assert_eq!(at(text, Lean::Past), past, "{text} in the past");
        assert_eq!(at(text, Lean::Future), if future.is_empty() { past } else { future }, "{text} in the future");
        assert_eq!(at(text, Lean::Either), if either.is_empty() { past } else { either }, "{text}");
    }
}

#[test]
fn only_a_text_that_is_not_rfc_3339_has_a_reading() {
    let reading = |text: &str, zone: &str| resolve(text, NOW, zone, Lean::Past).unwrap().reading;
    assert_eq!(reading("2026-11-17T02:00:00Z", "Europe/Paris"), None);
    assert_eq!(reading("2026-11-17T02:00:00+05:00", "Europe/Paris"), None);
    for (text, zone, read) in [
        ("2026-11-17 02:00", "Europe/Paris", "2026-11-17T02:00:00+01:00 (Europe/Paris)"),
        ("2026-11-17 02:00", "UTC", "2026-11-17T02:00:00Z (UTC)"),
        ("2026-11-17 02:00 UTC", "Europe/Paris", "2026-11-17T02:00:00Z (UTC)"),
        ("2026-11-17", "Europe/London", "2026-11-17T00:00:00+00:00 (Europe/London)"),
        ("now", "Asia/Kolkata", "2026-11-16T18:00:00+05:30 (Asia/Kolkata)"),
        ("2h", "Asia/Kolkata", "2026-11-16T16:00:00+05:30 (Asia/Kolkata)"),
    ] {
        assert_eq!(reading(text, zone).unwrap(), read, "{text}");
    }
}

#[test]
fn a_local_time_at_a_clock_change_follows_the_written_rule_and_the_reading_mentions_it() {
    for (text, zone, read) in [
        (
            "2026-03-29 02:30",
            "Europe/Paris",
            "2026-03-29T03:00:00+02:00 (Europe/Paris; 02:30 does not exist on this day: this is the first instant after \
             the clock change)",
        ),
        (
            "2026-03-29 02:00",
            "Europe/Paris",
            "2026-03-29T03:00:00+02:00 (Europe/Paris; 02:00 does not exist on this day: this is the first instant after \
             the clock change)",
        ),
        ("2026-03-29 03:00", "Europe/Paris", "2026-03-29T03:00:00+02:00 (Europe/Paris)"),
        ("2026-03-29 01:59:59", "Europe/Paris", "2026-03-29T01:59:59+01:00 (Europe/Paris)"),
        (
            "2026-10-25 02:30",
            "Europe/Paris",
            "2026-10-25T02:30:00+02:00 (Europe/Paris; 02:30 comes twice on this day: this is the first; the second is \
             2026-10-25T02:30:00+01:00)",
        ),
        ("2026-10-25 03:00", "Europe/Paris", "2026-10-25T03:00:00+01:00 (Europe/Paris)"),
        // Lord Howe moves its clocks by half an hour.
        (
            "2026-10-04 02:10",
            "Australia/Lord_Howe",
            "2026-10-04T02:30:00+11:00 (Australia/Lord_Howe; 02:10 does not exist on this day: this is the first instant \
             after the clock change)",
        ),
        // In Beirut, clocks skip midnight, so the day begins at 01:00.
        (
            "2026-03-29",
            "Asia/Beirut",
            "2026-03-29T01:00:00+03:00 (Asia/Beirut; 00:00 does not exist on this day: this is the first instant after \
             the clock change)",
        ),
        // Samoa skipped the whole day.
        (
            "2011-12-30 12:00",
            "Pacific/Apia",
            "2011-12-31T00:00:00+14:00 (Pacific/Apia; 12:00 does not exist on this day: this is the first instant after \
             the clock change)",
        ),
    ] {
        assert_eq!(resolve(text, NOW, zone, Lean::Past).unwrap().reading.unwrap(), read, "{text}");
    }
}

#[test]
fn a_wrong_text_is_refused_with_the_value_and_a_right_form() {
    for (text, remedy) in [
        ("", "2026-11-16 07:00"),
        ("soon", "yesterday"),
        ("5", "2h ago"),
        ("1766000000", "2026-11-16"),
        ("2026-13-01", "there is no month 13"),
        ("2026-00-01", "there is no month 0"),
        ("2026-02-29", "2026-02 has 28 days"),
        ("2026-06-31 02:00", "2026-06 has 30 days"),
        ("2026-06-00", "2026-06 has 30 days"),
        ("20.10.2026", "\"2026-11-16\""),
        ("10/20/2026", "\"2026-11-16\""),
        ("20-10-2026", "\"2026-11-16\""),
        ("26-10-20", "\"2026-11-16\""),
        ("2026-10", "\"2026-11-16\""),
        ("25:00", "00:00 to 23:59"),
        ("2026-11-16 02:60", "00:00 to 23:59"),
        ("24:00", "\"00:00\" of the next day"),
        ("2am", "\"07:00\""),
        ("2026-11-16 02:00 EST", "America/New_York"),
        ("2026-11-16 02:00 Europe/Pariss", "did you mean \"Europe/Paris\"?"),
        ("2026-11-16 02:00 x y", "\"2026-11-16 07:00\""),
        ("2026-11-16T07:00:00+01:00[Europe/Berlin] x", "\"2026-11-16 07:00\""),
        ("2h from now", "\"in 2h\""),
        ("1.5h ago", "\"2h ago\""),
        ("in soon", "\"in 2h\""),
        ("99999999d ago", "\"2h ago\""),
        ("--to", "2h ago"),
        ("٢٠٢٦-١١-١٦", "\"2026-11-16\""),
    ] {
        let message = resolve(text, NOW, "UTC", Lean::Past).unwrap_err();
        assert!(message.contains(&format!("{text:?}")) && message.contains(remedy), "{text}: {message}");
    }
    let message = "x".repeat(10_000).parse::<InstantText>().unwrap_err();
    assert!(message.len() < 400 && message.contains("10000 bytes"), "{message}");
}

#[test]
fn an_instant_before_1970_or_after_9999_is_refused() {
    for text in ["1969-12-31", "99y ago", "60 weeks ago", "1970-01-01 00:30", "9999-12-31 23:00", "0001-01-01"] {
        let resolved = resolve(text, "1971-01-01T00:00:00Z", "Europe/Paris", Lean::Past);
        assert!(resolved.is_err(), "{text}: {resolved:?}");
    }
    assert!("1969-12-31T00:00:00Z".parse::<InstantText>().unwrap_err().contains("1970"));
}

#[test]
fn the_zone_is_needed_only_for_a_local_time_that_names_none() {
    for (text, needs, exact) in [
        ("2026-11-17 02:00", true, false),
        ("02:00", true, false),
        ("today", true, false),
        ("2026-11-17 02:00 UTC", false, false),
        ("now", false, false),
        ("2h ago", false, false),
        ("2026-11-17T02:00:00Z", false, true),
    ] {
        let parsed: InstantText = text.parse().unwrap();
        assert_eq!((parsed.needs_zone(), parsed.is_exact()), (needs, exact), "{text}");
        assert_eq!(parsed.to_string(), text);
    }
}

const ZONES: [&str; 7] = [
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Beirut",
    "Pacific/Apia",
    "Africa/Casablanca",
];

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}", number in 0_i64..253_402_207_200_000) {
        if let Ok(parsed) = text.parse::<InstantText>() {
            let _ = parsed.resolve(DbTime::from_millis(number), &LocalZone::utc(), Lean::Future);
        }
    }

    #[test]
    fn a_shown_time_is_read_as_the_same_instant(second in 0_i64..4_102_444_800, zone in prop::sample::select(&ZONES)) {
        let (instant, zone) = (DbTime::from_millis(second * 1_000), LocalZone::named(zone).unwrap());
        let parsed: InstantText = zone.show(instant).parse().unwrap();
        prop_assert!(parsed.is_exact());
        prop_assert_eq!(parsed.resolve(DbTime::EPOCH, &zone, Lean::Past).unwrap().at, instant);
    }

    #[test]
    fn the_local_time_of_an_instant_is_read_as_that_instant_or_as_its_first_pass(
        second in 86_400_i64..4_102_444_800, zone in prop::sample::select(&ZONES),
    ) {
        let (instant, zone) = (DbTime::from_millis(second * 1_000), LocalZone::named(zone).unwrap());
        let clock = zone.civil(instant).strftime("%Y-%m-%d %H:%M:%S").to_string();
        let read = clock.parse::<InstantText>().unwrap().resolve(DbTime::EPOCH, &zone, Lean::Past).unwrap();
        prop_assert!(read.at <= instant);
        prop_assert_eq!(zone.civil(read.at), zone.civil(instant));
        prop_assert_eq!(read.at < instant, read.reading.unwrap().contains("comes twice") && read.at != instant);
    }

    #[test]
    fn a_time_of_day_is_at_most_a_day_away_on_the_side_of_the_flag(
        second in 172_800_i64..4_102_444_800, hour in 0..24, minute in 0..60, zone in prop::sample::select(&ZONES[..5]),
    ) {
        let (now, zone) = (DbTime::from_millis(second * 1_000), LocalZone::named(zone).unwrap());
        let parsed: InstantText = format!("{hour:02}:{minute:02}").parse().unwrap();
        let day = Span::hours(26); // a day on which clocks go back is longer than 24 hours, and the time may be shifted
        let past = parsed.resolve(now, &zone, Lean::Past).unwrap().at;
        prop_assert!(past <= now && now.since(past) <= day, "{past}");
        let future = parsed.resolve(now, &zone, Lean::Future).unwrap().at;
        prop_assert!(future > now && future.since(now) <= day, "{future}");
    }
}

#[test]
fn only_a_day_without_a_time_has_an_end() {
    let end = |text: &str| {
        let text: InstantText = text.parse().unwrap();
        text.end_of_day(NOW.parse().unwrap(), &LocalZone::named("Europe/Paris").unwrap()).map(|end| end.to_string())
    };
    for (text, expected) in [
        ("2026-12-25", Some("2026-12-25T23:00:00Z")),
        ("2027-03-28", Some("2027-03-28T22:00:00Z")),
        ("yesterday", Some("2026-11-15T23:00:00Z")),
        ("2026-12-25 UTC", Some("2026-12-26T00:00:00Z")),
        ("2026-12-25 02:00", None),
        ("2026-12-25T00:00:00Z", None),
        ("02:00", None),
        ("now", None),
        ("2h", None),
    ] {
        assert_eq!(end(text).as_deref(), expected, "{text}");
    }
}
