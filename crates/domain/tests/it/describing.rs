//! Texts for users: descriptions, previews and their notes.

use everytick_domain::schedule::{Fold, Gap, Schedule, ScheduleSpec};

use crate::{at, cron, cron_with};

#[test]
fn expressions_read_as_english() {
    for (expression, words) in [
        ("0 2 * * *", "At 02:00 every day"),
        ("0 2,14 * * *", "At 02:00 and 14:00 every day"),
        ("0,30 9 * * 1-5", "At 09:00 and 09:30 from Monday to Friday"),
        ("30 0 2 * * *", "At 02:00:30 every day"),
        ("* * * * *", "Every minute"),
        ("*/15 * * * *", "Every 15 minutes"),
        ("*/7 * * * *", "Every 7 minutes from the start of the hour"),
        ("* * * * * *", "Every second"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("0-10/30 * * * *", "Every 30 minutes from minute 0 to 10 of the hour"),
        ("5,10 * * * *", "At minutes 5 and 10 of the hour"),
        ("30 * * * * *", "At second 30 of the minute"),
        ("0 * * * *", "Every hour, on the hour"),
        ("5 * * * *", "Every hour at 5 minutes past"),
        ("0 */3 * * *", "Every 3 hours from 00:00"),
        ("30 9-17 * * *", "Every hour from 09:30 to 17:30 every day"),
        ("0 9-17/3 * * MON", "Every 3 hours from 09:00 to 15:00 on Monday"),
        ("*/15 9-17 * * 1-5", "Every 15 minutes, from 09:00 to 17:59, from Monday to Friday"),
        ("* 2 * * *", "Every minute, from 02:00 to 02:59"),
        ("*/5 */2 * * *", "Every 5 minutes, in every 2nd hour from 00:00"),
        ("*/5 1,3 * * *", "Every 5 minutes, in the hours 01 and 03"),
        ("0 0 1 * *", "At 00:00 on the 1st of the month"),
        ("0 0 1,15 * *", "At 00:00 on the 1st and the 15th of the month"),
        ("0 0 1-7 * *", "At 00:00 from the 1st to the 7th of the month"),
        ("0 0 */2 * *", "At 00:00 on every 2nd day of the month"),
        ("0 0 1,L * *", "At 00:00 on the 1st and the last day of the month"),
        ("0 0 LW * *", "At 00:00 on the last working day (Monday to Friday) of the month"),
        ("0 0 15W * *", "At 00:00 on the working day (Monday to Friday) nearest the 15th of the month"),
        ("0 0 29 2 *", "At 00:00 on the 29th of February"),
        ("0 0 * * SUN", "At 00:00 on Sunday"),
        ("0 0 * * 2#3", "At 00:00 on the third Tuesday of the month"),
        ("0 0 * 3,6 5L", "At 00:00 on the last Friday of March and June"),
        ("0 0 * 3 *", "At 00:00 every day in March"),
        ("0 0 * 1-3 1", "At 00:00 on Monday from January to March"),
        ("0 0 1 */3 *", "At 00:00 on the 1st of every 3rd month"),
        ("0 0 13 * FRI", "At 00:00 on the 13th of the month, and also on every Friday"),
        ("0 0 13 * +FRI", "At 00:00 on the 13th of the month, but only if that is a Friday"),
        (
            "0 0 1-7 * +1,3",
            "At 00:00 from the 1st to the 7th of the month, but only if that is a Monday or a Wednesday",
        ),
        ("0 0 1 * 1-5", "At 00:00 on the 1st of the month, and also on every day from Monday to Friday"),
        (
            "0 0 13 6-8 1,5",
            "At 00:00 on the 13th of each month from June to August, and also on every Monday and Friday from June to August",
        ),
        ("0 0 13 * */2", "At 00:00 on the 13th of the month, and also on every 2nd day of the week"),
        ("0 0 * 1,3-5 *", "At 00:00 every day in January and March to May"),
        ("0 0 1 * 1#1", "At 00:00 on the 1st of the month, and also on the first Monday of the month"),
        ("0 0 0 1 1 * 2030,2032", "At 00:00 on the 1st of January, in 2030 and 2032"),
        ("* * * * * * 2030-2032", "Every second, from 2030 to 2032"),
        ("@weekly", "At 00:00 on Sunday"),
    ] {
        let described = cron(expression, "America/New_York").unwrap().describe();
        assert_eq!(described, format!("{words}, in America/New_York"), "{expression}");
    }
}

#[test]
fn periods_and_instants_read_as_english() {
    for (every, words) in [
        ("15m", "Every 15 minutes"),
        ("60s", "Every minute"),
        ("90s", "Every 1 minute and 30 seconds"),
        ("1h", "Every hour"),
        ("1d1h1m", "Every 1 day, 1 hour and 1 minute"),
    ] {
        let timing = ScheduleSpec::every(every).unwrap();
        assert_eq!(Schedule::compile(&timing.into()).unwrap().describe(), words);
    }
    let once = Schedule::compile(&ScheduleSpec::at("2026-11-16T02:00:00-05:00").unwrap().into()).unwrap();
    assert_eq!(once.describe(), "Once, at 2026-11-16T07:00:00Z");
}

#[test]
fn a_preview_marks_every_clock_change_it_crosses() {
    let preview = cron("30 2 * * *", "America/New_York").unwrap().preview(at("2026-03-07T00:00:00Z"), 3);
    assert_eq!(preview.description, "At 02:30 every day, in America/New_York");
    let ticks: Vec<_> = preview.ticks.iter().map(|tick| (tick.local.as_str(), tick.note.as_deref())).collect();
    assert_eq!(
        ticks,
        [
            ("2026-03-07T02:30:00-05:00", None),
            (
                "2026-03-08T03:00:00-04:00",
                Some(
                    "02:30 does not exist, fires at 03:00; clocks go forward 1h at 2026-03-08T07:00:00Z (02:00 -> \
                     03:00)"
                )
            ),
            ("2026-03-09T02:30:00-04:00", None),
        ]
    );
    let json = serde_json::to_value(&preview.ticks[0]).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"at": "2026-03-07T07:30:00Z", "local": "2026-03-07T02:30:00-05:00", "note": null})
    );
}

