use super::*;

/// 16 November 2026.
const NOW: DbTime = DbTime::from_millis(1_794_787_200_000);

fn file(events: &str) -> String {
    format!(
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nX-WR-TIMEZONE:Europe/Berlin\r\n{}END:VCALENDAR\r\n",
        events.replace('\n', "\r\n")
    )
}

fn event(lines: &str) -> String {
    file(&format!("BEGIN:VEVENT\nSUMMARY:Day\n{lines}\nEND:VEVENT\n"))
}

fn read(lines: &str) -> String {
    let Imported { spec, left_out } = from_ics(&event(lines), None, NOW).unwrap();
    assert_eq!(left_out, [], "{lines}");
    let dates = spec.dates.iter().map(ToString::to_string);
    dates.chain(spec.yearly.iter().map(ToString::to_string)).collect::<Vec<_>>().join(" ")
}

#[test]
fn all_day_events_are_dates() {
    for (lines, dates) in [
        ("DTSTART;VALUE=DATE:20261225", "2026-12-25"),
        ("DTSTART;VALUE=DATE:20261225\nDTEND;VALUE=DATE:20261226", "2026-12-25"),
        ("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227", "2026-12-24/2026-12-26"),
        ("DTSTART;VALUE=DATE:20261224\nDURATION:P3D", "2026-12-24/2026-12-26"),
        ("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY", "12-25"),
        ("DTSTART;VALUE=DATE:20261231\nDTEND;VALUE=DATE:20270102\nRRULE:FREQ=YEARLY;INTERVAL=1", "01-01 12-31"),
        ("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=25;WKST=MO", "12-25"),
        ("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;COUNT=3", "2026-12-25 2027-12-25 2028-12-25"),
        ("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;INTERVAL=2;UNTIL=20301224", "2026-12-25 2028-12-25"),
        ("DTSTART;VALUE=DATE:20240229\nRRULE:FREQ=YEARLY;COUNT=2", "2024-02-29 2028-02-29"),
        ("DTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY;COUNT=3\nEXDATE;VALUE=DATE:20271225", "2026-12-25 2028-12-25"),
        ("DTSTART;VALUE=DATE:20261225\nRDATE;VALUE=DATE:20270101,20270106", "2026-12-25 2027-01-01 2027-01-06"),
        ("DTSTART;VALUE=DATE:20261225\nSTATUS:CANCELLED", ""),
        ("DTSTART;VALUE=DA\n TE:2026\n 1225", "2026-12-25"),
        (
            "DTSTART;X-A=\"a;b:c\";VALUE=DATE:20261225\nBEGIN:VALARM\nTRIGGER:-PT1H\nDTSTART:20260101T000000Z\nEND:VALARM",
            "2026-12-25",
        ),
    ] {
        assert_eq!(read(lines), dates, "{lines}");
    }
}

proptest::proptest! {
    /// Any file is read or refused, without a panic.
    #[test]
    fn no_sequence_of_lines_panics(lines in proptest::collection::vec(proptest::sample::select(vec![
        "BEGIN:VCALENDAR", "BEGIN:VEVENT", "END:VEVENT", "BEGIN:VALARM", "END:VALARM", "DTSTART;VALUE=DATE:20261225", "DTSTART:é",
        "DTEND:99991231", "DTEND:19700101", "RRULE:FREQ=YEARLY", "RRULE:FREQ=YEARLY;INTERVAL=1000;COUNT=1000", "RRULE:;=;", "RRULE:FREQ=MONTHLY;BYDAY=é", "RRULE:FREQ=YEARLY;BYMONTH=2;BYDAY=-5TU",
        "DTSTART:20261225T000000",
        "UID:a", "RECURRENCE-ID:20261225", "RECURRENCE-ID;RANGE=THISANDFUTURE:20261225",
        "RRULE:FREQ=YEARLY;UNTIL=é9991231", "EXDATE:20261225,20271225", "RDATE;VALUE=PERIOD:x", "DURATION:P3660W", "DURATION:PéD",
        " folded", "X\";:;\":", "SUMMARY", ";;:::", "DTSTART:20240229", "STATUS:CANCELLED",
    ]), 0..14)) {
        let _ = from_ics(&format!("BEGIN:VCALENDAR\n{}", lines.join("\n")), None, NOW);
    }

    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = from_ics(&text, None, NOW);
    }
}

#[test]
fn the_requested_zone_overrides_the_zone_of_the_file() {
    let text = event("DTSTART;VALUE=DATE:20261225");
    let zone = |text: &str, zone| from_ics(text, zone, NOW).unwrap().spec.timezone;
    assert_eq!(zone(&text, None), "Europe/Berlin");
    assert_eq!(zone(&text, Some("Asia/Tokyo")), "Asia/Tokyo");
    assert_eq!(zone("BEGIN:VCALENDAR\nEND:VCALENDAR\n", None), "UTC");
}

