//! Stored specs, their bounds, periods and jitter.

use everytick_domain::{
    ids::JobId,
    schedule::{Fold, Gap, Schedule, ScheduleSpec, Timing, zone_data_version},
    time::{DbTime, Span},
};
use uuid::Uuid;

use crate::{at, next};

fn spec(timing: Timing) -> ScheduleSpec {
    timing.into()
}

fn daily() -> Timing {
    ScheduleSpec::cron("0 2 * * *", None, Gap::Shift, Fold::First, "a job").unwrap()
}

#[test]
fn specs_survive_serialization_unchanged() {
    let full = ScheduleSpec {
        timing: ScheduleSpec::cron("H 2 * * *", Some("europe/paris"), Gap::Skip, Fold::Both, "a job").unwrap(),
        starts_at: Some(at("2026-01-01T00:00:00Z")),
        ends_at: Some(at("2027-01-01T00:00:00Z")),
        jitter: Some(Span::seconds(30)),
        exclude: vec!["holidays".to_owned()],
    };
    for spec in [full, spec(daily()), spec(ScheduleSpec::every("15m").unwrap()), spec(Timing::At { at: DbTime::EPOCH })]
    {
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<ScheduleSpec>(&json).unwrap(), spec, "{json}");
    }
    let stored = r#"{"timing":{"kind":"cron","cron":"0 2 * * *","resolved":"0 2 * * *","timezone":"UTC"}}"#;
    assert_eq!(serde_json::from_str::<ScheduleSpec>(stored).unwrap(), spec(daily()));
}

#[test]
fn every_counts_from_starts_at_or_from_1970() {
    let quarter = Schedule::compile(&spec(ScheduleSpec::every("15m").unwrap())).unwrap();
    assert_eq!(next(&quarter, "2026-01-01T00:07:00Z", 2), ["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"]);
    let started =
        ScheduleSpec { starts_at: Some(at("2026-01-01T00:07:00.500Z")), ..spec(ScheduleSpec::every("15m").unwrap()) };
    let started = Schedule::compile(&started).unwrap();
    assert_eq!(next(&started, "2025-01-01T00:00:00Z", 2), ["2026-01-01T00:07:00.5Z", "2026-01-01T00:22:00.5Z"]);
    assert_eq!(next(&started, "2026-01-01T00:07:00.500Z", 1), ["2026-01-01T00:22:00.5Z"]);
    assert_eq!(started.count(at("2026-01-01T00:00:00Z"), at("2026-01-01T01:00:00Z")), 4);
    assert_eq!(started.count(at("2026-01-01T00:22:00.500Z"), at("2026-01-01T00:22:00.500Z")), 1);
    assert_eq!(started.count(at("2026-01-01T00:22:00.501Z"), at("2026-01-01T00:37:00.499Z")), 0);
    assert_eq!(started.period_at(at("2026-01-01T00:07:00.500Z")), Some(Span::minutes(15)));
}

#[test]
fn bounds_are_inclusive() {
    let bounded = ScheduleSpec {
        starts_at: Some(at("2026-01-02T02:00:00Z")),
        ends_at: Some(at("2026-01-04T02:00:00Z")),
        ..spec(daily())
    };
    let schedule = Schedule::compile(&bounded).unwrap();
    let ticks = ["2026-01-02T02:00:00Z", "2026-01-03T02:00:00Z", "2026-01-04T02:00:00Z"];
    assert_eq!(next(&schedule, "2025-01-01T00:00:00Z", 9), ticks);
    let (from, to) = (at("2020-01-01T00:00:00Z"), at("2030-01-01T00:00:00Z"));
    assert_eq!(schedule.count(from, to), 3);
    assert_eq!(schedule.ticks(from, to).count(), 3);
    assert_eq!(schedule.last_up_to(from, to), Some(at(ticks[2])));
    assert_eq!(schedule.newest(from, to, 2), [at(ticks[1]), at(ticks[2])]);
    assert_eq!(schedule.period_at(at(ticks[2])), None);
    assert_eq!(schedule.first_from(at(ticks[1])), Some(at(ticks[1])));
    assert_eq!(schedule.newest(from, to, 0), []);
    assert_eq!(schedule.newest(to, from, 5), []);
}