#[test]
fn a_preview_marks_clocks_going_back_and_many_changes_at_once() {
    let note = |expression: &str, zone: &str, from: &str| {
        cron(expression, zone).unwrap().preview(at(from), 1).ticks[0].note.clone().unwrap()
    };
    assert_eq!(
        note("30 1 * * *", "Australia/Lord_Howe", "2025-04-05T14:45:00Z"),
        "clocks go back 30m at 2025-04-05T15:00:00Z (02:00 -> 01:30)"
    );
    assert_eq!(
        note("0 12 1 1 *", "America/New_York", "2026-01-02T00:00:00Z"),
        "clocks go forward 1h at 2026-03-08T07:00:00Z (02:00 -> 03:00); clocks go back 1h at 2026-11-01T06:00:00Z \
         (02:00 -> 01:00)"
    );
    let leap = note("0 0 29 2 *", "America/New_York", "2024-03-01T12:00:00Z");
    assert!(leap.starts_with("8 clock changes, the last of them: clocks go back 1h"), "{leap}");
    assert!(
        cron("0 * * * *", "UTC")
            .unwrap()
            .preview(at("2026-01-01T00:00:00Z"), 50)
            .ticks
            .iter()
            .all(|t| t.note.is_none())
    );
}

#[test]
fn a_preview_includes_a_tick_and_a_clock_change_at_its_start() {
    let first = |expression: &str, zone: &str, from: &str| {
        let tick = cron(expression, zone).unwrap().preview(at(from), 1).ticks.remove(0);
        (tick.at.to_string(), tick.note.unwrap_or_default())
    };
    assert_eq!(
        first("*/15 * * * *", "Europe/Berlin", "2026-10-23T23:30:00Z"),
        ("2026-10-23T23:30:00Z".to_owned(), String::new())
    );
    assert_eq!(first("*/15 * * * *", "Europe/Berlin", "2026-10-23T23:30:00.001Z").0, "2026-10-23T23:45:00Z");
    let (tick, note) = first("30 2 * * *", "America/New_York", "2026-03-08T07:00:00Z");
    assert_eq!(tick, "2026-03-08T07:00:00Z");
    assert!(note.starts_with("02:30 does not exist, fires at 03:00; clocks go forward 1h"), "{note}");
}

