//! Which expressions are accepted, what they mean, and the errors of the others.

use everytick_domain::schedule::{EXPRESSION_BYTES_MAX, Fold, Gap, ScheduleSpec, Timing};

use crate::{cron, next};

#[test]
fn each_form_names_its_dates() {
    for (expression, after, ticks) in [
        ("0 0 L * *", "2025-01-15T00:00:00Z", ["2025-01-31", "2025-02-28", "2025-03-31"]),
        ("0 0 1,L * *", "2025-01-15T00:00:00Z", ["2025-01-31", "2025-02-01", "2025-02-28"]),
        ("0 0 LW * *", "2025-08-15T00:00:00Z", ["2025-08-29", "2025-09-30", "2025-10-31"]),
        ("0 0 lw * *", "2025-11-15T00:00:00Z", ["2025-11-28", "2025-12-31", "2026-01-30"]),
        // W means the nearest Monday to Friday, and never leaves its month.
        ("0 0 1W * *", "2025-02-01T00:00:00Z", ["2025-02-03", "2025-03-03", "2025-04-01"]),
        ("0 0 31W * *", "2025-05-01T00:00:00Z", ["2025-05-30", "2025-07-31", "2025-08-29"]),
        ("0 0 15w * *", "2025-06-01T00:00:00Z", ["2025-06-16", "2025-07-15", "2025-08-15"]),
        ("0 0 * * 5L", "2025-01-01T00:00:00Z", ["2025-01-31", "2025-02-28", "2025-03-28"]),
        ("0 0 * * fri#l", "2025-01-01T00:00:00Z", ["2025-01-31", "2025-02-28", "2025-03-28"]),
        ("0 0 * * SUNL", "2025-01-01T00:00:00Z", ["2025-01-26", "2025-02-23", "2025-03-30"]),
        ("0 0 * * 7#L", "2025-01-01T00:00:00Z", ["2025-01-26", "2025-02-23", "2025-03-30"]),
        ("0 0 * * TUE#3", "2025-06-01T00:00:00Z", ["2025-06-17", "2025-07-15", "2025-08-19"]),
        ("0 0 * * 1#1,5#L", "2025-06-03T00:00:00Z", ["2025-06-27", "2025-07-07", "2025-07-25"]),
        ("0 0 * * 0#5", "2025-01-01T00:00:00Z", ["2025-03-30", "2025-06-29", "2025-08-31"]),
        // A week may end on Sunday, by name and by number.
        ("0 0 * * FRI-SUN", "2025-01-01T00:00:00Z", ["2025-01-03", "2025-01-04", "2025-01-05"]),
        ("0 0 * * 5-7", "2025-01-01T00:00:00Z", ["2025-01-03", "2025-01-04", "2025-01-05"]),
        ("0 0 * * sun-sat", "2025-01-01T00:00:00Z", ["2025-01-02", "2025-01-03", "2025-01-04"]),
        ("0 0 * * 0-7", "2025-01-01T00:00:00Z", ["2025-01-02", "2025-01-03", "2025-01-04"]),
        ("0 0 * * SUN-SUN", "2025-01-01T00:00:00Z", ["2025-01-05", "2025-01-12", "2025-01-19"]),
        ("0 0 * * 7", "2025-01-01T00:00:00Z", ["2025-01-05", "2025-01-12", "2025-01-19"]),
        ("0 0 * * 1-7/3", "2025-01-01T00:00:00Z", ["2025-01-02", "2025-01-05", "2025-01-06"]),
        ("0 0 * * */7", "2025-01-01T00:00:00Z", ["2025-01-05", "2025-01-12", "2025-01-19"]),
        // Both day fields restricted: either matches. A step restricts, a plus requires both, `?` is a star.
        ("0 0 13 * FRI", "2025-06-01T00:00:00Z", ["2025-06-06", "2025-06-13", "2025-06-20"]),
        ("0 0 13 * +FRI", "2025-06-01T00:00:00Z", ["2025-06-13", "2026-02-13", "2026-03-13"]),
        ("0 0 */10 * 1", "2025-01-01T00:00:00Z", ["2025-01-06", "2025-01-11", "2025-01-13"]),
        ("0 0 */2 * +1", "2025-01-01T00:00:00Z", ["2025-01-13", "2025-01-27", "2025-02-03"]),
        ("0 0 1-31 * MON", "2025-01-01T00:00:00Z", ["2025-01-02", "2025-01-03", "2025-01-04"]),
        ("0 0 ? * FRI", "2025-01-01T00:00:00Z", ["2025-01-03", "2025-01-10", "2025-01-17"]),
        ("0 0 13 * ?", "2025-01-01T00:00:00Z", ["2025-01-13", "2025-02-13", "2025-03-13"]),
        ("0 0 13 * +*", "2025-01-01T00:00:00Z", ["2025-01-13", "2025-02-13", "2025-03-13"]),
        ("0 0 1 jan-DEC/6 *", "2025-01-01T00:00:00Z", ["2025-07-01", "2026-01-01", "2026-07-01"]),
        ("0 0 29 2 *", "2096-01-01T00:00:00Z", ["2096-02-29", "2104-02-29", "2108-02-29"]),
        ("0 0 29 2 +MON", "2025-01-01T00:00:00Z", ["2044-02-29", "2072-02-29", "2112-02-29"]),
        ("0 0 0 1 1 * */2", "2025-01-01T00:00:00Z", ["2026-01-01", "2028-01-01", "2030-01-01"]),
        ("0 0 0 1 1 * 2030,9999", "9998-06-01T00:00:00Z", ["9999-01-01", "", ""]),
        ("@yearly", "2025-01-01T00:00:00Z", ["2026-01-01", "2027-01-01", "2028-01-01"]),
        ("@annually", "2025-01-01T00:00:00Z", ["2026-01-01", "2027-01-01", "2028-01-01"]),
        ("@monthly", "2025-01-01T00:00:00Z", ["2025-02-01", "2025-03-01", "2025-04-01"]),
        ("@weekly", "2025-01-01T00:00:00Z", ["2025-01-05", "2025-01-12", "2025-01-19"]),
        ("@daily", "2025-01-01T00:00:00Z", ["2025-01-02", "2025-01-03", "2025-01-04"]),
        ("@midnight", "2025-01-01T00:00:00Z", ["2025-01-02", "2025-01-03", "2025-01-04"]),
        ("\t00  00 *\t* *  ", "2025-01-01T00:00:00Z", ["2025-01-02", "2025-01-03", "2025-01-04"]),
    ] {
        let schedule = cron(expression, "UTC").unwrap_or_else(|wrong| panic!("{expression}: {wrong:?}"));
        let expected: Vec<_> =
            ticks.iter().filter(|day| !day.is_empty()).map(|day| format!("{day}T00:00:00Z")).collect();
        assert_eq!(next(&schedule, after, 3), expected, "{expression}");
    }
}

