use std::sync::Arc;

use super::*;
use crate::{
    calendar::{Calendar, CalendarSpec, CalendarVersion},
    flow::DependsOn,
    ids::{Cause, RunId, Version},
    job,
    plan::tests::{job, spec},
    run::State,
    schedule::{CronCache, Timing},
};

const DAY: i64 = 86_400;
/// 2026-11-16T00:00:00Z; the job ticks at every full minute.
const BEGIN: i64 = 1_794_787_200;

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
        record: None,
        range: None,
        backfilled: Vec::new(),
    }
}

fn changed(x: i64, what: What) -> Changed {
    Changed { effective_at: s(x), by: "ann".into(), what }
}

fn record(state: State, skip_reason: Option<SkipReason>) -> TickRecord {
    TickRecord {
        run: RunId::floor(s(60)),
        state,
        skip_reason,
        due_at: s(60),
        started_at: None,
        finished_at: Some(s(61)),
        attempt: 1,
        node: Some("a".into()),
        error: (state == State::Failed).then(|| "404".into()),
    }
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

/// Situation, instant, change of the facts, the kind of the answer, and what its text must contain.
const CASES: &[Case] = &[
    (
        "a run that succeeded",
        60,
        |f| f.record = Some(record(State::Succeeded, None)),
        Kind::Run,
        &["succeeded", "2026-11-16T00:01:01Z"],
    ),
    ("a run that failed", 60, |f| f.record = Some(record(State::Failed, None)), Kind::Run, &["failed", "404"]),
    ("a run in progress", 60, |f| f.record = Some(record(State::Claimed, None)), Kind::Run, &["is in progress on a"]),
    (
        "a run that waits",
        60,
        |f| f.record = Some(TickRecord { attempt: 0, ..record(State::Waiting, None) }),
        Kind::Run,
        &["waits to be started"],
    ),
    (
        "an overlap",
        60,
        |f| f.record = Some(record(State::Skipped, Some(SkipReason::Overlap))),
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
            f.record = Some(record(State::Skipped, Some(SkipReason::Calendar)));
        },
        Kind::Skipped,
        &["calendar holidays excludes the date"],
    ),
    ("a future holiday", 40 * DAY, |f| naming(f, "2026-12-26"), Kind::WillBeSkipped, &["calendar holidays"]),
    ("not a tick", 90, |_| (), Kind::NotATick, &["2026-11-16T00:01:00Z", "2026-11-16T00:02:00Z"]),
    ("not yet due", 3_720, |_| (), Kind::NotYetDue, &["2026-11-16T01:00:30Z"]),
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
            child.depends_on = vec![DependsOn { job: "a".into(), when: crate::flow::When::Finished }];
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
        let answer = explain(&facts, s(*at));
        assert_eq!(answer.kind, *kind, "{situation}: {}", answer.words);
        assert!(answer.words.starts_with(&s(*at).to_string()), "{situation}: {}", answer.words);
        for word in *contains {
            assert!(answer.words.contains(word), "{situation}: {} does not contain {word:?}", answer.words);
        }
    }
    for kind in Kind::ALL {
        assert!(CASES.iter().any(|case| case.3 == *kind), "{kind:?} is not in the table");
    }
}

#[test]
fn the_fields_agree_with_the_text() {
    let mut facts = facts();
    naming(&mut facts, "2026-11-16");
    facts.range = Some(SkipRange { from: s(60), to: s(1_800), count: 30, reason: SkipReason::Calendar });
    let answer = explain(&facts, s(60));
    assert_eq!((answer.skip_reason, answer.calendar.as_deref()), (Some(SkipReason::Calendar), Some("holidays")));
    assert_eq!(answer.range, facts.range);
    let answer = explain(&facts, s(61));
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
fn backfilled_runs_are_listed_besides_the_record_of_the_tick() {
    let run = RunId::floor(DbTime::from_millis(7));
    let explained = |state| {
        let facts = Facts { backfilled: vec![Backfilled { run, state }], ..facts() };
        explain(&facts, facts.job.created_at)
    };
    let alone = explain(&facts(), facts().job.created_at);
    let beside = explained(State::Failed);
    assert_eq!((beside.kind, &beside.record), (alone.kind, &alone.record));
    assert_eq!(beside.words, format!("{}; backfilled: run {run} failed", alone.words));
    assert_eq!(beside.backfilled, [Backfilled { run, state: State::Failed }]);
    for (state, words) in [(State::Waiting, "waits"), (State::Claimed, "is in progress")] {
        assert!(explained(state).words.ends_with(words));
    }
}