#[test]
fn an_instant_fires_once() {
    let once = Schedule::compile(&spec(ScheduleSpec::at("2026-01-01T00:00:00.250Z").unwrap())).unwrap();
    assert_eq!(next(&once, "2025-01-01T00:00:00Z", 9), ["2026-01-01T00:00:00.25Z"]);
    assert_eq!(once.count(DbTime::EPOCH, DbTime::MAX), 1);
    assert_eq!(once.last_up_to(DbTime::EPOCH, DbTime::MAX), Some(at("2026-01-01T00:00:00.250Z")));
    assert_eq!(once.next_after(at("2026-01-01T00:00:00.250Z")), None);
}

#[test]
fn impossible_specs_are_refused_by_field() {
    let (early, late) = (Some(at("2026-01-01T00:00:00Z")), Some(at("2027-01-01T00:00:00Z")));
    let cron = |resolved: &str, timezone: &str| Timing::Cron {
        cron: resolved.to_owned(),
        resolved: resolved.to_owned(),
        timezone: timezone.to_owned(),
        gap: Gap::Shift,
        fold: Fold::First,
    };
    let instant = Timing::At { at: at("2026-06-01T00:00:00Z") };
    for (spec, field) in [
        (ScheduleSpec { starts_at: late, ends_at: early, ..spec(daily()) }, "ends_at"),
        (ScheduleSpec { starts_at: late, ..spec(instant.clone()) }, "at"),
        (ScheduleSpec { ends_at: early, ..spec(instant) }, "at"),
        (ScheduleSpec { starts_at: Some(DbTime::from_millis(-1)), ..spec(daily()) }, "starts_at"),
        (ScheduleSpec { jitter: Some(Span::millis(u64::MAX)), ..spec(daily()) }, "jitter"),
        (spec(Timing::Every { every: Span::millis(999) }), "every"),
        (spec(Timing::Every { every: Span::millis(u64::MAX) }), "every"),
        (spec(cron("H * * * *", "UTC")), "cron"),
        (spec(cron("0 0 30 2 *", "UTC")), "cron"),
        (spec(cron("0 0 1 * *", "Nowhere")), "timezone"),
    ] {
        let wrong = Schedule::compile(&spec).unwrap_err();
        assert_eq!(wrong.iter().map(|invalid| invalid.field.as_str()).collect::<Vec<_>>(), [field], "{spec:?}");
    }
    assert_eq!(ScheduleSpec::every("999ms").unwrap_err().field, "every");
    assert_eq!(ScheduleSpec::every("soon").unwrap_err().field, "every");
    assert_eq!(ScheduleSpec::at("soon").unwrap_err().field, "at");
}

#[test]
fn jitter_is_deterministic_and_less_than_its_bound() {
    let jittered = ScheduleSpec { jitter: Some(Span::seconds(60)), ..spec(daily()) };
    let schedule = Schedule::compile(&jittered).unwrap();
    let plain = Schedule::compile(&spec(daily())).unwrap();
    let tick = at("2026-01-01T02:00:00Z");
    let mut delays = std::collections::BTreeSet::new();
    for n in 0..200 {
        let job = JobId::from_uuid(Uuid::from_u128(n));
        let due = schedule.due_at(job, tick);
        assert_eq!(due, schedule.clone().due_at(job, tick));
        assert!(due >= tick && due.since(tick) < Span::seconds(60));
        assert_eq!(plain.due_at(job, tick), tick);
        delays.insert(due.since(tick).as_millis() / 10_000);
    }
    assert_eq!(delays.len(), 6, "delays fall into all six parts of the minute");
}

#[test]
fn the_zone_data_has_a_version() {
    let version = zone_data_version();
    assert!(version >= "2025a" && version.len() == 5, "{version}");
}