#[test]
fn each_form_names_its_times() {
    for (expression, ticks) in [
        ("*/25 * * * *", ["00:25:00", "00:50:00", "01:00:00"]),
        ("5-59/25 * * * *", ["00:05:00", "00:30:00", "00:55:00"]),
        ("0-10/30 * * * *", ["01:00:00", "02:00:00", "03:00:00"]),
        ("1,3-4 * * * *", ["00:01:00", "00:03:00", "00:04:00"]),
        ("3,1,3 * * * *", ["00:01:00", "00:03:00", "01:01:00"]),
        ("*/30 * * * * *", ["00:00:30", "00:01:00", "00:01:30"]),
        ("58-59 59 22-23 * * *", ["22:59:58", "22:59:59", "23:59:58"]),
        ("@hourly", ["01:00:00", "02:00:00", "03:00:00"]),
        ("*,5 0 * * *", ["00:01:00", "00:02:00", "00:03:00"]),
    ] {
        let schedule = cron(expression, "UTC").unwrap();
        let expected: Vec<_> = ticks.iter().map(|time| format!("2025-01-01T{time}Z")).collect();
        assert_eq!(next(&schedule, "2025-01-01T00:00:00Z", 3), expected, "{expression}");
    }
}

#[test]
fn errors_name_the_field_and_the_position() {
    for (expression, parts) in [
        ("60 * * * *", &["minute", "60", "0-59", "position 1"][..]),
        ("* 24 * * *", &["hour", "24", "0-23", "position 3"]),
        ("* * 0 * *", &["day of month", "0 ", "1-31", "position 5"]),
        ("* * 32 * *", &["day of month", "32", "1-31"]),
        ("* * * 13 *", &["month", "13", "1-12", "position 7"]),
        ("* * * 0 *", &["month", "0 ", "1-12"]),
        ("* * * * 8", &["day of week", "8", "0-7", "position 9"]),
        ("60 * * * * *", &["second", "60"]),
        ("0 0 0 1 1 * 10000", &["year", "10000", "1-9999", "position 13"]),
        ("0 0 0 1 1 * 0", &["year", "0 "]),
        ("99999999999999999999 * * * *", &["minute", "99999999999999999999"]),
        ("1,2,99 * * * *", &["minute", "99", "position 5"]),
        ("5-1 * * * *", &["minute", "5-1", "inverted"]),
        ("0 0 * * SAT-MON", &["day of week", "SAT-MON", "inverted"]),
        ("0 0 * * 6-0", &["day of week", "6-0", "inverted"]),
        ("*/0 * * * *", &["minute", "*/0", "step of 0"]),
        ("1-5/0 * * * *", &["minute", "step of 0"]),
        ("*/60 * * * *", &["minute", "*/60", "step larger than the range"]),
        ("0 */25 * * *", &["hour", "step larger than the range", "23"]),
        ("0 0 */32 * *", &["day of month", "step larger"]),
        ("5/15 * * * *", &["minute", "5/15", "single value", "5-59/15"]),
        ("0 0 MON/2 * *", &["day of month", "MON/2"]),
        ("/5 * * * *", &["minute", "/5", "*/5"]),
        ("*/ * * * *", &["minute", "*/", "step"]),
        ("*/x * * * *", &["minute", "\"x\"", "step"]),
        ("*/-5 * * * *", &["minute", "\"-5\""]),
        ("1/2/3 * * * *", &["minute", "2/3"]),
        ("1,,2 * * * *", &["minute", "empty", "position 3"]),
        (",1 * * * *", &["minute", "empty", "position 1"]),
        ("1, * * * *", &["minute", "empty", "position 3"]),
        ("-1 * * * *", &["minute", "-1", "range"]),
        ("1- * * * *", &["minute", "1-", "range"]),
        ("1-2-3 * * * *", &["minute", "1-2-3"]),
        ("*5 * * * *", &["minute", "*5"]),
        ("a * * * *", &["minute", "\"a\"", "0-59"]),
        ("0 0 * FOO *", &["month", "FOO", "unknown name", "JAN to DEC"]),
        ("0 0 * * MONDAY", &["day of week", "MONDAY", "unknown name"]),
        ("0 0 * MON *", &["month", "MON", "unknown name"]),
        ("0 0 * * JAN", &["day of week", "JAN", "unknown name"]),
        ("0 0 W * *", &["day of month", "W", "15W"]),
        ("0 0 32W * *", &["day of month", "32"]),
        ("0 0 1-15W * *", &["day of month", "1-15W"]),
        ("0 0 1W,15W * *", &["day of month", "1W", "alone"]),
        ("0 0 L-3 * *", &["day of month", "L"]),
        ("0 0 5L * *", &["day of month", "5L"]),
        ("0 0 * * L", &["day of week", "L", "FRI#L"]),
        ("0 0 * * 8L", &["day of week", "8"]),
        ("0 0 * * 1#6", &["day of week", "1#6", "1-5"]),
        ("0 0 * * 1#0", &["day of week", "1#0", "1-5"]),
        ("0 0 * * #1", &["day of week", "not a value"]),
        ("0 0 * * 1-5#2", &["day of week", "1-5#2"]),
        ("0 0 * * 1#1#1", &["day of week", "1#1"]),
        ("L * * * *", &["minute", "L"]),
        ("0 0 * ? *", &["month", "?", "position 7"]),
        ("? 12 * * *", &["minute", "?"]),
        ("0 0 ?/2 * *", &["day of month", "?/2"]),
        ("0 0 1,? * *", &["day of month", "?", "alone"]),
        ("0 12 +1 * MON", &["day of month", "+1"]),
        ("0 12 1 * MON,+TUE", &["day of week", "+TUE"]),
        ("0 12 1 * +", &["day of week", "empty"]),
        ("0 12 1 * ++1", &["day of week", "+1"]),
        ("", &["empty"]),
        ("   ", &["empty"]),
        ("*", &["1 field", "5", "6", "7"]),
        ("* * *", &["3 fields"]),
        ("* * * * * * * *", &["8 fields"]),
        ("@daily 0 0 * * *", &["@daily 0 0", "nickname"]),
        ("@fortnightly", &["@fortnightly", "@daily"]),
        ("@Daily", &["@Daily", "lower case"]),
        ("@reboot", &["@reboot"]),
        ("@every", &["@every", "90s"]),
        ("@every 5", &["@every", "90s"]),
        ("@every 500ms", &["@every", "500ms", "1s"]),
        ("٣ * * * *", &["'٣'", "position 1", "ASCII"]),
        ("0 0 * * *\u{a0}", &["position 10", "ASCII"]),
        ("0 0 30 2 *", &["never fires", "0 0 30 2 *"]),
        ("0 0 31 4,6,9,11 *", &["never fires"]),
        ("0 0 31W 2 *", &["never fires"]),
        ("0 0 0 29 2 * 2025", &["never fires"]),
        ("0 0 13 * +FRI#3", &["never fires"]),
        ("H(5-1) * * * *", &["minute", "H(5-1)", "inverted"]),
        ("H(0-70) * * * *", &["minute", "70", "0-59"]),
        ("HH * * * *", &["minute", "HH"]),
        ("H( * * * *", &["minute", "H("]),
        ("0 0 0 1 1 * H", &["year", "H"]),
        ("CRON_TZ=EST 0 0 * * *", &["EST", "America/New_York"]),
    ] {
        let wrong = ScheduleSpec::cron(expression, None, Gap::Shift, Fold::First, "a job").expect_err(expression);
        assert!(wrong.iter().all(|invalid| invalid.field == "cron"), "{expression}: {wrong:?}");
        for part in parts {
            assert!(wrong[0].message.contains(part), "{expression}: no {part:?} in {:?}", wrong[0].message);
        }
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let wrong = ScheduleSpec::cron("60 25 * FOO *", Some("EST"), Gap::Shift, Fold::First, "a job").unwrap_err();
    let fields: Vec<_> = wrong.iter().map(|invalid| invalid.field.as_str()).collect();
    assert_eq!(fields, ["cron", "cron", "cron", "timezone"], "{wrong:?}");
}

#[test]
fn an_expression_has_a_maximum_length() {
    let list = |bytes: usize| format!("{}1 * * * *", "1,".repeat((bytes - 9) / 2));
    assert_eq!(list(EXPRESSION_BYTES_MAX).len(), EXPRESSION_BYTES_MAX);
    assert!(cron(&list(EXPRESSION_BYTES_MAX), "UTC").is_ok());
    let wrong = cron(&list(EXPRESSION_BYTES_MAX + 2), "UTC").unwrap_err();
    assert!(wrong[0].message.contains("255"), "{wrong:?}");
    assert!(cron(&format!("@every {}1s", "0".repeat(250)), "UTC").is_err());
}

#[test]
fn a_zone_prefix_is_accepted_unless_it_contradicts() {
    let zoned = |text: &str, zone| match ScheduleSpec::cron(text, zone, Gap::Shift, Fold::First, "a job") {
        Ok(Timing::Cron { cron, resolved, timezone, .. }) => {
            assert_eq!(cron, text);
            Ok((resolved, timezone))
        }
        Ok(other) => panic!("{other:?}"),
        Err(wrong) => Err(wrong),
    };
    let new_york = Ok(("0 2 * * *".to_owned(), "America/New_York".to_owned()));
    assert_eq!(zoned("CRON_TZ=america/new_york 0 2 * * *", None), new_york);
    assert_eq!(zoned("TZ=America/New_York 0 2 * * *", Some("america/New_York")), new_york);
    let wrong = zoned("TZ=America/New_York 0 2 * * *", Some("Europe/London")).unwrap_err();
    assert_eq!(wrong[0].field, "timezone");
    assert!(wrong[0].message.contains("contradicts"), "{wrong:?}");
    assert!(zoned("TZ=America/New_York", None).unwrap_err()[0].message.contains("empty"));
}

#[test]
fn at_every_in_cron_becomes_an_every_timing() {
    let timing = ScheduleSpec::cron(" @every 1h30m ", None, Gap::Shift, Fold::First, "a job").unwrap();
    assert_eq!(timing, Timing::Every { every: "90m".parse().unwrap() });
}

fn resolved(expression: &str, seed: &str) -> String {
    match ScheduleSpec::cron(expression, None, Gap::Shift, Fold::First, seed).unwrap() {
        Timing::Cron { cron, resolved, .. } => {
            assert_eq!(cron, expression);
            resolved
        }
        other => panic!("{other:?}"),
    }
}

/// The values are public: if the `H` of a job changed, the job would run at another time after an upgrade.
#[test]
fn the_h_of_a_known_job_never_changes() {
    assert_eq!(resolved("H H * * *", "nightly-report"), KNOWN);
    assert_eq!(resolved("H/15 H(0-5) H * H", "nightly-report"), KNOWN_STEPS);
}
const KNOWN: &str = "57 9 * * *";
const KNOWN_STEPS: &str = "12-59/15 3 7 * 0";

#[test]
fn an_h_stays_within_its_bounds_and_spreads_jobs_over_them() {
    let mut minutes = std::collections::BTreeSet::new();
    for n in 0..400 {
        let seed = format!("job-{n}");
        let text = resolved("H H(1-4) H * H(1-5)", &seed);
        let fields: Vec<u16> =
            text.split(' ').filter(|field| *field != "*").map(|field| field.parse().unwrap()).collect();
        assert!(fields[0] <= 59 && (1..=4).contains(&fields[1]) && (1..=28).contains(&fields[2]), "{text}");
        assert!((1..=5).contains(&fields[3]), "{text}");
        assert_eq!(text, resolved("H H(1-4) H * H(1-5)", &seed));
        minutes.insert(fields[0]);

        let stepped = resolved("h/15 * * * *", &seed);
        let (start, rest) = stepped.split_once('-').unwrap();
        assert!(start.parse::<u16>().unwrap() < 15 && rest == "59/15 * * * *", "{stepped}");
        let limited = resolved("H(10-29)/10 * * * *", &seed);
        let (start, rest) = limited.split_once('-').unwrap();
        assert!((10..20).contains(&start.parse::<u16>().unwrap()) && rest == "29/10 * * * *", "{limited}");
    }
    assert!(minutes.len() > 55, "{} of 60 minutes are used", minutes.len());
}

#[test]
fn an_expression_without_h_is_unchanged() {
    for expression in ["0  2 * * THU", "@daily", "0 0 1 * +mon"] {
        assert_eq!(resolved(expression, "a job"), expression);
    }
}
