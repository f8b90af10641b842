//! Texts for users: descriptions, previews and their notes.

use everytick_domain::schedule::{Schedule, ScheduleSpec};

use crate::{at, cron};

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
                    "clocks go forward 1h at 2026-03-08T07:00:00Z (02:00 -> 03:00); 02:30 does not exist that day, so it \
                     fires right after"
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
fn a_preview_ends_when_the_schedule_ends() {
    let preview = cron("0 0 0 1 1 * 2030,2032", "UTC").unwrap().preview(at("2026-01-01T00:00:00Z"), 10);
    assert_eq!(preview.ticks.len(), 2);
}
