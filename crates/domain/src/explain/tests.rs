mod backfills;
mod edits;

use std::sync::Arc;

use super::*;
use crate::{
    calendar::{Calendar, CalendarSpec, CalendarVersion},
    flow::{DependsOn, When},
    ids::{Cause, RunId, Version},
    job,
    plan::tests::{job, spec},
    run::{CauseKind, State},
    schedule::{CronCache, Fold, Gap, ScheduleSpec, Timing},
};

const DAY: i64 = 86_400;
/// 2026-11-16T00:00:00Z; the job ticks at every full minute.
const BEGIN: i64 = 1_794_787_200;

/// 2027-03-14T07:00:00Z: clocks in New York go forward, 02:00 to 03:00.
const CHANGE: i64 = 118 * DAY + 7 * 3_600;

fn s(seconds: i64) -> DbTime {
    DbTime::from_millis((BEGIN + seconds) * 1_000)
}

/// A job that fires each minute, created 100 days ago, with nothing recorded.
fn facts() -> Facts {
    let mut job = job(spec(Span::minutes(1)));
    job.created_at = s(-100 * DAY);
    Facts {
        job,
        cursor: Some(s(3_660)),
        now: s(3_630),
        kept_from: s(-90 * DAY),
        changes: vec![changed(-100 * DAY, What::Created)],
        calendars: Vec::new(),
        run: None,
        range: None,
        backfilled: Vec::new(),
        last: None,
        parents: Vec::new(),
    }
}

fn changed(x: i64, what: What) -> Changed {
    Changed { effective_at: s(x), by: "ann".into(), what }
}

fn record(facts: &Facts, state: State, skip_reason: Option<SkipReason>) -> Option<Box<RunFacts>> {
    let mut run = run::tests::facts(state);
    run.run = RunRow {
        run: RunId::of(facts.job.id, Cause::Tick(s(60))),
        cause: CauseKind::Tick,
        scheduled_at: s(60),
        due_at: s(60),
        skip_reason,
        started_at: None,
        finished_at: Some(s(61)),
        attempt: 1,
        ..run.run
    };
    (run.job, run.now) = (Some(facts.job.clone()), facts.now);
    Some(Box::new(run))
}

/// The job ticks at 02:30 in New York.
fn nightly(facts: &mut Facts, gap: Gap) {
    let timing = ScheduleSpec::cron("30 2 * * *", Some("America/New_York"), gap, Fold::First, "j").unwrap();
    let mut zoned = (*facts.job.spec).clone();
    zoned.schedule = Some(timing.into());
    facts.job.schedule = job::compile(&zoned, &[], &CronCache::default()).unwrap();
    facts.job.spec = Arc::new(zoned);
}

fn at(text: &str) -> i64 {
    text.parse::<DbTime>().unwrap().millis() / 1_000 - BEGIN
}

fn every(seconds: u64) -> Was {
    Was { enabled: true, schedule: Some(Timing::Every { every: Span::seconds(seconds) }.into()) }
}

fn calendar(date: &str) -> Arc<Calendar> {
    let spec = CalendarSpec::new("UTC", vec![date.parse().unwrap()], vec![]).unwrap();
    let version = CalendarVersion::new(Version::from_raw(1), s(-100 * DAY), &spec).unwrap();
    Arc::new(Calendar::new("holidays", vec![version]).unwrap())
}

fn naming(facts: &mut Facts, date: &str) {
    let mut named = (*facts.job.spec).clone();
    named.schedule.as_mut().unwrap().exclude = vec!["holidays".into()];
    facts.calendars = vec![calendar(date)];
    facts.job.schedule = job::compile(&named, &facts.calendars, &CronCache::default()).unwrap();
    facts.job.spec = Arc::new(named);
}