#[test]
fn rules_with_ordinal_weekdays_are_dates() {
    for (lines, dates) in [
        ("20261126\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH;COUNT=3", "2026-11-26 2027-11-25 2028-11-23"),
        ("20260525\nRRULE:FREQ=YEARLY;BYMONTH=5;BYDAY=-1MO;COUNT=3", "2026-05-25 2027-05-31 2028-05-29"),
        ("20260131\nRRULE:FREQ=MONTHLY;BYDAY=5SA;UNTIL=20260901", "2026-01-31 2026-05-30 2026-08-29"),
        ("20261102\nRRULE:FREQ=MONTHLY;BYDAY=+1MO;INTERVAL=2;COUNT=2", "2026-11-02 2027-01-04"),
        ("20261131\nSTATUS:CANCELLED", ""),
        ("20260131\nRRULE:FREQ=MONTHLY;COUNT=3", "2026-01-31 2026-03-31 2026-05-31"),
    ] {
        assert_eq!(read(&format!("DTSTART;VALUE=DATE:{lines}")), dates, "{lines}");
    }
}

#[test]
fn a_rule_without_an_end_is_expanded_up_to_a_year_that_is_reported() {
    for lines in [
        "DTSTART;VALUE=DATE:19961128\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH",
        "DTSTART;VALUE=DATE:20251225\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20271225",
        "DTSTART;VALUE=DATE:20251225\nRRULE:FREQ=YEARLY;INTERVAL=3",
    ] {
        let Imported { spec, left_out } = from_ics(&event(lines), None, NOW).unwrap();
        let (first, last) = (spec.dates[0].to_string(), spec.dates.last().unwrap().to_string());
        assert!(first.starts_with("2025-") && last.as_str() >= "2043", "{lines}: {first} {last}");
        assert!(!spec.dates.iter().any(|date| date.to_string() == "2027-12-25"), "{lines}");
        assert_eq!(left_out.len(), 1, "{lines}");
        assert!(left_out[0].reason.contains("dates through 2046 are imported"), "{:?}", left_out[0]);
    }
}

#[test]
fn midnight_to_midnight_is_a_whole_day() {
    let day = "DTSTART;TZID=Europe/Berlin:20261225T000000\nDTEND;TZID=Europe/Berlin:20261227T000000";
    assert_eq!(read(day), "2026-12-25/2026-12-26");
    assert_eq!(read("DTSTART:20261225T000000\nDURATION:P1D"), "2026-12-25");
}

#[test]
fn events_that_cannot_be_imported_are_reported_and_the_others_are_imported() {
    let text = file(
        "BEGIN:VEVENT\nDTSTART:20261224T100000Z\nSUMMARY:Lunch\nEND:VEVENT\n\
         BEGIN:VEVENT\nDTSTART;VALUE=DATE:20261225\nSUMMARY:Christmas\nRRULE:FREQ=YEARLY\nEND:VEVENT\n\
         BEGIN:VEVENT\nSUMMARY:Standup\nDTSTART;VALUE=DATE:20261126\nRRULE:FREQ=WEEKLY;BYDAY=MO\nEND:VEVENT\n",
    );
    let Imported { spec, left_out } = from_ics(&text, None, NOW).unwrap();
    assert_eq!(
        (spec.dates.len(), spec.yearly.iter().map(ToString::to_string).collect()),
        (0, vec!["12-25".to_owned()])
    );
    let named: Vec<_> = left_out.iter().map(|left| (left.line, left.event.as_str())).collect();
    assert_eq!(named, [(5, "Lunch"), (16, "Standup")]);
    assert!(left_out[0].reason.contains("20261224T100000Z") && left_out[1].reason.contains("FREQ=WEEKLY"));
}

