//! Clock changes: gaps, folds, and dates that a zone skipped.

use everytick_domain::schedule::{Fold, Gap};

use crate::{at, cron, cron_with, next};

#[test]
fn a_time_in_a_gap_fires_once_right_after_it() {
    for (expression, zone, after, ticks) in [
        ("30 2 * * *", "America/New_York", "2025-03-08T12:00:00Z", ["2025-03-09T07:00:00Z", "2025-03-10T06:30:00Z"]),
        // Fires once, even if several times are inside the gap.
        (
            "0,15,45 2 * * *",
            "America/New_York",
            "2025-03-08T12:00:00Z",
            ["2025-03-09T07:00:00Z", "2025-03-10T06:00:00Z"],
        ),
        // Fires once, even if another time of the pattern is the same instant.
        ("0 2,3 * * *", "America/New_York", "2025-03-08T12:00:00Z", ["2025-03-09T07:00:00Z", "2025-03-10T06:00:00Z"]),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", ["2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"]),
        ("30 0 * * *", "America/Santiago", "2024-09-07T12:00:00Z", ["2024-09-08T04:00:00Z", "2024-09-09T03:30:00Z"]),
        ("30 0 * * *", "Africa/Cairo", "2024-04-25T12:00:00Z", ["2024-04-25T22:00:00Z", "2024-04-26T21:30:00Z"]),
        // Lord Howe changes by 30 minutes, St John's at one minute past midnight; Casablanca goes forward when its negative DST
        // ends.
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T12:00:00Z", ["2025-10-04T15:30:00Z", "2025-10-05T15:15:00Z"]),
        ("30 0 * * *", "America/St_Johns", "2010-03-13T12:00:00Z", ["2010-03-14T03:31:00Z", "2010-03-15T03:00:00Z"]),
        ("30 2 * * *", "Africa/Casablanca", "2024-04-13T12:00:00Z", ["2024-04-14T02:00:00Z", "2024-04-15T01:30:00Z"]),
    ] {
        assert_eq!(next(&cron(expression, zone).unwrap(), after, 2), ticks, "{expression} {zone}");
    }
}

#[test]
fn a_shifted_time_is_counted_once() {
    let (from, to) = (at("2025-03-09T05:00:00Z"), at("2025-03-10T05:00:00Z"));
    for (expression, count) in [("30 2 * * *", 1), ("0,30 2 * * *", 1), ("0 2,3 * * *", 1), ("0 2,4 * * *", 2)] {
        assert_eq!(cron(expression, "America/New_York").unwrap().count(from, to), count, "{expression}");
    }
    let schedule = cron("30 2 * * *", "America/New_York").unwrap();
    assert_eq!(schedule.count(at("2025-03-09T07:00:00Z"), at("2025-03-09T07:00:00Z")), 1);
    assert_eq!(schedule.count(at("2025-03-09T07:00:01Z"), to), 0);
}

#[test]
fn a_time_in_a_gap_can_be_skipped() {
    let skip = cron_with("30 2 * * *", "America/New_York", Gap::Skip, Fold::First).unwrap();
    assert_eq!(next(&skip, "2025-03-08T12:00:00Z", 1), ["2025-03-10T06:30:00Z"]);
}

#[test]
fn a_time_that_occurs_twice_fires_at_the_chosen_pass() {
    let [first, second, day_after] = ["2025-11-02T05:30:00Z", "2025-11-02T06:30:00Z", "2025-11-03T06:30:00Z"];
    for (fold, ticks) in [
        (Fold::First, vec![first, day_after]),
        (Fold::Last, vec![second, day_after]),
        (Fold::Both, vec![first, second]),
    ] {
        let schedule = cron_with("30 1 * * *", "America/New_York", Gap::Shift, fold).unwrap();
        assert_eq!(next(&schedule, "2025-11-01T12:00:00Z", 2), ticks, "{fold:?}");
    }
    let lord_howe = cron_with("45 1 * * *", "Australia/Lord_Howe", Gap::Shift, Fold::Last).unwrap();
    assert_eq!(next(&lord_howe, "2025-04-05T12:00:00Z", 1), ["2025-04-05T15:15:00Z"]);
}

#[test]
fn a_job_that_follows_elapsed_time_has_no_pause_and_no_duplicate() {
    for expression in ["*/30 * * * *", "0-59/30 * * * *", "0 */30 * * * *", "0,30 */1 * * *", "0,30 0-23 * * *"] {
        let schedule = cron(expression, "America/New_York").unwrap();
        for day in ["2025-03-09", "2025-11-02"] {
            let (from, to) = (at(&format!("{day}T04:00:00Z")), at(&format!("{day}T10:00:00Z")));
            let ticks: Vec<_> = schedule.ticks(from, to).collect();
            assert_eq!(ticks.len(), 13, "{expression} on {day}: {ticks:?}");
            assert!(
                ticks.windows(2).all(|pair| pair[1].since(pair[0]).as_millis() == 1_800_000),
                "{expression} on {day}"
            );
        }
    }
}

#[test]
fn an_hour_range_does_not_shift_times_out_of_a_gap() {
    let schedule = cron("30 1-3 * * *", "America/New_York").unwrap();
    let ticks = ["2025-03-09T06:30:00Z", "2025-03-09T07:30:00Z", "2025-03-10T05:30:00Z"];
    assert_eq!(next(&schedule, "2025-03-09T00:00:00Z", 3), ticks);
}

#[test]
fn a_list_of_hours_is_fixed_times_even_if_it_contains_a_range() {
    let schedule = cron("30 1-2,4 * * *", "America/New_York").unwrap();
    assert_eq!(next(&schedule, "2025-11-02T05:00:00Z", 2), ["2025-11-02T05:30:00Z", "2025-11-02T07:30:00Z"]);
    assert_eq!(next(&schedule, "2025-03-09T06:30:00Z", 1), ["2025-03-09T07:00:00Z"]);
}

#[test]
fn the_times_of_a_skipped_date_do_not_fire() {
    // Samoa had no 30 December 2011.
    for expression in ["0 12 30 12 *", "0 12 30 * *"] {
        let schedule = cron(expression, "Pacific/Apia").unwrap();
        let next = next(&schedule, "2011-12-01T00:00:00Z", 1);
        assert!(next[0].starts_with("2012"), "{expression}: {next:?}");
    }
    let daily = cron("0 12 * * *", "Pacific/Apia").unwrap();
    assert_eq!(next(&daily, "2011-12-29T00:00:00Z", 2), ["2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z"]);
}

#[test]
fn clocks_still_change_in_the_far_future() {
    let schedule = cron("30 2 * * *", "America/New_York").unwrap();
    assert_eq!(next(&schedule, "2400-03-11T12:00:00Z", 2), ["2400-03-12T07:00:00Z", "2400-03-13T06:30:00Z"]);
}

#[test]
fn the_local_time_has_the_offset_in_force() {
    let schedule = cron("0 2 * * *", "America/New_York").unwrap();
    assert_eq!(schedule.local(at("2026-11-16T07:00:00Z")), "2026-11-16T02:00:00-05:00");
    assert_eq!(schedule.local(at("2026-07-16T06:00:00Z")), "2026-07-16T02:00:00-04:00");
    assert_eq!(cron("0 2 * * *", "UTC").unwrap().local(at("2026-11-16T02:00:00Z")), "2026-11-16T02:00:00Z");
    assert_eq!(
        cron("0 2 * * *", "Europe/London").unwrap().local(at("2026-11-16T02:00:00Z")),
        "2026-11-16T02:00:00+00:00"
    );
}
