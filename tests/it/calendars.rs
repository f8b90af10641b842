//! Calendars from outside: set from flags and files, used by a job, and their effect on its ticks.

use std::fs;

use everytick_domain::time::DbTime;
use serde_json::{Value, json};

use crate::support::{Server, wait_for};

const ICS: &str = "BEGIN:VCALENDAR
BEGIN:VEVENT
SUMMARY:Neujahr
DTSTART;VALUE=DATE:20270101
RRULE:FREQ=YEARLY
END:VEVENT
END:VCALENDAR
";

#[test]
fn a_calendar_is_set_from_flags_and_files_shown_and_deleted() {
    let server = Server::start();
    let file = server.dir().join("feiertage.ics");
    fs::write(&file, ICS).unwrap();
    let file = file.to_str().unwrap();
    let set = ["calendar", "set", "holidays-de", "--tz", "Europe/Berlin", "--file", file];
    let more = ["--date", "2026-12-27/2026-12-31", "--yearly", "12-25"];
    let printed = server.everytick(&[&set[..], &more].concat()).ok();
    assert!(printed.starts_with("holidays-de set; in effect since 20"), "{printed}");
    let calendar = server.everytick(&["calendar", "get", "holidays-de", "-o", "json"]).json();
    assert_eq!(calendar["yearly"], json!(["01-01", "12-25"]));
    assert_eq!(calendar["dates"], json!(["2026-12-27/2026-12-31"]));
    let text = server.everytick(&["calendar", "get", "holidays-de"]).ok();
    assert!(text.contains("Europe/Berlin") && text.contains("01-01 12-25"), "{text}");
    let list = server.everytick(&["calendar", "list"]).ok();
    assert!(list.contains("holidays-de"), "{list}");

    let job =
        ["job", "create", "report", "--cron", "0 6 1 1 *", "--exclude", "holidays-de", "--url", "https://example.org"];
    server.everytick(&job).ok();
    assert!(server.everytick(&["job", "get", "report"]).ok().contains("except on holidays-de"));
    let next = server.everytick(&["job", "next", "report", "-n", "1"]).ok();
    assert!(next.contains("skipped: calendar holidays-de"), "{next}");
    let refused = server.everytick(&["calendar", "delete", "holidays-de"]).failed(4);
    assert!(refused.contains("the job report"), "{refused}");
    server.everytick(&["job", "update", "report", "--no-exclude"]).ok();
    server.everytick(&["calendar", "delete", "holidays-de"]).ok();
    server.everytick(&["calendar", "get", "holidays-de"]).failed(3);

    let refused = server.everytick(&["job", "update", "report", "--exclude", "mars"]).failed(1);
    assert!(refused.contains("schedule.exclude") && refused.contains("\"mars\""), "{refused}");
    assert!(server.everytick(&["calendar", "set", "x"]).failed(2).contains("--date"));
    fs::write(file, ICS.replace("YEARLY", "DAILY")).unwrap();
    let refused = server.everytick(&["calendar", "set", "x", "--file", file]).failed(2);
    assert!(refused.contains("line 5") && refused.contains("FREQ=DAILY"), "{refused}");

    // A truncated download would remove the holidays after the cut.
    fs::write(file, ICS.replace("END:VCALENDAR\n", "")).unwrap();
    let cut = server.everytick(&["calendar", "set", "x", "--file", file]).failed(2);
    assert!(cut.contains("no END:VCALENDAR"), "{cut}");
    // A file without a zone uses UTC, and flags add to it.
    fs::write(server.dir().join("c.json"), "{\"dates\": [\"2026-12-24\"]}").unwrap();
    server.everytick(&["calendar", "set", "utc", "-f", "c.json", "--date", "2026-12-31", "--yearly", "12-25"]).ok();
    let utc = server.everytick(&["calendar", "get", "utc", "-o", "json"]).json();
    assert_eq!((&utc["timezone"], &utc["dates"]), (&json!("UTC"), &json!(["2026-12-24", "2026-12-31"])));
    assert_eq!(utc["yearly"], json!(["12-25"]));
    server.everytick(&["calendar", "delete", "utc"]).ok();

    let lunch = "BEGIN:VEVENT\nSUMMARY:Lunch\nDTSTART:20261224T120000Z\nEND:VEVENT\nEND:VCALENDAR\n";
    fs::write(file, ICS.replace("END:VCALENDAR\n", lunch)).unwrap();
    let done = server.everytick(&["calendar", "set", "x", "--file", file]);
    assert!(done.stderr.contains("line 9: left out \"Lunch\": DTSTART: \"20261224T120000Z\""), "{done:?}");
    assert!(done.ok().starts_with("x set"));
    assert_eq!(server.everytick(&["calendar", "get", "x", "-o", "json"]).json()["yearly"], json!(["01-01"]));
}

/// A job fires every second. Its ticks become skips when its calendar excludes the day, and runs again after the next change.
#[test]
fn ticks_on_the_dates_of_a_calendar_are_skips_until_the_calendar_changes() {
    let server = Server::builder().flags(&["--enable-shell", "--auth", "open"]).start();
    let set = |date: &str| {
        let set = ["calendar", "set", "down", "--date", date, "-o", "json"];
        server.everytick(&set).json()["effective_at"].as_str().unwrap().to_owned()
    };
    let runs = |state: &str, since: &str| {
        let list = ["job", "runs", "j", "--status", state, "--from", since, "-o", "json"];
        server.everytick(&list).json()["items"].as_array().unwrap().clone()
    };
    set("1999-01-01");
    server.everytick(&["job", "create", "j", "--every", "1s", "--exclude", "down", "--", "true"]).ok();
    wait_for("a run", || Some(runs("succeeded", "2020-01-01T00:00:00Z")).filter(|runs| !runs.is_empty()));
    let left_out = set("2020-01-01/2100-01-01");
    let skips = wait_for("skips", || Some(runs("skipped", &left_out)).filter(|skips| skips.len() >= 2));
    let at = |text: &str| text.parse::<DbTime>().unwrap();
    let after = |run: &Value, instant: &str| at(run["scheduled_at"].as_str().unwrap()) > at(instant);
    let mut behind = skips.iter().filter(|skip| after(skip, &left_out));
    assert!(behind.all(|skip| skip["skip_reason"] == "calendar"), "{skips:?}");
    let again = set("1999-01-01");
    wait_for("another run", || Some(runs("succeeded", &again)).filter(|runs| !runs.is_empty()));
    let fired: Vec<_> =
        runs("succeeded", &left_out).into_iter().filter(|run| after(run, &left_out) && !after(run, &again)).collect();
    assert!(fired.is_empty(), "{fired:?}");
}