type Case = (&'static str, i64, fn(&mut Facts), Kind, &'static [&'static str]);

/// Situation, instant, change of the facts, expected kind of the answer, and expected parts of its text.
const CASES: &[Case] = &[
    (
        "a run that succeeded",
        60,
        |f| f.run = record(f, State::Succeeded, None),
        Kind::Run,
        &["succeeded", "2026-11-16T00:01:01Z"],
    ),
    ("a run that failed", 60, |f| f.run = record(f, State::Failed, None), Kind::Run, &["failed", "404"]),
    ("a run in progress", 60, |f| f.run = record(f, State::Claimed, None), Kind::Run, &["is in progress on a"]),
    (
        "a run that waits",
        60,
        |f| f.run = record(f, State::Waiting, None),
        Kind::Run,
        &["waits since 2026-11-16T00:01:00Z (59m30s)"],
    ),
    (
        "an overlap",
        60,
        |f| f.run = record(f, State::Skipped, Some(SkipReason::Overlap)),
        Kind::Skipped,
        &["overlap policy", "still open"],
    ),
    (
        "a misfire in a range",
        60,
        |f| f.range = Some(SkipRange { from: s(0), to: s(3_000), count: 51, reason: SkipReason::Misfire }),
        Kind::Skipped,
        &["older than the job's grace", "51 ticks from 2026-11-16T00:00:00Z"],
    ),
    (
        "a recorded holiday",
        60,
        |f| {
            naming(f, "2026-11-16");
            f.run = record(f, State::Skipped, Some(SkipReason::Calendar));
        },
        Kind::Skipped,
        &["calendar holidays excludes the date"],
    ),
    ("a future holiday", 40 * DAY, |f| naming(f, "2026-12-26"), Kind::WillBeSkipped, &["calendar holidays"]),
    ("not a tick", 90, |_| (), Kind::NotATick, &["2026-11-16T00:01:00Z", "2026-11-16T00:02:00Z"]),
    ("not yet due", 3_720, |_| (), Kind::NotYetDue, &["not yet due: it will run in 1m30s"]),
    (
        "the first tick",
        3_660,
        |f| f.job.created_at = s(3_610),
        Kind::NotYetDue,
        &["the first tick; not yet due: it will run in 30s"],
    ),
    ("before it was created", -101 * DAY, |_| (), Kind::NotYetMade, &["did not exist yet", "created it at 2026-08-08"]),
    (
        "after it was deleted",
        120,
        |f| {
            f.job.deleted_at = Some(s(90));
            f.changes.push(changed(90, What::Deleted));
        },
        Kind::Deleted,
        &["deleted by ann at 2026-11-16T00:01:30Z"],
    ),
    (
        "in an earlier pause",
        120,
        |f| f.changes.extend([changed(90, What::Paused), changed(200, What::Resumed)]),
        Kind::Paused,
        &["paused by ann at 2026-11-16T00:01:30Z", "until 2026-11-16T00:03:20Z"],
    ),
    (
        "in the present pause",
        120,
        |f| {
            f.job.paused = Some(job::Paused { at: s(90), note: Some("moving".into()) });
            f.changes.push(changed(90, What::Paused));
        },
        Kind::Paused,
        &["paused by ann", "still is", "(moving)"],
    ),
    (
        "while it is disabled",
        120,
        |f| {
            let mut disabled = (*f.job.spec).clone();
            disabled.enabled = false;
            f.job.spec = Arc::new(disabled);
        },
        Kind::Disabled,
        &["disabled"],
    ),
    (
        "since it was disabled",
        120,
        |f| {
            let mut disabled = (*f.job.spec).clone();
            disabled.enabled = false;
            f.job.spec = Arc::new(disabled);
            f.changes.push(changed(90, What::Edited(Some(every(60)))));
        },
        Kind::Disabled,
        &["the job is disabled", "ann disabled it at 2026-11-16T00:01:30Z"],
    ),
    (
        "a tick out of a gap",
        CHANGE,
        |f| nightly(f, Gap::Shift),
        Kind::NotYetDue,
        &["2027-03-14T03:00:00-04:00 (2027-03-14T07:00:00Z): ", "not yet due"],
    ),
    (
        "a time that does not exist",
        CHANGE,
        |f| nightly(f, Gap::Skip),
        Kind::NotATick,
        &["no tick: 02:30 does not exist, does not fire (gap: skip)", "2027-03-13T02:30:00-05:00"],
    ),
    (
        "a tick of the new definition only",
        120,
        |f| f.changes.push(changed(150, What::Edited(Some(every(7_200))))),
        Kind::DefinitionChanged,
        &["in force then", "ann set at 2026-11-16T00:02:30Z"],
    ),
    (
        "an unknown definition",
        120,
        |f| f.changes.push(changed(150, What::Edited(None))),
        Kind::DefinitionChanged,
        &["not known"],
    ),
    (
        "no tick of the old definition either",
        121,
        |f| f.changes.push(changed(150, What::Edited(Some(every(10))))),
        Kind::NotATick,
        &["in force until 2026-11-16T00:02:30Z", "00:02:00Z and 2026-11-16T00:02:10Z"],
    ),
    (
        "before it starts",
        120,
        |f| {
            let mut bounded = (*f.job.spec).clone();
            bounded.schedule.as_mut().unwrap().starts_at = Some(s(180));
            f.job.schedule = job::compile(&bounded, &[], &CronCache::default()).unwrap();
            f.job.spec = Arc::new(bounded);
        },
        Kind::OutOfBounds,
        &["starts at 2026-11-16T00:03:00Z"],
    ),
    (
        "after it ended",
        120,
        |f| {
            let mut bounded = (*f.job.spec).clone();
            bounded.schedule.as_mut().unwrap().ends_at = Some(s(60));
            f.job.schedule = job::compile(&bounded, &[], &CronCache::default()).unwrap();
            f.job.spec = Arc::new(bounded);
        },
        Kind::OutOfBounds,
        &["ended at 2026-11-16T00:01:00Z"],
    ),
    (
        "without a schedule",
        120,
        |f| {
            let mut manual = (*f.job.spec).clone();
            manual.schedule = None;
            f.job.schedule = None;
            f.job.spec = Arc::new(manual);
        },
        Kind::NoSchedule,
        &["runs when it is triggered"],
    ),
    (
        "without a schedule, with a parent",
        120,
        |f| {
            let mut child = (*f.job.spec).clone();
            child.schedule = None;
            child.depends_on = vec![DependsOn { job: "a".into(), when: When::Finished }];
            f.job.schedule = None;
            f.job.spec = Arc::new(child);
        },
        Kind::NoSchedule,
        &["runs when a has finished, or when it is triggered"],
    ),
    ("pruned history", -95 * DAY, |_| (), Kind::OutOfHistory, &["has been pruned", "goes back to 2026-08-18"]),
    ("a missing tick", 120, |_| (), Kind::Missing, &["should not happen"]),
    (
        "a due tick that is being recorded",
        3_600,
        |f| f.cursor = Some(s(3_600)),
        Kind::NotYetRecorded,
        &["not recorded yet"],
    ),
    ("an overdue tick", 120, |f| f.cursor = Some(s(60)), Kind::NotYetRecorded, &["is a node running?"]),
];

#[test]
fn every_situation_is_explained() {
    assert!(CASES.len() >= 15);
    for (situation, at, change, kind, contains) in CASES {
        let mut facts = facts();
        change(&mut facts);
        let answer = explain(&facts, Question::at(s(*at)), ShownIn::JobZone);
        assert_eq!(answer.kind, *kind, "{situation}: {}", answer.words);
        let (local, utc) = (&answer.local, s(*at).to_string());
        let begins = if *local == utc { format!("{utc}: ") } else { format!("{local} ({utc}): ") };
        assert!(answer.words.starts_with(&begins), "{situation}: {}", answer.words);
        for word in *contains {
            assert!(answer.words.contains(word), "{situation}: {} does not contain {word:?}", answer.words);
        }
    }
    for kind in Kind::ALL {
        assert!(CASES.iter().any(|case| case.3 == *kind), "{kind:?} is not in the table");
    }
}

#[test]
fn the_text_about_a_job_without_a_zone_is_in_the_zone_of_the_caller() {
    let mut facts = facts();
    let question = Question::at(s(at("2026-12-25T07:30:00Z")));
    let words = |facts: &Facts| explain(facts, question, ShownIn::JobZoneOr("Europe/Berlin")).words;
    assert!(words(&facts).starts_with("2026-12-25T08:30:00+01:00 (2026-12-25T07:30:00Z): "), "{}", words(&facts));
    nightly(&mut facts, Gap::Shift);
    assert!(words(&facts).starts_with("2026-12-25T02:30:00-05:00 (2026-12-25T07:30:00Z): "), "{}", words(&facts));
}

#[test]
fn the_fields_agree_with_the_text() {
    let mut facts = facts();
    naming(&mut facts, "2026-11-16");
    facts.range = Some(SkipRange { from: s(60), to: s(1_800), count: 30, reason: SkipReason::Calendar });
    let answer = explain(&facts, Question::at(s(60)), ShownIn::JobZone);
    assert_eq!((answer.skip_reason, answer.calendar.as_deref()), (Some(SkipReason::Calendar), Some("holidays")));
    assert_eq!(answer.range, facts.range);
    let answer = explain(&facts, Question::at(s(61)), ShownIn::JobZone);
    assert_eq!((answer.before, answer.after), (Some(s(60)), Some(s(120))), "a range contains only ticks");
}

#[test]
fn the_default_instant_is_the_last_expected_tick() {
    let mut facts = facts();
    assert_eq!(expected(&facts.job, facts.now), s(3_600));
    facts.job.deleted_at = Some(s(150));
    assert_eq!(expected(&facts.job, facts.now), s(120));
    facts.job.schedule = None;
    assert_eq!(expected(&facts.job, facts.now), facts.now);
}

#[test]
fn the_id_of_a_tick_contains_its_instant() {
    let facts = facts();
    assert_eq!(RunId::of(facts.job.id, Cause::Tick(s(60))).time(), s(60));
}

#[test]
fn the_default_instant_of_a_job_that_has_not_run_yet_is_its_first_tick() {
    let mut facts = facts();
    facts.job.created_at = s(3_605);
    assert_eq!(expected(&facts.job, facts.now), s(3_660));
    let answer = explain(&facts, Question::default(), ShownIn::JobZone);
    assert_eq!((answer.kind, answer.next_tick), (Kind::NotYetDue, Some(s(3_660))));
}

#[test]
fn a_period_is_answered_with_its_first_tick() {
    let mut facts = facts();
    nightly(&mut facts, Gap::Shift);
    facts.cursor = Some(s(3_660));
    let day = |from: &str, until: &str| Question { at: Some(s(at(from))), until: Some(s(at(until))) };
    let christmas = day("2026-12-25T05:00:00Z", "2026-12-26T05:00:00Z");
    let answer = explain(&facts, christmas, ShownIn::JobZone);
    assert_eq!((answer.kind, answer.local.as_str()), (Kind::NotYetDue, "2026-12-25T02:30:00-05:00"));
    assert_eq!(answer.zone.as_deref(), Some("America/New_York"));
    let utc = explain(&facts, christmas, ShownIn::Utc);
    assert!(utc.words.starts_with("2026-12-25T") && !utc.words.contains("-05:00"), "{}", utc.words);
    assert!(utc.details.iter().all(|detail| !detail.contains("-05:00")), "{utc:?}");
    assert_eq!((&utc.local, &utc.zone), (&answer.local, &answer.zone), "the fields stay in the zone of the job");
    nightly(&mut facts, Gap::Skip);
    let answer = explain(&facts, day("2027-03-14T05:00:00Z", "2027-03-15T04:00:00Z"), ShownIn::JobZone);
    assert_eq!(answer.kind, Kind::NotATick);
    assert!(answer.words.contains("02:30 does not exist, does not fire"), "{}", answer.words);
    let answer = explain(&facts, day("2026-12-25T08:00:00Z", "2026-12-25T20:00:00Z"), ShownIn::JobZone);
    assert!(answer.words.contains("no tick from here to before 2026-12-25T15:00:00-05:00"), "{}", answer.words);
    let facts = self::facts();
    let answer = explain(&facts, day("2026-12-25T00:00:00Z", "2026-12-25T01:00:00Z"), ShownIn::JobZone);
    assert!(answer.details.contains(&"the first of 60 ticks before 2026-12-25T01:00:00Z".to_owned()), "{answer:?}");
}

#[test]
fn a_shifted_tick_is_explained_with_its_clock_change() {
    let mut facts = facts();
    nightly(&mut facts, Gap::Shift);
    let answer = explain(&facts, Question::at(s(CHANGE)), ShownIn::JobZone);
    assert!(answer.details[0].starts_with("02:30 does not exist, fires at 03:00; clocks go forward 1h"), "{answer:?}");
}

#[test]
fn the_pass_of_a_time_that_comes_twice_and_does_not_fire_is_explained() {
    let mut facts = facts();
    let timing = ScheduleSpec::cron("30 1 * * *", Some("America/New_York"), Gap::Shift, Fold::First, "j").unwrap();
    let mut zoned = (*facts.job.spec).clone();
    zoned.schedule = Some(timing.into());
    facts.job.schedule = job::compile(&zoned, &[], &CronCache::default()).unwrap();
    facts.job.spec = Arc::new(zoned);
    let answer = explain(&facts, Question::at(s(at("2027-11-07T06:30:00Z"))), ShownIn::JobZone);
    assert!(answer.words.contains("01:30 comes twice, fires at the first pass"), "{}", answer.words);
    assert!(answer.words.contains("that tick is 2027-11-07T01:30:00-04:00"), "{}", answer.words);
}

type Stop = (&'static str, fn(&mut Facts), &'static str);

#[test]
fn the_last_detail_is_the_next_tick_or_why_there_is_none() {
    let cases: &[Stop] = &[
        ("it continues", |_| (), "next tick: 2026-11-16T01:01:00Z, in 30s"),
        (
            "it was paused after the tick",
            |f| {
                f.job.paused = Some(job::Paused { at: s(3_610), note: Some("410".into()) });
                f.changes.push(changed(3_610, What::Paused));
            },
            "no ticks while the job is paused; it was paused by ann at 2026-11-16T01:00:10Z (410)",
        ),
        (
            "it was deleted",
            |f| {
                f.job.deleted_at = Some(s(3_620));
                f.changes.push(changed(3_620, What::Deleted));
            },
            "no further ticks: the job was deleted by ann at 2026-11-16T01:00:20Z",
        ),
        (
            "it has ended",
            |f| {
                let mut bounded = (*f.job.spec).clone();
                bounded.schedule.as_mut().unwrap().ends_at = Some(s(3_601));
                f.job.schedule = job::compile(&bounded, &[], &CronCache::default()).unwrap();
                f.job.spec = Arc::new(bounded);
            },
            "no further ticks: the schedule ended at 2026-11-16T01:00:01Z (ends_at)",
        ),
        (
            "it had one tick",
            |f| {
                let mut once = (*f.job.spec).clone();
                once.schedule = Some(Timing::At { at: s(3_600) }.into());
                f.job.schedule = job::compile(&once, &[], &CronCache::default()).unwrap();
                f.job.spec = Arc::new(once);
            },
            "no further ticks: the last tick of the schedule was 2026-11-16T01:00:00Z",
        ),
    ];
    for (situation, change, last) in cases {
        let mut facts = facts();
        change(&mut facts);
        let mut run = run::tests::facts(State::Succeeded);
        run.run.scheduled_at = s(3_600);
        facts.run = Some(Box::new(run));
        let answer = explain(&facts, Question::default(), ShownIn::JobZone);
        assert_eq!(answer.kind, Kind::Run, "{situation}");
        assert_eq!(answer.details.last().map(String::as_str), Some(*last), "{situation}");
        assert_eq!(answer.next_tick.is_some(), last.starts_with("next"), "{situation}");
    }
}

#[test]
fn a_job_without_a_schedule_is_answered_with_its_newest_run_and_its_parents() {
    let mut facts = facts();
    let mut child = (*facts.job.spec).clone();
    child.schedule = None;
    child.depends_on = vec![DependsOn { job: "extract".into(), when: When::Succeeded }];
    facts.job.schedule = None;
    facts.job.spec = Arc::new(child);
    facts.parents = vec![Parent { job: "extract".into(), when: When::Succeeded, run: None }];
    let answer = explain(&facts, Question::default(), ShownIn::JobZone);
    assert_eq!(answer.kind, Kind::NoSchedule);
    assert!(answer.words.contains("it has not run yet: the job has no schedule; it runs when extract has succeeded"));
    assert_eq!(answer.details, ["parent extract has not run yet"]);

    let mut last = run::tests::facts(State::Skipped);
    last.run.skip_reason = Some(SkipReason::Parent);
    last.run.error = Some("parent extract is failed, not succeeded".into());
    facts.last = Some(Box::new(last));
    let newer = RunId::floor(s(3_601));
    let run = FlowRun { run: newer, state: State::Claimed, finished_at: None, error: None };
    facts.parents[0].run = Some(run);
    let answer = explain(&facts, Question::default(), ShownIn::JobZone);
    assert_eq!((answer.kind, answer.skip_reason), (Kind::Skipped, Some(SkipReason::Parent)));
    let parent = format!("the newest run of parent extract, {newer}, is in progress; depends_on requires succeeded");
    assert_eq!(answer.details.last(), Some(&parent), "a flow that is newer than the run");
    assert_eq!(
        explain(&facts, Question::at(s(60)), ShownIn::JobZone).kind,
        Kind::NoSchedule,
        "an instant was asked for"
    );
}

#[test]
fn a_stopped_job_without_a_schedule_shows_its_newest_run() {
    let mut facts = facts();
    let mut unscheduled = (*facts.job.spec).clone();
    unscheduled.schedule = None;
    (facts.job.schedule, facts.job.spec) = (None, Arc::new(unscheduled));
    let paused = job::Paused { at: s(100), note: None };
    let ask = |facts: &Facts| explain(facts, Question::default(), ShownIn::JobZone);

    facts.last = record(&facts, State::Waiting, None);
    facts.job.paused = Some(paused.clone());
    let answer = ask(&facts);
    assert_eq!(answer.kind, Kind::Run);
    assert!(answer.words.contains("waits since"), "{}", answer.words);
    assert!(
        answer.details.iter().any(|detail| detail.contains("was paused") && detail.contains("open runs")),
        "{answer:?}"
    );
    facts.job.deleted_at = Some(s(200));
    assert!(ask(&facts).details.iter().any(|detail| detail.contains("was deleted")), "{:?}", ask(&facts));

    (facts.job.deleted_at, facts.last) = (None, record(&facts, State::Succeeded, None));
    let answer = ask(&facts);
    assert_eq!(answer.kind, Kind::Paused, "an ended run does not answer why the job does not run");
    assert!(answer.details.iter().any(|detail| detail.starts_with("its newest run, ")), "{answer:?}");
}

#[test]
fn an_end_before_the_next_tick_is_named_as_the_reason() {
    let mut facts = facts();
    nightly(&mut facts, Gap::Shift);
    let mut ending = (*facts.job.spec).clone();
    ending.schedule.as_mut().unwrap().ends_at = Some(s(3_700));
    facts.job.schedule = job::compile(&ending, &[], &CronCache::default()).unwrap();
    facts.job.spec = Arc::new(ending);
    let why = no_ticks(&facts.job, &[], facts.now).unwrap();
    assert!(why.contains("the schedule ends at") && why.contains("(ends_at), before its next tick"), "{why}");
    let why = no_ticks(&facts.job, &[], s(3_701)).unwrap();
    assert!(why.contains("the schedule ended at"), "{why}");
}