/// Pairs of local time and note.
type Rows = Vec<(String, String)>;

/// The rows of the ticks, and of the times that do not exist.
fn rows(schedule: &Schedule, from: &str, count: usize) -> (Rows, Rows) {
    let preview = schedule.preview(at(from), count);
    let ticks = preview.ticks.into_iter().map(|tick| (tick.local, tick.note.unwrap_or_default()));
    (ticks.collect(), preview.nonexistent.into_iter().map(|times| (times.local, times.note)).collect())
}

fn pairs(rows: &[(&str, &str)]) -> Rows {
    rows.iter().map(|(local, note)| ((*local).to_owned(), (*note).to_owned())).collect()
}

const BACK: &str = "clocks go back 1h at 2026-11-01T06:00:00Z (02:00 -> 01:00)";

#[test]
fn the_note_of_a_time_that_comes_twice_is_at_its_own_tick() {
    let ticks = |expression: &str, fold, count| {
        let schedule = cron_with(expression, "America/New_York", Gap::Shift, fold).unwrap();
        rows(&schedule, "2026-10-31T04:00:00Z", count).0
    };
    let (before, after) = (("2026-10-31T01:30:00-04:00", ""), ("2026-11-02T01:30:00-05:00", ""));
    let note = |words: &str| format!("01:30 comes twice, {words}; {BACK}");
    let first = note("fires at the first pass");
    assert_eq!(ticks("30 1 * * *", Fold::First, 3), pairs(&[before, ("2026-11-01T01:30:00-04:00", &first), after]));
    let last = note("fires at the second pass");
    assert_eq!(ticks("30 1 * * *", Fold::Last, 3), pairs(&[before, ("2026-11-01T01:30:00-05:00", &last), after]));
    let both = note("fires at both passes; this is the first");
    let second = "01:30 comes twice, fires at both passes; this is the second";
    let passes = [("2026-11-01T01:30:00-04:00", both.as_str()), ("2026-11-01T01:30:00-05:00", second)];
    assert_eq!(ticks("30 1 * * *", Fold::Both, 4), pairs(&[before, passes[0], passes[1], after]));
    let elapsed = ticks("30 * * * *", Fold::First, 30);
    assert_eq!(elapsed[25..27], pairs(&passes), "elapsed time");
    assert!(elapsed.iter().filter(|(_, note)| !note.is_empty()).count() == 2, "{elapsed:?}");
    let noon = ticks("0 12 * * *", Fold::First, 3);
    assert_eq!(noon[1], ("2026-11-01T12:00:00-05:00".to_owned(), BACK.to_owned()), "the first tick after the change");
    assert_eq!(noon[2].1, "");
}

#[test]
fn times_that_do_not_exist_and_do_not_fire_are_rows_of_their_own() {
    let skip = |expression: &str| cron_with(expression, "America/New_York", Gap::Skip, Fold::First).unwrap();
    let forward = "fire (gap: skip); clocks go forward 1h at 2026-03-08T07:00:00Z (02:00 -> 03:00)";
    for (expression, count, local, words) in [
        ("30 2 * * *", 2, "2026-03-08T02:30:00", "02:30 does not exist"),
        ("0,15,45 2 * * *", 4, "2026-03-08T02:00:00", "02:00, 02:15 and 02:45 do not exist"),
        ("0,10,20,30 2 * * *", 5, "2026-03-08T02:00:00", "02:00 and 3 more times do not exist"),
        ("30 2,14 * * *", 4, "2026-03-08T02:30:00", "02:30 does not exist"),
        ("30 2 8 3 *", 1, "2026-03-08T02:30:00", "02:30 does not exist"),
        ("0 30 2 8 3 * 2026", 1, "2026-03-08T02:30:00", "02:30 does not exist"),
    ] {
        let (ticks, missing) = rows(&skip(expression), "2026-03-07T00:00:00Z", count);
        let verb = if words.contains("does") { "does" } else { "do" };
        assert_eq!(missing, pairs(&[(local, &format!("{words}, {verb} not {forward}"))]), "{expression}");
        assert!(ticks.iter().all(|(_, note)| !note.contains("2026-03-08")), "described once: {ticks:?}");
    }
    let before = rows(&skip("30 2 * * *"), "2026-03-07T00:00:00Z", 1).1;
    assert_eq!(before, [], "the last tick is before the change");
    let elapsed = rows(&skip("30 * * * *"), "2026-03-07T00:00:00Z", 90).1;
    assert_eq!(elapsed, [], "elapsed time has no such times, if it continues after the gap");
    let stops = rows(&cron("*/20 1-2 * * *", "America/New_York").unwrap(), "2026-03-08T05:00:00Z", 4);
    let note = "02:00, 02:20 and 02:40 do not exist, do not fire; clocks go forward 1h at 2026-03-08T07:00:00Z (02:00 -> 03:00)";
    assert_eq!(stops.1, pairs(&[("2026-03-08T02:00:00", note)]));
    assert_eq!(stops.0[3].0, "2026-03-09T01:00:00-04:00", "{stops:?}");
    let shifted = rows(&cron("30 2 * * *", "America/New_York").unwrap(), "2026-03-07T00:00:00Z", 5).1;
    assert_eq!(shifted, [], "it fires after the gap");
}