#[test]
fn a_file_without_an_event_that_can_be_imported_is_refused_with_its_lines() {
    for (lines, message) in [
        ("DTSTART:20261225T100000Z", "line 6: the event \"Day\": DTSTART: \"20261225T100000Z\" has a time of day"),
        ("DTSTART:20261225T000000Z\nDTEND:20261226T000000Z", "has a time of day"),
        ("DTSTART:20261225T000000", "no DTEND"),
        ("DTSTART;VALUE=DATE:2026-12-25", "is not a date; write it like 20261225"),
        ("DTSTART;VALUE=DATE:20260230", "is not a date"),
        ("DTSTART;VALUE=DATE:20261126\nRRULE:FREQ=YEARLY;BYDAY=4TH", "only with BYMONTH"),
        ("DTSTART;VALUE=DATE:20261126\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=TH", "\"BYDAY=TH\" is not supported"),
        ("DTSTART;VALUE=DATE:20261126\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=6TH", "\"BYDAY=6TH\" is not supported"),
        ("DTSTART;VALUE=DATE:20261126\nRRULE:FREQ=YEARLY;BYMONTHDAY=1", "only with BYMONTH"),
        ("DTSTART;VALUE=DATE:20261126\nRRULE:FREQ=WEEKLY", "\"FREQ=WEEKLY\" is not supported"),
        ("DTSTART;VALUE=DATE:20261126\nRRULE:INTERVAL=1", "FREQ=YEARLY"),
        ("DTSTART;VALUE=DATE:20261126\nDTEND;VALUE=DATE:20261126", "ends before it begins"),
        ("DTSTART;VALUE=DATE:20260101\nDTEND;VALUE=DATE:20260401\nRRULE:FREQ=YEARLY", "lasts 90 days"),
        ("DTSTART;VALUE=DATE:20261126\nDURATION:PT3H", "whole days"),
        ("DESCRIPTION:nothing", "line 4: the event \"Day\": has no DTSTART"),
    ] {
        let wrong = from_ics(&event(lines), None, NOW).unwrap_err();
        assert!(wrong[0].to_string().contains(message), "{lines}: {}", wrong[0]);
    }
    assert!(from_ics("hello", None, NOW).unwrap_err()[0].message.contains("BEGIN:VCALENDAR"));
    let cut = event("DTSTART;VALUE=DATE:20261225").replace("END:VCALENDAR\r\n", "");
    let refused = from_ics(&cut, None, NOW).unwrap_err();
    assert!(refused[0].field == "line 1" && refused[0].message.contains("not complete"), "{refused:?}");
    let open = from_ics("BEGIN:VCALENDAR\nBEGIN:VEVENT\n", None, NOW).unwrap_err();
    assert!(open[0].to_string().contains("line 2"), "{}", open[0]);
}

/// Two events of one UID: the series, and the occurrence of 5 February 2027 that was changed.
fn changed(uid: &str, lines: &str, is_first: bool) -> Imported {
    let series =
        "BEGIN:VEVENT\nUID:a\nSUMMARY:Close\nDTSTART;VALUE=DATE:20270105\nRRULE:FREQ=MONTHLY;COUNT=3\nEND:VEVENT\n";
    let one = format!("BEGIN:VEVENT\nUID:{uid}\nSUMMARY:Moved\n{lines}\nEND:VEVENT\n");
    let events = if is_first { format!("{one}{series}") } else { format!("{series}{one}") };
    from_ics(&file(&events), None, NOW).unwrap()
}

fn texts(spec: &CalendarSpec) -> String {
    spec.dates.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_changed_occurrence_replaces_the_one_of_the_series() {
    let moved = "RECURRENCE-ID;VALUE=DATE:20270205\nDTSTART;VALUE=DATE:20270208";
    for (situation, uid, lines, dates) in [
        ("moved", "a", moved, "2027-01-05 2027-02-08 2027-03-05"),
        ("cancelled", "a", "RECURRENCE-ID:20270205T000000\nSTATUS:CANCELLED", "2027-01-05 2027-03-05"),
        ("of another series", "b", moved, "2027-01-05 2027-02-05 2027-02-08 2027-03-05"),
    ] {
        for is_first in [false, true] {
            let Imported { spec, left_out } = changed(uid, lines, is_first);
            assert_eq!((texts(&spec).as_str(), left_out), (dates, vec![]), "{situation}");
        }
    }
}

#[test]
fn a_changed_occurrence_of_a_yearly_rule_is_replaced_too() {
    let text = file(
        "BEGIN:VEVENT\nUID:a\nSUMMARY:Day\nDTSTART;VALUE=DATE:20261225\nRRULE:FREQ=YEARLY\nEND:VEVENT\n\
         BEGIN:VEVENT\nUID:a\nSUMMARY:Day\nRECURRENCE-ID;VALUE=DATE:20271225\nDTSTART;VALUE=DATE:20271227\nEND:VEVENT\n",
    );
    let spec = from_ics(&text, None, NOW).unwrap().spec;
    assert!(
        spec.yearly.is_empty() && texts(&spec).starts_with("2026-12-25 2027-12-27 2028-12-25 "),
        "{}",
        texts(&spec)
    );
}

#[test]
fn a_changed_occurrence_that_cannot_be_imported_is_reported() {
    for (lines, reason) in [
        (
            "RECURRENCE-ID:20270205T100000Z\nDTSTART;VALUE=DATE:20270208",
            "RECURRENCE-ID: \"20270205T100000Z\" has a time",
        ),
        ("RECURRENCE-ID;RANGE=THISANDFUTURE:20270205\nDTSTART;VALUE=DATE:20270208", "THISANDFUTURE is not supported"),
        ("RECURRENCE-ID;VALUE=DATE:20270205\nDTSTART:20270208T100000Z", "DTSTART: \"20270208T100000Z\" has a time"),
    ] {
        let Imported { spec, left_out } = changed("a", lines, false);
        assert!(texts(&spec).starts_with("2027-01-05 ") && !texts(&spec).contains("2027-02-08"), "{}", texts(&spec));
        assert!(left_out.len() == 1 && left_out[0].reason.contains(reason), "{lines}: {left_out:?}");
    }
}