#[test]
fn a_date_that_a_zone_skipped_is_a_row_of_its_own() {
    let forward = "clocks go forward 1d at 2011-12-30T10:00:00Z (2011-12-30 00:00 -> 2011-12-31 00:00)";
    let (ticks, missing) = rows(&cron("0 12 * * *", "Pacific/Apia").unwrap(), "2011-12-29T00:00:00Z", 2);
    assert_eq!(ticks, pairs(&[("2011-12-29T12:00:00-10:00", ""), ("2011-12-31T12:00:00+14:00", "")]));
    let note = format!("12:00 on 2011-12-30 does not exist, does not fire; {forward}");
    assert_eq!(missing, pairs(&[("2011-12-30T12:00:00", &note)]));
    let (ticks, missing) = rows(&cron("0 */12 * * *", "Pacific/Apia").unwrap(), "2011-12-30T00:00:00Z", 1);
    assert_eq!((ticks, missing), (pairs(&[("2011-12-31T00:00:00+14:00", forward)]), Vec::new()));
}

#[test]
fn the_effect_of_a_clock_change_is_described_for_one_instant() {
    let daily = cron("30 2 * * *", "America/New_York").unwrap();
    let note = daily.clock_note(at("2026-03-08T07:00:00Z")).unwrap();
    assert!(note.starts_with("02:30 does not exist, fires at 03:00; clocks go forward 1h"), "{note}");
    assert_eq!(daily.clock_note(at("2026-03-09T06:30:00Z")), None);
    assert_eq!(daily.nonexistent_at(at("2026-03-08T07:00:00Z")), None);
    let skip = cron_with("30 2 * * *", "America/New_York", Gap::Skip, Fold::First).unwrap();
    assert_eq!(skip.nonexistent_at(at("2026-03-08T07:00:00Z")).unwrap().local, "2026-03-08T02:30:00");
    assert_eq!(skip.nonexistent_at(at("2026-03-08T07:00:01Z")), None);
}

#[test]
fn an_instant_at_the_pass_that_does_not_fire_is_described_by_the_other_pass() {
    let (first, second) = ("2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z");
    let schedule = |fold| cron_with("30 1 * * *", "America/New_York", Gap::Shift, fold).unwrap();
    for (fold, silent, fires, pass) in [(Fold::First, second, first, "first"), (Fold::Last, first, second, "second")] {
        let (tick, note) = schedule(fold).other_pass(at(silent)).unwrap();
        assert_eq!(tick, at(fires));
        assert!(note.starts_with(&format!("01:30 comes twice, fires at the {pass} pass; clocks go back 1h")), "{note}");
        assert_eq!(schedule(fold).other_pass(at(fires)), None);
        assert_eq!(schedule(fold).other_pass(at("2026-11-01T06:31:00Z")), None, "no time of the schedule");
        assert_eq!(schedule(fold).other_pass(at("2026-11-02T06:30:00Z")), None, "a day without a change");
    }
    assert_eq!(schedule(Fold::Both).other_pass(at(second)), None);
}

#[test]
fn a_preview_ends_when_the_schedule_ends() {
    let preview = cron("0 0 0 1 1 * 2030,2032", "UTC").unwrap().preview(at("2026-01-01T00:00:00Z"), 10);
    assert_eq!(preview.ticks.len(), 2);
}
